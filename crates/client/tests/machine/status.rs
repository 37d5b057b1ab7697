//! What is no answer of an MCP server, and what is said of it.

use bytes::Bytes;
use rejoin_client::machine::{Answer, Media, Settings};
use serde_json::{Value, json};

use crate::support::{Kind, Post, World, head, limits};

const PAGE: &str = "<!DOCTYPE html><html><body>Not Found</body></html>";

fn opening(settings: Settings) -> (World, Post) {
    let mut world = World::with(settings);
    world.say_initialize("i");
    let post = world.post();
    (world, post)
}

fn named() -> Settings {
    Settings {
        server: "http://host.example/wrong".to_owned(),
        credential: "the credential in the variable `TOKEN`".to_owned(),
        ..Settings::default()
    }
}

fn answer(world: &mut World, post: &Post, status: u16, body: &str) {
    world.answer(post.exchange, Answer::Head(head(status, Media::Whole)));
    world.answer(post.exchange, Answer::Body(Bytes::from(body.to_owned())));
}

/// The error that the host got, after its text.
fn told(world: &mut World) -> (String, Value) {
    let error = world.delivered();
    let text = error["error"]["message"].as_str().unwrap_or_default().to_owned();
    (text, error)
}

#[test]
fn a_wrong_url_is_named_at_once_with_its_status_and_what_to_check() {
    let unnamed =
        r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Method not allowed."},"id":null}"#;
    for (status, body) in [
        (404, ""),
        (404, PAGE),
        (405, unnamed),
        (400, "nonsense"),
        (406, ""),
        (410, ""),
        (501, ""),
        (200, PAGE),
        (200, r#"{"detail":"hello"}"#),
    ] {
        let (mut world, post) = opening(named());
        answer(&mut world, &post, status, body);
        world.nothing_opened();
        let (text, error) = told(&mut world);
        for part in ["http://host.example/wrong", "check the URL", &status.to_string()] {
            assert!(text.contains(part), "{status} {body}: {text}");
            assert!(world.told().contains(part), "{status} {body}: {}", world.told());
        }
        assert_eq!(error["id"], "i", "{error}");
        assert_eq!(error["error"]["data"]["mayHaveRun"], false, "{error}");
        assert_eq!(error["error"]["data"]["status"], status, "{error}");
        world.pass(60_000);
        world.nothing_opened();
    }
}

#[test]
fn statuses_that_change_are_waited_for_and_others_are_not() {
    for status in [408, 425, 429, 500, 502, 503, 504] {
        let (mut world, post) = opening(Settings::default());
        answer(&mut world, &post, status, "");
        world.pass_until_opened(20_000);
        assert_eq!(world.post().body["method"], "initialize", "{status}");
    }
    for status in [400, 401, 402, 403, 404, 405, 409, 415, 422, 501, 505] {
        let (mut world, post) = opening(Settings::default());
        answer(&mut world, &post, status, "");
        world.delivered();
        world.pass(60_000);
        world.nothing_opened();
    }
}

#[test]
fn a_credential_that_is_refused_is_named_by_where_it_came_from() {
    for status in [401, 403] {
        for option in ["", "--auth"] {
            // A program that has no options is not told of one.
            let settings = Settings { credential_option: option.to_owned(), ..named() };
            let (mut world, post) = opening(settings);
            answer(&mut world, &post, status, "");
            let (text, _) = told(&mut world);
            assert_eq!(text.contains("with --auth"), !option.is_empty(), "{text}");
        }
        let (mut world, post) = opening(named());
        answer(&mut world, &post, status, "");
        let (text, _) = told(&mut world);
        assert!(text.contains("the variable `TOKEN` was sent"), "{text}");
        assert!(world.told().contains("the variable `TOKEN` was sent"), "{}", world.told());

        let (mut world, post) = opening(Settings::default());
        answer(&mut world, &post, status, "");
        let (text, _) = told(&mut world);
        assert!(text.contains("no credential was sent"), "{text}");
    }
}

#[test]
fn a_page_in_place_of_an_answer_to_a_call_is_no_word_on_whether_it_ran() {
    let mut world = World::opened(Kind::Plain);
    let post = world.posted(1, "charge");
    answer(&mut world, &post, 200, PAGE);
    assert!(world.failed(1));
}

#[test]
fn what_the_host_writes_and_nobody_can_read_did_not_run() {
    let mut world = World::opened(Kind::Plain);
    let deep = "[".repeat(1_000);
    for (line, code) in [("nonsense", -32700), ("{}", -32600), (deep.as_str(), -32600)] {
        world.input(rejoin_client::machine::Input::Host(Bytes::from(line.to_owned())));
        let (text, error) = told(&mut world);
        assert_eq!(error["error"]["code"], code, "{error}");
        assert_eq!(error["error"]["data"]["mayHaveRun"], false, "{error}");
        assert_eq!(error["error"]["data"]["by"], "rejoin", "{error}");
        assert!(text.starts_with("Not run. ") && text.contains("line"), "{text}");
        for foreign in ["body", "--limit"] {
            assert!(!text.contains(foreign), "{text}");
        }
    }
}

#[test]
fn a_person_is_told_which_call_is_meant_by_the_hosts_id_and_the_tools_name() {
    let mut world = World::opened(Kind::Plain);
    world.host(json!({ "jsonrpc": "2.0", "id": "seven", "method": "tools/call", "params": {
        "name": "charge\u{9b}31m", "arguments": { "secret": "zqsecret" } } }));
    let post = world.post();
    world.stream(post.exchange);
    world.event(post.exchange, "e1", &post.progress(1));
    world.cut(post.exchange);
    world.pass(1);
    let get = world.get_after("e1");
    world.status(get, 405);
    world.delivered.clear();
    let told = world.told();
    let name = r#"call "seven" (charge?31m)"#;
    assert!(told.contains(&format!("the answer to {name} broke off")), "{told}");
    assert!(told.contains(&format!("{name} failed")), "{told}");
    assert!(!told.contains("zqsecret"), "{told}");

    world.host(json!({ "jsonrpc": "2.0", "id": 8, "method": "resources/read",
        "params": { "uri": "file:///zqsecret" } }));
    let post = world.post();
    world.status(post.exchange, 410);
    assert!(world.told().contains("call 8 (resources/read) failed"), "{}", world.told());
    assert!(!world.told().contains("zqsecret"), "{}", world.told());
}

/// The ways in which an answer cannot be read.
fn unreadable(post: &Post) -> [String; 3] {
    let id = post.id();
    [
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"n":NaN}}}}"#),
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{}{}}}"#, "[".repeat(200), "]".repeat(200)),
        format!(r#"{{"jsonrpc":"2.0","id":{id},"error":"#),
    ]
}

#[test]
fn an_answer_that_cannot_be_read_ends_its_call() {
    for kind in [Kind::Plain, Kind::Rejoin(1)] {
        // It stays open, ends, breaks; or there is no stream.
        for how in 0..4 {
            for which in 0..3 {
                let mut world = World::opened(kind);
                let post = world.posted(1, "charge");
                let body = unreadable(&post)[which].clone();
                if how == 3 {
                    answer(&mut world, &post, 200, &body);
                } else {
                    world.stream(post.exchange);
                    world.sse(post.exchange, &format!("id: e1\ndata: {body}\n\n"));
                    world.nothing_delivered();
                }
                match how {
                    0 => world.pass(limits().unreadable_max_ms),
                    1 => world.answer(post.exchange, Answer::Ended),
                    2 => world.cut(post.exchange),
                    _ => {}
                }
                assert!(world.failed(1), "{kind:?} {how} {which}");
                assert!(world.told().contains("cannot be read"), "{}", world.told());
                world.pass(60_000);
                world.nothing_opened();
            }
        }
    }
}

#[test]
fn what_cannot_be_read_before_the_answer_ends_no_call() {
    let mut world = World::opened(Kind::Plain);
    let post = world.reading(1, "charge", "e1");
    // Nothing of an answer is in it; or it was none, since more comes.
    for (event, unreadable) in [("e2", r#"{"method":"x","params":NaN}"#), ("e3", r#"{"result":"#)] {
        world.sse(post.exchange, &format!("id: {event}\ndata: {unreadable}\n\n"));
        world.pass(if event == "e2" { 60_000 } else { limits().unreadable_max_ms - 1 });
        world.nothing_delivered();
    }
    world.event(post.exchange, "e4", &post.progress(2));
    world.delivered();
    world.pass(60_000);
    world.event(post.exchange, "e5", &post.result("done"));
    assert_eq!(world.delivered()["result"]["text"], "done");
}

#[test]
fn a_null_beside_the_other_of_result_and_error_is_none_and_is_not_passed_on() {
    for (member, other) in [("result", "error"), ("error", "result")] {
        for on_stream in [false, true] {
            let mut world = World::opened(Kind::Plain);
            let post = world.posted(1, "charge");
            let mut body = json!({ "jsonrpc": "2.0", "id": post.id(), other: null });
            body[member] = json!({ "code": 5, "message": "said" });
            if on_stream {
                world.stream(post.exchange);
                world.event(post.exchange, "e1", &body);
            } else {
                world.json(post.exchange, 200, &body);
            }
            let told = world.delivered();
            let expected = json!({ "jsonrpc": "2.0", "id": 1, member: body[member] });
            assert_eq!(told, expected);
        }
    }
}

#[test]
fn a_batch_of_too_many_messages_is_refused_to_whoever_sent_it() {
    let batch = |message: &Value| {
        let messages = vec![message.to_string(); rejoin_core::limits::BATCH_MESSAGES_MAX + 1];
        format!("[{}]", messages.join(","))
    };
    let mut world = World::opened(Kind::Plain);
    let ping = json!({ "jsonrpc": "2.0", "id": 7, "method": "ping" });
    world.input(rejoin_client::machine::Input::Host(Bytes::from(batch(&ping))));
    world.nothing_opened();
    let (text, error) = told(&mut world);
    assert_eq!(error["error"]["data"]["mayHaveRun"], false, "{error}");
    assert!(text.contains("more than 4096 messages"), "{text}");
    world.nothing_delivered();

    for on_stream in [false, true] {
        let post = world.posted(1, "charge");
        let body = batch(&post.result("done"));
        if on_stream {
            world.stream(post.exchange);
            world.sse(post.exchange, &format!("data: {body}\n\n"));
            world.answer(post.exchange, Answer::Ended);
        } else {
            answer(&mut world, &post, 200, &body);
        }
        let (text, error) = told(&mut world);
        assert_eq!(error["error"]["data"]["mayHaveRun"], true, "{error}");
        assert!(text.contains("batch of more than 4096 messages"), "{text}");
        world.nothing_delivered();
    }
}
