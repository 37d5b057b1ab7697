//! Healthy traffic of the Rust SDK: `healthy-rmcp-client URL CONTROL_URL < steps.json`.
//!
//! The steps are those of `../healthy/bulk.py`. This SDK cannot go back to a session: after an
//! abort it starts a new one.

use std::error::Error;
use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use rmcp::ServiceExt as _;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientRequest, JsonObject, ServerResult,
};
use rmcp::service::{PeerRequestOptions, RoleClient, RunningService, ServiceError};
use rmcp::transport::StreamableHttpClientTransport;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

const CALL_MAX: Duration = Duration::from_secs(20);

type Failure = Box<dyn Error + Send + Sync>;

/// One step; which fields it needs depends on what it does.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Step {
    r#do: String,
    tool: String,
    arguments: JsonObject,
    count: usize,
    width: usize,
    nominal_ms: f64,
    pause_ms: u64,
    after_ms: u64,
    ms: u64,
    path: String,
    vary: String,
    steps: Vec<Self>,
}

/// A session, on a runtime of its own: dropping that closes its connections without a word.
struct Session {
    runtime: Runtime,
    client: RunningService<RoleClient, ()>,
}

impl Session {
    fn open(url: &str) -> Result<Self, Failure> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let client = runtime
            .block_on(async { ().serve(StreamableHttpClientTransport::from_uri(url)).await })?;
        saw(&json!({ "saw": "session" }))?;
        Ok(Self { runtime, client })
    }

    fn close(self) -> Result<(), Failure> {
        self.runtime.block_on(self.client.cancel())?;
        Ok(())
    }

    fn abort(self) {
        self.runtime.shutdown_background();
    }
}

struct Driver {
    url: String,
    control: String,
    session: Option<Session>,
    varied: u32,
}

impl Driver {
    fn run(&mut self, steps: &[Step]) -> Result<(), Failure> {
        steps.iter().try_for_each(|step| self.step(step))
    }

    fn step(&mut self, step: &Step) -> Result<(), Failure> {
        match step.r#do.as_str() {
            "rounds" => (0..step.count).try_for_each(|_| self.run(&step.steps)),
            "session" => {
                self.take()?.close()?;
                self.open()
            }
            "pause" => {
                std::thread::sleep(Duration::from_millis(step.ms));
                Ok(())
            }
            "control" => self.control(&step.path),
            "calls" => self.calls(step),
            "timeout" => {
                let limit = Duration::from_millis(step.after_ms);
                let step = &self.vary(step);
                let session = self.session()?;
                session.runtime.block_on(timed(&session.client, step, limit))
            }
            "abort" => self.abort(step),
            other => Err(format!("no such step: {other}").into()),
        }
    }

    fn calls(&self, step: &Step) -> Result<(), Failure> {
        let session = self.session()?;
        let mut left = step.count;
        while left > 0 {
            let width = left.min(step.width.max(1));
            session.runtime.block_on(async {
                let calls = (0..width).map(|_| timed(&session.client, step, CALL_MAX));
                futures::future::try_join_all(calls).await
            })?;
            left -= width;
            std::thread::sleep(Duration::from_millis(step.pause_ms));
        }
        Ok(())
    }

    fn abort(&mut self, step: &Step) -> Result<(), Failure> {
        let step = &self.vary(step);
        let began = Instant::now();
        let session = self.take()?;
        let peer = session.client.peer().clone();
        let request = request(step);
        let lost = session.runtime.spawn(async move { peer.send_request(request).await.is_ok() });
        std::thread::sleep(Duration::from_millis(step.after_ms));
        let outcome = if lost.is_finished() { "early" } else { "aborted" };
        session.abort();
        note(step, began, outcome, None)?;
        self.open()
    }

    /// The step with arguments that no call had before.
    fn vary(&mut self, step: &Step) -> Step {
        self.varied += 1;
        let mut step = step.clone();
        if let Some(value) = step.arguments.get_mut(&step.vary) {
            *value = json!(value.as_f64().unwrap_or_default() + f64::from(self.varied) / 1000.0);
        }
        step
    }

    fn control(&self, path: &str) -> Result<(), Failure> {
        let sent = reqwest::Client::new().post(format!("{}{path}", self.control)).send();
        self.session()?.runtime.block_on(sent)?.error_for_status()?;
        Ok(())
    }

    fn open(&mut self) -> Result<(), Failure> {
        self.session = Some(Session::open(&self.url)?);
        Ok(())
    }

    fn session(&self) -> Result<&Session, Failure> {
        self.session.as_ref().ok_or_else(|| "there is no session".into())
    }

    fn take(&mut self) -> Result<Session, Failure> {
        self.session.take().ok_or_else(|| "there is no session".into())
    }
}

fn request(step: &Step) -> ClientRequest {
    let params =
        CallToolRequestParams::new(step.tool.clone()).with_arguments(step.arguments.clone());
    ClientRequest::CallToolRequest(CallToolRequest::new(params))
}

async fn timed(
    client: &RunningService<RoleClient, ()>,
    step: &Step,
    limit: Duration,
) -> Result<(), Failure> {
    let began = Instant::now();
    let options = PeerRequestOptions::with_timeout(limit);
    let answer = match client.peer().send_request_with_option(request(step), options).await {
        Ok(handle) => handle.await_response().await,
        Err(error) => Err(error),
    };
    let (outcome, detail) = match answer {
        Ok(ServerResult::CallToolResult(result)) => {
            let meta = serde_json::to_value(&result.meta)?;
            let is_recorded = meta.get("dev.rejoin/recorded").is_some();
            (if is_recorded { "recorded" } else { "ok" }, None)
        }
        Ok(other) => ("failed", Some(format!("{other:?}"))),
        Err(ServiceError::Timeout { .. }) => ("timeout", None),
        Err(error @ ServiceError::McpError(_)) => ("refused", Some(error.to_string())),
        Err(error) => ("failed", Some(error.to_string())),
    };
    note(step, began, outcome, detail)
}

fn note(step: &Step, began: Instant, outcome: &str, detail: Option<String>) -> Result<(), Failure> {
    let ms = began.elapsed().as_secs_f64() * 1000.0;
    saw(&json!({
        "saw": "call", "tool": step.tool, "ms": ms, "over_ms": ms - step.nominal_ms,
        "outcome": outcome, "detail": detail,
    }))
}

fn saw(line: &Value) -> Result<(), Failure> {
    Ok(writeln!(io::stdout().lock(), "{line}")?)
}

fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let (Some(url), Some(control)) = (args.next(), args.next()) else {
        return Err("usage: healthy-rmcp-client URL CONTROL_URL < steps.json".into());
    };
    let steps: Vec<Step> = serde_json::from_reader(io::stdin())?;
    let mut driver = Driver { url, control, session: None, varied: 0 };
    driver.open()?;
    driver.run(&steps)?;
    driver.take()?.close()?;
    saw(&json!({ "saw": "end" }))
}
