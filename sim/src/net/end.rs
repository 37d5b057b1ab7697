//! One end of a connection, as its program sees it.

use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice};
use std::sync::Arc;
use std::task::{Context, Poll};

use async_trait::async_trait;
use rejoin_gateway::tap::{Transport, TransportOptions};
use tokio::io::ReadBuf;

use super::carrier;
use super::kernel::{GATEWAY, Link, Side};
use crate::history::{Conn, Leave};

/// An end. Its drop closes it.
pub struct End {
    link: Arc<Link>,
    side: usize,
}

impl End {
    pub fn new(link: Arc<Link>, side: usize) -> Self {
        Self { link, side }
    }

    /// The connection's number.
    pub fn conn(&self) -> Conn {
        self.link.conn
    }

    /// Leaves; once.
    pub fn leave(&self, how: Leave) {
        self.link.leave(self.side, how);
    }

    /// Waits for bytes; none are the peer's end.
    ///
    /// # Errors
    /// How the connection broke.
    pub async fn read(&self, out: &mut Vec<u8>) -> io::Result<usize> {
        poll_fn(|context| Transport::poll_read_ready(self, context)).await?;
        let mut bytes = [0; 2048];
        let length = self.act(|side| side.read(&mut bytes))?;
        out.extend_from_slice(&bytes[..length]);
        Ok(length)
    }

    /// Writes everything.
    ///
    /// # Errors
    /// How the connection broke.
    pub async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            poll_fn(|context| Transport::poll_write_ready(self, context)).await?;
            let written = self.act(|side| side.write(bytes))?;
            bytes = &bytes[written..];
        }
        Ok(())
    }

    /// Ends this side's writing.
    pub fn shutdown(&self) {
        // Whatever it says, nothing more is written.
        let _ = Transport::shutdown_write(self);
    }

    /// Does something at this end, and has the carriers look.
    fn act<T>(&self, act: impl FnOnce(&mut Side) -> T) -> T {
        let done = act(&mut self.link.lock().sides[self.side]);
        self.link.stir();
        done
    }

    fn poll(&self, context: &mut Context<'_>, is_ready: fn(&Side) -> bool) -> Poll<()> {
        let side = &mut self.link.lock().sides[self.side];
        if !side.is_dead && is_ready(side) {
            return Poll::Ready(());
        }
        side.wait(context.waker());
        Poll::Pending
    }

    /// A dead program's acts have no effect.
    fn live<T>(&self, act: impl FnOnce(&mut Side) -> io::Result<T>) -> io::Result<T> {
        self.act(|side| if side.is_dead { Err(ErrorKind::WouldBlock.into()) } else { act(side) })
    }
}

#[async_trait]
impl Transport for End {
    fn prepare(&self, options: &TransportOptions) -> io::Result<()> {
        tokio::spawn(carrier::watch(Arc::clone(&self.link), *options));
        Ok(())
    }

    fn poll_read_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(context, Side::can_read).map(Ok)
    }

    fn try_read(&self, buffer: &mut ReadBuf<'_>) -> io::Result<usize> {
        let length = self.live(|side| side.read(buffer.initialize_unfilled()))?;
        buffer.advance(length);
        Ok(length)
    }

    fn poll_write_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(context, Side::can_write).map(Ok)
    }

    fn try_write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let written = self.live(|side| {
            let mut written = 0;
            for part in parts.iter().filter(|part| !part.is_empty()) {
                match side.write(part) {
                    Ok(length) => {
                        written += length;
                        if length < part.len() {
                            break;
                        }
                    }
                    Err(_) if written > 0 => break,
                    Err(error) => return Err(error),
                }
            }
            Ok(written)
        })?;
        if self.side == GATEWAY {
            let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
            carrier::written(&self.link, &bytes[..written]);
        }
        Ok(written)
    }

    fn shutdown_write(&self) -> io::Result<()> {
        self.live(|side| {
            if side.is_broken {
                return Err(ErrorKind::NotConnected.into());
            }
            side.end();
            Ok(())
        })
    }

    fn acked_bytes(&self) -> Option<u64> {
        Some(self.link.lock().sides[self.side].acked)
    }

    fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(self.link.lock().sides[self.side].take_error())
    }

    async fn hung_up(&self) -> io::Result<()> {
        poll_fn(|context| self.poll(context, Side::has_hung_up)).await;
        Ok(())
    }

    fn reset_on_close(&self) {
        self.act(Side::reset_on_close);
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.leave(Leave::Close);
    }
}
