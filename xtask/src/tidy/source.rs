//! Tells code from comments, strings and characters in Rust source, one character at a time.

/// What a character of Rust source belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Everything the other kinds are not, lifetimes included.
    Code,
    /// A line or block comment, documentation included.
    Comment,
    /// A string or byte string with escapes, quotes included.
    Text,
    /// A raw string, prefix and hashes included.
    RawText,
    /// A character or byte literal.
    Character,
}

/// Rust source, each character with its kind.
#[derive(Clone, Debug)]
pub(super) struct Source {
    characters: Vec<(char, Kind)>,
}

impl Source {
    /// Reads `text`; input that is not Rust gives some answer and never fails.
    pub(super) fn scan(text: &str) -> Self {
        let characters: Vec<char> = text.chars().collect();
        let mut kinds = Vec::with_capacity(characters.len());
        while kinds.len() < characters.len() {
            let (kind, end) = next_token(&characters, kinds.len());
            kinds.resize(end.min(characters.len()), kind);
        }
        Self { characters: characters.into_iter().zip(kinds).collect() }
    }

    /// The code alone: everything else is blank, lines stay where they are.
    pub(super) fn code(&self) -> String {
        self.characters
            .iter()
            .map(|&(character, kind)| match kind {
                _ if character == '\n' => '\n',
                Kind::Code => character,
                _ => ' ',
            })
            .collect()
    }

    /// The lines, without their ends.
    pub(super) fn lines(&self) -> impl Iterator<Item = &[(char, Kind)]> {
        self.characters.split(|&(character, _)| character == '\n')
    }
}

/// The kind of the token at `at`, and where it ends (always beyond `at`).
fn next_token(characters: &[char], at: usize) -> (Kind, usize) {
    let next = characters.get(at + 1).copied();
    match characters[at] {
        '/' if next == Some('/') => (Kind::Comment, line_end(characters, at)),
        '/' if next == Some('*') => (Kind::Comment, block_comment_end(characters, at)),
        '"' => (Kind::Text, text_end(characters, at + 1)),
        '\'' => {
            character_end(characters, at).map_or((Kind::Code, at + 1), |end| (Kind::Character, end))
        }
        first if is_word(first) => word_or_raw_text(characters, at),
        _ => (Kind::Code, at + 1),
    }
}

/// Source with the strings that go on over a line's end put together.
pub(super) fn join_text(text: &str) -> String {
    let mut parts = text.split("\\\n");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |joined, part| joined + part.trim_start())
}

/// Whether `character` can stand in an identifier or a number.
pub(super) fn is_word(character: char) -> bool {
    character == '_' || character.is_alphanumeric()
}

fn line_end(characters: &[char], at: usize) -> usize {
    let rest = &characters[at..];
    at + rest.iter().position(|&character| character == '\n').unwrap_or(rest.len())
}

fn block_comment_end(characters: &[char], mut at: usize) -> usize {
    let mut depth = 0_usize;
    while at < characters.len() {
        match (characters[at], characters.get(at + 1)) {
            ('/', Some('*')) => {
                depth += 1;
                at += 2;
            }
            ('*', Some('/')) => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    at
}

fn text_end(characters: &[char], mut at: usize) -> usize {
    while at < characters.len() {
        match characters[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    at
}

/// The end of a character literal at `at`, or nothing where the quote begins a lifetime.
fn character_end(characters: &[char], at: usize) -> Option<usize> {
    if characters.get(at + 1) == Some(&'\\') {
        let rest = characters.get(at + 3..)?;
        return Some(at + 4 + rest.iter().position(|&character| character == '\'')?);
    }
    (characters.get(at + 2) == Some(&'\'')).then_some(at + 3)
}

fn word_or_raw_text(characters: &[char], at: usize) -> (Kind, usize) {
    let length = characters[at..].iter().take_while(|&&character| is_word(character)).count();
    let end = at + length;
    let word: String = characters[at..end].iter().collect();
    if !matches!(word.as_str(), "r" | "br" | "cr") {
        return (Kind::Code, end);
    }
    let hashes = characters[end..].iter().take_while(|&&character| character == '#').count();
    if characters.get(end + hashes) != Some(&'"') {
        return (Kind::Code, end);
    }
    (Kind::RawText, raw_text_end(characters, end + hashes + 1, hashes))
}

fn raw_text_end(characters: &[char], from: usize, hashes: usize) -> usize {
    for at in from..characters.len() {
        let tail = &characters[at + 1..];
        let is_closed = tail.len() >= hashes && tail[..hashes].iter().all(|&one| one == '#');
        if characters[at] == '"' && is_closed {
            return at + 1 + hashes;
        }
    }
    characters.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        Source::scan(text).code().split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_are_not_code() {
        assert_eq!(code("a // b { \n c"), "a c");
        assert_eq!(code("a /* b /* nested } */ still */ c"), "a c");
        assert_eq!(code("a /* never closed"), "a");
    }

    #[test]
    fn strings_are_not_code() {
        assert_eq!(code(r#"a("b \" { // c"); d"#), "a( ); d");
        assert_eq!(code("a(b\"x{\"); d"), "a(b ); d");
        assert_eq!(code("a(\"two\nlines {\"); d"), "a( ); d");
        assert_eq!(code("a(\"never closed"), "a(");
    }

    #[test]
    fn raw_strings_end_at_their_own_hashes() {
        assert_eq!(code("a(r##\"b \"# { \\\"##); d"), "a( ); d");
        assert_eq!(code("a(br\"\\\"); d"), "a( ); d");
        assert_eq!(code("let r#fn = r; d"), "let r#fn = r; d");
    }

    #[test]
    fn characters_are_told_from_lifetimes() {
        assert_eq!(code(r"f('{', '\'', '\u{7d}', b'}')"), "f( , , , b )");
        assert_eq!(code("fn f<'a, 'b>(x: &'a str) {}"), "fn f<'a, 'b>(x: &'a str) {}");
        assert_eq!(code("f('\"'); g"), "f( ); g");
    }

    #[test]
    fn lines_stay_where_they_are() {
        let text = "a\n/* b\n c */\n\"d\n\"\ne";
        assert_eq!(Source::scan(text).code().matches('\n').count(), text.matches('\n').count());
        assert_eq!(Source::scan(text).lines().count(), 6);
    }
}
