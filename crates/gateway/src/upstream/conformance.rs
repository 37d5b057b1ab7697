//! The conformance suite of [`Upstream`]: what every implementation must do, as async functions.
//!
//! A test crate runs all of it with [`upstream_conformance!`](crate::upstream_conformance), given
//! an expression that makes an `Arc<dyn Upstream>` whose sessions lead to a *scripted server*:
//!
//! - it answers `initialize` with a result whose `serverInfo.name` is `scripted`;
//! - it repeats every notification and response it receives as a notification `test/received`
//!   with `params.line`, the text it received;
//! - on a request `test/script` it takes the `params.steps` one after the other, at the same time
//!   as other requests. A step is an object: `{"write": LINE}` writes the text LINE as one message
//!   of this call, `"times": N` beside it does so N times with `#N#` replaced by 0, 1, ...;
//!   `{"signal": NAME}` and `{"wait": NAME}` order calls among each other; `{"received": TEXT}`
//!   waits until a received notification or response contained TEXT; `{"die": STATUS}` ends the
//!   server at once, and whatever was written before still arrives. After its last step a request
//!   stays open, unless a step wrote its response.
//!
//! Functions panic where an implementation does not conform. Each wait is bounded.
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use rejoin_core::id::CallId;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::{
    BackPressure, Channel, CloseReason, Command, Continuation, Event, NotSentReason, Opened,
    Resumed, Resumption, Upstream, UpstreamCursor,
};

mod calls;
mod continued;
mod flow;

pub use calls::*;
pub use continued::*;
pub use flow::*;

/// Longest wait for one thing that must happen.
pub const WAIT: Duration = Duration::from_secs(30);

/// The `initialize` request of the suite.
pub const INITIALIZE: &str = concat!(
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","#,
    r#""capabilities":{},"clientInfo":{"name":"suite","version":"1"}}}"#
);

/// Makes one test of each function of the suite.
#[doc(hidden)]
#[macro_export]
macro_rules! upstream_conformance {
    ($make:expr) => {
        $crate::upstream_conformance!($make;
            open_returns_the_answer
            a_response_keeps_its_bytes
            progress_and_server_requests_keep_their_order
            parallel_calls_end_in_any_order
            a_cancel_reaches_the_server_and_the_session_lives_on
            notifications_pass_both_ways
            a_death_in_a_call_closes_the_session_after_its_messages
            a_call_after_the_close_is_not_sent
            every_accepted_call_has_one_outcome_when_the_server_dies
            large_messages_pass_both_ways
            an_end_closes_the_session
            a_dropped_command_sender_ends_the_session
            a_session_that_is_left_goes_on_where_it_was_or_ends
            a_left_session_runs_no_call_that_was_not_sent
            unread_events_do_not_block_commands
            ten_thousand_progress_events_arrive_complete_and_in_order
        );
    };
    ($make:expr; $($name:ident)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                $crate::upstream::conformance::$name($make).await;
            }
        )+
    };
}

/// A driver for tests: opens a session, runs scripts, and checks what holds of every event.
#[derive(Debug)]
pub struct Session {
    /// The answer to `initialize`.
    pub answer: Value,
    /// The commands. `None` after [`Session::drop_commands`].
    pub commands: Option<mpsc::Sender<Command>>,
    /// Asks the upstream to wait. `None`: it cannot.
    pub pressure: Option<watch::Sender<BackPressure>>,
    events: mpsc::Receiver<Event>,
    /// The calls that have their outcome, and whether they were sent.
    outcomes: HashMap<CallId, bool>,
    /// The calls that were sent and then refused or lost.
    settled: HashSet<CallId>,
    closed: bool,
    continuation: Option<Continuation>,
    /// Where the channels stand.
    cursors: HashMap<CallId, UpstreamCursor>,
    standalone: Option<UpstreamCursor>,
}

/// A session that its driver left.
#[derive(Clone, Debug)]
pub struct Left {
    /// How it goes on.
    pub continuation: Continuation,
    /// Where the channels of calls stand.
    pub cursors: HashMap<CallId, UpstreamCursor>,
    /// Where the standalone stream stands.
    pub standalone: Option<UpstreamCursor>,
}

impl Session {
    /// Opens a session.
    pub async fn open(upstream: &Arc<dyn Upstream>) -> Self {
        let opened = upstream.open(Bytes::from_static(INITIALIZE.as_bytes()).into());
        let opened = timeout(WAIT, opened).await.expect("open ends");
        let Opened { answer, continuation, commands, events, pressure } =
            opened.expect("the session opens");
        let answer = serde_json::from_slice(&answer).expect("the answer is JSON");
        let resumed = Resumed { commands, events, pressure };
        Self { answer, continuation, ..Self::of(resumed) }
    }

    fn of(resumed: Resumed) -> Self {
        let Resumed { commands, events, pressure } = resumed;
        Self {
            answer: Value::Null,
            commands: Some(commands),
            pressure,
            events,
            outcomes: HashMap::new(),
            settled: HashSet::new(),
            closed: false,
            continuation: None,
            cursors: HashMap::new(),
            standalone: None,
        }
    }

    /// Leaves the session. `None`: it has ended, as nothing of this upstream can go on.
    pub async fn leave(mut self) -> Option<Left> {
        self.command(Command::Leave).await;
        let closed = self.rest().await.pop();
        let reason =
            if self.continuation.is_some() { CloseReason::Left } else { CloseReason::Ended };
        assert_eq!(closed, Some(Event::Closed { reason }));
        let (cursors, standalone) = (self.cursors, self.standalone);
        self.continuation.map(|continuation| Left { continuation, cursors, standalone })
    }

    /// Goes on with a session that was left, and picks up the calls that have a cursor.
    pub fn resume(upstream: &Arc<dyn Upstream>, left: &Left) -> Self {
        let Left { continuation, cursors, standalone } = left.clone();
        let picked_up: Vec<_> = cursors.keys().map(|&call| (call, true)).collect();
        let resumption = Resumption {
            continuation,
            initialize: Bytes::from_static(INITIALIZE.as_bytes()),
            headers: HeaderMap::new(),
            is_initialized: true,
            calls: cursors.into_iter().collect(),
            standalone,
        };
        let resumed = upstream.resume(resumption).expect("it goes on");
        let continuation = Some(left.continuation.clone());
        let outcomes = picked_up.into_iter().collect();
        Self { continuation, outcomes, ..Self::of(resumed) }
    }

    /// Notes where a channel stands.
    fn stand_at(&mut self, channel: Channel, cursor: Option<UpstreamCursor>) {
        match (channel, cursor) {
            (Channel::Call(call), Some(cursor)) => drop(self.cursors.insert(call, cursor)),
            (Channel::Call(call), None) => drop(self.cursors.remove(&call)),
            (Channel::Standalone, cursor) => self.standalone = cursor,
            (Channel::Unknown, cursor) => assert_eq!(cursor, None, "nobody can resume that"),
        }
    }

    /// Gives a command. `false`: the session takes none any more.
    pub async fn command(&self, command: Command) -> bool {
        let commands = self.commands.as_ref().expect("the sender was not dropped");
        timeout(WAIT, commands.send(command)).await.expect("commands are taken").is_ok()
    }

    /// Sends a call that runs `steps` on the server.
    pub async fn script(&self, call: u64, steps: impl IntoIterator<Item = Value>) {
        let message = script(call, steps).into();
        assert!(self.command(Command::Call { call: CallId(call), message }).await);
    }

    /// Sends a notification or a response.
    pub async fn send(&self, message: impl Into<Bytes>) {
        assert!(self.command(Command::Send { message: message.into() }).await);
    }

    /// Drops the command sender.
    pub fn drop_commands(&mut self) {
        self.commands = None;
    }

    /// The next event but [`Event::Begun`]. `None`: the channel ended, after `Closed`.
    pub async fn next(&mut self) -> Option<Event> {
        let event = loop {
            let event = timeout(WAIT, self.events.recv()).await.expect("an event comes");
            let Some(Event::Begun { call }) = event else { break event };
            assert_eq!(self.outcomes.get(&call), Some(&true), "begun before Sent: {call}");
            assert!(!self.settled.contains(&call), "begun after its end: {call}");
        };
        assert!(!(self.closed && event.is_some()), "after Closed came {event:?}");
        match &event {
            Some(Event::Sent { call }) => self.outcome(*call, true),
            // A refusal by the server itself comes after the call was sent.
            Some(Event::NotSent {
                call,
                reason: NotSentReason::SessionGone | NotSentReason::Refused { .. },
            }) if self.outcomes.get(call) == Some(&true) => self.settle(*call),
            Some(Event::NotSent { call, .. }) => self.outcome(*call, false),
            Some(Event::Lost { call, .. }) => {
                assert_eq!(self.outcomes.get(call), Some(&true), "lost before Sent: {call}");
                self.settle(*call);
            }
            Some(Event::Message { channel: Channel::Call(call), .. }) => {
                assert_eq!(self.outcomes.get(call), Some(&true), "an answer before Sent: {call}");
            }
            Some(Event::Message { .. } | Event::Cursor { .. } | Event::Begun { .. }) => {}
            Some(Event::Closed { .. }) => self.closed = true,
            None => assert!(self.closed, "the channel ended without Closed"),
        }
        if let Some(Event::Message { channel, cursor, .. } | Event::Cursor { channel, cursor }) =
            &event
        {
            self.stand_at(*channel, cursor.clone());
        }
        event
    }

    fn settle(&mut self, call: CallId) {
        assert!(self.settled.insert(call), "call {call} was settled twice");
    }

    fn outcome(&mut self, call: CallId, sent: bool) {
        let before = self.outcomes.insert(call, sent);
        assert_eq!(before, None, "a second outcome of call {call}");
    }

    /// The next message's text; outcomes before it are noted.
    pub async fn message(&mut self) -> String {
        loop {
            match self.next().await {
                Some(Event::Message { message, .. }) => {
                    return String::from_utf8(message.into()).expect("messages are UTF-8");
                }
                Some(Event::Sent { .. } | Event::NotSent { .. } | Event::Cursor { .. }) => {}
                other => panic!("expected a message, got {other:?}"),
            }
        }
    }

    /// The events until the channel ends.
    pub async fn rest(&mut self) -> Vec<Event> {
        let mut rest = Vec::new();
        while let Some(event) = self.next().await {
            rest.push(event);
        }
        rest
    }

    /// Whether a call was sent; `None`: not told yet.
    pub fn was_sent(&self, call: u64) -> Option<bool> {
        self.outcomes.get(&CallId(call)).copied()
    }

    /// Ends the session and waits until it is closed.
    pub async fn end(mut self) {
        self.command(Command::End).await;
        self.rest().await;
    }
}

/// A `test/script` request.
pub fn script(call: u64, steps: impl IntoIterator<Item = Value>) -> String {
    let steps: Vec<Value> = steps.into_iter().collect();
    let params = json!({ "steps": steps, "_meta": { "progressToken": call } });
    json!({ "jsonrpc": "2.0", "id": call, "method": "test/script", "params": params }).to_string()
}

/// A step that writes one message.
pub fn write(line: impl Into<String>) -> Value {
    json!({ "write": line.into() })
}

/// A step that waits until the server received a notification or response with `text` in it.
pub fn received(text: &str) -> Value {
    json!({ "received": text })
}

/// A response to `call` as text.
pub fn response(call: u64, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{call},"result":{result}}}"#)
}

/// A progress notification of `call` as text.
pub fn progress(call: u64, number: &str) -> String {
    let params = format!(r#"{{"progressToken":{call},"progress":{number}}}"#);
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{params}}}"#)
}

/// The server's `test/received` notification for `text`.
pub fn echo_of(text: &str, line: &str) -> bool {
    let message: Value = serde_json::from_str(text).expect("messages are JSON");
    message["method"] == "test/received" && message["params"]["line"] == line
}
