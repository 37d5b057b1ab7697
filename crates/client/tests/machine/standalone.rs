//! The standalone stream where its cursor is of no use, or its session is in doubt.

use serde_json::{Value, json};

use crate::support::{World, limits};
use rejoin_client::machine::{Answer, ExchangeId, Notice};

fn note() -> Value {
    json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": {} })
}

/// The stream has brought an event and is lost; returns the GET for what follows.
fn resuming() -> (World, ExchangeId) {
    let (mut world, first) = World::listening();
    world.event(first, "n1", &note());
    world.delivered();
    world.cut(first);
    world.pass_until_opened(120_000);
    let get = world.get_after("n1");
    (world, get)
}

fn goes_on(world: &mut World, status: u16) {
    assert!(world.notices.contains(&Notice::StandaloneStreamCut { status }), "{status}");
    let (fresh, request) = world.get();
    assert_eq!(request.header("last-event-id"), None, "{status}");
    world.stream(fresh);
    world.event(fresh, "m1", &note());
    assert_eq!(world.delivered()["method"], "notifications/message");
}

#[test]
fn a_cursor_that_the_server_refuses_is_left_out_once() {
    for status in [400, 405, 410] {
        let (mut world, get) = resuming();
        world.status(get, status);
        goes_on(&mut world, status);

        let (mut world, get) = resuming();
        world.status(get, status);
        let (fresh, _) = world.get();
        world.status(fresh, status);
        if status == 400 {
            world.pong();
        }
        assert!(world.notices.contains(&Notice::NoStandaloneStream { status }));
        world.pass(600_000);
        world.nothing_opened();
    }
}

#[test]
fn a_cursor_that_is_answered_404_in_a_session_that_lives_is_left_out() {
    let (mut world, get) = resuming();
    world.status(get, 404);
    world.pong();
    goes_on(&mut world, 404);
}

#[test]
fn a_cursor_that_brings_only_empty_streams_is_left_out() {
    let (mut world, mut get) = resuming();
    for _ in 1..limits().resume_attempts_max {
        world.stream(get);
        world.answer(get, Answer::Ended);
        world.pass_until_opened(120_000);
        get = world.get_after("n1");
    }
    world.stream(get);
    world.answer(get, Answer::Ended);
    goes_on(&mut world, 200);
}

#[test]
fn a_doubt_about_the_session_that_is_not_settled_leaves_the_stream_wanted() {
    for how in 0..4 {
        let (mut world, get) = resuming();
        world.status(get, 404);
        let ping = world.post();
        match how {
            0 => world.answer(ping.exchange, Answer::Unsent("refused".to_owned())),
            1 => world.cut(ping.exchange),
            2 => world.status(ping.exchange, 503),
            _ => world.pass(limits().head_max_ms),
        }
        if world.opened.is_empty() {
            world.pass_until_opened(120_000);
        }
        world.get_after("n1");
    }
}

#[test]
fn an_answer_that_was_to_come_on_a_stream_that_there_is_not_is_not_waited_for() {
    let (mut world, standalone) = World::listening();
    world.cut(standalone);
    let post = world.posted(1, "charge");
    world.accept(&post);
    world.nothing_delivered();
    world.pass_until_opened(120_000);
    let (get, _) = world.get();
    world.status(get, 405);
    world.pass(limits().elsewhere_ms);
    assert!(world.failed(1));
}
