//! Sessions that one driver leaves and another resumes.
use std::sync::Arc;

use rejoin_core::id::CallId;
use serde_json::json;

use super::{Session, progress, received, response, script, write};
use crate::upstream::{Command, Event, Upstream};

/// What follows of the resumed session but echoes, up to the answer of `call`.
async fn up_to_the_answer(session: &mut Session, call: u64) -> Vec<String> {
    let mut messages = Vec::new();
    loop {
        let message = session.message().await;
        if message.contains("test/received") {
            continue;
        }
        let is_last = message.starts_with(&format!(r#"{{"jsonrpc":"2.0","id":{call},"#));
        messages.push(message);
        if is_last {
            return messages;
        }
    }
}

/// A session that is left can be resumed if the upstream said so when it opened it: then a call
/// whose stream has a cursor brings what followed, once, and no call is sent again. Else it ends.
pub async fn a_session_that_is_left_goes_on_where_it_was_or_ends(upstream: Arc<dyn Upstream>) {
    let mut session = Session::open(&upstream).await;
    session.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
    let after = (2..5).map(|number| write(progress(1, &number.to_string())));
    let steps = [write(progress(1, "0")), write(progress(1, "1")), received("go")];
    let steps = steps.into_iter().chain(after).chain([write(response(1, "{}"))]);
    session.script(1, steps).await;
    let mut before = Vec::new();
    while before.len() < 2 {
        let message = session.message().await;
        before.extend(Some(message).filter(|message| !message.contains("test/received")));
    }
    assert_eq!(before, [progress(1, "0"), progress(1, "1")]);
    let Some(left) = session.leave().await else { return };
    let mut resumed = Session::resume(&upstream, &left);
    resumed.send(r#"{"jsonrpc":"2.0","method":"notifications/go"}"#).await;
    if left.cursors.contains_key(&CallId(1)) {
        let mut expected: Vec<_> = (2..5).map(|number| progress(1, &number.to_string())).collect();
        expected.push(response(1, "{}"));
        assert_eq!(up_to_the_answer(&mut resumed, 1).await, expected);
    }
    resumed.script(2, [write(response(2, "{}"))]).await;
    let answer = up_to_the_answer(&mut resumed, 2).await;
    assert_eq!(answer.last(), Some(&response(2, "{}")));
    resumed.end().await;
}

/// What was commanded and not sent when the session was left never is.
pub async fn a_left_session_runs_no_call_that_was_not_sent(upstream: Arc<dyn Upstream>) {
    let mut session = Session::open(&upstream).await;
    session.script(1, [write(progress(1, "0")), json!({ "wait": "never" })]).await;
    assert_eq!(session.message().await, progress(1, "0"));
    assert!(session.command(Command::Leave).await);
    // Taken or not, it is too late.
    let message = script(2, [write(response(2, "{}"))]).into();
    session.command(Command::Call { call: CallId(2), message }).await;
    for event in session.rest().await {
        let is_of_two = matches!(event, Event::Sent { call } if call == CallId(2));
        assert!(!is_of_two, "{event:?}");
    }
}
