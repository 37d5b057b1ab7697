//! Dedup tokens (design section 5, "Token"): reuse, races with other sessions, undone claims.

use crate::support::{Rig, call, parse};
use rejoin_core::effect::{Effect, Output, ToUpstream};
use rejoin_core::id::{CallId, ConnectionId, Seq, StreamId};
use rejoin_core::input::{Channel, FromUpstream, Input, Post, Request};
use rejoin_core::rejection::Reason;
use rejoin_core::settings::Settings;
use rejoin_core::token::{DedupKey, DedupRecord, Outcome, Owner, Token};

fn token(name: u8) -> Token {
    Token { key: DedupKey([name; 32]), attempt: 1, epoch: None }
}

fn reason(rig: &Rig, post: ConnectionId) -> Option<Reason> {
    rig.refused(post).map(|rejection| rejection.reason)
}

fn answer(rig: &Rig, post: ConnectionId) -> Option<String> {
    let stream = rig.opened(post)?.stream;
    rig.events_after(stream, Seq::ORIGIN).last().map(|(_, text)| text.clone())
}

/// A row that another session wrote.
fn foreign(body: &str, outcome: Outcome) -> DedupRecord {
    DedupRecord {
        owner: Owner { session: [9; 32], call: CallId(3) },
        params: parse(body).canonical_params_hash(),
        outcome,
        result_expires_ms: u64::MAX,
        expires_ms: u64::MAX,
    }
}

/// A POST that was looked up before another session took its token.
fn post_unaware(rig: &mut Rig, bodies: &[(&str, Option<Token>)]) -> ConnectionId {
    let connection = rig.connection();
    let request = |(body, token): &(&str, Option<Token>)| Request {
        message: parse(body),
        token: *token,
        record: None,
        scope: None,
    };
    let requests: Vec<_> = bodies.iter().map(request).collect();
    let batch = requests.len() > 1;
    rig.feed(Input::Post(Post { connection, observed: true, requests, batch, body: [1; 32] }));
    connection
}

fn sound(rig: &Rig) {
    rig.session.check().expect("the session is consistent");
}

#[test]
fn a_token_with_other_params_is_refused_whatever_became_of_its_call() {
    let mut rig = Rig::plain();
    let first = rig.post_token(&call("1", "a", "{}"), "t");
    let again = rig.post_token(&call("2", "a", r#"{"n":1}"#), "t");
    assert_eq!(reason(&rig, again), Some(Reason::DedupTokenReused));
    rig.answer(rig.executed()[0]);
    rig.deliver(first);
    let again = rig.post_token(&call("3", "a", r#"{"n":1}"#), "t");
    assert_eq!(reason(&rig, again), Some(Reason::DedupTokenReused));
}

#[test]
fn a_token_is_stripped_and_the_ids_are_minted_before_upstream_sees_them() {
    let mut rig = Rig::plain();
    let meta = concat!(
        r#"{"dev.rejoin/dedup-token":"t","dev.rejoin/attempt":1,"#,
        r#""progressToken":"p","keep":1}"#
    );
    let params = format!(r#"{{"name":"a","_meta":{meta}}}"#);
    let body = format!(r#"{{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{params}}}"#);
    rig.post_with(&[&body], Some(token(1)));
    let sent = rig.effects.iter().find_map(|effect| match effect {
        Effect::Upstream(ToUpstream::Call { message, .. }) => Some(message.clone()),
        _ => None,
    });
    let sent = String::from_utf8_lossy(&sent.expect("it ran")).into_owned();
    assert!(!sent.contains("dev.rejoin") && sent.contains(r#""keep":1"#), "{sent}");
    assert!(sent.contains(r#""id":1"#) && sent.contains(r#""progressToken":1"#), "{sent}");
}

#[test]
fn a_claim_whose_token_was_taken_meanwhile_is_undone_and_refused() {
    let body = call("1", "a", "{}");
    let mut rig = Rig::plain();
    rig.tokens.insert(token(1).key, foreign(&body, Outcome::Running));
    let post = post_unaware(&mut rig, &[(&body, Some(token(1)))]);
    assert_eq!(reason(&rig, post), Some(Reason::RequestInFlight));
    assert!(rig.executed().is_empty() && rig.session.view().calls.is_empty());
    assert_eq!(rig.session.view().streams.len(), 1);
    sound(&rig);
}

#[test]
fn a_claim_that_was_undone_on_a_held_stream_leaves_no_hole_in_it() {
    let (held, body) = (call("1", "a", "{}"), call("2", "a", "{}"));
    let mut rig = Rig::plain();
    let owed = rig.post(&call("9", "slow", "{}"));
    let owed_stream = rig.opened(owed).expect("it streams").stream;
    rig.lose(owed, Seq::ORIGIN);
    let batch = post_unaware(&mut rig, &[(&held, None), (&body, Some(token(1)))]);
    rig.pass(300);
    rig.wire(batch, rejoin_core::input::WireEvent::HeadersAcknowledged);
    rig.tokens.insert(token(1).key, foreign(&body, Outcome::Unknown));
    let id = rig.event_id(owed_stream, 0);
    rig.get(Some(id));
    assert_eq!(rig.executed().len(), 2, "the other request of the batch ran, once");
    let stream = rig.opened(batch).expect("headers were out").stream;
    let events = rig.events_after(stream, Seq::ORIGIN);
    assert!(events.len() == 1 && events[0].1.contains("40906"), "{events:?}");
    assert_eq!(rig.state(stream), "live");
    sound(&rig);
}

#[test]
fn a_refused_claim_does_not_lose_the_servers_restart() {
    let body = call("1", "a", "{}");
    let mut rig = Rig::new(Settings { upstream_is_stateless: true, ..Settings::default() });
    rig.feed(Input::Upstream(FromUpstream::Closed));
    rig.tokens.insert(token(1).key, foreign(&body, Outcome::Running));
    post_unaware(&mut rig, &[(&body, Some(token(1)))]);
    rig.post(&call("2", "b", "{}"));
    let reopened = |e: &&Effect| matches!(e, Effect::Upstream(ToUpstream::Reopen { .. }));
    assert_eq!(rig.effects.iter().filter(reopened).count(), 1);
}

#[test]
fn a_refused_supersede_puts_the_original_back() {
    let mut settings = Settings::default();
    settings.idempotent_tools.insert("a".to_owned());
    let mut rig = Rig::new(settings);
    let first = rig.post(&call("1", "a", "{}"));
    let stream = rig.opened(first).expect("it streams").stream;
    let running = rig.executed()[0];
    rig.lose(first, Seq::ORIGIN);
    rig.pass(8_000);
    // Its tokenless repeat supersedes it, in one commit with a token that has an owner.
    let (repeat, other) = (call("2", "a", "{}"), call("3", "b", "{}"));
    rig.tokens.insert(token(1).key, foreign(&other, Outcome::Running));
    let batch = post_unaware(&mut rig, &[(&repeat, None), (&other, Some(token(1)))]);
    assert_eq!(rig.state(stream), "released", "the second decision supersedes it again");
    let answers = rig.opened(batch).expect("it streams").stream;
    assert!(rig.events_after(answers, Seq::ORIGIN)[0].1.contains("40902"));
    assert_eq!(rig.events_after(stream, Seq::ORIGIN).len(), 1, "told once");
    assert_eq!(rig.executed().len(), 2);
    sound(&rig);
    rig.answer(running);
    sound(&rig);
}

#[test]
fn a_call_whose_token_another_session_superseded_still_gets_its_late_result() {
    let mut settings = Settings::default();
    settings.idempotent_tools.insert("a".to_owned());
    let mut rig = Rig::new(settings);
    let body = call("1", "a", "{}");
    let first = rig.post_with(&[&body], Some(token(1)));
    let stream = rig.opened(first).expect("it streams").stream;
    rig.notify(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    rig.tokens.insert(token(1).key, foreign(&body, Outcome::Running));
    rig.answer(rig.executed()[0]);
    assert_eq!(rig.events_after(stream, Seq::ORIGIN).len(), 1, "the commit came again");
    assert_eq!(rig.tokens[&token(1).key].owner.session, [9; 32], "and left the row alone");
    let again = rig.post_with(&[&call("2", "a", "{}")], Some(token(1)));
    assert_eq!(reason(&rig, again), Some(Reason::RequestInFlight));
    sound(&rig);
}

#[test]
fn a_supersede_that_lost_its_row_asks_the_owner() {
    let mut settings = Settings::default();
    settings.idempotent_tools.insert("a".to_owned());
    let mut rig = Rig::new(settings);
    let body = call("1", "a", "{}");
    rig.post_with(&[&body], Some(token(1)));
    rig.notify(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    let response = r#"{"jsonrpc":"2.0","id":4,"result":{"from":"there"}}"#.into();
    rig.tokens.insert(token(1).key, foreign(&body, Outcome::Finished { response, ended_ms: 1 }));
    let again = post_unaware(&mut rig, &[(&call("2", "a", "{}"), Some(token(1)))]);
    assert!(rig.replied(again).is_some_and(|text| text.contains("there")));
    assert_eq!(rig.executed().len(), 1);
    sound(&rig);
}

#[test]
fn a_token_twice_in_one_batch_runs_once() {
    let mut rig = Rig::plain();
    let (a, b, c) = (call("1", "a", "{}"), call("2", "a", "{}"), call("3", "a", r#"{"n":1}"#));
    let batch = rig.post_with(&[&a, &b, &c], Some(token(1)));
    assert_eq!(rig.executed().len(), 1);
    let stream = rig.opened(batch).expect("it streams").stream;
    let events = rig.events_after(stream, Seq::ORIGIN);
    assert!(events[0].1.contains("40902") && events[0].1.contains(r#""id":2"#), "{events:?}");
    assert!(events[1].1.contains("40904") && events[1].1.contains(r#""id":3"#), "{events:?}");
    rig.answer(rig.executed()[0]);
    assert_eq!(rig.log[&stream].iter().filter(|event| event.last).count(), 1);
}

#[test]
fn a_claim_that_upstream_never_saw_or_refused_as_malformed_frees_its_token_and_params() {
    for code in [-32_700, -32_600, -32_601, -32_602] {
        let mut rig = Rig::plain();
        let first = rig.post_token(&call("1", "a", "{}"), "t");
        let error = format!(r#"{{"code":{code},"message":"no"}}"#);
        rig.upstream(&format!(r#"{{"jsonrpc":"2.0","id":1,"error":{error}}}"#));
        rig.lose(first, Seq(1));
        rig.get(Some(rig.event_id(StreamId(1), 1)));
        rig.post_token(&call("2", "a", r#"{"fixed":true}"#), "t");
        assert_eq!(rig.executed().len(), 2, "{code}");
    }
    let mut rig = Rig::plain();
    rig.post_token(&call("1", "a", "{}"), "t");
    rig.upstream(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"broken"}}"#);
    rig.pass(1_000);
    let again = rig.post_token(&call("2", "a", "{}"), "t");
    assert_eq!(reason(&rig, again), Some(Reason::RequestInFlight), "still on its way");
}

#[test]
fn an_upstream_error_is_recorded_and_the_record_says_so_in_its_data() {
    let mut rig = Rig::plain();
    let first = rig.post_token(&call("1", "a", "{}"), "t");
    rig.upstream(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"broken"}}"#);
    rig.deliver(first);
    let again = rig.post_token(&call("2", "a", "{}"), "t");
    let text = answer(&rig, again).expect("the record");
    assert!(text.contains("broken") && text.contains(r#""dev.rejoin/recorded""#), "{text}");
}

#[test]
fn a_token_on_a_request_that_is_never_gated_means_nothing() {
    let mut rig = Rig::plain();
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    rig.tokens.insert(token(1).key, foreign(ping, Outcome::Running));
    post_unaware(&mut rig, &[(ping, Some(token(1)))]);
    assert_eq!(rig.executed().len(), 1);
    sound(&rig);
}

#[test]
fn a_tokenless_repeat_that_supersedes_a_tokened_call_leaves_no_running_row_behind() {
    let mut settings = Settings::default();
    settings.idempotent_tools.insert("a".to_owned());
    let mut rig = Rig::new(settings);
    let first = rig.post_token(&call("1", "a", "{}"), "t");
    rig.lose(first, Seq::ORIGIN);
    rig.post(&call("2", "a", "{}"));
    assert_eq!(rig.executed().len(), 2);
    let row = rig.tokens.values().next().expect("the row");
    assert_eq!(row.outcome, Outcome::Cancelled);
    sound(&rig);
}

#[test]
fn a_cancelled_token_gives_the_record_once_its_result_came() {
    let mut rig = Rig::plain();
    rig.post_token(&call("1", "a", "{}"), "t");
    rig.notify(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    let again = rig.post_token(&call("2", "a", "{}"), "t");
    assert_eq!(reason(&rig, again), Some(Reason::OutcomeUnknown));
    rig.answer(rig.executed()[0]);
    let again = rig.post_token(&call("3", "a", "{}"), "t");
    assert!(answer(&rig, again).is_some_and(|text| text.contains("dev.rejoin/recorded")));
}

#[test]
fn a_refused_outcome_comes_again_whole() {
    let mut rig = Rig::plain();
    let body = call("1", "a", "{}");
    rig.post_with(&[&body], Some(token(1)));
    let mut out = Output::default();
    let result = parse(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    let event = FromUpstream::Message { channel: Channel::Unknown, message: result, cursor: None };
    rig.session.handle(Input::Upstream(event), rig.now_ms, &mut out);
    let mut again = Output::default();
    let record = foreign(&body, Outcome::Running);
    let taken = Input::TokenTaken { call: CallId(1), record };
    rig.session.handle(taken, rig.now_ms, &mut again);
    assert_eq!(again.batch.events, out.batch.events);
    assert_eq!((again.batch.dedup.len(), again.batch.durable), (0, true));
    assert_eq!(again.effects.len(), out.effects.len());
    sound(&rig);
}

#[test]
fn the_numbers_of_an_undone_claim_are_reserved_durably() {
    let mut rig = Rig::plain();
    let body = call("1", "a", "{}");
    rig.post_with(&[&body], Some(token(1)));
    let record = foreign(&body, Outcome::Running);
    let mut out = Output::default();
    rig.session.handle(Input::TokenTaken { call: CallId(1), record }, rig.now_ms, &mut out);
    assert!(out.batch.session.is_some(), "the row that reserves them");
    assert!(out.batch.durable);
}

#[test]
fn a_row_of_this_session_whose_call_it_no_longer_has_is_an_unknown_outcome() {
    let mut rig = Rig::plain();
    let body = call("1", "a", "{}");
    let owner = Owner { session: rig.session.start().session, call: CallId(99) };
    rig.tokens.insert(token(1).key, DedupRecord { owner, ..foreign(&body, Outcome::Running) });
    let post = post_unaware(&mut rig, &[(&body, Some(token(1)))]);
    assert_eq!(reason(&rig, post), Some(Reason::OutcomeUnknown));
    assert!(rig.executed().is_empty());
    sound(&rig);
}

#[test]
fn a_record_is_kept_for_its_retention_and_its_token_for_a_week() {
    let mut rig = Rig::plain();
    rig.post_with(&[&call("1", "a", "{}")], Some(token(1)));
    rig.answer(rig.executed()[0]);
    let row = &rig.tokens[&token(1).key];
    assert_eq!(row.result_expires_ms, rig.now_ms + 86_400_000);
    assert_eq!(row.expires_ms, rig.now_ms + 7 * 86_400_000);
}

#[test]
fn news_of_a_superseded_call_leaves_the_row_to_the_one_that_took_it() {
    let mut settings = Settings::default();
    settings.idempotent_tools.insert("read".to_owned());
    let mut rig = Rig::new(settings);
    let first = rig.post_with(&[&call("1", "read", "{}")], Some(token(1)));
    rig.lose(first, Seq::ORIGIN);
    let second = rig.post_with(&[&call("2", "read", "{}")], Some(token(1)));
    assert_eq!(rig.executed().len(), 2);
    rig.answer(rig.executed()[1]);
    rig.deliver(second);
    rig.pass(700_000);
    rig.feed(Input::Upstream(FromUpstream::NotSent(rig.executed()[0])));
    let row = &rig.tokens[&token(1).key];
    assert_eq!(row.owner.call, rig.executed()[1]);
    assert!(matches!(row.outcome, Outcome::Finished { .. }), "{row:?}");
}
