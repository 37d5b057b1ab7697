//! Messages and pages that name a limit name one that exists, and all say in the same words how to
//! raise it.

use std::collections::BTreeSet;

use super::Violation;
use super::source::{is_word, join_text};
use super::tree::TextFile;

/// Where the limits are defined, and what stands before the names of each file's.
const LIMIT_FILES: [(&str, &str); 2] =
    [("crates/core/src/limits.rs", ""), ("crates/core/src/limits/upstream.rs", "upstream.")];
/// Messages about contradicting limits have words of their own.
const OWN_WORDS: &str = "crates/core/src/limits";
const OPTION: &str = "--limit ";
const RAISE: &str = "raise ";

/// Compares what sources and pages say of limits with the limits that there are.
pub(super) fn check(files: &[TextFile]) -> Vec<Violation> {
    let names: BTreeSet<String> = LIMIT_FILES
        .iter()
        .flat_map(|(path, group)| {
            let file = files.iter().find(|file| file.path == *path);
            file.map(|file| fields(&file.text, group)).unwrap_or_default()
        })
        .collect();
    let mut violations = Vec::new();
    for file in files.iter().filter(|file| is_read(&file.path)) {
        let text = join_text(&file.text);
        for name in words_after(&text, OPTION).filter(|name| text.contains(&format!("{name}="))) {
            if !names.contains(name) {
                let message = format!("{OPTION}{name}: there is no such limit");
                violations.push(Violation::new(&file.path, 0, message));
            }
        }
        let bare = words_after(&text, RAISE).filter(|name| names.contains(*name));
        for name in bare.filter(|_| is_message(&file.path)) {
            let message = format!("raise {name}: write \"raise `{OPTION}{name}=`\"");
            violations.push(Violation::new(&file.path, 0, message));
        }
    }
    violations
}

fn is_read(path: &str) -> bool {
    is_message(path) || path.ends_with(".md")
}

fn is_message(path: &str) -> bool {
    path.starts_with("crates/") && path.contains("/src/") && !path.starts_with(OWN_WORDS)
}

/// The public fields of a source, each with `group` before it.
fn fields(text: &str, group: &str) -> Vec<String> {
    let fields = text.lines().filter_map(|line| line.strip_prefix("    pub ")?.split_once(": "));
    fields.map(|(name, _)| format!("{group}{name}")).collect()
}

/// The names, a dot in them allowed, that come right after a text.
fn words_after<'a>(text: &'a str, before: &'a str) -> impl Iterator<Item = &'a str> {
    text.match_indices(before).filter_map(move |(at, _)| {
        let rest = &text[at + before.len()..];
        let end = rest.find(|c| !is_word(c) && c != '.').unwrap_or(rest.len());
        let name = rest[..end].trim_end_matches('.');
        name.starts_with(|c: char| c.is_ascii_lowercase()).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let file = |path: &str, text: &str| TextFile { path: path.into(), text: text.into() };
        let files = [
            file(LIMIT_FILES[0].0, "pub struct Limits {\n    pub held_max: usize,\n}"),
            file(LIMIT_FILES[1].0, "    pub retry_ms: u64,"),
            file(path, text),
        ];
        check(&files).into_iter().map(|violation| violation.message).collect()
    }

    #[test]
    fn a_message_that_names_no_limit_or_names_it_in_other_words_is_found() {
        let source = "crates/a/src/b.rs";
        assert_eq!(found(source, "or raise \\\n    `--limit held_max=`").len(), 0);
        assert_eq!(found(source, "or raise `--limit upstream.retry_ms=`").len(), 0);
        assert_eq!(found(source, "wait, or raise \\\n  held_max").len(), 1);
        assert_eq!(found(source, "raise `--limit held_min=`").len(), 1);
        assert_eq!(found(source, "raise `--limit retry_ms=`").len(), 1, "it is of a group");
        assert_eq!(found(source, "raise your hand").len(), 0);
    }

    #[test]
    fn a_page_that_names_no_limit_is_found() {
        assert_eq!(found("docs/a.md", "`--limit held_max=..`").len(), 0);
        assert_eq!(found("docs/a.md", "`--limit none_max=..`").len(), 1);
        assert_eq!(found("docs/a.md", "as `--limit NAME=VALUE` or `--limit` says").len(), 0);
    }
}
