//! `rejoin tool-server`: a small MCP server on standard input and output (design section 8).
//!
//! It exists to be counted and broken: `charge` counts every execution in a file, others crash,
//! wait, ask, echo. Plain threads: one reads, each call has its own, and a full pipe blocks them,
//! so nothing is ever buffered without bound.

mod arguments;
mod call;
mod catalog;
mod charge;
mod count;
mod message;
mod output;
mod question;
mod server;
mod tools;

use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use crate::args::ToolServerArgs;
use count::CountFile;
use output::Output;
use server::Server;

/// Longest line read; a longer one is skipped with a word on standard error.
const LINE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Time running calls have to finish once standard input has ended.
const END_GRACE: Duration = Duration::from_millis(250);

/// Why the tool server could not start, or stopped.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ToolServerError {
    /// The count file cannot be appended to.
    #[error("cannot append to the count file {path}")]
    CountFile {
        /// The file.
        path: String,
        /// The cause.
        #[source]
        cause: io::Error,
    },
    /// Standard output cannot be used.
    #[error("cannot write to standard output")]
    Output(#[source] io::Error),
    /// Standard input cannot be read.
    #[error("cannot read standard input")]
    Input(#[source] io::Error),
}

/// Serves standard input until it ends.
///
/// # Errors
/// See [`ToolServerError`].
pub(crate) fn run(args: &ToolServerArgs) -> Result<ExitCode, ToolServerError> {
    let count_file = match &args.count_file {
        Some(path) => Some(CountFile::open(path).map_err(|cause| ToolServerError::CountFile {
            path: path.display().to_string(),
            cause,
        })?),
        None => None,
    };
    let output = Output::stdout().map_err(ToolServerError::Output)?;
    if io::stdin().is_terminal() {
        eprintln!("rejoin tool-server: MCP messages, one JSON object a line; Ctrl-D ends it.");
    }
    let server = Arc::new(Server::new(output, count_file));
    let result = read_lines(&server);
    server.finish(END_GRACE);
    result.map(|()| ExitCode::SUCCESS).map_err(ToolServerError::Input)
}

fn read_lines(server: &Arc<Server>) -> io::Result<()> {
    let mut input = BufReader::new(io::stdin().lock());
    let mut line = Vec::new();
    loop {
        line.clear();
        input.by_ref().take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(());
        }
        if line.len() as u64 > LINE_BYTES_MAX {
            eprintln!("rejoin tool-server: skipped a line of more than {LINE_BYTES_MAX} bytes");
            input.skip_until(b'\n')?;
            continue;
        }
        let text = line.trim_ascii();
        if !text.is_empty() {
            server.handle_line(text);
        }
    }
}
