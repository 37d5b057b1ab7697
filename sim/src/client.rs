//! The clients: each does what its plan says, and records what it asks, reads and gives up.

mod ask;
mod batch;
pub mod http;
mod intruder;
mod listen;
mod session;
mod stream;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::history::{Asking, History, Leave};
use crate::net::Net;
use crate::plan::{AskPlan, ClientPlan, Deletes};

use self::intruder::Known;
use self::session::Session;

/// The arguments of the calls that come after everything else begin here.
const PROBE_KEY: u32 = 1_000;

/// The arguments of calls that run when their session is ended begin here.
const ENDED_KEY: u32 = 900;
/// Such a call would take so long.
const ENDED_MS: u64 = 30_000;
/// It runs after so long, whatever the disk does.
const BEGUN: Duration = Duration::from_secs(2);
/// Its stream ends so long after that.
const ENDED_MAX: Duration = Duration::from_secs(10);

/// What all clients of a run share.
pub struct Clients {
    pub net: Net,
    pub history: History,
    sessions: AtomicU32,
    askings: AtomicU32,
    board: Mutex<Vec<Known>>,
}

impl Clients {
    pub fn new(net: Net, history: History) -> Arc<Self> {
        let (sessions, askings) = (AtomicU32::new(1), AtomicU32::new(1));
        Arc::new(Self { net, history, sessions, askings, board: Mutex::default() })
    }

    fn next_session(&self) -> usize {
        self.sessions.fetch_add(1, Ordering::Relaxed) as usize
    }

    fn next_asking(&self) -> Asking {
        self.askings.fetch_add(1, Ordering::Relaxed)
    }
}

/// A client and its session.
pub struct Client {
    number: usize,
    plan: ClientPlan,
    clients: Arc<Clients>,
    session: Session,
}

impl Client {
    pub fn new(number: usize, plan: ClientPlan, clients: Arc<Clients>) -> Arc<Self> {
        Arc::new(Self { number, plan, clients, session: Session::default() })
    }

    /// Asks for everything that its plan holds, and waits until nothing is left to wait for.
    pub async fn live(self: Arc<Self>) {
        let mut tasks = JoinSet::new();
        for plan in self.plan.askings.clone() {
            let client = Arc::clone(&self);
            tasks.spawn(async move {
                sleep(Duration::from_millis(plan.at_ms)).await;
                client.ask(plan).await;
            });
        }
        for (at_ms, works) in self.plan.batches.clone() {
            let client = Arc::clone(&self);
            tasks.spawn(async move {
                sleep(Duration::from_millis(at_ms)).await;
                client.batch(works).await;
            });
        }
        for at_ms in self.plan.pings.clone() {
            let client = Arc::clone(&self);
            tasks.spawn(async move {
                sleep(Duration::from_millis(at_ms)).await;
                client.ping().await;
            });
        }
        if let Some(plan) = self.plan.listens.clone() {
            let client = Arc::clone(&self);
            tasks.spawn(async move {
                sleep(Duration::from_millis(plan.at_ms)).await;
                client.listen(&plan).await;
            });
        }
        if let Some(at_ms) = self.plan.intrudes_ms {
            let client = Arc::clone(&self);
            tasks.spawn(async move {
                sleep(Duration::from_millis(at_ms)).await;
                client.intrude().await;
            });
        }
        while tasks.join_next().await.is_some() {}
    }

    /// One more call, when all is quiet: it must be answered. Then the session is ended, or not.
    pub async fn probe(self: Arc<Self>) {
        self.ask(AskPlan::plain(PROBE_KEY + self.number as u32)).await;
        match self.plan.deletes {
            None => {}
            Some(Deletes::Idle) => self.end_session().await,
            Some(Deletes::Running) => self.end_running().await,
        }
    }

    /// Ends the session while a call runs.
    async fn end_running(&self) {
        let mut plan = AskPlan::plain(ENDED_KEY + self.number as u32);
        plan.work.ms = ENDED_MS;
        // It is left when its session is over.
        plan.leaves = vec![((BEGUN + ENDED_MAX).as_millis() as u64, Leave::Close)];
        let ending = async {
            sleep(BEGUN).await;
            self.end_session().await;
        };
        tokio::join!(self.ask_once(plan), ending);
    }
}
