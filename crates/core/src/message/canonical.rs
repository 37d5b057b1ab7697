//! Canonical params, the measure of "the same call" (design section 5).
use sha2::{Digest, Sha256};

use super::Message;
use super::scan::Scanner;
use super::text::{inner, unescape, write_string};

/// See [`Message::canonical_params_hash`].
pub(super) fn params_hash(message: &Message) -> [u8; 32] {
    let mut method = Vec::new();
    write_string(message.method().unwrap_or_default().as_bytes(), &mut method);
    // A string token ends itself, so method and params cannot run into each other.
    let hash = Sha256::new().chain_update(method);
    hash.chain_update(canonical_params(message.params().unwrap_or(b"{}"))).finalize().into()
}

/// A member that has been written: its key at `start..key_end`, all of it with a trailing comma at
/// `start..end`.
struct Written {
    start: usize,
    key_end: usize,
    end: usize,
}

/// An object or array that has been begun.
enum Open {
    Object { start: usize, members: Vec<Written>, member: Option<(usize, usize)> },
    Array,
}

/// The canonical form of `params`, a valid JSON text. Written front to back in one pass; an object
/// whose members turn out to be unsorted is reordered in place when it ends.
fn canonical_params(params: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(params.len());
    let mut open: Vec<Open> = Vec::new();
    let mut rest = params;
    while let Some(&byte) = rest.first() {
        let token_bytes = match byte {
            b'"' => string_bytes(rest),
            b'-' | b'0'..=b'9' | b'a'..=b'z' => word_bytes(rest),
            _ => 1,
        };
        let (token, after) = rest.split_at(token_bytes);
        rest = after;
        match byte {
            b'{' => {
                out.push(b'{');
                open.push(Open::Object { start: out.len(), members: Vec::new(), member: None });
            }
            b'[' => {
                out.push(b'[');
                open.push(Open::Array);
            }
            b'}' | b']' => {
                let is_params = open.len() == 1;
                if let Some(Open::Object { start, mut members, member }) = open.pop() {
                    end_member(&mut out, &mut members, member, is_params);
                    end_object(&mut out, start, members);
                }
                out.push(byte);
            }
            b',' => {
                let is_params = open.len() == 1;
                match open.last_mut() {
                    Some(Open::Object { members, member, .. }) => {
                        end_member(&mut out, members, member.take(), is_params);
                    }
                    _ => out.push(b','),
                }
            }
            b'"' => {
                let start = out.len();
                write_string(&unescape(inner(token)), &mut out);
                if let Some(Open::Object { member: member @ None, .. }) = open.last_mut() {
                    *member = Some((start, out.len()));
                    out.push(b':');
                }
            }
            b' ' | b'\t' | b'\n' | b'\r' | b':' => {}
            _ => out.extend_from_slice(token),
        }
    }
    out
}

fn string_bytes(text: &[u8]) -> usize {
    let mut scanner = Scanner::new(text, usize::MAX);
    scanner.string().map_or(text.len(), |_| scanner.position())
}

/// Length of a number, `true`, `false` or `null`.
fn word_bytes(text: &[u8]) -> usize {
    let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r');
    text.iter().position(ends).unwrap_or(text.len())
}

fn end_member(
    out: &mut Vec<u8>,
    members: &mut Vec<Written>,
    member: Option<(usize, usize)>,
    is_params: bool,
) {
    let Some((start, key_end)) = member else {
        return;
    };
    if is_params && &out[start..key_end] == b"\"_meta\"" {
        out.truncate(start);
        return;
    }
    out.push(b',');
    members.push(Written { start, key_end, end: out.len() });
}

fn end_object(out: &mut Vec<u8>, start: usize, mut members: Vec<Written>) {
    // Without the closing quote, which would sort after a space.
    let key = |member: &Written| member.start + 1..member.key_end - 1;
    if !members.is_sorted_by(|one, next| out[key(one)] <= out[key(next)]) {
        let written = out.split_off(start);
        let shifted = |range: std::ops::Range<usize>| range.start - start..range.end - start;
        members.sort_by(|one, other| written[shifted(key(one))].cmp(&written[shifted(key(other))]));
        for member in &members {
            out.extend_from_slice(&written[shifted(member.start..member.end)]);
        }
    }
    if !members.is_empty() {
        out.pop();
    }
}
