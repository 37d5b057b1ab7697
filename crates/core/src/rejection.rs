//! Refusals: reason codes, the message for a person or model, the JSON-RPC error body
//! (design section 5, "A refusal on the wire"). No HTTP here.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;

use crate::id::EventId;
use crate::message;

/// Why a request was refused. Codes and names are stable; each has a page in `docs/reasons/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The answer of an earlier call is owed.
    StreamNotDrained,
    /// The same call runs, or its answer is on its way.
    RequestInFlight,
    /// The same call ran; `on_repeat = "reject"` keeps its record back.
    NotIdempotent,
    /// The dedup token belongs to a call with other params.
    DedupTokenReused,
    /// A replay is still being delivered.
    ReplayInProgress,
    /// Nobody knows whether the earlier call took effect.
    OutcomeUnknown,
    /// The server ended, or no longer knows the session: what it kept is lost; told once.
    StateLost,
    /// The call waited, and its connection was lost or it was cancelled.
    Withdrawn,
    /// The server could not take the call; it never saw it.
    UpstreamUnavailable,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Self; 9] = [
        Self::StreamNotDrained,
        Self::RequestInFlight,
        Self::NotIdempotent,
        Self::DedupTokenReused,
        Self::ReplayInProgress,
        Self::OutcomeUnknown,
        Self::StateLost,
        Self::Withdrawn,
        Self::UpstreamUnavailable,
    ];

    /// The JSON-RPC error code, outside the reserved ranges (spec GAP-15).
    pub fn code(self) -> i64 {
        match self {
            Self::StreamNotDrained => 40901,
            Self::RequestInFlight => 40902,
            Self::NotIdempotent => 40903,
            Self::DedupTokenReused => 40904,
            Self::ReplayInProgress => 40905,
            Self::OutcomeUnknown => 40906,
            Self::StateLost => 40907,
            Self::Withdrawn => 40908,
            Self::UpstreamUnavailable => 40909,
        }
    }

    /// The name in `data.reason`, in logs and in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::StreamNotDrained => "stream_not_drained",
            Self::RequestInFlight => "request_in_flight",
            Self::NotIdempotent => "not_idempotent",
            Self::DedupTokenReused => "dedup_token_reused",
            Self::ReplayInProgress => "replay_in_progress",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::StateLost => "state_lost",
            Self::Withdrawn => "withdrawn",
            Self::UpstreamUnavailable => "upstream_unavailable",
        }
    }

    /// The page that explains the reason.
    pub fn doc(self) -> String {
        format!("docs/reasons/{}-{}.md", self.code(), self.name().replace('_', "-"))
    }

    /// What a model or person reads. It can neither send a GET nor read headers, so it is told
    /// first that nothing ran, then what is known, then what to do.
    pub fn message(self) -> &'static str {
        match self {
            Self::StreamNotDrained => {
                "Not run. The same call already ran to its end, but its answer may not have \
                 reached you. Do not send it again: the first one counts. Check its effect with \
                 another tool."
            }
            Self::RequestInFlight => {
                "Not run. The same call is already in progress and its answer has not reached \
                 you yet. Do not send it again: the first one counts. Continue without it, or \
                 check its effect with another tool."
            }
            Self::NotIdempotent => {
                "Not run. The same call already ran to its end and its answer may have been \
                 lost on the way to you. Do not send it again: the first one counts. Check its \
                 effect with another tool."
            }
            Self::DedupTokenReused => {
                "Not run. This dedup token belongs to an earlier call with other arguments. To \
                 run this call, send it with a fresh token."
            }
            Self::ReplayInProgress => {
                "Not run. An earlier answer or message may not have reached you yet, and it goes \
                 first. It is safe to send this call again in some seconds."
            }
            Self::OutcomeUnknown => {
                "Not run. Nobody knows whether the earlier identical call took effect. Check \
                 before you repeat it."
            }
            Self::StateLost => {
                "Not run. The server ended, or no longer knows this session, and what it kept for \
                 the session is lost. Rebuild what the call depends on; then it is safe to send it \
                 again."
            }
            Self::Withdrawn => {
                "Not run. The connection was lost, or the call was cancelled, while it waited. \
                 It is safe to send it again."
            }
            Self::UpstreamUnavailable => {
                "Not run. The call was not sent: the server behind Rejoin could not take it, or \
                 Rejoin has no room for its answer. It is safe to send it again."
            }
        }
    }
}

/// `data.by` of every refusal, and of every end of a call that no server wrote: their reader may
/// know nothing of a gateway.
pub const REFUSED_BY: &str = "rejoin";

/// What a call that did run, or may have run, ends with when its answer cannot be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostAnswer {
    /// The server died, or said nothing for too long, after bytes of the call had left.
    OutcomeUnknown,
    /// The answer was longer than the log may keep.
    LogFull,
    /// A newer, idempotent repeat took this call's place.
    Superseded,
    /// The answer was kept no longer than the retention.
    Expired,
    /// The log's end was lost in an unclean stop.
    HistoryLost,
}

impl LostAnswer {
    fn message(self) -> &'static str {
        match self {
            Self::OutcomeUnknown => {
                "The outcome is unknown. The server stopped, or said nothing for too long, while \
                 the call ran; it may have taken effect. Check before you repeat it."
            }
            Self::LogFull => {
                "The outcome is unknown. The server sent more than the log may keep for this \
                 session, so the rest of this call was dropped; it may have taken effect. Check \
                 before you repeat it."
            }
            Self::Superseded => {
                "Cancelled. The same call was sent again and replaced this one; its answer is \
                 on the newer request."
            }
            Self::Expired => {
                "The answer is gone: nobody fetched it within the retention time, or before the \
                 log had no room for it. The call did run. Check its effect before you repeat it."
            }
            Self::HistoryLost => {
                "The answer is gone: the gateway stopped uncleanly and lost the end of its log. \
                 The call may have taken effect. Check before you repeat it."
            }
        }
    }

    /// The JSON-RPC error that ends the call `request_id` (raw JSON).
    pub fn body(self, request_id: &[u8]) -> Bytes {
        let reason = Reason::OutcomeUnknown;
        let data = json!({
            "by": REFUSED_BY,
            "reason": reason.name(),
            "sendAgain": false,
            "doc": reason.doc(),
        });
        message::error_response(
            Some(request_id),
            reason.code(),
            self.message(),
            Some(data.to_string().as_bytes()),
        )
    }
}

/// What a repeat reads whose original was answered a moment ago, after a broken connection.
const JUST_ANSWERED: &str = "Not run. The same call has just run, and its answer was delivered \
     after a broken connection. If it is meant to run once more, send it again in some seconds.";

/// One refused request.
#[derive(Clone, Debug)]
pub struct Rejection {
    /// Why.
    pub reason: Reason,
    /// The refused request's own JSON-RPC id, raw. Never null: one client waits for ever on null.
    pub request_id: Bytes,
    /// The stream to resume; `None` if it belongs to another session or there is none.
    pub hint: Option<Hint>,
    /// True if the same POST may be sent again as it is.
    pub send_again: bool,
    /// When.
    pub retry_after_ms: u64,
    /// When the original ended, if it did (milliseconds since the Unix epoch).
    pub original_ended_ms: Option<u64>,
}

/// What a client needs to resume the stream that holds the answer (design section 5).
#[derive(Clone, Debug)]
pub struct Hint {
    /// Last cursor that the client confirmed on that stream, else its origin.
    pub cursor: EventId,
    /// Last event confirmed by the client.
    pub delivered: EventId,
    /// Last event in the log.
    pub produced: EventId,
    /// Raw JSON-RPC ids of the stream's calls that may still produce, sorted.
    pub in_flight: Vec<Bytes>,
    /// Raw JSON-RPC id of the original.
    pub original_request_id: Option<Bytes>,
}

impl Rejection {
    /// The JSON-RPC error response with the request's own id.
    pub fn body(&self) -> Bytes {
        let raw = |bytes: &Bytes| {
            let text = String::from_utf8_lossy(bytes).into_owned();
            RawValue::from_string(text).ok()
        };
        let mut data = json!({
            "by": REFUSED_BY,
            "reason": self.reason.name(),
            "sendAgain": self.send_again,
            "retryAfterMs": self.retry_after_ms,
            "doc": self.reason.doc(),
        });
        if let Some(ended_ms) = self.original_ended_ms {
            data["dev.rejoin/recorded"] = json!(ended_ms);
        }
        if let Some(hint) = &self.hint {
            data["lastEventId"] = json!(hint.cursor.to_string());
            data["resume"] = json!({ "method": "GET" });
            data["delivered"] = json!(hint.delivered.to_string());
            data["produced"] = json!(hint.produced.to_string());
            let in_flight: Vec<_> = hint.in_flight.iter().filter_map(raw).collect();
            data["inFlight"] = serde_json::to_value(in_flight).unwrap_or_default();
            if let Some(id) = hint.original_request_id.as_ref().and_then(raw) {
                data["originalRequestId"] = serde_json::to_value(id).unwrap_or_default();
            }
        }
        message::error_response(
            Some(&self.request_id),
            self.reason.code(),
            self.message(),
            Some(data.to_string().as_bytes()),
        )
    }

    /// What a model or person reads. A call that was held behind *another* call's owed answer is
    /// told that it may come again, not that it already ran: what one reads that is held behind a
    /// replay. It is true of both, and whatever became of the older answer: it may be on its way,
    /// wait to be fetched, or have arrived without proof.
    pub fn message(&self) -> &'static str {
        match self.reason {
            Reason::StreamNotDrained if self.send_again => Reason::ReplayInProgress.message(),
            Reason::RequestInFlight if self.send_again => JUST_ANSWERED,
            reason => reason.message(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn codes_and_names_are_unique_and_messages_say_first_that_nothing_ran() {
        let codes: BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.code()).collect();
        let names: BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.name()).collect();
        assert_eq!((codes.len(), names.len()), (Reason::ALL.len(), Reason::ALL.len()));
        for reason in Reason::ALL {
            let message = reason.message();
            assert!(message.starts_with("Not run. "), "{message}");
            assert!(!message.contains("GET") && !message.contains("Last-Event-ID"), "{message}");
        }
    }

    fn rejection(reason: Reason, send_again: bool) -> Rejection {
        Rejection {
            reason,
            request_id: Bytes::from_static(b"1"),
            hint: None,
            send_again,
            retry_after_ms: 60_000,
            original_ended_ms: None,
        }
    }

    #[test]
    fn every_error_of_a_call_says_who_wrote_it() {
        let refusal = rejection(Reason::RequestInFlight, false).body();
        for body in [refusal, LostAnswer::OutcomeUnknown.body(b"1")] {
            let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(body["error"]["data"]["by"], "rejoin", "{body}");
        }
    }

    /// The next request opens the server again, and it may run while it refuses the session.
    #[test]
    fn lost_state_is_not_told_as_a_restart() {
        let message = Reason::StateLost.message();
        assert!(!message.contains("restart"), "{message}");
        assert!(message.contains("ended, or no longer knows this session"), "{message}");
        assert!(message.contains("safe to send it again"), "{message}");
    }

    /// Nobody knows at a refusal whether an answer is on its way, waits or has arrived unproved,
    /// and how long a hold takes is the operator's to set.
    #[test]
    fn no_message_claims_that_an_answer_travels_or_when_the_call_would_run() {
        for (reason, send_again) in Reason::ALL.into_iter().flat_map(|r| [(r, false), (r, true)]) {
            let message = rejection(reason, send_again).message();
            for claim in ["being delivered", "on its way", "2 seconds"] {
                assert!(!message.contains(claim), "{reason:?} {send_again}: {message}");
            }
        }
        for reason in [Reason::StreamNotDrained, Reason::ReplayInProgress] {
            let message = rejection(reason, true).message();
            assert!(message.contains("may not have reached you"), "{reason:?}: {message}");
            assert!(message.contains("safe to send"), "{reason:?}: {message}");
        }
        let same_call = rejection(Reason::StreamNotDrained, false).message();
        assert!(same_call.contains("may not have reached you"), "{same_call}");
        assert!(same_call.contains("Do not send it again"), "{same_call}");
    }
}
