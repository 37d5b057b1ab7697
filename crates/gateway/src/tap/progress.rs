//! The state that a socket and its observers share.

use std::collections::VecDeque;
use std::io;
use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

use super::WireEnd;
use super::socket::Socket;

/// Flushes remembered per connection. Beyond it every second one is forgotten: a mark that loses
/// its own flush is then judged by the next one, which asks for more bytes, never for fewer.
const FLUSHES_MAX: usize = 32;

/// Every frame up to `mark` was in the first `bytes` bytes written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Flush {
    mark: u64,
    bytes: u64,
}

/// What waiters wait for.
#[derive(Debug, Default)]
pub(super) struct Progress {
    flushes: VecDeque<Flush>,
    exchange: u64,
    /// Reads that had brought bytes when that exchange started.
    reads_at_exchange: u64,
    end: Option<WireEnd>,
    is_closed: bool,
    acked_bytes_at_close: Option<u64>,
}

/// What a waiter for one mark must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct View {
    /// Bytes written when the mark was first flushed.
    pub(super) flushed_bytes: Option<u64>,
    /// A next request often brings the acknowledgement: reason enough to look again.
    exchange: u64,
    end: Option<WireEnd>,
    is_closed: bool,
}

impl View {
    /// Reset or timed out: nothing that was sent can be trusted to have arrived.
    pub(super) fn is_broken(self) -> bool {
        matches!(self.end, Some(WireEnd::Reset | WireEnd::TimedOut))
    }

    /// Nothing will be flushed or acknowledged any more.
    pub(super) fn is_over(self) -> bool {
        self.is_closed || self.is_broken()
    }
}

impl Progress {
    pub(super) fn view(&self, mark: u64) -> View {
        let first = self.flushes.partition_point(|flush| flush.mark < mark);
        let flushed_bytes = self.flushes.get(first).map(|flush| flush.bytes);
        let (exchange, end, is_closed) = (self.exchange, self.end, self.is_closed);
        View { flushed_bytes, exchange, end, is_closed }
    }

    pub(super) fn end(&self) -> Option<WireEnd> {
        self.end
    }

    pub(super) fn exchange(&self) -> u64 {
        self.exchange
    }

    pub(super) fn reads_at_exchange(&self) -> u64 {
        self.reads_at_exchange
    }

    fn record_flush(&mut self, flush: Flush) {
        if self.flushes.len() >= FLUSHES_MAX {
            let mut is_later_of_two = true;
            self.flushes.retain(|_| {
                is_later_of_two = !is_later_of_two;
                is_later_of_two
            });
        }
        self.flushes.push_back(flush);
    }

    /// The first end counts, but a reset is worse than the FIN it follows.
    fn record_end(&mut self, end: WireEnd) -> bool {
        let is_news = match self.end {
            None => true,
            Some(WireEnd::Fin) => matches!(end, WireEnd::Reset | WireEnd::TimedOut),
            Some(_) => false,
        };
        if is_news {
            self.end = Some(end);
        }
        is_news
    }
}

/// Counters and state of one connection. Holds the socket weakly, so that no observer delays
/// its FIN.
pub(super) struct Shared {
    socket: Weak<Socket>,
    handed: AtomicU64,
    written_bytes: AtomicU64,
    reads: AtomicU64,
    progress: watch::Sender<Progress>,
    /// Observers that have not told yet what became of an exchange.
    observers: watch::Sender<usize>,
    /// True once the connection is to be cut.
    is_to_be_cut: watch::Sender<bool>,
}

impl Shared {
    pub(super) fn new(socket: Weak<Socket>) -> Self {
        Self {
            socket,
            handed: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            progress: watch::Sender::new(Progress::default()),
            observers: watch::Sender::new(0),
            is_to_be_cut: watch::Sender::new(false),
        }
    }

    pub(super) fn cut(&self) {
        self.is_to_be_cut.send_replace(true);
    }

    pub(super) fn cuts(&self) -> watch::Receiver<bool> {
        self.is_to_be_cut.subscribe()
    }

    pub(super) fn add_observer(&self) {
        self.observers.send_modify(|count| *count += 1);
    }

    pub(super) fn remove_observer(&self) {
        self.observers.send_modify(|count| *count = count.saturating_sub(1));
    }

    pub(super) fn observers(&self) -> watch::Receiver<usize> {
        self.observers.subscribe()
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    pub(super) fn hand(&self) -> u64 {
        self.handed.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn record_write(&self, bytes: usize) {
        self.written_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn record_read(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    pub(super) fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Ordering::Relaxed)
    }

    /// hyper's write buffer is empty: everything handed over has been written. Returns the mark.
    pub(super) fn record_flush(&self, newest_mark: u64) -> u64 {
        let mark = self.handed.load(Ordering::Relaxed);
        if mark != newest_mark {
            let bytes = self.written_bytes();
            self.progress.send_modify(|progress| progress.record_flush(Flush { mark, bytes }));
        }
        mark
    }

    pub(super) fn record_end(&self, end: WireEnd) {
        self.progress.send_if_modified(|progress| progress.record_end(end));
    }

    /// Records the end that an error of a read or write means, if it means one.
    pub(super) fn record_error(&self, error: &io::Error) {
        use io::ErrorKind as Kind;
        match error.kind() {
            Kind::ConnectionReset | Kind::ConnectionAborted | Kind::BrokenPipe => {
                self.record_end(WireEnd::Reset);
            }
            Kind::TimedOut | Kind::HostUnreachable | Kind::NetworkUnreachable => {
                self.record_end(WireEnd::TimedOut);
            }
            _ => {}
        }
    }

    pub(super) fn record_close(&self, acked_bytes: Option<u64>) {
        self.progress.send_modify(|progress| {
            progress.record_end(WireEnd::ClosedByUs);
            progress.is_closed = true;
            progress.acked_bytes_at_close = acked_bytes;
        });
    }

    pub(super) fn end(&self) -> Option<WireEnd> {
        self.progress.borrow().end
    }

    pub(super) fn acked_bytes(&self) -> Option<u64> {
        match self.socket.upgrade() {
            Some(socket) => socket.acked_bytes(),
            None => self.progress.borrow().acked_bytes_at_close,
        }
    }

    pub(super) fn exchange(&self) -> u64 {
        self.progress.borrow().exchange
    }

    pub(super) fn start_exchange(&self) -> u64 {
        let mut started = 0;
        let reads = self.reads();
        self.progress.send_modify(|progress| {
            progress.exchange += 1;
            progress.reads_at_exchange = reads;
            started = progress.exchange;
        });
        started
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_judged_by_the_first_flush_that_covered_it() {
        let mut progress = Progress::default();
        for (mark, bytes) in [(2, 200), (3, 350), (7, 800)] {
            progress.record_flush(Flush { mark, bytes });
        }
        let seen: Vec<_> = (1..=8).map(|mark| progress.view(mark).flushed_bytes).collect();
        let (a, b, c) = (Some(200), Some(350), Some(800));
        assert_eq!(seen, [a, a, b, c, c, c, c, None]);
    }

    #[test]
    fn a_long_history_is_thinned_but_never_asks_for_fewer_bytes_than_the_mark_needs() {
        let mut progress = Progress::default();
        for mark in 1..=10_000 {
            progress.record_flush(Flush { mark, bytes: 10 * mark });
            assert!(progress.flushes.len() <= FLUSHES_MAX);
        }
        for mark in 1..=10_000 {
            assert!(progress.view(mark).flushed_bytes.is_some_and(|bytes| bytes >= 10 * mark));
        }
        assert_eq!(progress.view(10_000).flushed_bytes, Some(100_000));
        assert_eq!(progress.view(10_001).flushed_bytes, None);
    }

    #[test]
    fn the_first_end_counts_and_only_a_break_replaces_a_fin() {
        let mut progress = Progress::default();
        assert!(progress.record_end(WireEnd::Fin));
        assert!(!progress.record_end(WireEnd::ClosedByUs));
        assert!(progress.record_end(WireEnd::Reset));
        assert!(!progress.record_end(WireEnd::Fin));
        assert_eq!(progress.end(), Some(WireEnd::Reset));
    }
}
