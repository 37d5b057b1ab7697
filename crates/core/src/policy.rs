//! The whole rule on one page: which row of design section 5 decides a request (design section 4).
//!
//! Everything here is a function of plain facts. [`crate::session`] gathers them from its state,
//! asks [`decide`], and does what the verdict says. Rows are tried in order; the first that any
//! original matches decides.

#[cfg(feature = "model-check")]
mod ablation;

#[cfg(feature = "model-check")]
pub use ablation::Ablation;

use crate::id::CallId;
use crate::ledger::Phase;
use crate::rejection::Reason;
use crate::settings::{Delivery, OnRepeat};
use crate::stream::{Release, StreamState};

/// How the request's token stands in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TokenFact {
    /// It has none.
    Absent,
    /// The ledger does not know it, and nothing says it ever did: run it.
    Fresh,
    /// A call owns it.
    Known,
    /// Its result is no longer kept; or it is unknown, its attempt is not the first, and attempt 1
    /// was made in another epoch of the ledger.
    Forgotten,
}

/// The request that is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestFacts {
    /// Never gated.
    pub ungated: bool,
    /// Idempotent, or a read of the protocol.
    pub repeatable: bool,
    /// Its token.
    pub token: TokenFact,
    /// It has waited until `hold_max`.
    pub hold_is_over: bool,
    /// It has waited for `repeat_wait` since it came, and half of it since its newest original was
    /// presumed.
    pub repeat_wait_is_over: bool,
}

/// Where the original's answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// On a stream of this session, in this state.
    Stream(StreamState),
    /// In another session.
    Elsewhere,
    /// Answered as JSON: never owed.
    Json,
}

/// One call that the request may repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Original {
    /// The call; `None` if it lives in another session.
    pub call: Option<CallId>,
    /// It owns the request's token.
    pub by_token: bool,
    /// Same method and canonical params.
    pub same_params: bool,
    /// Inside the time in which the same params make a repeat (design section 2, "repeat").
    pub in_repeat_window: bool,
    /// Byte-identical body with the same id, and the only request of it.
    pub is_resend: bool,
    /// Where it stands.
    pub phase: Phase,
    /// Where its answer is.
    pub place: Place,
    /// No event but the priming one left.
    pub is_unseen: bool,
    /// Its stream was once dropped or resumed.
    pub is_scarred: bool,
    /// Presumed or proved less than `owed_grace` ago.
    pub is_fresh: bool,
    /// It is presumed, and a reset would still make its delivery doubtful.
    pub reset_may_come: bool,
    /// The request came within `twin_window` of it.
    pub in_twin_window: bool,
    /// Its connection has shown to be alive since the request came, or cannot be asked.
    pub is_alive: bool,
}

/// The session around them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionFacts {
    /// A call stream is owed, other than those a supersede would release.
    pub owed: bool,
    /// A replay runs and its gate is closed.
    pub replay: bool,
    /// The upstream's state was lost and no call was told.
    pub state_lost: bool,
    /// Setting.
    pub on_repeat: OnRepeat,
    /// Setting.
    pub delivery: Delivery,
    /// What is missing of the rule.
    #[cfg(feature = "model-check")]
    pub ablation: Ablation,
}

/// What to do with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Send it upstream; it is in no ledger row's way.
    Pass,
    /// Claim it, durable, then upstream. The calls are superseded in the same commit.
    Claim {
        /// Calls to cancel and release.
        supersede: Vec<CallId>,
    },
    /// The POST becomes the new connection of this call's stream.
    Attach(CallId),
    /// Answer with the recorded response. The call moves here; `None`: from another session, where
    /// it stays.
    Record(Option<CallId>),
    /// As `Record`, by params: marked, and only the old stream is released.
    Collect(CallId),
    /// Open a stream at once, and answer with the record when there is one.
    Join(CallId),
    /// Ask the connections of these calls for a sign of life, then decide again.
    Probe(Vec<CallId>),
    /// Wait until one of these is presumed, dropped or resumed, then decide again.
    WaitForTwin,
    /// Wait for a reset, then decide again.
    WaitForReset,
    /// Wait in the session's queue until nothing is owed and no replay runs.
    Hold,
    /// Refuse.
    Reject(Reason),
}

/// A verdict, the row that gave it, and the call that made it so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Row of design section 5, 1 to 18.
    pub row: u8,
    /// What to do.
    pub verdict: Verdict,
    /// The original that decided; `None`: none, or it lives in another session.
    pub original: Option<CallId>,
}

/// Judges one request against all calls that it may repeat. Total: exactly one row decides.
pub fn decide(request: &RequestFacts, originals: &[Original], session: &SessionFacts) -> Decision {
    #[cfg(feature = "model-check")]
    {
        let (mut request, mut originals, mut session) = (*request, originals.to_vec(), *session);
        session.ablation.apply(&mut request, &mut originals, &mut session);
        judge_rows(&request, &originals, &session, |row| !session.ablation.removes(row))
    }
    #[cfg(not(feature = "model-check"))]
    judge_rows(request, originals, session, |_| true)
}

/// The rows in their order, as far as they are `there`.
fn judge_rows(
    request: &RequestFacts,
    originals: &[Original],
    session: &SessionFacts,
    there: impl Fn(u8) -> bool,
) -> Decision {
    if request.ungated {
        return Decision { row: 1, verdict: Verdict::Pass, original: None };
    }
    let originals: Vec<_> = originals.iter().map(|o| o.under(session.delivery)).collect();
    for row in (2..=14).filter(|&row| there(row)) {
        if row == 3 && request.token == TokenFact::Forgotten {
            let verdict = Verdict::Reject(Reason::OutcomeUnknown);
            return Decision { row, verdict, original: None };
        }
        for original in &originals {
            if let Some(verdict) = judge(row, request, original, &originals, session) {
                let decision = settle(verdict, row, &originals, request, session);
                return Decision { original: original.call, ..decision };
            }
        }
    }
    let waits = |o: &&Original| o.is_identical(request) && o.reset_may_come;
    if let Some(original) = originals.iter().find(waits)
        && !request.repeat_wait_is_over
        && there(15)
    {
        return Decision { row: 15, verdict: Verdict::WaitForReset, original: original.call };
    }
    admit(Vec::new(), request, session)
}

/// What a single row says of a single original.
enum RowVerdict {
    Is(Verdict),
    /// "-> 16", superseding the original.
    Supersede,
    /// "-> 16".
    Admit,
}

fn settle(
    verdict: RowVerdict,
    row: u8,
    originals: &[Original],
    request: &RequestFacts,
    session: &SessionFacts,
) -> Decision {
    match verdict {
        RowVerdict::Is(verdict) => Decision { row, verdict, original: None },
        RowVerdict::Supersede => {
            let replaced = |o: &&Original| o.is_superseded_by(request);
            let calls = originals.iter().filter(replaced).filter_map(|o| o.call).collect();
            admit(calls, request, session)
        }
        RowVerdict::Admit => admit(Vec::new(), request, session),
    }
}

/// Rows 16 to 18, for a request that is its own call.
fn admit(supersede: Vec<CallId>, request: &RequestFacts, session: &SessionFacts) -> Decision {
    let (row, verdict) = if session.owed || session.replay {
        let reason =
            if session.replay { Reason::ReplayInProgress } else { Reason::StreamNotDrained };
        let over = request.hold_is_over;
        (16, if over { Verdict::Reject(reason) } else { Verdict::Hold })
    } else if session.state_lost && !request.repeatable {
        (17, Verdict::Reject(Reason::StateLost))
    } else {
        (18, Verdict::Claim { supersede })
    };
    Decision { row, verdict, original: None }
}

/// Rows 2 to 14 against one original.
fn judge(
    row: u8,
    request: &RequestFacts,
    original: &Original,
    originals: &[Original],
    session: &SessionFacts,
) -> Option<RowVerdict> {
    let o = original;
    let by_params = o.is_repeat_by_params(request);
    let repeat = o.by_token || by_params;
    let state = match o.place {
        Place::Stream(state) => Some(state),
        Place::Elsewhere | Place::Json => None,
    };
    let owed = state == Some(StreamState::Owed);
    let missing = o.may_be_missing();
    let attached = state.is_some_and(StreamState::is_attached);
    let late_result = o.phase == Phase::Cancelled { result: true };
    let finished = o.phase == Phase::Finished;
    let reject = |reason| Some(RowVerdict::Is(Verdict::Reject(reason)));
    match row {
        2 if o.by_token && !o.same_params => reject(Reason::DedupTokenReused),
        4 if repeat
            && o.is_resend
            && o.is_unseen
            && matches!(state, Some(StreamState::Owed | StreamState::Abandoned)) =>
        {
            o.call.map(|call| RowVerdict::Is(Verdict::Attach(call)))
        }
        5 if o.by_token && (late_result || finished && !owed && !attached) => {
            Some(after_replay(Verdict::Record(o.call), request, session))
        }
        6 if repeat && o.is_superseded_by(request) => Some(RowVerdict::Supersede),
        7 if repeat && matches!(o.phase, Phase::Cancelled { result: false } | Phase::Unknown) => {
            reject(Reason::OutcomeUnknown)
        }
        8 if o.by_token && (o.phase.is_in_flight() || attached) => Some(in_flight(o, session)),
        9 if by_params && o.phase.is_in_flight() && missing => Some(in_flight(o, session)),
        10 if repeat && finished && owed => match o.call {
            Some(call) if session.on_repeat == OnRepeat::Join => {
                Some(after_replay(Verdict::Collect(call), request, session))
            }
            _ => reject(Reason::StreamNotDrained),
        },
        11 if by_params && (late_result || finished && missing) => match session.on_repeat {
            OnRepeat::Reject => reject(Reason::NotIdempotent),
            // A call of another session stays there: it has the record, and its own stream.
            _ => {
                let verdict = o.call.map_or(Verdict::Record(None), Verdict::Collect);
                Some(after_replay(verdict, request, session))
            }
        },
        12 if o.is_identical(request) && request.repeatable => Some(RowVerdict::Admit),
        13 if o.is_identical(request) && o.is_scarred && (attached || o.is_fresh) => {
            reject(Reason::RequestInFlight)
        }
        14 if o.is_identical(request) && attached && !(o.in_twin_window && o.is_alive) => {
            Some(RowVerdict::Is(twin(request, originals)))
        }
        _ => None,
    }
}

fn in_flight(original: &Original, session: &SessionFacts) -> RowVerdict {
    // What runs in another session is not watched from here: its end would never be noticed.
    RowVerdict::Is(match original.call {
        Some(call) if session.on_repeat == OnRepeat::Join => Verdict::Join(call),
        _ => Verdict::Reject(Reason::RequestInFlight),
    })
}

/// Records wait for a running replay, so that nothing overtakes it.
fn after_replay(verdict: Verdict, request: &RequestFacts, session: &SessionFacts) -> RowVerdict {
    RowVerdict::Is(match (session.replay, request.hold_is_over) {
        (false, _) => verdict,
        (true, false) => Verdict::Hold,
        (true, true) => Verdict::Reject(Reason::ReplayInProgress),
    })
}

/// Row 14: every attached unbroken original is asked; outside the window the request waits.
fn twin(request: &RequestFacts, originals: &[Original]) -> Verdict {
    let asked = |o: &&Original| {
        o.is_identical(request)
            && matches!(o.place, Place::Stream(state) if state.is_attached())
            && !o.is_scarred
    };
    if request.hold_is_over {
        return Verdict::Reject(Reason::RequestInFlight);
    }
    if originals.iter().filter(asked).any(|o| !o.in_twin_window) {
        return Verdict::WaitForTwin;
    }
    Verdict::Probe(
        originals.iter().filter(asked).filter(|o| !o.is_alive).filter_map(|o| o.call).collect(),
    )
}

impl Original {
    /// Under `delivery = "proved"`, presumed counts as doubtful (design intro).
    fn under(mut self, delivery: Delivery) -> Self {
        if delivery == Delivery::Proved && self.place == Place::Stream(StreamState::Presumed) {
            self.place = Place::Stream(StreamState::Doubtful);
            self.is_fresh = false;
            self.reset_may_come = false;
        }
        self
    }

    /// Tokenless, same params. An unknown token is never a repeat: it is how a client says "run it
    /// again" (design section 2). A call without outcome is out of the way once its window is over
    /// (row 7); other originals of the same request still count.
    fn is_identical(&self, request: &RequestFacts) -> bool {
        let lost = matches!(self.phase, Phase::Cancelled { .. } | Phase::Unknown);
        let past = lost && !self.in_repeat_window;
        request.token == TokenFact::Absent && self.same_params && !past
    }

    fn is_repeat_by_params(&self, request: &RequestFacts) -> bool {
        let released = match self.place {
            Place::Stream(StreamState::Released(why)) => why != Release::Cancelled,
            Place::Stream(_) | Place::Elsewhere => false,
            Place::Json => true,
        };
        self.is_identical(request) && self.in_repeat_window && !released
    }

    /// Its answer may be missing at its client. What another session has delivered is not told here
    /// by params at all; a token's call there may be anywhere.
    fn may_be_missing(&self) -> bool {
        match self.place {
            Place::Stream(state) => state.is_unsettled(),
            Place::Elsewhere => !self.by_token,
            Place::Json => false,
        }
    }

    /// Row 6, once it is known to be a repeat.
    pub(crate) fn is_superseded_by(&self, request: &RequestFacts) -> bool {
        let repeat = self.by_token || self.is_repeat_by_params(request);
        let lost = matches!(self.phase, Phase::Cancelled { .. } | Phase::Unknown);
        repeat && request.repeatable && (self.may_be_missing() || lost)
    }
}
