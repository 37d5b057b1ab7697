//! `rejoin probe`: how an MCP server fares when connections break, as a report.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use rejoin_probe::{Notice, Options, Report, RunError};
use tokio::sync::watch;

use crate::args::ProbeArgs;
use crate::guarded::{GuardedError, GuardedServer};
use crate::signals::Signals;

/// Exit status when hazards were found.
const EXIT_HAZARDS: u8 = 1;

/// Exit status when the probe could not run.
pub(crate) const EXIT_NOT_RUN: u8 = 2;

/// Longest time of the command that prints a credential.
const CREDENTIAL_MAX: Duration = Duration::from_secs(30);

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProbeError {
    /// The run did not begin, or not end.
    #[error(transparent)]
    Run(#[from] RunError),
    /// There is no credential.
    #[error("there is no value of Authorization: {0}")]
    Credential(String),
    /// The stdio server could not be put behind `rejoin serve`.
    #[error(transparent)]
    Guarded(#[from] GuardedError),
    /// A file of the report could not be written.
    #[error("the report cannot be written to `{path}`")]
    Write {
        /// The file.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// The system refused what the probe needs.
    #[error("the probe cannot go on")]
    System(#[from] io::Error),
    /// The report is no JSON.
    #[error("the report cannot be written as JSON")]
    Json(#[from] serde_json::Error),
}

/// `rejoin probe`, from its arguments to the exit status.
///
/// # Errors
/// See [`ProbeError`].
pub(crate) fn run(args: &ProbeArgs) -> Result<ExitCode, ProbeError> {
    if args.list {
        let mut output = io::stdout().lock();
        for about in rejoin_probe::hazards() {
            writeln!(output, "{:<26} {}", about.id, about.title)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let (junit, html) = (opened(args.junit.as_deref())?, opened(args.html.as_deref())?);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let report = runtime.block_on(probe(args));
    runtime.shutdown_background();
    let report = report?;
    let text = if args.json { report.json()? + "\n" } else { report.table() };
    io::stdout().lock().write_all(text.as_bytes())?;
    write(junit, &report.junit())?;
    write(html, &report.html())?;
    if let (true, Some(unjudged)) = (args.json, report.unjudged()) {
        say(&unjudged);
    }
    Ok(match report.hazards() {
        1.. => ExitCode::from(EXIT_HAZARDS),
        0 if report.lost => ExitCode::from(EXIT_NOT_RUN),
        0 => ExitCode::SUCCESS,
    })
}

async fn probe(args: &ProbeArgs) -> Result<Report, ProbeError> {
    let mut options = options(args).await?;
    let mut signals = Signals::install(true)?;
    let (stop, stopped) = watch::channel(false);
    options.stop = Some(stopped);
    let folder = tempfile::TempDir::new()?;
    let served = serve(args, folder.path()).await?;
    if let Some(served) = &served {
        options.url = format!("http://{}/mcp", served.address());
    }
    let (trace, mut told) = (args.trace, false);
    let watcher = Arc::new(move |notice: &Notice<'_>| tell(notice, trace));
    let mut playing = std::pin::pin!(rejoin_probe::run(&options, watcher));
    let report = loop {
        tokio::select! {
            report = &mut playing => break report,
            _ = signals.next() => {
                if std::mem::replace(&mut told, true) {
                    break Err(RunError::Stopped);
                }
                let _ended = stop.send(true);
            }
        }
    };
    if let Some(served) = served {
        served.end().await;
    }
    Ok(report?)
}

/// Puts `rejoin serve` in front of a stdio server, and says so.
async fn serve(args: &ProbeArgs, folder: &Path) -> Result<Option<GuardedServer>, ProbeError> {
    if args.command.is_empty() {
        return Ok(None);
    }
    say("a stdio server has no HTTP to probe: it is served by `rejoin serve`, which is probed");
    let command: Vec<&OsStr> = args.command.iter().map(AsRef::as_ref).collect();
    let program = std::env::current_exe()?;
    Ok(Some(GuardedServer::start(&program, &command, folder.join("log")).await?))
}

async fn options(args: &ProbeArgs) -> Result<Options, ProbeError> {
    let mut headers = Vec::new();
    let text =
        |value: &hyper::header::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    for header in &args.headers {
        headers.push((header.0.to_string(), text(&header.1)));
    }
    if let Some(auth) = &args.auth {
        let fetched = auth.0.fetch(CREDENTIAL_MAX).await;
        let value = fetched.map_err(|error| ProbeError::Credential(error.to_string()))?;
        headers.extend(value.map(|value| ("Authorization".to_owned(), text(&value))));
    }
    let words: Vec<_> = args.command.iter().map(|word| word.to_string_lossy()).collect();
    let name = (!words.is_empty()).then(|| format!("{}, behind rejoin serve", words.join(" ")));
    Ok(Options {
        url: args.url.clone().unwrap_or_default(),
        name,
        headers,
        ca_file: args.ca.clone(),
        tool: args.tool.clone(),
        arguments: args.args.clone().map(|json| json.0),
        burst_arguments: args.burst_args.clone().map(|json| json.0),
        flood_arguments: args.flood_args.clone().map(|json| json.0),
        allow_effects: args.allow_effects,
        count_command: args.count_cmd.clone(),
        restart_command: args.restart_cmd.clone(),
        only: args.only.clone(),
        stop: None,
    })
}

/// A file for the report, opened before a run of minutes: what it held stays until there is one.
fn opened(path: Option<&Path>) -> Result<Option<(String, File)>, ProbeError> {
    let Some(path) = path else {
        return Ok(None);
    };
    let name = path.display().to_string();
    match File::options().write(true).create(true).truncate(false).open(path) {
        Ok(file) => Ok(Some((name, file))),
        Err(source) => Err(ProbeError::Write { path: name, source }),
    }
}

fn write(opened: Option<(String, File)>, text: &str) -> Result<(), ProbeError> {
    let Some((path, mut file)) = opened else {
        return Ok(());
    };
    let mut all = || {
        // A pipe or a terminal has nothing to cut off.
        if file.metadata()?.is_file() {
            file.set_len(0)?;
        }
        file.write_all(text.as_bytes())
    };
    all().map_err(|source| ProbeError::Write { path, source })
}

/// Says on standard error what happens.
fn tell(notice: &Notice<'_>, trace: bool) {
    let mut output = io::stderr().lock();
    // If nobody reads it, the report still tells.
    let _read = match notice {
        Notice::Chosen(subject) => writeln!(output, "calling {}", subject.told()),
        Notice::Slow { call_ms, run_seconds } => writeln!(
            output,
            "a call takes {:.1} s, the run about {} minutes: give --args, or another --tool, with \
             which a call takes a second",
            Duration::from_millis(*call_ms).as_secs_f64(),
            run_seconds.div_ceil(60),
        ),
        Notice::Begins(about, at, of) => {
            let end = if trace { "\n" } else { "" };
            write!(output, "[{at:>2}/{of}] {:<26} {end}", about.id)
        }
        Notice::Line(entry) if trace => writeln!(output, "{entry}"),
        Notice::Ends(finding) => writeln!(output, "{}", finding.verdict),
        _ => Ok(()),
    };
    let _flushed = output.flush();
}

fn say(text: &str) {
    let _read = writeln!(io::stderr(), "rejoin probe: {text}");
}
