//! Headers of a client that its server may be meant to see.

use http::HeaderMap;
use http::header::HeaderName;

use super::{IDEMPOTENCY_KEY, LAST_EVENT_ID, MCP_PROTOCOL_VERSION, MCP_SESSION_ID, MCP_STREAM_ACK};

/// Of one connection (RFC 9110 section 7.6.1), or of one message.
const OF_ONE_HOP: [&str; 17] = [
    "accept",
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "origin",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Of the conversation between a client and Rejoin.
const OF_REJOIN: [HeaderName; 5] =
    [IDEMPOTENCY_KEY, LAST_EVENT_ID, MCP_PROTOCOL_VERSION, MCP_SESSION_ID, MCP_STREAM_ACK];

/// True if a header is never passed on: it belongs to one connection, or to the conversation with
/// Rejoin.
pub(crate) fn is_reserved(name: &HeaderName) -> bool {
    OF_REJOIN.contains(name) || OF_ONE_HOP.contains(&name.as_str())
}

/// The headers with these names. Only what an upstream passes on is kept: many others change with
/// every request, and some are secrets that nobody asked for.
pub(crate) fn forwarded(headers: &HeaderMap, names: &[HeaderName]) -> HeaderMap {
    let mut kept = HeaderMap::new();
    for name in names.iter().filter(|name| !is_reserved(name)) {
        for value in headers.get_all(name) {
            kept.append(name, value.clone());
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn only_what_the_upstream_passes_on_is_kept_and_nothing_of_one_hop_or_of_rejoin() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("authorization", "Bearer one"),
            ("x-tenant", "a"),
            ("x-tenant", "b"),
            ("x-private", "secret"),
            ("host", "localhost"),
            ("content-length", "7"),
            ("mcp-session-id", "id"),
            ("last-event-id", "1"),
            ("idempotency-key", "k"),
        ] {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let names = ["x-tenant", "authorization", "x-absent", "host", "mcp-session-id"];
        let kept = forwarded(&headers, &names.map(HeaderName::from_static));
        let tenants: Vec<_> = kept.get_all("x-tenant").iter().collect();
        assert_eq!(kept.len(), 3);
        assert_eq!(kept["authorization"], "Bearer one");
        assert_eq!(tenants, ["a", "b"]);
    }
}
