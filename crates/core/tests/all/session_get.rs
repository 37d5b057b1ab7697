//! GET: every row of the ladder, fencing, and the replay gate (design section 6).

use crate::support::{Rig, call, parse};
use rejoin_core::effect::Command;
use rejoin_core::id::{CallId, ConnectionId, Epoch, EventId, Seq, StreamId};
use rejoin_core::input::{Channel, FromUpstream, Get, GetCursor, Input, WireEvent};
use rejoin_core::settings::Settings;

fn started(rig: &mut Rig, tool: &str) -> (ConnectionId, StreamId, CallId) {
    let post = rig.post(&call("1", tool, "{}"));
    let call = *rig.executed().last().expect("it runs");
    (post, rig.opened(post).expect("it streams").stream, call)
}

fn get(rig: &mut Rig, stream: StreamId, seq: u64) -> ConnectionId {
    let id = rig.event_id(stream, seq);
    rig.get(Some(id))
}

#[test]
fn a_cursor_on_the_last_event_is_405_and_proves_it() {
    let mut rig = Rig::plain();
    let (post, stream, call) = started(&mut rig, "a");
    rig.answer(call);
    rig.lose(post, Seq(1));
    let end = get(&mut rig, stream, 1);
    assert!(rig.not_resumable(end));
    assert_eq!(rig.state(stream), "proved");
}

#[test]
fn an_unknown_cursor_is_405_whatever_is_wrong_with_it() {
    let mut rig = Rig::plain();
    let (_, stream, call) = started(&mut rig, "a");
    rig.progress(call, 1);
    let good = rig.event_id(stream, 1);
    for cursor in [
        GetCursor::Malformed,
        GetCursor::At(EventId { epoch: Epoch(9), ..good }),
        GetCursor::At(EventId { stream: StreamId(9), ..good }),
        GetCursor::At(EventId { seq: Seq(9), ..good }),
    ] {
        let connection = rig.connection();
        rig.feed(Input::Get(Get { connection, observed: true, cursor }));
        assert!(rig.not_resumable(connection), "{cursor:?}");
    }
    assert_eq!(rig.state(stream), "live", "nothing was fenced");
}

#[test]
fn a_resumed_stream_replays_what_follows_the_cursor_and_then_lives() {
    let mut rig = Rig::plain();
    let (post, stream, call) = started(&mut rig, "a");
    rig.progress(call, 1);
    rig.progress(call, 2);
    rig.lose(post, Seq(2));
    let resumed = get(&mut rig, stream, 1);
    let attach = rig.opened(resumed).expect("it resumes").clone();
    assert_eq!(attach.prime, Some(rig.event_id(stream, 1)), "it repeats the cursor");
    assert_eq!(attach.replay_until, Some(rig.event_id(stream, 2)));
    assert_eq!(rig.state(stream), "live");
    let caught_up = get(&mut rig, stream, 2);
    let attach = rig.opened(caught_up).expect("it resumes").clone();
    assert_eq!((attach.replay_until, rig.session.view().replays), (None, 0), "the gate is open");
}

#[test]
fn the_newest_connection_wins_and_the_older_is_told_to_stay_away() {
    let mut rig = Rig::plain();
    let (post, stream, _) = started(&mut rig, "a");
    let resumed = get(&mut rig, stream, 0);
    assert_eq!(rig.commands(post), [Command::Fence { retry_ms: 30_000 }]);
    rig.wire(post, WireEvent::Ended { sent: Seq::ORIGIN });
    rig.wire(post, WireEvent::Lost { sent: Seq::ORIGIN, acknowledged: false });
    assert_eq!(rig.state(stream), "live");
    rig.lose(resumed, Seq::ORIGIN);
    assert_eq!(rig.state(stream), "owed");
}

#[test]
fn an_evicted_stream_names_its_gap_and_one_whose_answer_expired_ends_with_an_error() {
    let mut rig = Rig::plain();
    let (post, stream, call) = started(&mut rig, "a");
    rig.progress(call, 1);
    rig.answer(call);
    rig.lose(post, Seq(1));
    rig.pass(10_000);
    rig.post(&crate::support::call("5", "keep", "{}"));
    rig.pass(86_400_000 + 60_000);
    let late = get(&mut rig, stream, 1);
    let attach = rig.opened(late).expect("never 404, never an empty 200").clone();
    let word = attach.last_word.expect("the answer is gone");
    let word = String::from_utf8_lossy(&word);
    assert!(word.contains(r#""id":1"#) && word.contains("error"), "{word}");
    assert!(attach.gap.is_some_and(|gap| gap.contains("-2")));
}

#[test]
fn progress_goes_before_responses_when_the_log_is_full() {
    let mut settings = Settings::default();
    crate::support::cap_log(&mut settings, 800);
    let mut rig = Rig::new(settings);
    let (post, stream, call) = started(&mut rig, "a");
    for progress in 1..6 {
        rig.progress(call, progress);
    }
    rig.answer(call);
    rig.lose(post, Seq(1));
    rig.pass(10_000);
    let (_, _, other) = started(&mut rig, "b");
    for progress in 1..6 {
        rig.progress(other, progress);
    }
    let late = get(&mut rig, stream, 1);
    let attach = rig.opened(late).expect("the response is kept").clone();
    assert!(attach.gap.is_some() && attach.last_word.is_none());
    rig.session.check().expect("consistent");
}

#[test]
fn a_get_without_cursor_attaches_after_what_was_sent() {
    let mut rig = Rig::plain();
    let note = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#;
    let first = rig.get(None);
    rig.upstream(note);
    rig.upstream(note);
    rig.wire(first, WireEvent::Progress { sent: Seq(1) });
    let second = rig.get(None);
    assert_eq!(rig.commands(first), [Command::Fence { retry_ms: 30_000 }]);
    assert_eq!(rig.opened(second).map(|attach| attach.after), Some(Seq(1)));
    assert_eq!(rig.session.view().replays, 0, "a backlog is no replay");
}

#[test]
fn a_standalone_replay_holds_posts_while_it_runs() {
    let mut rig = Rig::plain();
    rig.upstream(r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#);
    let replay = get(&mut rig, StreamId::STANDALONE, 0);
    rig.post(&call("1", "a", "{}"));
    assert!(rig.executed().is_empty());
    rig.lose(replay, Seq(1));
    assert_eq!(rig.session.view().replays, 0);
}

#[test]
fn server_requests_that_were_answered_are_not_asked_again() {
    let mut rig = Rig::plain();
    let (post, stream, _) = started(&mut rig, "a");
    for id in ["q", "r"] {
        rig.upstream(&format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"roots/list"}}"#));
    }
    rig.feed(Input::Respond(parse(r#"{"jsonrpc":"2.0","id":2,"result":{}}"#)));
    rig.lose(post, Seq(2));
    let resumed = get(&mut rig, stream, 0);
    assert_eq!(rig.opened(resumed).map(|attach| attach.skip.clone()), Some(vec![Seq(2)]));
}

#[test]
fn a_get_on_a_held_post_withdraws_it_and_says_so() {
    let mut rig = Rig::plain();
    let (post, ..) = started(&mut rig, "a");
    rig.lose(post, Seq::ORIGIN);
    let held = rig.post(&call("2", "b", "{}"));
    rig.pass(300);
    let stream = rig.opened(held).expect("headers are out").stream;
    let ask = get(&mut rig, stream, 0);
    assert!(rig.opened(ask).is_some_and(|attach| attach.replay_until.is_some()));
    assert!(rig.events_after(stream, Seq::ORIGIN)[0].1.contains("40908"));
    rig.pass(20_000);
    assert_eq!(rig.executed().len(), 1);
}

/// A session with a replay of two events running, and a POST that it holds.
fn replaying() -> (Rig, StreamId, ConnectionId) {
    let mut rig = Rig::plain();
    let (post, stream, call) = started(&mut rig, "a");
    rig.progress(call, 1);
    rig.answer(call);
    rig.lose(post, Seq(2));
    let replay = get(&mut rig, stream, 0);
    let held = rig.post(&crate::support::call("2", "b", "{}"));
    rig.pass(300);
    rig.wire(held, WireEvent::HeadersAcknowledged);
    assert_eq!(rig.executed().len(), 1);
    (rig, stream, replay)
}

#[test]
fn the_gate_opens_when_the_client_acknowledges_the_high_water_mark() {
    let (mut rig, stream, _) = replaying();
    let below = rig.event_id(stream, 1);
    rig.feed(Input::Acknowledge(vec![below]));
    assert_eq!(rig.executed().len(), 1);
    let mark = rig.event_id(stream, 2);
    rig.feed(Input::Acknowledge(vec![mark]));
    assert_eq!(rig.executed().len(), 2);
}

#[test]
fn the_gate_opens_when_the_replay_arrived_and_its_connection_closes_or_goes_on() {
    for event in [WireEvent::Fin, WireEvent::NextRequest] {
        let (mut rig, _, replay) = replaying();
        rig.wire(replay, WireEvent::FinalHanded);
        rig.wire(replay, event);
        assert_eq!(rig.executed().len(), 1, "not before it arrived");
        rig.wire(replay, WireEvent::FinalAcknowledged);
        assert_eq!(rig.executed().len(), 2, "{event:?}");
    }
}

#[test]
fn the_gate_opens_when_the_replay_arrived_and_the_settle_time_passed() {
    let (mut rig, _, replay) = replaying();
    rig.wire(replay, WireEvent::ReplayAcknowledged);
    rig.pass(499);
    assert_eq!(rig.executed().len(), 1);
    rig.pass(1);
    assert_eq!(rig.executed().len(), 2);
}

#[test]
fn the_gate_opens_when_the_replays_connection_is_lost_but_the_stream_is_owed_again() {
    let (mut rig, stream, replay) = replaying();
    rig.lose(replay, Seq(1));
    assert_eq!(rig.session.view().replays, 0);
    assert_eq!((rig.state(stream), rig.executed().len()), ("owed", 1));
    rig.pass(8_000);
    assert_eq!(rig.executed().len(), 2);
}

#[test]
fn a_fenced_replay_gates_nothing_but_the_newer_one_does() {
    let (mut rig, stream, _) = replaying();
    let newer = get(&mut rig, stream, 1);
    assert_eq!(rig.session.view().replays, 1);
    rig.wire(newer, WireEvent::ReplayAcknowledged);
    rig.pass(500);
    assert_eq!(rig.executed().len(), 2);
}

#[test]
fn a_late_result_behind_the_end_of_a_batch_is_no_part_of_its_replay() {
    let mut rig = Rig::plain();
    let post = rig.post_with(&[&call("1", "a", "{}"), &call("2", "b", "{}")], None);
    let stream = rig.opened(post).expect("it streams").stream;
    let (a, b) = (rig.executed()[0], rig.executed()[1]);
    rig.notify(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    rig.answer(b);
    rig.answer(a);
    rig.lose(post, Seq::ORIGIN);
    assert_eq!(rig.log[&stream].iter().map(|event| event.last).collect::<Vec<_>>(), [true, false]);
    let resumed = get(&mut rig, stream, 0);
    let until = rig.opened(resumed).and_then(|attach| attach.replay_until);
    assert_eq!(until, Some(rig.event_id(stream, 1)));
}

#[test]
fn a_replay_leaves_the_gate_of_another_stream_closed() {
    let mut rig = Rig::plain();
    let (first, one, call) = started(&mut rig, "a");
    let (second, two, other) = started(&mut rig, "b");
    rig.progress(call, 1);
    rig.progress(other, 1);
    rig.lose(first, Seq::ORIGIN);
    rig.lose(second, Seq::ORIGIN);
    get(&mut rig, one, 0);
    get(&mut rig, two, 0);
    assert_eq!(rig.session.view().replays, 2);
}

#[test]
fn only_a_client_that_knows_priming_events_gets_one_on_a_post_that_was_sent_again() {
    for (asked, primes) in [("2025-06-18", false), ("2025-11-25", true)] {
        let mut rig = Rig::asking(asked);
        let (post, stream, call) = started(&mut rig, "a");
        rig.progress(call, 1);
        rig.lose(post, Seq::ORIGIN);
        let again = rig.post(&crate::support::call("1", "a", "{}"));
        let attach = rig.opened(again).expect("the transport sent it again");
        assert_eq!((attach.stream, attach.prime.is_some()), (stream, primes));
        let resumed = get(&mut rig, stream, 0);
        assert!(rig.opened(resumed).is_some_and(|attach| attach.prime.is_some()));
    }
}

#[test]
fn only_the_answered_requests_of_this_stream_behind_the_cursor_are_left_out() {
    let mut rig = Rig::plain();
    let (first, one, call) = started(&mut rig, "a");
    let ask = |rig: &mut Rig, call: CallId| {
        let (channel, cursor) = (Channel::Call(call), None);
        let message = parse(r#"{"jsonrpc":"2.0","id":"q","method":"roots/list"}"#);
        rig.feed(Input::Upstream(FromUpstream::Message { channel, message, cursor }));
    };
    ask(&mut rig, call);
    ask(&mut rig, call);
    let (second, two, other) = started(&mut rig, "b");
    ask(&mut rig, other);
    for id in [1, 3] {
        rig.feed(Input::Respond(parse(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#))));
    }
    rig.lose(first, Seq::ORIGIN);
    rig.lose(second, Seq::ORIGIN);
    let skipped = |rig: &Rig, get| rig.opened(get).map(|attach| attach.skip.clone());
    let resumed = get(&mut rig, one, 0);
    assert_eq!(skipped(&rig, resumed), Some(vec![Seq(1)]));
    let resumed = get(&mut rig, one, 1);
    assert_eq!(skipped(&rig, resumed), Some(vec![]), "the cursor is on it");
    let resumed = get(&mut rig, two, 0);
    assert_eq!(skipped(&rig, resumed), Some(vec![Seq(3)]));
}
