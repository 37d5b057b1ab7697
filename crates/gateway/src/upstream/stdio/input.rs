//! Towards the child: the bounded queue of messages and the task that writes its standard input.
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{BufMut, Bytes, BytesMut};
use rejoin_core::id::CallId;
use tokio::io::Interest;
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, watch};

use super::child::{Cause, is_over};
use crate::upstream::{Event, NotSentReason};

/// One message that waits to be written.
pub(super) struct Outgoing {
    call: Option<CallId>,
    message: Bytes,
}

/// The sending end of the queue: bounded in messages and in bytes.
pub(super) struct Queue {
    lines: mpsc::Sender<Outgoing>,
    queued_bytes: Arc<AtomicUsize>,
    calls_max: usize,
    bytes_max: usize,
}

/// The receiving end of the queue.
pub(super) struct Queued {
    lines: mpsc::Receiver<Outgoing>,
    queued_bytes: Arc<AtomicUsize>,
}

/// A queue that takes calls up to `calls_max` messages and `bytes_max` bytes, and other messages,
/// which may be what unblocks the server, up to twice that. An empty queue takes any message.
pub(super) fn queue(calls_max: usize, bytes_max: usize) -> (Queue, Queued) {
    let (sender, receiver) = mpsc::channel(calls_max * 2);
    let queued_bytes = Arc::new(AtomicUsize::new(0));
    (
        Queue { lines: sender, queued_bytes: queued_bytes.clone(), calls_max, bytes_max },
        Queued { lines: receiver, queued_bytes },
    )
}

impl Queue {
    /// Queues a call's request.
    pub(super) fn push_call(&self, call: CallId, message: Bytes) -> Result<(), NotSentReason> {
        self.push(Some(call), message, 1)
    }

    /// Queues any other message.
    pub(super) fn push_other(&self, message: Bytes) -> Result<(), NotSentReason> {
        self.push(None, message, 2)
    }

    fn push(
        &self,
        call: Option<CallId>,
        message: Bytes,
        share: usize,
    ) -> Result<(), NotSentReason> {
        let waiting = self.lines.max_capacity() - self.lines.capacity();
        let size_bytes = message.len();
        let bytes = self.queued_bytes.load(Ordering::Relaxed).saturating_add(size_bytes);
        if waiting >= self.calls_max * share || (waiting > 0 && bytes > self.bytes_max * share) {
            return Err(NotSentReason::QueueFull);
        }
        self.queued_bytes.fetch_add(size_bytes, Ordering::Relaxed);
        self.lines.try_send(Outgoing { call, message }).map_err(|error| {
            self.queued_bytes.fetch_sub(size_bytes, Ordering::Relaxed);
            match error {
                mpsc::error::TrySendError::Full(_) => NotSentReason::QueueFull,
                mpsc::error::TrySendError::Closed(_) => NotSentReason::Closed,
            }
        })
    }
}

/// The message on one line. In JSON a bare newline is always white space between tokens.
fn line(message: &[u8]) -> Bytes {
    let mut line = BytesMut::with_capacity(message.len() + 1);
    line.extend_from_slice(message);
    for byte in line.iter_mut() {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
    line.put_u8(b'\n');
    line.freeze()
}

/// The task that writes one child's standard input.
pub(super) struct Writer {
    pub(super) stdin: pipe::Sender,
    pub(super) queued: Queued,
    pub(super) notices: mpsc::Sender<Event>,
    pub(super) causes: mpsc::Sender<Cause>,
    pub(super) over: watch::Receiver<bool>,
}

/// What became of one message.
enum Written {
    All,
    /// The pipe broke after the first byte may have left.
    Broken,
    /// The pipe is known to be closed and no byte left.
    Never,
}

impl Writer {
    /// Writes until the queue is closed and empty, then closes the child's standard input; or until
    /// the session is over. What was not begun then is reported as not sent.
    pub(super) async fn run(self) {
        let Self { stdin, mut queued, notices, causes, mut over } = self;
        loop {
            let next = tokio::select! {
                biased;
                () = is_over(&mut over) => None,
                next = queued.lines.recv() => next,
            };
            let Some(outgoing) = next else { break };
            let mut begun = false;
            let written = tokio::select! {
                biased;
                written = write(&stdin, &outgoing, &notices, &mut begun) => written,
                () = is_over(&mut over) => Written::Never,
            };
            queued.queued_bytes.fetch_sub(outgoing.message.len(), Ordering::Relaxed);
            if let (Some(call), false) = (outgoing.call, begun) {
                not_sent(&notices, call).await;
            }
            if !matches!(written, Written::All) {
                // Full or closed: the session's end is on its way already.
                let _ = causes.try_send(Cause::InputClosed);
                break;
            }
        }
        drop(stdin);
        queued.lines.close();
        while let Some(outgoing) = queued.lines.recv().await {
            if let Some(call) = outgoing.call {
                not_sent(&notices, call).await;
            }
        }
    }
}

async fn not_sent(notices: &mpsc::Sender<Event>, call: CallId) {
    // The driver is gone if this fails; it reads the session's end as it must read a restart.
    let _ = notices.send(Event::NotSent { call, reason: NotSentReason::Closed }).await;
}

/// Writes one message. `begun` becomes true at the moment from which its bytes may have left.
async fn write(
    stdin: &pipe::Sender,
    outgoing: &Outgoing,
    notices: &mpsc::Sender<Event>,
    begun: &mut bool,
) -> Written {
    // While the pipe is full the call has not begun; the notice is queued before the first byte
    // leaves, so that no answer can overtake it.
    match stdin.ready(Interest::WRITABLE).await {
        Ok(ready) if !ready.is_write_closed() => {}
        _ => return Written::Never,
    }
    if let Some(call) = outgoing.call {
        let Ok(permit) = notices.reserve().await else {
            return Written::Never;
        };
        permit.send(Event::Sent { call });
    }
    *begun = true;
    // A copy of this one message, however many wait.
    let line = line(&outgoing.message);
    let mut rest = &line[..];
    while !rest.is_empty() {
        match stdin.try_write(rest) {
            Ok(count) => rest = &rest[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if stdin.writable().await.is_err() {
                    return Written::Broken;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Written::Broken,
        }
    }
    Written::All
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_becomes_one_line_of_the_same_length() {
        assert_eq!(&line(b"{\n \"a\":\r\n1}")[..], b"{  \"a\":  1}\n");
    }

    #[tokio::test]
    async fn a_call_into_a_closed_pipe_is_not_sent() {
        let (stdin, reader) = pipe::pipe().unwrap();
        drop(reader);
        let (queue, queued) = queue(2, 1_000);
        let (notices, mut noticed) = mpsc::channel(4);
        let (causes, mut caused) = mpsc::channel(1);
        let (_over, over) = watch::channel(false);
        queue.push_call(CallId(1), Bytes::from_static(b"{}")).unwrap();
        drop(queue);
        Writer { stdin, queued, notices, causes, over }.run().await;
        let reason = NotSentReason::Closed;
        assert_eq!(noticed.recv().await, Some(Event::NotSent { call: CallId(1), reason }));
        assert_eq!(noticed.recv().await, None);
        assert_eq!(caused.recv().await, Some(Cause::InputClosed));
    }

    #[test]
    fn calls_are_refused_beyond_the_bound_and_other_messages_beyond_twice_the_bound() {
        let (queue, _queued) = queue(2, 1_000);
        assert_eq!(queue.push_call(CallId(1), Bytes::from_static(b"{}")), Ok(()));
        assert_eq!(queue.push_call(CallId(2), Bytes::from_static(b"{}")), Ok(()));
        assert_eq!(
            queue.push_call(CallId(3), Bytes::from_static(b"{}")),
            Err(NotSentReason::QueueFull)
        );
        assert_eq!(queue.push_other(Bytes::from_static(b"{}")), Ok(()));
        assert_eq!(queue.push_other(Bytes::from_static(b"{}")), Ok(()));
        assert_eq!(queue.push_other(Bytes::from_static(b"{}")), Err(NotSentReason::QueueFull));
    }

    #[test]
    fn bytes_are_bounded_too_and_an_empty_queue_takes_any_message() {
        let (queue, queued) = queue(10, 100);
        assert_eq!(queue.push_call(CallId(1), vec![b'x'; 500].into()), Ok(()));
        assert_eq!(
            queue.push_call(CallId(2), Bytes::from_static(b"{}")),
            Err(NotSentReason::QueueFull)
        );
        drop(queued);
        assert_eq!(queue.push_other(Bytes::from_static(b"{}")), Err(NotSentReason::Closed));
    }
}
