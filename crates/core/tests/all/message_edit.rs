//! Changing messages in place, and the measure of "the same call".
use bytes::Bytes;
use rejoin_core::message::{Incoming, Message, parse};

fn one(body: &str) -> Message {
    match parse(Bytes::copy_from_slice(body.as_bytes()), 128) {
        Ok(Incoming::One(message)) => message,
        other => panic!("{body}: {other:?}"),
    }
}

#[test]
fn id_and_progress_token_are_replaced_and_nothing_else() {
    let call = one(concat!(
        "{ \"method\":\"tools/call\",\t\"id\" : \"x\\u0031\" ,",
        "\"jsonrpc\":\"2.0\", \"params\" : {\n",
        "\"z\":12345678901234567890123, \"a\":1e400,\"id\":\"x\\u0031\",\"progressToken\":9,",
        "\"_meta\" : { \"progressToken\" : 1.50 , \"id\":7} } , \"unknown\":[ ] } "
    ));
    let edited = call.edit().id(b"17").progress_token(b"\"p-1\"").finish();
    assert_eq!(
        edited,
        concat!(
            "{ \"method\":\"tools/call\",\t\"id\" : 17 ,\"jsonrpc\":\"2.0\", \"params\" : {\n",
            "\"z\":12345678901234567890123, \"a\":1e400,\"id\":\"x\\u0031\",\"progressToken\":9,",
            "\"_meta\" : { \"progressToken\" : \"p-1\" , \"id\":7} } , \"unknown\":[ ] } "
        )
    );
}

#[test]
fn an_id_is_restored_exactly_as_it_was_written() {
    let original = r#"{"id":"\u0061\/","jsonrpc":"2.0","result":{"n":1.10}}"#;
    let message = one(original);
    let id = message.id().expect("has an id");
    let relayed = one(std::str::from_utf8(&message.edit().id(b"1").finish()).expect("UTF-8"));
    assert_eq!(relayed.edit().id(id).finish(), original);
}

#[test]
fn escaped_keys_are_found_and_kept() {
    let body = |id: u64, token: u64| {
        let meta = format!(r#""_met\u0061":{{"progress\u0054oken":{token}}}"#);
        format!(r#"{{"jsonrpc":"2.0","\u0069d":{id},"method":"m","params":{{{meta}}}}}"#)
    };
    let call = one(&body(1, 2));
    assert_eq!(call.edit().id(b"3").progress_token(b"4").finish(), body(3, 4));
}

#[test]
fn what_notifications_are_about_is_replaced() {
    let body = |method: &str, params: &str| {
        format!(r#"{{"jsonrpc":"2.0","method":"notifications/{method}","params":{params}}}"#)
    };
    let progress = one(&body("progress", r#"{"progressToken":1,"progress":0.50}"#));
    assert_eq!(
        progress.edit().progress_of(b"\"t\"").cancelled_id(b"9").progress_token(b"9").finish(),
        body("progress", r#"{"progressToken":"t","progress":0.50}"#)
    );
    let cancelled = one(&body("cancelled", r#"{"reason":"r","requestId":"a"}"#));
    assert_eq!(
        cancelled.edit().cancelled_id(b"12").progress_of(b"9").finish(),
        body("cancelled", r#"{"reason":"r","requestId":12}"#)
    );
}

#[test]
fn a_change_without_its_place_copies_nothing() {
    for body in [
        r#"{"jsonrpc":"2.0","method":"m"}"#,
        r#"{"jsonrpc":"2.0","method":"m","params":[{"_meta":{"k":1}}]}"#,
        r#"{"jsonrpc":"2.0","method":"m","params":{"_meta":"k"}}"#,
    ] {
        let message = one(body);
        let edited = message
            .edit()
            .id(b"1")
            .progress_token(b"1")
            .progress_of(b"1")
            .cancelled_id(b"1")
            .remove_meta(&["k"])
            .result_meta("k", b"1")
            .experimental_capability("k", b"1")
            .error_data("k", b"1")
            .finish();
        assert_eq!(edited, body);
        assert_eq!(edited.as_ptr(), message.bytes().as_ptr());
    }
}

#[test]
fn the_last_replacement_of_one_place_counts() {
    let message = one(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    assert_eq!(
        message.edit().id(b"2").id(b"3").result_meta("k", b"1").result_meta("k", b"2").finish(),
        r#"{"jsonrpc":"2.0","id":3,"result":{"_meta":{"k":2}}}"#
    );
}

#[test]
fn meta_members_are_removed_with_their_comma() {
    let cases = [
        (r#"{ "a" : 1 , "b" : 2 , "c" : 3 }"#, vec!["a"], r#"{ "b" : 2 , "c" : 3 }"#),
        (r#"{ "a" : 1 , "b" : 2 , "c" : 3 }"#, vec!["b"], r#"{ "a" : 1 , "c" : 3 }"#),
        (r#"{ "a" : 1 , "b" : 2 , "c" : 3 }"#, vec!["c"], r#"{ "a" : 1 , "b" : 2 }"#),
        (r#"{ "a" : 1 , "b" : 2 , "c" : 3 }"#, vec!["b", "a"], r#"{ "c" : 3 }"#),
        (r#"{ "a" : 1 , "b" : 2 , "c" : 3 }"#, vec!["a", "c"], r#"{ "b" : 2 }"#),
        (r#"{ "a" : 1 , "b" : 2 , "c" : 3 }"#, vec!["b", "c"], r#"{ "a" : 1 }"#),
        (r#"{ "a" : 1 , "b" : 2 , "c" : 3 }"#, vec!["a", "b", "c"], r#"{  }"#),
        (r#"{"a":1}"#, vec!["a"], "{}"),
        (r#"{"\u0061":[1,{"b":2}],"b":"x,\"a\":1"}"#, vec!["a"], r#"{"b":"x,\"a\":1"}"#),
        (r#"{"a":{"b":1}}"#, vec!["b", "x"], r#"{"a":{"b":1}}"#),
        ("{}", vec!["a"], "{}"),
    ];
    let body = |meta: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{{"a":1,"_meta":{meta},"b":2}}}}"#
        )
    };
    for (meta, keys, expected) in cases {
        let edited = one(&body(meta)).edit().remove_meta(&keys).finish();
        assert_eq!(edited, body(expected), "{meta} without {keys:?}");
    }
}

#[test]
fn removal_and_replacement_in_one_meta_compose() {
    let call = one(concat!(
        r#"{"jsonrpc":"2.0","id":1,"method":"m","params":"#,
        r#"{"_meta":{"t":"x","progressToken":1,"u":2}}}"#,
    ));
    assert_eq!(
        call.edit().remove_meta(&["t"]).id(b"5").progress_token(b"6").remove_meta(&["u"]).finish(),
        r#"{"jsonrpc":"2.0","id":5,"method":"m","params":{"_meta":{"progressToken":6}}}"#
    );
    assert_eq!(
        call.edit().progress_token(b"6").remove_meta(&["progressToken", "t"]).finish(),
        r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"u":2}}}"#
    );
}

#[test]
fn result_meta_is_added_or_replaced() {
    let cases = [
        ("{}", r#"{"_meta":{"k":true}}"#),
        ("{ }", r#"{"_meta":{"k":true} }"#),
        (r#"{ "a" : 1 }"#, r#"{ "a" : 1,"_meta":{"k":true} }"#),
        (r#"{"_meta":{},"a":1}"#, r#"{"_meta":{"k":true},"a":1}"#),
        (r#"{"_meta":{"x":1},"a":1}"#, r#"{"_meta":{"x":1,"k":true},"a":1}"#),
        (r#"{"_meta":{"k": {"old":1} ,"x":1}}"#, r#"{"_meta":{"k": true ,"x":1}}"#),
        (r#"{"_meta":{"\u006b":0}}"#, r#"{"_meta":{"\u006b":true}}"#),
        (r#"{"a":{"_meta":{"k":1}}}"#, r#"{"a":{"_meta":{"k":1}},"_meta":{"k":true}}"#),
        // A key twice in a result is the server's own affair; most readers take the last one.
        (r#"{"_meta":{"k":1,"k":2}}"#, r#"{"_meta":{"k":1,"k":true}}"#),
        (r#"{"_meta":null}"#, r#"{"_meta":null}"#),
        ("[1]", "[1]"),
        ("null", "null"),
    ];
    let body = |result: &str| format!(r#"{{"jsonrpc":"2.0","result":{result},"id":1}}"#);
    for (result, expected) in cases {
        let edited = one(&body(result)).edit().result_meta("k", b"true").finish();
        assert_eq!(edited, body(expected), "{result}");
    }
}

#[test]
fn an_experimental_capability_is_added_with_the_objects_around_it() {
    let cases = [
        ("{}", r#"{"capabilities":{"experimental":{"k":{"v":1}}}}"#),
        (r#"{"capabilities":{}}"#, r#"{"capabilities":{"experimental":{"k":{"v":1}}}}"#),
        (
            r#"{"capabilities":{"tools":{}},"x":1}"#,
            r#"{"capabilities":{"tools":{},"experimental":{"k":{"v":1}}},"x":1}"#,
        ),
        (
            r#"{"capabilities":{"experimental":{"o":{}}}}"#,
            r#"{"capabilities":{"experimental":{"o":{},"k":{"v":1}}}}"#,
        ),
        (
            r#"{"capabilities":{"experimental":{"k":false}}}"#,
            r#"{"capabilities":{"experimental":{"k":{"v":1}}}}"#,
        ),
        (r#"{"capabilities":7}"#, r#"{"capabilities":7}"#),
    ];
    let body = |result: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#);
    for (result, expected) in cases {
        let edited = one(&body(result)).edit().experimental_capability("k", br#"{"v":1}"#).finish();
        assert_eq!(edited, body(expected), "{result}");
    }
}

#[test]
fn error_data_is_added_or_made() {
    let cases = [
        (r#"{"code":1,"message":"m"}"#, r#"{"code":1,"message":"m","data":{"k":1}}"#),
        (r#"{"data":{"a":{}},"code":1}"#, r#"{"data":{"a":{},"k":1},"code":1}"#),
        (r#"{"code":1,"data":{"k":"old"}}"#, r#"{"code":1,"data":{"k":1}}"#),
        (r#"{"code":1,"data":"text"}"#, r#"{"code":1,"data":"text"}"#),
        (r#""text""#, r#""text""#),
    ];
    let body = |error: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"error":{error}}}"#);
    for (error, expected) in cases {
        let edited = one(&body(error)).edit().error_data("k", b"1").result_meta("k", b"2").finish();
        assert_eq!(edited, body(expected), "{error}");
    }
}

#[test]
fn several_added_members_share_the_objects_made_for_them() {
    let answer = one(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    let edited = answer
        .edit()
        .result_meta("a", b"1")
        .experimental_capability("x\"y", b"{}")
        .result_meta("b", b"2")
        .id(b"\"c\"")
        .finish();
    assert_eq!(
        edited,
        concat!(
            r#"{"jsonrpc":"2.0","id":"c","result":{"_meta":{"a":1,"b":2},"#,
            r#""capabilities":{"experimental":{"x\"y":{}}}}}"#
        )
    );
    let answer = one(r#"{"jsonrpc":"2.0","id":1,"result":{"_meta":{"b":0},"capabilities":{}}}"#);
    let edited = answer
        .edit()
        .result_meta("a", b"1")
        .experimental_capability("x", b"{}")
        .result_meta("b", b"2")
        .finish();
    assert_eq!(
        edited,
        concat!(
            r#"{"jsonrpc":"2.0","id":1,"result":{"_meta":{"b":2,"a":1},"#,
            r#""capabilities":{"experimental":{"x":{}}}}}"#
        )
    );
}

fn hash(method: &str, params: &str) -> [u8; 32] {
    let params = if params.is_empty() { String::new() } else { format!(r#","params":{params}"#) };
    one(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}"{params}}}"#))
        .canonical_params_hash()
}

#[test]
fn equal_calls_have_equal_hashes() {
    let cases = [
        ("", "{}"),
        ("", "{ }"),
        ("", r#"{"_meta":{"progressToken":1}}"#),
        ("", r#"{"_met\u0061":7}"#),
        (r#"{"a":1,"b":[1,2]}"#, " { \"b\" : [ 1 ,\n2 ] ,\t\"a\" : 1 } "),
        (r#"{"a":1,"_meta":{},"b":2}"#, r#"{"b":2,"a":1}"#),
        (
            r#"{"b":{"d":1,"c":{"f":1,"e":[]}},"a":{}}"#,
            r#"{"a":{},"b":{"c":{"e":[],"f":1},"d":1}}"#,
        ),
        (r#"{"\u0061":"\u0062\/\n"}"#, r#"{"a":"b/\u000A"}"#),
        (r#"{"a":"\ud83d\ude00"}"#, "{\"a\":\"\u{1F600}\"}"),
        (r#"{"a b":1,"a":2,"a\u0000":3}"#, r#"{"a\u0000":3,"a":2,"\u0061 b":1}"#),
        (r#"{"a":"\uD800"}"#, r#"{"a":"\ud800"}"#),
        (r#"{"a":[true,false,null],"c":-1.5e+3}"#, r#"{"c":-1.5e+3,"a":[true,false,null]}"#),
    ];
    for (one, other) in cases {
        assert_eq!(hash("m", one), hash("m", other), "{one} and {other}");
    }
    assert_eq!(hash("tools/call", "{}"), hash(r"tools\/c\u0061ll", "{}"));
}

#[test]
fn different_calls_have_different_hashes() {
    let cases = [
        (r#"{"a":1}"#, r#"{"a":1.0}"#),
        (r#"{"a":1}"#, r#"{"a":"1"}"#),
        (r#"{"a":9007199254740993}"#, r#"{"a":9007199254740992}"#),
        (r#"{"a":[1,2]}"#, r#"{"a":[2,1]}"#),
        (r#"{"a":[1,2]}"#, r#"{"a":[12]}"#),
        (r#"{"a":[[],1]}"#, r#"{"a":[[1]]}"#),
        (r#"{"a":{"_meta":1}}"#, r#"{"a":{}}"#),
        (r#"{"a":" "}"#, r#"{"a":""}"#),
        (r#"{"a":1,"b":2}"#, r#"{"a":2,"b":1}"#),
        (r#"{"a":"\ud800"}"#, r#"{"a":"\ud801"}"#),
        (r#"{"a":"\ud800"}"#, r#"{"a":"\\ud800"}"#),
        (r#"{"a":{"b":1,"b":2}}"#, r#"{"a":{"b":2}}"#),
        (r#"{"a":{"b":1,"b":2}}"#, r#"{"a":{"b":2,"b":1}}"#),
        ("[]", "{}"),
        (r#"[{"_meta":1}]"#, "[{}]"),
        ("[1]", r#"["1"]"#),
    ];
    for (one, other) in cases {
        assert_ne!(hash("m", one), hash("m", other), "{one} and {other}");
    }
    assert_ne!(hash("m", "{}"), hash("n", "{}"));
}

#[test]
fn the_hash_is_sha_256_of_method_and_canonical_params() {
    use sha2::{Digest, Sha256};
    let expected: [u8; 32] = Sha256::digest(br#""tools/call"{"a":[1,"x"],"name":"n"}"#).into();
    assert_eq!(hash("tools/call", r#"{"name":"n","_meta":{},"a":[1, "x"]}"#), expected);
}
