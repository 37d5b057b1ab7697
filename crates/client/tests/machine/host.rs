//! What the host says, and what it is told.

use bytes::Bytes;
use serde_json::json;

use crate::support::{Kind, World, limits};
use rejoin_client::machine::{Answer, Input, Notice};

#[test]
fn a_batch_is_taken_as_its_messages() {
    let mut world = World::opened(Kind::Plain);
    world.host(json!([
        { "jsonrpc": "2.0", "id": "a", "method": "ping" },
        { "jsonrpc": "2.0", "id": "b", "method": "tools/list" }
    ]));
    let (first, second) = (world.post(), world.post());
    world.json(second.exchange, 200, &second.result("b"));
    world.json(first.exchange, 200, &json!([first.result("a")]));
    assert_eq!(world.delivered()["id"], "b");
    assert_eq!(world.delivered()["id"], "a");
}

#[test]
fn ids_and_tokens_are_the_hosts_again_and_everything_else_stays_as_it_was() {
    let mut world = World::opened(Kind::Rejoin(1));
    let call = concat!(
        r#"{"jsonrpc":"2.0", "id" : "x\u0041" ,"method":"tools/call","params":{"#,
        r#""arguments":{"big":12345678901234567890123,"f":1.50},"name":"charge","#,
        r#""_meta":{"z":1,"progressToken":"tok"}}}"#
    );
    world.input(Input::Host(Bytes::from(call)));
    let post = world.post();
    let text = String::from_utf8(post.request.body.to_vec()).unwrap();
    assert!(text.contains(r#""arguments":{"big":12345678901234567890123,"f":1.50}"#), "{text}");
    world.stream(post.exchange);
    world.event(post.exchange, "1-1-1", &post.progress(1));
    assert_eq!(world.delivered()["params"]["progressToken"], "tok");
    world.event(post.exchange, "1-1-2", &post.result("done"));
    assert_eq!(world.delivered()["id"], "xA");
}

#[test]
fn what_is_no_message_is_answered_as_such() {
    let mut world = World::opened(Kind::Plain);
    world.input(Input::Host(Bytes::from_static(b"{\"jsonrpc\":")));
    assert_eq!(world.delivered()["error"]["code"], -32700);
}

#[test]
fn a_second_call_under_the_id_of_a_running_one_is_refused_and_the_first_goes_on() {
    let mut world = World::opened(Kind::Plain);
    let post = world.posted(1, "charge");
    world.call(1, "charge");
    let refused = world.delivered();
    assert!(refused["id"].is_null(), "the host would take it for the end of the first: {refused}");
    assert_eq!(refused["error"]["data"]["mayHaveRun"], false, "{refused}");
    world.nothing_opened();
    world.json(post.exchange, 200, &post.result("done"));
    assert_eq!(world.delivered()["result"]["text"], "done");
}

#[test]
fn calls_beyond_the_limit_are_refused_and_posts_beyond_theirs_wait() {
    let mut world = World::opened(Kind::Plain);
    let (calls_max, posts_max) = (limits().calls_max, limits().posts_open_max);
    for id in 0..calls_max as u64 {
        world.call(id, "charge");
    }
    assert_eq!(world.opened.len(), posts_max);
    world.call(5_000, "charge");
    assert!(!world.failed(5_000));
    let post = world.post();
    world.json(post.exchange, 200, &post.result("done"));
    assert_eq!(world.opened.len(), posts_max);
}

#[test]
fn a_servers_request_is_asked_under_an_id_of_ours_and_answered_under_its_own() {
    let mut world = World::opened(Kind::Plain);
    let post = world.posted(1, "ask");
    world.stream(post.exchange);
    for id in [json!("q"), json!(1)] {
        let question = json!({ "jsonrpc": "2.0", "id": id, "method": "roots/list" });
        world.sse(post.exchange, &format!("data: {question}\n\n"));
        let asked = world.delivered();
        world.host(json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "roots": [] } }));
        let answer = world.post();
        assert_eq!(answer.body["id"], id);
        // A second answer goes nowhere.
        world.host(json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "roots": [] } }));
        world.nothing_opened();
        world.accept(&answer);
    }
}

#[test]
fn a_notification_that_was_not_taken_is_told() {
    let mut world = World::opened(Kind::Plain);
    world.host(json!({ "jsonrpc": "2.0", "method": "notifications/roots/list_changed" }));
    let post = world.post();
    world.status(post.exchange, 400);
    let is_told =
        |notice: &Notice| matches!(notice, Notice::Dropped { what } if what.contains("400"));
    assert!(world.notices.iter().any(is_told), "{:?}", world.notices);
}

#[test]
fn an_answer_of_the_host_leaves_though_many_calls_run_and_a_notification_hangs() {
    let mut world = World::opened(Kind::Plain);
    let post = world.posted(0, "ask");
    world.stream(post.exchange);
    for id in 1..=limits().posts_open_max as u64 {
        world.call(id, "charge");
    }
    world.host(json!({ "jsonrpc": "2.0", "method": "notifications/roots/list_changed" }));
    let question = json!({ "jsonrpc": "2.0", "id": 7, "method": "roots/list" });
    world.sse(post.exchange, &format!("data: {question}\n\n"));
    let asked = world.delivered();
    world.opened.clear();
    world.host(json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "roots": [] } }));
    assert_eq!(world.post().body["id"], 7);
}

#[test]
fn a_busy_server_gets_what_may_arrive_twice_again() {
    let mut world = World::opened(Kind::Plain);
    world.host(json!({ "jsonrpc": "2.0", "method": "notifications/roots/list_changed" }));
    let post = world.post();
    world.status(post.exchange, 503);
    world.pass_until_opened(1_000);
    assert_eq!(world.post().body["method"], "notifications/roots/list_changed");
}

#[test]
fn progress_of_one_request_leaves_in_its_order_and_does_not_wait_for_anothers() {
    let mut world = World::opened(Kind::Plain);
    let report = |token: &str, number: u64| {
        json!({ "jsonrpc": "2.0", "method": "notifications/progress",
            "params": { "progressToken": token, "progress": number } })
    };
    world.host(report("a", 1));
    world.host(report("a", 2));
    world.host(report("a", 3));
    world.host(report("b", 1));
    let first = world.post();
    assert_eq!(world.post().body, report("b", 1));
    world.nothing_opened();
    // Not even where the first has to be sent once more.
    world.answer(first.exchange, Answer::Unsent("refused".to_owned()));
    for number in 1..=3 {
        if world.opened.is_empty() {
            world.pass_until_opened(1_000);
        }
        let post = world.post();
        assert_eq!(post.body, report("a", number));
        world.nothing_opened();
        world.accept(&post);
    }
}

#[test]
fn a_cancel_that_may_overtake_its_call_is_told_once_more() {
    for has_head in [true, false] {
        let mut world = World::opened(Kind::Plain);
        let post = world.posted(1, "charge");
        world.host(json!({ "jsonrpc": "2.0", "method": "notifications/cancelled",
            "params": { "requestId": 1 } }));
        let cancel = world.post();
        assert_eq!(cancel.body["params"]["requestId"], *post.id());
        world.accept(&cancel);
        world.nothing_opened();
        if has_head {
            world.stream(post.exchange);
        } else {
            world.pass(limits().cancelled_max_ms);
        }
        assert_eq!(world.post().body, cancel.body);
        world.pass(2 * limits().cancelled_max_ms);
        world.nothing_opened();
    }
    // What was answered, or begun before the cancel, is cancelled once.
    for is_begun in [true, false] {
        let mut world = World::opened(Kind::Plain);
        let post = world.posted(1, "charge");
        if is_begun {
            world.stream(post.exchange);
        }
        world.host(json!({ "jsonrpc": "2.0", "method": "notifications/cancelled",
            "params": { "requestId": 1 } }));
        let cancel = world.post();
        world.accept(&cancel);
        if !is_begun {
            world.json(post.exchange, 200, &post.result("done"));
        }
        world.pass(2 * limits().cancelled_max_ms);
        world.nothing_opened();
        world.nothing_delivered();
    }
}

#[test]
fn progress_of_a_task_comes_after_its_call_was_answered() {
    let (mut world, standalone) = {
        let (world, standalone) = World::listening();
        (world, standalone)
    };
    for (id, is_task) in [(1, true), (2, false)] {
        let mut params = json!({ "name": "charge", "_meta": { "progressToken": "mine" } });
        if is_task {
            params["task"] = json!({ "ttl": 60_000 });
        }
        world.host(json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": params }));
        let post = world.post();
        world.json(post.exchange, 200, &post.result("done"));
        world.delivered();
        world.sse(standalone, &format!("data: {}\n\n", post.progress(7)));
        if is_task {
            let told = world.delivered();
            assert_eq!(told["params"], json!({ "progressToken": "mine", "progress": 7 }));
        } else {
            world.nothing_delivered();
        }
    }
}

#[test]
fn a_subscription_keeps_the_hosts_id_and_is_asked_for_again_for_as_long_as_it_works() {
    let mut world = World::new();
    let listen = json!({ "jsonrpc": "2.0", "id": "sub-1", "method": "subscriptions/listen",
        "params": { "notifications": { "toolsListChanged": true },
            "_meta": { "io.modelcontextprotocol/protocolVersion": "2026-07-28" } } });
    world.host(listen.clone());
    let subscription = json!({ "io.modelcontextprotocol/subscriptionId": "sub-1" });
    let changed = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed",
        "params": { "_meta": subscription } });
    for _ in 0..3 * limits().resends_max {
        if world.opened.is_empty() {
            world.pass_until_opened(20_000);
        }
        let post = world.post();
        assert_eq!(post.body, listen);
        world.stream(post.exchange);
        // It may be quiet for long.
        world.pass(2 * limits().call_silence_max_ms);
        world.sse(post.exchange, &format!("data: {changed}\n\n"));
        assert_eq!(world.delivered(), changed);
        world.cut(post.exchange);
    }
    world.pass_until_opened(20_000);
    let post = world.post();
    world.stream(post.exchange);
    let end = json!({ "jsonrpc": "2.0", "id": "sub-1", "result": { "_meta": subscription } });
    world.sse(post.exchange, &format!("data: {end}\n\n"));
    assert_eq!(world.delivered(), end);
    assert_eq!(world.machine.pending_calls(), 0);
}

#[test]
fn a_request_of_the_server_with_an_id_that_is_too_long_is_refused() {
    let (mut world, standalone) = World::listening();
    for (length, is_taken) in [(limits().asked_id_bytes_max, false), (100, true)] {
        let id = "i".repeat(length);
        let asked = json!({ "jsonrpc": "2.0", "id": id, "method": "roots/list" });
        world.event(standalone, &format!("n{length}"), &asked);
        if is_taken {
            assert_eq!(world.delivered()["method"], "roots/list");
            continue;
        }
        world.nothing_delivered();
        let refused = world.post();
        assert_eq!((&refused.body["id"], refused.body["error"].is_object()), (&json!(id), true));
    }
}

#[test]
fn a_server_that_fails_on_a_notification_holds_calls_only_for_a_while() {
    let mut world = World::new();
    world.say_initialize("i");
    world.answer_initialize(Kind::Plain, "s1");
    world.delivered();
    world.say_initialized();
    world.call(1, "charge");
    let begin_ms = world.now_ms;
    loop {
        world.pass_until_opened(60_000);
        let post = world.post();
        if post.body["method"] == "tools/call" {
            break;
        }
        world.status(post.exchange, 500);
    }
    let waited_ms = world.now_ms - begin_ms;
    let max_ms = limits().note_failing_max_ms;
    assert!((max_ms..2 * max_ms).contains(&waited_ms), "{waited_ms} ms");
    assert!(world.told().contains("refused it with status 500"), "{}", world.told());
}

#[test]
fn a_call_whose_method_fits_no_header_ends_at_once() {
    let mut world = World::new();
    world.host(json!({ "jsonrpc": "2.0", "id": 1, "method": "m\nx",
        "params": { "_meta": { "io.modelcontextprotocol/protocolVersion": "2026-07-28" } } }));
    world.nothing_opened();
    let error = world.delivered();
    assert_eq!((&error["id"], &error["error"]["data"]["mayHaveRun"]), (&json!(1), &json!(false)));
    assert_eq!(world.machine.pending_calls(), 0);
}
