//! The client as the transport of a stock rmcp client, and its example.

use std::collections::HashMap;
use std::error::Error as _;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rejoin_client::rmcp::ClientTransport;
use rejoin_client::{Config, Proxies};
use rejoin_testkit::cutter::{Cut, Cutter};
use rejoin_testkit::deadline::{WAIT, until, within};
use rejoin_testkit::failure::{Failure, TestResult};
use rejoin_testkit::forward::Forward;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, ClientCapabilities, ClientConfig,
    ClientRequest, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationCapability,
    ErrorData, Implementation, ProgressNotificationParam, ProgressToken, ProtocolVersion,
    ServerResult,
};
use rmcp::service::{
    ClientLifecycleMode, ClientServiceExt as _, NotificationContext, PeerRequestOptions,
    RequestContext, RequestHandle, RoleClient, RunningService, ServiceError,
};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{StreamableHttpClientTransport, UnixSocketHttpClient};
use rmcp::{ClientHandler, ServiceExt as _};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::runtime::Handle;

use crate::network::Network;
use crate::support::Bench;

/// Everything of one test is over by then.
const TEST_MAX: Duration = Duration::from_secs(120);

/// An application: it notes progress, and says yes.
#[derive(Clone, Default)]
struct Application(Arc<Mutex<HashMap<ProgressToken, Vec<f64>>>>);

impl Application {
    fn progress(&self, token: &ProgressToken) -> Vec<f64> {
        let progress = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        progress.get(token).cloned().unwrap_or_default()
    }
}

impl ClientHandler for Application {
    async fn on_progress(
        &self,
        told: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        let mut progress = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        progress.entry(told.progress_token).or_default().push(told.progress);
    }

    async fn create_elicitation(
        &self,
        _: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let answer = ElicitResult::new(ElicitationAction::Accept);
        Ok(answer.with_content(json!({ "answer": "yes" })))
    }

    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        capabilities.elicitation = Some(ElicitationCapability::default());
        ClientConfig::new(capabilities, Implementation::new("test", "1"))
    }
}

type Service = RunningService<RoleClient, Application>;

fn transport(address: SocketAddr) -> Result<ClientTransport, Failure> {
    let mut config = Config::new(format!("http://{address}/mcp"));
    config.proxies = Proxies::None;
    Ok(ClientTransport::connect(&config)?)
}

async fn client(address: SocketAddr) -> Result<Service, Failure> {
    Ok(within("a session", TEST_MAX, Application::default().serve(transport(address)?)).await??)
}

fn call(tool: &'static str, arguments: Value) -> CallToolRequestParams {
    CallToolRequestParams::new(tool)
        .with_arguments(arguments.as_object().cloned().unwrap_or_default())
}

fn charge(amount: u64, events: u64) -> CallToolRequestParams {
    call("charge", json!({ "amount": amount, "events": events, "interval_ms": 1 }))
}

/// Sends a call, and does not wait for its answer.
async fn start(
    client: &Service,
    call: CallToolRequestParams,
) -> Result<RequestHandle<RoleClient>, Failure> {
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(call));
    Ok(client.send_cancellable_request(request, PeerRequestOptions::no_options()).await?)
}

async fn answer(handle: RequestHandle<RoleClient>) -> Result<CallToolResult, Failure> {
    match within("an answer", TEST_MAX, handle.await_response()).await?? {
        ServerResult::CallToolResult(result) => Ok(result),
        other => Err(Failure::new(format!("no result of a tool: {other:?}"))),
    }
}

/// The error of a call, which must have ended with one.
fn error_of<T: std::fmt::Debug>(ended: Result<T, ServiceError>) -> Result<ErrorData, Failure> {
    match ended {
        Err(ServiceError::McpError(error)) => Ok(error),
        other => Err(Failure::new(format!("no error of the call: {other:?}"))),
    }
}

/// A number in the structured content of a result.
fn number(result: &CallToolResult, name: &str) -> Option<u64> {
    result.structured_content.as_ref()?.get(name)?.as_u64()
}

fn is_recorded(result: &CallToolResult) -> bool {
    result.meta.as_ref().is_some_and(|meta| meta.contains_key("dev.rejoin/recorded"))
}

#[tokio::test]
async fn a_call_over_connections_that_are_cut_comes_whole_and_runs_once() -> TestResult {
    let bench = Bench::start().await?;
    let cutter = Cutter::start(bench.address, 7, 4_000, 200, Cut::Reset)?;
    let client = client(cutter.address()).await?;
    let handle = start(&client, charge(5, 200)).await?;
    let token = handle.progress_token.clone();
    let result = answer(handle).await?;
    assert_eq!(number(&result, "amount"), Some(5), "{result:?}");
    let progress = client.service().progress(&token);
    // A record has no progress: what is missing was handed to a connection that then died.
    let came = if is_recorded(&result) { progress.len() } else { 200 };
    assert_eq!(progress, (1..=200).map(f64::from).take(came).collect::<Vec<_>>());
    assert_eq!(bench.count.runs("charge")?, 1);
    assert!(cutter.cuts() > 3, "{} cuts", cutter.cuts());
    Ok(())
}

#[tokio::test]
async fn calls_at_once_run_once_each_and_get_their_own_answers() -> TestResult {
    let bench = Bench::start().await?;
    let cutter = Cutter::start(bench.address, 12, 3_000, usize::MAX, Cut::Either)?;
    let client = client(cutter.address()).await?;
    let mut handles = Vec::new();
    for amount in 1..=24 {
        handles.push((amount, start(&client, charge(amount, 5)).await?));
    }
    let mut executions = Vec::new();
    for (amount, handle) in handles {
        let result = answer(handle).await?;
        assert_eq!(number(&result, "amount"), Some(amount), "{result:?}");
        executions.extend(number(&result, "execution"));
    }
    executions.sort_unstable();
    assert_eq!(executions, (1..=24).collect::<Vec<_>>());
    assert_eq!(bench.count.runs("charge")?, 24);
    assert!(cutter.cuts() > 3, "{} cuts", cutter.cuts());
    Ok(())
}

/// The same loss, with the transport of rmcp itself: its call ends without its result.
#[tokio::test]
async fn an_answer_that_is_lost_before_it_begins_is_lost_to_stock_rmcp_only() -> TestResult {
    let bench = Bench::start().await?;
    let folder = tempfile::tempdir()?;
    let socket = folder.path().join("socket");
    let network = Network::start(bench.address, 1)?;
    network.unix(&socket)?;
    let url = format!("http://{}/mcp", bench.address);
    let http = UnixSocketHttpClient::new(&socket.display().to_string(), &url);
    let config = StreamableHttpClientTransportConfig::with_uri(url);
    let stock = Application::default();
    let stock = stock.serve(StreamableHttpClientTransport::with_client(http, config)).await?;
    let ended = within("the end of the call", TEST_MAX, stock.call_tool(charge(1, 5))).await?;
    assert!(matches!(ended, Err(ServiceError::TransportSend(_))), "{ended:?}");
    // It runs all the same.
    bench.count.wait("charge", 1, TEST_MAX).await?;
    assert_eq!((network.left(), bench.count.runs("charge")?), (0, 1));

    let network = Network::start(bench.address, 1)?;
    let client = client(network.tcp().await?).await?;
    let result = answer(start(&client, charge(2, 5)).await?).await?;
    assert_eq!(number(&result, "amount"), Some(2), "{result:?}");
    assert_eq!((network.left(), bench.count.runs_with("charge", "amount", &2.into())?), (0, 1));
    Ok(())
}

#[tokio::test]
async fn a_question_of_the_server_is_answered() -> TestResult {
    let bench = Bench::start().await?;
    let client = client(bench.address).await?;
    let asked = start(&client, call("ask", json!({ "question": "really?" }))).await?;
    let result = answer(asked).await?;
    assert!(serde_json::to_string(&result)?.contains("yes"), "{result:?}");
    Ok(())
}

#[tokio::test]
async fn a_cancel_reaches_the_server() -> TestResult {
    let bench = Bench::start().await?;
    let network = Network::start(bench.address, 0)?;
    let client = client(network.tcp().await?).await?;
    let handle = start(&client, charge(1, 1_000_000)).await?;
    let (token, service) = (handle.progress_token.clone(), client.service().clone());
    until("progress", TEST_MAX, async || {
        Ok::<_, Failure>((!service.progress(&token).is_empty()).then_some(()))
    })
    .await?;
    handle.cancel(Some("enough".to_owned())).await?;
    network.hears("notifications/cancelled").await?;
    // The session goes on.
    answer(start(&client, call("get", json!({}))).await?).await?;
    Ok(())
}

#[tokio::test]
async fn a_call_whose_session_was_lost_is_told_that_it_may_have_run() -> TestResult {
    let mut bench = Bench::start_kept().await?;
    let client = client(bench.address).await?;
    let handle = start(&client, charge(1, 1_000_000)).await?;
    let (token, service) = (handle.progress_token.clone(), client.service().clone());
    until("progress", TEST_MAX, async || {
        Ok::<_, Failure>((!service.progress(&token).is_empty()).then_some(()))
    })
    .await?;
    bench.restart().await?;
    let error = error_of(within("the end", TEST_MAX, handle.await_response()).await?)?;
    let data = error.data.unwrap_or_default();
    assert_eq!((error.code.0, &data["mayHaveRun"]), (40906, &json!(true)), "{data}");
    // The tool server is another one now, of which the next call is told once.
    let told = within("the end", TEST_MAX, client.call_tool(charge(2, 0))).await?;
    let error = error_of(told)?;
    let data = error.data.unwrap_or_default();
    assert_eq!((error.code.0, &data["mayHaveRun"]), (40907, &json!(false)), "{data}");
    let result = answer(start(&client, charge(3, 0)).await?).await?;
    assert_eq!(number(&result, "amount"), Some(3), "{result:?}");
    assert_eq!(bench.count.runs("charge")?, 2);
    Ok(())
}

#[tokio::test]
async fn a_call_that_cannot_be_sent_ends_at_once() -> TestResult {
    let bench = Bench::start().await?;
    let client = client(bench.address).await?;
    let text = "x".repeat(17 * 1024 * 1024);
    let ended = client.call_tool(call("echo", json!({ "text": text })));
    let Err(ServiceError::TransportSend(error)) = within("the end", TEST_MAX, ended).await? else {
        return Err(Failure::new("it was sent"));
    };
    let told = error.source().map(ToString::to_string).unwrap_or_default();
    assert!(told.contains("at most 16777216"), "{told}");
    Ok(())
}

#[tokio::test]
async fn a_client_of_both_eras_opens_a_session() -> TestResult {
    let bench = Bench::start().await?;
    let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
    let lifecycle = ClientLifecycleMode::Auto { preferred_versions, legacy_version: None };
    let serving = Application::default().serve_with_lifecycle(transport(bench.address)?, lifecycle);
    let client = within("a session", TEST_MAX, serving).await??;
    let result = answer(start(&client, charge(4, 2)).await?).await?;
    assert_eq!(number(&result, "amount"), Some(4), "{result:?}");
    Ok(())
}

/// Tasks of this test's runtime.
fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

async fn tasks_end(before: usize) -> TestResult {
    until("every task to end", WAIT, async || Ok::<_, Failure>((tasks() <= before).then_some(())))
        .await
}

#[tokio::test]
async fn a_client_that_is_closed_ends_its_session_before_it_returns() -> TestResult {
    let bench = Bench::start().await?;
    let network = Network::start(bench.address, 0)?;
    let before = tasks();
    let client = client(network.tcp().await?).await?;
    answer(start(&client, charge(1, 1)).await?).await?;
    // A call that still runs.
    let _handle = start(&client, charge(2, 1_000_000)).await?;
    bench.count.wait("charge", 2, TEST_MAX).await?;
    within("the close", WAIT, client.cancel()).await??;
    assert!(network.heard("DELETE /mcp"));
    tasks_end(before).await
}

#[tokio::test]
async fn a_client_that_is_dropped_ends_its_session_and_leaves_no_task() -> TestResult {
    let bench = Bench::start().await?;
    let network = Network::start(bench.address, 0)?;
    let before = tasks();
    let client = client(network.tcp().await?).await?;
    answer(start(&client, charge(1, 1)).await?).await?;
    assert!(tasks() > before);
    drop(client);
    network.hears("DELETE /mcp").await?;
    tasks_end(before).await?;
    // One that was never served.
    let unused = transport(bench.address)?;
    assert!(tasks() > before);
    drop(unused);
    tasks_end(before).await
}

#[tokio::test]
async fn a_client_whose_path_is_dead_is_closed_in_a_bounded_time() -> TestResult {
    let bench = Bench::start().await?;
    let path = Forward::start(bench.address)?;
    let before = tasks();
    let client = client(path.address()).await?;
    answer(start(&client, charge(1, 1)).await?).await?;
    path.go_black().await?;
    within("the close", WAIT, client.cancel()).await??;
    tasks_end(before).await
}

#[tokio::test]
async fn the_example_prints_progress_and_result_over_connections_that_are_cut() -> TestResult {
    let bench = Bench::start().await?;
    let cutter = Cutter::start(bench.address, 3, 2_000, 50, Cut::Reset)?;
    let own = std::env::current_exe()?;
    let folder = own.ancestors().nth(2).map(|folder| folder.join("examples"));
    let program = folder.unwrap_or_default().join("rmcp_client");
    if !program.is_file() {
        let build = "cargo build -p rejoin-client --features rmcp --examples";
        return Err(Failure::new(format!("{} is not built: {build}", program.display())));
    }
    let url = format!("http://{}/mcp", cutter.address());
    let running = Command::new(program)
        .args([&url, "charge", r#"{ "amount": 5, "events": 30, "interval_ms": 5 }"#])
        .env("NO_PROXY", "127.0.0.1")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = within("the example", TEST_MAX, running).await??;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (progress, result) = text.trim_end().rsplit_once('\n').unwrap_or_default();
    let result: Value = serde_json::from_str(result.trim_start_matches("result "))?;
    assert_eq!(result["structuredContent"], json!({ "amount": 5, "execution": 1 }), "{result}");
    let wanted: Vec<_> = (1..=30).map(|number| format!("progress {number}")).collect();
    let came = if result["_meta"]["dev.rejoin/recorded"].is_null() {
        30
    } else {
        progress.lines().count()
    };
    assert_eq!(progress.lines().collect::<Vec<_>>(), wanted[..came], "{said}");
    assert_eq!(bench.count.runs("charge")?, 1);
    assert!(cutter.cuts() > 0);
    Ok(())
}
