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

/// The headers that an upstream may pass on, should its operator allow them. The others go from
/// hop to hop, and many of them change with every request.
pub(crate) fn forwardable(headers: &HeaderMap) -> HeaderMap {
    let kept = headers.iter().filter(|&(name, _)| !is_reserved(name));
    kept.fold(HeaderMap::new(), |mut all, (name, value)| {
        all.append(name, value.clone());
        all
    })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn what_belongs_to_one_hop_or_to_rejoin_is_not_forwardable() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("authorization", "Bearer one"),
            ("x-tenant", "a"),
            ("x-tenant", "b"),
            ("host", "localhost"),
            ("content-length", "7"),
            ("mcp-session-id", "id"),
            ("last-event-id", "1"),
            ("idempotency-key", "k"),
        ] {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let kept = forwardable(&headers);
        let tenants: Vec<_> = kept.get_all("x-tenant").iter().collect();
        assert_eq!(kept.len(), 3);
        assert_eq!(kept["authorization"], "Bearer one");
        assert_eq!(tenants, ["a", "b"]);
    }
}
