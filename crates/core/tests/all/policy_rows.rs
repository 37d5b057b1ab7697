//! The decision, exhaustively: every legal combination of facts against an oracle that is written
//! from the table of design section 5, one predicate a row, tried in order.
#![allow(clippy::panic, reason = "a disagreement is told with all its facts")]

use std::collections::BTreeMap;

use rejoin_core::id::{CallId, Epoch, EventId, Seq, SessionId, StreamId};
use rejoin_core::ledger::Phase;
use rejoin_core::migration::{SessionStreamState, authorize_post_migration};
use rejoin_core::policy::{
    Decision, Original, Place, RequestFacts, SessionFacts, TokenFact, Verdict, decide,
};
use rejoin_core::rejection::Reason;
use rejoin_core::settings::{Delivery, OnRepeat};
use rejoin_core::stream::{Release, StreamState};

const BOTH: [bool; 2] = [false, true];
const PHASES: [Phase; 6] = [
    Phase::Claimed,
    Phase::Sent,
    Phase::Finished,
    Phase::Cancelled { result: false },
    Phase::Cancelled { result: true },
    Phase::Unknown,
];

// ---------------------------------------------------------------------------------------------
// The oracle.

/// What one row says.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Says {
    Is(Verdict),
    To16(Vec<CallId>),
}

struct Case<'a> {
    r: &'a RequestFacts,
    all: &'a [Original],
    s: &'a SessionFacts,
}

impl Case<'_> {
    /// The stream state as the table reads it: under `delivery = "proved"`, presumed is doubtful.
    fn state(&self, o: &Original) -> Option<StreamState> {
        match o.place {
            Place::Stream(StreamState::Presumed) if self.s.delivery == Delivery::Proved => {
                Some(StreamState::Doubtful)
            }
            Place::Stream(state) => Some(state),
            Place::Elsewhere | Place::Json => None,
        }
    }

    fn is(&self, o: &Original, states: &[StreamState]) -> bool {
        self.state(o).is_some_and(|state| states.contains(&state))
    }

    fn released(&self, o: &Original) -> bool {
        matches!(self.state(o), Some(StreamState::Released(_)))
    }

    fn attached(&self, o: &Original) -> bool {
        self.is(o, &[StreamState::Live, StreamState::Ending])
    }

    /// "dropped": owed, abandoned or doubtful.
    fn dropped(&self, o: &Original) -> bool {
        self.is(o, &[StreamState::Owed, StreamState::Abandoned, StreamState::Doubtful])
    }

    /// "dropped", or in another session and not known there to be delivered.
    fn missing(&self, o: &Original) -> bool {
        self.dropped(o) || o.place == Place::Elsewhere && !o.by_token
    }

    fn in_flight(o: &Original) -> bool {
        matches!(o.phase, Phase::Claimed | Phase::Sent)
    }

    fn finished(o: &Original) -> bool {
        o.phase == Phase::Finished
    }

    fn cancelled_or_unknown(o: &Original) -> bool {
        matches!(o.phase, Phase::Cancelled { .. } | Phase::Unknown)
    }

    /// "identical": tokenless, same canonical params. What is past the window of row 7 is not.
    fn identical(&self, o: &Original) -> bool {
        let past = Self::cancelled_or_unknown(o) && !o.in_repeat_window;
        self.r.token == TokenFact::Absent && o.same_params && !past
    }

    /// "by params": identical, inside the definition of repeat.
    fn by_params(&self, o: &Original) -> bool {
        let by_cancel = self.state(o) == Some(StreamState::Released(Release::Cancelled));
        self.identical(o) && o.in_repeat_window && (!self.released(o) || by_cancel)
    }

    fn repeat(&self, o: &Original) -> bool {
        o.by_token || self.by_params(o)
    }

    fn join_or_reject(&self, o: &Original) -> Says {
        Says::Is(match (self.s.on_repeat, o.call) {
            (OnRepeat::Join, Some(call)) => Verdict::Join(call),
            _ => Verdict::Reject(Reason::RequestInFlight),
        })
    }

    /// "Records wait for a running replay."
    fn record(&self, verdict: Verdict) -> Says {
        Says::Is(match (self.s.replay, self.r.hold_is_over) {
            (false, _) => verdict,
            (true, false) => Verdict::Hold,
            (true, true) => Verdict::Reject(Reason::ReplayInProgress),
        })
    }

    fn row_2(&self, o: &Original) -> Option<Says> {
        (o.by_token && !o.same_params)
            .then_some(Says::Is(Verdict::Reject(Reason::DedupTokenReused)))
    }

    fn row_4(&self, o: &Original) -> Option<Says> {
        let left = self.is(o, &[StreamState::Owed, StreamState::Abandoned]) && o.is_unseen;
        let call = o.call.filter(|_| self.repeat(o) && o.is_resend && left)?;
        Some(Says::Is(Verdict::Attach(call)))
    }

    fn row_5(&self, o: &Original) -> Option<Says> {
        let states = [
            StreamState::Presumed,
            StreamState::Proved,
            StreamState::Doubtful,
            StreamState::Abandoned,
        ];
        let over = self.is(o, &states) || self.released(o) || o.place == Place::Elsewhere;
        let late = o.phase == Phase::Cancelled { result: true };
        (o.by_token && (Self::finished(o) && over || late))
            .then(|| self.record(Verdict::Record(o.call)))
    }

    fn replaceable(&self, o: &Original) -> bool {
        self.repeat(o) && (self.missing(o) || Self::cancelled_or_unknown(o))
    }

    fn row_6(&self, o: &Original) -> Option<Says> {
        (self.r.repeatable && self.replaceable(o)).then(|| {
            let calls = self.all.iter().filter(|o| self.replaceable(o)).filter_map(|o| o.call);
            Says::To16(calls.collect())
        })
    }

    fn row_7(&self, o: &Original) -> Option<Says> {
        let lost = matches!(o.phase, Phase::Cancelled { result: false } | Phase::Unknown);
        (self.repeat(o) && lost).then_some(Says::Is(Verdict::Reject(Reason::OutcomeUnknown)))
    }

    fn row_8(&self, o: &Original) -> Option<Says> {
        (o.by_token && (Self::in_flight(o) || self.attached(o))).then(|| self.join_or_reject(o))
    }

    fn row_9(&self, o: &Original) -> Option<Says> {
        (self.by_params(o) && Self::in_flight(o) && self.missing(o)).then(|| self.join_or_reject(o))
    }

    fn row_10(&self, o: &Original) -> Option<Says> {
        let owed = self.is(o, &[StreamState::Owed]);
        (self.repeat(o) && Self::finished(o) && owed).then(|| match (self.s.on_repeat, o.call) {
            // Joined after its end: the wait is over, the record comes.
            (OnRepeat::Join, Some(call)) => self.record(Verdict::Collect(call)),
            _ => Says::Is(Verdict::Reject(Reason::StreamNotDrained)),
        })
    }

    fn row_11(&self, o: &Original) -> Option<Says> {
        let here = self.is(o, &[StreamState::Abandoned, StreamState::Doubtful]);
        let lost = here || o.place == Place::Elsewhere;
        let late = o.phase == Phase::Cancelled { result: true };
        (self.by_params(o) && (Self::finished(o) && lost || late)).then(|| {
            match (self.s.on_repeat, o.call) {
                (OnRepeat::Reject, _) => Says::Is(Verdict::Reject(Reason::NotIdempotent)),
                (_, Some(call)) => self.record(Verdict::Collect(call)),
                (_, None) => self.record(Verdict::Record(None)),
            }
        })
    }

    fn row_12(&self, o: &Original) -> Option<Says> {
        (self.identical(o) && self.r.repeatable).then(|| Says::To16(Vec::new()))
    }

    fn row_13(&self, o: &Original) -> Option<Says> {
        let recent = self.is(o, &[StreamState::Presumed, StreamState::Proved]) && o.is_fresh;
        (self.identical(o) && o.is_scarred && (self.attached(o) || recent))
            .then_some(Says::Is(Verdict::Reject(Reason::RequestInFlight)))
    }

    fn unbroken(&self, o: &Original) -> bool {
        self.identical(o) && self.attached(o) && !o.is_scarred
    }

    /// "decide again, those passing this row": an original passes if it is a living twin.
    fn row_14(&self, o: &Original) -> Option<Says> {
        (self.unbroken(o) && !(o.in_twin_window && o.is_alive)).then(|| {
            let attached = || self.all.iter().filter(|o| self.unbroken(o));
            Says::Is(if self.r.hold_is_over {
                Verdict::Reject(Reason::RequestInFlight)
            } else if attached().any(|o| !o.in_twin_window) {
                Verdict::WaitForTwin
            } else {
                let silent = attached().filter(|o| !o.is_alive).filter_map(|o| o.call);
                Verdict::Probe(silent.collect())
            })
        })
    }

    fn row_15(&self, o: &Original) -> Option<Says> {
        let presumed = self.is(o, &[StreamState::Presumed]);
        (self.identical(o) && presumed && o.reset_may_come && !self.r.repeat_wait_is_over)
            .then_some(Says::Is(Verdict::WaitForReset))
    }

    fn rows_16_to_18(&self, supersede: Vec<CallId>) -> (u8, Verdict) {
        if self.s.owed || self.s.replay {
            let reason = match self.s.replay {
                true => Reason::ReplayInProgress,
                false => Reason::StreamNotDrained,
            };
            return (
                16,
                match self.r.hold_is_over {
                    true => Verdict::Reject(reason),
                    false => Verdict::Hold,
                },
            );
        }
        if !self.r.repeatable && self.s.state_lost {
            return (17, Verdict::Reject(Reason::StateLost));
        }
        (18, Verdict::Claim { supersede })
    }

    fn decide(&self) -> Decision {
        type Row = (u8, fn(&Case<'_>, &Original) -> Option<Says>);
        if self.r.ungated {
            return Decision { row: 1, verdict: Verdict::Pass, original: None };
        }
        let rows: [Row; 14] = [
            (2, |case, o| case.row_2(o)),
            (3, |_, _| None),
            (4, |case, o| case.row_4(o)),
            (5, |case, o| case.row_5(o)),
            (6, |case, o| case.row_6(o)),
            (7, |case, o| case.row_7(o)),
            (8, |case, o| case.row_8(o)),
            (9, |case, o| case.row_9(o)),
            (10, |case, o| case.row_10(o)),
            (11, |case, o| case.row_11(o)),
            (12, |case, o| case.row_12(o)),
            (13, |case, o| case.row_13(o)),
            (14, |case, o| case.row_14(o)),
            (15, |case, o| case.row_15(o)),
        ];
        for (row, says) in rows {
            if row == 3 && self.r.token == TokenFact::Forgotten {
                let verdict = Verdict::Reject(Reason::OutcomeUnknown);
                return Decision { row, verdict, original: None };
            }
            let found = self.all.iter().find_map(|o| Some((o.call, says(self, o)?)));
            match found {
                Some((original, Says::Is(verdict))) => return Decision { row, verdict, original },
                Some((original, Says::To16(supersede))) => {
                    let (row, verdict) = self.rows_16_to_18(supersede);
                    return Decision { row, verdict, original };
                }
                None => {}
            }
        }
        let (row, verdict) = self.rows_16_to_18(Vec::new());
        Decision { row, verdict, original: None }
    }
}

// ---------------------------------------------------------------------------------------------
// The domain.

fn released() -> [StreamState; 6] {
    [
        Release::Collected,
        Release::Superseded,
        Release::Cancelled,
        Release::NotRun,
        Release::ByHand,
        Release::Expired,
    ]
    .map(StreamState::Released)
}

/// Where the answer of a call in a phase can be. Impossible, and left out:
/// - `held` streams have no call; a call answered as JSON is forgotten when its phase ends;
/// - a call in flight keeps its stream from ending, so that it is live, owed, abandoned, or was
///   released by hand. In another session it can be in any phase.
/// - `Cancelled { result: true }` elsewhere: the token's row says `finished` then.
fn places(phase: Phase) -> Vec<Place> {
    let ended = [
        StreamState::Live,
        StreamState::Ending,
        StreamState::Owed,
        StreamState::Abandoned,
        StreamState::Presumed,
        StreamState::Doubtful,
        StreamState::Proved,
    ];
    let running = [
        StreamState::Live,
        StreamState::Owed,
        StreamState::Abandoned,
        StreamState::Released(Release::ByHand),
    ];
    let mut places: Vec<_> = if phase.is_in_flight() {
        running.into_iter().map(Place::Stream).chain([Place::Json]).collect()
    } else {
        ended.into_iter().chain(released()).map(Place::Stream).collect()
    };
    if phase != (Phase::Cancelled { result: true }) {
        places.push(Place::Elsewhere);
    }
    places
}

fn if_true(possible: bool) -> &'static [bool] {
    if possible { &BOTH } else { &BOTH[..1] }
}

/// All originals in one phase and place. Impossible, and left out:
/// - other params without the token that finds the call;
/// - outside the window while in flight, attached, owed or doubtful, or elsewhere: such a row is
///   not looked at;
/// - a re-send, unseen, a scar, `fresh`, a reset or a sign of life where there is no stream;
/// - `fresh` unless presumed or proved; a reset unless presumed; a re-send with other params;
/// - unseen once the final event was handed over; owed, abandoned or doubtful without a scar.
fn originals_at(phase: Phase, place: Place, call: u64) -> Vec<Original> {
    let state = match place {
        Place::Stream(state) => Some(state),
        Place::Elsewhere | Place::Json => None,
    };
    let here = state.is_some();
    let settled = matches!(state, Some(StreamState::Presumed | StreamState::Proved));
    let dropped = state.is_some_and(StreamState::is_unsettled);
    let open = phase.is_in_flight()
        || place == Place::Elsewhere
        || state.is_some_and(|s| s.is_attached())
        || matches!(state, Some(StreamState::Owed | StreamState::Doubtful));
    let handed = settled || matches!(state, Some(StreamState::Ending | StreamState::Doubtful));
    let tokens: &[(bool, bool)] = match place {
        Place::Json => &[(false, true)],
        Place::Stream(_) | Place::Elsewhere => &[(false, true), (true, true), (true, false)],
    };
    let windows = if open { &BOTH[1..] } else { &BOTH[..] };
    let scars = if dropped { &BOTH[1..] } else { if_true(here) };
    let mut all = Vec::new();
    for &(by_token, same_params) in tokens {
        for &in_repeat_window in windows {
            for &is_resend in if_true(here && same_params) {
                for &is_unseen in if_true(here && !handed) {
                    for &is_scarred in scars {
                        for &is_fresh in if_true(settled) {
                            let presumed = state == Some(StreamState::Presumed);
                            for &reset_may_come in if_true(presumed) {
                                for &in_twin_window in if_true(here) {
                                    for &is_alive in if_true(here) {
                                        all.push(Original {
                                            call: (place != Place::Elsewhere)
                                                .then_some(CallId(call)),
                                            by_token,
                                            same_params,
                                            in_repeat_window,
                                            is_resend,
                                            phase,
                                            place,
                                            is_unseen,
                                            is_scarred,
                                            is_fresh,
                                            reset_may_come,
                                            in_twin_window,
                                            is_alive,
                                        });
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    all
}

fn originals(call: u64) -> Vec<Original> {
    let at = |phase: Phase| {
        places(phase).into_iter().flat_map(move |place| originals_at(phase, place, call))
    };
    PHASES.into_iter().flat_map(at).collect()
}

/// All requests that can meet these originals: a token is known exactly if it found a call; a
/// forgotten one finds only a row with other params. Nothing else of an ungated request counts.
fn requests(tokens: &[TokenFact]) -> Vec<RequestFacts> {
    let mut all = Vec::new();
    for &token in tokens {
        for repeatable in BOTH {
            for hold_is_over in BOTH {
                for repeat_wait_is_over in BOTH {
                    all.push(RequestFacts {
                        ungated: false,
                        repeatable,
                        token,
                        hold_is_over,
                        repeat_wait_is_over,
                    });
                }
            }
        }
        let ungated = RequestFacts {
            ungated: true,
            repeatable: true,
            token,
            hold_is_over: false,
            repeat_wait_is_over: false,
        };
        all.push(ungated);
    }
    all
}

/// With the default settings.
fn session(owed: bool, replay: bool, state_lost: bool) -> SessionFacts {
    SessionFacts {
        owed,
        replay,
        state_lost,
        on_repeat: OnRepeat::Collect,
        delivery: Delivery::Presumed,
        #[cfg(feature = "model-check")]
        ablation: Default::default(),
    }
}

fn sessions() -> Vec<SessionFacts> {
    let mut all = Vec::new();
    for owed in BOTH {
        for replay in BOTH {
            for state_lost in BOTH {
                for on_repeat in [OnRepeat::Collect, OnRepeat::Join, OnRepeat::Reject] {
                    for delivery in [Delivery::Presumed, Delivery::Proved] {
                        let session = session(owed, replay, state_lost);
                        all.push(SessionFacts { on_repeat, delivery, ..session });
                    }
                }
            }
        }
    }
    all
}

fn agree(r: &RequestFacts, all: &[Original], s: &SessionFacts) -> Decision {
    let decision = decide(r, all, s);
    let expected = Case { r, all, s }.decide();
    if decision != expected {
        panic!("{decision:?}\nexpected {expected:?}\n{r:?}\n{all:?}\n{s:?}");
    }
    decision
}

type Reached = BTreeMap<(u8, &'static str), u64>;

fn name(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "pass",
        Verdict::Claim { .. } => "claim",
        Verdict::Attach(_) => "attach",
        Verdict::Record(_) => "record",
        Verdict::Collect(_) => "collect",
        Verdict::Join(_) => "join",
        Verdict::Probe(_) => "probe",
        Verdict::WaitForTwin => "twin",
        Verdict::WaitForReset => "reset",
        Verdict::Hold => "hold",
        Verdict::Reject(reason) => reason.name(),
    }
}

fn reach(reached: &mut Reached, decision: &Decision) {
    *reached.entry((decision.row, name(&decision.verdict))).or_default() += 1;
}

// ---------------------------------------------------------------------------------------------
// The tests.

#[test]
fn every_request_without_an_original_is_decided_as_the_table_says() {
    let tokens = [TokenFact::Absent, TokenFact::Fresh, TokenFact::Forgotten];
    for request in requests(&tokens) {
        for session in sessions() {
            agree(&request, &[], &session);
        }
    }
}

#[test]
fn every_original_is_decided_as_the_table_says_and_every_row_is_reached() {
    let sessions = sessions();
    let tokenless = requests(&[TokenFact::Absent]);
    let known = requests(&[TokenFact::Known]);
    let reused = requests(&[TokenFact::Known, TokenFact::Forgotten]);
    let mut reached = Reached::new();
    for original in originals(7) {
        let requests = match (original.by_token, original.same_params) {
            (false, _) => &tokenless,
            (true, true) => &known,
            (true, false) => &reused,
        };
        for request in requests {
            for session in &sessions {
                let decision = agree(request, &[original], session);
                reach(&mut reached, &decision);
            }
        }
    }
    let forgotten = requests(&[TokenFact::Forgotten]);
    reach(&mut reached, &agree(&forgotten[0], &[], &sessions[0]));
    // Rows 6 and 12 only say "-> 16": what they decide carries the number of the row they led to.
    let rows: Vec<_> = [1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 13, 14, 15, 16, 17, 18].to_vec();
    let mut found: Vec<_> = reached.keys().map(|(row, _)| *row).collect();
    found.dedup();
    assert_eq!(found, rows, "{reached:?}");
    for (row, verdict) in [
        (5, "record"),
        (5, "hold"),
        (5, "replay_in_progress"),
        (8, "join"),
        (9, "join"),
        (9, "request_in_flight"),
        (10, "collect"),
        (10, "stream_not_drained"),
        (11, "collect"),
        (11, "record"),
        (11, "not_idempotent"),
        (14, "probe"),
        (14, "twin"),
        (14, "request_in_flight"),
        (16, "hold"),
        (16, "stream_not_drained"),
        (16, "replay_in_progress"),
    ] {
        assert!(reached.contains_key(&(row, verdict)), "{row} {verdict}: {reached:?}");
    }
}

/// Tokenless originals that differ in what rows 4 to 15 ask for, each with its least other facts.
fn representatives(call: u64) -> Vec<Original> {
    let seen = |o: &Original| !o.is_unseen && !o.is_resend;
    let keep = |o: &Original| {
        let attached = matches!(o.place, Place::Stream(state) if state.is_attached());
        let resend = o.is_resend && o.is_unseen && o.phase != Phase::Claimed;
        let phase = o.phase != Phase::Claimed;
        !o.by_token
            && phase
            && (seen(o) || resend && !attached)
            && (attached || !o.in_twin_window && !o.is_alive)
            && (o.is_scarred || o.is_fresh == o.reset_may_come)
    };
    originals(call).into_iter().filter(keep).collect()
}

#[test]
fn two_originals_are_decided_by_the_first_row_that_either_matches() {
    let sessions: Vec<_> = sessions()
        .into_iter()
        .filter(|s| !(s.state_lost || s.owed && s.replay))
        .filter(|s| s.on_repeat != OnRepeat::Join || s.delivery == Delivery::Presumed)
        .collect();
    let requests: Vec<_> =
        requests(&[TokenFact::Absent]).into_iter().filter(|r| !r.ungated).collect();
    let (first, second) = (representatives(7), representatives(8));
    let mut reached = Reached::new();
    for (index, a) in first.iter().enumerate() {
        for (other, b) in second.iter().enumerate() {
            // Every pair once in each order, over sessions and requests in turn.
            for (at, session) in sessions.iter().enumerate() {
                let request = &requests[(index + other + at) % requests.len()];
                let decision = agree(request, &[*a, *b], session);
                reach(&mut reached, &decision);
            }
        }
    }
    assert!(reached.len() > 15, "{reached:?}");
}

/// The plain rule of section 1 on the one stream that a POST repeats, judged after a supersede.
fn plain_rule_accepts(r: &RequestFacts, o: &Original) -> bool {
    let superseded = r.repeatable;
    let drained = match o.place {
        Place::Stream(state) => {
            matches!(state, StreamState::Presumed | StreamState::Proved | StreamState::Released(_))
        }
        Place::Elsewhere | Place::Json => true,
    };
    let id = |seq| {
        let (epoch, stream) = (Epoch(1), StreamId(1));
        Some(EventId { epoch, stream, seq: Seq(seq) })
    };
    let in_flight = o.phase.may_produce() && !superseded;
    let state = SessionStreamState {
        session_id: SessionId::new("session"),
        last_delivered_event_id: id(if drained || superseded { 9 } else { 4 }),
        last_produced_event_id: id(9),
        in_flight_requests: in_flight.then(|| "7".to_owned()).into_iter().collect(),
    };
    let token = o.by_token.then_some("token");
    authorize_post_migration(&state, "8", r.repeatable, token, true).is_ok()
}

#[test]
fn where_the_plain_rule_rejects_nothing_runs_and_where_it_accepts_it_runs_or_is_answered() {
    let (mut accepted, mut rejected) = (0, 0);
    let session = session(false, false, false);
    for original in originals(7).into_iter().filter(|o| o.same_params) {
        let token = if original.by_token { TokenFact::Known } else { TokenFact::Absent };
        for request in requests(&[token]).iter().filter(|r| !r.ungated) {
            let case = Case { r: request, all: &[original], s: &session };
            let o = &original;
            let lost = Case::cancelled_or_unknown(o) || case.dropped(o);
            let attached = case.attached(o) && !Case::cancelled_or_unknown(o);
            // Twins are no repeats, and a delivered tokenless call cannot be recognised as one.
            if !(case.repeat(o) && (o.by_token || lost)) || request.repeatable && attached {
                continue;
            }
            let verdict = decide(request, &[original], &session).verdict;
            let runs = matches!(verdict, Verdict::Claim { .. });
            let answers = matches!(verdict, Verdict::Record(_) | Verdict::Collect(_));
            if !plain_rule_accepts(request, o) {
                rejected += 1;
                assert!(!runs, "{verdict:?} {request:?} {original:?}");
                continue;
            }
            // A re-send of what still runs neither runs nor is answered: it carries on.
            let joins = matches!(verdict, Verdict::Attach(_) | Verdict::Reject(_));
            if !(joins && request.repeatable) {
                accepted += 1;
                assert!(runs || answers, "{verdict:?} {request:?} {original:?}");
            }
        }
    }
    assert!(accepted > 100 && rejected > 100, "{accepted} {rejected}");
}

#[test]
fn every_living_twin_is_asked_and_all_that_a_supersede_replaces_are_named() {
    let session = session(false, false, false);
    let request = |repeatable| RequestFacts {
        ungated: false,
        repeatable,
        token: TokenFact::Absent,
        hold_is_over: false,
        repeat_wait_is_over: false,
    };
    let pick = |call, wanted: StreamState| {
        let fits = |o: &Original| {
            o.place == Place::Stream(wanted) && o.in_twin_window && !o.by_token && !o.is_alive
        };
        originals_at(Phase::Finished, Place::Stream(wanted), call)
            .into_iter()
            .find(fits)
            .expect("it is in the domain")
    };
    let twins = [pick(7, StreamState::Live), pick(8, StreamState::Ending)];
    let asked = agree(&request(false), &twins, &session);
    assert_eq!(asked.verdict, Verdict::Probe(vec![CallId(7), CallId(8)]));
    let lost = [pick(7, StreamState::Owed), pick(8, StreamState::Doubtful)];
    let replaced = agree(&request(true), &lost, &session);
    assert_eq!(replaced.verdict, Verdict::Claim { supersede: vec![CallId(7), CallId(8)] });
}
