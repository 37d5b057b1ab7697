//! JSON strings: unescaping, and one canonical way to write them.
//!
//! An escape of half a surrogate pair is legal JSON but no character. It becomes the three bytes
//! UTF-8 would have for it (WTF-8), so that different strings stay different.
use std::borrow::Cow;

const HEX_DIGITS: &[u8; 16] = b"0123456789abcdef";

/// A string token without its quotes.
pub(super) fn inner(token: &[u8]) -> &[u8] {
    token.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(token)
}

/// The string a token stands for; `None` if it is no string, or one with half a surrogate pair.
pub(super) fn string_value(token: &[u8]) -> Option<Cow<'_, str>> {
    if !token.starts_with(b"\"") {
        return None;
    }
    match unescape(inner(token)) {
        Cow::Borrowed(text) => std::str::from_utf8(text).ok().map(Cow::Borrowed),
        Cow::Owned(text) => String::from_utf8(text).ok().map(Cow::Owned),
    }
}

/// The bytes (WTF-8) that the inside of a valid string token stands for.
pub(super) fn unescape(text: &[u8]) -> Cow<'_, [u8]> {
    let Some(first) = text.iter().position(|&byte| byte == b'\\') else {
        return Cow::Borrowed(text);
    };
    let mut out = Vec::with_capacity(text.len());
    out.extend_from_slice(&text[..first]);
    let mut rest = &text[first..];
    while let [byte, tail @ ..] = rest {
        rest = tail;
        if *byte != b'\\' {
            out.push(*byte);
            continue;
        }
        let [escape, tail @ ..] = rest else { break };
        rest = tail;
        match escape {
            b'b' => out.push(8),
            b'f' => out.push(12),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'u' => rest = unescape_unit(rest, &mut out),
            other => out.push(*other),
        }
    }
    Cow::Owned(out)
}

/// Unescapes what follows `\u`, with the other half of a surrogate pair; gives the rest.
fn unescape_unit<'a>(text: &'a [u8], out: &mut Vec<u8>) -> &'a [u8] {
    let Some((unit, rest)) = code_unit(text) else {
        return &[];
    };
    if (0xD800..0xDC00).contains(&unit)
        && let Some((low, after)) = rest.strip_prefix(b"\\u").and_then(code_unit)
        && (0xDC00..0xE000).contains(&low)
    {
        push_code_point(0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00), out);
        return after;
    }
    push_code_point(unit, out);
    rest
}

fn code_unit(text: &[u8]) -> Option<(u32, &[u8])> {
    let (digits, rest) = text.split_at_checked(4)?;
    let unit = u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    Some((unit, rest))
}

fn push_code_point(code_point: u32, out: &mut Vec<u8>) {
    if let Some(character) = char::from_u32(code_point) {
        out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    } else {
        let low_bits = |shift: u32| 0x80 | ((code_point >> shift) & 0x3F) as u8;
        out.extend_from_slice(&[0xE0 | (code_point >> 12) as u8, low_bits(6), low_bits(0)]);
    }
}

/// Appends `text` (WTF-8) as a string token in its canonical form: only quote, backslash, control
/// characters and halves of surrogate pairs are escaped, all but the first two as `\u`.
pub(super) fn write_string(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    let mut rest = text;
    while let [byte, tail @ ..] = rest {
        rest = match (byte, tail) {
            (b'"' | b'\\', _) => {
                out.extend_from_slice(&[b'\\', *byte]);
                tail
            }
            (0..0x20, _) => {
                write_code_unit(u16::from(*byte), out);
                tail
            }
            (0xED, [middle @ 0xA0..=0xFF, last, after @ ..]) => {
                let bits = (u16::from(*middle & 0x3F) << 6) | u16::from(*last & 0x3F);
                write_code_unit(0xD000 | bits, out);
                after
            }
            _ => {
                out.push(*byte);
                tail
            }
        };
    }
    out.push(b'"');
}

fn write_code_unit(unit: u16, out: &mut Vec<u8>) {
    out.extend_from_slice(b"\\u");
    for shift in [12, 8, 4, 0] {
        out.push(HEX_DIGITS[usize::from((unit >> shift) & 0xF)]);
    }
}
