//! The gateway as a whole: what its parts share, and its life from start to drain.

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use http::HeaderMap;
use rejoin_core::id::EventId;
use rejoin_core::settings::Settings;
use rejoin_store::Store;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::config::GatewayConfig;
use crate::handle::{Clock, ConnectionIds, NoteSink};
use crate::headers::{self, Allowed, Operator};
use crate::metrics::{CountedStore, Metrics};
use crate::passthrough::Passing;
use crate::principal::Principal;
use crate::registry::{Entry, Registry};
pub use crate::respond::AnswerBody;
use crate::respond::Manner;
use crate::room::{ByteRoom, MessageRoom};
use crate::subjects::Subjects;
use crate::telemetry::Telemetry;
use crate::throttle::Throttle;
use crate::upstream::Upstream;

/// While a drain waits, it looks this often for sessions that cannot go on.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Time that sessions get, beyond the graces of their servers, to be gone.
const END_MARGIN: Duration = Duration::from_secs(3);

/// Why a gateway cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayError {
    /// The endpoint's path cannot be one.
    #[error("the endpoint {path:?} must start with a slash and not end with one, for example /mcp")]
    BadPath {
        /// The path.
        path: String,
    },
    /// The system has no random bytes.
    #[error("the system gives no random bytes: {0}")]
    NoRandomness(getrandom::Error),
}

/// How far a gateway's life went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// It takes sessions and calls.
    Serving,
    /// No new sessions and calls; running calls may finish, and streams be resumed.
    Draining,
    /// Streams end.
    Stopping,
}

/// An HTTP gateway in front of one MCP server. Clones are the same gateway.
///
/// Several may stand side by side, each in front of a server of its own: see [`Gateway::beside`].
#[derive(Clone)]
pub struct Gateway {
    shared: Arc<Shared>,
    common: Arc<Common>,
}

/// What a gateway has for itself.
pub(crate) struct Shared {
    config: GatewayConfig,
    allowed: Allowed,
    passing: Passing,
    notes: Arc<Telemetry>,
    sending: MessageRoom,
    operator: Operator,
}

impl Shared {
    /// Path of the endpoint.
    pub(crate) fn path(&self) -> &str {
        &self.config.path
    }

    fn new(
        config: GatewayConfig,
        passing: Passing,
        metrics: &Arc<Metrics>,
        operator: Operator,
    ) -> Self {
        let allowed = Allowed::new(&config.allowed_hosts, &config.allowed_origins, operator);
        let notes = Arc::new(Telemetry::new(config.upstream.name(), Arc::clone(metrics)));
        let sending = MessageRoom::new(&config.settings.limits);
        Self { config, allowed, passing, notes, sending, operator }
    }
}

/// What gateways side by side have in common: caps and quotas hold for all together, and one life
/// from start to drain.
struct Common {
    registry: Registry,
    body_room: ByteRoom,
    subjects: RwLock<Arc<Subjects>>,
    /// For what anyone can cause who reaches the port.
    refusal_log: Mutex<Throttle>,
    store: Arc<CountedStore>,
    metrics: Arc<Metrics>,
    connections: ConnectionIds,
    clock: Clock,
    /// Another one for each life of the ledger: what a client remembers of an older life is void.
    ledger_epoch: u64,
    reviving: tokio::sync::Mutex<()>,
    stage: watch::Sender<Stage>,
}

fn check_path(path: &str) -> Result<(), GatewayError> {
    if path.starts_with('/') && !path.ends_with('/') {
        Ok(())
    } else {
        Err(GatewayError::BadPath { path: path.to_owned() })
    }
}

/// The number of a new life of the ledger. 32 bits: exact in every client's numbers.
pub(crate) fn new_ledger_epoch() -> Result<u64, getrandom::Error> {
    getrandom::u32().map(Into::into)
}

impl Gateway {
    /// A gateway that takes requests at once.
    ///
    /// # Errors
    /// See [`GatewayError`].
    pub fn new(config: GatewayConfig) -> Result<Self, GatewayError> {
        check_path(&config.path)?;
        let epoch = match config.store.epoch() {
            Some(epoch) => epoch,
            None => new_ledger_epoch().map_err(GatewayError::NoRandomness)?,
        };
        Ok(Self::assemble(config, epoch, Operator::Command))
    }

    /// A gateway in front of another server, at another path of the same listener. Everything else
    /// is as here, and what is counted is counted for both together: sessions, bytes, exchanges,
    /// metrics. A session of one is unknown at the other. [`drain`](Self::drain),
    /// [`maintain`](Self::maintain), [`admin`](Self::admin) and
    /// [`set_subjects`](Self::set_subjects) of either do their work for both.
    ///
    /// The limits in `settings` must be the same as here.
    ///
    /// # Errors
    /// See [`GatewayError`].
    pub fn beside(
        &self,
        path: String,
        settings: Arc<Settings>,
        upstream: Arc<dyn Upstream>,
    ) -> Result<Self, GatewayError> {
        check_path(&path)?;
        let config = GatewayConfig { path, settings, upstream, ..self.shared.config.clone() };
        let passing = self.shared.passing.beside();
        let shared = Shared::new(config, passing, &self.common.metrics, Operator::Command);
        Ok(Self { shared: Arc::new(shared), common: Arc::clone(&self.common) })
    }

    /// A gateway that an application has mounted somewhere: whatever path it is asked for, it is
    /// the endpoint.
    pub(crate) fn mounted(config: GatewayConfig, ledger_epoch: u64) -> Self {
        Self::assemble(config, ledger_epoch, Operator::Application)
    }

    fn assemble(config: GatewayConfig, ledger_epoch: u64, operator: Operator) -> Self {
        let metrics = Arc::new(Metrics::new());
        let (stage, _) = watch::channel(Stage::Serving);
        let common = Common {
            registry: Registry::new(config.settings.limits.sessions_max),
            body_room: ByteRoom::new(&config.settings.limits),
            subjects: RwLock::new(Arc::new(config.subjects.clone())),
            refusal_log: Mutex::new(Throttle::new(Instant::now())),
            store: Arc::new(CountedStore::new(config.store.clone(), Arc::clone(&metrics))),
            metrics: metrics.clone(),
            connections: ConnectionIds::default(),
            clock: Clock::start(),
            ledger_epoch,
            reviving: tokio::sync::Mutex::default(),
            stage,
        };
        let passing = Passing::new(&config.settings.limits);
        let shared = Shared::new(config, passing, &metrics, operator);
        Self { shared: Arc::new(shared), common: Arc::new(common) }
    }

    /// Replaces the operator's map of credentials to subjects, for requests from here on. A session
    /// stays its subject's; one that was opened by a credential without a subject becomes the
    /// subject's that the credential is mapped to now.
    pub fn set_subjects(&self, subjects: Subjects) {
        let subjects = Arc::new(subjects);
        let set = Arc::clone(&subjects);
        *self.common.subjects.write().unwrap_or_else(PoisonError::into_inner) = set;
        for entry in self.registry().all() {
            entry.settle(&subjects);
        }
    }

    /// Ends the gateway in order. New sessions and calls are refused with 503 at once; running
    /// calls have `drain_ms` to finish and their answers to arrive, and can be resumed meanwhile.
    /// Then every stream ends with `retry:`, and every server; sessions too, unless the store
    /// outlives the process.
    pub async fn drain(&self) {
        let limits = &self.settings().limits;
        self.common.stage.send_replace(Stage::Draining);
        let calls_ended = async { tokio::join!(self.idle(), self.shared.passing.idle()) };
        let idle = timeout(Duration::from_millis(limits.drain_ms), calls_ended);
        if idle.await.is_err() {
            let drain_ms = limits.drain_ms;
            tracing::warn!(drain_ms, "calls still run or are being answered: they are ended");
        }
        self.common.stage.send_replace(Stage::Stopping);
        let retry_ms = limits.retry_ms;
        let is_kept = self.common.store.epoch().is_some();
        let mut ending = JoinSet::new();
        for entry in self.common.registry.all() {
            ending.spawn(async move {
                // Over already is as good as told.
                let _told = entry.handle.drain(retry_ms).await;
                if is_kept {
                    entry.handle.suspend().await;
                } else {
                    let _ended = entry.handle.delete().await;
                }
                entry.handle.gone().await;
            });
        }
        let graces_ms = limits.child_eof_grace_ms.saturating_add(limits.child_term_grace_ms);
        let ended = timeout(Duration::from_millis(graces_ms) + END_MARGIN, async {
            while ending.join_next().await.is_some() {}
        });
        if ended.await.is_err() {
            tracing::warn!(sessions = ending.len(), "sessions did not end in time");
        }
        self.common.registry.sweep();
    }

    /// Waits until no call runs or is being answered, but for those of sessions whose log failed:
    /// they wait for another process.
    async fn idle(&self) {
        loop {
            for entry in self.registry().all().iter().filter(|entry| entry.handle.is_kept()) {
                self.common.store.forget(&entry.key);
            }
            if timeout(LOOK_AGAIN, self.common.store.idle()).await.is_ok() {
                return;
            }
        }
    }

    /// Waits until [`drain`](Self::drain) ends the streams: the moment to stop listening.
    pub async fn stopping(&self) {
        let mut stage = self.common.stage.subscribe();
        // The sender lives as long as this gateway.
        let _stopping = stage.wait_for(|stage| *stage == Stage::Stopping).await.is_ok();
    }

    /// True once no new session or call is taken.
    pub fn is_draining(&self) -> bool {
        *self.common.stage.borrow() != Stage::Serving
    }

    pub(crate) fn is_stopping(&self) -> bool {
        *self.common.stage.borrow() == Stage::Stopping
    }

    pub(crate) fn settings(&self) -> &Arc<Settings> {
        &self.shared.config.settings
    }

    pub(crate) fn is_mounted(&self) -> bool {
        // Its place is the application's affair: every path is the endpoint.
        self.shared.operator == Operator::Application
    }

    pub(crate) fn path(&self) -> &str {
        self.shared.path()
    }

    /// What it has for itself: enough to find it again, see [`at`](Self::at).
    pub(crate) fn endpoint(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// The gateway beside this one that has this for itself.
    pub(crate) fn at(&self, shared: Arc<Shared>) -> Self {
        Self { shared, common: Arc::clone(&self.common) }
    }

    /// Who a request with these headers comes from.
    pub(crate) fn principal(&self, headers: &HeaderMap) -> Principal {
        Principal::of(headers, &self.subjects())
    }

    pub(crate) fn subjects(&self) -> Arc<Subjects> {
        self.common.subjects.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The headers of a request that its session keeps: those that the upstream passes on.
    pub(crate) fn forwarded(&self, headers: &HeaderMap) -> HeaderMap {
        headers::forwarded(headers, self.upstream().forwarded_headers())
    }

    pub(crate) fn allowed(&self) -> &Allowed {
        &self.shared.allowed
    }

    /// Held by whoever has a session driven again.
    pub(crate) fn reviving(&self) -> &tokio::sync::Mutex<()> {
        &self.common.reviving
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.common.registry
    }

    /// Whether one more refusal of a stranger is logged; if so, how many were not since the last.
    pub(crate) fn may_log_refusal(&self) -> Option<u64> {
        let mut throttle = self.common.refusal_log.lock().unwrap_or_else(PoisonError::into_inner);
        throttle.admit(Instant::now())
    }

    pub(crate) fn body_room(&self) -> &ByteRoom {
        &self.common.body_room
    }

    pub(crate) fn passing(&self) -> &Passing {
        &self.shared.passing
    }

    pub(crate) fn store(&self) -> Arc<dyn Store> {
        self.common.store.clone()
    }

    pub(crate) fn counted(&self) -> &CountedStore {
        &self.common.store
    }

    pub(crate) fn upstream(&self) -> &Arc<dyn Upstream> {
        &self.shared.config.upstream
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.common.metrics
    }

    pub(crate) fn notes(&self) -> Arc<dyn NoteSink> {
        self.shared.notes.clone()
    }

    pub(crate) fn sending(&self) -> MessageRoom {
        self.shared.sending.clone()
    }

    pub(crate) fn connections(&self) -> ConnectionIds {
        self.common.connections.clone()
    }

    pub(crate) fn clock(&self) -> Clock {
        self.common.clock
    }

    pub(crate) fn ledger_epoch(&self) -> u64 {
        self.common.ledger_epoch
    }

    pub(crate) fn manner(&self, headers: &HeaderMap) -> Manner {
        Manner::of(headers, &self.shared.config)
    }

    /// Counts the events that a GET resumed at `after` sends again.
    pub(crate) fn count_replay(&self, entry: &Entry, after: EventId, until: EventId) {
        let (stream, store) = (after.stream, &self.common.store);
        let replayed = store.unconfirmed(&entry.key, stream, after.seq, until.seq);
        self.common.metrics.events_replayed.inc_by(replayed);
    }
}
