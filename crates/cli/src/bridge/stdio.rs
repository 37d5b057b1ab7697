//! Lines of standard input, output and error (MCP *Transports*, stdio), each in a thread of its
//! own: neither a read nor a write can be given up.

use std::io::{self, BufRead, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rejoin_core::message::error_response;
use rejoin_core::rejection::REFUSED_BY;
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::time::{interval, timeout};

use super::envelope::{Envelope, Shape};

/// Lines that wait to be handed over, in either direction.
const LINES_MAX: usize = 16;

/// Lines for a person that wait to be read.
const NOTICES_MAX: usize = 256;

/// Time that the last lines for a person have to be read.
const NOTICES_END_MAX: Duration = Duration::from_millis(500);

/// How often it is looked whether the host has closed its side.
const HANG_UP_LOOK: Duration = Duration::from_secs(1);

/// JSON-RPC 2.0: the request is not a valid one.
const INVALID_REQUEST: i64 = -32_600;

/// JSON-RPC 2.0: who was asked cannot answer.
const INTERNAL_ERROR: i64 = -32_603;

/// The lines of standard input. Of one longer than `bytes_max`, without its end, the host is told
/// by `output`; if it was an answer, the server is.
pub(super) fn lines(
    bytes_max: usize,
    output: mpsc::WeakSender<Bytes>,
    notices: Weak<Notices>,
) -> io::Result<mpsc::Receiver<Vec<u8>>> {
    let (sender, receiver) = mpsc::channel(LINES_MAX);
    thread::Builder::new().name("stdin".to_owned()).spawn(move || {
        let mut stdin = io::stdin().lock();
        while let Ok(Some(line)) = line(&mut stdin, bytes_max) {
            let (line, to_host) = match line {
                Line::Whole(line) => (Some(line), None),
                Line::TooLong(shape) => {
                    if let Some(notices) = notices.upgrade() {
                        notices.say(&format!("a line longer than {bytes_max} bytes was left out"));
                    }
                    instead(&shape, bytes_max)
                }
            };
            if let (Some(line), Some(output)) = (to_host, output.upgrade()) {
                let _ending = output.blocking_send(line).is_err();
            }
            if line.is_some_and(|line| sender.blocking_send(line).is_err()) {
                return;
            }
        }
    })?;
    Ok(receiver)
}

/// Waits until nobody can write to standard input any more, however much of it is still unread. For
/// ever where that cannot be seen, as of a file: its end is read.
pub(super) async fn hung_up() {
    let mut look = interval(HANG_UP_LOOK);
    let stdin = io::stdin();
    let is_hung_up = || {
        let mut asked = [PollFd::new(stdin.as_fd(), PollFlags::empty())];
        let has_news = poll(&mut asked, PollTimeout::ZERO).is_ok_and(|count| count > 0);
        has_news && asked[0].revents().is_some_and(|news| news.contains(PollFlags::POLLHUP))
    };
    while !is_hung_up() {
        look.tick().await;
    }
}

/// What takes the place of a line that is too long: for the server, and for the host.
fn instead(shape: &Shape, bytes_max: usize) -> (Option<Vec<u8>>, Option<Bytes>) {
    match shape {
        Shape::Request(id) => {
            let data = json!({ "by": REFUSED_BY, "mayHaveRun": false }).to_string();
            let text = format!(
                "Not run. The message is longer than {bytes_max} bytes and was not sent. Make it \
                 shorter."
            );
            let id = id.as_ref().map(|id| id.as_json().as_bytes());
            (None, Some(error_response(id, INVALID_REQUEST, &text, Some(data.as_bytes()))))
        }
        Shape::Answer(id) => {
            let text = format!("The answer is longer than {bytes_max} bytes and was not sent.");
            let id = Some(id.as_json().as_bytes());
            (Some(error_response(id, INTERNAL_ERROR, &text, None).to_vec()), None)
        }
        Shape::Notification => (None, None),
    }
}

/// One line.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    /// Without its end.
    Whole(Vec<u8>),
    /// One that was too long.
    TooLong(Shape),
}

/// The next line that is not empty. `None`: there is no more.
fn line(reader: &mut impl BufRead, bytes_max: usize) -> io::Result<Option<Line>> {
    let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX).saturating_add(1);
    let mut line = Vec::new();
    while line.trim_ascii().is_empty() {
        line.clear();
        if reader.by_ref().take(limit).read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
    }
    if line.pop_if(|byte| *byte == b'\n').is_some() || line.len() <= bytes_max {
        return Ok(Some(Line::Whole(line)));
    }
    let mut envelope = Envelope::default();
    envelope.read(&line);
    drop(line);
    loop {
        let chunk = reader.fill_buf()?;
        let (read, is_over) = match chunk.iter().position(|&byte| byte == b'\n') {
            Some(at) => (at + 1, true),
            None => (chunk.len(), chunk.is_empty()),
        };
        envelope.read(&chunk[..read]);
        reader.consume(read);
        if is_over {
            return Ok(Some(Line::TooLong(envelope.shape())));
        }
    }
}

/// How far standard output is: messages written whole. Closed when no more is written: all of them
/// were, or nobody reads.
pub(super) type Written = watch::Receiver<u64>;

/// Standard output, for messages on one line each.
pub(super) fn output() -> io::Result<(mpsc::Sender<Bytes>, Written)> {
    let (sender, mut receiver) = mpsc::channel::<Bytes>(LINES_MAX);
    let (count, written) = watch::channel(0);
    thread::Builder::new().name("stdout".to_owned()).spawn(move || {
        while let Some(message) = receiver.blocking_recv() {
            if write(&message).is_err() {
                return;
            }
            count.send_modify(|count| *count += 1);
        }
    })?;
    Ok((sender, written))
}

/// Waits until no more is written.
pub(super) async fn closed(mut written: Written) {
    while written.changed().await.is_ok() {}
}

/// Waits until nothing was written for so long.
pub(super) async fn stalled(mut written: Written, patience: Duration) {
    let mut more = async || {
        if written.changed().await.is_err() {
            std::future::pending().await
        }
    };
    while timeout(patience, more()).await.is_ok() {}
}

fn write(message: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(message)?;
    stdout.write_all(b"\n")?;
    stdout.flush()
}

/// Standard error, for a person. What nobody reads is left out, and counted.
pub(super) struct Notices {
    /// `None`: nothing is to be said.
    sender: Option<SyncSender<String>>,
    left_out: Arc<AtomicU64>,
}

/// When all notices were written.
pub(super) struct Said(Receiver<()>);

impl Said {
    /// Waits for it, a little. Drop the [`Notices`] first.
    pub(super) fn wait(self) {
        // It is closed without a message.
        let _is_unread = self.0.recv_timeout(NOTICES_END_MAX).is_err();
    }
}

impl Notices {
    /// Starts to write, unless `is_quiet`.
    pub(super) fn start(is_quiet: bool) -> io::Result<(Arc<Self>, Said)> {
        let (sender, receiver) = sync_channel::<String>(NOTICES_MAX);
        let (writing, said) = sync_channel(1);
        let left_out = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&left_out);
        thread::Builder::new().name("stderr".to_owned()).spawn(move || {
            let _open_meanwhile = writing;
            for text in receiver {
                write_notice(&text);
                match count.swap(0, Ordering::Relaxed) {
                    0 => {}
                    count => write_notice(&format!("{count} lines that nobody read are left out")),
                }
            }
        })?;
        let sender = (!is_quiet).then_some(sender);
        Ok((Arc::new(Self { sender, left_out }), Said(said)))
    }

    /// Tells a person.
    pub(super) fn say(&self, text: &str) {
        if let Some(sender) = &self.sender
            && sender.try_send(text.to_owned()).is_err()
        {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn write_notice(text: &str) {
    let _unread = writeln!(io::stderr(), "rejoin bridge: {text}").is_err();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_too_long_is_left_out_whole() {
        let mut text: &[u8] = b"12345\n\n 123456\n{\"method\":1}\n{\"id\":7}\nx\nlast";
        let mut read = Vec::new();
        while let Some(line) = line(&mut text, 5).unwrap() {
            read.push(line);
        }
        let whole = |text: &str| Line::Whole(text.into());
        let expected = [
            whole("12345"),
            Line::TooLong(Shape::Request(None)),
            Line::TooLong(Shape::Notification),
            Line::TooLong(Shape::Request(Some(7.into()))),
            whole("x"),
            whole("last"),
        ];
        assert_eq!(read, expected);
    }
}
