//! The `rejoin` command: see `rejoin --help` for what it can do. A library, so that what reads a
//! file of options and what prints to a terminal can be fuzzed; its program is `main.rs`.

mod args;
mod bridge;
mod config;
mod demo;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod guarded;
mod limit;
mod log;
mod nearest;
mod probe;
mod serve;
mod sessions;
mod signals;
mod terminal;
mod tool_server;

use std::io::Write as _;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _};
use rejoin_core::causes;

use crate::args::{Args, Command, ServeArgs};

/// Exit status of a command that failed; usage errors leave with clap's own status 2.
const EXIT_FAILED: u8 = 1;

/// Does what the arguments of this process say; the status to leave with.
pub fn run() -> ExitCode {
    let matches = Args::command().try_get_matches().unwrap_or_else(|error| hinted(error).exit());
    let args = Args::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    match args.command {
        // The tool server blocks on its pipes in plain threads and needs no runtime.
        Command::ToolServer(args) => report("tool-server", tool_server::run(&args)),
        Command::Serve(args) => serve(*args, &matches),
        Command::Bridge(args) => report("bridge", bridge::run(&args)),
        Command::Demo(args) => report("demo", demo::run_from(&args)),
        Command::Sessions(args) => report("sessions", sessions::run(&args)),
        Command::Probe(args) => probe::run(&args).unwrap_or_else(|error| {
            fail("probe", &causes::told(&error));
            ExitCode::from(probe::EXIT_NOT_RUN)
        }),
    }
}

/// Tells whoever named the MCP server without the option or the two dashes where they belong.
fn hinted(mut error: clap::Error) -> clap::Error {
    let word = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(word)) if !word.starts_with('-') => word.clone(),
        _ => return error,
    };
    let serves = std::env::args_os().nth(1).is_some_and(|command| command == "serve");
    if serves && error.kind() == ErrorKind::UnknownArgument {
        let hint = if word.starts_with("http://") || word.starts_with("https://") {
            format!("name the URL of an MCP server with --upstream: --upstream {word}")
        } else {
            format!("put `--` before the command of an MCP server: -- {word}")
        };
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![hint.into()]));
    }
    error
}

/// `rejoin serve`: the file of options first, as it may say what to log.
fn serve(mut args: ServeArgs, matches: &ArgMatches) -> ExitCode {
    let source = |option: &str| match matches.subcommand() {
        // Of an option that it does not know it says nothing but panics.
        Some((_, serve)) if serve.ids().any(|id| id.as_str() == option) => {
            serve.value_source(option)
        }
        _ => None,
    };
    let is_given = |option: &str| {
        matches!(source(option), Some(ValueSource::CommandLine | ValueSource::EnvVariable))
    };
    if let Err(error) = config::read_into(&mut args, &is_given) {
        return fail("serve", &causes::told(&error));
    }
    let setting = match source("log") {
        Some(ValueSource::EnvVariable) => "the variable REJOIN_LOG".to_owned(),
        _ => args.file.origins.name("log", "--log"),
    };
    if let Err(message) = log::start(&args.log, &setting) {
        return fail("serve", &message);
    }
    for unused in std::mem::take(&mut args.file.unused) {
        tracing::warn!("{unused}");
    }
    report("serve", serve::run_from(args))
}

fn report<E: std::error::Error>(command: &str, result: Result<ExitCode, E>) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(error) => fail(command, &causes::told(&error)),
    }
}

fn fail(command: &str, message: &str) -> ExitCode {
    let message = terminal::shown(message);
    // If nobody reads it, the status still tells.
    let _read = writeln!(std::io::stderr(), "rejoin {command}: {message}");
    ExitCode::from(EXIT_FAILED)
}
