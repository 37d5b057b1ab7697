//! From the child: the task that reads its standard output and finds the messages in it.
use std::io;
use std::pin::pin;
use std::sync::Arc;

use bytes::{BufMut, Bytes};
use rejoin_core::id::CallId;
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};

use super::OUTPUT_DRAIN;
use super::child::{Cause, is_over};
use super::line::{Line, Lines};
use super::probe::{Probe, answered_by_ends, batch};
use crate::throttle::Throttle;

/// Bytes asked for in one read. A pipe holds four times as many, but what was read waits in memory
/// in front of every later answer while the driver works on a flood.
const READ_BYTES: usize = 16 * 1024;
/// Bytes read after the drain's end from a pipe that somebody else still writes to: as large as an
/// unprivileged process can make a pipe, so all that the child wrote.
const LAST_READ_BYTES_MAX: usize = 1024 * 1024;

/// One message of the child.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Incoming {
    pub(super) call: Option<CallId>,
    pub(super) message: Bytes,
}

/// The task that reads one child's standard output.
pub(super) struct Reader {
    pub(super) stdout: pipe::Receiver,
    pub(super) lines: Lines,
    pub(super) sorter: Sorter,
    /// All messages of one read at a time, so that memory is bounded by a read and a line.
    pub(super) batches: mpsc::Sender<Vec<Incoming>>,
    pub(super) causes: mpsc::Sender<Cause>,
    pub(super) over: watch::Receiver<bool>,
}

impl Reader {
    /// Reads until the end of the output; after the child's death for [`OUTPUT_DRAIN`] at most, as
    /// another process may hold the pipe, but always what the pipe holds then.
    pub(super) async fn run(mut self) {
        let mut over = self.over.clone();
        let mut drained = pin!(async move {
            is_over(&mut over).await;
            sleep(OUTPUT_DRAIN).await;
        });
        loop {
            let readable = tokio::select! {
                readable = self.stdout.readable() => readable,
                () = &mut drained => break,
            };
            match readable.and_then(|()| self.read()) {
                Ok(0) => break,
                Ok(_) => self.deliver().await,
                Err(error) if is_transient(&error) => {}
                Err(_) => break,
            }
        }
        let mut last_bytes = 0;
        while last_bytes < LAST_READ_BYTES_MAX {
            match self.read() {
                Ok(0) => break,
                Ok(count) => last_bytes += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => break,
            }
            self.deliver().await;
        }
        let rest = self.lines.finish();
        let messages = rest.map(|line| self.sorter.sort(line)).unwrap_or_default();
        self.send(messages).await;
        // Full or closed: the session's end is on its way already.
        let _ = self.causes.try_send(Cause::OutputClosed);
    }

    fn read(&mut self) -> io::Result<usize> {
        self.stdout.try_read_buf(&mut self.lines.buffer(READ_BYTES).limit(READ_BYTES))
    }

    async fn deliver(&mut self) {
        let mut messages = Vec::new();
        while let Some(line) = self.lines.next_line() {
            messages.extend(self.sorter.sort(line));
        }
        self.send(messages).await;
    }

    async fn send(&self, messages: Vec<Incoming>) {
        if !messages.is_empty() {
            // With nobody there to receive, the child is still read, so that it can end.
            let _ = self.batches.send(messages).await;
        }
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Sorts lines into messages and what is logged and skipped. Never logs the text itself.
pub(super) struct Sorter {
    name: Arc<str>,
    line_bytes_max: usize,
    at_start: bool,
    throttle: Throttle,
}

impl Sorter {
    /// A sorter for the upstream `name`.
    pub(super) fn new(name: Arc<str>, line_bytes_max: usize) -> Self {
        Self { name, line_bytes_max, at_start: true, throttle: Throttle::new(Instant::now()) }
    }

    /// The messages on a line: usually one, none, or those of a batch.
    pub(super) fn sort(&mut self, line: Line) -> Vec<Incoming> {
        let at_start = std::mem::take(&mut self.at_start);
        let line = match line {
            Line::Whole(line) => line,
            Line::TooLong { head, tail, length_bytes } => {
                let what = format!("larger than the limit of {} bytes", self.line_bytes_max);
                return self.unusable(&head, &tail, length_bytes, &what);
            }
        };
        let mut trimmed = line.slice_ref(line.trim_ascii());
        if at_start && trimmed.starts_with(b"\xef\xbb\xbf") {
            trimmed = trimmed.slice(3..);
        }
        let Ok(text) = std::str::from_utf8(&trimmed) else {
            return self.unusable(&trimmed, &trimmed, line.len() as u64, "not valid UTF-8");
        };
        let messages = if text.starts_with('[') {
            batch(text).unwrap_or_default().into_iter().filter_map(incoming).collect()
        } else {
            Vec::from_iter(Probe::read(text).map(|probe| Incoming {
                call: probe.answered().map(CallId),
                message: trimmed.clone(),
            }))
        };
        if messages.is_empty() && !text.is_empty() {
            self.skip(line.len() as u64, kind(text));
        }
        messages
    }

    /// A line that cannot be relayed. If it tells which call it answers, that call gets an error.
    fn unusable(&mut self, head: &[u8], tail: &[u8], size_bytes: u64, what: &str) -> Vec<Incoming> {
        self.skip(size_bytes, what);
        let Some(id) = answered_by_ends(head, tail) else {
            return Vec::new();
        };
        let text = format!(
            "The tool server's answer is {what}, so it cannot be passed on. The call did run. \
             Do not repeat it as it is."
        );
        let error = format!(r#"{{"code":-32603,"message":"{text}"}}"#);
        let message = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#);
        vec![Incoming { call: Some(CallId(id)), message: message.into() }]
    }

    fn skip(&mut self, size_bytes: u64, what: &str) {
        if let Some(unlogged) = self.throttle.admit(Instant::now()) {
            let name = &*self.name;
            tracing::warn!(
                server = name,
                size_bytes,
                unlogged,
                "a line on the server's standard output was skipped: {what}"
            );
        }
    }
}

fn incoming(text: &str) -> Option<Incoming> {
    let call = Probe::read(text)?.answered().map(CallId);
    Some(Incoming { call, message: Bytes::copy_from_slice(text.as_bytes()) })
}

fn kind(text: &str) -> &'static str {
    match text.as_bytes() {
        [b'{' | b'[', ..] if serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok() => {
            "JSON, but not JSON-RPC"
        }
        [b'{', ..] => "broken JSON",
        [0x1b, ..] => "terminal control sequences",
        _ => "text; a server logs to its standard error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sort(lines: &[&[u8]]) -> Vec<(Option<u64>, String)> {
        let mut sorter = Sorter::new("server".into(), 1_000);
        let line = |text: &&[u8]| Line::Whole(Bytes::copy_from_slice(text));
        let sorted = lines.iter().map(line).flat_map(|line| sorter.sort(line));
        sorted
            .map(|found| {
                (found.call.map(CallId::get), String::from_utf8(found.message.into()).unwrap())
            })
            .collect()
    }

    #[test]
    fn noise_is_skipped_and_messages_keep_their_bytes() {
        let answer = r#"{ "jsonrpc":"2.0", "id":3, "result":{"n":12345678901234567890}}"#;
        let ping = r#"{"jsonrpc":"2.0","id":"a","method":"ping"}"#;
        let found = sort(&[
            "\u{feff}".as_bytes(),
            b"",
            b"\r",
            "╭──────╮".as_bytes(),
            b"\x1b[2J\x1b[H",
            b"{\"msg\":\"not json-rpc\"}",
            answer.as_bytes(),
            b"[1,2]",
            b"{\"jsonrpc\":\"2.0\",\"id\":4,\"res",
            format!("{ping}\r").as_bytes(),
        ]);
        assert_eq!(found, [(Some(3), answer.to_owned()), (None, ping.to_owned())]);
    }

    #[test]
    fn a_byte_order_mark_is_accepted_at_the_start_only() {
        let marked = "\u{feff}{\"jsonrpc\":\"2.0\",\"method\":\"a\"}".as_bytes();
        assert_eq!(sort(&[marked]), [(None, r#"{"jsonrpc":"2.0","method":"a"}"#.to_owned())]);
        assert_eq!(sort(&[b"", marked]), []);
    }

    #[test]
    fn a_batch_is_split_into_its_messages() {
        let line = br#"[{"jsonrpc":"2.0","id":1,"result":1}, 5, {"jsonrpc":"2.0","method":"m"}]"#;
        let found = sort(&[line]);
        let expected = [
            (Some(1), r#"{"jsonrpc":"2.0","id":1,"result":1}"#.to_owned()),
            (None, r#"{"jsonrpc":"2.0","method":"m"}"#.to_owned()),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn an_answer_that_is_not_utf_8_fails_its_own_call() {
        let found = sort(&[b"{\"jsonrpc\":\"2.0\",\"id\":9,\"result\":\"\xff\"}", b"\xff\xfe"]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].0, Some(9));
        assert!(found[0].1.contains("not valid UTF-8"), "{}", found[0].1);
        assert!(Probe::read(&found[0].1).is_some_and(|probe| probe.error));
    }
}
