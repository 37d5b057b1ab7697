//! The cursor of one exchange: what comes next on its stream.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rejoin_core::effect::Attach;
use rejoin_core::id::{Digest32, Epoch, Seq, StreamId};
use rejoin_core::limits::Limits;
use rejoin_store::{Page, ReadError, Store, StreamWatch};
use tokio::sync::watch;
use tokio::time::sleep;

use super::frame::{Encoded, FrameWriter, Unfinished};
use crate::exchange::{BodyEnd, Orders};

/// Payload bytes of one page of the log, and so of one frame.
const PAGE_BYTES_MAX: usize = 64 * 1024;
/// Pause between two comments that say that a POST is held (design section 5, "hold").
const HELD_COMMENT_PAUSE: Duration = Duration::from_secs(5);

/// Where a body reads from.
pub(crate) struct Source {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) session: Digest32,
    pub(crate) epoch: Epoch,
}

/// See the module's documentation.
pub(crate) struct Reader {
    source: Source,
    stream: StreamId,
    cursor: Seq,
    attach: Attach,
    /// High-water mark of the replay, until it was passed.
    until: Option<Seq>,
    skip: HashSet<Seq>,
    /// True until the first event, if the POST is held.
    is_held: bool,
    is_open: bool,
    /// True if messages are written without the form of events.
    is_bare: bool,
    /// True if the next gap was announced at the beginning.
    gap_is_known: bool,
    grown: Option<StreamWatch>,
    /// What comes next is the rest of this event.
    unfinished: Option<Unfinished>,
    orders: watch::Receiver<Orders>,
    /// Liveness comments written.
    probes: u64,
    retry_ms: u64,
    keep_alive: Duration,
}

/// What ended a wait for the log to grow.
enum Woken {
    Grown,
    /// The session was removed from the store.
    Removed,
    Ordered,
    Quiet,
}

impl Reader {
    pub(crate) fn new(
        source: Source,
        mut attach: Attach,
        orders: watch::Receiver<Orders>,
        limits: &Limits,
    ) -> Self {
        Self {
            source,
            stream: attach.stream,
            cursor: attach.after,
            until: attach.replay_until.map(|id| id.seq),
            skip: std::mem::take(&mut attach.skip).into_iter().collect(),
            is_held: attach.held,
            is_open: false,
            is_bare: false,
            gap_is_known: attach.gap.is_some(),
            grown: None,
            unfinished: None,
            orders,
            probes: 0,
            retry_ms: limits.retry_ms,
            keep_alive: Duration::from_millis(limits.keep_alive_ms),
            attach,
        }
    }

    /// Reads the one message of its stream as it is, and nothing beside it.
    pub(super) fn read_bare(&mut self) {
        self.is_open = true;
        self.is_bare = true;
    }

    /// The next frame. The caller does not drop the future before it is ready, except to end.
    pub(super) async fn next(mut self: Box<Self>) -> (Box<Self>, Encoded) {
        let frame = self.frame().await;
        (self, frame)
    }

    async fn frame(&mut self) -> Encoded {
        if !self.is_open {
            self.is_open = true;
            return self.opening();
        }
        loop {
            if let Some(frame) = self.obey() {
                return frame;
            }
            if let Some(event) = self.unfinished.take() {
                return self.go_on(event).await;
            }
            let (page, seen) = match self.page().await {
                Ok(page) => page,
                Err(error) => return self.lost(&error),
            };
            if let Some(frame) = self.encode(&page) {
                return frame;
            }
            if page.more || !page.events.is_empty() {
                continue;
            }
            match self.wait(seen).await {
                Woken::Grown | Woken::Ordered => {}
                Woken::Quiet => {
                    let mut frame = self.writer();
                    frame.comment(if self.is_held { "held" } else { "keep-alive" });
                    return frame.finish(self.cursor, None);
                }
                Woken::Removed => return self.writer().finish(self.cursor, Some(BodyEnd::Told)),
            }
        }
    }

    /// The first frame leaves at once: it proves the connection, and proxies pass the head on.
    fn opening(&mut self) -> Encoded {
        let mut frame = self.writer();
        if let Some(id) = self.attach.prime {
            frame.prime(id, self.retry_ms);
        }
        if let Some(gap) = &self.attach.gap {
            frame.comment(gap);
        }
        if let Some(last_word) = self.attach.last_word.take() {
            frame.message(self.cursor, &last_word);
            return frame.finish(self.cursor, Some(BodyEnd::Final));
        }
        if self.until.is_some() {
            frame.comment("replay-begin");
        }
        if self.is_held {
            frame.comment("held");
        }
        if frame.is_empty() {
            frame.comment("open");
        }
        frame.finish(self.cursor, None)
    }

    /// Carries out orders; they come before events. A comment waits for the end of a large event,
    /// as it would be part of it; an end only if it is told to.
    fn obey(&mut self) -> Option<Encoded> {
        let orders = *self.orders.borrow_and_update();
        let is_between = self.unfinished.is_none();
        if let Some(end) = orders.end.filter(|end| is_between || !end.after_event) {
            return Some(self.ending(end.retry_ms).finish(self.cursor, Some(BodyEnd::Told)));
        }
        if orders.probes == self.probes || !is_between {
            return None;
        }
        self.probes = orders.probes;
        let mut frame = self.writer();
        frame.probe();
        Some(frame.finish(self.cursor, None))
    }

    /// The next page, and the stream's last event as known before it was read.
    async fn page(&mut self) -> Result<(Page, Seq), ReadError> {
        let Source { store, session, .. } = &self.source;
        let grown = match &mut self.grown {
            Some(grown) => grown,
            None => self.grown.insert(store.watch(*session, self.stream).await?),
        };
        let seen = grown.last();
        let page = store.read(*session, self.stream, self.cursor, PAGE_BYTES_MAX).await?;
        Ok((page, seen))
    }

    /// Writes a page; `None` if nothing of it is for this client.
    fn encode(&mut self, page: &Page) -> Option<Encoded> {
        let mut frame = self.writer();
        let mut is_last = false;
        if let Some(gap) = page.gap
            && !std::mem::take(&mut self.gap_is_known)
        {
            frame.gap(gap.through);
        }
        for event in &page.events {
            if let Some(until) = self.until.take_if(|until| event.seq > *until) {
                frame.replay_end(until);
            }
            if !self.skip.contains(&event.seq) {
                self.is_held = false;
                if page.rest_bytes > 0 {
                    self.unfinished = Some(frame.begin(event, page.rest_bytes));
                    return Some(frame.finish(self.cursor, None));
                }
                if self.is_bare {
                    frame.bare(event);
                } else {
                    frame.event(event);
                }
            }
            if let Some(until) = self.until.take_if(|until| event.seq == *until) {
                frame.replay_end(until);
            }
            is_last |= event.last;
        }
        self.cursor = page.next(self.cursor);
        if let Some(until) = self.until.take_if(|until| self.cursor >= *until) {
            frame.replay_end(until);
        }
        if is_last {
            if frame.is_empty() {
                frame.comment("end");
            }
            return Some(frame.finish(self.cursor, Some(BodyEnd::Final)));
        }
        (!frame.is_empty()).then(|| frame.finish(self.cursor, None))
    }

    /// The next part of an event.
    async fn go_on(&mut self, event: Unfinished) -> Encoded {
        let Source { store, session, .. } = &self.source;
        let (seq, last, offset) = (event.seq, event.last, event.written_bytes);
        let read = store.read_part(*session, self.stream, seq, offset, PAGE_BYTES_MAX).await;
        let part = match read {
            Ok(Some(part)) if !part.is_empty() => part,
            read => {
                self.unfinished = Some(event);
                return match read {
                    Err(error) => self.lost(&error),
                    Ok(_) => self.lost(&"an event was evicted while it was sent"),
                };
            }
        };
        let mut frame = self.writer();
        self.unfinished = frame.go_on(event, &part);
        if self.unfinished.is_some() {
            return frame.finish(self.cursor, None);
        }
        self.cursor = seq;
        if let Some(until) = self.until.take_if(|until| seq >= *until) {
            frame.replay_end(until);
        }
        frame.finish(seq, last.then_some(BodyEnd::Final))
    }

    async fn wait(&mut self, seen: Seq) -> Woken {
        let pause = if self.is_held { HELD_COMMENT_PAUSE } else { self.keep_alive };
        let Some(grown) = &mut self.grown else { return Woken::Removed };
        tokio::select! {
            biased;
            // An error means that the driver is gone: then nobody will extend the log either.
            changed = self.orders.changed() => match changed {
                Ok(()) => Woken::Ordered,
                Err(_) => Woken::Removed,
            },
            passed = grown.passed(seen.max(self.cursor)) => match passed {
                Ok(_) => Woken::Grown,
                Err(_) => Woken::Removed,
            },
            () = sleep(pause) => Woken::Quiet,
        }
    }

    /// The stream lost this connection, but ends in order: its client comes back with its cursor.
    fn lost(&mut self, error: &dyn fmt::Display) -> Encoded {
        tracing::info!(%error, "a stream ends early: its log cannot be read");
        self.ending(Some(self.retry_ms)).finish(self.cursor, Some(BodyEnd::Lost))
    }

    /// The last frame before an early end.
    fn ending(&mut self, retry_ms: Option<u64>) -> FrameWriter {
        let mut frame = self.writer();
        match (self.unfinished.take(), retry_ms) {
            (Some(event), Some(retry_ms)) => frame.break_off(event, retry_ms),
            (None, Some(retry_ms)) => frame.retry(retry_ms),
            (_, None) => {}
        }
        frame
    }

    fn writer(&self) -> FrameWriter {
        FrameWriter::new(self.source.epoch, self.stream)
    }
}
