//! To which era a request belongs, and so whether it is passed through (spec 3.2).

use http::HeaderMap;
use rejoin_core::message::{Incoming, Message};
use rejoin_core::revision::Revision;

use crate::headers::{self, MCP_SESSION_ID};

/// Key of the request member by which revisions without sessions are known (spec 3.2).
const PROTOCOL_VERSION_META: &str = "io.modelcontextprotocol/protocolVersion";
/// The method with which a client of a revision without sessions begins (spec 3.2).
const DISCOVER: &str = "server/discover";
/// The method that opens a session.
pub(crate) const INITIALIZE: &str = "initialize";

/// True if the head of a request says that it belongs to no session: it names none, or claims a
/// revision that has none.
pub(crate) fn has_no_session(headers: &HeaderMap) -> bool {
    claims_stateless(headers) || !headers.contains_key(MCP_SESSION_ID)
}

/// True if a POST belongs to no session. `incoming`: its `body`, if that is JSON-RPC.
///
/// `initialize` is for Rejoin to judge, in whatever form. A body that is no JSON-RPC could be one
/// to a more lenient reader, so without a claimed revision it is not passed on.
pub(crate) fn is_passed(headers: &HeaderMap, incoming: Option<&Incoming>, body: &[u8]) -> bool {
    match incoming {
        Some(incoming) if messages(incoming).iter().any(is_initialize) => false,
        Some(incoming) => has_no_session(headers) || is_stateless(headers, incoming),
        None => claims_stateless(headers) && is_plain(body) && !spells_initialize(body),
    }
}

/// True if head or body of a POST is of a revision without sessions.
pub(crate) fn is_stateless(headers: &HeaderMap, incoming: &Incoming) -> bool {
    claims_stateless(headers)
        || match incoming {
            Incoming::One(message) => {
                names_stateless(message)
                    || message.method() == Some(DISCOVER) && has_no_session(headers)
            }
            Incoming::Batch(_) => false,
        }
}

/// True if head and body of an `initialize` agree on a revision that has none. It opens no session
/// then, and is not passed on either.
pub(crate) fn has_no_initialize(headers: &HeaderMap, initialize: &Message) -> bool {
    claims_stateless(headers) && names_stateless(initialize)
}

/// True if a message names a revision without sessions.
fn names_stateless(message: &Message) -> bool {
    let inside = message.meta_str(PROTOCOL_VERSION_META);
    inside.is_some_and(|date| Revision::new(date).is_stateless())
}

/// True if the header claims a revision without sessions.
fn claims_stateless(headers: &HeaderMap) -> bool {
    let claimed = headers::revision(headers).ok().flatten();
    claimed.is_some_and(|revision| revision.is_stateless())
}

fn is_initialize(message: &Message) -> bool {
    message.method() == Some(INITIALIZE)
}

fn messages(incoming: &Incoming) -> &[Message] {
    match incoming {
        Incoming::One(message) => std::slice::from_ref(message),
        Incoming::Batch(messages) => messages,
    }
}

/// True if every reader sees the same characters: some guess UTF-16 or UTF-32 by their zeros.
fn is_plain(body: &[u8]) -> bool {
    !body.contains(&0) && std::str::from_utf8(body).is_ok()
}

/// True if a string in a body that cannot be read otherwise is `initialize`, escaped or not.
fn spells_initialize(body: &[u8]) -> bool {
    let mut quotes = body.iter().enumerate().filter(|(_, byte)| **byte == b'"');
    quotes.any(|(at, _)| is_string_initialize(&body[at + 1..]))
}

fn is_string_initialize(mut text: &[u8]) -> bool {
    for letter in INITIALIZE.bytes() {
        text = match text {
            [first, rest @ ..] if *first == letter => rest,
            [b'\\', b'u', code @ ..] => match code.split_at_checked(4) {
                Some((digits, rest)) if code_of(digits) == Some(letter) => rest,
                _ => return false,
            },
            _ => return false,
        };
    }
    text.first() == Some(&b'"')
}

/// The character of four hexadecimal digits, if it is one of ASCII.
fn code_of(digits: &[u8]) -> Option<u8> {
    let digits = std::str::from_utf8(digits).ok()?;
    u8::try_from(u32::from_str_radix(digits, 16).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{HeaderName, HeaderValue};
    use rejoin_core::message::parse;

    use super::*;

    const NONE: &[(&str, &str)] = &[];
    const SESSION: (&str, &str) = ("mcp-session-id", "abc");
    const OLDER: (&str, &str) = ("mcp-protocol-version", "2025-11-25");
    const NEWER: (&str, &str) = ("mcp-protocol-version", "2026-07-28");
    const NEXT: (&str, &str) = ("mcp-protocol-version", "2026-12-15");

    const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    const OPENING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#;

    fn passed(named: &[(&str, &str)], body: &str) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in named {
            let name: HeaderName = name.parse().unwrap();
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        let incoming = parse(Bytes::copy_from_slice(body.as_bytes()), 128).ok();
        is_passed(&headers, incoming.as_ref(), body.as_bytes())
    }

    fn newer(date: &str) -> String {
        let meta = format!(r#"{{"{PROTOCOL_VERSION_META}":"{date}"}}"#);
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"_meta":{meta}}}}}"#)
    }

    #[test]
    fn a_newer_revision_is_passed_with_or_without_a_session() {
        for date in ["2026-07-28", "2026-12-15"] {
            assert!(passed(NONE, &newer(date)));
            assert!(passed(&[SESSION, OLDER], &newer(date)));
        }
        assert!(!passed(&[SESSION], &newer("2025-11-25")));
        for header in [NEWER, NEXT] {
            assert!(passed(&[header], LIST) && passed(&[SESSION, header], LIST));
            assert!(passed(&[header], "no json"), "it is the server that says what is wrong");
        }
    }

    #[test]
    fn an_older_revision_is_passed_only_without_a_session() {
        assert!(passed(NONE, LIST) && passed(&[OLDER], LIST));
        assert!(passed(NONE, &format!("[{LIST}]")));
        assert!(!passed(&[SESSION], LIST) && !passed(&[SESSION, OLDER], LIST));
        assert!(!passed(&[("mcp-session-id", "")], LIST), "it is there, and wrong");
    }

    #[test]
    fn initialize_and_what_could_hide_it_is_never_passed() {
        assert!(!passed(NONE, OPENING) && !passed(&[NEWER], OPENING));
        assert!(!passed(NONE, &format!("[{LIST},{OPENING}]")));
        assert!(!passed(NONE, "no json"));
    }

    #[test]
    fn initialize_is_not_passed_in_whatever_form() {
        let notification = r#"{"jsonrpc":"2.0","method":"initialize"}"#;
        let forms = [
            OPENING,
            notification,
            &format!("[{LIST},{notification}]"),
            r#"{"jsonrpc":"2.0","id":1,"method":"\u0069nitialize"}"#,
            r#"{"jsonrpc":"2.0","method":"initiali\u007Ae"}"#,
            r#"{"jsonrpc":"2.0","id":1,"\u006dethod":"initialize"}"#,
            // To some readers the first of two keys counts, to others the last one.
            r#"{"jsonrpc":"2.0","id":1,"method":"initialize","method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","m\u0065thod":"\u0069nitialize"}"#,
            r#"{"jsonrpc":"2.0","id":null,"method":"initialize"}"#,
            r#"{"id":1,"method":"initialize"}"#,
            r#"{" "method":"initialize","#,
        ];
        for (form, named) in forms.into_iter().flat_map(|form| [(form, NONE), (form, &[NEWER])]) {
            assert!(!passed(named, form), "{form} {named:?}");
        }
        let utf16 = OPENING.encode_utf16();
        for body in [utf16.clone().flat_map(u16::to_le_bytes).collect::<Vec<_>>(), b"\xff{}".into()]
        {
            let mut headers = HeaderMap::new();
            headers.insert(HeaderName::from_static(NEWER.0), HeaderValue::from_static(NEWER.1));
            assert!(!is_passed(&headers, None, &body), "{body:?}");
        }
        for other in [r#"{"method":"initialized"}"#, r#"{"a":"\u0069nit"#, r#"{"a":"\u00"#] {
            assert!(passed(&[NEWER], other) && !passed(NONE, other), "{other}");
        }
    }

    #[test]
    fn two_claims_are_no_claim() {
        assert!(!passed(&[SESSION, NEWER, OLDER], LIST));
    }
}
