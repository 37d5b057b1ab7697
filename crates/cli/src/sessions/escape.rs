//! What a terminal would obey is not printed: texts in a log come from strangers.

/// True for control characters, and for those that turn the direction of writing.
pub(super) fn is_obeyed(character: char) -> bool {
    let turns = matches!(character, '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}');
    turns || character.is_control()
}

/// JSON with such characters as `\u....`: in JSON they stand in strings alone, but for the line
/// breaks between its members.
pub(super) fn escaped(json: &str) -> String {
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
        let json = "{\n  \"a\": \"x\u{9b}31m\u{202e}y\u{7f}\"\n}";
        let text = escaped(json);
        assert_eq!(text, "{\n  \"a\": \"x\\u009b31m\\u202ey\\u007f\"\n}");
        let meaning = |json: &str| serde_json::from_str::<serde_json::Value>(json).ok();
        assert_eq!(meaning(&text), meaning(json));
    }
}
