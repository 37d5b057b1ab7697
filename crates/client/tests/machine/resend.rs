//! A call is sent again only if it provably did not leave, may run twice, or has a token.

use serde_json::json;

use crate::support::{ATTEMPT, EPOCH, Kind, Post, TOKEN, World, limits};
use rejoin_client::machine::{Answer, Because, CallName, Head, Media, Notice, Settings};

fn unsent(world: &mut World, post: &Post) {
    world.answer(post.exchange, Answer::Unsent("connection refused".to_owned()));
}

fn learn(world: &mut World) {
    world.host(json!({ "jsonrpc": "2.0", "id": "t", "method": "tools/list" }));
    let post = world.post();
    let result = json!({ "jsonrpc": "2.0", "id": post.id(), "result": { "tools": [
        { "name": "get", "annotations": { "readOnlyHint": true } },
        { "name": "set", "annotations": { "idempotentHint": true } },
        { "name": "charge", "annotations": { "idempotentHint": false } },
        { "name": "other" } ] } });
    world.json(post.exchange, 200, &result);
    world.delivered();
}

#[test]
fn a_call_that_was_not_written_is_sent_again_and_is_still_its_first_attempt() {
    let mut world = World::opened(Kind::Rejoin(9));
    let first = world.posted(1, "charge");
    unsent(&mut world, &first);
    world.pass_until_opened(1_000);
    let second = world.post();
    assert_eq!(second.meta(ATTEMPT), 1);
    assert_eq!(second.meta(TOKEN), first.meta(TOKEN));
    assert_ne!(second.id(), first.id());
}

#[test]
fn a_server_that_stays_unreachable_ends_the_call_which_did_not_run() {
    let mut world = World::opened(Kind::Plain);
    world.call(1, "charge");
    while world.machine.pending_calls() > 0 {
        world.pass_until_opened(30_000);
        let post = world.post();
        unsent(&mut world, &post);
    }
    assert!(!world.failed(1));
    assert!(world.now_ms >= limits().unreachable_max_ms);
}

#[test]
fn a_credential_that_cannot_be_had_twice_ends_the_call_in_seconds_and_nothing_else() {
    let no_credential = |world: &mut World, post: &Post| {
        let what = "the command for the credential ended with exit status: 1";
        world.answer(post.exchange, Answer::NoCredential(what.to_owned()));
    };
    let mut world = World::opened(Kind::Rejoin(9));
    let began_ms = world.now_ms;
    let call = world.posted(1, "charge");
    let progress = json!({ "jsonrpc": "2.0", "method": "notifications/progress",
        "params": { "progressToken": 1, "progress": 1 } });
    world.host(progress);
    let note = world.post();
    no_credential(&mut world, &call);
    no_credential(&mut world, &note);
    world.nothing_delivered();
    world.pass(1_000);
    for _ in 0..2 {
        let post = world.post();
        no_credential(&mut world, &post);
    }
    let error = world.delivered();
    assert_eq!(error["error"]["data"]["mayHaveRun"], false, "{error}");
    let text = error["error"]["message"].as_str().unwrap();
    assert!(text.contains("the command for the credential ended"), "{text}");
    assert!(world.now_ms < began_ms + 10_000);
    // The notification waits on.
    world.pass_until_opened(10_000);
    assert_eq!(world.post().body["method"], "notifications/progress");

    // In between there was one: it failed no second time in a row.
    let call = world.posted(2, "charge");
    no_credential(&mut world, &call);
    world.pass_until_opened(1_000);
    let call = world.post();
    let mut busy = crate::support::head(503, Media::Whole);
    busy.retry_after_ms = Some(10);
    world.answer(call.exchange, Answer::Head(busy));
    world.answer(call.exchange, Answer::Body(bytes::Bytes::new()));
    world.pass_until_opened(10_000);
    let call = world.post();
    no_credential(&mut world, &call);
    world.nothing_delivered();
}

#[test]
fn a_call_that_may_have_left_ends_if_nothing_says_that_it_may_run_twice() {
    for tool in ["charge", "other", "unlisted"] {
        let mut world = World::opened(Kind::Plain);
        learn(&mut world);
        let post = world.posted(1, tool);
        world.cut(post.exchange);
        assert!(world.failed(1), "{tool}");
        world.pass(60_000);
        world.nothing_opened();
    }
}

#[test]
fn a_call_that_may_run_twice_is_sent_again_and_the_first_ones_progress_is_not_its_own() {
    for tool in ["get", "set"] {
        let mut world = World::opened(Kind::Plain);
        learn(&mut world);
        let (first, second) = world.repeated(1, tool);
        world.stream(second.exchange);
        world.event(second.exchange, "a", &first.progress(1));
        world.nothing_delivered();
        world.event(second.exchange, "b", &second.progress(1));
        assert_eq!(world.delivered()["params"]["progressToken"], 1);
        world.event(second.exchange, "c", &second.result("done"));
        assert_eq!(world.delivered()["id"], 1);
    }
}

#[test]
fn annotations_count_only_if_they_are_trusted_and_until_they_change() {
    let mut world = World::with(Settings { trusts_annotations: false, ..Settings::default() });
    world.initialize(Kind::Plain);
    learn(&mut world);
    let post = world.posted(1, "get");
    world.cut(post.exchange);
    assert!(world.failed(1));

    let mut world = World::opened(Kind::Plain);
    learn(&mut world);
    let post = world.posted(1, "get");
    world.stream(post.exchange);
    let changed = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
    world.sse(post.exchange, &format!("data: {changed}\n\n"));
    world.delivered();
    world.cut(post.exchange);
    assert!(world.failed(1));
}

#[test]
fn a_token_is_the_same_in_every_attempt_of_a_call_and_another_for_every_call() {
    let mut world = World::opened(Kind::Rejoin(9));
    let first = world.posted(1, "charge");
    assert_eq!(first.meta(ATTEMPT), 1);
    assert_eq!(first.meta(EPOCH), 9);
    assert!(first.meta(TOKEN).as_str().unwrap().len() >= 32, "{}", first.body);
    world.cut(first.exchange);
    world.pass_until_opened(1_000);
    let second = world.post();
    assert_eq!((second.meta(TOKEN), second.meta(EPOCH)), (first.meta(TOKEN), first.meta(EPOCH)));
    assert_eq!(second.meta(ATTEMPT), 2);
    // The first one's stream has the answer: its progress and result are this call's.
    world.stream(second.exchange);
    world.event(second.exchange, "1-1-1", &first.progress(1));
    world.event(second.exchange, "1-1-2", &first.result("done"));
    assert_eq!(world.delivered()["params"]["progressToken"], 1);
    assert_eq!(world.delivered()["id"], 1);
    assert_ne!(world.posted(2, "charge").meta(TOKEN), first.meta(TOKEN));
}

#[test]
fn a_token_of_the_hosts_own_is_kept_and_its_attempts_counted_on() {
    let mut world = World::opened(Kind::Rejoin(9));
    world.host(json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "charge", "_meta": { TOKEN: "mine", ATTEMPT: 3, EPOCH: 8 } } }));
    let first = world.post();
    assert_eq!((first.meta(TOKEN), first.meta(ATTEMPT)), (&json!("mine"), &json!(3)));
    assert_eq!(first.meta(EPOCH), 8);
    world.cut(first.exchange);
    world.pass_until_opened(1_000);
    assert_eq!(world.post().meta(ATTEMPT), 4);
}

#[test]
fn a_call_is_not_sent_for_ever() {
    let mut world = World::opened(Kind::Rejoin(9));
    world.call(1, "charge");
    let mut sent = 0;
    while world.machine.pending_calls() > 0 {
        world.pass_until_opened(60_000);
        let post = world.post();
        world.cut(post.exchange);
        sent += 1;
    }
    assert_eq!(sent, limits().resends_max + 1);
    assert!(world.failed(1));
}

#[test]
fn an_answer_that_is_none_is_asked_for_again_with_a_token_and_else_told() {
    for (kind, is_told) in [(Kind::Plain, true), (Kind::Rejoin(1), false)] {
        let mut world = World::opened(kind);
        let post = world.posted(1, "charge");
        world.status(post.exchange, 200);
        world.pass(1_000);
        if is_told {
            assert!(world.failed(1));
            world.nothing_opened();
        } else {
            assert_eq!(world.post().meta(ATTEMPT), 2);
        }
    }
}

#[test]
fn events_without_ids_cannot_be_resumed() {
    let mut world = World::opened(Kind::Plain);
    let post = world.posted(1, "charge");
    world.stream(post.exchange);
    world.sse(post.exchange, &format!("data: {}\n\n", post.progress(1)));
    world.delivered();
    world.cut(post.exchange);
    assert!(world.failed(1));
}

#[test]
fn a_status_that_means_not_processed_says_so_and_one_of_a_gateway_does_not() {
    for (status, may_have_run) in [
        (301, true),
        (303, true),
        (304, false),
        (308, false),
        (400, false),
        (401, false),
        (403, false),
        (413, false),
        (429, false),
        (501, false),
        (502, true),
        (503, true),
        (504, true),
    ] {
        let mut world = World::opened(Kind::Plain);
        let post = world.posted(1, "charge");
        // Gateways name a time to come again too where the call ran and they did not wait for it.
        let retry_after_ms = (status == 503).then_some(1_000);
        let head = Head { retry_after_ms, ..crate::support::head(status, Media::Whole) };
        world.answer(post.exchange, Answer::Head(head));
        world.answer(post.exchange, Answer::Body(bytes::Bytes::new()));
        if status == 400 {
            world.pong();
        }
        assert_eq!(world.failed(1), may_have_run, "{status}");
        world.nothing_opened();
    }
}

#[test]
fn a_busy_server_is_asked_again_with_a_token_when_it_says() {
    let mut world = World::opened(Kind::Rejoin(1));
    let post = world.posted(1, "charge");
    let mut head = crate::support::head(503, Media::Whole);
    head.retry_after_ms = Some(4_000);
    world.answer(post.exchange, Answer::Head(head));
    world.answer(post.exchange, Answer::Body(bytes::Bytes::new()));
    assert!(world.pass_until_opened(10_000) >= 4_000);
    assert_eq!(world.post().meta(ATTEMPT), 2, "what answered may be a gateway before it");
    let call = CallName { id: "1".to_owned(), what: "charge".to_owned() };
    let because = Notice::SentAgain { call, because: Because::Token };
    assert!(world.notices.contains(&because), "{:?}", world.notices);
}

#[test]
fn progress_renews_what_may_be_sent_again_only_if_it_is_of_the_same_execution() {
    for (kind, tool, is_bounded) in [(Kind::Plain, "get", true), (Kind::Rejoin(1), "charge", false)]
    {
        let mut world = World::opened(kind);
        learn(&mut world);
        world.call(1, tool);
        let mut sent = 0;
        while world.machine.pending_calls() > 0 && sent < 3 * limits().resends_max {
            world.pass_until_opened(60_000);
            let post = world.post();
            world.stream(post.exchange);
            world.sse(post.exchange, &format!("data: {}\n\n", post.progress(1)));
            world.cut(post.exchange);
            sent += 1;
        }
        let expected = if is_bounded { limits().resends_max + 1 } else { 3 * limits().resends_max };
        assert_eq!(sent, expected, "{kind:?}");
    }
}
