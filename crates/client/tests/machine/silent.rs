//! A resumed stream that is open and silent: some servers keep in their store what they do not send
//! to it.

use crate::support::{Kind, World, limits};
use rejoin_client::machine::{Answer, ExchangeId};

/// A call whose stream was resumed from `e1`, and the GET on which nothing comes.
fn silent(kind: Kind) -> (World, crate::support::Post, ExchangeId) {
    let mut world = World::opened(kind);
    let (post, get) = world.resuming(1, "charge", "e1");
    world.stream(get);
    (world, post, get)
}

#[test]
fn it_is_asked_for_again_from_the_newest_event_and_what_is_kept_comes() {
    let (mut world, post, get) = silent(Kind::Plain);
    world.event(get, "e2", &post.progress(2));
    world.delivered();
    let waited_ms = world.pass_until_opened(10_000);
    assert_eq!(waited_ms, limits().resumed_silence_ms);
    assert!(world.closed.contains(&get));
    let again = world.get_after("e2");
    world.stream(again);
    world.event(again, "e3", &post.result("done"));
    assert_eq!(world.delivered()["result"]["text"], "done");
    assert_eq!(world.told().matches("broke off").count(), 1, "{}", world.told());
}

#[test]
fn the_silence_grows_until_something_new_comes() {
    let (mut world, post, _) = silent(Kind::Plain);
    let mut waits_ms = Vec::new();
    let mut get = ExchangeId(0);
    for _ in 0..8 {
        waits_ms.push(world.pass_until_opened(60_000));
        get = world.get_after("e1");
        world.stream(get);
        // What has come before, a mark of where the stream stands and a comment are nothing new.
        world.event(get, "e1", &post.progress(1));
        world.sse(get, ": here\n\n");
    }
    let (first_ms, max_ms) = (limits().resumed_silence_ms, limits().resumed_silence_max_ms);
    assert!((first_ms / 2..=first_ms).contains(&waits_ms[0]), "{waits_ms:?}");
    assert!((max_ms / 2..=max_ms).contains(&waits_ms[7]), "{waits_ms:?}");
    world.nothing_delivered();
    world.event(get, "e2", &post.progress(2));
    assert_eq!(world.pass_until_opened(60_000), first_ms);
    let get = world.get_after("e2");
    world.stream(get);
    assert!(world.pass_until_opened(60_000) <= first_ms);
}

#[test]
fn a_slow_call_ends_no_earlier_for_it_and_one_that_never_ends_no_later() {
    let (mut world, _, _) = silent(Kind::Plain);
    let begin_ms = world.now_ms;
    let (max_ms, mut gets) = (limits().call_silence_max_ms, 0);
    while world.machine.pending_calls() > 0 && world.now_ms < begin_ms + 2 * max_ms {
        world.pass(1_000);
        if !world.opened.is_empty() {
            let get = world.get_after("e1");
            world.stream(get);
            gets += 1;
        }
    }
    let lasted_ms = world.now_ms - begin_ms;
    assert!((max_ms..max_ms + 5_000).contains(&lasted_ms), "{lasted_ms} ms");
    assert!((100..300).contains(&gets), "{gets}");
    assert!(world.failed(1));
}

#[test]
fn streams_that_end_empty_end_the_call_as_soon_as_without_it() {
    let (mut world, _, _) = silent(Kind::Plain);
    let mut empty = 0;
    while world.machine.pending_calls() > 0 && empty < 100 {
        world.pass_until_opened(30_000);
        let get = world.get_after("e1");
        world.stream(get);
        world.answer(get, Answer::Ended);
        empty += 1;
    }
    assert_eq!(empty, limits().resume_attempts_max);
    assert!(world.failed(1));
}

#[test]
fn new_calls_do_not_wait_while_the_server_wants_the_client_to() {
    let (mut world, _, get) = silent(Kind::Plain);
    world.sse(get, "retry: 8000\n\n");
    while !world.closed.contains(&get) {
        world.pass(100);
    }
    world.nothing_opened();
    let other = world.posted(2, "charge");
    world.json(other.exchange, 200, &other.result("done"));
    assert_eq!(world.delivered()["result"]["text"], "done");
    assert!(world.pass_until_opened(20_000) >= 7_900);
    let again = world.get_after("e1");
    // What was missed may come now.
    world.call(3, "charge");
    world.nothing_opened();
    world.stream(again);
    world.pass(limits().replay_quiet_ms);
    assert_eq!(world.post().body["params"]["arguments"]["n"], 3);
}

#[test]
fn a_rejoin_and_a_stream_that_never_broke_are_not_asked_again() {
    let (mut world, _, _) = silent(Kind::Rejoin(1));
    world.pass(limits().stream_idle_max_ms - 1);
    world.nothing_opened();
    let mut world = World::opened(Kind::Plain);
    world.reading(1, "charge", "e1");
    world.pass(limits().call_silence_max_ms - 1);
    world.nothing_opened();
}

#[test]
fn a_part_that_is_too_large_is_not_asked_for_again() {
    let (mut world, post, get) = silent(Kind::Plain);
    world.answer(get, Answer::Oversized);
    world.pass(10 * limits().resumed_silence_max_ms);
    world.nothing_opened();
    world.event(get, "e3", &post.result("done"));
    assert_eq!(world.delivered()["result"]["text"], "done");
}

#[test]
fn a_rejoin_that_does_not_answer_a_get_at_once_is_asked_again_soon() {
    let mut world = World::opened(Kind::Rejoin(1));
    let (_, mut get) = world.resuming(1, "charge", "1-1-0");
    let mut waits_ms = Vec::new();
    for _ in 0..5 {
        let asked_ms = world.now_ms;
        while !world.closed.contains(&get) {
            world.pass(100);
        }
        waits_ms.push(world.now_ms - asked_ms);
        world.pass_until_opened(20_000);
        get = world.get_after("1-1-0");
    }
    // It grows, since a path may need longer.
    let (first_ms, max_ms) = (limits().resume_head_ms, limits().head_max_ms);
    assert!((first_ms..first_ms + 100).contains(&waits_ms[0]), "{waits_ms:?}");
    assert!((max_ms..max_ms + 100).contains(&waits_ms[4]), "{waits_ms:?}");
}
