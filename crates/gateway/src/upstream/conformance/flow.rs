//! Ends, deaths and back-pressure.
use std::sync::Arc;

use rejoin_core::id::CallId;
use serde_json::json;

use super::{Session, progress, response, script, write};
use crate::upstream::{CloseReason, Command, Event, Upstream};

fn closed(event: Option<&Event>) -> &CloseReason {
    match event {
        Some(Event::Closed { reason }) => reason,
        other => panic!("expected Closed, got {other:?}"),
    }
}

/// A server that dies in calls: first everything it wrote, then `Closed`; sent calls stay sent.
pub async fn a_death_in_a_call_closes_the_session_after_its_messages(upstream: Arc<dyn Upstream>) {
    let mut session = Session::open(&upstream).await;
    session.script(1, [json!({ "wait": "never" })]).await;
    // The answer to another call is on its way when the server dies.
    let answer = [json!({ "wait": "answer" }), write(response(3, "1")), json!({ "signal": "die" })];
    session.script(3, answer).await;
    let steps = [
        json!({ "write": progress(2, "#N#"), "times": 200 }),
        json!({ "signal": "answer" }),
        json!({ "wait": "die" }),
        json!({ "die": 3 }),
    ];
    session.script(2, steps).await;
    let mut rest = session.rest().await;
    assert_ne!(closed(rest.pop().as_ref()), &CloseReason::Ended);
    let text = |event| match event {
        Event::Message { message, .. } => String::from_utf8(message.into()).ok(),
        _ => None,
    };
    let mut messages: Vec<String> = rest.into_iter().filter_map(text).collect();
    let count = messages.len();
    messages.retain(|text| *text != response(3, "1"));
    assert_eq!(messages.len() + 1, count, "the answer comes once");
    let expected: Vec<String> = (0..200).map(|n| progress(2, &n.to_string())).collect();
    assert_eq!(messages, expected);
    assert_eq!([1, 2, 3].map(|call| session.was_sent(call)), [Some(true); 3]);
}

/// After `Closed` the channel refuses commands: nothing can be lost silently.
pub async fn a_call_after_the_close_is_not_sent(upstream: Arc<dyn Upstream>) {
    let mut session = Session::open(&upstream).await;
    session.script(1, [json!({ "die": 0 })]).await;
    session.rest().await;
    let message = script(2, [write(response(2, "{}"))]).into();
    assert!(!session.command(Command::Call { call: CallId(2), message }).await);
}

/// Each call the channel took while the server died was sent or was not, and it says which.
pub async fn every_accepted_call_has_one_outcome_when_the_server_dies(upstream: Arc<dyn Upstream>) {
    const CALLS: u64 = 1_000;
    let mut session = Session::open(&upstream).await;
    session.script(1, [json!({ "die": 0 })]).await;
    let mut accepted = vec![1];
    let commands = session.commands.clone();
    let feeder = tokio::spawn(async move {
        for call in 2..CALLS {
            let message = script(call, []).into();
            let command = Command::Call { call: CallId(call), message };
            match &commands {
                Some(commands) if commands.send(command).await.is_ok() => accepted.push(call),
                _ => break,
            }
        }
        accepted
    });
    session.rest().await;
    let accepted = feeder.await.expect("the feeder ends");
    for call in accepted {
        assert!(session.was_sent(call).is_some(), "call {call} has no outcome");
    }
    assert_eq!(session.was_sent(1), Some(true));
}

/// `End` is followed by `Closed` and nothing else, though a call still runs.
pub async fn an_end_closes_the_session(upstream: Arc<dyn Upstream>) {
    let mut session = Session::open(&upstream).await;
    session.script(1, [write(progress(1, "1")), json!({ "wait": "never" })]).await;
    assert_eq!(session.message().await, progress(1, "1"));
    assert!(session.command(Command::End).await);
    let rest = session.rest().await;
    assert_eq!(rest.len(), 1, "{rest:?}");
    assert_eq!(closed(rest.last()), &CloseReason::Ended);
}

/// A driver that is gone leaves no session behind.
pub async fn a_dropped_command_sender_ends_the_session(upstream: Arc<dyn Upstream>) {
    let mut session = Session::open(&upstream).await;
    session.drop_commands();
    let rest = session.rest().await;
    assert_eq!(closed(rest.last()), &CloseReason::Ended);
}

/// A driver that receives nothing can still command, more than any one channel holds; when it
/// receives again, nothing is missing.
pub async fn unread_events_do_not_block_commands(upstream: Arc<dyn Upstream>) {
    const FLOOD: u64 = 50_000;
    let mut session = Session::open(&upstream).await;
    let flood = json!({ "write": progress(1, "#N#"), "times": FLOOD });
    session.script(1, [flood, write(response(1, "{}"))]).await;
    assert_eq!(session.message().await, progress(1, "0"));
    let capacity = session.commands.as_ref().map_or(0, |commands| commands.max_capacity());
    let calls = 2..2 + 2 * capacity as u64;
    for call in calls.clone() {
        session.script(call, [write(response(call, "{}"))]).await;
    }
    let (mut next, mut answered) = (1, 0);
    let sent = |session: &Session| {
        calls.clone().map(|call| session.was_sent(call)).collect::<Option<Vec<bool>>>()
    };
    loop {
        if next == FLOOD
            && let Some(sent) = sent(&session)
            && answered == 1 + sent.iter().filter(|&&sent| sent).count()
        {
            break;
        }
        match session.next().await {
            Some(Event::Message { message, .. }) if message == progress(1, &next.to_string()) => {
                next += 1;
            }
            Some(Event::Message { message, .. }) => {
                assert!(message.ends_with(br#","result":{}}"#), "{message:?} after {next}");
                answered += 1;
            }
            Some(Event::Sent { .. } | Event::NotSent { .. }) => {}
            other => panic!("expected the flood, got {other:?}"),
        }
    }
    session.end().await;
}
