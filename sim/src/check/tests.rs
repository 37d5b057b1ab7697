//! Each checker is shown a history that is broken in one place.

use rejoin_core::policy::Ablation;
use rejoin_core::settings::{Delivery, OnRepeat};

use super::*;
use crate::history::{Exec, Key, Leave, Mark, Outcome, What};
use crate::plan::Server;

/// A plan without anything that a server may be excused by.
fn plan() -> Plan {
    let mut plan = Plan::of(1, Ablation::Nothing);
    plan.delivery = Delivery::Proved;
    plan.on_repeat = OnRepeat::Collect;
    plan.proxy = None;
    plan.server = Server::Child;
    plan
}

fn session_of(client: usize, session: usize) -> What {
    let store_key = [session as u8; 32];
    What::Session { client, session, principal: Some(client as u32), store_key }
}

/// An execution for request `exec` of client 0, in its session.
fn executed(exec: Exec, key: Key) -> What {
    let (request, call) = (exec.into(), exec.into());
    What::Executed { exec, key, session: 1, charge: true, client: 0, request, call }
}

/// A client asks once, and is answered by execution 1 on connection 1, with two steps.
fn good() -> Vec<(u64, What)> {
    let (client, asking, session, conn) = (0, 1, 1, 1);
    let read = |mark| What::Read { client, asking, conn, mark };
    let comment = What::Moved { conn, to_client: true, bytes: 10 };
    let comments = (1..6).map(|count| (count * 10_000, comment.clone()));
    let history = [
        (0, What::Started { life: 1, skew_ms: 0 }),
        (1, session_of(client, session)),
        (2, What::Asked { client, asking, key: 1, token: None, charge: true }),
        (3, What::Posted { client, asking, session, conn, attempt: 1, request: 1 }),
        (4, executed(1, 1)),
        (5, What::Head { conn, status: 200, replays: false }),
        (6, read(Mark::Progress(1, 1))),
        (7, read(Mark::Progress(1, 2))),
        (8, What::Produced { exec: 1, steps: 2 }),
        (9, What::InKernel { conn, mark: Mark::Answer(1) }),
        (10, read(Mark::Answer(1))),
        (11, What::Settled { client, asking, outcome: Outcome::Answered(1, false) }),
        (60_000, What::Ended { in_time: true }),
    ];
    history.into_iter().chain(comments).collect()
}

fn check(plan: &Plan, mut history: Vec<(u64, What)>) -> Verdict {
    // Whatever ran or was written was on the disk.
    let on_disk = history.iter().filter_map(|(at_ms, what)| match *what {
        What::Executed { session, call, .. } => {
            Some((*at_ms, What::Claimed { store_key: [session as u8; 32], call }))
        }
        What::Written { mark: Mark::Answer(exec), .. } => Some((*at_ms, What::Kept { exec })),
        _ => None,
    });
    history.extend(on_disk.collect::<Vec<_>>());
    check_as_it_is(plan, history)
}

fn check_as_it_is(plan: &Plan, mut history: Vec<(u64, What)>) -> Verdict {
    history.sort_by_key(|(at_ms, _)| *at_ms);
    let records: Vec<_> = history.into_iter().map(|(at_ms, what)| Record { at_ms, what }).collect();
    super::check(plan, &records)
}

fn properties(plan: &Plan, history: Vec<(u64, What)>) -> Vec<&'static str> {
    check(plan, history).violations.iter().map(|violation| violation.property).collect()
}

#[test]
fn a_good_history_violates_nothing() {
    assert_eq!(properties(&plan(), good()), [""; 0]);
}

#[test]
fn a_second_execution_of_what_was_asked_once_is_seen() {
    let mut history = good();
    history.push((20, executed(2, 1)));
    assert_eq!(properties(&plan(), history), ["exactly once"]);
}

#[test]
fn what_was_presumed_delivered_is_a_limit_unless_a_reset_told_otherwise() {
    let second = (20, executed(2, 1));
    let presumed = Plan { delivery: Delivery::Presumed, ..plan() };
    let mut history = good();
    history.push(second);
    let verdict = check(&presumed, history.clone());
    assert_eq!((verdict.violations.len(), &verdict.limits[..]), (0, &["presumed delivered"][..]));
    history.push((12, What::Left { conn: 1, how: Leave::Close }));
    history.push((13, What::ResetSeen { conn: 1 }));
    assert_eq!(properties(&presumed, history), ["exactly once"]);
}

#[test]
fn progress_that_is_missing_or_doubled_is_seen() {
    for (at, step) in [(6, 1), (7, 2)] {
        let mut missing = good();
        missing.retain(|(at_ms, _)| *at_ms != at);
        assert_eq!(properties(&plan(), missing), ["completeness"], "without step {step}");
    }
    let mut doubled = good();
    let mark = Mark::Progress(1, 2);
    doubled.push((7, What::Read { client: 0, asking: 1, conn: 1, mark }));
    assert_eq!(properties(&plan(), doubled), ["completeness"]);
}

#[test]
fn a_client_that_is_left_without_its_answer_is_seen() {
    for outcome in [Outcome::Patience, Outcome::NothingToResume, Outcome::Refused(40906)] {
        let mut history = good();
        history.retain(|(at_ms, _)| !(9..=11).contains(at_ms));
        history.push((11, What::Settled { client: 0, asking: 1, outcome }));
        assert_eq!(properties(&plan(), history), ["completeness"]);
    }
}

#[test]
fn an_answer_that_overtakes_a_replay_is_seen() {
    let overtaking = |in_kernel_ms| {
        let mut history = good();
        let (client, asking, session) = (0, 2, 1);
        let key = 2;
        history.extend([
            (12, What::Resumed { client, asking: 1, session, conn: 2 }),
            (13, What::Head { conn: 2, status: 200, replays: true }),
            (14, What::Asked { client, asking, key, token: None, charge: true }),
            (15, What::Posted { client, asking, session, conn: 3, attempt: 1, request: 2 }),
            (16, executed(2, key)),
            (17, What::Head { conn: 3, status: 200, replays: false }),
            (in_kernel_ms, What::InKernel { conn: 3, mark: Mark::Answer(2) }),
            (30, What::InKernel { conn: 2, mark: Mark::Progress(9, 1) }),
            (30, What::InKernel { conn: 2, mark: Mark::ReplayEnd }),
            (31, What::Settled { client, asking, outcome: Outcome::Answered(2, false) }),
            (40, What::Whole { conn: 2 }),
            (40, What::Whole { conn: 3 }),
        ]);
        properties(&plan(), history)
    };
    assert_eq!(overtaking(29), ["replay before newer answers"]);
    assert_eq!(overtaking(30), [""; 0]);
}

#[test]
fn what_another_call_produced_is_seen_and_so_is_an_intrusion() {
    let mark = Mark::Answer(2);
    let read = (21, What::Read { client: 0, asking: 1, conn: 1, mark });
    let mut history = good();
    history.extend([(20, executed(2, 2)), read.clone()]);
    assert!(properties(&plan(), history).contains(&"isolation"));
    // Another client's, with the same arguments.
    let (session, charge, client, request, call) = (2, false, 1, 2, 2);
    let other = What::Executed { exec: 2, key: 1, session, charge, client, request, call };
    let mut history = good();
    history.extend([(1, session_of(1, 2)), (20, other), read]);
    assert!(properties(&plan(), history).contains(&"isolation"));
    // In another client's session.
    let stray = What::Executed { exec: 2, key: 1, session, charge, client: 0, request, call };
    let mut history = good();
    history.extend([(1, session_of(1, 2)), (20, stray)]);
    assert_eq!(properties(&plan(), history), ["isolation"]);
    let mut history = good();
    history.push((20, What::Intruded { status: 200, as_expected: false }));
    assert_eq!(properties(&plan(), history), ["isolation"]);
}

/// The good history, with these; its call gives its result at `produced_ms`.
fn with(produced_ms: u64, more: Vec<(u64, What)>) -> Vec<&'static str> {
    let mut history = good();
    history.retain(|(at_ms, _)| *at_ms < 8 || *at_ms > 11);
    let outcome = Outcome::Cancelled;
    history.push((produced_ms, What::Produced { exec: 1, steps: 2 }));
    history.push((produced_ms, What::Settled { client: 0, asking: 1, outcome }));
    history.extend(more);
    properties(&plan(), history)
}

#[test]
fn a_cancel_that_does_not_reach_its_call_is_seen_and_so_is_one_that_nobody_sent() {
    const TOLD: &str = "what the server is told";
    let (session, request) = (1, 1);
    let cancelling = (100, What::Cancelling { session, request });
    let taken = (110, What::CancelTaken { session, request });
    let told = |call| (120, What::CancelTold { session, call });
    let cancel =
        |more: &[(u64, What)]| with(9_000, [&[cancelling.clone(), taken.clone()], more].concat());
    assert_eq!(cancel(&[told(1)]), [""; 0]);
    assert_eq!(cancel(&[]), [TOLD]);
    assert_eq!(cancel(&[told(2)]).len(), 2, "neither the right call nor one that is there");
    assert_eq!(cancel(&[(105, What::ServerDied)]), [""; 0], "it is gone");
    assert_eq!(with(105, vec![cancelling.clone(), taken.clone()]), [""; 0], "it had its result");
    assert_eq!(with(9_000, vec![told(1)]), [TOLD]);
}

#[test]
fn an_answer_that_is_dropped_doubled_or_given_to_another_is_seen() {
    const TOLD: &str = "what the server is told";
    let taken = (100, What::AnswerTaken { session: 1, exec: 1 });
    let told = |at_ms, exec, meant| (at_ms, What::AnswerTold { exec, meant });
    assert_eq!(with(9_000, vec![taken.clone(), told(90, 1, Some(1))]), [""; 0]);
    assert_eq!(with(9_000, vec![taken.clone()]), [TOLD]);
    assert_eq!(with(9_000, vec![taken, (95, What::Crashed { life: 1 })]), [""; 0]);
    assert_eq!(with(9_000, vec![told(90, 1, Some(1)), told(91, 1, Some(1))]), [TOLD]);
    assert_eq!(with(9_000, vec![told(90, 1, Some(2))]), [TOLD]);
    assert_eq!(with(9_000, vec![told(90, 7, Some(7))]), [TOLD]);
    assert_eq!(with(9_000, vec![told(90, 1, None)]), [TOLD], "refused while its client was there");
}

#[test]
fn an_end_that_does_not_reach_the_server_is_seen_and_so_is_one_that_nobody_asked_for() {
    const TOLD: &str = "what the server is told";
    let session = 1;
    let ending = (200, What::Ending { session });
    let taken = (210, What::EndTaken { session });
    let told = (220, What::EndTold { session });
    assert_eq!(with(20, vec![ending.clone(), taken.clone(), told.clone()]), [""; 0]);
    assert_eq!(with(20, vec![ending, taken]), [TOLD]);
    assert_eq!(with(20, vec![told]), [TOLD]);
}

#[test]
fn a_refusal_of_a_client_that_did_nothing_wrong_is_seen() {
    const REFUSED: &str = "good clients are not refused";
    let error = |code| (50, What::Error { client: 0, asking: 1, conn: 1, code });
    for code in [40901, 40902, 40903, 40906] {
        assert_eq!(with(9_000, vec![error(code)]), [REFUSED], "{code}");
    }
    let harmed = [
        What::ServerDied,
        What::ResetSeen { conn: 2 },
        What::Blocked { conn: 2, to_client: true, blocked: true },
    ];
    for what in harmed {
        let own = (10, What::Connected { conn: 2, client: 0 });
        assert_eq!(with(9_000, vec![own, (20, what.clone()), error(40902)]), [""; 0], "{what:?}");
    }
}

#[test]
fn a_drain_that_gives_up_what_runs_is_seen_and_so_is_a_session_that_is_gone() {
    const KEEPS: &str = "what a drain keeps";
    let life = 1;
    let drains = |ms: u64, left| {
        vec![(100, What::Draining { life }), (100 + ms, What::Drained { life, left })]
    };
    let unread = (99, What::Left { conn: 1, how: Leave::Close });
    assert_eq!(with(2_000, [drains(3_000, 0), vec![unread]].concat()), [""; 0]);
    assert_eq!(with(2_000, drains(3_000, 0)), [KEEPS], "its answer did not arrive");
    assert_eq!(with(9_000, drains(3_000, 0)), [KEEPS]);
    assert_eq!(with(50_000, drains(30_000, 0)), [""; 0], "it had no more time");
    assert_eq!(with(50, drains(3_000, 1)), [KEEPS], "a server lives on");
    let mut gone = good();
    gone.retain(|(at_ms, _)| ![4, 5, 6, 7, 8, 9, 10].contains(at_ms));
    gone.push((5, What::Head { conn: 1, status: 404, replays: false }));
    assert!(properties(&plan(), gone.clone()).contains(&KEEPS));
    gone.push((4, What::LedgerLost));
    assert!(!properties(&plan(), gone).contains(&KEEPS));
}

#[test]
fn what_a_server_says_of_its_own_comes_once_and_in_order() {
    const PROPERTY: &str = "standalone stream";
    let (session, conn) = (1, 2);
    let heard = |notes: &[u32]| {
        let mut history = good();
        history.push((20, What::Listening { client: 0, session, conn, resumes: false }));
        history.push((21, What::Head { conn, status: 200, replays: false }));
        history.extend((1..=3).map(|note| (30, What::Noted { session, note })));
        let all = notes.iter().map(|note| (40, What::Heard { session, conn, note: *note }));
        history.extend(all);
        history.push((15_000, What::Left { conn, how: Leave::Close }));
        history.push((20_000, What::Deaf { session }));
        properties(&plan(), history)
    };
    assert_eq!(heard(&[1, 2, 3]), [""; 0]);
    for wrong in [&[1, 2, 2, 3][..], &[1, 3, 2], &[1, 3], &[1, 2]] {
        assert_eq!(heard(wrong), [PROPERTY], "{wrong:?}");
    }
}

#[test]
fn an_answer_that_comes_twice_is_seen() {
    let mut twice = good();
    let mark = Mark::Answer(1);
    twice.push((10, What::Read { client: 0, asking: 1, conn: 1, mark }));
    assert_eq!(properties(&plan(), twice), ["completeness"]);
    // Written to the POST's connection too, though a GET had the stream before it came.
    let (session, conn) = (1, 2);
    let taken_over = |head_ms| {
        let mut history = good();
        history.push((5, What::Resumed { client: 0, asking: 1, session, conn }));
        history.push((head_ms, What::Head { conn, status: 200, replays: false }));
        history.extend([1, 2].map(|conn| (9, What::Written { conn, mark })));
        history.push((12, What::Left { conn, how: Leave::Close }));
        properties(&plan(), history)
    };
    assert_eq!(taken_over(8), [""; 0]);
    assert_eq!(taken_over(7), ["completeness"]);
}

#[test]
fn an_outcome_that_is_unknown_without_a_loss_of_its_own_is_seen() {
    let unknown = |lost_ms, what| {
        let mut history = good();
        history.retain(|(at_ms, _)| !(9..=11).contains(at_ms));
        let outcome = Outcome::Refused(40906);
        history.push((5_000, What::Settled { client: 0, asking: 1, outcome }));
        history.push((lost_ms, what));
        properties(&plan(), history)
    };
    assert_eq!(unknown(6, What::ServerDied), [""; 0]);
    assert_eq!(unknown(4_000, What::ServerDied), ["completeness"], "its answer was durable");
    assert_eq!(unknown(2, What::ServerDied), ["completeness"], "it was not asked for yet");
    let failed = |session: u8| What::StoreFailed { store_key: [session; 32] };
    assert_eq!(unknown(6, failed(1)), [""; 0]);
    assert_eq!(unknown(6, failed(2)), ["completeness"], "another session's");
}

#[test]
fn what_never_comes_is_seen() {
    let mut without_head = good();
    without_head.retain(|(at_ms, _)| *at_ms != 5);
    assert_eq!(properties(&plan(), without_head), ["liveness"]);
    let mut held = good();
    held.retain(|(at_ms, _)| ![4, 6, 7, 8, 9, 10, 11].contains(at_ms));
    let outcome = Outcome::Cancelled;
    held.push((50_000, What::Settled { client: 0, asking: 1, outcome }));
    assert_eq!(properties(&plan(), held), ["liveness"]);
    let mut unsettled = good();
    unsettled.retain(|(at_ms, _)| *at_ms != 11);
    assert_eq!(properties(&plan(), unsettled), ["liveness"]);
    let mut silent = good();
    silent.retain(|(at_ms, _)| *at_ms < 8);
    silent.push((50_000, What::Settled { client: 0, asking: 1, outcome: Outcome::Cancelled }));
    silent.push((60_000, What::Ended { in_time: true }));
    assert_eq!(properties(&plan(), silent), ["liveness"], "no comment for a minute");
    let mut get = good();
    get.push((20, What::Resumed { client: 0, asking: 1, session: 1, conn: 2 }));
    assert_eq!(properties(&plan(), get), ["liveness"], "a GET without a head");
    let mut pinged = good();
    pinged.push((20, What::Pinged { client: 0, session: 1, conn: 2 }));
    assert_eq!(properties(&plan(), pinged), ["liveness"]);
    let mut endless = good();
    endless.retain(|(at_ms, _)| *at_ms != 60_000);
    assert!(properties(&plan(), endless).contains(&"liveness"));
    let mut panicking = good();
    panicking.push((12, What::Gateway("a panic: somewhere".to_owned())));
    assert_eq!(properties(&plan(), panicking), ["liveness"]);
}

#[test]
fn what_runs_or_is_written_before_it_is_on_disk_is_seen() {
    let claimed = |at_ms| (at_ms, What::Claimed { store_key: [1; 32], call: 1 });
    let kept = |at_ms| (at_ms, What::Kept { exec: 1 });
    let with = |on_disk: [(u64, What); 2]| {
        let mut history = good();
        history.push((9, What::Written { conn: 1, mark: Mark::Answer(1) }));
        history.extend(on_disk);
        check_as_it_is(&plan(), history).violations.len()
    };
    assert_eq!(with([claimed(4), kept(9)]), 0);
    assert_eq!(with([claimed(5), kept(9)]), 1, "the call was faster");
    assert_eq!(with([claimed(4), kept(10)]), 1, "the answer was faster");
}

#[test]
fn an_answer_that_is_not_whole_and_a_server_that_was_not_told_are_seen() {
    for what in [What::Garbled { asking: 1, exec: 1 }, What::Unready { session: 1 }] {
        let mut history = good();
        history.push((10, what));
        assert_eq!(check(&plan(), history).violations.len(), 1);
    }
}
