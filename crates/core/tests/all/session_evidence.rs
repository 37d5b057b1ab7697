//! What moves a cursor and a stream's state (design section 3), row by row.

use crate::support::{Rig, call, parse};
use rejoin_core::effect::{Effect, ToUpstream};
use rejoin_core::id::{CallId, ConnectionId, Epoch, EventId, Seq, StreamId};
use rejoin_core::input::{Input, Post, Request, WireEvent};
use rejoin_core::rejection::Reason;
use rejoin_core::settings::{Delivery, Settings};

fn started(rig: &mut Rig, tool: &str) -> (ConnectionId, StreamId, CallId) {
    let post = rig.post(&call("1", tool, "{}"));
    let call = *rig.executed().last().expect("it runs");
    (post, rig.opened(post).expect("it streams").stream, call)
}

fn cursors(rig: &Rig, stream: StreamId) -> (u64, u64, u64) {
    let view = rig.session.view();
    let view = view.streams.iter().find(|view| view.id == stream).expect("it is kept");
    let seq = |id: &str| id.parse::<EventId>().expect("an event id").seq.0;
    (seq(&view.produced), seq(&view.sent), seq(&view.acked))
}

/// An answered call whose final event was handed over and acknowledged by the peer's kernel.
fn presumed(rig: &mut Rig) -> (ConnectionId, StreamId) {
    let (post, stream, call) = started(rig, "a");
    rig.answer(call);
    rig.deliver(post);
    assert_eq!(rig.state(stream), "presumed");
    (post, stream)
}

#[test]
fn bytes_handed_over_move_sent_only() {
    let mut rig = Rig::plain();
    let (post, stream, call) = started(&mut rig, "a");
    rig.progress(call, 1);
    rig.progress(call, 2);
    rig.wire(post, WireEvent::Progress { sent: Seq(1) });
    assert_eq!(cursors(&rig, stream), (2, 1, 0));
    rig.wire(post, WireEvent::Progress { sent: Seq(99) });
    assert_eq!(cursors(&rig, stream), (2, 2, 0), "never beyond what was produced");
}

#[test]
fn a_cursor_of_a_get_acknowledges_and_a_lower_one_later_is_legal() {
    let mut rig = Rig::plain();
    let (post, stream, call) = started(&mut rig, "a");
    for progress in 1..4 {
        rig.progress(call, progress);
    }
    rig.lose(post, Seq(3));
    let id = rig.event_id(stream, 2);
    rig.get(Some(id));
    assert_eq!(cursors(&rig, stream), (3, 3, 2));
    let id = rig.event_id(stream, 1);
    let get = rig.get(Some(id));
    assert_eq!(cursors(&rig, stream), (3, 3, 2));
    assert_eq!(rig.opened(get).map(|attach| attach.after), Some(Seq(1)));
}

#[test]
fn an_ack_moves_the_cursor_and_unknown_ids_are_ignored() {
    let mut rig = Rig::plain();
    let (_, stream, call) = started(&mut rig, "a");
    rig.progress(call, 1);
    let good = rig.event_id(stream, 1);
    let other_epoch = EventId { epoch: Epoch(2), ..good };
    let beyond = EventId { seq: Seq(50), ..good };
    let unknown = EventId { stream: StreamId(77), ..good };
    rig.feed(Input::Acknowledge(vec![other_epoch, beyond, unknown]));
    assert_eq!(cursors(&rig, stream).2, 0);
    rig.feed(Input::Acknowledge(vec![unknown, good]));
    assert_eq!(cursors(&rig, stream), (1, 1, 1));
}

#[test]
fn the_answer_to_a_server_request_acknowledges_its_event() {
    let mut rig = Rig::plain();
    let (_, stream, call) = started(&mut rig, "a");
    rig.progress(call, 1);
    rig.upstream(r#"{"jsonrpc":"2.0","id":"q","method":"roots/list"}"#);
    rig.feed(Input::Respond(parse(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#)));
    assert_eq!(cursors(&rig, stream), (2, 2, 2));
    let sent = |e: &Effect| {
        let Effect::Upstream(ToUpstream::Send(bytes)) = e else { return false };
        String::from_utf8_lossy(bytes).contains(r#""id":"q""#)
    };
    assert_eq!(rig.effects.iter().filter(|e| sent(e)).count(), 1);
    rig.feed(Input::Respond(parse(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#)));
    assert_eq!(rig.effects.iter().filter(|e| sent(e)).count(), 1, "answered twice, sent once");
}

#[test]
fn an_end_that_was_handed_over_is_ending_and_doubtful_after_ending_max() {
    let mut rig = Rig::plain();
    let (post, stream, call) = started(&mut rig, "a");
    rig.answer(call);
    rig.wire(post, WireEvent::FinalHanded);
    rig.pass(44_999);
    assert_eq!(rig.state(stream), "ending");
    rig.wire(post, WireEvent::FinalHanded);
    rig.pass(1);
    assert_eq!(rig.state(stream), "doubtful", "told twice, it still ends");
}

#[test]
fn an_ending_stream_that_loses_its_connection_is_presumed_only_if_all_was_acknowledged() {
    for (acknowledged, state) in [(true, "presumed"), (false, "doubtful")] {
        let mut rig = Rig::plain();
        let (post, stream, call) = started(&mut rig, "a");
        rig.answer(call);
        rig.wire(post, WireEvent::FinalHanded);
        rig.wire(post, WireEvent::Lost { sent: Seq(1), acknowledged });
        assert_eq!(rig.state(stream), state);
    }
}

#[test]
fn where_no_socket_can_be_seen_a_clean_end_is_presumed_after_a_second() {
    let mut rig = Rig::plain();
    let connection = rig.connection();
    let message = parse(&call("1", "a", "{}"));
    let requests = vec![Request { message, token: None, record: None, scope: None }];
    let body = [0; 32];
    rig.feed(Input::Post(Post { connection, observed: false, requests, batch: false, body }));
    let stream = rig.opened(connection).expect("it streams").stream;
    rig.answer(rig.executed()[0]);
    rig.wire(connection, WireEvent::FinalHanded);
    rig.pass(999);
    assert_eq!(rig.state(stream), "ending");
    rig.pass(1);
    assert_eq!(rig.state(stream), "presumed");
    assert_eq!(rig.session.footprint().connections, 0);
}

#[test]
fn a_reset_counts_within_its_window_and_before_the_connections_next_request() {
    for (wait_ms, event, state) in [
        (5_000, None, "doubtful"),
        (5_001, None, "presumed"),
        (0, Some(WireEvent::Fin), "presumed"),
        (0, Some(WireEvent::NextRequest), "presumed"),
    ] {
        let mut rig = Rig::plain();
        let (post, stream) = presumed(&mut rig);
        rig.pass(wait_ms);
        if let Some(event) = event {
            rig.wire(post, event);
        }
        rig.wire(post, WireEvent::Reset);
        assert_eq!(rig.state(stream), state, "{wait_ms} {event:?}");
    }
}

#[test]
fn the_window_of_a_reset_starts_when_the_last_byte_arrived() {
    let mut rig = Rig::plain();
    let (post, stream, call) = started(&mut rig, "a");
    rig.answer(call);
    rig.wire(post, WireEvent::FinalHanded);
    rig.pass(20_000);
    rig.wire(post, WireEvent::FinalAcknowledged);
    rig.pass(4_000);
    rig.wire(post, WireEvent::Reset);
    assert_eq!(rig.state(stream), "doubtful", "what lay in a full connection was not read before");
}

#[test]
fn a_reset_while_ending_is_doubt() {
    let mut rig = Rig::plain();
    let (post, stream, call) = started(&mut rig, "a");
    rig.answer(call);
    rig.wire(post, WireEvent::FinalHanded);
    rig.wire(post, WireEvent::Reset);
    assert_eq!(rig.state(stream), "doubtful");
}

#[test]
fn a_reset_of_an_older_connection_says_nothing_of_a_newer_one() {
    let mut rig = Rig::plain();
    let (post, stream) = presumed(&mut rig);
    let id = rig.event_id(stream, 0);
    let get = rig.get(Some(id));
    rig.deliver(get);
    rig.wire(post, WireEvent::Reset);
    assert_eq!(rig.state(stream), "presumed");
    rig.wire(post, WireEvent::Fin);
    rig.wire(get, WireEvent::Reset);
    assert_eq!(rig.state(stream), "doubtful", "its own still counts");
}

#[test]
fn the_last_event_acknowledged_is_proof_in_whatever_state() {
    let mut rig = Rig::plain();
    let (post, stream) = presumed(&mut rig);
    let id = rig.event_id(stream, 1);
    rig.feed(Input::Acknowledge(vec![id]));
    assert_eq!(rig.state(stream), "proved");
    rig.wire(post, WireEvent::Reset);
    assert_eq!(rig.state(stream), "proved");
}

#[test]
fn who_proved_the_end_and_reads_again_is_owed_nothing() {
    let mut rig = Rig::plain();
    let (_, stream) = presumed(&mut rig);
    let last = rig.event_id(stream, 1);
    rig.feed(Input::Acknowledge(vec![last]));
    let id = rig.event_id(stream, 0);
    let get = rig.get(Some(id));
    assert!(rig.opened(get).is_some());
    rig.lose(get, Seq(1));
    assert_eq!(rig.state(stream), "proved");
    rig.post(&call("2", "b", "{}"));
    assert_eq!(rig.executed().len(), 2);
}

#[test]
fn the_grace_counts_detached_time_since_the_cursor_moved() {
    let mut rig = Rig::plain();
    let (post, stream, call) = started(&mut rig, "a");
    rig.progress(call, 1);
    rig.progress(call, 2);
    rig.lose(post, Seq(2));
    rig.pass(5_000);
    let id = rig.event_id(stream, 0);
    let get = rig.get(Some(id));
    rig.pass(60_000);
    rig.lose(get, Seq(2));
    rig.pass(2_999);
    assert_eq!(rig.state(stream), "owed", "attached time is not counted");
    rig.pass(1);
    assert_eq!(rig.state(stream), "abandoned", "nor is a resume that confirms nothing a new start");
    let id = rig.event_id(stream, 1);
    let get = rig.get(Some(id));
    rig.lose(get, Seq(2));
    rig.pass(7_999);
    assert_eq!(rig.state(stream), "owed", "a moved cursor is");
    let id = rig.event_id(stream, 2);
    rig.feed(Input::Acknowledge(vec![id]));
    rig.pass(7_999);
    assert_eq!(rig.state(stream), "owed", "also while detached");
    rig.pass(1);
    assert_eq!(rig.state(stream), "abandoned");
}

#[test]
fn a_strict_session_never_abandons() {
    let mut settings = Settings::default();
    settings.limits.owed_grace_ms = None;
    let mut rig = Rig::new(settings);
    let (post, stream, _) = started(&mut rig, "a");
    rig.lose(post, Seq::ORIGIN);
    rig.pass(1_000_000);
    assert_eq!(rig.state(stream), "owed");
    let held = rig.post(&call("2", "b", "{}"));
    rig.pass(10_000);
    let stream = rig.opened(held).expect("headers are out").stream;
    let events = rig.events_after(stream, Seq::ORIGIN);
    assert!(events[0].1.contains("40901") && events[0].1.contains(r#""sendAgain":true"#));
    assert_eq!(rig.executed().len(), 1);
}

#[test]
fn under_proved_delivery_a_presumed_call_is_collected_for_the_whole_window() {
    let mut rig = Rig::new(Settings { delivery: Delivery::Proved, ..Settings::default() });
    let (_, stream, call) = started(&mut rig, "a");
    rig.pass(30_000);
    rig.answer(call);
    let post = ConnectionId(2);
    rig.deliver(post);
    rig.wire(post, WireEvent::Fin);
    rig.pass(599_000);
    assert_eq!(rig.state(stream), "presumed");
    let again = rig.post(&crate::support::call("2", "a", "{}"));
    let record = rig.opened(again).expect("it streams").stream;
    assert!(rig.events_after(record, Seq::ORIGIN)[0].1.contains("dev.rejoin/recorded"));
    assert_eq!(rig.executed().len(), 1);
}

#[test]
fn a_connection_that_goes_before_its_stream_was_opened_is_a_loss() {
    let mut rig = Rig::plain();
    let (post, stream, _) = started(&mut rig, "a");
    rig.feed(Input::Gone(post));
    assert_eq!(rig.state(stream), "owed");
    let id = rig.event_id(stream, 0);
    let get = rig.get(Some(id));
    rig.feed(Input::Gone(get));
    assert_eq!(rig.state(stream), "owed");
}

#[test]
fn a_clean_end_that_was_ordered_leaves_a_running_call_owed() {
    let mut rig = Rig::plain();
    let (post, stream, _) = started(&mut rig, "a");
    rig.feed(Input::Drain { retry_ms: 5_000 });
    rig.wire(post, WireEvent::Ended { sent: Seq::ORIGIN });
    assert_eq!(rig.state(stream), "owed");
}

#[test]
fn a_collected_call_brings_its_scar_along() {
    let mut rig = Rig::plain();
    let (post, _) = presumed(&mut rig);
    rig.wire(post, WireEvent::Reset);
    let collect = rig.post(&call("2", "a", "{}"));
    rig.deliver(collect);
    rig.wire(collect, WireEvent::Fin);
    let again = rig.post(&call("3", "a", "{}"));
    let reason = rig.refused(again).map(|refused| refused.reason);
    assert_eq!(reason, Some(Reason::RequestInFlight));
    rig.pass(8_000);
    rig.post(&call("4", "a", "{}"));
    assert_eq!(rig.executed().len(), 2);
}

#[test]
fn a_late_resume_makes_its_call_an_original_again() {
    let mut rig = Rig::plain();
    let (post, stream) = presumed(&mut rig);
    rig.wire(post, WireEvent::Fin);
    let second = rig.post(&call("2", "a", "{}"));
    rig.answer(rig.executed()[1]);
    rig.deliver(second);
    rig.wire(second, WireEvent::Fin);
    rig.pass(60_000);
    let id = rig.event_id(stream, 0);
    rig.get(Some(id));
    let retry = rig.post(&call("3", "a", "{}"));
    let reason = rig.refused(retry).map(|refused| refused.reason);
    assert_eq!(reason, Some(Reason::RequestInFlight));
    assert_eq!(rig.executed().len(), 2);
}

#[test]
fn proof_that_comes_late_does_not_make_a_settled_stream_fresh_again() {
    let mut rig = Rig::plain();
    let (post, stream, call) = started(&mut rig, "a");
    rig.lose(post, Seq::ORIGIN);
    rig.answer(call);
    let id = rig.event_id(stream, 0);
    let get = rig.get(Some(id));
    rig.deliver(get);
    rig.wire(get, WireEvent::Fin);
    rig.pass(8_000);
    let last = rig.event_id(stream, 1);
    rig.feed(Input::Acknowledge(vec![last]));
    rig.post(&crate::support::call("2", "a", "{}"));
    assert_eq!(rig.executed().len(), 2, "the ack came with a deliberate new call");
}

#[test]
fn a_repeat_just_after_a_resumed_answer_is_told_that_it_arrived_and_when_to_come_again() {
    let mut rig = Rig::plain();
    let first = rig.post(&call("1", "a", "{}"));
    let stream = rig.opened(first).expect("it streams").stream;
    rig.lose(first, Seq::ORIGIN);
    let get = rig.get(Some(rig.event_id(stream, 0)));
    rig.answer(rig.executed()[0]);
    rig.deliver(get);
    rig.wire(get, WireEvent::Fin);
    rig.pass(3_000);
    let repeat = rig.post(&call("2", "a", "{}"));
    let rejection = rig.refused(repeat).expect("a late retry may still be on its way").clone();
    assert_eq!(rejection.reason, Reason::RequestInFlight);
    assert!(rejection.send_again && rejection.hint.is_none(), "{rejection:?}");
    assert!(rejection.message().contains("has just run"), "{}", rejection.message());
    rig.pass(rejection.retry_after_ms);
    rig.post(&call("3", "a", "{}"));
    assert_eq!(rig.executed().len(), 2, "at the time it named");
}

#[test]
fn a_refusal_points_to_no_answer_that_is_not_this_requests_own() {
    let mut rig = Rig::plain();
    rig.post_token(&call("1", "a", r#"{"n":1}"#), "t");
    let other = rig.post_token(&call("2", "a", r#"{"n":2}"#), "t");
    assert!(rig.refused(other).expect("the token is another's").hint.is_none());

    let mut rig = Rig::plain();
    let lost = rig.post(&call("1", "a", "{}"));
    rig.lose(lost, Seq::ORIGIN);
    rig.answer(rig.executed()[0]);
    let repeat = rig.post(&call("2", "a", "{}"));
    let hint = rig.refused(repeat).expect("owed").hint.clone().expect("resumable");
    assert_eq!(hint.original_request_id.as_deref(), Some(&b"1"[..]));
}

#[test]
fn a_reset_that_comes_after_its_window_means_nothing_although_no_deadline_has_fired() {
    let mut rig = Rig::plain();
    let (post, stream) = presumed(&mut rig);
    rig.now_ms += 5_001;
    rig.wire(post, WireEvent::Reset);
    assert_eq!(rig.state(stream), "presumed");
}

#[test]
fn a_reset_before_the_end_is_a_loss() {
    let mut rig = Rig::plain();
    let (post, stream, _) = started(&mut rig, "a");
    rig.wire(post, WireEvent::Reset);
    assert_eq!(rig.state(stream), "owed");
}
