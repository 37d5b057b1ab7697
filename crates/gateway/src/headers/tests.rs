use super::*;
use http::Uri;
use http::header::{ACCEPT, HOST, ORIGIN};

const COMMAND: Operator = Operator::Command;

fn with(fields: &[(HeaderName, &'static str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers.append(name.clone(), HeaderValue::from_static(value));
    }
    headers
}

fn post_with(accept: &'static str, content_type: &'static str) -> Result<(), HeaderError> {
    check_post(&with(&[(ACCEPT, accept), (CONTENT_TYPE, content_type)]))
}

#[test]
fn a_post_must_be_json_and_take_both_forms_of_answer() {
    let both = "application/json, text/event-stream";
    for content_type in ["application/json", "Application/JSON; charset=utf-8"] {
        assert_eq!(post_with(both, content_type), Ok(()), "{content_type}");
    }
    for content_type in ["text/plain", "application/json-patch+json", ""] {
        assert_eq!(post_with(both, content_type), Err(HeaderError::NotJson), "{content_type}");
    }
    for accept in ["*/*", "application/*, text/*", "text/event-stream;q=0.1,application/json"] {
        assert_eq!(post_with(accept, JSON), Ok(()), "{accept}");
    }
    for accept in ["application/json", "text/event-stream", "text/*", "", "text/html"] {
        let refused = Err(HeaderError::CannotAcceptBoth);
        assert_eq!(post_with(accept, JSON), refused, "{accept}");
    }
}

#[test]
fn the_most_specific_range_of_accept_counts() {
    let refused = Err(HeaderError::CannotAcceptStream);
    let get = |accept| check_get(&with(&[(ACCEPT, accept)]));
    assert_eq!(get("*/*, text/event-stream;q=0"), refused);
    assert_eq!(get("text/*;q=0, text/event-stream"), Ok(()));
    assert_eq!(get("*/*;q=0.0"), refused);
    assert_eq!(check_get(&HeaderMap::new()), refused);
    let two = with(&[(ACCEPT, "application/json"), (ACCEPT, "text/event-stream")]);
    assert_eq!(check_get(&two), Ok(()));
}

#[test]
fn only_loopback_and_allowed_hosts_are_let_in() {
    let allowed = Allowed::new(&["gate.example".into(), "other.example:99".into()], &[], COMMAND);
    let check = |host| allowed.check(&Uri::from_static("/mcp"), &with(&[(HOST, host)]));
    for host in ["localhost", "LOCALHOST:1", "127.0.0.1:8080", "[::1]:8080", "127.9.9.9"] {
        assert_eq!(check(host), Ok(()), "{host}");
    }
    for host in ["gate.example", "Gate.Example:8443", "other.example:99"] {
        assert_eq!(check(host), Ok(()), "{host}");
    }
    for host in ["evil.example", "localhost.evil.example", "other.example:98", "10.0.0.1"] {
        assert!(matches!(check(host), Err(HeaderError::ForeignHost { .. })), "{host}");
    }
    let none = allowed.check(&Uri::from_static("/mcp"), &HeaderMap::new());
    assert_eq!(none, Err(HeaderError::BadHost));
    let two = with(&[(HOST, "localhost"), (HOST, "evil.example")]);
    assert_eq!(allowed.check(&Uri::from_static("/mcp"), &two), Err(HeaderError::BadHost));
    let absolute = Uri::from_static("http://evil.example/mcp");
    let local = with(&[(HOST, "localhost")]);
    let error = allowed.check(&absolute, &local).unwrap_err();
    assert!(error.to_string().starts_with("`evil.example` is not an allowed Host"), "{error}");
}

/// A name is made for a shell or a config only if nothing in it could do more there than name.
#[test]
fn who_is_not_let_in_is_named_with_the_remedy_if_it_can_be_shown() {
    let check = |operator, name: &HeaderName, value| {
        let host = if *name == HOST { value } else { "localhost" };
        let mut fields = vec![(HOST, host)];
        if *name == ORIGIN {
            fields.push((ORIGIN, value));
        }
        let allowed = Allowed::new(&[], &[], operator);
        allowed.check(&Uri::from_static("/mcp"), &with(&fields)).unwrap_err().to_string()
    };
    let said = check(COMMAND, &HOST, "mcp.example:8443");
    assert!(said.starts_with("`mcp.example:8443` is not"), "{said}");
    assert!(said.contains("--allow-host mcp.example:8443 (allow_hosts in a file)"), "{said}");
    let said = check(COMMAND, &ORIGIN, "https://app.example");
    assert!(said.contains("--allow-origin https://app.example (allow_origins in a"), "{said}");
    let said = check(Operator::Application, &HOST, "mcp.example");
    assert!(said.ends_with("add it to LayerConfig::allowed_hosts"), "{said}");
    let said = check(Operator::Application, &ORIGIN, "https://app.example");
    assert!(said.ends_with("add it to LayerConfig::allowed_origins"), "{said}");
    let long: &str = Box::leak("x".repeat(300).into_boxed_str());
    for (name, value) in [(&HOST, "a;reboot"), (&ORIGIN, "https://a`b"), (&ORIGIN, long)] {
        let said = check(COMMAND, name, value);
        assert!(said.starts_with("what the request names is not"), "{said}");
        assert!(!said.contains(value) && said.len() < 200, "{said}");
    }
}

#[test]
fn what_follows_the_host_is_a_port_or_nobody_is_let_in() {
    let allowed = Allowed::new(&["gate.example".into()], &[], COMMAND);
    let check = |fields: &[(HeaderName, &'static str)]| {
        allowed.check(&Uri::from_static("/mcp"), &with(fields))
    };
    for host in ["localhost:A", "127.0.0.1:1x", "[::1]:-1", "[::1]280", "gate.example:evil.example"]
    {
        assert_eq!(check(&[(HOST, host)]), Err(HeaderError::BadHost), "{host}");
        assert!(check_host(host).is_err(), "{host}");
    }
    for target in ["[::1]A", "http://[::1]280/mcp", "http://me@localhost/mcp", "@gate.example"] {
        let check = allowed.check(&Uri::from_static(target), &with(&[(HOST, "localhost")]));
        assert_eq!(check, Err(HeaderError::BadHost), "{target}");
    }
    for origin in ["http://localhost:A", "https://[::1]:1x"] {
        let refused = check(&[(HOST, "localhost"), (ORIGIN, origin)]);
        assert!(matches!(refused, Err(HeaderError::ForeignOrigin { .. })), "{origin}");
    }
    assert_eq!(check(&[(HOST, "localhost:")]), Ok(()));
}

#[test]
fn only_loopback_and_allowed_origins_are_let_in() {
    let allowed = Allowed::new(&[], &["https://app.example".into()], COMMAND);
    let check = |origin| {
        let headers = with(&[(HOST, "localhost"), (ORIGIN, origin)]);
        allowed.check(&Uri::from_static("/mcp"), &headers)
    };
    let good =
        ["http://localhost:3000", "https://127.0.0.1", "http://[::1]:5", "HTTPS://app.example"];
    for origin in good {
        assert_eq!(check(origin), Ok(()), "{origin}");
    }
    let bad =
        ["null", "https://evil.example", "http://app.example", "file://localhost", "localhost"];
    for origin in bad {
        assert!(matches!(check(origin), Err(HeaderError::ForeignOrigin { .. })), "{origin}");
    }
}

#[test]
fn a_session_accepts_its_own_and_every_guarded_revision() {
    let agreed = Revision::new("2024-11-05");
    let check = |date| check_revision(&with(&[(MCP_PROTOCOL_VERSION, date)]), &agreed);
    for date in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        assert_eq!(check(date), Ok(()), "{date}");
    }
    for date in ["2026-07-28", "1.0", "", "2025-11-26"] {
        let error = check(date).unwrap_err();
        assert_eq!(error, HeaderError::UnsupportedRevision { claimed: date.into() });
        let text = error.to_string();
        assert!(text.starts_with(&format!("Mcp-Protocol-Version {date:?} is not")), "{text}");
        assert!(text.contains("2025-03-26, 2025-06-18 or 2025-11-25"), "{text}");
    }
    let long = check(Box::leak("x".repeat(9_999).into_boxed_str())).unwrap_err().to_string();
    assert!(long.len() < 200, "{long}");
    let two = with(&[(MCP_PROTOCOL_VERSION, "2025-11-25"), (MCP_PROTOCOL_VERSION, "1.0")]);
    assert_eq!(check_revision(&two, &agreed), Err(HeaderError::ManyRevisions));
    assert_eq!(check_revision(&HeaderMap::new(), &agreed), Ok(()));
}

#[test]
fn a_session_id_is_one_word_of_visible_ascii() {
    assert_eq!(session_id(&HeaderMap::new()), Ok(None));
    assert_eq!(session_id(&with(&[(MCP_SESSION_ID, "abc~1")])), Ok(Some("abc~1")));
    for fields in [
        &[(MCP_SESSION_ID, "a b")][..],
        &[(MCP_SESSION_ID, "")],
        &[(MCP_SESSION_ID, "a"), (MCP_SESSION_ID, "b")],
    ] {
        assert_eq!(session_id(&with(fields)), Err(HeaderError::BadSessionId), "{fields:?}");
    }
}

#[test]
fn acknowledgements_are_read_from_all_lines_and_garbage_is_ignored() {
    let headers = with(&[
        (MCP_STREAM_ACK, "000000a1-3-142, garbage,,000000a1-4-143"),
        (MCP_STREAM_ACK, "000000a1-0-9"),
    ]);
    let ids: Vec<_> = acknowledgements(&headers).iter().map(ToString::to_string).collect();
    assert_eq!(ids, ["000000a1-3-142", "000000a1-4-143", "000000a1-0-9"]);
}

#[test]
fn a_cursor_is_an_event_id_or_malformed_or_none() {
    let read = |id| cursor(&with(&[(LAST_EVENT_ID, id)]));
    assert_eq!(cursor(&HeaderMap::new()), GetCursor::None);
    assert_eq!(read(""), GetCursor::None);
    assert_eq!(read("garbage"), GetCursor::Malformed);
    assert!(matches!(read("000000a1-3-142"), GetCursor::At(_)));
}

#[test]
fn an_idempotency_key_may_be_quoted() {
    let read = |key| idempotency_key(&with(&[(IDEMPOTENCY_KEY, key)]));
    assert_eq!(read("k1"), Ok(Some("k1".into())));
    assert_eq!(read("\"k1\""), Ok(Some("k1".into())));
    assert_eq!(idempotency_key(&HeaderMap::new()), Ok(None));
    assert_eq!(read(""), Err(HeaderError::BadIdempotencyKey));
    assert_eq!(read("\"\""), Err(HeaderError::BadIdempotencyKey));
    let two = with(&[(IDEMPOTENCY_KEY, "a"), (IDEMPOTENCY_KEY, "a")]);
    assert_eq!(idempotency_key(&two), Err(HeaderError::BadIdempotencyKey));
}
