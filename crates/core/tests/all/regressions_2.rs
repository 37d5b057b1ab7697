//! The traces that broke earlier wordings of the rule, each played on a session (`W`, `n`: second
//! model check; `S`: its scenarios, as far as a server can guarantee them).

use crate::support::{Rig, call};
use rejoin_core::effect::{Command, Effect, ToUpstream};
use rejoin_core::id::{ConnectionId, Seq, StreamId};
use rejoin_core::input::{FromUpstream, Input, WireEvent};
use rejoin_core::rejection::Reason;
use rejoin_core::settings::Settings;

fn charge(id: &str) -> String {
    call(id, "charge", "{}")
}

fn cancel(rig: &mut Rig, id: &str) {
    let params = format!(r#"{{"requestId":{id}}}"#);
    rig.notify(&format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{params}}}"#
    ));
}

fn reason(rig: &Rig, post: ConnectionId) -> Option<Reason> {
    rig.refused(post).map(|rejection| rejection.reason)
}

fn stream(rig: &Rig, connection: ConnectionId) -> StreamId {
    rig.opened(connection).expect("it streams").stream
}

fn answer(rig: &Rig, post: ConnectionId) -> Option<String> {
    let stream = rig.opened(post)?.stream;
    rig.events_after(stream, Seq::ORIGIN).last().map(|(_, text)| text.clone())
}

fn is_record(rig: &Rig, post: ConnectionId) -> bool {
    answer(rig, post).is_some_and(|text| text.contains("dev.rejoin/recorded"))
}

/// A waiting POST's head arrives at its client.
fn prove(rig: &mut Rig, post: ConnectionId) {
    rig.wire(post, WireEvent::HeadersAcknowledged);
}

fn idempotent(tool: &str) -> Rig {
    let mut settings = Settings::default();
    settings.idempotent_tools.insert(tool.to_owned());
    Rig::new(settings)
}

#[test]
fn w1_a_cancelled_call_still_refuses_its_repeat_until_the_window_is_over() {
    let mut rig = Rig::plain();
    rig.post(&charge("1"));
    cancel(&mut rig, "1");
    rig.pass(599_999);
    let retry = rig.post(&charge("2"));
    assert_eq!(reason(&rig, retry), Some(Reason::OutcomeUnknown));
    rig.pass(1);
    rig.post(&charge("3"));
    assert_eq!(rig.executed().len(), 2);
}

#[test]
fn w2_the_wait_for_a_reset_counts_from_the_repeats_arrival() {
    let mut rig = Rig::plain();
    let first = rig.post(&charge("1"));
    rig.answer(rig.executed()[0]);
    rig.deliver(first);
    rig.pass(3_000);
    let repeat = rig.post(&charge("2"));
    rig.pass(49);
    assert_eq!(rig.executed().len(), 1);
    rig.wire(first, WireEvent::Reset);
    assert!(is_record(&rig, repeat));
    assert_eq!(rig.executed().len(), 1);
}

#[test]
fn w2_an_honest_identical_call_waits_for_repeat_wait_at_most_and_not_after_fin_or_a_next_request() {
    for event in [None, Some(WireEvent::Fin), Some(WireEvent::NextRequest)] {
        let mut rig = Rig::plain();
        let first = rig.post(&charge("1"));
        rig.answer(rig.executed()[0]);
        rig.deliver(first);
        let second = rig.post(&charge("2"));
        assert_eq!(rig.executed().len(), 1);
        match event {
            Some(event) => rig.wire(first, event),
            None => rig.pass(50),
        }
        prove(&mut rig, second);
        assert_eq!(rig.executed().len(), 2, "{event:?}");
    }
}

#[test]
fn w2_what_a_repeat_waited_for_its_twin_counts_towards_the_wait_for_the_reset() {
    let mut rig = Rig::plain();
    let first = rig.post(&charge("1"));
    rig.answer(rig.executed()[0]);
    rig.wire(first, WireEvent::FinalHanded);
    let second = rig.post(&charge("2"));
    // An acknowledgement that the peer's kernel delays.
    rig.pass(53);
    prove(&mut rig, second);
    rig.wire(first, WireEvent::FinalAcknowledged);
    rig.pass(24);
    assert_eq!(rig.executed().len(), 1, "a reset follows the acknowledgement");
    rig.pass(1);
    assert_eq!(rig.executed().len(), 2);
}

#[test]
fn w2_a_twin_claimed_while_a_repeat_proves_its_own_connection_is_asked_beside_it() {
    let mut rig = Rig::plain();
    let first = rig.post(&charge("1"));
    rig.answer(rig.executed()[0]);
    rig.deliver(first);
    let second = rig.post(&charge("2"));
    rig.wire(first, WireEvent::NextRequest);
    let third = rig.post(&charge("3"));
    let claimed = rig.executed()[1];
    rig.feed(Input::Upstream(FromUpstream::Sent(claimed)));
    assert_eq!(rig.commands(third), [Command::Probe], "not only once the second is proved");
    rig.wire(third, WireEvent::LivenessAcknowledged);
    assert_eq!(rig.executed().len(), 2);
    prove(&mut rig, second);
    assert_eq!(rig.executed().len(), 3);
}

#[test]
fn w3a_a_repeat_that_waited_for_a_twin_still_waits_for_the_reset() {
    let mut rig = Rig::plain();
    let first = rig.post(&charge("1"));
    rig.answer(rig.executed()[0]);
    rig.wire(first, WireEvent::FinalHanded);
    let repeat = rig.post(&charge("2"));
    rig.pass(300);
    prove(&mut rig, repeat);
    rig.wire(first, WireEvent::FinalAcknowledged);
    assert_eq!(rig.executed().len(), 1, "the reset may be on its way");
    rig.wire(first, WireEvent::Reset);
    assert!(is_record(&rig, repeat));
    assert_eq!(rig.executed().len(), 1);
}

#[test]
fn w3b_a_repeat_that_waited_for_a_twin_is_refused_once_the_twin_is_resumed() {
    let mut rig = Rig::plain();
    let first = rig.post(&charge("1"));
    let running = rig.executed()[0];
    let repeat = rig.post(&charge("2"));
    let id = rig.event_id(stream(&rig, first), 0);
    let get = rig.get(Some(id));
    assert!(answer(&rig, repeat).is_some_and(|text| text.contains("40902")));
    rig.answer(running);
    rig.deliver(get);
    rig.pass(10_000);
    assert_eq!(rig.executed().len(), 1);
}

/// Two living twins, A and B.
fn twins() -> (Rig, ConnectionId, ConnectionId) {
    let mut rig = Rig::plain();
    let a = rig.post(&charge("1"));
    let b = rig.post(&charge("2"));
    rig.wire(a, WireEvent::LivenessAcknowledged);
    prove(&mut rig, b);
    assert_eq!(rig.executed().len(), 2, "a model that asks for two dice gets two");
    (rig, a, b)
}

#[test]
fn w4_every_twin_is_asked_and_one_that_is_silent_is_dropped() {
    let (mut rig, a, b) = twins();
    let retry = rig.post(&charge("3"));
    assert_eq!(rig.commands(b), [Command::Probe]);
    rig.wire(b, WireEvent::LivenessAcknowledged);
    prove(&mut rig, retry);
    assert_eq!(rig.executed().len(), 2, "A has not answered");
    rig.pass(2_000);
    assert_eq!(rig.state(stream(&rig, a)), "owed");
    assert_eq!(rig.executed().len(), 2);
    let text = answer(&rig, retry).expect("it is refused");
    assert!(text.contains("40902"), "{text}");
}

#[test]
fn w4b_a_twin_that_is_resumed_while_the_others_are_asked_refuses() {
    let (mut rig, a, b) = twins();
    let retry = rig.post(&charge("3"));
    let id = rig.event_id(stream(&rig, a), 0);
    rig.get(Some(id));
    rig.wire(b, WireEvent::LivenessAcknowledged);
    assert_eq!(rig.executed().len(), 2);
    assert!(answer(&rig, retry).is_some_and(|text| text.contains("40902")));
}

#[test]
fn eight_identical_posts_at_once_wait_for_one_round_of_signs_of_life() {
    let mut rig = Rig::plain();
    let posts: Vec<_> = (1..=8).map(|id| rig.post(&charge(&id.to_string()))).collect();
    rig.wire(posts[0], WireEvent::LivenessAcknowledged);
    for &post in &posts[1..] {
        rig.wire(post, WireEvent::HeadersAcknowledged);
    }
    assert_eq!(rig.executed().len(), 8, "each has proved itself while the others waited");
}

#[test]
fn a_proof_from_before_a_post_came_does_not_count_for_it() {
    let mut rig = Rig::plain();
    let first = rig.post(&charge("1"));
    let second = rig.post(&charge("2"));
    rig.wire(second, WireEvent::HeadersAcknowledged);
    let third = rig.post(&charge("3"));
    rig.wire(third, WireEvent::HeadersAcknowledged);
    rig.wire(first, WireEvent::LivenessAcknowledged);
    assert_eq!(rig.executed().len(), 2, "the second may have died before the third came");
    rig.wire(second, WireEvent::LivenessAcknowledged);
    assert_eq!(rig.executed().len(), 3);
}

#[test]
fn a_silent_twin_is_not_dropped_from_the_connection_that_took_it_over() {
    let (mut rig, a, _) = twins();
    rig.post(&charge("3"));
    let id = rig.event_id(stream(&rig, a), 0);
    let get = rig.get(Some(id));
    rig.pass(2_000);
    assert_eq!(rig.state(stream(&rig, a)), "live");
    assert!(rig.commands(get).is_empty());
}

#[test]
fn w5_a_post_that_waited_for_a_twin_is_claimed_only_after_its_own_connection_lives() {
    let mut rig = Rig::plain();
    let b = rig.post(&charge("1"));
    let zombie = rig.post(&charge("2"));
    rig.pass(50);
    let retry = rig.post(&charge("3"));
    rig.wire(b, WireEvent::LivenessAcknowledged);
    assert_eq!(rig.executed().len(), 1, "however briefly it waited");
    prove(&mut rig, retry);
    assert_eq!(rig.executed().len(), 2);
    rig.pass(12_000);
    assert_eq!(rig.executed().len(), 2, "the zombie never runs");
    assert!(answer(&rig, zombie).is_some_and(|text| text.contains("40908")));
}

#[test]
fn w6_a_collected_late_result_is_finished_and_once_read_answers_nothing_more() {
    let mut rig = Rig::plain();
    rig.post(&charge("1"));
    cancel(&mut rig, "1");
    rig.answer(rig.executed()[0]);
    let collect = rig.post(&charge("2"));
    assert!(is_record(&rig, collect));
    rig.deliver(collect);
    rig.wire(collect, WireEvent::Fin);
    rig.post(&charge("3"));
    assert_eq!(rig.executed().len(), 2, "a deliberate new call runs");
}

#[test]
fn n1_a_record_that_is_lost_is_collected_again_and_again() {
    let mut rig = Rig::plain();
    let first = rig.post(&charge("1"));
    let old = stream(&rig, first);
    rig.answer(rig.executed()[0]);
    rig.lose(first, Seq::ORIGIN);
    let early = rig.post(&charge("2"));
    assert_eq!(reason(&rig, early), Some(Reason::StreamNotDrained));
    rig.pass(8_000);
    let mut streams = vec![old];
    for id in 3..6 {
        let collect = rig.post(&charge(&id.to_string()));
        assert!(is_record(&rig, collect), "POST {id}");
        streams.push(stream(&rig, collect));
        rig.lose(collect, Seq::ORIGIN);
        assert_eq!(rig.state(*streams.last().expect("pushed")), "owed");
        rig.pass(8_000);
    }
    assert_eq!(rig.executed().len(), 1);
    for stream in &streams[..3] {
        assert_eq!(rig.state(*stream), "released");
        let id = rig.event_id(*stream, 0);
        let get = rig.get(Some(id));
        assert!(rig.opened(get).is_some_and(|attach| attach.replay_until.is_some()), "in the log");
    }
}

#[test]
fn n2_a_repeat_of_an_owed_idempotent_call_supersedes_it_in_its_own_commit() {
    let mut rig = idempotent("charge");
    let first = rig.post(&charge("1"));
    let old = stream(&rig, first);
    let running = rig.executed()[0];
    rig.lose(first, Seq::ORIGIN);
    rig.post(&charge("2"));
    assert_eq!(rig.executed().len(), 2, "the owed original does not hold its own repeat");
    assert_eq!(rig.state(old), "released");
    let cancelled = |e: &Effect| {
        let Effect::Upstream(ToUpstream::Cancel { call, .. }) = e else { return false };
        *call == running
    };
    assert!(rig.effects.iter().any(cancelled));
    rig.answer(running);
    let events = rig.events_after(old, Seq::ORIGIN);
    assert_eq!(events.len(), 1, "the late result of a superseded call is dropped: {events:?}");
    let id = rig.event_id(old, 0);
    let get = rig.get(Some(id));
    assert!(rig.opened(get).is_some(), "and who asks is told");
    assert!(events[0].1.contains(r#""id":1"#));
}

#[test]
fn n2t_a_token_of_an_idempotent_call_is_superseded_by_compare_and_swap() {
    let mut rig = idempotent("charge");
    let first = rig.post_token(&charge("1"), "t");
    rig.lose(first, Seq::ORIGIN);
    rig.post_token(&charge("2"), "t");
    assert_eq!(rig.executed().len(), 2);
    let (old, new) = (rig.executed()[0], rig.executed()[1]);
    assert_eq!(rig.tokens.values().next().map(|row| row.owner.call), Some(new));
    rig.answer(old);
    rig.answer(new);
    let record = rig.tokens.values().next().map(|row| row.owner.call);
    assert_eq!(record, Some(new), "the superseded call writes no row any more");
}

#[test]
fn n3_a_resend_takes_the_stream_over_and_a_late_get_takes_it_back() {
    let mut rig = Rig::plain();
    let first = rig.post(&charge("1"));
    let call = rig.executed()[0];
    rig.lose(first, Seq::ORIGIN);
    let resend = rig.post(&charge("1"));
    assert_eq!(stream(&rig, resend), stream(&rig, first));
    let id = rig.event_id(stream(&rig, first), 0);
    let get = rig.get(Some(id));
    assert_eq!(rig.commands(resend), [Command::Fence { retry_ms: 30_000 }]);
    rig.lose(resend, Seq::ORIGIN);
    assert_eq!(rig.state(stream(&rig, get)), "live", "a fenced connection is not its loss");
    rig.answer(call);
    rig.deliver(get);
    assert_eq!(rig.executed(), [call]);
}

#[test]
fn n3_a_resend_is_none_once_an_event_left() {
    let mut rig = Rig::plain();
    let first = rig.post(&charge("1"));
    rig.progress(rig.executed()[0], 1);
    rig.lose(first, Seq(1));
    let again = rig.post(&charge("1"));
    assert_eq!(reason(&rig, again), Some(Reason::RequestInFlight));
}

#[test]
fn n3_a_resend_is_none_after_a_restart_before_which_an_event_may_have_left() {
    let mut rig = Rig::plain();
    rig.post(&charge("1"));
    rig.progress(rig.executed()[0], 1);
    rig.restart();
    let again = rig.post(&charge("1"));
    assert_eq!(reason(&rig, again), Some(Reason::OutcomeUnknown));
    assert!(rig.decided().iter().all(|(_, row, _)| *row != 4));
}

#[test]
fn n3_a_resend_is_none_after_silence_during_which_an_event_may_have_left() {
    let (mut rig, a, b) = twins();
    rig.progress(rig.executed()[0], 1);
    rig.post(&charge("3"));
    rig.wire(b, WireEvent::LivenessAcknowledged);
    rig.pass(2_000);
    assert_eq!(rig.state(stream(&rig, a)), "owed", "it gave no sign of life");
    let again = rig.post(&charge("1"));
    assert_eq!(reason(&rig, again), Some(Reason::RequestInFlight));
    assert!(rig.decided().iter().all(|(_, row, _)| *row != 4));
}

#[test]
fn n4_the_window_runs_from_the_later_of_end_and_abandonment() {
    let mut rig = Rig::plain();
    let first = rig.post(&charge("1"));
    rig.lose(first, Seq::ORIGIN);
    rig.pass(8_000);
    assert_eq!(rig.state(stream(&rig, first)), "abandoned");
    rig.pass(1_200_000);
    rig.answer(rig.executed()[0]);
    rig.pass(599_000);
    let late = rig.post(&charge("2"));
    assert!(is_record(&rig, late));
    assert_eq!(rig.executed().len(), 1);
}

#[test]
fn an_error_for_a_cancelled_call_is_no_outcome_and_a_late_result_still_is() {
    let mut rig = Rig::plain();
    rig.post(&call("1", "charge", "{}"));
    let id = rig.executed()[0];
    cancel(&mut rig, "1");
    let error = r#"{"code":-32800,"message":"Request cancelled"}"#;
    rig.upstream(&format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#));
    let again = rig.post(&call("2", "charge", "{}"));
    assert_eq!(rig.refused(again).map(|r| r.reason), Some(Reason::OutcomeUnknown));
    rig.answer(id);
    let again = rig.post(&call("3", "charge", "{}"));
    assert!(is_record(&rig, again));
    assert_eq!(rig.executed().len(), 1);
}

#[test]
fn n6_a_cancelled_call_is_answered_405_and_its_late_result_waits_for_a_repeat() {
    let mut rig = Rig::plain();
    let first = rig.post(&charge("1"));
    cancel(&mut rig, "1");
    rig.answer(rig.executed()[0]);
    let id = rig.event_id(stream(&rig, first), 0);
    let get = rig.get(Some(id));
    assert!(rig.not_resumable(get));
    let collect = rig.post(&charge("2"));
    assert!(is_record(&rig, collect));
}

#[test]
fn n7_a_repeat_beside_an_open_first_exchange_is_a_twin_by_definition() {
    let (rig, ..) = twins();
    assert_eq!(rig.executed().len(), 2, "a documented limit: only a token tells them apart");
}

#[test]
fn n8_a_reset_later_than_the_window_counts_no_more() {
    let mut rig = Rig::plain();
    let first = rig.post(&charge("1"));
    rig.answer(rig.executed()[0]);
    rig.deliver(first);
    rig.pass(5_001);
    rig.wire(first, WireEvent::Reset);
    assert_eq!(rig.state(stream(&rig, first)), "presumed", "a documented limit");
    rig.post(&charge("2"));
    assert_eq!(rig.executed().len(), 2);
}

#[test]
fn s4_two_identical_calls_in_parallel_both_run_and_keep_their_answers() {
    let (mut rig, a, b) = twins();
    let (first, second) = (rig.executed()[0], rig.executed()[1]);
    rig.answer(second);
    rig.answer(first);
    let of = |post: ConnectionId| answer(&rig, post).expect("it is answered");
    assert!(of(a).contains(r#""id":1"#) && of(a).contains(&format!(r#""n":{first}"#)));
    assert!(of(b).contains(r#""id":2"#) && of(b).contains(&format!(r#""n":{second}"#)));
}

#[test]
fn s9_an_unknown_outcome_is_refused_and_told_on_the_stream() {
    let mut rig = Rig::plain();
    let first = rig.post(&charge("1"));
    rig.feed(Input::Upstream(FromUpstream::Sent(rig.executed()[0])));
    rig.feed(Input::Upstream(FromUpstream::Closed));
    rig.lose(first, Seq::ORIGIN);
    rig.pass(8_000);
    let retry = rig.post(&charge("2"));
    assert_eq!(reason(&rig, retry), Some(Reason::OutcomeUnknown));
    let id = rig.event_id(stream(&rig, first), 0);
    rig.get(Some(id));
    assert!(answer(&rig, first).is_some_and(|text| text.contains("outcome_unknown")));
    assert_eq!(rig.executed().len(), 1);
}

#[test]
fn s11_a_token_gives_the_record_for_as_long_as_it_is_kept() {
    let mut rig = Rig::plain();
    let first = rig.post_token(&charge("1"), "t");
    rig.answer(rig.executed()[0]);
    let id = rig.event_id(stream(&rig, first), 1);
    rig.deliver(first);
    let get = rig.get(Some(id));
    assert!(rig.not_resumable(get), "the last event is known");
    for id in ["2", "3"] {
        let again = rig.post_token(&charge(id), "t");
        assert!(is_record(&rig, again), "proved or not");
        rig.deliver(again);
    }
    rig.pass(1_700_000);
    let again = rig.post_token(&charge("4"), "t");
    assert!(is_record(&rig, again));
    assert_eq!(rig.executed().len(), 1);
}

#[test]
fn s11_a_token_whose_event_is_no_longer_in_the_log_is_answered_from_its_row() {
    let mut rig = Rig::plain();
    let first = rig.post_token(&charge("1"), "t");
    rig.answer(rig.executed()[0]);
    rig.deliver(first);
    rig.log.values_mut().for_each(Vec::clear);
    let again = rig.post_token(&charge("2"), "t");
    assert!(rig.opened(again).is_some());
    assert_eq!(rig.executed().len(), 1);
    assert!(is_record(&rig, again));
}

#[test]
fn s11_a_record_that_is_gone_is_an_unknown_outcome_and_never_a_second_run() {
    let mut rig = Rig::plain();
    let first = rig.post(&charge("1"));
    rig.answer(rig.executed()[0]);
    rig.lose(first, Seq::ORIGIN);
    rig.pass(8_000);
    rig.log.values_mut().for_each(Vec::clear);
    let collect = rig.post(&charge("2"));
    assert!(answer(&rig, collect).is_some_and(|text| text.contains("40906")));
    rig.lose(collect, Seq::ORIGIN);
    rig.pass(9_000);
    let again = rig.post(&charge("3"));
    assert!(answer(&rig, again).is_some_and(|text| text.contains("40906")));
    assert_eq!(rig.executed().len(), 1);
}

#[test]
fn s15_an_identical_call_after_a_connection_that_was_reset_late_is_answered() {
    let mut rig = Rig::plain();
    let first = rig.post(&charge("1"));
    rig.answer(rig.executed()[0]);
    rig.deliver(first);
    rig.wire(first, WireEvent::NextRequest);
    rig.wire(first, WireEvent::Reset);
    assert_eq!(rig.state(stream(&rig, first)), "presumed", "after a next request it says nothing");
    rig.post(&charge("2"));
    assert_eq!(rig.executed().len(), 2);
}

#[test]
fn s20_a_read_whose_client_never_resumes_is_read_again_at_once() {
    let mut rig = Rig::plain();
    let list = |id: u32| {
        let params = r#"{"_meta":{"progressToken":1}}"#;
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list","params":{params}}}"#)
    };
    let first = rig.post(&list(1));
    rig.lose(first, Seq::ORIGIN);
    rig.post(&list(2));
    assert_eq!(rig.executed().len(), 2);
}

#[test]
fn s21_a_client_that_never_presents_a_cursor_is_held_once_and_never_again() {
    let mut rig = Rig::plain();
    let first = rig.post(&call("1", "a", "{}"));
    rig.lose(first, Seq::ORIGIN);
    let held = rig.post(&call("2", "b", "{}"));
    rig.pass(8_000);
    prove(&mut rig, held);
    assert_eq!(rig.executed().len(), 2, "after the grace");
    rig.lose(held, Seq::ORIGIN);
    assert_eq!(rig.state(stream(&rig, held)), "owed");
    rig.post(&call("3", "c", "{}"));
    assert_eq!(rig.executed().len(), 3, "at once");
    let id = rig.event_id(stream(&rig, held), 0);
    let get = rig.get(Some(id));
    rig.lose(get, Seq::ORIGIN);
    rig.post(&call("4", "d", "{}"));
    assert_eq!(rig.executed().len(), 3, "who resumed once is waited for");
}

/// Found by the model check: a waiting call whose connection dies after it proved itself was run as
/// the twin of its own repeat, which had not waited.
#[test]
fn s24_a_repeat_does_not_overtake_the_equal_call_that_waits_before_it() {
    let mut rig = Rig::plain();
    let first = rig.post(&charge("1"));
    rig.answer(rig.executed()[0]);
    rig.deliver(first);
    rig.pass(5_000);
    let waits = rig.post(&charge("2"));
    assert_eq!(rig.decided().last().map(|decided| decided.1), Some(15), "for a reset");
    rig.wire(waits, WireEvent::HeadersAcknowledged);
    // Its path dies; its client knows, and asks again when no reset would count any more.
    rig.pass(1);
    let repeat = rig.post(&charge("3"));
    assert_eq!(rig.executed().len(), 1, "it waits behind the one before it");
    rig.pass(50);
    assert_eq!(rig.executed().len(), 2, "the one before it");
    prove(&mut rig, repeat);
    rig.pass(2_000);
    let refused =
        answer(&rig, repeat).or_else(|| rig.refused(repeat).map(|r| r.reason.name().into()));
    assert!(refused.is_some_and(|text| text.contains("request_in_flight")));
    assert_eq!(rig.executed().len(), 2, "its client asked once after the first answer");
}

#[test]
fn a_post_behind_a_twin_is_refused_at_once_when_no_more_may_wait() {
    for (held_posts_max, refused) in [(1, Some(Reason::RequestInFlight)), (2, None)] {
        let mut settings = Settings::default();
        settings.limits.held_posts_max = held_posts_max;
        let mut rig = Rig::new(settings);
        let other = call("1", "other", "{}");
        let first = rig.post(&other);
        rig.answer(rig.executed()[0]);
        rig.wire(first, WireEvent::FinalHanded);
        let older = rig.post_with(&[&call("2", "other", "{}"), &charge("3")], None);
        rig.pass(300);
        prove(&mut rig, older);
        let behind = rig.post(&charge("4"));
        assert_eq!(reason(&rig, behind), refused);
        assert_eq!(rig.executed().len(), 1);
    }
}
