//! `repeat_scope = "principal"` (design section 2, "repeat"): a tokenless call is looked up in all
//! sessions of its principal. Two sessions share one table of rows here, as in a store.

use crate::support::{Rig, call, parse, scope_key};
use rejoin_core::id::{CallId, ConnectionId, Seq, StreamId};
use rejoin_core::input::{FromUpstream, Input, Post, Request, Scope, WireEvent};
use rejoin_core::rejection::Reason;
use rejoin_core::settings::{Delivery, OnRepeat, RepeatScope, Settings};
use rejoin_core::token::{DedupRecord, Outcome};

const MINUTE_MS: u64 = 60_000;

fn scoped() -> Settings {
    Settings { repeat_scope: RepeatScope::Principal, ..Settings::default() }
}

/// A new session of the same principal, at the same time, over the same rows.
fn new_session(first: &Rig, settings: Settings) -> Rig {
    let mut rig = Rig::named("another session", settings, first.now_ms);
    rig.tokens.clone_from(&first.tokens);
    rig
}

fn charge() -> String {
    call("1", "charge", r#"{"amount":5}"#)
}

fn started() -> (Rig, ConnectionId, CallId) {
    let mut rig = Rig::new(scoped());
    let post = rig.post(&charge());
    let call = rig.executed()[0];
    (rig, post, call)
}

/// What a new session gets for the same call: a refusal, a record, or an execution.
#[derive(Debug, PartialEq, Eq)]
enum Gets {
    Refusal(Reason),
    Record,
    Execution,
}

fn gets(rig: &mut Rig, post: ConnectionId) -> Gets {
    rig.session.check().expect("consistent");
    if let Some(refusal) = rig.refused(post) {
        assert!(refusal.hint.is_none(), "no cursor of another session");
        return Gets::Refusal(refusal.reason);
    }
    if let Some(text) = rig.replied(post) {
        assert!(text.contains(r#""id":77"#) && text.contains("dev.rejoin/recorded"), "{text}");
        return Gets::Record;
    }
    assert_eq!(rig.executed().len(), 1, "answered or run");
    Gets::Execution
}

fn elsewhere(first: &Rig) -> Gets {
    elsewhere_with(first, scoped())
}

fn elsewhere_with(first: &Rig, settings: Settings) -> Gets {
    let mut rig = new_session(first, settings);
    let post = rig.post(&call("77", "charge", r#"{"amount":5}"#));
    gets(&mut rig, post)
}

fn row(rig: &Rig) -> Option<&DedupRecord> {
    rig.tokens.get(&scope_key(&parse(&charge())))
}

fn cancel(rig: &mut Rig) {
    rig.notify(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
}

fn resume(rig: &mut Rig, stream: StreamId) -> ConnectionId {
    let origin = rig.event_id(stream, 0);
    rig.get(Some(origin))
}

#[test]
fn a_call_that_runs_in_another_session_is_refused_whether_its_connection_lives_or_not() {
    let (mut rig, post, _) = started();
    assert_eq!(elsewhere(&rig), Gets::Refusal(Reason::RequestInFlight));
    rig.lose(post, Seq::ORIGIN);
    assert_eq!(elsewhere(&rig), Gets::Refusal(Reason::RequestInFlight));
    let join = Settings { on_repeat: OnRepeat::Join, ..scoped() };
    assert_eq!(elsewhere_with(&rig, join), Gets::Refusal(Reason::RequestInFlight));
    rig.pass(30_000);
    assert_eq!(elsewhere(&rig), Gets::Refusal(Reason::RequestInFlight), "abandoned too");
}

#[test]
fn an_answer_that_was_lost_in_another_session_is_given_as_the_record() {
    let (mut rig, post, call) = started();
    rig.answer(call);
    assert_eq!(elsewhere(&rig), Gets::Record, "on its way");
    rig.wire(post, WireEvent::FinalHanded);
    assert_eq!(elsewhere(&rig), Gets::Record, "handed over");
    rig.lose(post, Seq::ORIGIN);
    assert_eq!(elsewhere(&rig), Gets::Record, "doubtful");
    let reject = Settings { on_repeat: OnRepeat::Reject, ..scoped() };
    assert_eq!(elsewhere_with(&rig, reject), Gets::Refusal(Reason::NotIdempotent));
    let (mut rig, post, call) = started();
    rig.lose(post, Seq::ORIGIN);
    rig.answer(call);
    assert_eq!(elsewhere(&rig), Gets::Record, "owed");
    rig.pass(8_000);
    assert_eq!(elsewhere(&rig), Gets::Record, "abandoned");
    let stream = rig.opened(post).expect("it streams").stream;
    assert_eq!(rig.state(stream), "abandoned", "its own stream keeps it");
}

#[test]
fn a_call_that_was_delivered_in_another_session_runs() {
    for event in [WireEvent::Fin, WireEvent::NextRequest] {
        let (mut rig, post, call) = started();
        rig.answer(call);
        rig.deliver(post);
        rig.wire(post, event);
        assert_eq!(row(&rig), None, "{event:?}");
        assert_eq!(elsewhere(&rig), Gets::Execution);
    }
    let (mut rig, post, call) = started();
    rig.answer(call);
    rig.lose(post, Seq::ORIGIN);
    let stream = rig.opened(post).expect("it streams").stream;
    let last = rig.event_id(stream, 1);
    rig.feed(Input::Acknowledge(vec![last]));
    assert_eq!(elsewhere(&rig), Gets::Execution, "proved");
}

#[test]
fn s13p_a_retry_in_a_new_session_that_outruns_the_reset_does_not_run() {
    let (mut rig, post, call) = started();
    rig.answer(call);
    rig.deliver(post);
    let stream = rig.opened(post).expect("it streams").stream;
    assert_eq!(rig.state(stream), "presumed");
    rig.pass(2_000);
    assert_eq!(elsewhere(&rig), Gets::Record, "the reset may still be under way");
    rig.wire(post, WireEvent::Reset);
    assert_eq!(rig.state(stream), "doubtful");
    assert_eq!(elsewhere(&rig), Gets::Record);

    let (mut rig, post, call) = started();
    rig.answer(call);
    rig.deliver(post);
    rig.pass(5_001);
    assert_eq!(elsewhere(&rig), Gets::Execution, "none came: it was read");
}

#[test]
fn where_no_reset_can_be_seen_a_presumed_answer_frees_its_row() {
    let mut rig = Rig::new(scoped());
    let message = parse(&charge());
    let scope = rig.scope(&message);
    let requests = vec![Request { message, token: None, record: None, scope }];
    let connection = rig.connection();
    let (observed, batch, body) = (false, false, [1; 32]);
    rig.feed(Input::Post(Post { connection, observed, requests, batch, body }));
    rig.answer(rig.executed()[0]);
    rig.wire(connection, WireEvent::FinalHanded);
    assert_eq!(elsewhere(&rig), Gets::Record);
    rig.pass(1_000);
    assert_eq!(elsewhere(&rig), Gets::Execution);
}

#[test]
fn under_proved_only_the_clients_own_evidence_frees_the_row() {
    let settings = Settings { delivery: Delivery::Proved, ..scoped() };
    let mut rig = Rig::new(settings);
    let post = rig.post(&charge());
    rig.answer(rig.executed()[0]);
    rig.deliver(post);
    rig.wire(post, WireEvent::Fin);
    rig.pass(MINUTE_MS);
    assert_eq!(elsewhere(&rig), Gets::Record);
    let last = rig.event_id(rig.opened(post).expect("it streams").stream, 1);
    rig.feed(Input::Acknowledge(vec![last]));
    assert_eq!(elsewhere(&rig), Gets::Execution);
}

#[test]
fn a_cancelled_call_is_unknown_elsewhere_until_its_late_result_came() {
    let (mut rig, _, call) = started();
    cancel(&mut rig);
    assert_eq!(elsewhere(&rig), Gets::Refusal(Reason::OutcomeUnknown));
    rig.answer(call);
    assert_eq!(elsewhere(&rig), Gets::Record);
    let (mut rig, ..) = started();
    cancel(&mut rig);
    rig.pass(10 * MINUTE_MS);
    assert_eq!(elsewhere(&rig), Gets::Execution, "its window is over");
}

#[test]
fn a_call_without_outcome_is_refused_elsewhere_even_once_its_client_was_told() {
    let (mut rig, post, call) = started();
    rig.feed(Input::Upstream(FromUpstream::Sent(call)));
    rig.feed(Input::Upstream(FromUpstream::Closed));
    assert_eq!(elsewhere(&rig), Gets::Refusal(Reason::OutcomeUnknown));
    rig.deliver(post);
    rig.wire(post, WireEvent::Fin);
    rig.pass(9 * MINUTE_MS);
    assert_eq!(elsewhere(&rig), Gets::Refusal(Reason::OutcomeUnknown));
    rig.pass(MINUTE_MS);
    assert_eq!(elsewhere(&rig), Gets::Execution);
}

#[test]
fn a_deleted_session_leaves_its_calls_rows_behind() {
    let (mut rig, ..) = started();
    rig.feed(Input::Delete);
    assert_eq!(elsewhere(&rig), Gets::Refusal(Reason::OutcomeUnknown));
    let (mut rig, post, call) = started();
    rig.lose(post, Seq::ORIGIN);
    rig.answer(call);
    rig.feed(Input::Delete);
    assert_eq!(elsewhere(&rig), Gets::Record);
    rig.now_ms += 10 * MINUTE_MS;
    assert_eq!(elsewhere(&rig), Gets::Execution, "not for ever");
}

#[test]
fn the_window_starts_when_the_answer_was_given_up_and_the_row_lasts_as_long() {
    let (mut rig, post, call) = started();
    rig.lose(post, Seq::ORIGIN);
    rig.answer(call);
    rig.pass(10 * MINUTE_MS - 100);
    assert_eq!(elsewhere(&rig), Gets::Refusal(Reason::OutcomeUnknown), "without the answer");
    rig.pass(8_000);
    assert_eq!(elsewhere(&rig), Gets::Refusal(Reason::OutcomeUnknown));
    rig.pass(100);
    assert_eq!(elsewhere(&rig), Gets::Execution);
}

#[test]
fn a_call_keeps_its_row_for_as_long_as_it_runs_or_is_owed() {
    let (mut rig, _, call) = started();
    for _ in 0..12 {
        rig.pass(10 * MINUTE_MS);
        rig.progress(call, 1);
        assert_eq!(elsewhere(&rig), Gets::Refusal(Reason::RequestInFlight));
    }
    let mut settings = scoped();
    settings.limits.owed_grace_ms = None;
    let mut rig = Rig::new(settings);
    let post = rig.post(&charge());
    rig.answer(rig.executed()[0]);
    rig.lose(post, Seq::ORIGIN);
    rig.pass(120 * MINUTE_MS);
    assert_eq!(elsewhere(&rig), Gets::Refusal(Reason::OutcomeUnknown));
}

#[test]
fn a_session_that_died_leaves_a_running_row_behind_for_about_two_windows() {
    let (mut rig, ..) = started();
    rig.now_ms += 10 * MINUTE_MS;
    assert_eq!(elsewhere(&rig), Gets::Refusal(Reason::RequestInFlight));
    rig.now_ms += 10 * MINUTE_MS;
    assert_eq!(elsewhere(&rig), Gets::Execution);
}

#[test]
fn a_twin_takes_the_row_over_and_gives_it_back() {
    let (mut rig, first, one) = started();
    let second = rig.post(&call("2", "charge", r#"{"amount":5}"#));
    rig.wire(first, WireEvent::LivenessAcknowledged);
    rig.wire(second, WireEvent::HeadersAcknowledged);
    assert_eq!(rig.executed().len(), 2, "a twin");
    let two = rig.executed()[1];
    assert_eq!(row(&rig).map(|row| row.owner.call), Some(two));
    rig.answer(two);
    rig.deliver(second);
    rig.wire(second, WireEvent::Fin);
    assert_eq!(row(&rig).map(|row| row.owner.call), Some(one), "the first still runs");
    assert_eq!(elsewhere(&rig), Gets::Refusal(Reason::RequestInFlight));
    rig.answer(one);
    rig.lose(first, Seq::ORIGIN);
    assert_eq!(elsewhere(&rig), Gets::Record);
}

#[test]
fn a_twin_that_ended_while_the_other_had_the_row_is_not_run_again() {
    let (mut rig, first, one) = started();
    let second = rig.post(&call("2", "charge", r#"{"amount":5}"#));
    rig.wire(first, WireEvent::LivenessAcknowledged);
    rig.wire(second, WireEvent::HeadersAcknowledged);
    let two = rig.executed()[1];
    rig.answer(one);
    rig.lose(first, Seq::ORIGIN);
    rig.answer(two);
    rig.deliver(second);
    rig.wire(second, WireEvent::Fin);
    assert_eq!(elsewhere(&rig), Gets::Refusal(Reason::OutcomeUnknown));
}

#[test]
fn twins_of_one_batch_share_one_row() {
    let mut rig = Rig::new(scoped());
    let (one, two) = (charge(), call("2", "charge", r#"{"amount":5}"#));
    rig.post_with(&[&one, &two], None);
    assert_eq!(rig.executed().len(), 2);
    assert_eq!(rig.tokens.len(), 1);
    assert_eq!(row(&rig).map(|row| row.owner.call), Some(rig.executed()[1]));
}

/// A POST that was looked up before another session claimed the same call.
fn post_unaware(rig: &mut Rig, bodies: &[String]) -> ConnectionId {
    let connection = rig.connection();
    let requests = bodies.iter().map(|body| {
        let message = parse(body);
        let scope = Some(Scope { key: scope_key(&message), record: None });
        Request { message, token: None, record: None, scope }
    });
    let requests: Vec<_> = requests.collect();
    let batch = requests.len() > 1;
    rig.feed(Input::Post(Post { connection, observed: true, requests, batch, body: [1; 32] }));
    connection
}

#[test]
fn of_two_sessions_that_claim_the_same_call_at_once_one_runs_it() {
    let (rig, ..) = started();
    let mut other = new_session(&rig, scoped());
    let post = post_unaware(&mut other, &[call("77", "charge", r#"{"amount":5}"#)]);
    assert_eq!(gets(&mut other, post), Gets::Refusal(Reason::RequestInFlight));
    assert!(other.executed().is_empty() && other.session.view().calls.is_empty());
    assert_eq!(other.session.view().streams.len(), 1);
    assert_eq!(other.tokens, rig.tokens, "the row is left alone");
}

#[test]
fn a_batch_that_lost_one_row_runs_the_rest_of_it() {
    let (rig, ..) = started();
    let mut other = new_session(&rig, scoped());
    let bodies = [call("76", "other", "{}"), call("77", "charge", r#"{"amount":5}"#)];
    let post = post_unaware(&mut other, &bodies);
    assert_eq!(other.executed().len(), 1);
    let stream = other.opened(post).expect("it streams").stream;
    let events = other.events_after(stream, Seq::ORIGIN);
    assert!(events.len() == 1 && events[0].1.contains("40902"), "{events:?}");
    assert!(events[0].1.contains(r#""id":77"#), "{events:?}");
    other.session.check().expect("consistent");
}

#[test]
fn a_batch_gets_the_record_of_another_session_on_its_own_stream() {
    let (mut rig, post, id) = started();
    rig.lose(post, Seq::ORIGIN);
    rig.answer(id);
    let mut other = new_session(&rig, scoped());
    let bodies = [call("76", "other", "{}"), call("77", "charge", r#"{"amount":5}"#)];
    let batch = other.post_with(&[&bodies[0], &bodies[1]], None);
    let stream = other.opened(batch).expect("it streams").stream;
    let events = other.events_after(stream, Seq::ORIGIN);
    assert!(events[0].1.contains("dev.rejoin/recorded"), "{events:?}");
    assert!(events[0].1.contains(r#""id":77"#), "{events:?}");
    assert_eq!(other.executed().len(), 1);
}

#[test]
fn a_row_that_another_session_took_after_its_window_is_not_written_any_more() {
    let (mut rig, post, call) = started();
    rig.lose(post, Seq::ORIGIN);
    cancel(&mut rig);
    rig.pass(10 * MINUTE_MS);
    let mut other = new_session(&rig, scoped());
    other.post(&charge());
    assert_eq!(other.executed().len(), 1);
    rig.tokens.clone_from(&other.tokens);
    rig.answer(call);
    assert_eq!(row(&rig).map(|row| row.owner.session), Some(other.session.start().session));
    rig.session.check().expect("consistent");
    let again = rig.post(&crate::support::call("3", "charge", r#"{"amount":5}"#));
    let reason = rig.refused(again).map(|refused| refused.reason);
    assert_eq!(reason, Some(Reason::RequestInFlight), "it runs over there");
}

#[test]
fn who_resumes_after_another_sessions_row_ended_gets_the_row_back() {
    let (mut rig, post, call) = started();
    rig.answer(call);
    rig.lose(post, Seq::ORIGIN);
    let stream = rig.opened(post).expect("it streams").stream;
    rig.pass(11 * MINUTE_MS);
    let mut other = new_session(&rig, scoped());
    other.post(&charge());
    assert_eq!(other.executed().len(), 1, "the window is over");
    rig.tokens.clone_from(&other.tokens);
    // The other session dies; its row stays for two windows, and for longer until it is swept.
    rig.pass(25 * MINUTE_MS);
    let get = resume(&mut rig, stream);
    rig.lose(get, Seq::ORIGIN);
    assert_eq!(row(&rig).map(|row| row.owner.session), Some(rig.session.start().session));
    assert_eq!(elsewhere(&rig), Gets::Refusal(Reason::OutcomeUnknown));
}

#[test]
fn a_claim_that_never_ran_or_was_released_by_hand_frees_its_row() {
    let (mut rig, ..) = started();
    rig.upstream(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no"}}"#);
    assert_eq!(elsewhere(&rig), Gets::Execution);
    let (mut rig, _, call) = started();
    rig.feed(Input::Upstream(FromUpstream::NotSent(call)));
    assert_eq!(elsewhere(&rig), Gets::Execution);
    for answered in [false, true] {
        let (mut rig, post, call) = started();
        rig.lose(post, Seq::ORIGIN);
        if answered {
            rig.answer(call);
        }
        rig.feed(Input::Release(call));
        assert_eq!(elsewhere(&rig), Gets::Execution);
        rig.session.check().expect("consistent");
    }
}

#[test]
fn a_call_that_its_own_session_collects_is_free_once_that_was_delivered() {
    let (mut rig, post, id) = started();
    rig.lose(post, Seq::ORIGIN);
    rig.answer(id);
    rig.pass(8_000);
    let collect = rig.post(&call("2", "charge", r#"{"amount":5}"#));
    assert!(rig.opened(collect).is_some(), "from its own ledger");
    assert_eq!(elsewhere(&rig), Gets::Record);
    rig.deliver(collect);
    rig.wire(collect, WireEvent::Fin);
    assert_eq!(elsewhere(&rig), Gets::Execution);
}

#[test]
fn who_resumes_what_was_presumed_to_be_delivered_gets_the_row_back() {
    let (mut rig, post, call) = started();
    rig.answer(call);
    rig.deliver(post);
    rig.wire(post, WireEvent::Fin);
    assert_eq!(row(&rig), None);
    let stream = rig.opened(post).expect("it streams").stream;
    let get = resume(&mut rig, stream);
    rig.lose(get, Seq::ORIGIN);
    assert_eq!(elsewhere(&rig), Gets::Refusal(Reason::OutcomeUnknown));
    let get = resume(&mut rig, stream);
    rig.deliver(get);
    rig.wire(get, WireEvent::Fin);
    assert_eq!(elsewhere(&rig), Gets::Execution);
}

#[test]
fn reads_idempotent_calls_tokens_and_the_default_scope_have_no_row() {
    let mut settings = scoped();
    settings.idempotent_tools.insert("lookup".to_owned());
    let mut rig = Rig::new(settings);
    rig.post(&call("1", "lookup", "{}"));
    rig.post(r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#);
    rig.post(r#"{"jsonrpc":"2.0","id":3,"method":"ping"}"#);
    assert!(rig.tokens.is_empty());
    rig.post_token(&charge(), "t");
    assert_eq!(rig.tokens.len(), 1, "the token's");
    assert_eq!(row(&rig), None);
    let mut rig = Rig::new(Settings::default());
    rig.scoped = true;
    rig.post(&charge());
    assert!(rig.tokens.is_empty(), "looked up, but not asked for");
}

#[test]
fn a_running_replay_lets_a_record_of_another_session_wait() {
    let (mut rig, post, id) = started();
    rig.lose(post, Seq::ORIGIN);
    rig.answer(id);
    let mut other = new_session(&rig, scoped());
    let slow = other.post(&call("5", "slow", "{}"));
    other.answer(other.executed()[0]);
    other.lose(slow, Seq::ORIGIN);
    let stream = other.opened(slow).expect("it streams").stream;
    let get = resume(&mut other, stream);
    let repeat = other.post(&call("77", "charge", r#"{"amount":5}"#));
    assert!(other.replied(repeat).is_none() && other.refused(repeat).is_none());
    other.wire(get, WireEvent::ReplayAcknowledged);
    other.wire(get, WireEvent::Fin);
    assert!(other.replied(repeat).is_some_and(|text| text.contains("dev.rejoin/recorded")));
    assert!(matches!(row(&rig).map(|row| &row.outcome), Some(Outcome::Finished { .. })));
}

#[test]
fn what_a_batch_collects_beside_a_claim_that_lost_its_row_is_collected_once() {
    let (mut rig, post, id) = started();
    rig.answer(id);
    rig.lose(post, Seq::ORIGIN);
    rig.pass(8_000);
    let mut other = new_session(&rig, scoped());
    other.post(&call("5", "refund", "{}"));
    rig.tokens.clone_from(&other.tokens);
    let bodies = [call("76", "refund", "{}"), call("77", "charge", r#"{"amount":5}"#)];
    let batch = post_unaware(&mut rig, &bodies);
    rig.session.check().expect("consistent");
    let events = rig.events_after(rig.opened(batch).expect("it streams").stream, Seq::ORIGIN);
    assert!(
        events[0].1.contains("40902") && events[1].1.contains("dev.rejoin/recorded"),
        "{events:?}"
    );
    assert_eq!(rig.state(StreamId(1)), "released");
}
