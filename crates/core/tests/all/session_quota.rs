//! What the caps of a session must never cost: an answer, or a second execution (design section 9).

use crate::support::{Rig, call};
use rejoin_core::effect::{Effect, Note, ToUpstream};
use rejoin_core::id::{CallId, EventId, Seq, StreamId, digest};
use rejoin_core::input::{Input, Post, Request, WireEvent};
use rejoin_core::rejection::Reason;
use rejoin_core::session::BackPressure;
use rejoin_core::settings::{Delivery, Settings};
use rejoin_core::token::{DedupKey, DedupRecord, Outcome, Owner, Token};

fn refused(rig: &Rig, post: rejoin_core::id::ConnectionId) -> Option<Reason> {
    rig.refused(post).map(|rejection| rejection.reason)
}

fn bounded(change: impl FnOnce(&mut Settings)) -> Rig {
    let mut settings = Settings::default();
    change(&mut settings);
    Rig::new(settings)
}

fn last_call(rig: &Rig) -> u64 {
    rig.executed().last().expect("it runs").0
}

fn answer_with(rig: &mut Rig, bytes: usize) {
    let (call, text) = (last_call(rig), "x".repeat(bytes));
    rig.upstream(&format!(r#"{{"jsonrpc":"2.0","id":{call},"result":{{"text":"{text}"}}}}"#));
}

#[test]
fn unread_notifications_make_way_for_an_answer() {
    let mut rig = bounded(|settings| crate::support::cap_log(settings, 20_000));
    let text = "y".repeat(900);
    for _ in 0..40 {
        rig.upstream(&format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"data":"{text}"}}}}"#
        ));
    }
    let post = rig.post(&call("1", "charge", "{}"));
    answer_with(&mut rig, 15_000);
    let stream = rig.opened(post).expect("it streams").stream;
    let (_, answer) = rig.events_after(stream, Seq::ORIGIN)[0].clone();
    assert!(answer.contains("xxxx"), "the answer is kept: {}", &answer[..80]);
}

#[test]
fn a_burst_of_confirmed_answers_makes_way_for_the_next() {
    let mut rig = bounded(|settings| crate::support::cap_log(settings, 20_000));
    for id in 1..=10 {
        let post = rig.post(&call(&id.to_string(), "charge", &format!(r#"{{"n":{id}}}"#)));
        let stream = rig.opened(post).expect("it streams").stream;
        answer_with(&mut rig, 6_000);
        let (seq, answer) = rig.events_after(stream, Seq::ORIGIN)[0].clone();
        assert!(answer.contains("xxxx"), "answer {id}: {}", &answer[..80]);
        rig.deliver(post);
        let id: EventId = rig.event_id(stream, seq);
        rig.feed(Input::Acknowledge(vec![id]));
    }
}

fn waits(rig: &Rig) -> bool {
    rig.session.back_pressure(rig.now_ms) != BackPressure::None
}

fn quotas(settings: &mut Settings) {
    settings.limits.session_log_bytes_max = 20_000;
    settings.limits.session_log_hard_bytes_max = 80_000;
}

/// Calls, answers and delivers `calls` answers of 6,000 bytes at one moment.
fn burst(rig: &mut Rig, calls: std::ops::RangeInclusive<u64>) -> Vec<Option<Reason>> {
    calls
        .map(|id| {
            let post = rig.post(&call(&id.to_string(), "charge", &format!(r#"{{"n":{id}}}"#)));
            let Some(stream) = rig.opened(post).map(|attach| attach.stream) else {
                return refused(rig, post);
            };
            answer_with(rig, 6_000);
            let (_, answer) = rig.events_after(stream, Seq::ORIGIN)[0].clone();
            assert!(answer.contains("xxxx"), "answer {id}: {}", &answer[..80]);
            rig.deliver(post);
            rig.wire(post, WireEvent::Fin);
            None
        })
        .collect()
}

#[test]
fn answers_that_a_reset_may_still_void_are_kept_beyond_the_quota_until_it_cannot() {
    let mut rig = bounded(quotas);
    assert_eq!(burst(&mut rig, 1..=9), [None; 9], "three times the quota, and all answered");
    assert!(rig.session.log_bytes() > 50_000);
    rig.pass(6_000);
    assert!(rig.session.log_bytes() <= 20_000, "{}", rig.session.log_bytes());
    assert_eq!(burst(&mut rig, 10..=18), [None; 9]);
    rig.session.check().expect("consistent");
}

#[test]
fn a_call_that_might_not_find_room_below_the_hard_limit_is_refused_before_it_runs() {
    let mut rig = bounded(quotas);
    let refusals = burst(&mut rig, 1..=12);
    let first = refusals.iter().position(Option::is_some).expect("the log is full");
    assert!(first >= 8, "{refusals:?}");
    assert!(refusals[first..].iter().all(|r| *r == Some(Reason::UpstreamUnavailable)));
    assert_eq!(rig.executed().len(), first);
    rig.pass(6_000);
    assert_eq!(burst(&mut rig, 20..=20), [None], "it may come again");
}

#[test]
fn progress_of_presumed_answers_goes_before_a_call_is_refused_and_their_responses_stay() {
    let mut rig = bounded(quotas);
    for id in 1..=30 {
        let post = rig.post(&call(&id.to_string(), "charge", &format!(r#"{{"n":{id}}}"#)));
        let stream = rig.opened(post).expect("it is admitted").stream;
        for progress in 0..60 {
            rig.progress(CallId(last_call(&rig)), progress);
        }
        answer_with(&mut rig, 100);
        rig.deliver(post);
        assert_eq!(rig.state(stream), "presumed");
    }
    let kept = rig.session.view().streams.iter().filter(|stream| stream.bytes > 0).count();
    assert_eq!(kept, 30, "every response is kept");
    assert!(rig.session.log_bytes() <= 80_000, "{}", rig.session.log_bytes());
    // A reset after all: the client resumes, is told the gap, and has the answer.
    let stream = StreamId(1);
    let get = rig.get(Some(rig.event_id(stream, 1)));
    let attach = rig.opened(get).expect("it resumes").clone();
    assert!(attach.gap.is_some() && attach.last_word.is_none(), "{attach:?}");
    rig.session.check().expect("consistent");
}

#[test]
fn an_upstream_is_asked_to_wait_beyond_the_quota_and_not_for_ever() {
    let mut rig = bounded(quotas);
    burst(&mut rig, 1..=3);
    assert!(!waits(&rig));
    burst(&mut rig, 4..=4);
    assert!(waits(&rig));
    rig.pass(6_000);
    assert!(!waits(&rig), "what had arrived made room");
    let post = rig.post(&call("9", "slow", "{}"));
    for progress in 0..400 {
        rig.progress(CallId(last_call(&rig)), progress);
    }
    assert!(waits(&rig), "{}", rig.session.log_bytes());
    rig.pass(10_000);
    assert!(!waits(&rig), "nothing can make room: it goes on");
    answer_with(&mut rig, 100);
    let stream = rig.opened(post).expect("it streams").stream;
    assert!(rig.events_after(stream, Seq::ORIGIN).last().expect("an answer").1.contains("xxxx"));
}

#[test]
fn a_call_whose_stream_had_to_be_forgotten_is_not_run_again_inside_the_window() {
    let mut rig = bounded(|settings| {
        settings.limits.session_streams_max = 4;
        settings.delivery = Delivery::Proved;
    });
    for id in 1..=8 {
        let post = rig.post(&call(&id.to_string(), "charge", &format!(r#"{{"n":{id}}}"#)));
        answer_with(&mut rig, 10);
        rig.deliver(post);
        rig.wire(post, WireEvent::Fin);
    }
    assert_eq!(rig.state(StreamId(1)), "gone");
    let repeat = rig.post(&call("9", "charge", r#"{"n":1}"#));
    assert_eq!(refused(&rig, repeat), Some(Reason::OutcomeUnknown));
    assert_eq!(rig.executed().len(), 8);
    rig.pass(Settings::default().limits.repeat_window_ms + 1_000);
    let later = rig.post(&call("10", "charge", r#"{"n":1}"#));
    assert_eq!((refused(&rig, later), rig.executed().len()), (None, 9));
}

#[test]
fn what_cannot_even_be_remembered_refuses_the_next_call_before_it_runs() {
    let mut rig = bounded(|settings| {
        settings.limits.session_streams_max = 4;
        settings.limits.forgotten_calls_max = 2;
        settings.delivery = Delivery::Proved;
    });
    let mut last = None;
    for id in 1..=8 {
        let post = rig.post(&call(&id.to_string(), "charge", &format!(r#"{{"n":{id}}}"#)));
        last = refused(&rig, post);
        if last.is_some() {
            break;
        }
        answer_with(&mut rig, 10);
        rig.deliver(post);
        rig.wire(post, WireEvent::Fin);
    }
    assert_eq!(last, Some(Reason::UpstreamUnavailable));
    assert_eq!(rig.executed().len(), 5, "three kept, two remembered");
}

#[test]
fn what_clients_have_goes_when_the_shared_quotas_are_nearly_used_up() {
    let mut rig = Rig::plain();
    let post = rig.post(&call("1", "charge", "{}"));
    answer_with(&mut rig, 5_000);
    rig.deliver(post);
    rig.wire(post, WireEvent::Fin);
    rig.pass(6_000);
    assert!(rig.session.log_bytes() > 5_000);
    rig.feed(Input::Room { bytes: 10 });
    assert_eq!(rig.session.log_bytes(), 0);
}

/// An effectful call that runs; its number upstream and its stream.
fn running(rig: &mut Rig, id: u64) -> (CallId, StreamId) {
    let post = rig.post(&call(&id.to_string(), "work", &format!(r#"{{"n":{id}}}"#)));
    let stream = rig.opened(post).expect("it is admitted").stream;
    (CallId(last_call(rig)), stream)
}

fn answer_call(rig: &mut Rig, call: CallId, bytes: usize) {
    let text = "x".repeat(bytes);
    rig.upstream(&format!(r#"{{"jsonrpc":"2.0","id":{call},"result":{{"text":"{text}"}}}}"#));
}

/// The last event of a stream that is still in the log.
fn last_text(rig: &Rig, stream: StreamId) -> String {
    let last = rig.kept(stream).last();
    last.map(|event| String::from_utf8_lossy(&event.payload).into_owned()).unwrap_or_default()
}

fn evictions(rig: &Rig, id: StreamId) -> u64 {
    let notes = rig.effects.iter().filter(
        |effect| matches!(effect, Effect::Note(Note::Evicted { stream, .. }) if *stream == id),
    );
    notes.count() as u64
}

#[test]
fn a_flood_at_the_hard_limit_loses_its_own_progress_and_ends_no_call() {
    let mut rig = bounded(quotas);
    let (innocent, its_stream) = running(&mut rig, 1);
    let (flood, flooded) = running(&mut rig, 2);
    for number in 0..2_000 {
        rig.progress(flood, number);
        if number % 100 == 0 {
            rig.progress(innocent, number);
        }
        assert!(rig.session.log_bytes() + 2 * 10_000 <= 80_000, "room for two answers is kept");
    }
    assert!(evictions(&rig, flooded) > 0);
    assert_eq!(evictions(&rig, its_stream), 0, "the other stream lost nothing");
    answer_call(&mut rig, innocent, 9_000);
    answer_call(&mut rig, flood, 9_000);
    for stream in [its_stream, flooded] {
        assert!(last_text(&rig, stream).contains("xxxx"), "{stream} has its answer");
    }
    let cancelled = |e: &Effect| matches!(e, Effect::Upstream(ToUpstream::Cancel { .. }));
    assert!(!rig.effects.iter().any(cancelled));
    rig.session.check().expect("consistent");
    // Its client, which read nothing, is told the gap and finds the answer behind it.
    let get = rig.get(Some(rig.event_id(flooded, 0)));
    assert!(rig.opened(get).expect("it resumes").gap.is_some());
}

#[test]
fn progress_that_its_connection_took_makes_way_and_its_upstream_need_not_wait() {
    let mut rig = bounded(quotas);
    let post = rig.post(&call("1", "work", "{}"));
    let (flood, stream) = (CallId(last_call(&rig)), rig.opened(post).expect("open").stream);
    for number in 0..5_000 {
        rig.progress(flood, number);
        let produced = rig.events_after(stream, Seq::ORIGIN).last().expect("an event").0;
        rig.wire(post, WireEvent::Progress { sent: Seq(produced) });
        assert!(!waits(&rig), "at {number}");
    }
    let kept = rig.session.log_bytes();
    assert!((5_000..=20_000).contains(&kept), "what may be in transit is kept: {kept}");
    answer_call(&mut rig, flood, 100);
    assert!(last_text(&rig, stream).contains("xxxx"));
    rig.session.check().expect("consistent");
}

#[test]
fn only_calls_whose_client_is_far_behind_are_asked_to_wait() {
    let mut rig = bounded(quotas);
    let (quiet, _) = running(&mut rig, 1);
    let (flood, _) = running(&mut rig, 2);
    rig.progress(quiet, 1);
    for number in 0..300 {
        rig.progress(flood, number);
    }
    let pressure = rig.session.back_pressure(rig.now_ms);
    assert_eq!(pressure, BackPressure::Calls(vec![flood]));
    assert!(pressure.is_on(Some(flood)) && !pressure.is_on(Some(quiet)) && !pressure.is_on(None));
}

#[test]
fn what_a_replay_has_yet_to_read_is_not_taken_for_read() {
    let mut rig = bounded(quotas);
    let post = rig.post(&call("1", "work", "{}"));
    let (flood, stream) = (CallId(last_call(&rig)), rig.opened(post).expect("open").stream);
    for number in 0..150 {
        rig.progress(flood, number);
    }
    rig.wire(post, WireEvent::Progress { sent: Seq(150) });
    rig.lose(post, Seq(150));
    let get = rig.get(Some(rig.event_id(stream, 1)));
    assert!(rig.opened(get).expect("it resumes").gap.is_none());
    for number in 150..300 {
        rig.progress(flood, number);
    }
    assert_eq!(evictions(&rig, stream), 0, "its new connection reads it now");
    rig.wire(get, WireEvent::ReplayAcknowledged);
    rig.wire(get, WireEvent::Progress { sent: Seq(300) });
    rig.pass(2_000);
    rig.progress(flood, 300);
    assert!(evictions(&rig, stream) > 0 && rig.session.log_bytes() <= 20_000);
}

#[test]
fn every_call_that_was_admitted_finds_room_for_its_answer_whatever_fills_the_log() {
    let mut rig = bounded(quotas);
    let small: Vec<_> = (1..=3).map(|id| running(&mut rig, id)).collect();
    let large: Vec<_> = (4..=6).map(|id| running(&mut rig, id)).collect();
    for &(call, stream) in &large {
        answer_call(&mut rig, call, 30_000);
        let text = last_text(&rig, stream);
        assert!(text.contains("xxxx") || text.contains("more than the log"), "{}", &text[..90]);
    }
    assert!(rig.session.log_bytes() > 30_000, "one at least was kept");
    for &(call, stream) in &small {
        rig.progress(call, 1);
        answer_call(&mut rig, call, 9_000);
        assert!(last_text(&rig, stream).contains("xxxx"), "{stream} has its answer");
    }
    rig.session.check().expect("consistent");
}

#[test]
fn progress_without_any_room_is_told_as_a_gap() {
    let mut rig = bounded(quotas);
    let (call, stream) = running(&mut rig, 1);
    let (large, _) = running(&mut rig, 2);
    answer_call(&mut rig, large, 69_900);
    rig.progress(call, 1);
    assert_eq!(evictions(&rig, stream), 1);
    assert!(last_text(&rig, stream).is_empty(), "nothing of it is kept");
    answer_call(&mut rig, call, 9_000);
    assert!(last_text(&rig, stream).contains("xxxx"));
    let get = rig.get(Some(rig.event_id(stream, 0)));
    assert!(rig.opened(get).expect("it resumes").gap.is_some());
    rig.session.check().expect("consistent");
}

#[test]
fn a_presumed_answer_makes_way_before_another_is_lost() {
    let mut rig = bounded(quotas);
    let calls: Vec<_> = (1..=4)
        .map(|id| {
            let post = rig.post(&call(&id.to_string(), "work", &format!(r#"{{"n":{id}}}"#)));
            (post, CallId(last_call(&rig)), rig.opened(post).expect("admitted").stream)
        })
        .collect();
    for &(post, call, stream) in &calls {
        answer_call(&mut rig, call, 30_000);
        assert!(last_text(&rig, stream).contains("xxxx"), "{stream} has its answer");
        rig.deliver(post);
    }
    assert!(rig.session.log_bytes() <= 80_000);
    rig.session.check().expect("consistent");
}

#[test]
fn answers_that_nobody_came_back_for_do_not_refuse_every_later_call() {
    let mut rig = bounded(quotas);
    let mut lost = Vec::new();
    for id in 1..=12 {
        let (call, stream) = running(&mut rig, id);
        answer_call(&mut rig, call, 9_000);
        let connection = rig.opened_on(stream);
        rig.lose(connection, Seq::ORIGIN);
        lost.push(stream);
        rig.pass(120_000);
    }
    let kept = |rig: &Rig, id: StreamId| {
        rig.session.view().streams.iter().any(|stream| stream.id == id && stream.bytes > 0)
    };
    assert!(!kept(&rig, lost[0]), "the oldest made way");
    assert!(lost[9..].iter().all(|&id| kept(&rig, id)), "the newest did not");
    let owed = |e: &Effect| matches!(e, Effect::Note(Note::Evicted { owed: true, .. }));
    assert!(rig.effects.iter().any(owed), "never silently");
    // Who comes for the answer after all is told.
    let get = rig.get(Some(rig.event_id(lost[0], 0)));
    let word = rig.opened(get).expect("never 404").last_word.clone().expect("it is gone");
    assert!(String::from_utf8_lossy(&word).contains("did run"));
    rig.session.check().expect("consistent");
}

#[test]
fn the_calls_of_a_batch_need_room_for_all_their_answers_together() {
    let mut rig = bounded(quotas);
    let bodies: Vec<_> =
        (1..=9).map(|id| call(&id.to_string(), "work", &format!(r#"{{"n":{id}}}"#))).collect();
    let bodies: Vec<_> = bodies.iter().map(String::as_str).collect();
    rig.post_with(&bodies, None);
    assert_eq!(rig.executed().len(), 6, "of 60,000 bytes each may need 10,000");
    for call in rig.executed() {
        answer_call(&mut rig, call, 9_000);
    }
    let answers = rig.log.values().flatten().filter(|event| event.payload.len() > 9_000);
    assert_eq!(answers.count(), 6);
    rig.session.check().expect("consistent");
}

#[test]
fn a_question_that_was_evicted_unread_is_answered_for_its_client() {
    let mut rig = bounded(quotas);
    let (flood, stream) = running(&mut rig, 1);
    rig.upstream(r#"{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{}}"#);
    assert!(rig.events_after(stream, Seq::ORIGIN)[0].1.contains("elicitation"));
    for number in 0..2_000 {
        rig.progress(flood, number);
    }
    let answered = |e: &&Effect| {
        matches!(e, Effect::Upstream(ToUpstream::Send(body))
            if body.starts_with(br#"{"jsonrpc":"2.0","id":7,"error""#))
    };
    assert_eq!(rig.effects.iter().filter(answered).count(), 1);
}

#[test]
fn an_answer_that_is_kept_is_never_told_as_gone() {
    let mut rig = bounded(quotas);
    let (first, its_stream) = running(&mut rig, 1);
    rig.lose(rig.opened_on(its_stream), Seq::ORIGIN);
    rig.pass(8_000);
    let (given_up, lost) = running(&mut rig, 2);
    let (large, _) = running(&mut rig, 3);
    answer_call(&mut rig, given_up, 20_000);
    rig.lose(rig.opened_on(lost), Seq::ORIGIN);
    rig.pass(8_000);
    answer_call(&mut rig, large, 45_000);
    answer_call(&mut rig, first, 30_000);
    assert!(last_text(&rig, its_stream).contains("xxxx"), "it took the place of another");
    assert!(last_text(&rig, lost).is_empty());
    rig.session.check().expect("consistent");
    for (stream, is_kept) in [(its_stream, true), (lost, false)] {
        let get = rig.get(Some(rig.event_id(stream, 0)));
        let attach = rig.opened(get).expect("it resumes");
        assert_eq!(attach.last_word.is_none(), is_kept, "{stream}");
    }
}

#[test]
fn an_answer_whose_repeat_would_be_answered_by_it_is_not_given_up_for_a_call() {
    let mut rig = bounded(quotas);
    let lost = [1, 2].map(|id| {
        let (call, stream) = running(&mut rig, id);
        rig.lose(rig.opened_on(stream), Seq::ORIGIN);
        rig.pass(11 * 60_000);
        call
    });
    for call in lost {
        answer_call(&mut rig, call, 26_000);
    }
    let next = rig.post(&call("3", "work", r#"{"n":3}"#));
    assert_eq!(refused(&rig, next), Some(Reason::UpstreamUnavailable), "it may come again");
    let repeat = rig.post(&call("4", "work", r#"{"n":1}"#));
    let collected = rig.opened(repeat).expect("it is answered").stream;
    assert!(last_text(&rig, collected).contains("xxxx"), "by the record");
    assert_eq!(rig.executed().len(), 2);
}

#[test]
fn a_question_that_a_replay_has_yet_to_read_is_answered_for_its_client_if_it_is_evicted() {
    let mut rig = bounded(quotas);
    let (flood, stream) = running(&mut rig, 1);
    rig.progress(flood, 1);
    rig.upstream(r#"{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{}}"#);
    let first = rig.opened_on(stream);
    rig.wire(first, WireEvent::Progress { sent: Seq(2) });
    rig.lose(first, Seq(2));
    let get = rig.get(Some(rig.event_id(stream, 0)));
    rig.wire(get, WireEvent::Progress { sent: Seq(1) });
    let answered = |rig: &Rig| {
        let is_refusal = |e: &&Effect| {
            matches!(e, Effect::Upstream(ToUpstream::Send(body))
                if body.starts_with(br#"{"jsonrpc":"2.0","id":7,"error""#))
        };
        rig.effects.iter().filter(is_refusal).count()
    };
    assert_eq!(answered(&rig), 0, "its client is about to read it");
    for number in 0..2_000 {
        rig.progress(flood, number);
    }
    assert_eq!(answered(&rig), 1);
}

#[test]
fn what_made_room_for_a_claim_is_told_although_the_claim_was_refused() {
    let mut rig = bounded(quotas);
    let post = rig.post(&call("1", "work", "{}"));
    let (flood, stream) = (CallId(last_call(&rig)), StreamId(1));
    for number in 0..700 {
        rig.progress(flood, number);
    }
    rig.wire(post, WireEvent::Progress { sent: Seq(700) });
    assert_eq!(evictions(&rig, stream), 0);
    let key = DedupKey(digest(b"taken meanwhile"));
    let owner = Owner { session: digest(b"another session"), call: CallId(1) };
    let message = crate::support::parse(&call("2", "work", r#"{"n":2}"#));
    let params = message.canonical_params_hash();
    let outcome = Outcome::Finished { response: bytes::Bytes::from_static(b"{}"), ended_ms: 1 };
    let token = Token { key, attempt: 1, epoch: None };
    let (result_expires_ms, expires_ms) = (u64::MAX, u64::MAX);
    let record = DedupRecord { owner, params, outcome, result_expires_ms, expires_ms };
    rig.tokens.insert(key, record);
    let request = Request { message, token: Some(token), record: None, scope: None };
    let connection = rig.connection();
    let (requests, body) = (vec![request], [0; 32]);
    rig.feed(Input::Post(Post { connection, observed: true, requests, batch: false, body }));
    assert_eq!(rig.executed().len(), 1, "the claim was refused");
    let gone = rig.evictions.iter().filter(|eviction| eviction.stream == stream).count() as u64;
    assert!(gone > 0);
    assert_eq!(evictions(&rig, stream), gone, "each is told, once");
    rig.session.check().expect("consistent");
}
