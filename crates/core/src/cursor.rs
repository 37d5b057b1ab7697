//! The three cursors of a stream (design section 3): `produced >= sent >= acked`.

use serde::{Deserialize, Serialize};

use crate::id::Seq;

/// How far a stream was produced, written to a connection, and confirmed by its client.
///
/// A write proves nothing: only evidence from the client moves `acked` (design section 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursors {
    /// Last event in the log.
    pub produced: Seq,
    /// Last event handed to a connection.
    pub sent: Seq,
    /// Last event that the client has confirmed.
    pub acked: Seq,
}

impl Cursors {
    /// Moves `produced` to a new event.
    pub fn produce(&mut self, seq: Seq) {
        debug_assert!(seq > self.produced, "a log only grows");
        self.produced = seq;
    }

    /// Moves `sent`; it never goes back and never passes `produced`.
    pub fn send(&mut self, seq: Seq) {
        self.sent = self.sent.max(seq.min(self.produced));
    }

    /// Moves `acked`; true if it moved. An acknowledged event was also sent.
    pub fn acknowledge(&mut self, seq: Seq) -> bool {
        let seq = seq.min(self.produced);
        let moved = seq > self.acked;
        self.acked = self.acked.max(seq);
        self.send(seq);
        moved
    }

    /// True if the client has confirmed everything that was produced.
    pub fn is_drained(&self) -> bool {
        self.acked == self.produced
    }

    /// True if no event has left: a connection carried the priming event at most.
    pub fn is_unseen(&self) -> bool {
        self.sent == Seq::ORIGIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_never_go_back_and_never_pass_produced() {
        let mut cursors = Cursors::default();
        assert!(cursors.is_drained() && cursors.is_unseen());
        cursors.produce(Seq(149));
        cursors.send(Seq(142));
        assert!(!cursors.is_drained());
        assert!(cursors.acknowledge(Seq(120)));
        assert!(!cursors.acknowledge(Seq(100)));
        assert_eq!(cursors.acked, Seq(120));
        assert!(cursors.acknowledge(Seq(1_000)));
        assert_eq!((cursors.sent, cursors.acked), (Seq(149), Seq(149)));
        assert!(cursors.is_drained());
    }
}
