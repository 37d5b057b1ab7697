//! A session that was lost, by whatever a server says of one that it does not know; and what a new
//! one is told.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::support::{Kind, Post, World, gone, head, limits, reopen};
use rejoin_client::machine::{Answer, ExchangeId, Media, Notice};

/// What servers answer, with status 400, to what is of a session that they do not know.
const UNKNOWN: [&str; 4] = [
    r#"{"jsonrpc":"2.0","id":null,
        "error":{"code":-32000,"message":"Bad Request: No valid session ID provided"}}"#,
    r#"{"jsonrpc":"2.0","id":"server-error",
        "error":{"code":-32600,"message":"Session not found"}}"#,
    "Bad Request: No valid session ID provided",
    "Invalid or missing session ID",
];

fn refuse(world: &mut World, id: ExchangeId, text: &str) {
    world.answer(id, Answer::Head(head(400, Media::Whole)));
    world.answer(id, Answer::Body(Bytes::from(text.to_owned())));
}

/// The machine asks whether its session lives.
#[track_caller]
fn ping(world: &mut World) -> Post {
    let ping = world.post();
    assert_eq!(ping.body["method"], "ping");
    ping
}

#[test]
fn a_400_that_a_ping_confirms_is_a_lost_session_and_the_call_did_not_run() {
    for text in UNKNOWN {
        let mut world = World::opened(Kind::Plain);
        let post = world.posted(1, "charge");
        refuse(&mut world, post.exchange, text);
        world.nothing_delivered();
        let ping = ping(&mut world);
        refuse(&mut world, ping.exchange, text);
        assert!(world.notices.contains(&Notice::SessionLost), "{text}");
        reopen(&mut world, Kind::Plain);
        world.refuse_standalone();
        let error = world.delivered();
        assert_eq!(error["error"]["data"]["reason"], "state_lost", "{text}: {error}");
        assert_eq!(error["error"]["data"]["mayHaveRun"], false, "{text}: {error}");
        world.delivered.clear();
        // Calls that may run twice go on by themselves.
        world.host(json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" }));
        let list = world.post();
        assert_eq!(list.request.header("mcp-session-id"), Some("s2"), "{text}");
        refuse(&mut world, list.exchange, text);
        let ping = self::ping(&mut world);
        refuse(&mut world, ping.exchange, text);
        world.pass_until_opened(20_000);
        reopen(&mut world, Kind::Plain);
        world.refuse_standalone();
        assert_eq!(world.post().body["method"], "tools/list", "{text}");
    }
}

#[test]
fn a_400_to_a_get_that_a_ping_confirms_is_a_lost_session_too() {
    for text in UNKNOWN {
        let mut world = World::opened(Kind::Plain);
        world.host(json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }));
        let list = world.post();
        world.stream(list.exchange);
        world.sse(list.exchange, "id: e1\ndata:\n\n");
        world.cut(list.exchange);
        world.pass(1);
        let get = world.get_after("e1");
        refuse(&mut world, get, text);
        let ping = ping(&mut world);
        refuse(&mut world, ping.exchange, text);
        assert!(world.notices.contains(&Notice::SessionLost), "{text}");
        reopen(&mut world, Kind::Plain);
        world.refuse_standalone();
        let again = world.post();
        assert_eq!(again.body["method"], "tools/list", "{text}");
        assert_eq!(again.request.header("mcp-session-id"), Some("s2"), "{text}");
    }
}

#[test]
fn a_400_in_a_session_that_lives_is_the_calls_own() {
    let mut world = World::opened(Kind::Plain);
    let post = world.posted(1, "charge");
    refuse(&mut world, post.exchange, "no such field in this session");
    world.pong();
    assert!(!world.failed(1));
    assert!(!world.notices.contains(&Notice::SessionLost));
    // So is one that is the answer to the very call.
    let post = world.posted(2, "charge");
    let error = json!({ "jsonrpc": "2.0", "id": post.id(),
        "error": { "code": -32602, "message": "no such tool" } });
    world.json(post.exchange, 400, &error);
    assert_eq!(world.delivered()["error"]["code"], -32602);
    world.nothing_opened();
}

/// What refuses everything for a while must not take running calls with it.
#[test]
fn a_400_that_says_nothing_of_a_session_ends_none_in_which_an_answer_is_being_read() {
    for (text, is_lost) in [("too many headers", false), ("unknown session", true)] {
        let mut world = World::opened(Kind::Plain);
        let running = world.posted(1, "charge");
        world.stream(running.exchange);
        let post = world.posted(2, "charge");
        refuse(&mut world, post.exchange, text);
        let ping = ping(&mut world);
        refuse(&mut world, ping.exchange, text);
        assert_eq!(world.notices.contains(&Notice::SessionLost), is_lost, "{text}");
        if !is_lost {
            assert!(!world.failed(2));
            world.sse(running.exchange, &format!("data: {}\n\n", running.result("done")));
            assert_eq!(world.delivered()["result"]["text"], "done");
        }
    }
}

#[test]
fn a_question_whether_a_session_lives_that_is_not_answered_leaves_the_call_refused() {
    type Fails = fn(&mut World, ExchangeId);
    let fails: [Fails; 4] = [
        |world, id| world.cut(id),
        |world, id| world.answer(id, Answer::Unsent("refused".to_owned())),
        |world, _| world.pass(limits().head_max_ms),
        |world, id| {
            world.answer(id, Answer::Head(head(400, Media::Whole)));
            world.pass(limits().head_max_ms);
        },
    ];
    for fail in fails {
        let mut world = World::opened(Kind::Plain);
        let post = world.posted(1, "charge");
        refuse(&mut world, post.exchange, UNKNOWN[0]);
        let ping = ping(&mut world);
        fail(&mut world, ping.exchange);
        let error = world.delivered();
        assert_eq!(error["error"]["data"]["mayHaveRun"], false, "{error}");
        world.nothing_opened();
    }
}

#[test]
fn a_standalone_stream_is_what_tells_of_a_lost_session_where_nothing_is_called() {
    let (mut world, stream) = World::listening();
    world.cut(stream);
    world.pass_until_opened(20_000);
    let (again, _) = world.get();
    refuse(&mut world, again, UNKNOWN[0]);
    let ping = ping(&mut world);
    refuse(&mut world, ping.exchange, UNKNOWN[0]);
    assert!(world.notices.contains(&Notice::SessionLost));
    reopen(&mut world, Kind::Plain);
    world.get();
}

/// Each session that the server gives is unknown to it at once.
#[test]
fn a_server_that_never_knows_its_sessions_is_asked_ever_less_and_the_call_ends() {
    for status in [400, 404] {
        let mut world = World::opened(Kind::Plain);
        world.host(json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }));
        let mut opened = 0;
        while world.machine.pending_calls() > 0 {
            let list = world.post();
            assert_eq!(list.body["method"], "tools/list");
            world.status(list.exchange, status);
            if status == 400 {
                let ping = ping(&mut world);
                world.status(ping.exchange, status);
            }
            world.pass_until_opened(20_000);
            reopen(&mut world, Kind::Plain);
            world.refuse_standalone();
            opened += 1;
            assert!(opened < 10, "it is asked again and again");
        }
        assert_eq!(opened, limits().session_losses_max + 1, "{status}");
        world.delivered.retain(|message| message["id"] == 1);
        assert!(!world.failed(1));
    }
}

#[test]
fn sessions_that_come_to_nothing_are_not_opened_in_a_storm() {
    let mut world = World::opened(Kind::Plain);
    let begin_ms = world.now_ms;
    for id in 1..=10 {
        world.call(id, "charge");
        world.pass_until_opened(20_000);
        let post = world.post();
        gone(&mut world, &post);
        world.pass_until_opened(20_000);
        reopen(&mut world, Kind::Plain);
        world.refuse_standalone();
    }
    assert!(world.now_ms - begin_ms > 20_000, "10 in {} ms", world.now_ms - begin_ms);
}

fn answer(world: &mut World, post: &Post) {
    world.json(post.exchange, 200, &json!({ "jsonrpc": "2.0", "id": post.id(), "result": {} }));
}

fn ask(world: &mut World, id: u64, method: &str, params: Value) -> Post {
    world.host(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
    world.post()
}

#[test]
fn a_new_session_is_told_what_the_last_one_was_told_and_the_host_what_may_have_changed() {
    let mut world = World::opened(Kind::Plain);
    for (id, method, params) in [
        (1, "logging/setLevel", json!({ "level": "debug" })),
        (2, "logging/setLevel", json!({ "level": "error", "_meta": { "progressToken": 2 } })),
        (3, "resources/subscribe", json!({ "uri": "file:///a" })),
        (4, "resources/subscribe", json!({ "uri": "file:///b" })),
        (5, "resources/unsubscribe", json!({ "uri": "file:///a" })),
    ] {
        let post = ask(&mut world, id, method, params);
        answer(&mut world, &post);
    }
    // What the server did not take is not told again.
    let post = ask(&mut world, 6, "resources/subscribe", json!({ "uri": "file:///c" }));
    let error = json!({ "code": -32602, "message": "no such resource" });
    world.json(post.exchange, 200, &json!({ "jsonrpc": "2.0", "id": post.id(), "error": error }));
    world.delivered.clear();

    let lost = world.posted(7, "charge");
    gone(&mut world, &lost);
    // The host asks for more before there is a new session.
    world.call(8, "charge");
    reopen(&mut world, Kind::Plain);
    assert!(!world.failed(7));
    // Only what the server offers can have changed.
    assert_eq!(world.delivered()["method"], "notifications/tools/list_changed");
    world.nothing_delivered();
    world.refuse_standalone();
    let level = world.post();
    assert_eq!(level.body["params"]["level"], "error");
    assert_eq!(level.request.header("mcp-session-id"), Some("s2"));
    let subscribe = world.post();
    assert_eq!(subscribe.body["method"], "resources/subscribe");
    assert_eq!(subscribe.body["params"]["uri"], "file:///b");
    assert_eq!(world.post().body["params"]["arguments"]["n"], 8);
    world.nothing_opened();

    // The host hears of their end only if it is a failure, and not as an answer.
    answer(&mut world, &level);
    world.json(subscribe.exchange, 500, &json!({}));
    world.pass_until_opened(20_000);
    let again = world.post();
    assert_eq!(again.body["params"]["uri"], "file:///b", "it may be told twice");
    world.status(again.exchange, 403);
    world.nothing_delivered();
    assert!(world.told().contains("resources/subscribe, told again"), "{}", world.told());
    assert_eq!(world.machine.pending_calls(), 1);
}

#[test]
fn what_is_told_again_is_bounded_and_another_session_of_the_host_begins_without() {
    let mut world = World::opened(Kind::Plain);
    let long = "x".repeat(limits().told_bytes_max / 2);
    for (id, name) in [(1, "a"), (2, "b"), (3, "c")] {
        let uri = format!("file:///{name}{long}");
        let post = ask(&mut world, id, "resources/subscribe", json!({ "uri": uri }));
        answer(&mut world, &post);
    }
    let lost = world.posted(4, "charge");
    gone(&mut world, &lost);
    reopen(&mut world, Kind::Plain);
    world.refuse_standalone();
    let again = world.post();
    assert!(again.body["params"]["uri"].as_str().unwrap().starts_with("file:///a"));
    world.nothing_opened();
    answer(&mut world, &again);

    world.delivered.clear();
    world.say_initialize("j");
    world.opened.retain(|(_, request)| !request.body.is_empty());
    world.answer_initialize(Kind::Plain, "s3");
    let lost = world.posted(5, "charge");
    world.status(lost.exchange, 404);
    world.pass_until_opened(20_000);
    world.answer_initialize(Kind::Plain, "s4");
    assert_eq!(world.told().matches("a new session is open").count(), 2, "{}", world.told());
    world.refuse_standalone();
    world.nothing_opened();
}
