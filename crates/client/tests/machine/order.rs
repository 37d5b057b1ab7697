//! Nothing overtakes an older answer, and what was processed is confirmed.

use serde_json::json;

use crate::support::{Kind, World, limits};
use rejoin_client::machine::Notice;

#[test]
fn calls_wait_until_the_replay_has_reached_its_boundary_and_then_confirm_it() {
    let mut world = World::opened(Kind::Rejoin(1));
    let (post, get) = world.resuming(1, "charge", "1-1-4");
    world.call(2, "charge");
    world.nothing_opened();
    world.replay(get, "1-1-6");
    world.event(get, "1-1-5", &post.progress(2));
    world.nothing_opened();
    assert!(world.notices.contains(&Notice::Held { calls: 1 }), "{:?}", world.notices);
    world.event(get, "1-1-6", &post.progress(3));
    let second = world.post();
    assert_eq!(second.request.header("mcp-stream-ack"), Some("1-1-6"));
}

#[test]
fn the_comment_that_ends_a_replay_ends_the_wait() {
    let mut world = World::opened(Kind::Rejoin(1));
    let (_, get) = world.resuming(1, "charge", "1-1-4");
    world.replay(get, "1-1-6");
    world.call(2, "charge");
    world.nothing_opened();
    world.sse(get, ": replay-end 1-1-6\n\n");
    world.post();
}

#[test]
fn a_rejoin_that_replays_nothing_holds_nothing() {
    let mut world = World::opened(Kind::Rejoin(1));
    let (_, get) = world.resuming(1, "charge", "1-1-4");
    world.call(2, "charge");
    world.nothing_opened();
    world.stream(get);
    world.post();
}

#[test]
fn a_replay_without_boundary_holds_until_it_is_quiet_or_has_taken_long() {
    let mut world = World::opened(Kind::Plain);
    let post = world.posted(1, "charge");
    world.stream(post.exchange);
    world.event(post.exchange, "e0", &post.progress(0));
    world.cut(post.exchange);
    world.pass(1);
    let get = world.get_after("e0");
    world.stream(get);
    world.call(2, "charge");
    for number in 1..=3 {
        world.pass(limits().replay_quiet_ms - 1);
        world.event(get, &format!("e{number}"), &post.progress(number));
        world.nothing_opened();
    }
    assert!(world.pass_until_opened(1_000) <= limits().replay_quiet_ms);
    world.post();

    // The same, of a server that never is quiet.
    world.cut(get);
    world.pass(1);
    let get = world.get_after("e3");
    world.stream(get);
    world.call(3, "charge");
    let begin_ms = world.now_ms;
    for number in 4.. {
        if !world.opened.is_empty() {
            break;
        }
        world.event(get, &format!("e{number}"), &post.progress(number));
        world.pass(100);
    }
    assert!(world.now_ms - begin_ms <= limits().replay_max_ms + 200);
}

#[test]
fn the_answer_ends_the_wait() {
    let mut world = World::opened(Kind::Plain);
    let (post, get) = world.resuming(1, "charge", "e1");
    world.stream(get);
    world.call(2, "charge");
    world.nothing_opened();
    world.event(get, "e2", &post.result("done"));
    world.post();
}

#[test]
fn what_may_unblock_a_call_is_not_held() {
    let mut world = World::opened(Kind::Rejoin(1));
    let post = world.posted(1, "ask");
    world.stream(post.exchange);
    let question =
        json!({ "jsonrpc": "2.0", "id": 77, "method": "elicitation/create", "params": {} });
    world.event(post.exchange, "1-1-1", &question);
    let asked = world.delivered();
    world.cut(post.exchange);
    world.get_after("1-1-1");
    world.call(2, "charge");
    world.host(json!({ "jsonrpc": "2.0", "id": 3, "method": "ping" }));
    assert_eq!(world.post().body["method"], "ping");
    world.host(json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "action": "accept" } }));
    let answer = world.post();
    assert_eq!(
        answer.body,
        json!({ "jsonrpc": "2.0", "id": 77, "result": { "action": "accept" } })
    );
    world.nothing_opened();
}

#[test]
fn the_last_event_of_every_stream_is_confirmed_once_and_again_if_that_was_lost() {
    let mut world = World::opened(Kind::Rejoin(1));
    for (id, event) in [(1, "1-1-2"), (2, "1-2-4")] {
        let post = world.posted(id, "charge");
        world.stream(post.exchange);
        world.event(post.exchange, event, &post.result("done"));
    }
    let third = world.posted(3, "charge");
    // The second call had the first one's with it.
    assert_eq!(third.request.header("mcp-stream-ack"), Some("1-2-4"));
    world.cut(third.exchange);
    world.pass_until_opened(1_000);
    let again = world.post();
    assert_eq!(again.request.header("mcp-stream-ack"), Some("1-2-4"));
    world.stream(again.exchange);
    let fourth = world.posted(4, "charge");
    assert_eq!(fourth.request.header("mcp-stream-ack"), None);
}

#[test]
fn a_server_that_is_no_rejoin_gets_no_confirmations_and_no_tokens() {
    let mut world = World::opened(Kind::Plain);
    let post = world.posted(1, "charge");
    assert_eq!(post.body["params"]["_meta"].as_object().unwrap().len(), 1, "{}", post.body);
    world.stream(post.exchange);
    world.event(post.exchange, "e1", &post.result("done"));
    assert_eq!(world.posted(2, "charge").request.header("mcp-stream-ack"), None);
}

#[test]
fn a_stream_that_is_away_for_long_holds_no_others_for_that_long() {
    let mut world = World::opened(Kind::Plain);
    let post = world.posted(1, "charge");
    world.stream(post.exchange);
    world.sse(post.exchange, "id: e1\nretry: 600000\ndata:\n\n");
    world.cut(post.exchange);
    let begin_ms = world.now_ms;
    world.pass(1_000);
    world.call(2, "charge");
    world.nothing_opened();
    world.pass_until_opened(limits().retry_max_ms);
    assert_eq!(world.now_ms - begin_ms, limits().hold_max_ms);
    world.post();
}

#[test]
fn answers_of_the_host_take_few_connections_and_leave_one_for_a_cancel() {
    let (mut world, standalone) = World::listening();
    let call = world.posted(1, "charge");
    world.stream(call.exchange);
    let posts_max = limits().note_posts_open_max;
    for id in 0..posts_max {
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": "roots/list" });
        world.event(standalone, &format!("s{id}"), &request);
        let asked = world.delivered();
        world.host(json!({ "jsonrpc": "2.0", "id": asked["id"], "result": {} }));
    }
    let answers: Vec<_> = (1..posts_max).map(|_| world.post()).collect();
    world.nothing_opened();
    world.host(json!({ "jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": { "requestId": 1 } }));
    assert_eq!(world.post().body["method"], "notifications/cancelled");
    world.nothing_opened();
    // Two are answered whole, and so the last may leave.
    for answer in &answers[..2] {
        world.accept(answer);
    }
    assert_eq!(world.post().body["id"], posts_max - 1);
}
