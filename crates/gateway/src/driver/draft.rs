//! What several inputs caused, to be committed together.

use rejoin_core::effect::{Batch, Output};
use rejoin_core::id::ConnectionId;
use tokio::sync::oneshot;

/// What inputs caused, before it is committed.
#[derive(Default)]
pub(super) struct Draft {
    pub(super) output: Output,
    /// POSTs and GETs among the inputs.
    pub(super) asks: Vec<ConnectionId>,
    pub(super) done: Vec<oneshot::Sender<()>>,
}

impl Draft {
    /// Adds what a later input caused. A row that changed again replaces its older state.
    pub(super) fn merge(&mut self, later: Self) {
        let later_batch = later.output.batch;
        let Batch { events, dedup, calls, streams, evictions, session, durable, .. } = later_batch;
        let Batch { forgotten_calls, forgotten_streams, .. } = later_batch;
        let batch = &mut self.output.batch;
        let stays = |id| calls.iter().all(|newer| newer.id != id) && !forgotten_calls.contains(&id);
        batch.calls.retain(|call| stays(call.id));
        let stays =
            |id| streams.iter().all(|newer| newer.id != id) && !forgotten_streams.contains(&id);
        batch.streams.retain(|stream| stays(stream.id));
        batch.events.extend(events);
        batch.dedup.extend(dedup);
        batch.calls.extend(calls);
        batch.streams.extend(streams);
        batch.forgotten_calls.extend(forgotten_calls);
        batch.forgotten_streams.extend(forgotten_streams);
        batch.evictions.extend(evictions);
        if session.is_some() {
            batch.session = session;
        }
        batch.durable |= durable;
        self.output.effects.extend(later.output.effects);
        self.asks.extend(later.asks);
        self.done.extend(later.done);
    }

    pub(super) fn bytes(&self) -> usize {
        self.output.batch.events.iter().map(|event| event.payload.len()).sum()
    }
}
