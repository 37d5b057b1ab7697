//! Reading JSON-RPC messages: what is accepted, what is refused and why, what is found.
use bytes::Bytes;
use rejoin_core::message::{
    IdKey, Incoming, Kind, Message, ParseError, error_response, notification, parse, request,
    response, single_line,
};

const DEPTH_MAX: usize = 128;

fn try_one(body: &str) -> Result<Message, ParseError> {
    match parse(Bytes::copy_from_slice(body.as_bytes()), DEPTH_MAX)? {
        Incoming::One(message) => Ok(message),
        Incoming::Batch(_) => panic!("{body} is no single message"),
    }
}

fn one(body: &str) -> Message {
    try_one(body).unwrap_or_else(|error| panic!("{body}: {error}"))
}

fn refused(body: &str) -> ParseError {
    parse(Bytes::copy_from_slice(body.as_bytes()), DEPTH_MAX).expect_err(body)
}

fn key(token: &str) -> IdKey {
    IdKey::from_json(token.as_bytes()).unwrap_or_else(|error| panic!("{token}: {error}"))
}

#[test]
fn a_tool_call_is_taken_apart() {
    let body = concat!(
        " { \"jsonrpc\" : \"2.0\", \"method\":\"tools\\/call\",\n",
        " \"id\" :\"a\\u0062\", \"params\":{",
        "\"_meta\":{\"progressToken\": 12345678901234567890123,\"k\":\"v\\n\"},",
        "\"name\":\"ch\\u0061rge\",\"arguments\":{\"id\":1,\"_meta\":{}}}} \n"
    );
    let call = one(body);
    assert_eq!(call.bytes(), body);
    assert_eq!(call.kind(), Kind::Request);
    assert_eq!(call.method(), Some("tools/call"));
    assert_eq!(call.id(), Some(br#""a\u0062""#.as_ref()));
    assert_eq!(call.id_key(), Some(IdKey::text("ab")));
    assert_eq!(call.tool_name(), Some("charge"));
    assert_eq!(call.param("arguments"), Some(br#"{"id":1,"_meta":{}}"#.as_ref()));
    assert_eq!(call.param_str("name").as_deref(), Some("charge"));
    assert_eq!(call.param_str("arguments"), None);
    assert_eq!(call.meta("k"), Some(br#""v\n""#.as_ref()));
    assert_eq!(call.meta_str("k").as_deref(), Some("v\n"));
    assert_eq!(call.meta("absent"), None);
    assert_eq!(call.progress_token(), Some(key("12345678901234567890123")));
    assert_eq!(call.progress_token_raw(), Some(b"12345678901234567890123".as_ref()));
    assert_eq!((call.progress_of(), call.cancels(), call.error_code()), (None, None, None));
    assert_eq!((call.result(), call.error()), (None, None));
}

#[test]
fn notifications_name_what_they_are_about() {
    let progress = one(concat!(
        r#"{"jsonrpc":"2.0","method":"notifications/progress","#,
        r#""params":{"progressToken":"t","progress":1.5}}"#,
    ));
    assert_eq!(progress.kind(), Kind::Notification);
    assert_eq!(progress.progress_of(), Some(IdKey::text("t")));
    assert_eq!((progress.progress_token(), progress.cancels(), progress.id()), (None, None, None));
    let cancelled = one(concat!(
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","#,
        r#""params":{"requestId":7,"reason":"x"}}"#,
    ));
    assert_eq!(cancelled.cancels(), Some(IdKey::from(7)));
    assert_eq!(cancelled.progress_of(), None);
    let other =
        one(r#"{"jsonrpc":"2.0","method":"other","params":{"requestId":7,"progressToken":8}}"#);
    assert_eq!((other.cancels(), other.progress_of()), (None, None));
}

#[test]
fn responses_are_told_apart_from_errors() {
    let result = one(r#"{"jsonrpc":"2.0","id":-3,"result":{"error":1,"method":"x"}}"#);
    assert_eq!(result.kind(), Kind::Response);
    assert_eq!(result.id_key(), Some(key("-3")));
    assert_eq!(result.result(), Some(br#"{"error":1,"method":"x"}"#.as_ref()));
    let error = one(r#"{"jsonrpc":"2.0","id":1,"error":{"data":{"code":1},"code":-32601}}"#);
    assert_eq!((error.kind(), error.error_code()), (Kind::ErrorResponse, Some(-32601)));
    assert_eq!(error.error(), Some(br#"{"data":{"code":1},"code":-32601}"#.as_ref()));
    for body in [
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":1.5}}"#,
        r#"{"jsonrpc":"2.0","error":"text"}"#,
    ] {
        let error = one(body);
        assert_eq!((error.kind(), error.id(), error.id_key()), (Kind::ErrorResponse, None, None));
        assert_eq!(error.error_code(), None);
    }
}

#[test]
fn members_inside_other_members_are_never_taken_for_the_message_s_own() {
    let decoy = concat!(
        r#"{"result":{"id":1},"jsonrpc":"2.0","x":{"id":2,"params":"#,
        r#"{"_meta":{"progressToken":3}}},"id":4}"#
    );
    let message = one(decoy);
    assert_eq!((message.kind(), message.id_key()), (Kind::Response, Some(IdKey::from(4))));
    let nested = concat!(
        r#"{"jsonrpc":"2.0","id":1,"method":"m","_meta":{"progressToken":1},"params":"#,
        r#"{"arguments":{"_meta":{"progressToken":2}},"progressToken":3}}"#
    );
    assert_eq!(one(nested).progress_token_raw(), None);
    assert_eq!(one(nested).progress_of(), None);
    let in_string = r#"{"jsonrpc":"2.0","method":"m","params":{"a":"\",\"id\":1,\"b\":\""}}"#;
    assert_eq!(one(in_string).kind(), Kind::Notification);
}

#[test]
fn only_a_tool_call_has_a_tool_name() {
    let named = |method: &str, name: &str| {
        one(&format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"name":{name}}}}}"#
        ))
    };
    assert_eq!(named("tools/call", r#""get""#).tool_name(), Some("get"));
    assert_eq!(named("prompts/get", r#""get""#).tool_name(), None);
    assert_eq!(named("tools/call", "7").tool_name(), None);
    assert_eq!(named("tools/call", r#""\udfff""#).tool_name(), None);
}

#[test]
fn params_may_be_absent_or_an_array() {
    assert_eq!(one(r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#).params(), None);
    let array = one(r#"{"jsonrpc":"2.0","id":1,"method":"m","params":[{"_meta":1}]}"#);
    assert_eq!(array.params(), Some(br#"[{"_meta":1}]"#.as_ref()));
    assert_eq!((array.param("_meta"), array.meta("x")), (None, None));
}

#[test]
fn ids_are_keys_by_value() {
    assert_eq!(key(r#""a""#), key(r#""\u0061""#));
    assert_eq!(key(r#""\ud83d\ude00""#), key("\"\u{1F600}\""));
    assert_eq!(key(r#""\/""#), key(r#""/""#));
    assert_ne!(key("1"), key(r#""1""#));
    assert_ne!(key("9007199254740993"), key("9007199254740992"));
    assert_ne!(key("12345678901234567890123"), key("12345678901234567890124"));
    assert_eq!(key("-0"), key("0"));
    assert_eq!(key("18446744073709551615").as_u64(), Some(u64::MAX));
    assert_eq!((key(r#""1""#).as_u64(), key("-1").as_u64()), (None, None));
    assert_eq!(IdKey::from(17).as_json(), "17");
    assert_eq!(IdKey::text("a\"\n").to_string(), r#""a\"\u000a""#);
}

#[test]
fn ids_sort_by_value_integers_first() {
    let sorted = ["-100", "-20", "-3", "0", "3", "20", "100", r#""""#, r#""10""#, r#""9""#];
    let keys: Vec<IdKey> = sorted.iter().map(|token| key(token)).collect();
    let mut shuffled: Vec<IdKey> = keys.iter().rev().cloned().collect();
    shuffled.sort();
    assert_eq!(shuffled, keys);
}

#[test]
fn an_id_survives_serialisation() {
    for token in ["12345678901234567890123", r#""a \" b""#, "-1"] {
        let id = key(token);
        let json = serde_json::to_string(&id).expect("a string");
        assert_eq!(serde_json::from_str::<IdKey>(&json).expect("the same id"), id);
    }
    assert!(serde_json::from_str::<IdKey>("\"1.5\"").is_err());
}

#[test]
fn an_id_that_is_neither_string_nor_integer_is_refused() {
    let ids = ["null", "1.0", "1e3", "1E3", "-0.0", "true", "false", "{}", "[1]", r#""\ud800""#];
    for id in ids {
        for rest in [r#""method":"m""#, r#""result":{}"#] {
            let body = format!(r#"{{"jsonrpc":"2.0","id":{id},{rest}}}"#);
            assert!(matches!(refused(&body), ParseError::BadId { .. }), "{body}");
        }
    }
    let error = refused(r#"{"jsonrpc":"2.0","id":1.5,"error":{}}"#);
    assert!(matches!(error, ParseError::BadId { .. }));
}

#[test]
fn what_is_no_message_is_refused_with_its_reason() {
    use ParseError::*;
    let ambiguous = |first, second| Ambiguous { first, second };
    let cases = [
        (r#""text""#, NotAnObject),
        ("null", NotAnObject),
        (r#"{"id":1,"method":"m"}"#, BadVersion),
        (r#"{"jsonrpc":2.0,"id":1,"method":"m"}"#, BadVersion),
        (r#"{"jsonrpc":"1.0","id":1,"method":"m"}"#, BadVersion),
        (r#"{"jsonrpc":"2.0","id":1}"#, NoMethodNorResult),
        (r#"{"jsonrpc":"2.0","result":{}}"#, NoResponseId),
        (r#"{"jsonrpc":"2.0","id":1,"result":1,"error":{}}"#, ambiguous("result", "error")),
        (
            r#"{"jsonrpc":"2.0","id":1,"result":null,"error":null,"method":"m"}"#,
            ambiguous("method", "result"),
        ),
        (r#"{"jsonrpc":"2.0","id":1,"result":1,"method":"m"}"#, ambiguous("method", "result")),
        (r#"{"jsonrpc":"2.0","id":1,"error":1,"method":"m"}"#, ambiguous("method", "error")),
        (r#"{"jsonrpc":"2.0","id":1,"method":1}"#, BadMethod),
        (r#"{"jsonrpc":"2.0","id":1,"method":"\udc00"}"#, BadMethod),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":null}"#, ParamsNotObjectOrArray),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":"x"}"#, ParamsNotObjectOrArray),
        ("[]", EmptyBatch),
        (" [ ] ", EmptyBatch),
        ("[1]", Element { index: 0, source: Box::new(NotAnObject) }),
        ("[[]]", Element { index: 0, source: Box::new(NotAnObject) }),
    ];
    for (body, reason) in cases {
        assert_eq!(refused(body), reason, "{body}");
        assert_eq!(reason.json_rpc_code(), -32600);
    }
    assert!(one(r#"{"json\u0072pc":"2.\u0030","id":1,"method":"m"}"#).id().is_some());
}

#[test]
fn what_is_no_json_is_refused_at_its_place() {
    let cases = [
        ("", 0),
        ("  ", 2),
        ("\u{FEFF}{}", 0),
        ("{", 1),
        (r#"{"a":1,}"#, 7),
        (r#"{"a" 1}"#, 5),
        (r#"{a:1}"#, 1),
        (r#"{"a":01}"#, 6),
        (r#"{"a":+1}"#, 5),
        (r#"{"a":1.}"#, 7),
        (r#"{"a":.1}"#, 5),
        (r#"{"a":1e}"#, 7),
        (r#"{"a":-}"#, 6),
        (r#"{"a":"\x"}"#, 7),
        (r#"{"a":"\u12g4"}"#, 10),
        ("{\"a\":\"\n\"}", 6),
        (r#"{"a":"b"#, 7),
        (r#"{"a":tru}"#, 5),
        (r#"{"a":truee}"#, 9),
        (r#"{"a":[1,]}"#, 8),
        (r#"{"a":[1}"#, 7),
        (r#"{"a":{"b":1]}"#, 11),
        ("{} {}", 3),
        ("[1 2]", 3),
        ("[1,]", 3),
        ("[1]]", 3),
        ("1 1", 2),
        ("/**/{}", 0),
        ("{}\0", 2),
        ("{}\u{a0}", 2),
    ];
    for (body, at) in cases {
        let error = refused(body);
        assert!(
            matches!(error, ParseError::NotJson { offset, .. } if offset == at),
            "{body}: {error}"
        );
        assert_eq!(error.json_rpc_code(), -32700);
    }
    let cut = br#"{"jsonrpc":"2.0","method":"m","params":{"a":["b"]}}"#;
    for end in 0..cut.len() {
        let error = parse(Bytes::copy_from_slice(&cut[..end]), DEPTH_MAX).expect_err("is cut");
        assert!(matches!(error, ParseError::NotJson { offset, .. } if offset <= end), "{end}");
    }
}

#[test]
fn what_is_not_utf_8_is_refused() {
    let mut body = br#"{"jsonrpc":"2.0","method":"m","params":{"a":""#.to_vec();
    let offset = body.len();
    for bad in [&b"\xFF"[..], b"\xC0\xAF", b"\xED\xA0\x80", b"\xF4\x90\x80\x80", b"\xE2\x82"] {
        body.truncate(offset);
        body.extend_from_slice(bad);
        body.extend_from_slice(b"\"}}");
        let expected = ParseError::NotJson { offset, expected: "UTF-8" };
        assert_eq!(parse(body.clone().into(), DEPTH_MAX), Err(expected));
    }
}

#[test]
fn a_key_twice_where_messages_are_routed_by_is_refused() {
    let cases = [
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","id":2}"#, "id", "the message"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","\u0069d":1}"#, "id", "the message"),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{},"params":[]}"#,
            "params",
            "the message",
        ),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1,"b":2,"a":1}}"#, "a", "params"),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{},"_met\u0061":1}}"#,
            "_meta",
            "params",
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"k":1,"\u006b":2}}}"#,
            "k",
            "params._meta",
        ),
        (r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"code":2}}"#, "code", "error"),
    ];
    for (body, key, place) in cases {
        let expected = ParseError::DuplicateKey { key: key.into(), place };
        assert_eq!(refused(body), expected, "{body}");
    }
    one(r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"arguments":{"a":1,"a":1}}}"#);
    one(r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"\ud800":1,"\ud801":1}}"#);
    one(r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"\ud800\ue000":1,"\ud801\udc00":1}}"#);
    one(r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"\ud800\ud800":1,"\ud800":1}}"#);
}

#[test]
fn depth_is_limited_everywhere_and_exactly() {
    let nested = |open: &str, close: &str, levels: usize| {
        let (open, close) = (open.repeat(levels), close.repeat(levels));
        let body = format!(r#"{{"jsonrpc":"2.0","method":"m","params":{{"a":{open}1{close}}}}}"#);
        parse(body.into(), 10)
    };
    let too_deep = Err(ParseError::TooDeep { depth_max: 10 });
    for (open, close) in [("[", "]"), (r#"{"k":"#, "}")] {
        assert!(nested(open, close, 8).is_ok());
        assert_eq!(nested(open, close, 9), too_deep);
        assert_eq!(nested(open, close, 200_000), too_deep);
    }
    assert_eq!(parse("[".repeat(11).into(), 10), too_deep);
    // What is closed does not count: every object here is entered before the last one.
    let beside = r#"{"jsonrpc":"2.0","params":{"_meta":{},"a":[]},"error":{},"method":[[]]}"#;
    assert!(!matches!(parse(beside.into(), 3), Err(ParseError::TooDeep { .. })));
    let levels = 200_000;
    let body = format!(
        r#"{{"jsonrpc":"2.0","method":"m","params":{}1{}}}"#,
        "[".repeat(levels),
        "]".repeat(levels)
    );
    let Ok(Incoming::One(deep)) = parse(body.into(), levels + 1) else { panic!("is allowed") };
    deep.canonical_params_hash();
    let meta = r#"{"jsonrpc":"2.0","method":"m","params":{"_meta":{"a":[]}}}"#;
    assert!(parse(meta.into(), 4).is_ok());
    assert_eq!(parse(meta.into(), 3), Err(ParseError::TooDeep { depth_max: 3 }));
}

#[test]
fn a_batch_gives_its_messages_without_copying() {
    let body = Bytes::from_static(
        br#" [ {"jsonrpc":"2.0","id":1,"method":"a"} ,{"jsonrpc":"2.0","method":"b"},
        {"jsonrpc":"2.0","id":2,"result":{}}] "#,
    );
    let Ok(Incoming::Batch(messages)) = parse(body.clone(), DEPTH_MAX) else { panic!("a batch") };
    let kinds: Vec<Kind> = messages.iter().map(Message::kind).collect();
    assert_eq!(kinds, [Kind::Request, Kind::Notification, Kind::Response]);
    assert_eq!(messages[1].bytes(), r#"{"jsonrpc":"2.0","method":"b"}"#);
    assert_eq!(messages[0].id(), Some(b"1".as_ref()));
    assert!(body.as_ptr_range().contains(&messages[2].bytes().as_ptr()));
    let second_bad = r#"[{"jsonrpc":"2.0","method":"b"},{"jsonrpc":"2.0"}]"#;
    let source = Box::new(ParseError::NoMethodNorResult);
    assert_eq!(refused(second_bad), ParseError::Element { index: 1, source });
}

#[test]
fn debug_shows_no_payload() {
    let message = one(r#"{"jsonrpc":"2.0","id":"secret","method":"m","params":{"a":"secret"}}"#);
    let shown =
        format!("{message:?} {:?}", message.edit().id(b"secret").error_data("k", b"secret"));
    assert!(!shown.contains("secret"), "{shown}");
    assert!(shown.contains("Request"), "{shown}");
}

#[test]
fn refusals_name_what_to_do() {
    let text = refused(r#"{"jsonrpc":"2.0","id":null,"method":"m"}"#).to_string();
    assert_eq!(text, "the id is null: send a string or an integer, another one for each request");
    let text = refused("{").to_string();
    assert_eq!(
        text,
        "the message is not JSON: expected a key at byte 1. \
         Send one complete JSON-RPC message in UTF-8"
    );
}

#[test]
fn written_messages_are_messages() {
    let error = error_response(Some(b"\"a\""), -32000, "say \"no\"\n", Some(b"{\"k\":1}"));
    assert_eq!(
        error,
        concat!(
            r#"{"jsonrpc":"2.0","id":"a","error":{"code":-32000,"#,
            r#""message":"say \"no\"\u000a","data":{"k":1}}}"#
        )
    );
    assert_eq!(
        error_response(None, 1, "m", None),
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}"#
    );
    assert_eq!(response(b"1", b"{}"), r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    assert_eq!(
        request(b"1", "a/b", Some(b"{}")),
        r#"{"jsonrpc":"2.0","id":1,"method":"a/b","params":{}}"#
    );
    assert_eq!(notification("n", None), r#"{"jsonrpc":"2.0","method":"n"}"#);
    for body in [error, response(b"1", b"{}"), request(b"1", "m", None), notification("n", None)] {
        assert!(parse(body, DEPTH_MAX).is_ok());
    }
}

#[test]
fn a_message_over_several_lines_becomes_one_line_with_the_same_meaning() {
    let body = Bytes::from_static(b"{\r\n \"a\":\n\"b\\n\"}\n");
    assert_eq!(single_line(body), "{   \"a\": \"b\\n\"} ");
    let flat = Bytes::from_static(b"{}");
    assert_eq!(single_line(flat.clone()).as_ptr(), flat.as_ptr());
}

#[test]
fn a_result_or_error_that_is_null_beside_the_other_counts_as_absent_and_can_be_left_out() {
    for (text, kind, plain) in [
        (
            r#" {"jsonrpc":"2.0","id":1,"result":{"a":1},"error":null}"#,
            Kind::Response,
            r#" {"jsonrpc":"2.0","id":7,"result":{"a":1}}"#,
        ),
        (
            r#"{"error" : null , "jsonrpc":"2.0","id":1,"result":null}"#,
            Kind::Response,
            r#"{"jsonrpc":"2.0","id":7,"result":null}"#,
        ),
        (
            r#"{"jsonrpc":"2.0","result":null,"id":1,"error":{"code":-1,"message":"m"}}"#,
            Kind::ErrorResponse,
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":-1,"message":"m"}}"#,
        ),
    ] {
        let message = one(text);
        assert_eq!(message.kind(), kind, "{text}");
        assert_eq!(message.result().is_some(), kind == Kind::Response, "{text}");
        assert_eq!(message.error().is_some(), kind == Kind::ErrorResponse, "{text}");
        let edit = || message.edit().id(b"7");
        assert_eq!(edit().without_null_outcome().finish(), plain, "{text}");
        assert_ne!(edit().finish(), plain, "only where it is asked for");
    }
    let plain = one(r#"{"jsonrpc":"2.0","id":1,"result":{"error":null}}"#);
    assert_eq!(plain.edit().without_null_outcome().finish(), plain.bytes());
}

#[test]
fn a_batch_of_more_messages_than_are_read_is_refused_before_the_rest_of_it_is_read() {
    let batch = |messages: usize, end: &str| {
        let message = r#"{"jsonrpc":"2.0","method":"m"}"#;
        parse(format!("[{}{end}", vec![message; messages].join(",")).into(), 8)
    };
    let max = rejoin_core::limits::BATCH_MESSAGES_MAX;
    assert!(matches!(batch(max, "]"), Ok(Incoming::Batch(messages)) if messages.len() == max));
    // What follows is not even JSON.
    for end in ["]", ",,"] {
        let refused = batch(max + 1, end).unwrap_err();
        assert_eq!(refused, ParseError::TooManyMessages { messages_max: max });
        assert!(refused.to_string().contains("more than 4096 messages"), "{refused}");
    }
}
