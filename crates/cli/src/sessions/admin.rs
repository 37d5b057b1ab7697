//! The admin address of a running Rejoin.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rejoin_core::id::CallId;
use rejoin_gateway::operator::OPERATOR_HEADER;
use serde_json::Value;

/// How long a running Rejoin may take.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// The largest answer that is read.
const ANSWER_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Why the running Rejoin did not answer as asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AdminError {
    /// Nobody is there.
    #[error(
        "no Rejoin answers at {address}: name its --admin address, or --data DIR while it is \
         stopped"
    )]
    Unreachable {
        /// Where it was asked.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// It refused.
    #[error("{address} answered {status}: {said}")]
    Refused {
        /// Where it was asked.
        address: SocketAddr,
        /// The HTTP status.
        status: String,
        /// Its words.
        said: String,
    },
    /// Somebody else is there.
    #[error("{address} is no admin address of a Rejoin: name the right one with --admin")]
    Unreadable {
        /// Where it was asked.
        address: SocketAddr,
    },
}

/// All sessions.
pub(super) fn list(address: SocketAddr) -> Result<Value, AdminError> {
    ask(address, "GET", "/sessions")
}

/// One session.
pub(super) fn show(address: SocketAddr, session: &str) -> Result<Value, AdminError> {
    ask(address, "GET", &format!("/sessions/{}", segment(session)))
}

/// Releases a call.
pub(super) fn release(
    address: SocketAddr,
    session: &str,
    call: CallId,
) -> Result<Value, AdminError> {
    ask(address, "POST", &format!("/sessions/{}/calls/{call}/release", segment(session)))
}

/// What of a word can be part of a key.
fn segment(word: &str) -> String {
    word.chars().filter(char::is_ascii_hexdigit).collect::<String>().to_ascii_lowercase()
}

fn ask(address: SocketAddr, method: &str, path: &str) -> Result<Value, AdminError> {
    let answer = exchange(address, method, path)
        .map_err(|source| AdminError::Unreachable { address, source })?;
    let text = String::from_utf8_lossy(&answer);
    let unreadable = || AdminError::Unreadable { address };
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(unreadable)?;
    let status = head.split_whitespace().nth(1).ok_or_else(unreadable)?;
    if status != "200" {
        let said = body.lines().next().unwrap_or_default().to_owned();
        return Err(AdminError::Refused { address, status: status.to_owned(), said });
    }
    serde_json::from_str(body).map_err(|_| unreadable())
}

/// One exchange; HTTP/1.0, so that the answer ends with the connection.
fn exchange(address: SocketAddr, method: &str, path: &str) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_MAX)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\nHost: localhost\r\n{OPERATOR_HEADER}: 1\r\n\
         Content-Length: 0\r\n\r\n"
    )?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    Ok(answer)
}
