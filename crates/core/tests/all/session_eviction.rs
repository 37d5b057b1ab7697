//! Which stream is forgotten for the next, and which never is (design sections 3 and 9).

use crate::support::{Rig, call};
use rejoin_core::effect::Note;
use rejoin_core::id::{CallId, ConnectionId, Seq, StreamId};
use rejoin_core::input::{Channel, FromUpstream, Input, WireEvent};
use rejoin_core::rejection::Reason;
use rejoin_core::settings::Settings;

const HOUR_MS: u64 = 3_600_000;

/// How a stream stands.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Its call runs, its client listens.
    Running,
    /// Its call runs, its client is gone for good.
    LeftRunning,
    /// Answered; the answer was never read.
    Unread,
    /// Answered; the end was handed over.
    Ending,
    /// Answered and lost a moment ago.
    Owed,
    /// Answered, lost, and not resumed in time.
    Abandoned,
    /// The peer's kernel has the answer; a reset may void it.
    Presumed,
    /// The same, but no reset can come.
    Done,
    /// The same, after its first connection was lost.
    DoneOnceResumed,
    /// Nobody knows how the call ended, and an operator has released it.
    ReleasedUnknown,
    /// Nobody knows how the call ended; its client was told.
    ToldUnknown,
}

fn limited(streams_max: usize) -> Rig {
    let mut settings = Settings::default();
    settings.limits.session_streams_max = streams_max;
    settings.idempotent_tools.insert("read".to_owned());
    Rig::new(settings)
}

/// A stream with one call of a tool.
fn post(rig: &mut Rig, tool: &str) -> (ConnectionId, StreamId, CallId) {
    let post = rig.post(&call("1", tool, "{}"));
    let call = *rig.executed().last().expect("it runs");
    (post, rig.opened(post).expect("it streams").stream, call)
}

fn bring_to(rig: &mut Rig, (post, stream, call): (ConnectionId, StreamId, CallId), kind: Kind) {
    let done = |rig: &mut Rig, connection| {
        rig.answer(call);
        rig.deliver(connection);
        rig.wire(connection, WireEvent::Fin);
    };
    match kind {
        Kind::Running => {}
        Kind::LeftRunning => {
            rig.lose(post, Seq::ORIGIN);
            rig.pass(8_000);
        }
        Kind::Unread => rig.answer(call),
        Kind::Ending => {
            rig.answer(call);
            rig.wire(post, WireEvent::FinalHanded);
        }
        Kind::Owed => {
            rig.answer(call);
            rig.lose(post, Seq::ORIGIN);
        }
        Kind::Abandoned => {
            rig.answer(call);
            rig.lose(post, Seq::ORIGIN);
            rig.pass(8_000);
        }
        Kind::Presumed => {
            rig.answer(call);
            rig.deliver(post);
        }
        Kind::Done => done(rig, post),
        Kind::DoneOnceResumed => {
            rig.lose(post, Seq::ORIGIN);
            let get = rig.get(Some(rig.event_id(stream, 0)));
            done(rig, get);
        }
        Kind::ReleasedUnknown | Kind::ToldUnknown => {
            rig.feed(Input::Upstream(FromUpstream::Lost(call)));
            rig.deliver(post);
            rig.wire(post, WireEvent::Fin);
            if matches!(kind, Kind::ReleasedUnknown) {
                rig.feed(Input::Release(call));
            }
        }
    }
}

/// The stream that went for a request that is never gated, and needs one.
fn victim(rig: &mut Rig) -> Option<StreamId> {
    let before: Vec<_> = rig.session.view().streams.iter().map(|view| view.id).collect();
    let next = rig.post(r#"{"jsonrpc":"2.0","id":9,"method":"tasks/result"}"#);
    rig.session.check().expect("consistent");
    let view = rig.session.view();
    let gone = before.into_iter().find(|id| view.streams.iter().all(|view| view.id != *id));
    let reason = rig.refused(next).map(|refused| refused.reason);
    assert_eq!(reason, gone.is_none().then_some(Reason::UpstreamUnavailable));
    gone
}

#[test]
fn answers_that_arrived_go_first_then_what_was_given_up_and_nothing_that_is_needed() {
    const OLDER: Option<StreamId> = Some(StreamId(1));
    const NEWER: Option<StreamId> = Some(StreamId(2));
    for (older, newer, gone) in [
        (Kind::Done, Kind::Done, OLDER),
        (Kind::Presumed, Kind::Done, NEWER),
        (Kind::DoneOnceResumed, Kind::Done, NEWER),
        (Kind::Abandoned, Kind::Done, NEWER),
        (Kind::ToldUnknown, Kind::Done, NEWER),
        (Kind::ReleasedUnknown, Kind::Presumed, OLDER),
        (Kind::Presumed, Kind::Presumed, OLDER),
        (Kind::Abandoned, Kind::Presumed, NEWER),
        (Kind::ToldUnknown, Kind::Presumed, NEWER),
        (Kind::Abandoned, Kind::Running, OLDER),
        (Kind::ToldUnknown, Kind::Running, OLDER),
        (Kind::Running, Kind::Done, NEWER),
        (Kind::Unread, Kind::Running, None),
        (Kind::Ending, Kind::Running, None),
        (Kind::Running, Kind::Owed, None),
        (Kind::Running, Kind::LeftRunning, None),
    ] {
        let mut rig = limited(3);
        let (first, second) = (post(&mut rig, "a"), post(&mut rig, "b"));
        bring_to(&mut rig, first, older);
        bring_to(&mut rig, second, newer);
        assert_eq!(victim(&mut rig), gone, "{older:?}, {newer:?}");
    }
}

#[test]
fn an_answer_that_arrived_long_ago_goes_before_one_that_a_reset_may_void() {
    for kind in [Kind::Presumed, Kind::DoneOnceResumed] {
        for (quiet_ms, gone) in [(7_999, 1), (8_000, 2)] {
            let mut rig = limited(3);
            let (first, second) = (post(&mut rig, "a"), post(&mut rig, "b"));
            bring_to(&mut rig, second, Kind::DoneOnceResumed);
            rig.pass(quiet_ms);
            bring_to(&mut rig, first, kind);
            assert_eq!(victim(&mut rig), Some(StreamId(gone)), "{kind:?} after {quiet_ms} ms");
        }
    }
}

#[test]
fn a_lost_call_that_may_run_twice_is_forgotten_with_its_stream() {
    for (tool, runs) in [("read", true), ("charge", false)] {
        let mut rig = limited(2);
        let first = post(&mut rig, tool);
        bring_to(&mut rig, first, Kind::ToldUnknown);
        assert_eq!(victim(&mut rig), Some(StreamId(1)));
        let list = rig.executed()[1];
        rig.answer(list);
        rig.deliver(rig.opened_on(StreamId(2)));
        let again = rig.post(&call("2", tool, "{}"));
        assert_eq!(rig.refused(again).is_none(), runs, "{tool}");
    }
}

#[test]
fn a_call_that_was_collected_is_not_forgotten_with_the_stream_that_it_left() {
    let mut rig = limited(3);
    let batch = rig.post_with(&[&call("1", "a", "{}"), &call("2", "b", "{}")], None);
    rig.answer(CallId(1));
    rig.feed(Input::Upstream(FromUpstream::Lost(CallId(2))));
    rig.lose(batch, Seq::ORIGIN);
    rig.pass(8_000);
    let collected = rig.post(&call("3", "a", "{}"));
    assert_eq!(
        victim(&mut rig),
        Some(StreamId(1)),
        "it is still needed for b, but nothing else is left"
    );
    rig.deliver(collected);
    rig.wire(collected, WireEvent::Fin);
    rig.pass(8_001);
    let list = rig.executed()[2];
    rig.answer(list);
    rig.deliver(rig.opened_on(StreamId(3)));
    for (tool, runs) in [("b", false), ("a", true)] {
        let again = rig.post(&call("4", tool, "{}"));
        assert_eq!(rig.refused(again).is_none(), runs, "{tool}");
    }
}

#[test]
fn answered_questions_are_forgotten_with_their_stream_and_others_are_not() {
    let mut rig = limited(3);
    let (first, second) = (post(&mut rig, "a"), post(&mut rig, "b"));
    let ask = |rig: &mut Rig, call| {
        let message = crate::support::parse(r#"{"jsonrpc":"2.0","id":"q","method":"roots/list"}"#);
        let (channel, cursor) = (Channel::Call(call), None);
        rig.feed(Input::Upstream(FromUpstream::Message { channel, message, cursor }));
    };
    ask(&mut rig, first.2);
    ask(&mut rig, second.2);
    ask(&mut rig, second.2);
    for number in [1, 2, 3] {
        let answer = format!(r#"{{"jsonrpc":"2.0","id":{number},"result":{{}}}}"#);
        rig.feed(Input::Respond(crate::support::parse(&answer)));
    }
    bring_to(&mut rig, first, Kind::Done);
    assert_eq!(victim(&mut rig), Some(StreamId(1)));
    assert_eq!(rig.session.footprint().server_requests, 2, "the other stream still has its own");
}

/// Keeps the session in use for hours: it is no idle one.
fn use_for(rig: &mut Rig, hours: u64) {
    for _ in 0..hours * 3 {
        rig.notify(r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#);
        rig.pass(HOUR_MS / 3);
    }
}

fn bytes(rig: &Rig, stream: StreamId) -> u64 {
    let view = rig.session.view();
    view.streams.iter().find(|view| view.id == stream).map_or(0, |view| view.bytes)
}

#[test]
fn what_is_past_its_retention_goes_unless_somebody_may_still_read_it() {
    for (kind, stays) in [
        (Kind::Abandoned, false),
        (Kind::Presumed, false),
        (Kind::Done, false),
        (Kind::ToldUnknown, false),
        (Kind::Unread, true),
        (Kind::Owed, true),
    ] {
        let mut settings = Settings::default();
        if stays {
            settings.limits.owed_grace_ms = None;
        }
        let mut rig = Rig::new(settings);
        let stream = post(&mut rig, "a");
        bring_to(&mut rig, stream, kind);
        use_for(&mut rig, 23);
        assert!(bytes(&rig, StreamId(1)) > 0, "{kind:?} before its retention is over");
        use_for(&mut rig, 3);
        assert_eq!(bytes(&rig, StreamId(1)) > 0, stays, "{kind:?}");
    }
}

#[test]
fn what_belongs_to_no_call_has_no_retention() {
    let mut rig = Rig::plain();
    rig.upstream(r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"x"}}"#);
    use_for(&mut rig, 26);
    assert!(bytes(&rig, StreamId::STANDALONE) > 0);
}

/// What the log says of each eviction: was its client still owed it?
fn told(rig: &Rig) -> Vec<bool> {
    let owed = rig.notes().filter_map(|note| match note {
        Note::Evicted { owed, .. } => Some(*owed),
        _ => None,
    });
    owed.collect()
}

#[test]
fn an_answer_that_expires_unread_is_told_as_owed_and_one_that_arrived_is_not() {
    for (kind, owed) in [(Kind::Abandoned, true), (Kind::Done, false)] {
        let mut rig = Rig::plain();
        let stream = post(&mut rig, "a");
        bring_to(&mut rig, stream, kind);
        use_for(&mut rig, 26);
        assert_eq!(told(&rig), [owed], "{kind:?}");
    }
}

#[test]
fn what_is_gone_is_not_dropped_again() {
    let mut rig = Rig::plain();
    let stream = post(&mut rig, "a");
    rig.progress(stream.2, 1);
    bring_to(&mut rig, stream, Kind::Done);
    rig.pass(10_000);
    for _ in 0..3 {
        // The shared quotas are used up: what its client has goes.
        rig.feed(Input::Room { bytes: 0 });
    }
    assert_eq!(rig.evictions.len(), 1, "{:?}", rig.evictions);
    assert_eq!(told(&rig), [false], "its client has it");
    assert_eq!(bytes(&rig, StreamId(1)), 0);
}
