//! The `rejoin` command: see [`args`] for what it can do.

mod args;
mod demo;
mod limit;
mod serve;
mod signals;
mod tool_server;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

use crate::args::{Args, Command};

/// Exit status of a command that failed; usage errors leave with clap's own status 2.
const EXIT_FAILED: u8 = 1;

fn main() -> ExitCode {
    match Args::parse().command {
        // The tool server blocks on its pipes in plain threads and needs no runtime.
        Command::ToolServer(args) => report("tool-server", tool_server::run(&args)),
        Command::Serve(args) => match start_log(&args.log) {
            Ok(()) => report("serve", serve::run_from(*args)),
            Err(message) => fail("serve", &message),
        },
        Command::Demo(args) => report("demo", demo::run_from(&args)),
    }
}

/// Logs go to standard error; standard output belongs to the one line with the URL.
fn start_log(filter: &str) -> Result<(), String> {
    let filter = EnvFilter::try_new(filter)
        .map_err(|error| format!("--log {filter:?} is not a log filter: {error}"))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
        .init();
    Ok(())
}

fn report<E: std::error::Error>(command: &str, result: Result<ExitCode, E>) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(error) => {
            let mut message = error.to_string();
            let mut source = error.source();
            while let Some(cause) = source {
                message = format!("{message}: {cause}");
                source = cause.source();
            }
            fail(command, &message)
        }
    }
}

fn fail(command: &str, message: &str) -> ExitCode {
    eprintln!("rejoin {command}: {message}");
    ExitCode::from(EXIT_FAILED)
}
