//! What a terminal would obey is not printed: texts in a log come from strangers, and so does what
//! answers at an address.

/// True for control characters, and for those that turn the direction of writing.
fn is_obeyed(character: char) -> bool {
    let turns = matches!(
        character,
        '\u{61C}' | '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}'
    );
    turns || character.is_control()
}

/// A text of one line for a person: `?` for each such character.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if is_obeyed(c) { '?' } else { c }).collect()
}

/// A text of several lines for a person: as [`plain`], but for the line breaks.
pub(crate) fn shown(text: &str) -> String {
    text.chars().map(|c| if is_obeyed(c) && c != '\n' { '?' } else { c }).collect()
}

/// JSON with such characters as `\u....`: in JSON they stand in strings alone, but for the line
/// breaks and tabs between its members.
pub(crate) fn escaped(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for character in json.chars() {
        if is_obeyed(character) && !matches!(character, '\n' | '\r' | '\t') {
            text.push_str(&format!("\\u{:04x}", u32::from(character)));
        } else {
            text.push(character);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_escaped_and_means_the_same() {
        let json = "{\n  \"a\": \"x\u{9b}31m\u{202e}y\u{7f}\u{200f}\"\n}";
        let text = escaped(json);
        assert_eq!(text, "{\n  \"a\": \"x\\u009b31m\\u202ey\\u007f\\u200f\"\n}");
        let meaning = |json: &str| serde_json::from_str::<serde_json::Value>(json).ok();
        assert_eq!(meaning(&text), meaning(json));
    }

    #[test]
    fn a_text_for_a_person_keeps_its_lines_and_nothing_else_that_is_obeyed() {
        assert_eq!(shown("a\u{1b}[2J\nb\r\u{61c}"), "a?[2J\nb??");
        assert_eq!(plain("a\u{1b}[2J\nb"), "a?[2J?b");
    }
}
