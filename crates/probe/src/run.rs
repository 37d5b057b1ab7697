//! A whole run: a tool is chosen, each hazard is played in a session of its own.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::bench::{Bench, Plan};
use crate::command;
use crate::hazard::{About, Hazard, Seen};
use crate::hazards::all;
use crate::limits::{
    CALL_QUARTERS_A_HAZARD, DELETE_MAX_SECONDS, HAZARD_MAX_SECONDS, LOST_AFTER,
    PREPARE_MAX_SECONDS, QUOTED_CHARS_MAX, RUN_MAX_SECONDS, SLOW_MIN_MS, ms,
};
use crate::report::{Finding, Report};
use crate::session::{REVISION, Session, Target, Trouble};
use crate::subject::{self, ChoiceError, Subject, Tool};
use crate::transcript::{Entry, Transcript};
use crate::visible::beginning;
use crate::wire::{Dialer, SetUpError};

/// What to probe, and with what.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The endpoint.
    pub url: String,
    /// How it is called in the report, if not by its URL.
    pub name: Option<String>,
    /// Header fields for every request, `Authorization` among them.
    pub headers: Vec<(String, String)>,
    /// PEM file of certificate authorities to trust beside those of the system.
    pub ca_file: Option<PathBuf>,
    /// The tool to call.
    pub tool: Option<String>,
    /// What it is called with.
    pub arguments: Option<Value>,
    /// Arguments with which it sends a hundred events at once.
    pub burst_arguments: Option<Value>,
    /// Arguments with which it sends megabytes of events.
    pub flood_arguments: Option<Value>,
    /// Tools that are not annotated read-only may be called.
    pub allow_effects: bool,
    /// Prints how often tools ran.
    pub count_command: Option<String>,
    /// Restarts the server, and ends when it serves again.
    pub restart_command: Option<String>,
    /// Only hazards with these ids; empty for all.
    pub only: Vec<String>,
    /// Ends the run when it turns true; the sessions are ended all the same.
    pub stop: Option<watch::Receiver<bool>>,
}

/// Why there was no run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// Nothing can be sent.
    #[error(transparent)]
    SetUp(#[from] SetUpError),
    /// No session can be opened.
    #[error(transparent)]
    Trouble(#[from] Trouble),
    /// There is no tool to call.
    #[error(transparent)]
    Choice(#[from] ChoiceError),
    /// No such hazard.
    #[error("there is no hazard `{0}`: --list names them all")]
    NoSuchHazard(String),
    /// The server was not probed to the end of its preparation.
    #[error("tools could not be tried within {seconds} s: name one with --tool")]
    Slow {
        /// The bound.
        seconds: u64,
    },
    /// It was told to stop.
    #[error("stopped before its end")]
    Stopped,
}

/// What happens while a run is on.
#[derive(Debug)]
#[non_exhaustive]
pub enum Notice<'a> {
    /// The tool was chosen.
    Chosen(&'a Subject),
    /// Its calls take long, and so does the run.
    Slow {
        /// How long a call takes.
        call_ms: u64,
        /// How long the hazards take at a guess.
        run_seconds: u64,
    },
    /// A hazard begins: which, the how many-th from 1, of how many.
    Begins(&'a About, usize, usize),
    /// A line of its transcript.
    Line(&'a Entry),
    /// It ended.
    Ends(&'a Finding),
}

/// Is told what happens.
pub type Watcher = Arc<dyn Fn(&Notice<'_>) + Send + Sync>;

/// What every hazard is about, in the order in which they are played.
pub fn hazards() -> Vec<About> {
    all().iter().map(|hazard| hazard.about()).collect()
}

/// Plays hazards against a server.
///
/// # Errors
/// See [`RunError`]. What goes wrong within a hazard is a finding.
pub async fn run(options: &Options, watcher: Watcher) -> Result<Report, RunError> {
    let chosen = chosen(&options.only)?;
    let target = Target {
        dialer: Dialer::new(&options.url, options.ca_file.as_deref())?,
        headers: options.headers.clone(),
        requests: Arc::default(),
        keeps_sessions: Arc::default(),
    };
    let started = Instant::now();
    let (plan, shown_subject, server) = prepare(&target, options, &watcher).await?;
    watcher(&Notice::Chosen(&shown_subject));
    let call_ms = shown_subject.duration_ms;
    if call_ms > SLOW_MIN_MS {
        watcher(&Notice::Slow { call_ms, run_seconds: guessed_seconds(call_ms, chosen.len()) });
    }
    let (mut findings, mut without_session) = (Vec::new(), 0);
    for (at, hazard) in chosen.iter().enumerate() {
        let about = hazard.about();
        watcher(&Notice::Begins(&about, at + 1, chosen.len()));
        let finding = if started.elapsed().as_secs() >= RUN_MAX_SECONDS {
            let text = format!("the run has taken its {RUN_MAX_SECONDS} s");
            Finding::new(about, Seen::unclear(text), 0, Vec::new())
        } else if without_session >= LOST_AFTER {
            let text = "not played: the server opened no session any more";
            Finding::new(about, Seen::unclear(text), 0, Vec::new())
        } else {
            let stopped = Box::pin(stopped(options.stop.clone()));
            let (finding, opened) =
                play(hazard.as_ref(), &target, &plan, &watcher, stopped).await?;
            without_session = if opened { 0 } else { without_session + 1 };
            finding
        };
        watcher(&Notice::Ends(&finding));
        findings.push(finding);
    }
    Ok(Report {
        target: options.name.clone().unwrap_or_else(|| shown(&options.url)),
        server,
        subject: shown_subject,
        requests: target.requests.load(std::sync::atomic::Ordering::Relaxed),
        lost: without_session >= LOST_AFTER,
        findings,
    })
}

/// How long so many hazards take, at a guess from the length of a call.
fn guessed_seconds(call_ms: u64, hazards: usize) -> u64 {
    let quarters = CALL_QUARTERS_A_HAZARD.saturating_mul(hazards as u64);
    (call_ms.saturating_mul(quarters) / 4_000).min(RUN_MAX_SECONDS)
}

/// A URL without what may be secret in it.
pub(crate) fn shown(url: &str) -> String {
    let plain = url.split(['?', '#']).next().unwrap_or_default();
    match (plain.split_once("://"), plain.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://{rest}"),
        _ => plain.to_owned(),
    }
}

fn chosen(only: &[String]) -> Result<Vec<Box<dyn Hazard>>, RunError> {
    let mut hazards = all();
    let is_known = |id: &&String| hazards.iter().any(|hazard| hazard.about().id == id.as_str());
    if let Some(unknown) = only.iter().find(|id| !is_known(id)) {
        return Err(RunError::NoSuchHazard(unknown.clone()));
    }
    if !only.is_empty() {
        hazards.retain(|hazard| only.iter().any(|id| id == hazard.about().id));
    }
    Ok(hazards)
}

async fn prepare(
    target: &Target,
    options: &Options,
    watcher: &Watcher,
) -> Result<(Plan, Subject, String), RunError> {
    let transcript = transcript(target, watcher);
    let session = Session::open(target, &transcript, REVISION).await?;
    let planned = tokio::select! {
        planned = timeout(ms(PREPARE_MAX_SECONDS * 1_000), plan(&session, options)) => planned,
        () = stopped(options.stop.clone()) => Ok(Err(RunError::Stopped)),
    };
    session.delete().await;
    let plan = planned.map_err(|_| RunError::Slow { seconds: PREPARE_MAX_SECONDS })??;
    let info = &session.result["serverInfo"];
    let word = |member: &str| {
        let word = session.masked(info[member].as_str().unwrap_or("?"));
        beginning(&word, QUOTED_CHARS_MAX)
    };
    let subject = plan.subject.masked(|text| session.masked(text));
    Ok((plan, subject, format!("{} {}", word("name"), word("version"))))
}

async fn plan(session: &Session, options: &Options) -> Result<Plan, RunError> {
    if let Some(line) = &options.count_command {
        command::count(line).await?;
    }
    let tools = subject::tools(session).await?;
    let tool = match &options.tool {
        Some(name) => {
            let arguments = options.arguments.clone();
            let arguments = arguments.unwrap_or_else(|| Value::Object(serde_json::Map::new()));
            let tool = Tool { name: name.clone(), arguments };
            subject::named(&tools, &tool, options.allow_effects)?
        }
        None => subject::choose(session, &tools, options.arguments.as_ref()).await?,
    };
    let like = |arguments: &Option<Value>| {
        let arguments = arguments.clone()?;
        Some(Tool { name: tool.name.clone(), arguments })
    };
    let burst = match like(&options.burst_arguments) {
        Some(tool) => Some(Subject::calibrate(session, &tool).await?),
        None => None,
    };
    Ok(Plan {
        subject: Subject::calibrate(session, &tool).await?,
        burst,
        flood: like(&options.flood_arguments),
        quick: subject::quick(session, &tools, &tool).await,
        count_command: options.count_command.clone(),
        restart_command: options.restart_command.clone(),
    })
}

fn transcript(target: &Target, watcher: &Watcher) -> Transcript {
    let watcher = Arc::clone(watcher);
    let transcript =
        Transcript::new(Some(Arc::new(move |entry: &Entry| watcher(&Notice::Line(entry)))));
    for (_, value) in &target.headers {
        transcript.hide_header(value);
    }
    transcript
}

/// Plays one; also says whether the server opened a session for it.
async fn play(
    hazard: &dyn Hazard,
    target: &Target,
    plan: &Plan,
    watcher: &Watcher,
    stopped: impl Future<Output = ()>,
) -> Result<(Finding, bool), RunError> {
    let transcript = transcript(target, watcher);
    let bench = Bench::new(target, plan, transcript.clone());
    let started = Instant::now();
    let played = tokio::select! {
        played = timeout(ms(HAZARD_MAX_SECONDS * 1_000), hazard.play(&bench)) => Some(played),
        () = stopped => None,
    };
    let opened = bench.has_sessions() || !matches!(played, Some(Ok(Err(_))));
    // A server that no longer answers keeps its sessions.
    let _late = timeout(ms(DELETE_MAX_SECONDS * 1_000), bench.end()).await;
    let seen = match played.ok_or(RunError::Stopped)? {
        Ok(Ok(seen)) => seen,
        Ok(Err(trouble)) => Seen::unclear(trouble.to_string()),
        Err(_) => Seen::unclear(format!("not done within {HAZARD_MAX_SECONDS} s")),
    };
    let seen = Seen::new(seen.verdict, transcript.masked(&seen.seen));
    let took_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok((Finding::new(hazard.about(), seen, took_ms, transcript.entries()), opened))
}

async fn stopped(stop: Option<watch::Receiver<bool>>) {
    let told = match stop {
        Some(mut stop) => stop.wait_for(|stop| *stop).await.is_ok(),
        None => false,
    };
    if !told {
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hazard_has_an_id_of_its_own_and_says_all_that_a_reader_needs() {
        let hazards = hazards();
        for (at, about) in hazards.iter().enumerate() {
            assert!(hazards[..at].iter().all(|other| other.id != about.id), "{}", about.id);
            for text in [about.title, about.done, about.why, about.fix] {
                assert!(text.len() > 15, "{}: {text}", about.id);
            }
        }
        assert!(chosen(&["no-such".to_owned()]).is_err());
        assert_eq!(chosen(&[hazards[3].id.to_owned()]).unwrap().len(), 1);
    }

    #[test]
    fn the_length_of_a_run_is_guessed_from_that_of_a_call() {
        assert_eq!(guessed_seconds(10_000, 30), 525);
        assert_eq!(guessed_seconds(10_000, 1), 17);
        assert_eq!(guessed_seconds(u64::MAX, 30), RUN_MAX_SECONDS);
    }

    #[test]
    fn a_url_is_shown_without_what_may_be_secret() {
        assert_eq!(shown("http://127.0.0.1:1/mcp"), "http://127.0.0.1:1/mcp");
        assert_eq!(shown("https://me:zq@host/mcp?key=zq"), "https://host/mcp");
    }
}
