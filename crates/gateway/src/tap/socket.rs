//! The socket wrapper that hyper reads from and writes to.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{sleep, timeout};

use super::progress::Shared;
use super::transport::Transport;
use super::{ACK_POLL_LONGEST, ACK_POLL_SHORTEST, Wire, WireEnd};

/// Bytes a lingering close reads and throws away before it stops waiting.
/// A client that is refused in the middle of a large body reads the answer only afterwards; closed
/// earlier, it would be reset and see no answer at all.
const LINGER_READ_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The socket. Its drop, when the last owner is gone, closes it and records what was known.
pub(super) struct Socket {
    pub(super) stream: Box<dyn Transport>,
    pub(super) shared: Arc<Shared>,
}

impl Socket {
    pub(super) fn acked_bytes(&self) -> Option<u64> {
        self.stream.acked_bytes()
    }

    fn everything_acked(&self) -> bool {
        self.acked_bytes().is_none_or(|acked| acked >= self.shared.written_bytes())
    }

    fn is_broken(&self) -> bool {
        matches!(self.shared.end(), Some(WireEnd::Reset | WireEnd::TimedOut))
    }

    fn note_error(&self, error: io::Error) -> io::Error {
        self.shared.record_error(&error);
        error
    }

    fn shutdown_write(&self) -> io::Result<()> {
        match self.stream.shutdown_write() {
            // The peer was faster.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            result => result,
        }
    }

    /// Readiness may be stale: after `WouldBlock` it has been cleared, and asking again
    /// registers the waker. Returning `Pending` without asking again would lose the wake-up.
    fn poll_write(&self, cx: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.poll_write_ready(cx)).map_err(|error| self.note_error(error))?;
            match self.stream.try_write(parts) {
                Ok(bytes) => {
                    self.shared.record_write(bytes);
                    return Poll::Ready(Ok(bytes));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(self.note_error(error))),
            }
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.shared.record_close(self.stream.acked_bytes());
    }
}

/// The socket wrapper given to hyper; observed through its [`Wire`].
pub struct Tap {
    socket: Arc<Socket>,
    /// Newest mark recorded as flushed, to leave waiters alone when nothing is new.
    flushed_mark: u64,
    /// What comes before the socket's next bytes.
    unread: Bytes,
}

impl Tap {
    /// Wraps an accepted connection on which nothing was written yet.
    pub fn new(stream: impl Transport) -> Self {
        let socket = Arc::new_cyclic(|socket| {
            let shared = Arc::new(Shared::new(socket.clone()));
            Socket { stream: Box::new(stream), shared }
        });
        Self { socket, flushed_mark: 0, unread: Bytes::new() }
    }

    /// The handle for observers.
    pub fn wire(&self) -> Wire {
        Wire(Arc::clone(&self.socket.shared))
    }

    /// Gives bytes back that were read.
    pub(super) fn unread(&mut self, bytes: Bytes) {
        self.unread = bytes;
    }

    /// Keeps the socket open beyond hyper's use of it, for an end that is watched.
    pub fn linger(&self) -> Linger {
        Linger(Arc::clone(&self.socket))
    }
}

impl AsyncRead for Tap {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        if !self.unread.is_empty() {
            let length = buf.remaining().min(self.unread.len());
            buf.put_slice(&self.unread.split_to(length));
            return Poll::Ready(Ok(()));
        }
        let socket = &self.socket;
        loop {
            ready!(socket.stream.poll_read_ready(cx)).map_err(|error| socket.note_error(error))?;
            match socket.stream.try_read(buf) {
                Ok(0) => {
                    socket.shared.record_end(WireEnd::Fin);
                    return Poll::Ready(Ok(()));
                }
                Ok(_bytes) => {
                    socket.shared.record_read();
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(socket.note_error(error))),
            }
        }
    }
}

impl AsyncWrite for Tap {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.socket.poll_write(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.socket.poll_write(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.flushed_mark = self.socket.shared.record_flush(self.flushed_mark);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.socket.shutdown_write())
    }
}

/// Holds a socket that hyper has finished with.
///
/// Closing at once would throw away what the peer still tells: the acknowledgement of the last
/// bytes, and the reset of a peer that did not read them. Both matter most for clients that ask
/// for `Connection: close`, where hyper drops the socket together with the last chunk.
pub struct Linger(pub(super) Arc<Socket>);

impl Linger {
    /// Ends this side, then reads until the peer ends its side, and then waits until everything
    /// written is acknowledged. Takes at most `longest`; the drop of `self` closes the socket.
    pub async fn watch(&self, longest: Duration) {
        let socket = &*self.0;
        if socket.is_broken() || socket.shutdown_write().is_err() {
            return;
        }
        let watched = async {
            if socket.shared.end().is_none() {
                self.drain().await;
            }
            self.acked().await;
        };
        // A silent peer is no error: the socket is closed and its last count recorded.
        let _in_time = timeout(longest, watched).await.is_ok();
    }

    /// Closes at once, by a reset: what the peer did not take is thrown away, in the kernel too.
    pub fn cut(self) {
        self.0.stream.reset_on_close();
    }

    /// Waits until everything written is acknowledged or the connection broke.
    pub async fn acked(&self) {
        let socket = &*self.0;
        let mut pause = ACK_POLL_SHORTEST;
        while !socket.is_broken() && !socket.everything_acked() {
            sleep(pause).await;
            pause = (pause * 2).min(ACK_POLL_LONGEST);
            // After a FIN a read no longer reports a reset, the socket's error does.
            if let Ok(Some(error)) = socket.stream.take_error() {
                socket.shared.record_error(&error);
            }
        }
    }

    async fn drain(&self) {
        let socket = &*self.0;
        let mut discarded = [0; 4096];
        let mut bytes_left = LINGER_READ_BYTES_MAX;
        while bytes_left > 0 {
            let readable = poll_fn(|context| socket.stream.poll_read_ready(context));
            let read = match readable.await {
                Ok(()) => socket.stream.try_read(&mut ReadBuf::new(&mut discarded)),
                Err(error) => Err(error),
            };
            match read {
                Ok(0) => return socket.shared.record_end(WireEnd::Fin),
                Ok(bytes) => bytes_left = bytes_left.saturating_sub(bytes),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return socket.shared.record_error(&error),
            }
        }
    }
}
