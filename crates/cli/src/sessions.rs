//! `rejoin sessions`: what Rejoin knows of its sessions, live by the admin address or, while none
//! runs, from the directory of the log.

mod admin;
mod store;
mod table;

use std::io::Write as _;
use std::process::ExitCode;

use rejoin_core::id::CallId;
use serde_json::Value;

use crate::args::{SessionsArgs, SessionsCommand};
use crate::terminal::escaped;
pub(crate) use admin::AdminError;
pub(crate) use store::StoredError;

/// Why nothing is shown or done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionsError {
    /// The running Rejoin.
    #[error(transparent)]
    Admin(#[from] AdminError),
    /// The directory.
    #[error(transparent)]
    Stored(#[from] StoredError),
    /// Only one of the two can.
    #[error("{what} needs {needed}")]
    Needs {
        /// What was asked for.
        what: &'static str,
        /// What it needs.
        needed: &'static str,
    },
    /// Nothing could be printed.
    #[error("nothing can be written to standard output")]
    Print(#[from] std::io::Error),
}

/// `rejoin sessions`, from its arguments to the exit status.
///
/// # Errors
/// See [`SessionsError`].
pub(crate) fn run(args: &SessionsArgs) -> Result<ExitCode, SessionsError> {
    let said = match &args.command {
        SessionsCommand::List => {
            let sessions = match &args.data {
                Some(folder) => store::list(folder)?,
                None => admin::list(args.admin)?,
            };
            said(args, &sessions, table::of_sessions)
        }
        SessionsCommand::Show { session } => said(args, &one(args, session)?, table::of_streams),
        SessionsCommand::Calls { session } => said(args, &one(args, session)?, table::of_calls),
        SessionsCommand::Release { session, call } => {
            if args.data.is_some() {
                let needed = "a running Rejoin: leave --data out, and name its --admin address";
                return Err(SessionsError::Needs { what: "release", needed });
            }
            admin::release(args.admin, session, CallId(*call))?;
            format!("Call {call} is released: nothing is refused because of it any more.\n")
        }
        SessionsCommand::Export { session } => {
            let Some(folder) = &args.data else {
                let needed = "--data DIR, and that no Rejoin uses it: it prints whole messages";
                return Err(SessionsError::Needs { what: "export", needed });
            };
            store::export(folder, session)?
        }
    };
    std::io::stdout().write_all(said.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn one(args: &SessionsArgs, session: &str) -> Result<Value, SessionsError> {
    match &args.data {
        Some(folder) => Ok(store::show(folder, session)?),
        None => Ok(admin::show(args.admin, session)?),
    }
}

fn said(args: &SessionsArgs, value: &Value, table: impl Fn(&Value) -> String) -> String {
    if args.json { json(value) } else { table(value) }
}

fn json(value: &Value) -> String {
    escaped(&format!("{value:#}\n"))
}

/// For `fuzz/` alone: everything that is printed of this.
#[cfg(feature = "fuzz")]
pub(crate) fn all_said(value: &Value) -> [String; 4] {
    [json(value), table::of_sessions(value), table::of_streams(value), table::of_calls(value)]
}

/// For `fuzz/` alone: a line of `export`.
#[cfg(feature = "fuzz")]
pub(crate) fn exported(event: &rejoin_core::effect::Event) -> serde_json::Result<String> {
    store::line(event)
}
