//! What must hold between the parts of a session, after every input.

use serde::Serialize;

use super::Session;
use super::timer::Timer;
use super::waiting::Wait;
use crate::ledger::Phase;
use crate::stream::{Release, Stream, StreamState};

/// How much a session remembers, in entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Footprint {
    /// Calls in the ledger.
    pub calls: usize,
    /// Those of them that an equal request is compared with.
    pub compared: usize,
    /// Streams, the standalone one among them.
    pub streams: usize,
    /// POSTs that wait.
    pub waiting: usize,
    /// POSTs that wait for a JSON answer.
    pub replies: usize,
    /// Connections that carry a stream or whose reset would still count.
    pub connections: usize,
    /// Replays whose gate is closed.
    pub replays: usize,
    /// Server requests, answered ones among them.
    pub server_requests: usize,
    /// Deadlines.
    pub timers: usize,
}

impl Session {
    /// How much it remembers: what tests and metrics hold against the limits.
    pub fn footprint(&self) -> Footprint {
        Footprint {
            calls: self.ledger.count(),
            compared: self.ledger.found_count(),
            streams: self.streams.len(),
            waiting: self.waiting.len(),
            replies: self.replies.len(),
            connections: self.carried.len(),
            replays: self.replays.len(),
            server_requests: self.server_requests.len(),
            timers: self.timers.len(),
        }
    }

    /// Checks what must hold between inputs. It costs time; for tests and diagnosis.
    ///
    /// # Errors
    /// The first thing that does not hold, in words.
    pub fn check(&self) -> Result<(), String> {
        if self.ended {
            return Ok(());
        }
        for stream in self.streams.values() {
            self.check_stream(stream).map_err(|why| format!("stream {}: {why}", stream.id))?;
        }
        self.check_waiting()?;
        self.check_calls()?;
        let bytes: u64 = self.streams.values().map(|stream| stream.bytes).sum();
        if bytes != self.log_bytes {
            return Err(format!("log bytes {} but streams have {bytes}", self.log_bytes));
        }
        for (connection, stream) in &self.carried {
            if !self.streams.contains_key(stream) {
                return Err(format!("connection {connection} carried a forgotten {stream}"));
            }
        }
        Ok(())
    }

    fn check_stream(&self, stream: &Stream) -> Result<(), String> {
        let cursors = stream.cursors;
        let ordered = cursors.produced >= cursors.sent && cursors.sent >= cursors.acked;
        let owed = stream.state == StreamState::Owed && !stream.is_standalone();
        let needs_connection =
            matches!(stream.state, StreamState::Held | StreamState::Live | StreamState::Ending);
        let without = stream.state.is_unsettled() || stream.state == StreamState::Presumed;
        let armed = |at_ms| self.timers.contains(&(at_ms, Timer::Stream(stream.id)));
        let known = |id| self.carried.get(&id) == Some(&stream.id);
        let in_segments: u64 = stream.segments.iter().map(|segment| segment.bytes).sum();
        let checks = [
            (ordered, "produced >= sent >= acked"),
            (stream.last <= Some(cursors.produced), "its end is in the log"),
            (owed == self.owed.contains(&stream.id), "owed ones are listed"),
            (
                stream.is_standalone() || !needs_connection || stream.connection.is_some(),
                "held, live and ending have a connection",
            ),
            (!without || stream.connection.is_none(), "dropped and presumed have none"),
            (stream.connection.is_none_or(|c| known(c.id)), "its connection leads to it"),
            (stream.deadline_ms.is_none_or(armed), "its deadline is armed"),
            (stream.response_bytes <= stream.bytes, "responses are part of its bytes"),
            (
                !stream.emptied || stream.response_bytes == 0 || stream.state.is_released(),
                "what is kept is not told as gone",
            ),
            (in_segments == stream.progress_bytes(), "the rest of its bytes is in segments"),
        ];
        match checks.iter().find(|(holds, _)| !holds) {
            Some((_, what)) => Err(format!("not so: {what}: {stream:?}")),
            None => Ok(()),
        }
    }

    fn check_waiting(&self) -> Result<(), String> {
        for (id, waiter) in &self.waiting {
            let queued = self.queue.iter().filter(|&queued| queued == id).count();
            if queued != usize::from(waiter.wait == Wait::Turn) {
                return Err(format!("POST {id} is {queued} times in the queue"));
            }
            let held = waiter.stream.and_then(|stream| self.streams.get(&stream));
            if held.is_some_and(|stream| stream.state != StreamState::Held) {
                return Err(format!("POST {id} waits on a stream that is not held"));
            }
            let ends = self.timers.iter().any(|(_, timer)| *timer == Timer::Waiter(*id));
            let joined = matches!(waiter.wait, Wait::Join | Wait::Record);
            if !ends && !joined && !self.review_due {
                return Err(format!("POST {id} waits for ever"));
            }
        }
        match self.queue.iter().find(|id| !self.waiting.contains_key(id)) {
            Some(id) => Err(format!("POST {id} is queued but does not wait")),
            None => Ok(()),
        }
    }

    fn check_calls(&self) -> Result<(), String> {
        for call in self.ledger.iter() {
            if call.stream.is_some_and(|stream| !self.streams.contains_key(&stream)) {
                return Err(format!("call {} is on a forgotten stream", call.id));
            }
            let stream = call.stream.and_then(|id| self.streams.get(&id));
            let over = stream.is_some_and(|stream| match stream.state {
                StreamState::Proved => call.phase == Phase::Finished,
                StreamState::Released(why) => why != Release::Cancelled,
                _ => false,
            });
            if over && call.open_scope().is_some() {
                return Err(format!("call {} keeps the row of an answer that arrived", call.id));
            }
            if call.stream.is_none() && !call.phase.is_in_flight() {
                return Err(format!("call {} is over and was answered as JSON", call.id));
            }
        }
        match self.replies.keys().find(|&&id| self.ledger.get(id).is_none()) {
            Some(id) => Err(format!("a POST waits for the answer of no call {id}")),
            None => Ok(()),
        }
    }
}
