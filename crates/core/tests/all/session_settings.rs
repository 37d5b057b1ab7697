//! What a session keeps to tell it to a server that is started again, and what bounds that.

use crate::support::{Rig, parse};
use bytes::Bytes;
use rejoin_core::effect::{Effect, Note, ToUpstream};
use rejoin_core::id::ConnectionId;
use rejoin_core::input::{FromUpstream, Input};
use rejoin_core::message::{Incoming, parse as parse_bytes};
use rejoin_core::rejection::Reason;
use rejoin_core::settings::Settings;

fn request(id: u32, method: &str, uri: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"resources/{method}","params":{{"uri":"{uri}"}}}}"#
    )
}

fn subscribe(rig: &mut Rig, id: u32, uri: &str) -> ConnectionId {
    rig.post(&request(id, "subscribe", uri))
}

/// Subscribes, and the server agrees.
fn subscribed(rig: &mut Rig, id: u32, uri: &str) {
    let post = subscribe(rig, id, uri);
    assert!(rig.refused(post).is_none(), "there is room for {uri}");
    let call = *rig.executed().last().expect("it was sent");
    rig.answer(call);
}

/// The messages for a server that ends and is started again.
fn told(rig: &mut Rig) -> Vec<Bytes> {
    rig.feed(Input::Upstream(FromUpstream::Closed));
    rig.post(r#"{"jsonrpc":"2.0","id":"again","method":"tools/list"}"#);
    let restore = rig.effects.iter().rev().find_map(|effect| match effect {
        Effect::Upstream(ToUpstream::Reopen { restore }) => Some(restore.clone()),
        _ => None,
    });
    restore.expect("it is started again")
}

fn capped(count: usize, bytes: usize) -> Rig {
    let mut settings = Settings::default();
    settings.limits.upstream.kept_settings_max = count;
    settings.limits.upstream.kept_settings_bytes_max = bytes;
    Rig::new(settings)
}

fn is_refused(rig: &Rig, post: ConnectionId) -> bool {
    rig.refused(post).is_some_and(|refused| refused.reason == Reason::UpstreamUnavailable)
}

#[test]
fn only_what_the_server_agreed_to_is_told_again() {
    let mut rig = Rig::plain();
    subscribed(&mut rig, 1, "file:kept");
    for (id, end) in (2..).zip(["refused", "lost", "unanswered"]) {
        subscribe(&mut rig, id, end);
        let call = *rig.executed().last().unwrap();
        rig.feed(Input::Upstream(FromUpstream::Sent(call)));
        match end {
            "refused" => {
                let error = r#"{"code":-32601,"message":"no"}"#;
                rig.upstream(&format!(r#"{{"jsonrpc":"2.0","id":{call},"error":{error}}}"#));
            }
            "lost" => rig.feed(Input::Upstream(FromUpstream::Lost(call))),
            _ => {}
        }
    }
    let told = told(&mut rig);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(String::from_utf8_lossy(&told[0]).contains("file:kept"));
}

#[test]
fn one_setting_more_than_is_kept_is_refused_unsent_and_names_the_limits() {
    let mut rig = capped(2, 10_000);
    subscribed(&mut rig, 1, "file:a");
    // It takes its place before it is answered.
    subscribe(&mut rig, 2, "file:b");
    let sent = rig.executed().len();
    let third = subscribe(&mut rig, 3, "file:c");
    assert!(is_refused(&rig, third));
    assert_eq!(rig.executed().len(), sent, "it was not sent");
    let limits = rig.effects.iter().find_map(|effect| match effect {
        Effect::Note(Note::NoRoom { limits }) => Some(*limits),
        _ => None,
    });
    assert_eq!(
        limits,
        Some(&["upstream.kept_settings_max", "upstream.kept_settings_bytes_max"][..])
    );
    let again = subscribe(&mut rig, 4, "file:a");
    assert!(!is_refused(&rig, again), "what is kept already takes no more");
    rig.post(&request(5, "unsubscribe", "file:a"));
    let fourth = subscribe(&mut rig, 6, "file:c");
    assert!(!is_refused(&rig, fourth), "what was taken back has made room");
}

#[test]
fn settings_that_no_server_answered_give_their_room_back_when_their_calls_end() {
    let mut rig = capped(1, 10_000);
    for id in 1..=3 {
        let post = subscribe(&mut rig, id, &format!("file:{id}"));
        assert!(!is_refused(&rig, post), "{id}");
        let call = *rig.executed().last().unwrap();
        match id {
            1 => rig.feed(Input::Upstream(FromUpstream::NotSent(call))),
            _ => rig.notify(&format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
            )),
        }
    }
    assert!(told(&mut rig).is_empty());
}

#[test]
fn settings_are_bounded_in_bytes() {
    let mut rig = capped(100, 1_000);
    subscribed(&mut rig, 1, &"a".repeat(500));
    let large = subscribe(&mut rig, 2, &"b".repeat(500));
    assert!(is_refused(&rig, large));
    subscribed(&mut rig, 3, "file:c");
    assert_eq!(told(&mut rig).len(), 2);
}

#[test]
fn the_requests_of_a_batch_share_the_room_for_settings() {
    let mut rig = capped(2, 10_000);
    let batch: Vec<_> = (1..=3).map(|id| request(id, "subscribe", &format!("file:{id}"))).collect();
    let bodies: Vec<_> = batch.iter().map(String::as_str).collect();
    rig.post_with(&bodies, None);
    assert_eq!(rig.executed().len(), 2);
}

#[test]
fn what_is_kept_of_a_batch_does_not_keep_the_batch() {
    let mut rig = Rig::plain();
    let padding = "p".repeat(10_000);
    let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let other = format!(r#"{{"jsonrpc":"2.0","method":"notifications/{padding}"}}"#);
    let body = Bytes::from(format!("[{initialized},{other}]"));
    let Ok(Incoming::Batch(messages)) = parse_bytes(body.clone(), 64) else { panic!("a batch") };
    rig.feed(Input::Notify(messages[0].clone()));
    let sent = rig.effects.iter().find_map(|effect| match effect {
        Effect::Upstream(ToUpstream::Send(bytes)) => Some(bytes.clone()),
        _ => None,
    });
    let kept = told(&mut rig);
    for bytes in kept.iter().chain(&sent) {
        assert_eq!(parse(initialized).bytes(), bytes);
        assert!(!body.as_ptr_range().contains(&bytes.as_ptr()), "a slice keeps all of the batch");
    }
    assert!(sent.is_some() && kept.len() == 1);
}

#[test]
fn what_is_kept_outlives_the_process() {
    let mut rig = Rig::plain();
    subscribed(&mut rig, 1, "file:kept");
    rig.restart();
    let told = told(&mut rig);
    assert!(told.len() == 1 && told[0].windows(9).any(|text| text == b"file:kept"), "{told:?}");
}
