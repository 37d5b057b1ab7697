//! The rule in its plainest form, the entry point that everything else refines (design section 1).
//!
//! A session's event cursor and its request counter are independent. Moving from a dropped stream
//! to a POST is legal only when the cursor has caught up with the last event that the request
//! counter produced, nothing produces any more, and the call may be repeated.
//!
//! [`authorize_post_migration`] judges a *declared* migration: the caller says that this POST
//! repeats the call of this stream. It therefore refuses a repeat that is neither idempotent nor
//! carries an honoured token even when the stream is drained. [`crate::policy::decide`] has to
//! guess what a POST is, and cannot recognise such a repeat of a call whose answer was delivered:
//! to it that is a new call. Where this function rejects the one stream a POST repeats, `decide`
//! never executes; where it accepts, `decide` executes or answers from the record.

use std::collections::BTreeSet;

use crate::id::{EventId, SessionId};

/// What must be known of the one stream that a POST wants to leave.
#[derive(Clone, Debug)]
pub struct SessionStreamState {
    /// The session.
    pub session_id: SessionId,
    /// Last event that the client is known to have; `None`: none.
    pub last_delivered_event_id: Option<EventId>,
    /// Last event in the log of the stream; `None`: none.
    pub last_produced_event_id: Option<EventId>,
    /// JSON-RPC ids of the requests that may still produce for the stream.
    pub in_flight_requests: BTreeSet<String>,
}

impl SessionStreamState {
    /// Condition 1: the last delivered event is the last produced one.
    pub fn buffer_is_drained(&self) -> bool {
        self.last_delivered_event_id == self.last_produced_event_id
    }

    /// Condition 2 fails: an operation may still produce for the stream.
    pub fn has_in_flight(&self) -> bool {
        !self.in_flight_requests.is_empty()
    }

    fn resume_from(&self) -> String {
        self.last_delivered_event_id
            .map_or_else(|| "the stream's first event id".to_owned(), |id| id.to_string())
    }
}

/// Why a POST may not leave a stream, with the state it was judged from and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamMigrationRejected {
    /// Condition 1: events are owed.
    #[error(
        "session {session}: stream not drained, delivered={delivered} produced={produced}; \
         resume it: GET with Last-Event-ID: {resume}"
    )]
    NotDrained {
        /// Tag of the session.
        session: String,
        /// Last delivered event id, or `none`.
        delivered: String,
        /// Last produced event id, or `none`.
        produced: String,
        /// Cursor to resume from.
        resume: String,
    },
    /// Condition 2: a request may still produce.
    #[error(
        "session {session}: requests in flight {in_flight:?}, delivered={delivered} \
         produced={produced}; resume the stream: GET with Last-Event-ID: {resume}"
    )]
    InFlight {
        /// Tag of the session.
        session: String,
        /// JSON-RPC ids in flight, sorted.
        in_flight: Vec<String>,
        /// Last delivered event id, or `none`.
        delivered: String,
        /// Last produced event id, or `none`.
        produced: String,
        /// Cursor to resume from.
        resume: String,
    },
    /// Condition 3: repeating the call could take effect twice.
    #[error(
        "session {session}: request {request} is not idempotent and carries no dedup token that \
         the server honours, delivered={delivered} produced={produced}; do not repeat it: its \
         answer is on the stream, GET with Last-Event-ID: {resume}"
    )]
    NotIdempotent {
        /// Tag of the session.
        session: String,
        /// JSON-RPC id of the refused request.
        request: String,
        /// Last delivered event id, or `none`.
        delivered: String,
        /// Last produced event id, or `none`.
        produced: String,
        /// Cursor to resume from.
        resume: String,
    },
}

/// Decides whether a POST may repeat a call of a dropped stream.
///
/// The conditions are checked in the order 1 (drained), 2 (quiet), 3 (safe to repeat). Condition 4
/// (ordered) is the replay gate's: a POST that passes here is answered after any running replay.
///
/// # Errors
/// The first condition that fails, as [`StreamMigrationRejected`].
pub fn authorize_post_migration(
    state: &SessionStreamState,
    request_id: &str,
    idempotent: bool,
    dedup_token: Option<&str>,
    server_honors_dedup: bool,
) -> Result<(), StreamMigrationRejected> {
    let text = |id: Option<EventId>| id.map_or_else(|| "none".to_owned(), |id| id.to_string());
    let session = state.session_id.tag();
    let delivered = text(state.last_delivered_event_id);
    let produced = text(state.last_produced_event_id);
    let resume = state.resume_from();
    if !state.buffer_is_drained() {
        return Err(StreamMigrationRejected::NotDrained { session, delivered, produced, resume });
    }
    if state.has_in_flight() {
        let in_flight = state.in_flight_requests.iter().cloned().collect();
        return Err(StreamMigrationRejected::InFlight {
            session,
            in_flight,
            delivered,
            produced,
            resume,
        });
    }
    let honored = dedup_token.is_some() && server_honors_dedup;
    if !idempotent && !honored {
        let request = request_id.to_owned();
        return Err(StreamMigrationRejected::NotIdempotent {
            session,
            request,
            delivered,
            produced,
            resume,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{Epoch, Seq, StreamId};

    fn event(seq: u64) -> Option<EventId> {
        Some(EventId { epoch: Epoch(1), stream: StreamId(3), seq: Seq(seq) })
    }

    fn state(delivered: u64, produced: u64, in_flight: &[&str]) -> SessionStreamState {
        SessionStreamState {
            session_id: SessionId::new("a-secret"),
            last_delivered_event_id: event(delivered),
            last_produced_event_id: event(produced),
            in_flight_requests: in_flight.iter().map(|id| (*id).to_owned()).collect(),
        }
    }

    #[test]
    fn the_conditions_are_checked_in_order_and_each_message_says_how_to_go_on() {
        let owed = authorize_post_migration(&state(142, 149, &["7"]), "8", true, None, false);
        let message = owed.expect_err("events are owed").to_string();
        for part in ["delivered=00000001-3-142", "produced=00000001-3-149", "GET", "142"] {
            assert!(message.contains(part), "{message}");
        }
        assert!(!message.contains("a-secret"), "{message}");
        let running =
            authorize_post_migration(&state(149, 149, &["9", "7"]), "8", true, None, false);
        assert!(running.expect_err("in flight").to_string().contains(r#"["7", "9"]"#));
        let unsafe_repeat = authorize_post_migration(&state(149, 149, &[]), "8", false, None, true);
        assert!(unsafe_repeat.expect_err("not idempotent").to_string().contains("request 8"));
    }

    #[test]
    fn only_an_idempotent_call_or_an_honoured_token_passes_a_drained_and_quiet_stream() {
        let drained = state(149, 149, &[]);
        assert!(authorize_post_migration(&drained, "8", true, None, false).is_ok());
        assert!(authorize_post_migration(&drained, "8", false, Some("t"), true).is_ok());
        assert!(authorize_post_migration(&drained, "8", false, Some("t"), false).is_err());
        assert!(authorize_post_migration(&drained, "8", false, None, true).is_err());
    }
}
