//! The session, its loss, and what carries no session.

use serde_json::json;

use crate::support::{ATTEMPT, EPOCH, Kind, TOKEN, World, gone, head, limits, reopen};
use rejoin_client::machine::{Answer, Head, Media, Notice};

#[test]
fn every_request_of_a_session_names_it_and_its_revision() {
    let mut world = World::opened(Kind::Plain);
    let post = world.posted(1, "charge");
    assert_eq!(post.request.header("mcp-session-id"), Some("s1"));
    assert_eq!(post.request.header("mcp-protocol-version"), Some("2025-11-25"));
}

#[test]
fn nothing_follows_initialized_before_the_server_has_it() {
    let mut world = World::new();
    world.say_initialize("i");
    world.answer_initialize(Kind::Plain, "s1");
    world.say_initialized();
    let initialized = world.post();
    world.call(1, "charge");
    world.nothing_opened();
    world.accept(&initialized);
    world.get();
    assert_eq!(world.post().body["method"], "tools/call");
}

#[test]
fn a_call_that_a_lost_session_refused_did_not_run() {
    let mut world = World::opened(Kind::Plain);
    let post = world.posted(1, "charge");
    gone(&mut world, &post);
    reopen(&mut world, Kind::Plain);
    assert!(!world.failed(1));
    let (standalone, request) = world.get();
    assert_eq!(request.header("mcp-session-id"), Some("s2"));
    world.status(standalone, 405);
    // The host needs to know of none of it.
    let post = world.posted(2, "charge");
    assert_eq!(post.request.header("mcp-session-id"), Some("s2"));
}

#[test]
fn a_call_that_may_run_twice_goes_on_in_the_new_session() {
    let mut world = World::opened(Kind::Plain);
    world.host(json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }));
    let post = world.post();
    gone(&mut world, &post);
    reopen(&mut world, Kind::Plain);
    world.refuse_standalone();
    let again = world.post();
    assert_eq!(again.body["method"], "tools/list");
    assert_eq!(again.request.header("mcp-session-id"), Some("s2"));
}

#[test]
fn a_call_with_a_token_that_a_lost_session_refused_is_the_first_attempt_of_the_new_one() {
    let mut world = World::opened(Kind::Rejoin(1));
    let post = world.posted(1, "charge");
    gone(&mut world, &post);
    reopen(&mut world, Kind::Rejoin(2));
    world.refuse_standalone();
    let again = world.post();
    assert_eq!((again.meta(ATTEMPT), again.meta(EPOCH)), (&json!(1), &json!(2)));
}

/// Loses the session while call 1 runs; returns the world after it was opened anew.
fn lose_while_running(kind: Kind) -> World {
    let mut world = World::opened(Kind::Rejoin(1));
    world.host(json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "charge", "_meta": { EPOCH: 1, "progressToken": 1 } } }));
    let running = world.post();
    world.stream(running.exchange);
    world.event(running.exchange, "1-1-1", &running.progress(1));
    world.delivered();
    world.host(json!({ "jsonrpc": "2.0", "id": 2, "method": "ping" }));
    let ping = world.post();
    gone(&mut world, &ping);
    assert!(world.closed.contains(&running.exchange));
    reopen(&mut world, kind);
    world.refuse_standalone();
    world
}

#[test]
fn a_call_that_may_have_run_in_a_lost_session_is_sent_again_without_the_epoch() {
    // Who refreshes a credential is another principal to the same ledger: there an unknown token
    // under its epoch would run.
    for epoch in [1, 2] {
        let mut world = lose_while_running(Kind::Rejoin(epoch));
        let calls: Vec<_> =
            std::iter::from_fn(|| (!world.opened.is_empty()).then(|| world.post())).collect();
        let call = calls.iter().find(|post| post.body["method"] == "tools/call").unwrap();
        assert_eq!((call.meta(ATTEMPT), call.meta(EPOCH)), (&json!(2), &json!(null)));
        assert!(call.meta(TOKEN).is_string());
        world.cut(call.exchange);
        world.pass_until_opened(1_000);
        let again = world.post();
        assert_eq!((again.meta(ATTEMPT), again.meta(EPOCH)), (&json!(3), &json!(null)));
    }
    // What is no Rejoin would run it.
    let mut world = lose_while_running(Kind::Plain);
    assert!(world.failed(1));
}

#[test]
fn an_attempt_that_the_host_made_in_a_lost_session_is_sent_on_without_the_epoch() {
    let mut world = lose_while_running(Kind::Rejoin(1));
    world.opened.clear();
    world.host(json!({ "jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {
        "name": "charge", "_meta": { TOKEN: "mine", ATTEMPT: 2, EPOCH: 1 } } }));
    let post = world.post();
    assert_eq!((post.meta(TOKEN), post.meta(ATTEMPT)), (&json!("mine"), &json!(2)));
    assert_eq!(post.meta(EPOCH), &json!(null));
}

#[test]
fn a_session_that_cannot_be_had_again_ends_what_waits_and_the_next_call_tries_again() {
    let mut world = World::opened(Kind::Plain);
    let post = world.posted(1, "charge");
    gone(&mut world, &post);
    let initialize = world.post();
    world.status(initialize.exchange, 403);
    assert!(!world.failed(1));
    world.call(2, "charge");
    reopen(&mut world, Kind::Plain);
    world.refuse_standalone();
    assert_eq!(world.post().body["params"]["arguments"]["n"], 2);
}

#[test]
fn a_server_that_is_away_while_the_session_is_opened_anew_is_waited_for() {
    let mut world = World::opened(Kind::Plain);
    let post = world.posted(1, "charge");
    gone(&mut world, &post);
    for _ in 0..5 {
        let initialize = world.post();
        world.answer(initialize.exchange, Answer::Unsent("refused".to_owned()));
        world.pass_until_opened(20_000);
    }
    reopen(&mut world, Kind::Plain);
    assert!(!world.failed(1));
}

#[test]
fn a_404_to_a_get_means_the_session_only_if_a_post_says_so_too() {
    for is_gone in [false, true] {
        let mut world = World::opened(Kind::Plain);
        let (_, get) = world.resuming(1, "charge", "e1");
        world.status(get, 404);
        let ping = world.post();
        assert_eq!(ping.body["method"], "ping");
        if is_gone {
            gone(&mut world, &ping);
            reopen(&mut world, Kind::Plain);
        } else {
            world.json(
                ping.exchange,
                200,
                &json!({ "jsonrpc": "2.0", "id": ping.id(), "result": {} }),
            );
            assert!(!world.notices.contains(&Notice::SessionLost));
        }
        assert!(world.failed(1));
    }
}

#[test]
fn an_answer_to_a_question_of_a_lost_session_goes_nowhere() {
    let mut world = World::opened(Kind::Plain);
    let post = world.posted(1, "ask");
    world.stream(post.exchange);
    let question = json!({ "jsonrpc": "2.0", "id": 0, "method": "roots/list" });
    world.sse(post.exchange, &format!("data: {question}\n\n"));
    let asked = world.delivered();
    world.host(json!({ "jsonrpc": "2.0", "id": 2, "method": "ping" }));
    let ping = world.post();
    gone(&mut world, &ping);
    reopen(&mut world, Kind::Plain);
    world.opened.clear();
    world.host(json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "roots": [] } }));
    world.nothing_opened();
}

#[test]
fn the_standalone_stream_is_resumed_for_ever_but_not_in_a_storm() {
    let (mut world, first) = World::listening();
    let note = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": {} });
    world.event(first, "n1", &note);
    world.cut(first);
    let begin_ms = world.now_ms;
    for _ in 0..20 {
        world.pass_until_opened(120_000);
        let get = world.get_after("n1");
        world.stream(get);
        world.cut(get);
    }
    assert!(world.now_ms - begin_ms > 300_000, "20 in {} ms", world.now_ms - begin_ms);
    world.pass_until_opened(120_000);
    let get = world.get_after("n1");
    world.stream(get);
    world.event(get, "n2", &note);
    world.cut(get);
    // Only what came renews the waits, and only once.
    let begin_ms = world.now_ms;
    for _ in 0..20 {
        world.pass_until_opened(120_000);
        let get = world.get_after("n2");
        world.answer(get, Answer::Unsent("refused".to_owned()));
    }
    assert!(world.now_ms - begin_ms > 300_000, "20 in {} ms", world.now_ms - begin_ms);
    // Meanwhile nothing waits for it.
    world.posted(1, "charge");
}

#[test]
fn a_request_without_session_names_itself_in_its_headers_and_is_never_resumed() {
    let mut world = World::new();
    let version = "io.modelcontextprotocol/protocolVersion";
    let call = |id: u64, method: &str, name: &str| {
        json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": { "name": name,
            "uri": name, "_meta": { version: "2026-07-28", "progressToken": 5 } } })
    };
    world.host(call(1, "tools/call", "charge"));
    let post = world.post();
    for (name, value) in [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "charge"),
    ] {
        assert_eq!(post.request.header(name), Some(value));
    }
    assert_eq!(post.request.header("mcp-session-id"), None);
    world.stream(post.exchange);
    world.event(post.exchange, "e1", &post.progress(1));
    world.delivered();
    world.cut(post.exchange);
    assert!(world.failed(1));
    world.nothing_opened();

    // What only reads is asked for again, as a new request.
    world.host(call(2, "resources/read", "file:///x"));
    let post = world.post();
    assert_eq!(post.request.header("mcp-name"), Some("file:///x"));
    world.cut(post.exchange);
    world.pass_until_opened(1_000);
    let again = world.post();
    assert_ne!(again.id(), post.id());
    // Its cancel is the end of its connection.
    world.host(json!({ "jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": { "requestId": 2 } }));
    assert!(world.closed.contains(&again.exchange));
    world.nothing_opened();
    // A 404 says that there is no such method, not that a session is gone.
    world.host(call(3, "nonsense", "x"));
    let post = world.post();
    let error = json!({ "jsonrpc": "2.0", "id": post.id(),
        "error": { "code": -32601, "message": "no such method" } });
    world.json(post.exchange, 404, &error);
    assert_eq!(world.delivered()["error"]["code"], -32601);
}

#[test]
fn an_initialize_that_fails_is_told_and_one_that_breaks_is_sent_again() {
    let mut world = World::new();
    let initialize = json!({ "jsonrpc": "2.0", "id": "i", "method": "initialize", "params": {
        "protocolVersion": "2025-11-25" } });
    world.host(initialize);
    let post = world.post();
    world.cut(post.exchange);
    world.pass_until_opened(1_000);
    let post = world.post();
    world.answer(post.exchange, Answer::Head(head(502, Media::Whole)));
    let error = json!({ "jsonrpc": "2.0", "id": post.id(),
        "error": { "code": -32603, "message": "the server cannot be started" } });
    world.answer(post.exchange, Answer::Body(bytes::Bytes::from(error.to_string())));
    let told = world.delivered();
    assert_eq!((&told["id"], &told["error"]["code"]), (&json!("i"), &json!(-32603)));
}

#[test]
fn a_new_session_of_which_only_the_head_comes_is_asked_for_again() {
    let mut world = World::opened(Kind::Plain);
    let post = world.posted(1, "charge");
    gone(&mut world, &post);
    for media in [Media::Stream, Media::Whole] {
        let initialize = world.post();
        let head = Head { session: Some("s2".to_owned()), ..head(200, media) };
        world.answer(initialize.exchange, Answer::Head(head));
        let waited_ms = world.pass_until_opened(120_000);
        // A Rejoin gives its server 60 s.
        assert!(waited_ms > 60_000, "{waited_ms} ms");
        assert!(world.closed.contains(&initialize.exchange));
    }
    reopen(&mut world, Kind::Plain);
    assert!(!world.failed(1));
}

#[test]
fn a_second_initialize_ends_the_first_whose_late_answer_is_nobodys() {
    let mut world = World::new();
    let initialize = |id: u64| {
        json!({ "jsonrpc": "2.0", "id": id, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25" } })
    };
    world.host(initialize(1));
    let first = world.post();
    world.answer(
        first.exchange,
        Answer::Head(Head { session: Some("s1".to_owned()), ..head(200, Media::Whole) }),
    );
    world.host(initialize(2));
    assert_eq!(world.delivered()["id"], 1);
    assert!(world.closed.contains(&first.exchange));
    world.answer_initialize(Kind::Plain, "s2");
    assert_eq!(world.delivered()["id"], 2);
    world.answer(first.exchange, Answer::Body(bytes::Bytes::from(first.result("x").to_string())));
    world.nothing_delivered();
    assert_eq!(world.posted(3, "charge").request.header("mcp-session-id"), Some("s2"));
}

#[test]
fn a_new_session_of_the_host_ends_the_reopening_of_its_last() {
    let mut world = World::opened(Kind::Plain);
    let post = world.posted(1, "charge");
    gone(&mut world, &post);
    let reopening = world.post();
    world.say_initialize("j");
    assert!(!world.failed(1));
    assert!(world.closed.contains(&reopening.exchange));
    world.answer_initialize(Kind::Plain, "s3");
    assert_eq!(world.delivered()["id"], "j");
    assert_eq!(world.posted(2, "charge").request.header("mcp-session-id"), Some("s3"));
}

#[test]
fn questions_of_sessions_that_are_over_take_no_room() {
    let mut world = World::opened(Kind::Plain);
    for session in 1..=3 {
        let post = world.posted(session, "ask");
        world.stream(post.exchange);
        for id in 0..limits().asked_max {
            let question = json!({ "jsonrpc": "2.0", "id": id, "method": "roots/list" });
            world.sse(post.exchange, &format!("data: {question}\n\n"));
            assert_eq!(world.delivered()["method"], "roots/list");
            world.nothing_opened();
        }
        world.host(json!({ "jsonrpc": "2.0", "id": "p", "method": "ping" }));
        let ping = world.post();
        gone(&mut world, &ping);
        reopen(&mut world, Kind::Plain);
        world.opened.clear();
        let ended: Vec<_> = world.delivered.drain(..).collect();
        let ended: Vec<_> = ended.iter().filter(|message| !message["error"].is_null()).collect();
        assert_eq!(ended.len(), 1, "{ended:?}");
        world.host(json!({ "jsonrpc": "2.0", "method": "notifications/cancelled",
            "params": { "requestId": "p" } }));
        world.opened.clear();
    }
}

#[test]
fn a_session_id_that_fits_no_header_is_told() {
    let mut world = World::new();
    world.say_initialize("i");
    world.answer_initialize(Kind::Plain, &"s".repeat(1_025));
    let told = world.told();
    assert!(told.contains("1024 bytes") && !told.contains("sss"), "{told}");
    world.say_initialized();
    assert_eq!(world.post().request.header("mcp-session-id"), None);
}
