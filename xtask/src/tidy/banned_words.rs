//! Words that mark work as unfinished, or a test as switched off, do not reach the main branch.

use super::Violation;
use super::source::is_word;
use super::tree::TextFile;

/// This file and its list are the one exception.
const OWN_PATH: &str = "xtask/src/tidy/banned_words.rs";
/// Banned in every text file.
const EVERYWHERE: [&str; 2] = ["TODO", "FIXME"];
/// Banned in Rust.
const IN_RUST: [&str; 4] = ["todo!", "unimplemented!", "dbg!", "#[ignore"];

/// Finds the banned words of one file.
pub(super) fn check(file: &TextFile) -> Vec<Violation> {
    if file.path == OWN_PATH {
        return Vec::new();
    }
    let in_rust = if file.is_rust() { IN_RUST.as_slice() } else { &[] };
    let words: Vec<&str> = EVERYWHERE.iter().chain(in_rust).copied().collect();
    let mut violations = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        for word in words.iter().filter(|word| has_word(line, word)) {
            let message = format!("{word}: finish it, or file an issue and remove the mark");
            violations.push(Violation::new(&file.path, index + 1, message));
        }
    }
    violations
}

/// Whether `word` stands in `line` by itself, not as a part of a longer word.
fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let is_own_end = !word.ends_with(is_word) || !after.is_some_and(is_word);
        let is_own_start = !word.starts_with(is_word) || !before.is_some_and(is_word);
        is_own_start && is_own_end
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        check(&TextFile { path: path.to_owned(), text: text.to_owned() }).len()
    }

    #[test]
    fn every_banned_word_is_found() {
        assert_eq!(found("docs/a.md", "TODO: write\nFIXME"), 2);
        assert_eq!(found("a.rs", "todo!()\nunimplemented!()\ndbg!(x);\n// TODO"), 4);
        assert_eq!(found("a.rs", "#[ignore]\nfn a() {}\n#[ignore = \"slow\"]\nfn b() {}"), 2);
    }

    #[test]
    fn parts_of_other_words_are_free() {
        assert_eq!(found("a.rs", "let mastodon = METODO; mydbg!(x)"), 0);
        assert_eq!(found("a.py", "todo!"), 0);
    }

    #[test]
    fn only_this_file_may_name_them() {
        assert_eq!(found(OWN_PATH, "TODO"), 0);
        assert_eq!(found("xtask/src/main.rs", "TODO"), 1);
    }
}
