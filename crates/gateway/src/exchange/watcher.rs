//! The task that turns what body and socket show into reports, in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rejoin_core::id::{ConnectionId, Seq};
use rejoin_core::input::WireEvent;
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

use super::grace::Grace;
use super::{BodyEnd, EndOrder, Handed, Handover, Observed, Orders, order_end};
use crate::driver::Mail;
use crate::tap::{AckError, Observation, WireEnd};

/// Watches an exchange and reports to the driver. Run it as a task of its own.
pub(crate) struct Watcher {
    pub(super) connection: ConnectionId,
    pub(super) observed: Option<Observed>,
    pub(super) handed: watch::Receiver<Handed>,
    pub(super) sent: Arc<AtomicU64>,
    pub(super) orders: Arc<watch::Sender<Orders>>,
    pub(super) inbox: mpsc::Sender<Mail>,
    pub(super) wants_headers: bool,
    pub(super) wants_replay: bool,
    /// The newest liveness comment that was reported.
    pub(super) probe: Option<Handover>,
    pub(super) retry_ms: u64,
    pub(super) stall: Duration,
    pub(super) reset_window: Duration,
    pub(super) end_grace: Duration,
    pub(super) end_max: Duration,
    /// Held until all was reported, so that a next request of the connection can wait for it.
    pub(super) observation: Option<Observation>,
}

/// The session is over: nobody listens.
struct NobodyListens;

/// The next thing to wait for, while the body runs.
#[derive(Clone, Copy)]
enum Awaited {
    Headers(Handover),
    /// The end of the replay (or, before that was handed over, the newest frame).
    Replay(Option<Handover>, bool),
    Probe(Handover),
    /// Only what the body does next.
    Body,
}

impl Watcher {
    /// Reports until nothing more can be learned, and sees to it that the connection takes the end
    /// of its stream.
    pub(crate) async fn run(self) {
        let grace = self.observed.as_ref().map(|observed| Grace {
            orders: self.orders.subscribe(),
            handed: self.handed.clone(),
            inbox: self.inbox.clone(),
            wire: observed.wire.clone(),
            still: self.end_grace,
            longest: self.end_max,
        });
        let end = async {
            if let Some(grace) = grace {
                grace.run().await;
            }
        };
        tokio::join!(self.watch(), end);
    }

    /// Reports until nothing more can be learned. Ends early if the session is over.
    async fn watch(mut self) {
        let Ok(Some((end, handed))) = self.while_body_runs().await else { return };
        let _session_over = match end {
            BodyEnd::Final => self.after_final(handed).await.is_err(),
            BodyEnd::Told => self.report(WireEvent::Ended { sent: self.sent() }).await.is_err(),
            BodyEnd::Lost => self.report_loss(handed).await.is_err(),
        };
    }

    /// `None`: the connection stalled, which was reported.
    async fn while_body_runs(&mut self) -> Result<Option<(BodyEnd, Handed)>, NobodyListens> {
        loop {
            let handed = *self.handed.borrow_and_update();
            if let Some(end) = handed.end {
                return Ok(Some((end, handed)));
            }
            let awaited = self.awaited(&handed);
            let wait = wait(awaited, self.observed.as_ref(), self.stall);
            let outcome = tokio::select! {
                // A body that is dropped always says so first.
                changed = self.handed.changed() => match changed {
                    Ok(()) => continue,
                    Err(_) => return Ok(None),
                },
                outcome = wait => outcome,
            };
            match outcome {
                Ok(()) => self.reached(awaited).await?,
                // hyper drops the body of a broken connection at once; that is reported.
                Err(AckError::Gone) => (self.wants_headers, self.wants_replay) = (false, false),
                Err(AckError::Stalled) => {
                    let sent = self.sent();
                    self.report(WireEvent::Lost { sent, acknowledged: false }).await?;
                    order_end(&self.orders, EndOrder::at_once(Some(self.retry_ms)));
                    return Ok(None);
                }
            }
        }
    }

    fn awaited(&self, handed: &Handed) -> Awaited {
        match (handed.first, handed.probe) {
            (Some(first), _) if self.wants_headers => Awaited::Headers(first),
            _ if self.wants_replay => {
                Awaited::Replay(handed.replay.or(handed.newest), handed.replay.is_some())
            }
            (_, Some(probe)) if self.probe != Some(probe) => Awaited::Probe(probe),
            _ => Awaited::Body,
        }
    }

    async fn reached(&mut self, awaited: Awaited) -> Result<(), NobodyListens> {
        let event = match awaited {
            Awaited::Headers(_) => {
                self.wants_headers = false;
                WireEvent::HeadersAcknowledged
            }
            Awaited::Replay(..) => {
                self.wants_replay = false;
                WireEvent::ReplayAcknowledged
            }
            Awaited::Probe(probe) => {
                self.probe = Some(probe);
                WireEvent::LivenessAcknowledged
            }
            Awaited::Body => return Ok(()),
        };
        self.report(event).await
    }

    /// The final frame was handed over: how does the peer take it?
    async fn after_final(&mut self, handed: Handed) -> Result<(), NobodyListens> {
        self.report(WireEvent::FinalHanded).await?;
        if self.wants_replay {
            let awaited = Awaited::Replay(handed.replay.or(handed.newest), true);
            match wait(awaited, self.observed.as_ref(), self.stall).await {
                Ok(()) => self.reached(awaited).await?,
                Err(_) => return self.report_loss(handed).await,
            }
        }
        let Some(observed) = self.observed.clone() else { return Ok(()) };
        let wire = &observed.wire;
        if let Some(mark) = handed.newest.and_then(|newest| newest.mark)
            && wire.acknowledged(mark).await.is_err()
        {
            return self.report_loss(handed).await;
        }
        self.report(WireEvent::FinalAcknowledged).await?;
        let ended = async {
            match wire.ended().await {
                WireEnd::Reset => WireEvent::Reset,
                // However else it ended, no reset will be seen any more: as after a FIN.
                WireEnd::Fin | WireEnd::TimedOut | WireEnd::ClosedByUs => WireEvent::Fin,
            }
        };
        // A later reset does not count, so the idle connection is not watched any longer.
        let unwatched = sleep(self.reset_window);
        tokio::pin!(ended, unwatched);
        let after = tokio::select! {
            end = &mut ended => end,
            is_evidence = observed.next_request(handed.reads) => {
                if is_evidence {
                    WireEvent::NextRequest
                } else {
                    // Nothing is left to tell that the next request could wait for.
                    self.observation = None;
                    tokio::select! {
                        end = ended => end,
                        () = unwatched => WireEvent::Fin,
                    }
                }
            }
            () = &mut unwatched => WireEvent::Fin,
        };
        self.report(after).await
    }

    async fn report_loss(&self, handed: Handed) -> Result<(), NobodyListens> {
        let mark = handed.newest.and_then(|newest| newest.mark);
        let acknowledged = match (&self.observed, mark) {
            (Some(observed), Some(mark)) => {
                let acknowledged = observed.wire.acknowledged(mark);
                matches!(timeout(Duration::ZERO, acknowledged).await, Ok(Ok(())))
            }
            _ => false,
        };
        self.report(WireEvent::Lost { sent: self.sent(), acknowledged }).await
    }

    async fn report(&self, event: WireEvent) -> Result<(), NobodyListens> {
        let mail = Mail::Wire(self.connection, event);
        self.inbox.send(mail).await.map_err(|_closed| NobodyListens)
    }

    fn sent(&self) -> Seq {
        Seq(self.sent.load(Ordering::Acquire))
    }
}

/// Waits for one thing. What needs no socket is reached at once if there is none to see.
async fn wait(
    awaited: Awaited,
    observed: Option<&Observed>,
    stall: Duration,
) -> Result<(), AckError> {
    let observed = observed.map(|observed| &observed.wire);
    match (awaited, observed) {
        (Awaited::Headers(handover) | Awaited::Probe(handover), Some(wire)) => {
            let Some(mark) = handover.mark else { return Ok(()) };
            wire.acknowledged(mark).await.map_err(|_gone| AckError::Gone)
        }
        (Awaited::Replay(handover, is_whole), Some(wire)) => {
            if let Some(mark) = handover.and_then(|handover| handover.mark) {
                wire.acknowledged_or_stalled(mark, stall).await?;
            }
            if is_whole {
                return Ok(());
            }
            // The next frame ends this wait: it comes when the connection takes it.
            sleep(stall).await;
            Err(AckError::Stalled)
        }
        (Awaited::Headers(_) | Awaited::Probe(_) | Awaited::Replay(_, true), None) => Ok(()),
        (Awaited::Replay(_, false), None) | (Awaited::Body, _) => std::future::pending().await,
    }
}
