//! Header fields that end at the next hop (RFC 9110 section 7.6.1).

use http::HeaderMap;
use http::header::{CONNECTION, CONTENT_LENGTH, HeaderName, TRANSFER_ENCODING};

/// Fields of one connection.
const OF_ONE_HOP: [&str; 7] = [
    "connection",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// Fields of a request that are made anew: the host is another, the body is whole and has no
/// trailers, and its sender has been told to go on.
const MADE_ANEW: [&str; 4] = ["content-length", "expect", "host", "trailer"];

/// The header of a request as the server gets it.
pub(super) fn request(headers: &HeaderMap) -> HeaderMap {
    let mut passed = end_to_end(headers);
    for name in MADE_ANEW {
        passed.remove(name);
    }
    passed
}

/// The header of an answer as the client gets it.
pub(super) fn response(headers: &HeaderMap) -> HeaderMap {
    let mut passed = end_to_end(headers);
    if headers.contains_key(TRANSFER_ENCODING) {
        // A length beside a coding does not count (RFC 9112 section 6.3).
        passed.remove(CONTENT_LENGTH);
    }
    passed
}

fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let mut passed = headers.clone();
    let lines = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    for option in lines.flat_map(|line| line.split(',')) {
        if let Ok(name) = option.trim().parse::<HeaderName>() {
            passed.remove(name);
        }
    }
    for name in OF_ONE_HOP {
        passed.remove(name);
    }
    passed
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for &(name, value) in fields {
            let name = HeaderName::from_static(name);
            headers.append(name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn what_is_of_one_hop_is_dropped_and_all_else_kept_in_order() {
        let came = headers(&[
            ("host", "localhost"),
            ("connection", "close, X-Hop"),
            ("connection", "keep-alive"),
            ("keep-alive", "timeout=5"),
            ("x-hop", "1"),
            ("te", "trailers"),
            ("upgrade", "h2c"),
            ("expect", "100-continue"),
            ("content-length", "2"),
            ("proxy-authorization", "Basic x"),
            ("authorization", "Bearer one"),
            ("x-twice", "a"),
            ("x-twice", "b"),
            ("mcp-param-region", "eu"),
            ("last-event-id", "7"),
        ]);
        let expected = headers(&[
            ("authorization", "Bearer one"),
            ("x-twice", "a"),
            ("x-twice", "b"),
            ("mcp-param-region", "eu"),
            ("last-event-id", "7"),
        ]);
        assert_eq!(request(&came), expected);
    }

    #[test]
    fn a_length_is_kept_unless_a_coding_overrides_it() {
        let plain = headers(&[("content-length", "2"), ("content-encoding", "gzip")]);
        assert_eq!(response(&plain), plain);
        let coded = headers(&[("content-length", "2"), ("transfer-encoding", "chunked")]);
        assert!(response(&coded).is_empty());
    }
}
