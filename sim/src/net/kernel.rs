//! The two kernels of a connection.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use tokio::sync::watch;
use tokio::time::Instant;

use super::Pace;
use super::carrier;
use crate::history::{Conn, History, Leave, What};
use crate::random::Random;

/// The side that connected.
pub const CLIENT: usize = 0;
/// The side that accepted.
pub const GATEWAY: usize = 1;
/// What was written and is not acknowledged.
const SEND_BYTES_MAX: usize = 64 * 1024;
/// What arrived and was not read.
const RECEIVE_BYTES_MAX: usize = 32 * 1024;
/// The longest segment.
const SEGMENT_BYTES_MAX: usize = 4 * 1024;

/// A connection.
pub struct Link {
    pub conn: Conn,
    pub history: History,
    pub pace: Pace,
    inner: Mutex<Inner>,
    /// Counts what happened that carriers wait for.
    pub moved: watch::Sender<u64>,
}

pub struct Inner {
    pub sides: [Side; 2],
    pub random: Random,
}

/// One end's kernel.
#[derive(Default)]
pub struct Side {
    /// Written, and not yet taken by the carrier.
    outbox: VecDeque<u8>,
    pub written: u64,
    pub acked: u64,
    pub acked_at: Option<Instant>,
    wants_end: bool,
    wants_reset: bool,
    is_done_sending: bool,
    /// What was sent from here does not arrive.
    pub is_blocked: bool,
    inbox: VecDeque<u8>,
    /// The last bytes that came, to find what lies across two segments.
    pub tail: Vec<u8>,
    pub received: u64,
    pub heard_at: Option<Instant>,
    has_peer_ended: bool,
    error: Option<ErrorKind>,
    pub is_broken: bool,
    /// Its program has closed it.
    pub is_closed: bool,
    resets_on_close: bool,
    /// Its program was killed: whatever still runs of it reaches nobody.
    pub is_dead: bool,
    wakers: Vec<Waker>,
}

impl Side {
    /// Wakes everybody who polls this end.
    pub fn wake(&mut self) {
        for waker in self.wakers.drain(..) {
            waker.wake();
        }
    }

    pub fn wait(&mut self, waker: &Waker) {
        if !self.wakers.iter().any(|known| known.will_wake(waker)) {
            self.wakers.push(waker.clone());
        }
    }

    /// The connection broke.
    pub fn fail(&mut self, error: ErrorKind) {
        if self.is_broken {
            return;
        }
        self.error = Some(error);
        self.is_broken = true;
        self.is_done_sending = true;
        self.outbox.clear();
        self.wake();
    }

    pub fn take_error(&mut self) -> Option<io::Error> {
        self.error.take().map(Into::into)
    }

    pub fn has_hung_up(&self) -> bool {
        self.has_peer_ended || self.is_broken
    }

    pub fn can_read(&self) -> bool {
        !self.inbox.is_empty() || self.has_hung_up()
    }

    pub fn can_write(&self) -> bool {
        self.is_broken || self.room() > 0
    }

    fn room(&self) -> usize {
        SEND_BYTES_MAX.saturating_sub((self.written - self.acked) as usize)
    }

    pub fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let length = out.len().min(self.inbox.len());
        if length > 0 {
            for (place, byte) in out.iter_mut().zip(self.inbox.drain(..length)) {
                *place = byte;
            }
            return Ok(length);
        }
        match self.take_error() {
            Some(error) => Err(error),
            None if self.has_hung_up() => Ok(0),
            None => Err(ErrorKind::WouldBlock.into()),
        }
    }

    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(error) = self.take_error() {
            return Err(error);
        }
        if self.is_broken || self.wants_end {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let length = self.room().min(bytes.len());
        if length == 0 && !bytes.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        if self.written == self.acked {
            self.acked_at = Some(Instant::now());
        }
        self.outbox.extend(&bytes[..length]);
        self.written += length as u64;
        Ok(length)
    }

    pub fn end(&mut self) {
        self.wants_end = true;
    }

    pub fn reset(&mut self) {
        if !self.is_done_sending {
            self.wants_reset = true;
        }
        self.outbox.clear();
    }

    pub fn reset_on_close(&mut self) {
        self.resets_on_close = true;
    }

    /// Its program is done with it.
    pub fn close(&mut self) {
        if self.is_closed {
            return;
        }
        self.is_closed = true;
        if self.resets_on_close || !self.inbox.is_empty() {
            self.reset();
        } else {
            self.end();
        }
        self.inbox.clear();
    }

    pub fn peer_ended(&mut self) {
        self.has_peer_ended = true;
        self.wake();
    }

    pub fn take_in(&mut self, bytes: &[u8]) {
        self.inbox.extend(bytes);
        self.received += bytes.len() as u64;
        self.heard_at = Some(Instant::now());
        self.wake();
    }

    fn window(&self) -> usize {
        RECEIVE_BYTES_MAX.saturating_sub(self.inbox.len())
    }
}

/// What a carrier takes to the other end.
#[derive(Debug)]
pub enum Segment {
    Data(Vec<u8>),
    End,
    Reset,
}

/// What a carrier does next.
pub enum Next {
    Carry(Segment),
    Wait,
    Stop,
}

impl Link {
    pub fn new(conn: Conn, history: History, pace: Pace, random: Random) -> Arc<Self> {
        let inner = Inner { sides: [Side::default(), Side::default()], random };
        let moved = watch::Sender::new(0);
        Arc::new(Self { conn, history, pace, inner: Mutex::new(inner), moved })
    }

    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has both carriers look again.
    pub fn stir(&self) {
        self.moved.send_modify(|count| *count += 1);
    }

    /// True once nothing will be carried any more.
    pub fn is_over(&self) -> bool {
        let is_over = |side: &Side| side.is_broken || side.is_done_sending || side.is_dead;
        self.lock().sides.iter().all(is_over)
    }

    pub fn latency_ms(&self) -> u64 {
        let (low, high) = self.pace.latency_ms;
        self.lock().random.between(low, high)
    }

    pub fn next(&self, from: usize) -> Next {
        let mut inner = self.lock();
        let window = match &inner.sides[1 - from] {
            // A closed end takes what comes, and resets.
            peer if peer.is_closed => SEGMENT_BYTES_MAX,
            peer => peer.window(),
        };
        let side = &mut inner.sides[from];
        if side.is_done_sending {
            return Next::Stop;
        }
        if side.wants_reset {
            side.is_done_sending = true;
            return Next::Carry(Segment::Reset);
        }
        let length = side.outbox.len().min(window).min(SEGMENT_BYTES_MAX);
        if length > 0 {
            return Next::Carry(Segment::Data(side.outbox.drain(..length).collect()));
        }
        if side.outbox.is_empty() && side.wants_end {
            side.is_done_sending = true;
            return Next::Carry(Segment::End);
        }
        Next::Wait
    }

    pub fn block(&self, from: usize, blocked: bool) {
        let changed = {
            let side = &mut self.lock().sides[from];
            std::mem::replace(&mut side.is_blocked, blocked) != blocked
        };
        if changed {
            let to_client = from == GATEWAY;
            self.history.record(What::Blocked { conn: self.conn, to_client, blocked });
            self.stir();
        }
    }

    /// Something in the middle ends the connection.
    pub fn cut(self: &Arc<Self>, by_reset: bool) {
        self.history.record(What::Told(format!("connection {} is cut", self.conn)));
        if by_reset {
            carrier::break_side(self, CLIENT, ErrorKind::ConnectionReset);
            carrier::break_side(self, GATEWAY, ErrorKind::ConnectionReset);
        } else {
            let mut inner = self.lock();
            for side in &mut inner.sides {
                side.peer_ended();
                side.end();
            }
        }
        self.stir();
    }

    /// Whatever still runs of the gateway reaches nobody.
    pub fn kill_gateway(&self, with_host: bool) {
        if with_host {
            self.block(GATEWAY, true);
        }
        {
            let mut inner = self.lock();
            let side = &mut inner.sides[GATEWAY];
            side.is_dead = true;
            side.close();
        }
        self.history.record(What::Over { conn: self.conn });
        self.stir();
    }

    /// An end's program leaves.
    pub fn leave(&self, side: usize, how: Leave) {
        {
            let mut inner = self.lock();
            let this = &mut inner.sides[side];
            if this.is_closed {
                return;
            }
            match how {
                Leave::Close => this.close(),
                Leave::Reset => {
                    this.reset_on_close();
                    this.close();
                }
                Leave::Vanish => {
                    this.is_dead = true;
                    this.is_closed = true;
                    this.is_blocked = true;
                    inner.sides[1 - side].is_blocked = true;
                }
                Leave::Stay => {}
            }
        }
        let what = match side {
            CLIENT => What::Left { conn: self.conn, how },
            _ => What::Over { conn: self.conn },
        };
        self.history.record(what);
        self.stir();
    }
}
