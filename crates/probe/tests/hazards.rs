//! Each hazard against a scripted server: found when it is switched on, silent when it is off.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/mod.rs"]
mod support;

use std::sync::Arc;

use rejoin_probe::{Options, Report, Verdict};
use serde_json::json;
use support::{Fault, Server};

/// How often each is tried, at the same time.
const RUNS: usize = 20;

fn options(server: &Server, hazards: &[&str]) -> Options {
    let address = server.address;
    let url = |path: &str| format!("http://{address}/{path}");
    let fetch = |path: &str| {
        let code = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1]).read().decode())";
        format!("python3 -c '{code}' {}", url(path))
    };
    Options {
        url: url("mcp"),
        burst_arguments: Some(json!({ "events": 120, "interval_ms": 0 })),
        flood_arguments: Some(json!({ "events": 400, "interval_ms": 0, "bytes": 1_000 })),
        restart_command: Some(fetch("restart")),
        only: hazards.iter().map(|hazard| (*hazard).to_owned()).collect(),
        ..Options::default()
    }
}

async fn probed(options: Options) -> Report {
    rejoin_probe::run(&options, Arc::new(|_: &_| ())).await.unwrap()
}

/// Runs hazards several times at once against a server with a fault; gives what each run found.
async fn runs(fault: Option<Fault>, hazards: &[&str]) -> Vec<(String, Verdict, String)> {
    let server = Server::start(fault).await;
    let runs: Vec<_> = (0..RUNS).map(|_| tokio::spawn(probed(options(&server, hazards)))).collect();
    let mut found = Vec::new();
    for run in runs {
        let report = run.await.unwrap();
        let lines = |finding: &rejoin_probe::Finding| {
            let lines: Vec<_> = finding.transcript.iter().map(ToString::to_string).collect();
            format!("{}\n{}", finding.seen, lines.join("\n"))
        };
        for finding in &report.findings {
            found.push((finding.about.id.to_owned(), finding.verdict, lines(finding)));
        }
    }
    assert_eq!(server.sessions(), 0, "no session is left behind");
    found
}

async fn found(fault: Fault, hazard: &str, verdict: Verdict) {
    for (id, seen, lines) in runs(Some(fault), &[hazard]).await {
        assert_eq!(seen, verdict, "{id} with {fault:?}: {lines}");
    }
}

async fn silent(hazard: &str) {
    for (id, seen, lines) in runs(None, &[hazard]).await {
        assert_eq!(seen, Verdict::Safe, "{id}: {lines}");
    }
}

macro_rules! hazards {
    ($($name:ident: $id:literal, $fault:ident, $verdict:expr;)*) => { $(
        mod $name {
            use super::*;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn is_found_when_it_is_on() {
                found(Fault::$fault, $id, $verdict).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn is_silent_when_it_is_off() {
                silent($id).await;
            }
        }
    )* };
}

hazards! {
    repeat_same_id: "repeat-in-flight-same-id", RunsRepeatsInFlight, Verdict::Hazard;
    repeat_new_id: "repeat-in-flight-new-id", RunsRepeatsInFlight, Verdict::Hazard;
    repeat_after_end: "repeat-after-end-unseen", RunsRepeatsAfterTheEnd, Verdict::Hazard;
    repeat_same_id_after_end: "repeat-after-end-same-id", RunsRepeatsAfterTheEnd,
        Verdict::Hazard;
    drop_before_first_event: "drop-before-first-event", RunsRepeatsInFlight, Verdict::Hazard;
    resume_in_flight: "resume-in-flight", EndsAfterReplay, Verdict::Hazard;
    resume_after_end: "resume-after-end", ForgetsWhatEnded, Verdict::Hazard;
    hand_over: "hand-over", SkipsAnEventAtHandOver, Verdict::Hazard;
    resume_fast: "resume-fast-producer", ShufflesReplays, Verdict::Hazard;
    evicted_cursor: "evicted-cursor", EvictsOldEvents, Verdict::Hazard;
    overtaking: "overtaking", AnswersDuringReplays, Verdict::Hazard;
    foreign_event_id: "foreign-event-id", ServesForeignIds, Verdict::Violation("RES-6");
    same_id_elsewhere: "same-id-in-another-session", KeysLogsByRequestId,
        Verdict::Violation("RES-6");
    two_resumes: "two-resumes", Broadcasts, Verdict::Violation("MULTI-2");
    unknown_cursor: "unknown-cursor", EmptyForUnknownCursors, Verdict::Hazard;
    malformed_cursor: "malformed-cursor", EmptyForUnknownCursors, Verdict::Hazard;
    resume_delivered: "resume-delivered", RepeatsTheCursorEvent, Verdict::Hazard;
    disconnect_cancels: "disconnect-is-no-cancel", CancelsOnDisconnect, Verdict::Hazard;
    wrong_stream: "wrong-stream", AnswersOnTheStandaloneStream, Verdict::Violation("GET-5");
    event_ids: "event-ids", GivesIdsTwice, Verdict::Violation("RES-2");
    priming: "priming", DoesNotPrime, Verdict::Hazard;
    session_status: "session-status", Answers400ForEndedSessions, Verdict::Violation("SES-7");
    version_status: "version-status", IgnoresTheVersion, Verdict::Violation("VER-4");
    accept_status: "accept-status", IgnoresAccept, Verdict::Hazard;
    notification_status: "notification-status", AnswersNotifications,
        Verdict::Violation("POST-4");
    stalled_reader: "stalled-reader", BlocksOnStalledReaders, Verdict::Hazard;
    origin: "origin", LetsEveryOriginIn, Verdict::Violation("SEC-1");
    session_id: "session-id", CountsItsSessions, Verdict::Hazard;
    refusal: "refusal", RefusesWithoutReason, Verdict::Hazard;
    restart: "restart", ForgetsSessionsAtRestart, Verdict::Hazard;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_with_messages_of_the_repeat_is_a_violation_whatever_ran() {
    for hazard in ["repeat-in-flight-new-id", "repeat-after-end-unseen"] {
        found(Fault::ReplaysAllOfTheSession, hazard, Verdict::Violation("RES-6")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_id_elsewhere_is_not_blamed_for_what_is_forgotten_without_it_too() {
    let hazard = "same-id-in-another-session";
    found(Fault::ForgetsWhatEnded, hazard, Verdict::NotApplicable).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_resumes_are_not_blamed_for_what_one_alone_does_not_give() {
    found(Fault::EndsAfterReplay, "two-resumes", Verdict::NotApplicable).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_hazard_has_a_server_that_shows_it() {
    let source = include_str!("hazards.rs");
    for about in rejoin_probe::hazards() {
        assert!(source.contains(&format!("\"{}\"", about.id)), "{}", about.id);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn executions_are_counted_exactly_by_a_command() {
    for (fault, verdict, text) in [
        (Some(Fault::RunsRepeatsInFlight), Verdict::Hazard, "2 executions counted"),
        (None, Verdict::Safe, "1 execution counted"),
    ] {
        let server = Server::start(fault).await;
        let mut options = options(&server, &["repeat-in-flight-new-id"]);
        let restart = options.restart_command.take().unwrap_or_default();
        options.count_command = Some(restart.replace("/restart", "/executions"));
        let report = probed(options).await;
        assert_eq!(report.findings[0].verdict, verdict);
        assert!(report.findings[0].seen.contains(text), "{}", report.findings[0].seen);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_with_effects_is_called_only_with_leave() {
    let server = Server::start(None).await;
    let mut options = options(&server, &["priming"]);
    options.tool = Some("erase".to_owned());
    let error = rejoin_probe::run(&options, Arc::new(|_: &_| ())).await.unwrap_err();
    assert!(error.to_string().contains("--allow-effects"), "{error}");
    assert_eq!(server.executions(), 0);
    assert_eq!(server.sessions(), 0, "no session is left behind");
}

/// After so many lines of a hazard's transcript, while its session is on its way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_stopped_ends_its_sessions() {
    for lines in 0..6 {
        let server = Server::start(Some(Fault::AnswersNotificationsLate)).await;
        let mut options = options(&server, &["session-status"]);
        let (stop, stopped) = tokio::sync::watch::channel(false);
        options.stop = Some(stopped);
        let left = std::sync::Mutex::new(None);
        let watcher = move |notice: &rejoin_probe::Notice<'_>| {
            let mut left = left.lock().unwrap();
            match (notice, *left) {
                (rejoin_probe::Notice::Begins(..), None) => *left = Some(lines),
                (rejoin_probe::Notice::Line(_), Some(more)) if more > 0 => *left = Some(more - 1),
                _ => {}
            }
            if *left == Some(0) {
                stop.send(true).unwrap();
            }
        };
        let error = rejoin_probe::run(&options, Arc::new(watcher)).await.unwrap_err();
        assert!(matches!(error, rejoin_probe::RunError::Stopped), "{error}");
        assert_eq!(server.sessions(), 0, "stopped after {lines} lines");
    }
}
