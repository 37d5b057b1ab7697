//! `rejoin probe`, the real binary: against Rejoin in front of its own tool server, and against a
//! scripted server with a fault.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::process::{Command, Output};

use serde_json::Value;
use support::{Fault, Server};

#[allow(dead_code, reason = "most faults are for the probe's own tests")]
#[path = "../../probe/tests/support/mod.rs"]
mod support;

const REJOIN: &str = env!("CARGO_BIN_EXE_rejoin");
const CHARGE: [&str; 7] = [
    "--allow-effects",
    "--tool",
    "charge",
    "--args",
    r#"{"amount":1,"events":20,"interval_ms":50}"#,
    "--burst-args",
    r#"{"amount":2,"events":150,"interval_ms":0}"#,
];
const FLOOD: [&str; 2] =
    ["--flood-args", r#"{"amount":3,"events":20000,"interval_ms":0,"event_bytes":1000}"#];

fn probe(arguments: &[&str]) -> Output {
    Command::new(REJOIN).arg("probe").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_stdio_server_behind_rejoin_is_safe_in_all_that_applies() {
    let server = ["--json", "--", REJOIN, "tool-server"];
    let output = probe(&[&CHARGE[..], &FLOOD, &server].concat());
    let errors = text(&output.stderr);
    assert!(errors.contains("it is served by `rejoin serve`"), "{errors}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["target"].as_str().unwrap().ends_with("behind rejoin serve"));
    for finding in report["findings"].as_array().unwrap() {
        let wanted = if finding["id"] == "restart" { "not_applicable" } else { "safe" };
        assert_eq!(finding["verdict"], wanted, "{finding:#}");
    }
    assert_eq!(output.status.code(), Some(0), "{errors}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_runs_calls_twice_is_found_with_the_wire_that_shows_it() {
    let server = Server::start(Some(Fault::RunsRepeatsInFlight)).await;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (page, xml) = (path("report.html"), path("report.xml"));
    std::fs::write(&page, "an older report\n".repeat(100_000)).unwrap();
    let url = format!("http://{}/mcp", server.address);
    let arguments = [url, "--only=repeat-in-flight-new-id".to_owned(), "--trace".to_owned()]
        .into_iter()
        .chain(["--html".to_owned(), page.clone(), "--junit".to_owned(), xml.clone()]);
    let arguments: Vec<String> = arguments.collect();
    let probing = tokio::task::spawn_blocking(move || {
        probe(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    });
    let output = probing.await.unwrap();
    let (table, errors) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{table}{errors}");
    assert!(table.contains("tool: work {}") && table.contains("2 executions"), "{table}");
    assert!(errors.contains("the connection is reset by the probe"), "{errors}");
    for report in [page, xml] {
        let report = std::fs::read_to_string(report).unwrap();
        assert!(report.contains("the connection is reset by the probe"), "{report}");
        assert!(report.contains("HAZARD") && !report.contains("older"), "{report}");
    }
    assert_eq!(server.sessions(), 0, "no session is left behind");
    let ran_twice = 2;
    assert!(server.executions() >= ran_twice, "{}", server.executions());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_long_says_so_and_what_was_not_judged_stands_in_the_last_line() {
    let server = Server::start(None).await;
    let url = format!("http://{}/mcp", server.address);
    let probing = tokio::task::spawn_blocking(move || {
        let only = ["--only=version-status", &url, "--tool=work"];
        let long = probe(&[&only[..], &["--args", r#"{"events":5,"interval_ms":500}"#]].concat());
        let only = ["--only=repeat-in-flight-new-id", &url, "--tool=peek"];
        (long, probe(&only), probe(&[&only[..], &["--json"]].concat()))
    });
    let (long, short, json) = probing.await.unwrap();
    let errors = text(&long.stderr);
    assert!(errors.contains("a call takes 2.") && errors.contains("the run about 1"), "{errors}");
    let (table, errors) = (text(&short.stdout), text(&short.stderr));
    let last = table.lines().last().unwrap_or_default();
    assert!(last.starts_with("NOT JUDGED: whether a call") && last.contains("--args"), "{table}");
    assert!(!errors.contains("a call takes"), "{errors}");
    assert!(text(&json.stderr).contains("NOT JUDGED"), "{}", text(&json.stderr));
    assert_eq!((short.status.code(), json.status.code()), (Some(0), Some(0)), "{errors}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_option_that_cannot_work_is_refused_before_any_call() {
    let server = Server::start(None).await;
    let url = format!("http://{}/mcp", server.address);
    let probing = tokio::task::spawn_blocking(move || {
        [["--count-cmd", "echo many"], ["--html", "/no/such/folder/x"]]
            .map(|option| probe(&[&option[..], &[&url]].concat()))
    });
    let [count, html] = probing.await.unwrap();
    assert_eq!((count.status.code(), html.status.code()), (Some(2), Some(2)));
    assert!(text(&count.stderr).contains("printed no number"), "{}", text(&count.stderr));
    assert!(text(&html.stderr).contains("/no/such/folder/x"), "{}", text(&html.stderr));
    assert_eq!((server.executions(), server.sessions()), (0, 0));
}

#[test]
fn what_cannot_be_probed_ends_with_status_2() {
    for arguments in [
        &["http://127.0.0.1:1/mcp"][..],
        &["ftp://127.0.0.1/mcp"],
        &["--only", "no-such", "http://127.0.0.1:1/mcp"],
        &["--auth", "env:NO_SUCH_VARIABLE_HERE", "http://127.0.0.1:1/mcp"],
        &[],
    ] {
        let output = probe(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
    }
    let errors = text(&probe(&["127.0.0.1:1/mcp"]).stderr);
    assert!(errors.contains("`127.0.0.1:1/mcp` is no URL"), "{errors}");
    let hazards = text(&probe(&["--list"]).stdout);
    assert!(hazards.lines().count() > 25 && hazards.contains("two-resumes"), "{hazards}");
}
