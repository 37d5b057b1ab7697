//! A stream that was lost is resumed.

use crate::support::{Kind, World, head, limits};
use rejoin_client::machine::{Answer, Head, Media, Settings};

#[test]
fn a_stream_that_breaks_off_is_asked_for_what_follows_its_last_event() {
    let mut world = World::opened(Kind::Plain);
    let (post, get) = world.resuming(1, "charge", "e1");
    world.stream(get);
    world.event(get, "e2", &post.progress(2));
    world.event(get, "e3", &post.result("done"));
    let progress = world.delivered();
    assert_eq!(progress["params"]["progress"], 2);
    assert_eq!(progress["params"]["progressToken"], 1, "the host's own token");
    let answer = world.delivered();
    assert_eq!((&answer["id"], &answer["result"]["text"]), (&1.into(), &"done".into()));
    assert_eq!(world.machine.pending_calls(), 0);
}

#[test]
fn a_proper_end_without_the_answer_is_resumed_too_and_waits_as_long_as_the_server_asks() {
    let mut world = World::opened(Kind::Plain);
    let post = world.posted(1, "charge");
    world.stream(post.exchange);
    world.sse(post.exchange, "id: e1\nretry: 3000\ndata:\n\n");
    world.answer(post.exchange, Answer::Ended);
    let waited_ms = world.pass_until_opened(10_000);
    assert!((3_000..=3_375).contains(&waited_ms), "{waited_ms} ms");
    world.get_after("e1");
}

#[test]
fn waits_grow_while_the_server_cannot_be_reached() {
    let mut world = World::opened(Kind::Plain);
    let post = world.posted(1, "charge");
    world.stream(post.exchange);
    world.event(post.exchange, "e1", &post.progress(1));
    world.cut(post.exchange);
    let mut waits_ms = Vec::new();
    for _ in 0..8 {
        waits_ms.push(world.pass_until_opened(20_000));
        let get = world.get_after("e1");
        world.answer(get, Answer::Unsent("refused".to_owned()));
    }
    assert!(waits_ms[0] <= 1, "the first attempt is at once: {waits_ms:?}");
    assert!(waits_ms[7] >= 5_000 && waits_ms[7] <= 10_000, "{waits_ms:?}");
}

#[test]
fn a_server_that_stays_away_ends_the_call_which_may_have_run() {
    let mut world = World::opened(Kind::Plain);
    let post = world.reading(1, "charge", "e1");
    world.cut(post.exchange);
    let begin_ms = world.now_ms;
    while world.machine.pending_calls() > 0 {
        world.pass_until_opened(30_000);
        let get = world.get_after("e1");
        world.answer(get, Answer::Unsent("refused".to_owned()));
    }
    assert!(world.failed(1));
    let lasted_ms = world.now_ms - begin_ms;
    let max_ms = limits().resume_max_ms;
    assert!((max_ms..max_ms + 30_000).contains(&lasted_ms), "{lasted_ms} ms");
}

#[test]
fn connections_that_bring_nothing_spend_the_attempts_and_progress_renews_them() {
    let mut world = World::opened(Kind::Plain);
    let post = world.posted(1, "charge");
    world.stream(post.exchange);
    world.event(post.exchange, "e0", &post.progress(0));
    world.cut(post.exchange);
    for number in 1..=3 * u64::from(limits().resume_attempts_max) {
        world.pass_until_opened(30_000);
        let get = world.get_after(&format!("e{}", number - 1));
        world.stream(get);
        world.event(get, &format!("e{number}"), &post.progress(number));
        world.cut(get);
    }
    world.delivered.clear();
    let mut empty = 0;
    while world.machine.pending_calls() > 0 {
        world.pass_until_opened(30_000);
        let (get, _) = world.get();
        world.stream(get);
        world.answer(get, Answer::Ended);
        empty += 1;
    }
    assert_eq!(empty, limits().resume_attempts_max);
    assert!(world.failed(1));
}

#[test]
fn a_connection_that_lasted_spends_nothing() {
    let mut settings = Settings::default();
    // This client does not ask again meanwhile.
    settings.limits.resumed_silence_ms = 120_000;
    settings.limits.resumed_silence_max_ms = 120_000;
    let mut world = World::with(settings);
    world.initialize(Kind::Plain);
    let post = world.posted(1, "charge");
    world.stream(post.exchange);
    world.event(post.exchange, "e1", &post.progress(1));
    world.cut(post.exchange);
    for _ in 0..3 * limits().resume_attempts_max {
        world.pass_until_opened(30_000);
        let get = world.get_after("e1");
        world.stream(get);
        // A proxy cuts what is open for a minute, and the tool is slow.
        world.pass(60_000);
        world.cut(get);
    }
    assert_eq!(world.machine.pending_calls(), 1);
}

#[test]
fn what_a_resumed_stream_brings_twice_is_delivered_once() {
    let mut world = World::opened(Kind::Plain);
    let post = world.posted(1, "charge");
    world.stream(post.exchange);
    world.event(post.exchange, "e1", &post.progress(1));
    world.event(post.exchange, "e2", &post.progress(2));
    world.cut(post.exchange);
    world.pass(1);
    let get = world.get_after("e2");
    world.stream(get);
    // From the beginning, and twice: some servers do so.
    for number in [1, 2, 2, 3, 3] {
        world.event(get, &format!("e{number}"), &post.progress(number));
    }
    world.event(get, "e4", &post.result("done"));
    let progress: Vec<_> = std::iter::from_fn(|| world.delivered.pop_front())
        .filter_map(|message| message["params"]["progress"].as_u64())
        .collect();
    assert_eq!(progress, [1, 2, 3]);
}

#[test]
fn a_server_that_says_not_now_is_asked_again_when_it_says() {
    let mut world = World::opened(Kind::Plain);
    let post = world.posted(1, "charge");
    world.stream(post.exchange);
    world.event(post.exchange, "e1", &post.progress(1));
    world.cut(post.exchange);
    for status in [409, 429, 500, 503, 401] {
        world.pass_until_opened(60_000);
        let get = world.get_after("e1");
        let mut head = head(status, Media::Whole);
        head.retry_after_ms = (status == 503).then_some(20_000);
        world.answer(get, Answer::Head(head));
        assert!(world.closed.contains(&get), "its body is nothing to wait for");
    }
    assert!(world.pass_until_opened(60_000) >= 20_000);
    assert_eq!(world.machine.pending_calls(), 1);
}

#[test]
fn a_silent_stream_of_a_rejoin_has_lost_its_connection() {
    let mut world = World::opened(Kind::Rejoin(1));
    let post = world.posted(1, "charge");
    world.stream(post.exchange);
    world.sse(post.exchange, "id: 1-1-0\ndata:\n\n");
    for _ in 0..10 {
        world.pass(15_000);
        world.sse(post.exchange, ": keep-alive\n\n");
    }
    world.nothing_opened();
    let waited_ms = world.pass_until_opened(60_000);
    assert!(waited_ms >= limits().stream_idle_max_ms, "{waited_ms} ms");
    world.get_after("1-1-0");
    assert!(world.closed.contains(&post.exchange));
}

#[test]
fn events_of_different_streams_are_different_whatever_their_ids() {
    let mut world = World::opened(Kind::Plain);
    let note = serde_json::json!({ "jsonrpc": "2.0", "method": "notifications/message" });
    for id in 1..=2 {
        let (post, get) = world.resuming(id, "charge", "1");
        world.stream(get);
        // This server counts the events of each stream from 1.
        world.event(get, "2", &note);
        assert_eq!(world.delivered()["method"], "notifications/message");
        world.event(get, "3", &post.result("done"));
        world.delivered();
    }
}

#[test]
fn a_get_that_is_not_answered_is_asked_again() {
    let mut world = World::opened(Kind::Plain);
    let (_, silent) = world.resuming(1, "charge", "e1");
    assert!(world.pass_until_opened(60_000) >= limits().head_max_ms);
    assert!(world.closed.contains(&silent));
    world.get_after("e1");
}

#[test]
fn waits_that_the_server_asks_for_prolong_nothing_where_it_gives_no_stream() {
    for is_busy in [false, true] {
        let mut world = World::opened(Kind::Plain);
        let post = world.posted(1, "charge");
        world.stream(post.exchange);
        world.sse(post.exchange, "id: e1\nretry: 12000\ndata:\n\n");
        world.cut(post.exchange);
        let begin_ms = world.now_ms;
        let max_ms = limits().resume_max_ms + 30_000;
        while world.machine.pending_calls() > 0 && world.now_ms < begin_ms + 2 * max_ms {
            world.pass_until_opened(30_000);
            let get = world.get_after("e1");
            if is_busy {
                let mut head = head(503, Media::Whole);
                head.retry_after_ms = Some(10_000);
                world.answer(get, Answer::Head(head));
            } else {
                world.answer(get, Answer::Unsent("refused".to_owned()));
            }
        }
        let lasted_ms = world.now_ms - begin_ms;
        assert!((limits().resume_max_ms..max_ms).contains(&lasted_ms), "{lasted_ms} ms");
        assert!(world.failed(1));
    }
}

#[test]
fn no_server_makes_a_client_wait_longer_than_is_honoured() {
    for retry_after_ms in [86_400_000, u64::MAX] {
        for status in [200, 202, 503] {
            let mut world = World::opened(Kind::Plain);
            let (_, get) = world.resuming(1, "charge", "e1");
            let head = Head { retry_after_ms: Some(retry_after_ms), ..head(status, Media::Whole) };
            world.answer(get, Answer::Head(head));
            if status != 503 {
                world.answer(get, Answer::Body(bytes::Bytes::from_static(b"{}")));
            }
            let max_ms = limits().retry_max_ms / 8 * 9;
            let waited_ms = world.pass_until_opened(2 * max_ms);
            assert!(waited_ms <= max_ms, "{status}: {waited_ms} ms");
            world.get_after("e1");
        }
    }
}

#[test]
fn streams_that_bring_one_event_and_end_are_not_asked_for_in_a_storm() {
    for is_cut in [false, true] {
        let mut world = World::opened(Kind::Plain);
        let post = world.reading(1, "charge", "e0");
        let mut exchange = post.exchange;
        let begin_ms = world.now_ms;
        for number in 1..=100 {
            if is_cut {
                world.cut(exchange);
            } else {
                world.answer(exchange, Answer::Ended);
            }
            let waited_ms = world.pass_until_opened(20_000);
            assert!(number > 1 || waited_ms <= 1, "the first is asked for at once");
            exchange = world.get().0;
            world.stream(exchange);
            world.event(exchange, &format!("e{number}"), &post.progress(number));
        }
        let lasted_ms = world.now_ms - begin_ms;
        assert!(lasted_ms >= 8_000, "100 in {lasted_ms} ms");
        world.event(exchange, "e", &post.result("done"));
    }
}
