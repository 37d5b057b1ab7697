//! Refusals: as 409, as 200, and on a stream.

use rejoin_core::rejection::{LostAnswer, Reason, Rejection};
use serde_json::{Value, json};

use crate::support::{ATTEMPT, Kind, Post, World, limits};
use rejoin_client::machine::Answer;

fn refusal(post: &Post, code: u64, reason: &str, more: Value) -> Value {
    let mut data = json!({ "by": "rejoin", "reason": reason, "sendAgain": false,
        "retryAfterMs": 2_000, "doc": "docs/reasons" });
    for (key, value) in more.as_object().into_iter().flatten() {
        data[key] = value.clone();
    }
    json!({ "jsonrpc": "2.0", "id": post.id(),
        "error": { "code": code, "message": "Not run. ...", "data": data } })
}

/// Gives a refusal in one of the three forms.
fn give(world: &mut World, post: &Post, form: u16, body: &Value) {
    match form {
        0 => {
            world.stream(post.exchange);
            world.sse(post.exchange, "id: 1-9-0\ndata:\n\n: held\n\n");
            world.event(post.exchange, "1-9-1", body);
        }
        status => world.json(post.exchange, status, body),
    }
}

#[test]
fn a_call_that_runs_already_is_resumed_from_the_hint_in_whatever_form_it_came() {
    for form in [409, 200, 0] {
        let mut world = World::opened(Kind::Rejoin(1));
        let (first, second) = world.repeated(1, "charge");
        let hint = json!({ "lastEventId": "1-3-0", "originalRequestId": first.id() });
        let body = refusal(&second, 40902, "request_in_flight", hint);
        give(&mut world, &second, form, &body);
        world.nothing_delivered();
        world.pass(1);
        let get = world.get_after("1-3-0");
        world.replay(get, "1-3-2");
        world.event(get, "1-3-1", &first.progress(1));
        world.event(get, "1-3-2", &first.result("done"));
        assert_eq!(world.delivered()["params"]["progress"], 1, "{form}");
        assert_eq!(world.delivered()["result"]["text"], "done", "{form}");
    }
}

#[test]
fn a_refusal_that_says_send_again_is_obeyed_when_it_says_and_counts_as_no_attempt() {
    for form in [409, 200, 0] {
        let mut world = World::opened(Kind::Rejoin(1));
        let post = world.posted(1, "charge");
        let body = refusal(&post, 40905, "replay_in_progress", json!({ "sendAgain": true }));
        give(&mut world, &post, form, &body);
        let waited_ms = world.pass_until_opened(10_000);
        assert!((2_000..=2_500).contains(&waited_ms), "{waited_ms} ms");
        let again = world.post();
        assert_eq!(again.meta(ATTEMPT), 1);
        world.json(again.exchange, 200, &again.result("done"));
        assert_eq!(world.delivered()["result"]["text"], "done");
    }
}

#[test]
fn a_refusal_that_nothing_can_be_done_about_is_told_and_says_whether_the_call_may_have_run() {
    for (code, reason, may_have_run) in [
        (40906, "outcome_unknown", true),
        (40903, "not_idempotent", true),
        (40904, "dedup_token_reused", false),
        (40907, "state_lost", false),
    ] {
        for form in [409, 200, 0] {
            let mut world = World::opened(Kind::Rejoin(1));
            let post = world.posted(1, "charge");
            let send_again = json!({ "sendAgain": reason == "state_lost" });
            give(&mut world, &post, form, &refusal(&post, code, reason, send_again));
            let error = world.delivered();
            assert_eq!((&error["id"], &error["error"]["code"]), (&json!(1), &json!(code)));
            assert_eq!(error["error"]["data"]["mayHaveRun"], may_have_run, "{reason}");
            world.pass(60_000);
            world.nothing_opened();
        }
    }
}

/// Refusals as a Rejoin writes them: whatever the reason, whichever attempt was refused.
#[test]
fn no_refusal_says_that_a_call_did_not_run_which_may_have_run() {
    let cases = Reason::ALL.into_iter().flat_map(|reason| [(reason, false), (reason, true)]);
    for (reason, send_again) in cases {
        for attempts in [1, 2] {
            let mut world = World::opened(Kind::Rejoin(1));
            let mut post = world.posted(1, "charge");
            if attempts == 2 {
                world.cut(post.exchange);
                world.pass_until_opened(1_000);
                post = world.post();
            }
            let refused = |post: &Post| {
                let rejection = Rejection {
                    reason,
                    request_id: bytes::Bytes::from(post.id().to_string()),
                    hint: None,
                    send_again,
                    retry_after_ms: 10,
                    original_ended_ms: None,
                };
                serde_json::from_slice::<Value>(&rejection.body()).unwrap()
            };
            world.json(post.exchange, 409, &refused(&post));
            while world.machine.pending_calls() > 0 {
                world.pass_until_opened(60_000);
                let again = world.post();
                world.json(again.exchange, 409, &refused(&again));
            }
            let error = world.delivered();
            agrees(&error, &format!("{reason:?} {send_again} {attempts}"));
        }
    }
}

/// The ends of calls that did run, as a Rejoin writes them.
#[test]
fn no_lost_answer_is_told_as_a_call_that_did_not_run() {
    for lost in [
        LostAnswer::OutcomeUnknown,
        LostAnswer::LogFull,
        LostAnswer::Superseded,
        LostAnswer::Expired,
        LostAnswer::HistoryLost,
    ] {
        let mut world = World::opened(Kind::Rejoin(1));
        let post = world.posted(1, "charge");
        let body = lost.body(post.id().to_string().as_bytes());
        give(&mut world, &post, 0, &serde_json::from_slice(&body).unwrap());
        let error = world.delivered();
        assert_eq!(error["error"]["data"]["mayHaveRun"], true, "{error}");
        agrees(&error, "lost");
    }
}

/// What is read first, what is said of it in `data`, and what may be done, say the same.
fn agrees(error: &Value, what: &str) {
    let text = error["error"]["message"].as_str().expect("a text");
    let data = &error["error"]["data"];
    let may_have_run = data["mayHaveRun"].as_bool().expect("it is said");
    assert_eq!(text.starts_with("Not run."), !may_have_run, "{what}: {error}");
    if may_have_run {
        assert_eq!(data["sendAgain"], false, "{what}: {error}");
        assert!(!text.contains("safe to send"), "{what}: {error}");
    }
}

#[test]
fn a_hint_that_leads_nowhere_is_followed_by_the_call_itself() {
    let mut world = World::opened(Kind::Rejoin(1));
    let (first, second) = world.repeated(1, "charge");
    let hint = json!({ "lastEventId": "1-3-0", "originalRequestId": first.id() });
    let body = refusal(&second, 40902, "request_in_flight", hint);
    world.json(second.exchange, 409, &body);
    world.pass(1);
    let get = world.get_after("1-3-0");
    world.status(get, 405);
    world.pass_until_opened(10_000);
    let third = world.post();
    // By now the record is there.
    world.json(third.exchange, 200, &third.result("recorded"));
    assert_eq!(world.delivered()["result"]["text"], "recorded");
}

#[test]
fn a_server_that_refuses_for_ever_is_not_asked_for_ever() {
    for form in [409, 200, 0] {
        let mut world = World::opened(Kind::Rejoin(1));
        world.call(1, "charge");
        let mut sent = 0;
        while world.machine.pending_calls() > 0 {
            world.pass_until_opened(60_000);
            let post = world.post();
            let body = refusal(&post, 40905, "replay_in_progress", json!({ "sendAgain": true }));
            give(&mut world, &post, form, &body);
            sent += 1;
        }
        assert_eq!(sent, limits().resends_max + 1);
        assert!(!world.failed(1), "it never ran");
    }
}

#[test]
fn a_refusal_of_a_second_attempt_says_nothing_of_the_first() {
    let mut world = World::opened(Kind::Rejoin(1));
    let (_, second) = world.repeated(1, "charge");
    world.json(second.exchange, 409, &refusal(&second, 40907, "state_lost", json!({})));
    assert!(world.failed(1));
}

#[test]
fn the_same_hint_again_and_again_ends() {
    let mut world = World::opened(Kind::Rejoin(1));
    world.call(1, "charge");
    let mut requests = 0;
    while world.machine.pending_calls() > 0 {
        world.pass_until_opened(60_000);
        requests += 1;
        let (id, request) = world.opened.pop_front().unwrap();
        if request.body.is_empty() {
            world.status(id, 405);
            continue;
        }
        let body = serde_json::from_slice(&request.body).unwrap();
        let post = Post { exchange: id, request, body };
        let hint = json!({ "lastEventId": "1-3-0", "originalRequestId": post.id() });
        world.json(id, 409, &refusal(&post, 40901, "stream_not_drained", hint));
    }
    assert!(requests < 40, "{requests} requests");
    assert!(world.failed(1));
}

#[test]
fn an_error_of_the_server_itself_is_its_answer() {
    for form in [200, 400, 500, 0] {
        let mut world = World::opened(Kind::Rejoin(1));
        let post = world.posted(1, "charge");
        let error = json!({ "jsonrpc": "2.0", "id": post.id(),
            "error": { "code": -32602, "message": "no such tool", "data": { "by": "me" } } });
        give(&mut world, &post, form, &error);
        let told = world.delivered();
        assert_eq!(told["error"], error["error"], "{form}");
        assert_eq!(told["id"], 1);
    }
}

#[test]
fn a_rejoin_without_room_is_asked_again_for_whatever_it_was_asked() {
    for opens in [false, true] {
        let mut world = if opens { World::new() } else { World::opened(Kind::Rejoin(1)) };
        if opens {
            world.say_initialize("i");
        } else {
            world.call(1, "charge");
        }
        let post = world.post();
        world.json(post.exchange, 503, &no_room(&post));
        assert!(world.pass_until_opened(10_000) >= 1_000);
        let again = world.post();
        assert_eq!(again.body["method"], post.body["method"]);
        world.json(again.exchange, 200, &again.result("done"));
        assert_eq!(world.delivered()["result"]["text"], "done");
    }
}

#[test]
fn a_rejoin_without_room_that_names_no_call_says_that_it_did_not_run() {
    for kind in [Kind::Rejoin(1), Kind::Plain] {
        let mut world = World::opened(kind);
        let post = world.posted(1, "charge");
        let mut body = no_room(&post);
        body["id"] = Value::Null;
        world.json(post.exchange, 503, &body);
        if kind == Kind::Plain {
            assert!(world.failed(1));
            continue;
        }
        world.pass_until_opened(10_000);
        assert_eq!(world.post().meta(ATTEMPT), 1);
    }
}

fn no_room(post: &Post) -> Value {
    json!({ "jsonrpc": "2.0", "id": post.id(), "error": { "code": -32000, "message": "no room",
        "data": { "by": "rejoin", "sendAgain": true, "retryAfterMs": 1_000 } } })
}

/// It may have run the call, and relay what a Rejoin behind it said of something else.
#[test]
fn what_reads_as_a_refusal_and_comes_from_no_rejoin_is_the_servers_own_error() {
    for form in [503, 409, 200, 0] {
        for hinted in [false, true] {
            let mut world = World::opened(Kind::Plain);
            let post = world.posted(1, "charge");
            let mut more = json!({ "sendAgain": true });
            if hinted {
                more["lastEventId"] = json!("1-3-0");
                more["originalRequestId"] = post.id().clone();
            }
            let body = refusal(&post, 40905, "replay_in_progress", more);
            give(&mut world, &post, form, &body);
            let told = world.delivered();
            assert_eq!((&told["id"], &told["error"]), (&json!(1), &body["error"]), "{form}");
            world.pass(60_000);
            world.nothing_opened();
        }
    }
}

#[test]
fn an_old_refusal_says_nothing_of_a_later_attempt() {
    // The answer is lost for good, or the hint that came next leads nowhere.
    for is_hinted in [false, true] {
        let mut world = World::opened(Kind::Rejoin(1));
        let first = world.posted(1, "charge");
        let body = refusal(&first, 40905, "replay_in_progress", json!({ "sendAgain": true }));
        world.json(first.exchange, 409, &body);
        world.pass_until_opened(10_000);
        for _ in 0..=limits().resends_max {
            let post = world.post();
            world.stream(post.exchange);
            world.event(post.exchange, "1-1-1", &json!({ "jsonrpc": "2.0", "method": "x" }));
            world.delivered();
            if is_hinted {
                world.cut(post.exchange);
                world.pass_until_opened(1_000);
                let get = world.get_after("1-1-1");
                world.status(get, 405);
            } else {
                world.answer(post.exchange, Answer::Oversized);
                world.answer(post.exchange, Answer::Ended);
            }
            if world.machine.pending_calls() == 0 {
                break;
            }
            world.pass_until_opened(20_000);
        }
        let error = world.delivered();
        assert_eq!(error["error"]["data"]["mayHaveRun"], true, "{error}");
        assert_eq!(error["error"]["data"]["sendAgain"], false, "{error}");
    }
}

#[test]
fn a_hint_that_names_no_call_or_anothers_is_not_followed() {
    let mut world = World::opened(Kind::Rejoin(1));
    let other = world.posted(1, "charge");
    for original in [Value::Null, other.id().clone()] {
        let post = world.posted(2, "charge");
        let mut more = json!({ "sendAgain": true, "lastEventId": "1-1-0" });
        if !original.is_null() {
            more["originalRequestId"] = original;
        }
        world.json(post.exchange, 409, &refusal(&post, 40905, "replay_in_progress", more));
        world.pass_until_opened(10_000);
        let again = world.post();
        world.json(again.exchange, 200, &again.result("done"));
        assert_eq!(world.delivered()["result"]["text"], "done");
    }
}

#[test]
fn a_cursor_that_fits_no_header_is_no_hint() {
    let mut world = World::opened(Kind::Rejoin(1));
    let (first, second) = world.repeated(1, "charge");
    let hint = json!({ "lastEventId": "1-\u{e4}-0", "originalRequestId": first.id() });
    world.json(second.exchange, 409, &refusal(&second, 40902, "request_in_flight", hint));
    assert!(world.failed(1));
    world.nothing_opened();
}

#[test]
fn a_refusal_that_comes_twice_sends_the_call_again_once() {
    let mut world = World::opened(Kind::Rejoin(1));
    let post = world.posted(1, "charge");
    let body = refusal(&post, 40905, "replay_in_progress", json!({ "sendAgain": true }));
    world.json(post.exchange, 409, &json!([body, body]));
    world.pass_until_opened(20_000);
    let again = world.post();
    world.nothing_opened();
    world.pass(5_000);
    world.nothing_opened();
    world.json(again.exchange, 200, &again.result("done"));
    assert_eq!(world.delivered()["result"]["text"], "done");
}

#[test]
fn what_a_refusal_names_as_its_reason_is_shown_and_does_nothing_to_a_terminal() {
    let mut world = World::opened(Kind::Rejoin(1));
    let (_, second) = world.repeated(1, "charge");
    let reason = format!("\u{1b}[31m\n{}", "x".repeat(100_000));
    let body = refusal(&second, 40905, &reason, json!({ "sendAgain": true }));
    world.json(second.exchange, 409, &body);
    let told = world.notices.iter().map(ToString::to_string).find(|told| told.contains("refused"));
    let told = told.expect("it is told");
    assert!(told.len() < 200 && !told.contains(char::is_control), "{told:.200}");
}
