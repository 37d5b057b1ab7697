//! Each checker is shown a history that is broken in one place.

use rejoin_core::policy::Ablation;
use rejoin_core::settings::{Delivery, OnRepeat};

use super::*;
use crate::history::{Leave, Mark, Outcome, What};

/// A plan without anything that a server may be excused by.
fn plan() -> Plan {
    let mut plan = Plan::of(1, Ablation::Nothing);
    plan.delivery = Delivery::Proved;
    plan.on_repeat = OnRepeat::Collect;
    plan.proxy = None;
    plan
}

/// A client asks once, and is answered by execution 1 on connection 1, with two steps.
fn good() -> Vec<(u64, What)> {
    let (client, asking, session, conn) = (0, 1, 1, 1);
    let read = |mark| What::Read { client, asking, conn, mark };
    vec![
        (0, What::Started { life: 1, skew_ms: 0 }),
        (1, What::Session { client, session, principal: Some(1) }),
        (2, What::Asked { client, asking, key: 1, token: false, charge: true }),
        (3, What::Posted { client, asking, session, conn, attempt: 1 }),
        (4, What::Executed { exec: 1, key: 1, session, charge: true }),
        (5, What::Head { conn, status: 200, replays: false }),
        (6, read(Mark::Progress(1, 1))),
        (7, read(Mark::Progress(1, 2))),
        (8, What::Produced { exec: 1, steps: 2 }),
        (9, What::InKernel { conn, mark: Mark::Answer(1) }),
        (10, read(Mark::Answer(1))),
        (11, What::Settled { client, asking, outcome: Outcome::Answered(1, false) }),
        (60_000, What::Ended { in_time: true }),
    ]
}

fn check(plan: &Plan, mut history: Vec<(u64, What)>) -> Verdict {
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
    history.push((20, What::Executed { exec: 2, key: 1, session: 1, charge: true }));
    assert_eq!(properties(&plan(), history), ["exactly once"]);
}

#[test]
fn what_was_presumed_delivered_is_a_limit_unless_a_reset_told_otherwise() {
    let second = (20, What::Executed { exec: 2, key: 1, session: 1, charge: true });
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
            (14, What::Asked { client, asking, key, token: false, charge: true }),
            (15, What::Posted { client, asking, session, conn: 3, attempt: 1 }),
            (16, What::Executed { exec: 2, key, session, charge: true }),
            (17, What::Head { conn: 3, status: 200, replays: false }),
            (in_kernel_ms, What::InKernel { conn: 3, mark: Mark::Answer(2) }),
            (30, What::InKernel { conn: 2, mark: Mark::Progress(9, 1) }),
            (30, What::InKernel { conn: 2, mark: Mark::ReplayEnd }),
            (31, What::Settled { client, asking, outcome: Outcome::Answered(2, false) }),
        ]);
        properties(&plan(), history)
    };
    assert_eq!(overtaking(29), ["replay before newer answers"]);
    assert_eq!(overtaking(30), [""; 0]);
}

#[test]
fn what_another_call_produced_is_seen_and_so_is_an_intrusion() {
    let mut history = good();
    history.push((20, What::Executed { exec: 2, key: 2, session: 2, charge: true }));
    let mark = Mark::Answer(2);
    history.push((21, What::Read { client: 0, asking: 1, conn: 1, mark }));
    assert!(properties(&plan(), history).contains(&"isolation"));
    let mut history = good();
    history.push((1, What::Session { client: 1, session: 2, principal: Some(2) }));
    history.push((20, What::Executed { exec: 2, key: 1, session: 2, charge: false }));
    history.push((21, What::Read { client: 0, asking: 1, conn: 1, mark }));
    assert!(properties(&plan(), history).contains(&"isolation"));
    let mut history = good();
    history.push((20, What::Intruded { status: 200, as_expected: false }));
    assert_eq!(properties(&plan(), history), ["isolation"]);
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
    let mut endless = good();
    endless.retain(|(at_ms, _)| *at_ms != 60_000);
    assert!(properties(&plan(), endless).contains(&"liveness"));
    let mut panicking = good();
    panicking.push((12, What::Gateway("a panic: somewhere".to_owned())));
    assert_eq!(properties(&plan(), panicking), ["liveness"]);
}
