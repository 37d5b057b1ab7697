//! Every call ends, and so does the client.

use serde_json::json;

use crate::support::{Kind, World, limits};
use rejoin_client::machine::{Answer, Input, Method, Request};

#[test]
fn a_get_that_is_not_allowed_ends_the_call_or_sends_its_token_again() {
    for status in [400, 405, 410, 422] {
        let mut world = World::opened(Kind::Plain);
        let (_, get) = world.resuming(1, "charge", "e1");
        world.status(get, status);
        if status == 400 {
            world.pong();
        }
        assert!(world.failed(1), "{status}");

        let mut world = World::opened(Kind::Rejoin(1));
        let (_, get) = world.resuming(1, "charge", "e1");
        world.status(get, status);
        world.pass_until_opened(1_000);
        assert_eq!(world.post().body["method"], "tools/call", "{status}");
    }
}

#[test]
fn a_rejoin_that_sends_no_head_has_lost_the_call() {
    let mut world = World::opened(Kind::Rejoin(1));
    let post = world.posted(1, "charge");
    let waited_ms = world.pass_until_opened(60_000);
    assert!(waited_ms >= limits().head_max_ms, "{waited_ms} ms");
    assert!(world.closed.contains(&post.exchange));
    assert_eq!(world.post().meta("dev.rejoin/attempt"), 2);
}

#[test]
fn a_call_of_which_nothing_comes_ends() {
    let mut world = World::opened(Kind::Plain);
    world.posted(1, "charge");
    world.pass(limits().call_silence_max_ms - 1);
    world.nothing_delivered();
    world.pass(1);
    assert!(world.failed(1));
}

#[test]
fn an_answer_may_come_on_the_standalone_stream_after_its_own_has_ended() {
    let (mut world, standalone) = World::listening();
    for (id, comes) in [(1, true), (2, false)] {
        let post = world.posted(id, "charge");
        world.stream(post.exchange);
        world.answer(post.exchange, Answer::Ended);
        world.pass(limits().elsewhere_ms - 1);
        world.nothing_delivered();
        if comes {
            world.sse(standalone, &format!("data: {}\n\n", post.result("late")));
            assert_eq!(world.delivered()["result"]["text"], "late");
        } else {
            world.pass(1);
            assert!(world.failed(2));
        }
    }
}

#[test]
fn a_cancelled_call_is_cancelled_under_the_servers_id_and_nothing_of_it_is_delivered() {
    let mut world = World::opened(Kind::Rejoin(1));
    let post = world.posted(1, "charge");
    world.stream(post.exchange);
    world.host(json!({ "jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": { "requestId": 1, "reason": "changed my mind" } }));
    let cancel = world.post();
    assert_eq!(cancel.body["params"]["requestId"], *post.id());
    assert_eq!(cancel.body["params"]["reason"], "changed my mind");
    world.event(post.exchange, "1-1-1", &post.progress(1));
    world.event(post.exchange, "1-1-2", &post.result("late"));
    world.nothing_delivered();
    assert_eq!(world.machine.pending_calls(), 0);
}

#[test]
fn a_call_that_was_cancelled_while_it_was_held_never_leaves() {
    let mut world = World::opened(Kind::Rejoin(1));
    let post = world.reading(1, "charge", "1-1-1");
    world.cut(post.exchange);
    world.call(2, "charge");
    world.host(json!({ "jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": { "requestId": 2 } }));
    world.pass(1);
    let get = world.get_after("1-1-1");
    world.event(get, "1-1-2", &post.result("done"));
    world.delivered();
    world.nothing_opened();
    world.nothing_delivered();
}

#[test]
fn a_cancelled_call_whose_stream_breaks_is_not_resumed() {
    let mut world = World::opened(Kind::Rejoin(1));
    let post = world.posted(1, "charge");
    world.stream(post.exchange);
    world.event(post.exchange, "1-1-1", &post.progress(1));
    world.host(json!({ "jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": { "requestId": 1 } }));
    let cancel = world.post();
    world.cut(post.exchange);
    world.accept(&cancel);
    world.pass(60_000);
    world.nothing_opened();
}

#[test]
fn a_host_that_goes_leaves_a_while_for_its_answers_and_then_ends_the_session() {
    let mut world = World::opened(Kind::Rejoin(1));
    let post = world.posted(1, "charge");
    world.input(Input::HostGone);
    world.pass(limits().end_grace_ms - 1);
    world.nothing_opened();
    world.json(post.exchange, 200, &post.result("done"));
    assert_eq!(world.delivered()["id"], 1);
    let (id, request) = world.opened.pop_front().unwrap();
    assert_eq!(request.method, Method::Delete);
    assert_eq!(request.header("mcp-session-id"), Some("s1"));
    assert!(!world.is_done);
    world.status(id, 204);
    assert!(world.is_done);
}

#[test]
fn a_server_that_does_not_take_the_end_is_not_waited_for() {
    let mut world = World::opened(Kind::Plain);
    world.input(Input::HostGone);
    assert_eq!(world.opened.pop_front().unwrap().1.method, Method::Delete);
    world.pass(limits().delete_max_ms);
    assert!(world.is_done);

    let mut world = World::new();
    world.input(Input::HostGone);
    assert!(world.is_done, "there is no session to end");
}

#[test]
fn an_error_that_names_no_request_ends_the_call_that_it_answers() {
    for status in [200, 400] {
        let mut world = World::opened(Kind::Plain);
        let post = world.posted(1, "charge");
        let error = json!({ "jsonrpc": "2.0", "id": null,
            "error": { "code": -32600, "message": "not this" } });
        world.json(post.exchange, status, &error);
        if status == 400 {
            world.pong();
        }
        let told = world.delivered();
        assert_eq!((&told["id"], &told["error"]["code"]), (&json!(1), &json!(-32600)));
        assert_eq!(told["error"]["data"]["mayHaveRun"], status == 200);
    }
}

#[test]
fn an_answer_that_was_promised_elsewhere_is_waited_for() {
    let (mut world, standalone) = World::listening();
    world.host(json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }));
    let post = world.post();
    world.status(post.exchange, 202);
    world.pass(60_000);
    world.nothing_opened();
    world.sse(standalone, &format!("data: {}\n\n", post.result("late")));
    assert_eq!(world.delivered()["result"]["text"], "late");
}

#[test]
fn an_event_too_large_is_not_asked_for_again_and_again() {
    let mut world = World::opened(Kind::Plain);
    let post = world.reading(1, "charge", "e1");
    world.answer(post.exchange, Answer::Oversized);
    world.answer(post.exchange, Answer::Ended);
    assert!(world.failed(1));

    // But if the stream has gone on behind it, the rest may still come.
    let post = world.posted(2, "charge");
    world.stream(post.exchange);
    world.event(post.exchange, "f1", &post.progress(1));
    world.answer(post.exchange, Answer::Oversized);
    world.event(post.exchange, "f3", &post.progress(3));
    world.cut(post.exchange);
    world.pass(1);
    world.get_after("f3");
}

#[test]
fn an_event_that_finds_no_room_ends_its_call_which_may_have_run() {
    let mut world = World::opened(Kind::Rejoin(1));
    let post = world.reading(1, "charge", "e1");
    world.answer(post.exchange, Answer::NoRoom);
    world.cut(post.exchange);
    let error = world.delivered();
    assert_eq!(error["error"]["data"]["mayHaveRun"], true, "{error}");
    let text = error["error"]["message"].as_str().unwrap();
    assert!(text.contains("half_read_bytes_max"), "{text}");
    world.pass(60_000);
    world.nothing_opened();
}

#[test]
fn calls_that_run_at_the_end_are_told() {
    let mut world = World::opened(Kind::Plain);
    let post = world.reading(1, "charge", "e1");
    world.cut(post.exchange);
    world.call(2, "held");
    world.call(3, "held");
    world.host(json!({ "jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": { "requestId": 3 } }));
    world.input(Input::HostGone);
    world.opened.clear();
    world.pass(limits().end_grace_ms);
    assert!(world.failed(1));
    assert!(!world.failed(2), "it never left");
    world.nothing_delivered();
    let is_delete = |(_, request): &(_, Request)| request.method == Method::Delete;
    assert!(world.opened.iter().any(is_delete));
}

#[test]
fn a_status_that_a_person_can_do_something_about_says_what() {
    for (status, hint) in [(308, "another URL"), (401, "give one that it takes.")] {
        let mut world = World::opened(Kind::Plain);
        let post = world.posted(1, "charge");
        world.status(post.exchange, status);
        let error = world.delivered();
        let text = error["error"]["message"].as_str().unwrap();
        assert!(text.contains(hint), "{text}");
    }
}
