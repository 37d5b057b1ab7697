//! Which requests are passed through (spec 3.2).

use http::HeaderMap;
use rejoin_core::message::{Incoming, Kind, Message};
use rejoin_core::revision::Revision;

use crate::headers::{self, MCP_SESSION_ID};

/// Key of the request member by which revisions without sessions are known (spec 3.2).
const PROTOCOL_VERSION_META: &str = "io.modelcontextprotocol/protocolVersion";

/// True if the head of a request says that it belongs to no session: it names none, or claims a
/// revision that has none.
pub(crate) fn has_no_session(headers: &HeaderMap) -> bool {
    claims_stateless(headers) || !headers.contains_key(MCP_SESSION_ID)
}

/// True if a POST belongs to no session. `incoming`: its body, if it is a JSON-RPC message.
///
/// `initialize` always opens a session. A body that is no message could be one for a more lenient
/// reader, so without a claimed revision it is not passed on.
pub(crate) fn is_passed(headers: &HeaderMap, incoming: Option<&Incoming>) -> bool {
    match incoming {
        Some(incoming) if messages(incoming).iter().any(is_initialize) => false,
        Some(incoming) => has_no_session(headers) || is_stateless(incoming),
        None => claims_stateless(headers),
    }
}

/// True if a message says that it belongs to a revision without sessions.
pub(crate) fn is_stateless(incoming: &Incoming) -> bool {
    let Incoming::One(message) = incoming else { return false };
    let inside = message.meta_str(PROTOCOL_VERSION_META);
    inside.is_some_and(|date| Revision::new(date).is_stateless())
}

/// True if the header claims a revision without sessions.
fn claims_stateless(headers: &HeaderMap) -> bool {
    let claimed = headers::revision(headers).ok().flatten();
    claimed.is_some_and(|revision| revision.is_stateless())
}

fn is_initialize(message: &Message) -> bool {
    message.kind() == Kind::Request && message.method() == Some("initialize")
}

fn messages(incoming: &Incoming) -> &[Message] {
    match incoming {
        Incoming::One(message) => std::slice::from_ref(message),
        Incoming::Batch(messages) => messages,
    }
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
    const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#;

    fn passed(named: &[(&str, &str)], body: &str) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in named {
            let name: HeaderName = name.parse().unwrap();
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        let incoming = parse(Bytes::copy_from_slice(body.as_bytes()), 128).ok();
        is_passed(&headers, incoming.as_ref())
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
        assert!(!passed(NONE, INITIALIZE) && !passed(&[NEWER], INITIALIZE));
        assert!(!passed(NONE, &format!("[{LIST},{INITIALIZE}]")));
        assert!(!passed(NONE, "no json"));
    }

    #[test]
    fn two_claims_are_no_claim() {
        assert!(!passed(&[SESSION, NEWER, OLDER], LIST));
    }
}
