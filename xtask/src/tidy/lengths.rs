//! Files, functions and lines stay short enough to read.

use super::Violation;
use super::source::{Kind, Source, is_word};
use super::tree::TextFile;

const FILE_LINES_MAX: usize = 400;
const TEST_FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;
const LINE_CHARS_MAX: usize = 100;
/// Extensions of source code; prose and data may be as long as they must.
const SOURCE_EXTENSIONS: [&str; 7] = ["cjs", "js", "mjs", "py", "rs", "sh", "ts"];

/// Checks the lengths of one file.
pub(super) fn check(file: &TextFile) -> Vec<Violation> {
    if !SOURCE_EXTENSIONS.contains(&file.extension()) {
        return Vec::new();
    }
    let mut violations: Vec<Violation> = check_file(file).into_iter().collect();
    if file.is_rust() {
        let source = Source::scan(&file.text);
        violations.extend(check_rust_lines(file, &source));
        violations.extend(check_functions(file, &source.code()));
    } else {
        violations.extend(check_plain_lines(file));
    }
    violations
}

fn check_file(file: &TextFile) -> Option<Violation> {
    let (lines, limit) = (file.text.lines().count(), file_lines_max(&file.path));
    (lines > limit).then(|| {
        Violation::new(&file.path, 0, format!("{lines} lines, at most {limit}: split the file"))
    })
}

fn file_lines_max(path: &str) -> usize {
    let is_test = path.split('/').any(|part| {
        let stem = part.split('.').next().unwrap_or(part);
        matches!(stem, "conformance" | "e2e" | "tests") || stem.ends_with("_tests")
    });
    if is_test { TEST_FILE_LINES_MAX } else { FILE_LINES_MAX }
}

fn too_long(path: &str, index: usize, length: usize) -> Violation {
    let message = format!("{length} columns, at most {LINE_CHARS_MAX}: break the line");
    Violation::new(path, index + 1, message)
}

fn check_plain_lines(file: &TextFile) -> Vec<Violation> {
    let lines = file.text.lines().map(|line| (line, line.chars().count())).enumerate();
    lines
        .filter(|(_, (line, length))| *length > LINE_CHARS_MAX && !has_url(line))
        .map(|(index, (_, length))| too_long(&file.path, index, length))
        .collect()
}

fn check_rust_lines(file: &TextFile, source: &Source) -> Vec<Violation> {
    let lines = source.lines().enumerate();
    lines
        .filter(|(_, line)| line.len() > LINE_CHARS_MAX && !cannot_be_cut(line))
        .map(|(index, line)| too_long(&file.path, index, line.len()))
        .collect()
}

fn has_url(line: &str) -> bool {
    line.contains("https://") || line.contains("http://")
}

/// Whether what reaches over the limit is an address, a raw string or a literal of one word.
fn cannot_be_cut(line: &[(char, Kind)]) -> bool {
    let text: String = line.iter().map(|&(character, _)| character).collect();
    match line[LINE_CHARS_MAX].1 {
        Kind::RawText => true,
        Kind::Text => {
            let is_part = |&&(character, kind): &&(char, Kind)| {
                kind == Kind::Text && !character.is_whitespace()
            };
            let before = line[..LINE_CHARS_MAX].iter().rev().take_while(is_part).count();
            let after = line[LINE_CHARS_MAX..].iter().take_while(is_part).count();
            before + after > LINE_CHARS_MAX / 2 || has_url(&text)
        }
        Kind::Code | Kind::Comment | Kind::Character => has_url(&text),
    }
}

fn check_functions(file: &TextFile, code: &str) -> Vec<Violation> {
    let long = functions(code).into_iter().filter(|function| function.lines > FUNCTION_LINES_MAX);
    long.map(|Function { name, line, lines }| {
        let message = format!("fn {name} has {lines} lines, at most {FUNCTION_LINES_MAX}");
        Violation::new(&file.path, line, message)
    })
    .collect()
}

/// A function with a body.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Function {
    name: String,
    /// Line of the `fn`, from 1.
    line: usize,
    /// Lines from the `fn` to the closing brace.
    lines: usize,
}

/// Every function with a body in `code` (comments and strings already blank).
fn functions(code: &str) -> Vec<Function> {
    let characters: Vec<char> = code.chars().collect();
    let mut found = Vec::new();
    let mut line = 1;
    let mut at = 0;
    while at < characters.len() {
        let word = characters[at..].iter().take_while(|&&character| is_word(character)).count();
        if characters[at..at + word] == ['f', 'n'] {
            found.extend(function_at(&characters, at + word, line));
        }
        line += usize::from(characters[at] == '\n');
        at += word.max(1);
    }
    found
}

/// The function whose name follows at `after_keyword`; nothing for pointers and declarations.
fn function_at(characters: &[char], after_keyword: usize, line: usize) -> Option<Function> {
    let rest = &characters[after_keyword..];
    let blanks = rest.iter().take_while(|character| character.is_whitespace()).count();
    let name: String = rest[blanks..].iter().take_while(|&&character| is_word(character)).collect();
    if name.is_empty() {
        return None;
    }
    let open = body_start(rest)?;
    let close = matching_brace(rest, open)?;
    let lines = 1 + rest[..close].iter().filter(|&&character| character == '\n').count();
    Some(Function { name, line, lines })
}

/// The brace that opens the body: the first outside parentheses that begins no const argument.
fn body_start(signature: &[char]) -> Option<usize> {
    let mut depth = 0_usize;
    let mut before = ' ';
    let mut at = 0;
    while at < signature.len() {
        match signature[at] {
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            ';' if depth == 0 => return None,
            '{' if depth == 0 && matches!(before, '<' | ',') => {
                at = matching_brace(signature, at)?;
            }
            '{' if depth == 0 => return Some(at),
            _ => {}
        }
        if !signature[at].is_whitespace() {
            before = signature[at];
        }
        at += 1;
    }
    None
}

fn matching_brace(characters: &[char], open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, character) in characters.iter().enumerate().skip(open) {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> TextFile {
        TextFile { path: path.to_owned(), text: text.to_owned() }
    }

    fn lengths(text: &str) -> Vec<(String, usize, usize)> {
        let found = functions(&Source::scan(text).code());
        found.into_iter().map(|one| (one.name, one.line, one.lines)).collect()
    }

    #[test]
    fn a_function_ends_at_its_own_brace() {
        let text =
            "impl A {\n    fn a(&self) {\n        if x { y(\"}\") }\n    }\n\n    fn b() {}\n}\n";
        assert_eq!(lengths(text), [("a".to_owned(), 2, 3), ("b".to_owned(), 6, 1)]);
    }

    #[test]
    fn declarations_and_pointers_are_no_functions() {
        assert_eq!(lengths("trait A { fn a(&self); }\ntype B = fn(u8) -> u8;\n"), []);
    }

    #[test]
    fn const_arguments_do_not_open_a_body() {
        let text = "fn a(x: [u8; { 1 + 1 }]) -> A<{ 2 }> where B: C<1, { 3 }>\n{\n    x\n}\n";
        assert_eq!(lengths(text), [("a".to_owned(), 1, 4)]);
    }

    #[test]
    fn inner_functions_count_for_both() {
        let text = "fn a() {\n    fn b() {\n    }\n}\n";
        assert_eq!(lengths(text), [("a".to_owned(), 1, 4), ("b".to_owned(), 2, 2)]);
    }

    #[test]
    fn a_function_over_the_limit_is_found() {
        let body = "    work();\n".repeat(FUNCTION_LINES_MAX - 2);
        let fits = file("crates/a/src/a.rs", &format!("fn a() {{\n{body}}}\n"));
        assert_eq!(check(&fits), []);
        let long = file("crates/a/src/a.rs", &format!("fn a() {{\n{body}\n}}\n"));
        assert_eq!(check(&long).len(), 1);
        assert!(check(&long)[0].message.starts_with("fn a has 71 lines"));
    }

    #[test]
    fn a_file_over_the_limit_is_found_and_tests_may_be_longer() {
        let text = "//\n".repeat(FILE_LINES_MAX + 1);
        assert_eq!(check(&file("crates/a/src/a.rs", &text)).len(), 1);
        assert_eq!(check(&file("crates/a/tests/a.rs", &text)), []);
        assert_eq!(check(&file("crates/a/src/session/tests.rs", &text)), []);
        let text = "//\n".repeat(TEST_FILE_LINES_MAX + 1);
        assert_eq!(check(&file("e2e/run.py", &text)).len(), 1);
    }

    #[test]
    fn a_line_over_the_limit_is_found() {
        let words = "word ".repeat(21);
        for text in [format!("// {words}"), format!("const A: &str = \"{words}\";")] {
            assert_eq!(check(&file("a.rs", &text)).len(), 1, "{text}");
        }
        assert_eq!(check(&file("a.py", &format!("# {words}"))).len(), 1);
        assert_eq!(check(&file("a.md", &words)), []);
    }

    #[test]
    fn what_cannot_be_cut_may_be_long() {
        let long = "w".repeat(110);
        let words = "word ".repeat(21);
        for text in [
            format!("// https://example.org/{long}"),
            format!("const A: &str = \"{long}\";"),
            format!("const A: &str = r#\"{words}\"#;"),
        ] {
            assert_eq!(check(&file("a.rs", &text)), [], "{text}");
        }
    }
}
