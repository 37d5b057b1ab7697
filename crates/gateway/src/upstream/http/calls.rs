//! The calls of a session, and the one way on which their events reach the driver.
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use rejoin_core::message::{Kind, Message};
use rejoin_core::session::UpstreamCursor;
use rejoin_core::sse::{Mark, Seen};
use tokio::sync::{Mutex as AsyncMutex, mpsc, watch};

use super::departure::Departure;
use crate::upstream::outlet::Outlet;
use crate::upstream::{CallId, Channel, CloseReason, Event, LostReason, NotSentReason};

/// Events of one session that are recognised when a resumed stream brings them again.
const SEEN_MAX: usize = 2_048;

/// How far a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Running,
    /// Its client gave it up; an answer may still come (spec 1.4).
    Cancelled,
    /// The driver has been told its end.
    Settled,
}

/// A call, as its own task sees it.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) id: CallId,
    pub(super) departure: Arc<Departure>,
    pub(super) phase: watch::Receiver<Phase>,
}

impl Call {
    pub(super) fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Waits until the driver has been told the call's end.
    pub(super) async fn settled(&self) {
        // A sender that is gone was dropped when the call was settled.
        let _ = self.phase.clone().wait_for(|phase| *phase == Phase::Settled).await;
    }
}

struct Entry {
    departure: Arc<Departure>,
    phase: watch::Sender<Phase>,
    /// The driver knows that it was sent.
    told: bool,
}

/// The calls that have not ended. Whoever tells the driver something holds the outlet, so that
/// what is told of one call is in order, whichever streams it came on.
pub(super) struct Calls {
    outlet: AsyncMutex<Outlet>,
    entries: Mutex<HashMap<CallId, Entry>>,
    seen: Mutex<Seen>,
}

impl Calls {
    pub(super) fn new(events: mpsc::Sender<Event>, unread_bytes_max: usize) -> Self {
        let outlet = AsyncMutex::new(Outlet::new(events, unread_bytes_max));
        let seen = Mutex::new(Seen::new(SEEN_MAX));
        Self { outlet, entries: Mutex::default(), seen }
    }

    /// Enters a call that the driver commanded.
    pub(super) fn enter(&self, id: CallId) -> Call {
        self.enter_at(id, Departure::new(), false)
    }

    /// Enters a call that an earlier process sent, and that the driver knows to be sent.
    pub(super) fn pick_up(&self, id: CallId) -> Call {
        self.enter_at(id, Departure::answered_before(), true)
    }

    fn enter_at(&self, id: CallId, departure: Arc<Departure>, told: bool) -> Call {
        let (phase, watched) = watch::channel(Phase::Running);
        let entry = Entry { departure: Arc::clone(&departure), phase, told };
        lock(&self.entries).insert(id, entry);
        Call { id, departure, phase: watched }
    }

    /// Calls that have not ended.
    pub(super) fn running(&self) -> Vec<Call> {
        let entries = lock(&self.entries);
        let call = |(&id, entry): (&CallId, &Entry)| Call {
            id,
            departure: Arc::clone(&entry.departure),
            phase: entry.phase.subscribe(),
        };
        entries.iter().map(call).collect()
    }

    /// The number of calls that have not ended.
    pub(super) fn count(&self) -> usize {
        lock(&self.entries).len()
    }

    /// Notes that a call's client gave it up. `None`: it has ended.
    pub(super) fn cancel(&self, id: CallId) -> Option<Call> {
        let entries = lock(&self.entries);
        let entry = entries.get(&id)?;
        entry.phase.send_replace(Phase::Cancelled);
        let departure = Arc::clone(&entry.departure);
        Some(Call { id, departure, phase: entry.phase.subscribe() })
    }

    /// The call may have left.
    pub(super) async fn sent(&self, id: CallId) {
        self.tell_sent(&mut *self.outlet.lock().await, id).await;
    }

    /// The server answers the call, with a stream.
    pub(super) async fn begun(&self, id: CallId) {
        let mut outlet = self.outlet.lock().await;
        self.tell_sent(&mut outlet, id).await;
        if lock(&self.entries).contains_key(&id) {
            // Without a driver nobody needs it.
            let _ = outlet.send(Event::Begun { call: id }).await;
        }
    }

    /// The call was not run.
    pub(super) async fn not_sent(&self, id: CallId, reason: NotSentReason) {
        self.settle(id, false, Event::NotSent { call: id, reason }).await;
    }

    /// Nothing will tell the outcome of the call.
    pub(super) async fn lost(&self, id: CallId, reason: LostReason) {
        tracing::warn!(call = %id, %reason, "the outcome of a call is unknown");
        self.settle(id, true, Event::Lost { call: id, reason }).await;
    }

    /// Answers the call.
    pub(super) async fn answer(&self, id: CallId, message: Bytes) -> bool {
        let (channel, cursor) = (Channel::Call(id), None);
        self.settle(id, true, Event::Message { channel, message, cursor }).await
    }

    /// Passes a message on; a response belongs to its call, whichever channel it came on. `cursor`:
    /// where the channel stands with it. `false`: it answers no call that has not ended.
    pub(super) async fn deliver(
        &self,
        channel: Channel,
        message: &Message,
        cursor: Option<UpstreamCursor>,
    ) -> bool {
        if matches!(message.kind(), Kind::Response | Kind::ErrorResponse) {
            let id = message.id_key().and_then(|key| key.as_u64()).map(CallId);
            return match id {
                Some(id) => self.answer(id, message.bytes().clone()).await,
                None => false,
            };
        }
        let event = Event::Message { channel, message: message.bytes().clone(), cursor };
        let mut outlet = self.outlet.lock().await;
        if let Some(id) = channel.call() {
            self.tell_sent(&mut outlet, id).await;
        }
        // Without a driver nobody needs it.
        let _ = outlet.send(event).await;
        true
    }

    /// Tells where a channel stands, without a message.
    pub(super) async fn stand_at(&self, channel: Channel, cursor: Option<UpstreamCursor>) {
        let mut outlet = self.outlet.lock().await;
        if let Some(id) = channel.call() {
            self.tell_sent(&mut outlet, id).await;
            if !lock(&self.entries).contains_key(&id) {
                return;
            }
        }
        // Without a driver nobody needs it.
        let _ = outlet.send(Event::Cursor { channel, cursor }).await;
    }

    /// Tells a call's end. `false`: it has ended already.
    async fn settle(&self, id: CallId, was_sent: bool, event: Event) -> bool {
        let mut outlet = self.outlet.lock().await;
        if was_sent {
            self.tell_sent(&mut outlet, id).await;
        }
        if !lock(&self.entries).contains_key(&id) {
            return false;
        }
        // Changes nothing until the driver has it: this future may be dropped.
        let _ = outlet.send(event).await;
        if let Some(entry) = lock(&self.entries).remove(&id) {
            entry.phase.send_replace(Phase::Settled);
        }
        true
    }

    async fn tell_sent(&self, outlet: &mut Outlet, id: CallId) {
        if lock(&self.entries).get(&id).is_none_or(|entry| entry.told) {
            return;
        }
        let _ = outlet.send(Event::Sent { call: id }).await;
        if let Some(entry) = lock(&self.entries).get_mut(&id) {
            entry.told = true;
        }
    }

    /// Ends the session for the driver: first the outcome of each call that has none.
    pub(super) async fn close(&self, reason: CloseReason) {
        let not_sent = match reason {
            CloseReason::SessionGone => NotSentReason::SessionGone,
            CloseReason::Unreachable { .. } => NotSentReason::Unreachable,
            _ => NotSentReason::Closed,
        };
        for call in self.running() {
            if call.departure.revoke() {
                self.not_sent(call.id, not_sent.clone()).await;
            } else {
                self.sent(call.id).await;
            }
        }
        let _ = self.outlet.lock().await.send(Event::Closed { reason }).await;
    }

    /// Notes an event with an id. `false`: the same event, id and text, was noted before.
    pub(super) fn note(&self, mark: Mark) -> bool {
        lock(&self.seen).note(mark)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code that holds it can panic in between two changes.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rejoin_core::message::{Incoming, parse};

    fn message(text: &'static str) -> Message {
        match parse(Bytes::from_static(text.as_bytes()), 16) {
            Ok(Incoming::One(message)) => message,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn whatever_is_told_of_a_call_comes_after_that_it_was_sent() {
        let (events, mut told) = mpsc::channel(16);
        let calls = Calls::new(events, 1_000);
        let (one, two) = (calls.enter(CallId(1)), calls.enter(CallId(2)));
        let note = message(r#"{"jsonrpc":"2.0","method":"x"}"#);
        let answer = message(r#"{"jsonrpc":"2.0","id":2,"result":1}"#);
        assert!(calls.deliver(Channel::Call(one.id), &note, None).await);
        // On the stream of another call, and a second time.
        assert!(calls.deliver(Channel::Call(one.id), &answer, None).await);
        assert!(!calls.deliver(Channel::Standalone, &answer, None).await);
        calls.sent(one.id).await;
        calls.lost(one.id, LostReason::ConnectionLost).await;
        calls.not_sent(one.id, NotSentReason::Closed).await;
        assert_eq!((one.phase(), two.phase()), (Phase::Settled, Phase::Settled));
        calls.close(CloseReason::Ended).await;
        drop(calls);
        let mut order = Vec::new();
        while let Some(event) = told.recv().await {
            order.push(match event {
                Event::Sent { call } => format!("sent {call}"),
                Event::Begun { call } => format!("begun {call}"),
                Event::NotSent { call, .. } => format!("not sent {call}"),
                Event::Message { channel: Channel::Call(call), .. } => format!("message {call}"),
                Event::Message { channel, .. } => format!("message {channel:?}"),
                Event::Cursor { channel, .. } => format!("cursor {channel:?}"),
                Event::Lost { call, .. } => format!("lost {call}"),
                Event::Closed { .. } => "closed".to_owned(),
            });
        }
        let expected = ["sent 1", "message 1", "sent 2", "message 2", "lost 1", "closed"];
        assert_eq!(order, expected);
    }

    #[tokio::test]
    async fn a_close_tells_the_outcome_of_every_call() {
        let (events, mut told) = mpsc::channel(16);
        let calls = Calls::new(events, 1_000);
        let call = calls.enter(CallId(1));
        calls.close(CloseReason::SessionGone).await;
        let reason = NotSentReason::SessionGone;
        assert_eq!(told.recv().await, Some(Event::NotSent { call: call.id, reason }));
        let reason = CloseReason::SessionGone;
        assert_eq!(told.recv().await, Some(Event::Closed { reason }));
        assert!(call.departure.revoke());
    }
}
