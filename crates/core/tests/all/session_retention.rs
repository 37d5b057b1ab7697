//! What is kept, for how long, and what a session remembers in the end (design sections 3 and 9).

use crate::support::{Rig, call, parse};
use rejoin_core::effect::{Command, Effect, Output, ToUpstream};
use rejoin_core::id::{CallId, ConnectionId, Epoch, Seq, StreamId, digest};
use rejoin_core::input::{Channel, FromUpstream, Input, Post, Request, WireEvent};
use rejoin_core::message::Message;
use rejoin_core::rejection::Reason;
use rejoin_core::revision::Revision;
use rejoin_core::session::{Session, SessionStart};
use rejoin_core::settings::Settings;

fn stream(rig: &Rig, connection: ConnectionId) -> StreamId {
    rig.opened(connection).expect("it streams").stream
}

fn bounded(streams_max: usize) -> Rig {
    let mut settings = Settings::default();
    settings.limits.session_streams_max = streams_max;
    Rig::new(settings)
}

/// One call that is answered, delivered, and followed by another request.
fn whole(rig: &mut Rig, tool: &str) {
    let post = rig.post(&call("1", tool, "{}"));
    let call = *rig.executed().last().expect("it runs");
    rig.answer(call);
    rig.deliver(post);
    rig.wire(post, WireEvent::NextRequest);
}

fn request(message: &Message) -> Request {
    Request { message: message.clone(), token: None, record: None, scope: None }
}

fn ended(rig: &Rig) -> bool {
    rig.effects.iter().any(|effect| matches!(effect, Effect::End))
}

#[test]
fn a_fast_client_never_runs_into_the_cap_of_streams() {
    let mut rig = bounded(8);
    for _ in 0..100 {
        whole(&mut rig, "a");
    }
    assert_eq!(rig.executed().len(), 100);
    assert_eq!(rig.session.view().streams.len(), 8);
    rig.session.check().expect("consistent");
}

#[test]
fn a_cancelled_or_lost_call_is_remembered_while_others_come_and_go() {
    for lost in [false, true] {
        let mut rig = bounded(8);
        let first = rig.post(&call("7", "charge", "{}"));
        if lost {
            rig.feed(Input::Upstream(FromUpstream::Sent(rig.executed()[0])));
            rig.feed(Input::Upstream(FromUpstream::Closed));
            rig.deliver(first);
            rig.wire(first, WireEvent::Fin);
            rig.post(&call("8", "told", "{}"));
        } else {
            rig.notify(
                r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#,
            );
        }
        for _ in 0..50 {
            whole(&mut rig, "a");
            rig.pass(1_000);
        }
        let repeat = rig.post(&call("9", "charge", "{}"));
        let reason = rig.refused(repeat).map(|refused| refused.reason);
        assert_eq!(reason, Some(Reason::OutcomeUnknown), "lost: {lost}");
    }
}

#[test]
fn with_every_stream_still_needed_a_call_is_refused_before_it_runs() {
    let mut rig = bounded(4);
    for id in 1..4 {
        rig.post(&call(&id.to_string(), &format!("t{id}"), "{}"));
    }
    let beyond = rig.post(&call("4", "t4", "{}"));
    assert_eq!(
        rig.refused(beyond).map(|refused| refused.reason),
        Some(Reason::UpstreamUnavailable)
    );
    assert_eq!(rig.executed().len(), 3);
    let list = rig.post(r#"{"jsonrpc":"2.0","id":5,"method":"tools/list"}"#);
    assert_eq!(rig.executed().len(), 4, "a read needs no stream");
    assert!(rig.refused(list).is_none());
    rig.lose(ConnectionId(2), Seq::ORIGIN);
    rig.answer(rig.executed()[0]);
    rig.pass(8_000);
    rig.post(&call("6", "t6", "{}"));
    assert_eq!(rig.executed().len(), 5, "one that was given up goes first");
    let noted = |e: &Effect| {
        matches!(e, Effect::Note(rejoin_core::effect::Note::Evicted { owed: true, .. }))
    };
    assert!(rig.effects.iter().any(noted), "and is never evicted silently");
}

#[test]
fn responses_count_towards_the_quota_and_settled_ones_make_room() {
    let mut settings = Settings::default();
    crate::support::cap_log(&mut settings, 3_000);
    let mut rig = Rig::new(settings);
    let big = "x".repeat(800);
    for round in 0..10 {
        let post = rig.post(&call("1", "a", "{}"));
        let call = *rig.executed().last().expect("it runs");
        rig.upstream(&format!(r#"{{"jsonrpc":"2.0","id":{call},"result":{{"big":"{big}"}}}}"#));
        rig.deliver(post);
        rig.wire(post, WireEvent::Fin);
        rig.pass(6_000);
        assert!(rig.session.log_bytes() <= 3_000, "round {round}");
        rig.session.check().expect("consistent");
    }
    assert_eq!(rig.executed().len(), 10);
}

#[test]
fn an_answer_larger_than_the_whole_log_is_told_as_such_and_its_repeat_does_not_run() {
    let mut settings = Settings::default();
    crate::support::cap_log(&mut settings, 1_000);
    let mut rig = Rig::new(settings);
    let post = rig.post(&call("1", "a", "{}"));
    let big = "x".repeat(2_000);
    rig.upstream(&format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"big":"{big}"}}}}"#));
    let events = &rig.log[&stream(&rig, post)];
    let text = String::from_utf8_lossy(&events[0].payload).into_owned();
    assert!(events.len() == 1 && text.contains("more than the log may keep"), "{text}");
    assert!(events[0].last);
    rig.lose(post, Seq::ORIGIN);
    let repeat = rig.post(&call("2", "a", "{}"));
    assert_eq!(rig.refused(repeat).map(|refused| refused.reason), Some(Reason::OutcomeUnknown));
    rig.session.check().expect("consistent");
}

#[test]
fn streams_past_the_retention_keep_nothing_but_their_name() {
    let mut rig = Rig::plain();
    rig.post(&call("1", "runs", "{}"));
    let cancelled = rig.post(&call("2", "b", "{}"));
    rig.notify(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#);
    let answered = rig.post(&call("3", "a", "{}"));
    rig.answer(rig.executed()[2]);
    rig.lose(answered, Seq::ORIGIN);
    for _ in 0..25 {
        rig.progress(rig.executed()[0], 1);
        rig.pass(3_500_000);
    }
    assert_eq!(rig.state(stream(&rig, answered)), "released");
    let get = rig.get(Some(rig.event_id(stream(&rig, answered), 0)));
    let attach = rig.opened(get).expect("never 404").clone();
    let word = attach.last_word.expect("the answer is gone");
    assert!(String::from_utf8_lossy(&word).contains(r#""id":3"#));
    let get = rig.get(Some(rig.event_id(stream(&rig, cancelled), 0)));
    assert!(rig.not_resumable(get), "cancelled stays cancelled");
    rig.session.check().expect("consistent");
    rig.answer(rig.executed()[0]);
    assert_eq!(rig.state(StreamId(1)), "live", "what runs is never expired");
}

#[test]
fn an_idle_session_ends_and_one_that_owes_only_closes_its_child() {
    let mut rig = Rig::plain();
    whole(&mut rig, "a");
    rig.pass(1_799_000);
    assert!(!ended(&rig));
    rig.pass(1_000);
    assert!(ended(&rig));

    let mut rig = Rig::plain();
    let post = rig.post(&call("1", "a", "{}"));
    rig.answer(rig.executed()[0]);
    rig.lose(post, Seq::ORIGIN);
    rig.pass(1_900_000);
    assert!(!ended(&rig));
    let close = |e: &&Effect| matches!(e, Effect::Upstream(ToUpstream::Close));
    assert_eq!(rig.effects.iter().filter(close).count(), 1);
    rig.pass(90_000_000);
    assert!(ended(&rig), "but not for ever");
}

#[test]
fn a_session_is_not_idle_just_after_a_long_call_was_answered() {
    let mut rig = Rig::plain();
    let post = rig.post(&call("1", "a", "{}"));
    rig.pass(3_590_000);
    rig.answer(rig.executed()[0]);
    rig.deliver(post);
    rig.wire(post, WireEvent::Fin);
    rig.pass(1_700_000);
    assert!(!ended(&rig), "its client has had the answer for less than the idle time");
    rig.pass(100_000);
    assert!(ended(&rig));
}

#[test]
fn delete_cancels_what_runs_answers_who_waits_and_ends_the_session() {
    let mut rig = Rig::plain();
    let lost = rig.post(&call("1", "a", "{}"));
    rig.lose(lost, Seq::ORIGIN);
    let quick = rig.post(&call("2", "b", "{}"));
    rig.pass(300);
    let quicker = rig.post(&call("3", "c", "{}"));
    let standalone = rig.get(None);
    rig.feed(Input::Delete);
    assert!(ended(&rig));
    let cancelled = |e: &&Effect| matches!(e, Effect::Upstream(ToUpstream::Cancel { .. }));
    assert_eq!(rig.effects.iter().filter(cancelled).count(), 1);
    assert_eq!(rig.refused(quicker).map(|refused| refused.reason), Some(Reason::Withdrawn));
    assert!(rig.events_after(stream(&rig, quick), Seq::ORIGIN)[0].1.contains("40908"));
    assert_eq!(rig.commands(standalone), [Command::Finish { retry_ms: None }]);
    assert_eq!(rig.session.poll_timeout(), None);
}

#[test]
fn a_release_by_hand_ends_every_refusal_of_a_call() {
    let mut rig = Rig::plain();
    let post = rig.post(&call("1", "a", "{}"));
    rig.lose(post, Seq::ORIGIN);
    rig.feed(Input::Release(rig.executed()[0]));
    rig.post(&call("2", "a", "{}"));
    assert_eq!(rig.executed().len(), 2, "by params");

    let mut rig = Rig::plain();
    rig.post_token(&call("1", "a", "{}"), "t");
    rig.feed(Input::Upstream(FromUpstream::Sent(CallId(1))));
    rig.feed(Input::Upstream(FromUpstream::Closed));
    rig.feed(Input::Release(CallId(1)));
    let told = rig.post_token(&call("2", "a", "{}"), "t");
    assert_eq!(rig.refused(told).map(|refused| refused.reason), Some(Reason::StateLost));
    rig.post_token(&call("3", "a", "{}"), "t");
    assert_eq!(rig.executed().len(), 2, "by token");
    rig.session.check().expect("consistent");
}

#[test]
fn a_released_stream_still_reaches_its_reader() {
    let mut rig = Rig::plain();
    let post = rig.post(&call("1", "a", "{}"));
    let id = rig.executed()[0];
    rig.feed(Input::Release(id));
    rig.answer(id);
    assert_eq!(rig.events_after(stream(&rig, post), Seq::ORIGIN).len(), 1);
    rig.deliver(post);
    assert_eq!(rig.state(stream(&rig, post)), "released");
    rig.wire(post, WireEvent::Fin);
    assert_eq!(rig.session.footprint().connections, 0);
}

#[test]
fn a_drain_ends_every_stream_and_says_when_to_come_back() {
    let mut rig = Rig::plain();
    let post = rig.post(&call("1", "a", "{}"));
    let standalone = rig.get(None);
    rig.feed(Input::Drain { retry_ms: 7_000 });
    for connection in [post, standalone] {
        assert_eq!(rig.commands(connection), [Command::Finish { retry_ms: Some(7_000) }]);
    }
}

#[test]
fn a_drain_withdraws_what_waits_before_it_ends_the_streams() {
    let mut rig = Rig::plain();
    let owed = rig.post(&call("1", "slow", "{}"));
    rig.lose(owed, Seq::ORIGIN);
    let headed = rig.post(&call("2", "a", "{}"));
    rig.pass(300);
    let bare = rig.post(&call("3", "b", "{}"));
    let held = stream(&rig, headed);
    assert_eq!(rig.state(held), "held");
    let live = rig.get(None);
    rig.effects.clear();
    rig.feed(Input::Drain { retry_ms: 7_000 });
    let refusal = rig.refused(bare).expect("its headers were not out");
    assert_eq!((refusal.reason, refusal.send_again), (Reason::Withdrawn, true));
    let events = rig.events_after(held, Seq::ORIGIN);
    assert!(events.len() == 1 && events[0].1.contains("40908"), "{events:?}");
    assert!(events[0].1.contains(r#""sendAgain":true"#), "{events:?}");
    assert!(rig.log[&held][0].last && rig.state(held) == "released");
    assert!(rig.commands(headed).is_empty(), "it ends with its last event, and not before");
    let refused = |e: &Effect| matches!(e, Effect::Refuse { .. });
    let finish = |e: &Effect| matches!(e, Effect::Command(id, _) if *id == live);
    let at = |found: &dyn Fn(&Effect) -> bool| rig.effects.iter().position(found);
    assert!(at(&refused) < at(&finish) && at(&finish).is_some());
    assert_eq!(rig.session.view().waiting, 0);
    rig.pass(20_000);
    assert_eq!(rig.executed().len(), 0, "what was withdrawn is not claimed later");
    rig.session.check().expect("consistent");
}

#[test]
fn a_drain_does_not_cut_a_stream_whose_last_event_is_still_to_be_written() {
    let mut rig = Rig::plain();
    let post = rig.post(&call("1", "a", "{}"));
    rig.answer(rig.executed()[0]);
    rig.feed(Input::Drain { retry_ms: 7_000 });
    assert!(rig.commands(post).is_empty());
    rig.deliver(post);
    assert_eq!(rig.state(stream(&rig, post)), "presumed");
}

#[test]
fn a_session_that_runs_a_hundred_thousand_calls_stays_small() {
    let start = SessionStart {
        session: digest(b"session"),
        ledger_epoch: 1,
        call_base: CallId(0),
        epoch: Epoch(1),
        asked: Revision::new("2025-11-25"),
        agreed: Revision::new("2025-11-25"),
        origin: bytes::Bytes::new(),
        continuation: None,
        settings: std::sync::Arc::new(Settings::default()),
    };
    let mut session = Session::new(start, 1_000_000);
    let message = parse(&call("1", "a", "{}"));
    let mut now_ms = 1_000_000;
    let feed = |session: &mut Session, input, now_ms| {
        let mut out = Output::default();
        session.handle(input, now_ms, &mut out);
        let ran = out.effects.iter().find_map(|effect| match effect {
            Effect::Upstream(ToUpstream::Call { call, .. }) => Some(*call),
            _ => None,
        });
        while session.poll_timeout().is_some_and(|at_ms| at_ms <= now_ms) {
            session.handle(Input::Tick, now_ms, &mut Output::default());
        }
        ran
    };
    let mut most = session.footprint();
    for number in 0..100_000 {
        now_ms += 7;
        let connection = ConnectionId(number);
        let requests = vec![request(&message)];
        let (batch, body) = (false, [0; 32]);
        let post = Post { connection, observed: true, requests, batch, body };
        let call = feed(&mut session, Input::Post(post), now_ms).expect("it runs at once");
        let answer = parse(&format!(r#"{{"jsonrpc":"2.0","id":{call},"result":{{}}}}"#));
        let event =
            FromUpstream::Message { channel: Channel::Unknown, message: answer, cursor: None };
        feed(&mut session, Input::Upstream(event), now_ms);
        for event in [WireEvent::FinalHanded, WireEvent::FinalAcknowledged, WireEvent::NextRequest]
        {
            feed(&mut session, Input::Wire(connection, event), now_ms);
        }
        let footprint = session.footprint();
        most.calls = most.calls.max(footprint.calls);
        most.streams = most.streams.max(footprint.streams);
        most.connections = most.connections.max(footprint.connections);
        most.timers = most.timers.max(footprint.timers);
    }
    assert!(most.streams <= 1_024 && most.calls <= 1_024, "{most:?}");
    assert!(most.connections <= 2 && most.timers <= 1_000, "{most:?}");
    session.check().expect("consistent");
}

#[test]
fn a_json_read_leaves_no_row_behind_once_it_is_answered() {
    let mut rig = Rig::plain();
    for id in 1..=50 {
        let list = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list"}}"#);
        rig.post(&list);
        let call = *rig.executed().last().expect("it runs");
        rig.answer(call);
    }
    assert!(rig.rows.calls.is_empty(), "{} rows stay", rig.rows.calls.len());
}

#[test]
fn a_store_forgets_the_rows_of_streams_that_the_session_forgot() {
    let mut rig = Rig::plain();
    for id in 1..=1_500 {
        let post = rig.post(&call(&id.to_string(), "a", "{}"));
        rig.answer(*rig.executed().last().expect("it runs"));
        rig.deliver(post);
        rig.wire(post, WireEvent::Fin);
        rig.effects.clear();
        rig.log.clear();
    }
    let streams_max = rejoin_core::limits::Limits::default().session_streams_max;
    assert!(rig.rows.streams.len() <= streams_max, "{} streams", rig.rows.streams.len());
    assert!(rig.rows.calls.len() <= streams_max, "{} calls", rig.rows.calls.len());
}

#[test]
fn a_read_that_waits_for_a_task_is_a_stream_that_can_be_resumed() {
    let mut rig = Rig::plain();
    let wait = r#"{"jsonrpc":"2.0","id":1,"method":"tasks/result","params":{"taskId":"t"}}"#;
    let post = rig.post(wait);
    let stream = stream(&rig, post);
    rig.lose(post, Seq::ORIGIN);
    rig.post(&call("2", "other", "{}"));
    assert_eq!(rig.executed().len(), 2, "it is owed nothing, and holds nothing");
    rig.answer(rig.executed()[0]);
    let get = rig.get(Some(rig.event_id(stream, 0)));
    assert!(rig.opened(get).is_some_and(|attach| attach.last_word.is_none()));
    assert_eq!(rig.events_after(stream, Seq::ORIGIN).len(), 1);
    rig.session.check().expect("consistent");
}
