//! Pages of a stream, and the one place that judges whether they are whole.

use rejoin_core::effect::Event;
use rejoin_core::id::{Seq, StreamId};

use crate::error::ReadError;

/// A run of events of one stream, without a hole between them.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Page {
    /// The events, in order.
    pub events: Vec<Event>,
    /// What is missing between the cursor and the first event (or, if there is none, the end).
    pub gap: Option<Gap>,
    /// True if reading on from [`next`](Self::next) gives more at once.
    pub more: bool,
    /// Payload bytes of the page's only event that are not in it, because the event alone is larger
    /// than the page: [`read_part`](crate::Store::read_part) gives them. 0 if all are.
    pub rest_bytes: usize,
}

impl Page {
    /// A page of what `shape` says about `events`.
    pub fn new(events: Vec<Event>, shape: Shape) -> Self {
        Self { events, gap: shape.gap, more: shape.more, rest_bytes: shape.rest_bytes }
    }

    /// The cursor to read on from, if this page was read from `after`.
    pub fn next(&self, after: Seq) -> Seq {
        let through = self.gap.map_or(after, |gap| gap.through);
        self.events.last().map_or(through, |event| event.seq)
    }
}

/// Evicted events: all of the stream after `after` up to `through`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The last event before it, or the cursor that was read from.
    pub after: Seq,
    /// The last event that is missing.
    pub through: Seq,
}

/// How far a stream's log reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// The last event ever appended.
    pub last: Seq,
    /// Up to here a missing event was evicted; after it, a missing event is damage.
    pub evicted: Seq,
}

/// What a page has besides its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    gap: Option<Gap>,
    more: bool,
    rest_bytes: usize,
}

/// Decides which events make a page. Implementations offer what they have after the cursor, in
/// order, until one is refused; then they call [`finish`](Self::finish).
///
/// ```text
/// log     101 <- [104 <- 111] <- 113 <- 120      [..] evicted
///
/// after 0     -> 101, more                       a page ends before a hole ...
/// after 101   -> gap 101..111, then 113, 120     ... and the next one starts with it
/// ```
#[derive(Debug)]
pub struct PageBuilder {
    stream: StreamId,
    bounds: Bounds,
    bytes_max: usize,
    cursor: Seq,
    events: usize,
    bytes: usize,
    gap: Option<Gap>,
    more: bool,
    rest_bytes: usize,
}

impl PageBuilder {
    /// Starts a page of `stream` after `after`, of at most `bytes_max` payload bytes. An event that
    /// alone has more is a page of its own, with the first `bytes_max` of them.
    pub fn new(stream: StreamId, after: Seq, bytes_max: usize, bounds: Bounds) -> Self {
        Self {
            stream,
            bounds,
            bytes_max,
            cursor: after,
            events: 0,
            bytes: 0,
            gap: None,
            more: false,
            rest_bytes: 0,
        }
    }

    /// True if the next event in the log, of `bytes` payload bytes, belongs to the page.
    ///
    /// # Errors
    /// [`ReadError::Damaged`] if `previous` is missing and was not evicted.
    pub fn offer(&mut self, seq: Seq, previous: Seq, bytes: usize) -> Result<bool, ReadError> {
        let is_fork = self.events > 0 && previous < self.cursor;
        let is_hole = previous > self.cursor;
        if seq <= self.cursor || is_fork || (is_hole && previous > self.bounds.evicted) {
            return Err(self.damaged(seq, previous));
        }
        let is_full = self.bytes.saturating_add(bytes) > self.bytes_max;
        if self.events > 0 && (is_hole || is_full) {
            self.more = true;
            return Ok(false);
        }
        if is_hole {
            self.gap = Some(Gap { after: self.cursor, through: previous });
        }
        if self.events == 0 {
            self.rest_bytes = bytes.saturating_sub(self.bytes_max);
        }
        self.events += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        self.cursor = seq;
        Ok(true)
    }

    /// Ends the page: an event was refused, or there is none left.
    ///
    /// # Errors
    /// [`ReadError::Damaged`] if the stream's last event is missing and was not evicted.
    pub fn finish(self) -> Result<Shape, ReadError> {
        let (mut gap, mut more) = (self.gap, self.more);
        if !more && self.cursor < self.bounds.last {
            if self.bounds.last > self.bounds.evicted {
                return Err(self.damaged(Seq::ORIGIN, self.bounds.last));
            }
            if self.events > 0 {
                more = true;
            } else {
                gap = Some(Gap { after: self.cursor, through: self.bounds.last });
            }
        }
        Ok(Shape { gap, more, rest_bytes: self.rest_bytes })
    }

    fn damaged(&self, next: Seq, previous: Seq) -> ReadError {
        ReadError::Damaged { stream: self.stream, after: self.cursor, next, previous }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn builder(after: u64, last: u64, evicted: u64) -> PageBuilder {
        let bounds = Bounds { last: Seq(last), evicted: Seq(evicted) };
        PageBuilder::new(StreamId(3), Seq(after), 100, bounds)
    }

    #[test]
    fn a_missing_event_that_was_not_evicted_is_damage() {
        let mut page = builder(101, 120, 104);
        let damaged = page.offer(Seq(113), Seq(111), 10).unwrap_err();
        assert!(damaged.to_string().contains("after event 101 follows 113"), "{damaged}");
        let mut page = builder(101, 120, 0);
        assert!(page.offer(Seq(104), Seq(101), 10).unwrap());
        assert!(matches!(page.finish(), Err(ReadError::Damaged { previous: Seq(120), .. })));
    }

    #[test]
    fn an_event_out_of_order_or_beside_the_chain_is_damage() {
        let mut page = builder(0, 120, 0);
        assert!(page.offer(Seq(104), Seq(0), 10).unwrap());
        assert!(page.offer(Seq(104), Seq(104), 10).is_err());
        assert!(page.offer(Seq(105), Seq(101), 10).is_err());
    }

    #[test]
    fn a_cursor_between_two_events_is_no_hole() {
        let mut page = builder(102, 104, 0);
        assert!(page.offer(Seq(104), Seq(101), 10).unwrap());
        assert_eq!(page.finish().unwrap(), Shape { gap: None, more: false, rest_bytes: 0 });
    }

    #[test]
    fn one_event_fits_in_part_whatever_its_size_and_a_second_only_if_it_does() {
        let mut page = builder(0, 9, 0);
        assert!(page.offer(Seq(1), Seq(0), 1_000).unwrap());
        assert!(!page.offer(Seq(9), Seq(1), 0).unwrap());
        assert_eq!(page.finish().unwrap(), Shape { gap: None, more: true, rest_bytes: 900 });
        let mut page = builder(0, 9, 0);
        assert!(page.offer(Seq(1), Seq(0), 100).unwrap());
        assert!(page.offer(Seq(9), Seq(1), 0).unwrap());
        assert_eq!(page.finish().unwrap(), Shape { gap: None, more: false, rest_bytes: 0 });
    }
}
