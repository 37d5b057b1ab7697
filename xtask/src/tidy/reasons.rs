//! Every reason code has its page, every page its code, and a page quotes what core says.

use std::collections::{BTreeMap, BTreeSet};

use super::Violation;
use super::source::{Source, is_word, join_text};
use super::tree::TextFile;

/// Where core defines the codes (a file, or a folder of that name).
const CODE_FILES: [&str; 2] = ["crates/core/src/rejection.rs", "crates/core/src/rejection/"];
const PAGES: &str = "docs/reasons/";
/// The first digits of every reason code.
const CODE_PREFIX: &str = "409";
const CODE_DIGITS: usize = 5;
/// How a line begins that quotes a message.
const QUOTE: &str = "> ";

/// Compares the codes in core with the pages in `docs/reasons`.
pub(super) fn check(files: &[TextFile]) -> Vec<Violation> {
    let sources: Vec<&TextFile> = files
        .iter()
        .filter(|file| file.path == CODE_FILES[0] || file.path.starts_with(CODE_FILES[1]))
        .collect();
    if sources.is_empty() {
        let message = "missing: the reason codes are defined here";
        return vec![Violation::new(CODE_FILES[0], 0, message)];
    }
    let codes: BTreeSet<String> = sources.iter().flat_map(|file| codes(&file.text)).collect();
    let (pages, mut violations) = pages(files);
    for code in codes.iter().filter(|code| !pages.contains_key(*code)) {
        let message = format!("code {code} has no page: write {PAGES}{code}-<reason>.md");
        violations.push(Violation::new(CODE_FILES[0], 0, message));
    }
    for (code, page) in pages {
        if !codes.contains(&code) {
            let message = format!("core defines no code {code}: remove the page or add the code");
            violations.push(Violation::new(&page.file.path, 0, message));
        } else if !sources.iter().any(|source| names_reason(&source.text, &page.reason)) {
            let message = format!("core names no reason {}: rename the page", page.reason);
            violations.push(Violation::new(&page.file.path, 0, message));
        }
        if page.file.text.lines().next() != Some(&format!("# {code} `{}`", page.reason)) {
            let message = format!("the first line must be: # {code} `{}`", page.reason);
            violations.push(Violation::new(&page.file.path, 1, message));
        }
        violations.extend(check_quotes(page.file, &sources));
    }
    violations
}

/// Every quoted line of a page must be a message of core, and one must be quoted.
fn check_quotes(page: &TextFile, sources: &[&TextFile]) -> Vec<Violation> {
    let messages: Vec<String> = sources.iter().map(|source| join_text(&source.text)).collect();
    let is_message = |quote: &str| messages.iter().any(|text| text.contains(quote));
    let quotes = || page.text.lines().enumerate().filter(|(_, line)| line.starts_with(QUOTE));
    if quotes().next().is_none() {
        let message = format!("quote the message, on one line that begins with {QUOTE:?}");
        return vec![Violation::new(&page.path, 0, message)];
    }
    quotes()
        .filter(|(_, line)| !is_message(&format!("\"{}\"", &line[QUOTE.len()..])))
        .map(|(index, _)| Violation::new(&page.path, index + 1, "core has no such message"))
        .collect()
}

/// A page about one code.
struct Page<'a> {
    /// The reason as it stands in a refusal, in snake case.
    reason: String,
    file: &'a TextFile,
}

/// The pages by their codes; a file that begins with a number but is no page is a violation.
fn pages(files: &[TextFile]) -> (BTreeMap<String, Page<'_>>, Vec<Violation>) {
    let mut pages = BTreeMap::new();
    let mut violations = Vec::new();
    for file in files {
        let Some(name) = file.path.strip_prefix(PAGES) else {
            continue;
        };
        if !name.starts_with(CODE_PREFIX) {
            continue;
        }
        let parts = name.strip_suffix(".md").and_then(|stem| stem.split_once('-'));
        let Some((code, slug)) = parts.filter(|(code, _)| is_code(code)) else {
            let message = "the name must be <code>-<reason>.md";
            violations.push(Violation::new(&file.path, 0, message));
            continue;
        };
        let page = Page { reason: slug.replace('-', "_"), file };
        if pages.insert(code.to_owned(), page).is_some() {
            violations.push(Violation::new(&file.path, 0, format!("a second page for {code}")));
        }
    }
    (pages, violations)
}

/// Every reason code that stands in the code of `text` as a number.
fn codes(text: &str) -> BTreeSet<String> {
    Source::scan(text)
        .code()
        .split(|character| !is_word(character))
        .map(|word| word.replace('_', ""))
        .filter(|word| is_code(word))
        .collect()
}

fn is_code(word: &str) -> bool {
    let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
    word.starts_with(CODE_PREFIX) && word.len() == CODE_DIGITS && is_number
}

/// Whether `text` has the reason as a literal, or as the name of a variant.
fn names_reason(text: &str, reason: &str) -> bool {
    let variant: String = reason
        .split('_')
        .filter_map(|part| Some(part.chars().next()?.to_uppercase().to_string() + &part[1..]))
        .collect();
    let has_variant =
        Source::scan(text).code().split(|one| !is_word(one)).any(|one| one == variant);
    has_variant || text.contains(&format!("\"{reason}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> TextFile {
        TextFile { path: path.to_owned(), text: text.to_owned() }
    }

    fn found(code: &str, pages: &[(&str, &str)]) -> Vec<String> {
        let pages = pages.iter().map(|(name, text)| file(&format!("{PAGES}{name}"), text));
        let files: Vec<TextFile> = pages.chain([file(CODE_FILES[0], code)]).collect();
        check(&files).into_iter().map(|violation| violation.message).collect()
    }

    const CODE: &str =
        "match self { Self::StreamNotDrained => (40_901, \"Not run. \\\n  Wait.\") } // 40999";
    const TEXT: &str = "# 40901 `stream_not_drained`\n> Not run. Wait.\n";
    const PAGE: (&str, &str) = ("40901-stream-not-drained.md", TEXT);

    #[test]
    fn codes_and_pages_that_agree_pass() {
        assert!(found(CODE, &[PAGE, ("README.md", "# Reasons")]).is_empty());
        let literals = "(40901, \"stream_not_drained\", \"Not run. Wait.\")";
        assert!(found(literals, &[PAGE]).is_empty());
    }

    #[test]
    fn a_code_without_a_page_is_found() {
        assert_eq!(found(CODE, &[]).len(), 1);
    }

    #[test]
    fn a_page_without_a_code_is_found() {
        let text = "# 40902 `request_in_flight`\n> Not run. Wait.\n";
        assert_eq!(found(CODE, &[PAGE, ("40902-request-in-flight.md", text)]).len(), 1);
    }

    #[test]
    fn a_page_with_another_reason_or_title_is_found() {
        let text = "# 40901 `drained`\n> Not run. Wait.\n";
        assert_eq!(found(CODE, &[("40901-drained.md", text)]).len(), 1);
        let text = "# Drained\n> Not run. Wait.\n";
        assert_eq!(found(CODE, &[(PAGE.0, text)]).len(), 1);
    }

    #[test]
    fn a_page_that_quotes_nothing_or_something_else_is_found() {
        for quote in ["", "> Not run.\n", "> Not run. Wait. Or not.\n"] {
            let text = format!("# 40901 `stream_not_drained`\n{quote}");
            assert_eq!(found(CODE, &[(PAGE.0, &text)]).len(), 1, "{quote}");
        }
    }

    #[test]
    fn a_badly_named_or_second_page_is_found() {
        assert_eq!(found(CODE, &[PAGE, ("409-drained.md", "")]).len(), 1);
        let second = ("40901-stream-not-drained-2.md", TEXT);
        assert!(!found(CODE, &[PAGE, second]).is_empty());
    }

    #[test]
    fn core_without_codes_is_found() {
        assert_eq!(check(&[]).len(), 1);
    }
}
