//! What a run found: for a person, a program, a build server, and as a page.

mod html;
mod junit;

use serde::Serialize;

use crate::hazard::{About, Seen, Verdict};
use crate::hazards::REPEATS;
use crate::subject::Subject;
use crate::transcript::Entry;
use crate::visible::{commands, visible};

/// What was found of one hazard.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// The hazard.
    #[serde(flatten)]
    pub about: About,
    /// What is said of the server.
    #[serde(serialize_with = "word")]
    pub verdict: Verdict,
    /// Id of the requirement that is violated.
    pub requirement: Option<&'static str>,
    /// What was seen.
    pub seen: String,
    /// How long it took.
    pub took_ms: u64,
    /// What was said on the wire.
    pub transcript: Vec<Entry>,
}

fn word<S: serde::Serializer>(verdict: &Verdict, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match verdict {
        Verdict::Safe => "safe",
        Verdict::Hazard => "hazard",
        Verdict::Violation(_) => "violation",
        Verdict::NotApplicable => "not_applicable",
        Verdict::CouldNotTell => "could_not_tell",
    })
}

impl Finding {
    pub(crate) fn new(about: About, seen: Seen, took_ms: u64, transcript: Vec<Entry>) -> Self {
        let requirement = match seen.verdict {
            Verdict::Violation(requirement) => Some(requirement),
            _ => None,
        };
        let (verdict, seen) = (seen.verdict, visible(&seen.seen).into_owned());
        Self { about, verdict, requirement, seen, took_ms, transcript }
    }
}

/// What a run found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The server, as it was named.
    pub target: String,
    /// What the server calls itself.
    pub server: String,
    /// The tool that was called.
    pub subject: Subject,
    /// Requests that were sent.
    pub requests: u64,
    /// Whether the server opened no sessions any more before the end.
    pub lost: bool,
    /// What was found, in the order in which it was.
    pub findings: Vec<Finding>,
}

impl Report {
    /// How many findings are something to repair.
    pub fn hazards(&self) -> usize {
        self.findings.iter().filter(|finding| finding.verdict.is_bad()).count()
    }

    /// A table to read at a glance, and below it what to do.
    pub fn table(&self) -> String {
        let mut text = format!("{} ({})\n", self.target, self.server);
        text.push_str(&format!("tool: {}\n\n", self.subject.told()));
        let width = self.findings.iter().map(|one| one.about.id.len()).max().unwrap_or_default();
        for finding in &self.findings {
            let (id, verdict) = (finding.about.id, finding.verdict);
            text.push_str(&format!("  {id:width$}  {verdict:<17}  {}\n", finding.seen));
        }
        text.push('\n');
        for finding in self.findings.iter().filter(|finding| finding.verdict.is_bad()) {
            let About { id, title, done, why, fix } = finding.about;
            text.push_str(&format!("{id}: {title}\n  done: the probe {done}.\n"));
            text.push_str(&format!("  seen: {}.\n  why:  {why}\n  fix:  {fix}.\n", finding.seen));
        }
        text.push_str(&self.summary());
        text.push('\n');
        if let Some(unjudged) = self.unjudged() {
            text.push_str(&format!("{unjudged}\n"));
        }
        text
    }

    /// What the run was to say first of all and does not, and how to get it, in one line.
    pub fn unjudged(&self) -> Option<String> {
        let is_open = |finding: &&Finding| {
            let is_repeat = REPEATS.contains(&finding.about.id);
            let verdict = finding.verdict;
            is_repeat && matches!(verdict, Verdict::NotApplicable | Verdict::CouldNotTell)
        };
        let open: Vec<&Finding> = self.findings.iter().filter(is_open).collect();
        let first = open.first()?;
        let leave = match first.verdict {
            Verdict::NotApplicable => " (--allow-effects, if it is not read-only)",
            _ => "",
        };
        let why = format!("{}{leave}", first.seen);
        let ids: Vec<&str> = open.iter().map(|finding| finding.about.id).collect();
        let ids = ids.join(", ");
        Some(format!("NOT JUDGED: whether a call that is sent again runs twice ({ids}): {why}"))
    }

    /// How many of each verdict, in one line.
    pub fn summary(&self) -> String {
        let count = |is: fn(&Verdict) -> bool| {
            self.findings.iter().filter(|finding| is(&finding.verdict)).count()
        };
        format!(
            "{} hazards, {} violations, {} safe, {} not applicable, {} could not tell; {} \
             requests{}",
            count(|verdict| *verdict == Verdict::Hazard),
            count(|verdict| matches!(verdict, Verdict::Violation(_))),
            count(|verdict| *verdict == Verdict::Safe),
            count(|verdict| *verdict == Verdict::NotApplicable),
            count(|verdict| *verdict == Verdict::CouldNotTell),
            self.requests,
            if self.lost { "; THE SERVER WAS LOST: it opened no session any more" } else { "" },
        )
    }

    /// All of it as JSON.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn json(&self) -> serde_json::Result<String> {
        let text = serde_json::to_string_pretty(self)?;
        // JSON itself escapes only some of what steers a terminal; all of it is within strings.
        let mut json = String::with_capacity(text.len());
        for character in text.chars() {
            if character != '\n' && commands(character) {
                json.push_str(&format!("\\u{:04x}", u32::from(character)));
            } else {
                json.push(character);
            }
        }
        Ok(json)
    }

    /// As JUnit XML: one test case for each hazard.
    pub fn junit(&self) -> String {
        junit::write(self)
    }

    /// As one page that needs nothing else.
    pub fn html(&self) -> String {
        html::write(self)
    }
}

/// Text for HTML and XML. Characters that XML 1.0 cannot hold are replaced.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' | '\t' => escaped.push(character),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            control if commands(control) => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::Tool;

    fn report() -> Report {
        let about = About { id: "x", title: "a<b", done: "d", why: "w", fix: "f" };
        let entry = Entry {
            at_ms: 1,
            connection: 1,
            direction: '<',
            text: "</pre><script>\u{1}".to_owned(),
        };
        let findings = [
            Seen::violation("RES-6", "leaked & \"more\""),
            Seen::safe("fine"),
            Seen::not_applicable("no"),
            Seen::unclear("what"),
        ];
        let findings = findings
            .into_iter()
            .map(|seen| Finding::new(about, seen, 5, vec![entry.clone()]))
            .collect();
        let subject = Subject {
            tool: Tool { name: "get".to_owned(), arguments: serde_json::json!({}) },
            duration_ms: 3,
            steps: Vec::new(),
            steady: true,
            distinct: false,
            ids: true,
        };
        Report {
            target: "http://t/<mcp>".to_owned(),
            server: "s 1".to_owned(),
            subject,
            requests: 9,
            lost: false,
            findings,
        }
    }

    #[test]
    fn what_a_server_sent_is_text_in_the_page_and_in_the_xml() {
        for text in [report().html(), report().junit()] {
            assert!(!text.contains("<script") && !text.contains("</pre><script"), "{text}");
            assert!(!text.contains('\u{1}') && !text.contains("<mcp>"), "{text}");
            assert!(text.contains("RES-6") && text.contains("leaked &amp;"), "{text}");
        }
        assert!(!report().html().contains("http://t/<"), "nothing is loaded from elsewhere");
    }

    #[test]
    fn the_xml_counts_failures_and_what_was_skipped() {
        let xml = report().junit();
        assert!(xml.contains("tests=\"4\" failures=\"1\" skipped=\"2\""), "{xml}");
    }

    #[test]
    fn json_names_verdict_and_requirement() {
        let value: serde_json::Value = serde_json::from_str(&report().json().unwrap()).unwrap();
        assert_eq!(value["findings"][0]["verdict"], "violation");
        assert_eq!(value["findings"][0]["requirement"], "RES-6");
        assert_eq!(value["findings"][2]["verdict"], "not_applicable");
        assert_eq!(report().hazards(), 1);
    }

    #[test]
    fn the_table_names_what_is_bad_and_what_repairs_it() {
        let table = report().table();
        assert!(table.contains("VIOLATION RES-6") && table.contains("fix:  f."), "{table}");
        assert!(table.contains("0 hazards, 1 violations, 1 safe, 1 not applicable"), "{table}");
    }
}
