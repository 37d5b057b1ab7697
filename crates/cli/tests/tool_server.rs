//! `rejoin tool-server`, the real binary over pipes.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Longest wait for anything.
const DEADLINE: Duration = Duration::from_secs(20);

/// A server process and the lines it has written.
struct Peer {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Peer {
    fn start(count_file: Option<&Path>) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rejoin"));
        command.arg("tool-server").env_remove("REJOIN_COUNT_FILE");
        if let Some(path) = count_file {
            command.arg("--count-file").arg(path);
        }
        Self::spawn(&mut command)
    }

    fn spawn(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = sync_channel(64);
        thread::spawn(move || {
            for line in output.lines() {
                if line.is_err() || line.is_ok_and(|line| sender.send(line).is_err()) {
                    return;
                }
            }
        });
        Self { child, input, lines }
    }

    fn initialized(count_file: Option<&Path>) -> Self {
        let mut peer = Self::start(count_file);
        peer.initialize(&json!({ "elicitation": {}, "sampling": {} }), "2025-11-25");
        peer
    }

    fn initialize(&mut self, capabilities: &Value, revision: &str) -> Value {
        let params = json!({
            "protocolVersion": revision,
            "capabilities": capabilities,
            "clientInfo": { "name": "test", "version": "0" },
        });
        let answer = self.request(json!("init"), "initialize", &params);
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        answer["result"].clone()
    }

    fn write(&mut self, line: &str) {
        let input = self.input.as_mut().unwrap();
        input.write_all(format!("{line}\n").as_bytes()).unwrap();
        input.flush().unwrap();
    }

    fn send(&mut self, message: &Value) {
        self.write(&message.to_string());
    }

    fn request(&mut self, id: Value, method: &str, params: &Value) -> Value {
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.send(&message);
        self.response(&id)
    }

    fn call(&mut self, id: u64, tool: &str, arguments: &Value) {
        let params =
            json!({ "name": tool, "arguments": arguments, "_meta": { "progressToken": id } });
        self.send(&json!(
            { "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }
        ));
    }

    /// A call whose arguments reach the server byte for byte.
    fn call_verbatim(&mut self, id: u64, tool: &str, arguments: &str) {
        let params = format!(r#"{{"name":"{tool}","arguments":{arguments}}}"#);
        let head = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call""#);
        self.write(&format!(r#"{head},"params":{params}}}"#));
    }

    fn called(&mut self, id: u64, tool: &str, arguments: &Value) -> Value {
        self.call(id, tool, arguments);
        self.response(&json!(id))
    }

    fn cancel(&mut self, id: u64) {
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled",
            "params": { "requestId": id } }));
    }

    /// The next line, `None` at the end of the output.
    fn line(&self) -> Option<String> {
        match self.lines.recv_timeout(DEADLINE) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("nothing arrived within {DEADLINE:?}"),
        }
    }

    fn message(&self) -> Value {
        let line = self.line().expect("the server ended its output");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line}"))
    }

    /// Everything up to the response to this request, which comes last.
    fn until_response(&self, id: &Value) -> Vec<Value> {
        let mut messages = Vec::new();
        loop {
            let message = self.message();
            let found = message["id"] == *id && message.get("method").is_none();
            messages.push(message);
            if found {
                return messages;
            }
        }
    }

    fn response(&self, id: &Value) -> Value {
        self.until_response(id).pop().unwrap()
    }

    fn exit(&mut self) -> ExitStatus {
        let end = Instant::now() + DEADLINE;
        while Instant::now() < end {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            thread::sleep(Duration::from_millis(5));
        }
        panic!("the server did not end within {DEADLINE:?}");
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn text(response: &Value) -> &str {
    response["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{response}"))
}

fn progress(messages: &[Value]) -> Vec<u64> {
    let sent = messages.iter().filter(|message| message["method"] == "notifications/progress");
    sent.map(|message| message["params"]["progress"].as_u64().unwrap()).collect()
}

fn count_lines(path: &Path) -> Vec<String> {
    std::fs::read_to_string(path).unwrap().lines().map(ToOwned::to_owned).collect()
}

#[test]
fn a_known_revision_is_agreed_and_an_unknown_one_becomes_the_newest() {
    for (asked, agreed) in [
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2024-11-05", "2025-11-25"),
        ("2099-01-01", "2025-11-25"),
    ] {
        let result = Peer::start(None).initialize(&json!({}), asked);
        assert_eq!(result["protocolVersion"], agreed, "asked for {asked}");
        assert_eq!(
            result["capabilities"],
            json!({ "tools": { "listChanged": true }, "logging": {} })
        );
        assert_eq!(result["serverInfo"]["name"], "rejoin-tool-server");
    }
}

#[test]
fn every_listed_tool_has_a_description_and_an_object_schema() {
    let mut peer = Peer::initialized(None);
    let list = peer.request(json!(1), "tools/list", &json!({}));
    let tools = list["result"]["tools"].as_array().unwrap();
    let names: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    let expected = ["charge", "slow", "get", "echo", "ask", "sample", "state", "crash", "notify"];
    assert_eq!(names, expected);
    for tool in tools {
        assert!(tool["description"].as_str().unwrap().len() > 30, "{tool}");
        assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
    }
    let read_only: Vec<_> =
        tools.iter().filter(|tool| tool["annotations"]["readOnlyHint"] == true).collect();
    assert_eq!(read_only.len(), 1);
    assert_eq!(read_only[0]["name"], "get");
}

#[test]
fn charge_sends_its_progress_in_order_and_then_its_result() {
    let mut peer = Peer::initialized(None);
    peer.call(
        7,
        "charge",
        &json!({ "amount": 5, "events": 3, "interval_ms": 1, "event_bytes": 20 }),
    );
    let messages = peer.until_response(&json!(7));
    assert_eq!(progress(&messages), [1, 2, 3]);
    assert_eq!(
        messages[0],
        json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params":
            { "progressToken": 7, "progress": 1, "total": 3, "message": "event 1............." } })
    );
    assert_eq!(text(&messages[3]), "charged 5 (execution 1)");
    assert_eq!(messages[3]["result"]["structuredContent"], json!({ "amount": 5, "execution": 1 }));
    assert_eq!(
        text(&peer.called(8, "charge", &json!({ "amount": -2 }))),
        "charged -2 (execution 2)"
    );
}

#[test]
fn charge_without_a_progress_token_sends_its_result_only() {
    let mut peer = Peer::initialized(None);
    let params =
        json!({ "name": "charge", "arguments": { "amount": 5, "events": 3, "interval_ms": 1 } });
    peer.send(&json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }));
    assert_eq!(peer.until_response(&json!(1)).len(), 1);
}

#[test]
fn an_execution_is_counted_on_disk_before_its_first_event() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("count");
    let mut peer = Peer::initialized(Some(&path));
    let arguments = r#"{ "amount":5, "events":9,"interval_ms":3600000}"#;
    peer.call_verbatim(1, "charge", arguments);
    let end = Instant::now() + DEADLINE;
    while count_lines(&path).is_empty() {
        assert!(Instant::now() < end, "the execution was not counted");
        thread::sleep(Duration::from_millis(5));
    }
    let lines = count_lines(&path);
    assert_eq!(lines.len(), 1);
    let (start, time) = lines[0].rsplit_once(' ').unwrap();
    assert_eq!(start, r#"charge { "amount":5, "events":9,"interval_ms":3600000}"#);
    assert!(time.parse::<u128>().unwrap() > 1_600_000_000_000_000_000, "{time}");
    peer.cancel(1);
    assert_eq!(peer.request(json!(2), "ping", &json!({}))["result"], json!({}));
}

#[test]
fn two_processes_add_to_the_same_count_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("count");
    for _ in 0..2 {
        let mut peer = Peer::initialized(Some(&path));
        assert_eq!(
            text(&peer.called(1, "charge", &json!({ "amount": 1 }))),
            "charged 1 (execution 1)"
        );
        peer.called(2, "get", &json!({}));
    }
    let lines = count_lines(&path);
    assert_eq!(lines.len(), 4);
    assert_eq!(lines.iter().filter(|line| line.starts_with("charge {")).count(), 2);
    assert_eq!(lines.iter().filter(|line| line.starts_with("get {}")).count(), 2);
}

#[test]
fn the_count_file_can_come_from_the_environment() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("count");
    let mut command = Command::new(env!("CARGO_BIN_EXE_rejoin"));
    let mut peer = Peer::spawn(command.arg("tool-server").env("REJOIN_COUNT_FILE", &path));
    peer.called(1, "charge", &json!({ "amount": 1 }));
    assert_eq!(count_lines(&path).len(), 1);
}

#[test]
fn a_count_file_that_cannot_be_opened_is_named() {
    let output = Command::new(env!("CARGO_BIN_EXE_rejoin"))
        .args(["tool-server", "--count-file", "/no-such-folder/count"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(!output.status.success());
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("/no-such-folder/count"), "{message}");
    assert!(message.contains("No such file"), "{message}");
}

#[test]
fn calls_run_side_by_side() {
    let mut peer = Peer::initialized(None);
    peer.call(1, "slow", &json!({ "seconds": 3600 }));
    assert!(text(&peer.called(2, "get", &json!({}))).ends_with("0000000001."));
    assert_eq!(text(&peer.called(3, "slow", &json!({ "seconds": 0.01 }))), "waited 0.01 seconds");
    peer.cancel(1);
}

#[test]
fn a_cancelled_call_is_never_answered() {
    let mut peer = Peer::initialized(None);
    peer.call(1, "slow", &json!({ "seconds": 0.3 }));
    peer.call(2, "charge", &json!({ "amount": 1, "events": 2, "interval_ms": 150 }));
    peer.cancel(1);
    peer.cancel(2);
    // Longer than both: their answers would have come first.
    peer.call(3, "slow", &json!({ "seconds": 0.6 }));
    assert_eq!(peer.until_response(&json!(3)).len(), 1);
}

#[test]
fn a_call_told_to_ignore_cancel_answers_all_the_same() {
    let mut peer = Peer::initialized(None);
    let arguments = json!({ "amount": 1, "events": 3, "interval_ms": 20, "ignore_cancel": true });
    peer.call(1, "charge", &arguments);
    peer.cancel(1);
    let messages = peer.until_response(&json!(1));
    assert_eq!(progress(&messages), [1, 2, 3]);
    assert_eq!(text(messages.last().unwrap()), "charged 1 (execution 1)");
}

#[test]
fn fifty_thousand_events_come_complete_and_in_order() {
    let mut peer = Peer::initialized(None);
    let started = Instant::now();
    peer.call(1, "charge", &json!({ "amount": 1, "events": 50_000, "interval_ms": 0 }));
    let messages = peer.until_response(&json!(1));
    assert!(started.elapsed() < DEADLINE);
    assert_eq!(progress(&messages), (1..=50_000).collect::<Vec<_>>());
}

#[test]
fn a_crash_comes_right_after_the_event_asked_for() {
    let mut peer = Peer::initialized(None);
    let arguments = json!({ "amount": 1, "events": 9, "interval_ms": 0, "crash_after": 4 });
    peer.call(1, "charge", &arguments);
    let mut messages = Vec::new();
    while let Some(line) = peer.line() {
        messages.push(serde_json::from_str(&line).unwrap());
    }
    assert_eq!(progress(&messages), [1, 2, 3, 4]);
    assert_eq!(messages.len(), 4);
    assert_eq!(peer.exit().code(), Some(3));
}

#[test]
fn crash_ends_the_process_without_an_answer() {
    let mut peer = Peer::initialized(None);
    peer.call(1, "crash", &json!({}));
    assert_eq!(peer.line(), None);
    assert_eq!(peer.exit().code(), Some(3));
}

#[test]
fn a_failed_charge_and_a_large_result_are_results() {
    let mut peer = Peer::initialized(None);
    let failed = peer.called(1, "charge", &json!({ "amount": 4, "fail": true }));
    assert_eq!(failed["result"]["isError"], true);
    assert_eq!(text(&failed), "could not charge 4 (execution 1)");
    let large = peer.called(2, "charge", &json!({ "amount": 4, "result_bytes": 3_000_000 }));
    assert_eq!(large["result"]["content"][1]["text"].as_str().unwrap().len(), 3_000_000);
    assert!(large["result"].get("isError").is_none());
}

#[test]
fn echo_answers_the_bytes_of_its_arguments() {
    let mut peer = Peer::initialized(None);
    let arguments =
        r#"{ "b":9007199254740993,"a":1.50e+2 , "a":"\u0061\ud83d\ude00é","n":{"z":[ ]}}"#;
    peer.call_verbatim(1, "echo", arguments);
    let line = peer.line().unwrap();
    assert!(line.contains(&format!(r#""structuredContent":{arguments}"#)), "{line}");
    let response: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(text(&response), arguments);
}

#[test]
fn ids_come_back_as_they_were_written() {
    let mut peer = Peer::initialized(None);
    for id in ["0", "\"\\u0061\"", "9007199254740993", "\"x y\""] {
        peer.write(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#));
        assert_eq!(peer.line().unwrap(), format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#));
    }
}

#[test]
fn ask_relays_the_answer_of_the_client_by_a_small_id_that_collides() {
    let mut peer = Peer::initialized(None);
    for id in 0..2 {
        peer.call(id, "ask", &json!({ "question": "Blue or red?" }));
        let question = peer.message();
        assert_eq!(question["method"], "elicitation/create");
        assert_eq!(question["id"], id);
        assert_eq!(question["params"]["message"], "Blue or red?");
        let schema = &question["params"]["requestedSchema"];
        assert_eq!(schema["properties"]["answer"]["type"], "string");
        let answer = json!({ "action": "accept", "content": { "answer": "blue" } });
        peer.send(&json!({ "jsonrpc": "2.0", "id": id, "result": answer }));
        let response = peer.response(&json!(id));
        assert_eq!(text(&response), "blue");
        assert_eq!(response["result"]["structuredContent"], answer);
    }
}

#[test]
fn sample_relays_the_client_s_refusal() {
    let mut peer = Peer::initialized(None);
    peer.call(5, "sample", &json!({ "prompt": "Say hello" }));
    let question = peer.message();
    assert_eq!(question["method"], "sampling/createMessage");
    assert_eq!(question["params"]["messages"][0]["content"]["text"], "Say hello");
    peer.send(&json!({ "jsonrpc": "2.0", "id": question["id"],
        "error": { "code": -1, "message": "no" } }));
    let response = peer.response(&json!(5));
    assert_eq!(response["result"]["isError"], true);
    assert_eq!(text(&response), r#"the client refused: {"code":-1,"message":"no"}"#);
}

#[test]
fn a_client_without_the_capability_is_not_asked() {
    let mut peer = Peer::start(None);
    peer.initialize(&json!({}), "2025-06-18");
    for (tool, arguments) in
        [("ask", json!({ "question": "?" })), ("sample", json!({ "prompt": "?" }))]
    {
        peer.call(1, tool, &arguments);
        let messages = peer.until_response(&json!(1));
        assert_eq!(messages.len(), 1);
        assert_eq!(messages[0]["result"]["isError"], true);
    }
}

#[test]
fn a_cancelled_question_is_withdrawn() {
    let mut peer = Peer::initialized(None);
    peer.call(1, "ask", &json!({ "question": "?" }));
    assert_eq!(peer.message()["method"], "elicitation/create");
    peer.cancel(1);
    let withdrawal = peer.message();
    assert_eq!(withdrawal["method"], "notifications/cancelled");
    assert_eq!(withdrawal["params"]["requestId"], 0);
}

#[test]
fn state_is_kept_in_the_process_only() {
    let mut peer = Peer::initialized(None);
    assert_eq!(
        peer.called(1, "state", &json!({}))["result"]["structuredContent"]["value"],
        Value::Null
    );
    assert_eq!(text(&peer.called(2, "state", &json!({ "set": "blue" }))), "blue");
    assert_eq!(text(&peer.called(3, "state", &json!({ "set": null }))), "blue");
    let fresh = text(&Peer::initialized(None).called(1, "state", &json!({}))).to_owned();
    assert_eq!(fresh, "(nothing was set in this process)");
}

#[test]
fn notify_sends_what_the_client_s_level_lets_through() {
    let mut peer = Peer::initialized(None);
    let methods = |messages: &[Value]| -> Vec<String> {
        messages
            .iter()
            .filter_map(|message| message["method"].as_str())
            .map(str::to_owned)
            .collect()
    };
    peer.call(1, "notify", &json!({ "count": 2 }));
    let log = "notifications/message";
    let changed = "notifications/tools/list_changed";
    assert_eq!(methods(&peer.until_response(&json!(1))), [log, log, changed]);
    peer.request(json!(2), "logging/setLevel", &json!({ "level": "warning" }));
    peer.call(3, "notify", &json!({ "count": 2 }));
    assert_eq!(methods(&peer.until_response(&json!(3))), [changed]);
}

#[test]
fn what_cannot_be_run_is_refused_and_not_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("count");
    let mut peer = Peer::initialized(Some(&path));
    let unknown = peer.called(1, "discharge", &json!({}));
    assert_eq!(unknown["error"]["code"], -32602);
    let wrong = peer.called(2, "charge", &json!({ "amount": "five" }));
    assert_eq!(wrong["error"]["code"], -32602);
    let told = wrong["error"]["message"].as_str().unwrap();
    assert!(told.contains("charge: `amount` is \"five\": send it as integer"), "{told}");
    peer.send(&json!({ "jsonrpc": "2.0", "id": 9, "method": "tools/call" }));
    let bare = peer.response(&json!(9));
    let told = bare["error"]["message"].as_str().unwrap();
    assert!(told.contains("has no `params`: send params such as {\"name\""), "{told}");
    let nameless = peer.request(json!(10), "tools/call", &json!({}));
    let told = nameless["error"]["message"].as_str().unwrap();
    assert!(told.contains("missing field `name`") && told.contains("such as"), "{told}");
    let huge = peer.called(3, "charge", &json!({ "amount": 1, "events": 99_000_000 }));
    assert!(huge["error"]["message"].as_str().unwrap().contains("events"), "{huge}");
    let method = peer.request(json!(4), "resources/list", &json!({}));
    assert_eq!(method["error"]["code"], -32601);
    assert!(count_lines(&path).is_empty());
}

#[test]
fn garbage_is_answered_and_ends_nothing() {
    let mut peer = Peer::initialized(None);
    for (line, code) in [("nonsense", -32700), ("7", -32600), ("{}", -32600), ("[7]", -32600)] {
        peer.write(line);
        let answer = peer.message();
        assert_eq!(answer["error"]["code"], code, "{line}");
        assert_eq!(answer["id"], Value::Null);
    }
    peer.write("");
    assert_eq!(peer.request(json!(1), "ping", &json!({}))["result"], json!({}));
}

#[test]
fn a_batch_is_answered_message_by_message() {
    let mut peer = Peer::start(None);
    peer.write(
        &json!([
            { "jsonrpc": "2.0", "id": 1, "method": "ping" },
            { "jsonrpc": "2.0", "id": 2, "method": "ping" },
        ])
        .to_string(),
    );
    assert_eq!(peer.message()["id"], 1);
    assert_eq!(peer.message()["id"], 2);
}

#[test]
fn the_end_of_input_ends_the_server_although_a_call_runs() {
    let mut peer = Peer::initialized(None);
    peer.call(1, "slow", &json!({ "seconds": 3600 }));
    peer.request(json!(2), "ping", &json!({}));
    peer.input = None;
    let started = Instant::now();
    assert!(peer.exit().success());
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

#[test]
fn a_short_piped_conversation_is_answered_before_the_end() {
    let mut peer = Peer::start(None);
    peer.call(1, "charge", &json!({ "amount": 5 }));
    peer.input = None;
    assert_eq!(text(&peer.response(&json!(1))), "charged 5 (execution 1)");
    assert_eq!(peer.line(), None);
}

#[test]
fn a_server_nobody_reads_from_ends() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rejoin"));
    let mut child = command
        .arg("tool-server")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n").unwrap();
    let mut message = String::new();
    // Reading to the end of standard error waits for the process.
    child.stderr.take().unwrap().read_to_string(&mut message).unwrap();
    assert!(message.contains("standard output is closed"), "{message}");
    assert_eq!(child.wait().unwrap().code(), Some(4));
}
