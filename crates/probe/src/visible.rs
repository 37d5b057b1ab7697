//! Text of a server, made fit for a terminal and a page: it shows, and commands nothing.

use std::borrow::Cow;

/// The text with its control characters, and those that turn the direction of text, as escapes.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(commands) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if commands(character) {
            shown.extend(character.escape_unicode());
        } else {
            shown.push(character);
        }
    }
    Cow::Owned(shown)
}

/// The same of its beginning.
pub(crate) fn beginning(text: &str, chars_max: usize) -> String {
    let shown = text.char_indices().nth(chars_max).map_or(text, |(end, _)| &text[..end]);
    let more = if shown.len() < text.len() { "..." } else { "" };
    format!("{}{more}", visible(shown))
}

/// Whether a character does something to what shows it (Unicode Standard Annex 9, section 2).
pub(crate) fn commands(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_steer_a_terminal_or_turn_the_text_is_escaped() {
        let hostile = "a\u{1b}[2J\u{9b}31m\u{7}\r\n\u{202e}gnp";
        let shown = "a\\u{1b}[2J\\u{9b}31m\\u{7}\\u{d}\\u{a}\\u{202e}gnp";
        assert_eq!(visible(hostile), shown);
        assert_eq!(visible("häßlich 漢字 {\"a\":1}"), "häßlich 漢字 {\"a\":1}");
        assert_eq!(beginning("äöü\u{1b}", 2), "äö...");
        assert_eq!(beginning("äö\u{1b}", 9), "äö\\u{1b}");
    }
}
