//! Every limit of time: what holds just before it, at it, and when its deadline fires late.

use crate::support::{Rig, call};
use rejoin_core::effect::{Effect, ToUpstream};
use rejoin_core::id::{CallId, ConnectionId, Seq, StreamId};
use rejoin_core::input::{FromUpstream, Input, WireEvent};
use rejoin_core::rejection::Reason;
use rejoin_core::settings::Settings;

fn started(rig: &mut Rig, tool: &str) -> (ConnectionId, StreamId, CallId) {
    let post = rig.post(&call("1", tool, "{}"));
    let call = *rig.executed().last().expect("it runs");
    (post, rig.opened(post).expect("it streams").stream, call)
}

/// An answered call whose answer the peer's kernel has; a reset may come.
fn presumed(rig: &mut Rig) -> (ConnectionId, StreamId) {
    let (post, stream, call) = started(rig, "a");
    rig.answer(call);
    rig.deliver(post);
    (post, stream)
}

/// The process stalls: nothing fires while this time passes.
fn stall(rig: &mut Rig, ms: u64) {
    rig.now_ms += ms;
    rig.feed(Input::Tick);
}

fn is_over(rig: &Rig) -> bool {
    rig.effects.iter().any(|effect| matches!(effect, Effect::End))
}

/// What the server was told besides calls.
fn sent(rig: &Rig) -> Vec<String> {
    let sent = rig.effects.iter().filter_map(|effect| match effect {
        Effect::Upstream(ToUpstream::Send(bytes)) => {
            Some(String::from_utf8_lossy(bytes).into_owned())
        }
        _ => None,
    });
    sent.collect()
}

#[test]
fn a_deadline_that_fires_late_still_ends_what_it_is_for() {
    let mut rig = Rig::plain();
    let (post, stream, call) = started(&mut rig, "a");
    rig.lose(post, Seq::ORIGIN);
    stall(&mut rig, 60_000);
    assert_eq!(rig.state(stream), "abandoned");
    let get = rig.get(Some(rig.event_id(stream, 0)));
    rig.answer(call);
    rig.wire(get, WireEvent::FinalHanded);
    stall(&mut rig, 100_000);
    assert_eq!(rig.state(stream), "doubtful");
    stall(&mut rig, 700_000);
    assert_eq!(rig.state(stream), "released");
}

#[test]
fn a_question_waits_for_a_client_that_is_there_and_is_answered_once_it_is_gone() {
    let mut rig = Rig::plain();
    let (post, ..) = started(&mut rig, "a");
    rig.upstream(r#"{"jsonrpc":"2.0","id":"q","method":"roots/list"}"#);
    rig.pass(60_000);
    assert!(sent(&rig).is_empty(), "its client may be asking a person");
    rig.lose(post, Seq::ORIGIN);
    rig.pass(59_999);
    assert!(sent(&rig).is_empty());
    rig.pass(1);
    let refusals = sent(&rig);
    assert!(refusals.len() == 1 && refusals[0].contains("-32001"), "{refusals:?}");
    rig.pass(600_000);
    assert_eq!(sent(&rig).len(), 1, "once");
}

#[test]
fn a_question_that_was_answered_is_not_answered_again_at_its_limit() {
    let mut rig = Rig::plain();
    let (post, ..) = started(&mut rig, "a");
    rig.upstream(r#"{"jsonrpc":"2.0","id":"q","method":"roots/list"}"#);
    let answer = crate::support::parse(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    rig.feed(Input::Respond(answer));
    rig.lose(post, Seq::ORIGIN);
    rig.pass(600_000);
    assert_eq!(sent(&rig), [r#"{"jsonrpc":"2.0","id":"q","result":{}}"#]);
}

#[test]
fn a_session_that_owes_for_ever_ends_when_its_retention_is_over() {
    let mut settings = Settings::default();
    settings.limits.owed_grace_ms = None;
    let mut rig = Rig::new(settings);
    let (post, stream, call) = started(&mut rig, "a");
    rig.answer(call);
    rig.lose(post, Seq::ORIGIN);
    rig.pass(86_400_000 - 1);
    assert!(!is_over(&rig) && rig.state(stream) == "owed");
    rig.pass(30 * 60_000);
    assert!(is_over(&rig));
}

#[test]
fn the_child_of_an_idle_session_is_ended_and_state_is_lost_only_where_there_was_any() {
    for (upstream_is_stateless, refused) in [(false, Some(Reason::StateLost)), (true, None)] {
        let mut rig = Rig::new(Settings { upstream_is_stateless, ..Settings::default() });
        let (post, _, call) = started(&mut rig, "a");
        rig.answer(call);
        rig.lose(post, Seq::ORIGIN);
        rig.pass(30 * 60_000);
        let closed = |e: &Effect| matches!(e, Effect::Upstream(ToUpstream::Close));
        assert!(rig.effects.iter().any(closed) && !is_over(&rig));
        let post = rig.post(&crate::support::call("2", "b", "{}"));
        assert_eq!(rig.refused(post).map(|refused| refused.reason), refused);
    }
}

#[test]
fn a_restart_counts_as_a_reset_for_as_long_as_a_client_may_take_to_come_back() {
    for (away_ms, state) in [(8_000, "doubtful"), (8_001, "presumed")] {
        let mut rig = Rig::plain();
        let (_, stream) = presumed(&mut rig);
        rig.now_ms += away_ms;
        rig.restart();
        assert_eq!(rig.state(stream), state, "after {away_ms} ms");
    }
}

#[test]
fn a_restart_does_not_doubt_what_no_reset_could_void_any_more() {
    let mut rig = Rig::plain();
    let (post, stream) = presumed(&mut rig);
    rig.wire(post, WireEvent::Fin);
    rig.restart();
    assert_eq!(rig.state(stream), "presumed");
}

#[test]
fn a_silent_call_is_given_up_at_its_limit_and_not_before() {
    let mut rig = Rig::plain();
    let (_, _, call) = started(&mut rig, "a");
    rig.feed(Input::Upstream(FromUpstream::Sent(call)));
    let phase = |rig: &Rig| rig.session.view().calls[0].phase;
    rig.pass(3_600_000 - 1);
    assert_eq!(phase(&rig), "sent");
    rig.pass(1);
    assert_eq!(phase(&rig), "unknown");
    let cancels = |e: &&Effect| matches!(e, Effect::Upstream(ToUpstream::Cancel { .. }));
    assert_eq!(rig.effects.iter().filter(cancels).count(), 1);
}

#[test]
fn a_stream_that_was_owed_holds_others_after_a_restart_too_until_its_grace_is_over() {
    let settings = Settings { upstream_is_stateless: true, ..Settings::default() };
    let mut rig = Rig::new(settings);
    let (post, stream, call_id) = started(&mut rig, "a");
    rig.answer(call_id);
    rig.lose(post, Seq::ORIGIN);
    assert_eq!(rig.state(stream), "owed");
    rig.restart();
    assert_eq!(rig.state(stream), "owed");
    let held = rig.post(&call("2", "b", "{}"));
    rig.pass(300);
    rig.wire(held, WireEvent::HeadersAcknowledged);
    assert_eq!(rig.decided().last(), Some(&(held, 16, "hold")));
    assert_eq!(rig.executed().len(), 1, "it would overtake what is owed");
    rig.pass(8_000);
    assert_eq!(rig.state(stream), "abandoned");
    assert_eq!(rig.executed().len(), 2, "nothing holds it any more");
}
