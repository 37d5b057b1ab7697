//! What the host has not taken yet, by number and bytes.
use std::collections::VecDeque;

use bytes::Bytes;

use crate::client::FromServer;
use crate::limits::ClientLimits;

/// Messages and notices, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    items: VecDeque<FromServer>,
    bytes: usize,
}

impl Waiting {
    pub(crate) fn push(&mut self, item: FromServer) {
        self.bytes += bytes(&item);
        self.items.push_back(item);
    }

    pub(crate) fn pop(&mut self) -> Option<FromServer> {
        let item = self.items.pop_front()?;
        self.bytes -= bytes(&item);
        Some(item)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Whether more may be read from the server.
    pub(crate) fn has_room(&self, limits: &ClientLimits) -> bool {
        self.items.len() < limits.host_queue_max && self.bytes < limits.host_queue_bytes_max
    }

    /// Whether more may be read from the host. What it is told for that at once is small.
    pub(crate) fn hears_host(&self, limits: &ClientLimits) -> bool {
        self.items.len() < 2 * limits.host_queue_max
    }
}

/// A message that may wait long. One that is a small part of what came, as an element of a batch
/// is, keeps not all of that in memory.
pub(crate) fn apart(message: Bytes, came_bytes: usize) -> Bytes {
    if message.len() < came_bytes / 2 { Bytes::copy_from_slice(&message) } else { message }
}

fn bytes(item: &FromServer) -> usize {
    match item {
        FromServer::Message(message) => message.len(),
        FromServer::Notice(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_part_of_a_batch_keeps_not_all_of_it() {
        let batch = Bytes::from(vec![b' '; 1_000]);
        let part = apart(batch.slice(10..20), batch.len());
        assert_eq!(part.len(), 10);
        assert!(batch.is_unique(), "the part is a copy");
        let whole = apart(batch.slice(1..), batch.len());
        assert!(!batch.is_unique(), "what is nearly all of it is not copied");
        assert_eq!(whole.len(), 999);
    }

    #[test]
    fn few_large_messages_fill_the_queue_and_each_that_is_taken_makes_room() {
        let limits = ClientLimits { host_queue_bytes_max: 100, ..ClientLimits::default() };
        let mut waiting = Waiting::default();
        let message = |size| FromServer::Message(Bytes::from(vec![b' '; size]));
        waiting.push(message(99));
        assert!(waiting.has_room(&limits));
        waiting.push(message(1));
        assert!(!waiting.has_room(&limits));
        assert!(waiting.hears_host(&limits), "what the host says waits for nothing");
        assert_eq!(waiting.pop(), Some(message(99)));
        assert!(waiting.has_room(&limits));
        assert_eq!(waiting.pop(), Some(message(1)));
        assert!(waiting.is_empty());
    }
}
