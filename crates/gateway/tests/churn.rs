//! A day of churn in fast forward: sessions open, call, drop, resume, repeat, are deleted, idle out
//! or are never seen again, and what they used comes back.
//!
//! The gateway is the one of `rejoin serve`, with its registry, its drivers and its housekeeping,
//! over the SQLite store in a directory. Its clock is tokio's, paused: it jumps from one thing that
//! is due to the next, and stands while the store does something on its own threads ([`clock`]).
//! So 34 hours pass in as much time as the work in them takes.
//!
//! Shortened, so that a day has many of their spans: what nobody comes back for is kept for 2 hours
//! (not 24), tokens are remembered for 4 (not 7 days). All else is as by default.
//!
//! Not covered: sockets, and so what the kernel tells of them (every clean end counts as delivered
//! after a second, every drop as a loss); child processes; restarts and power cuts; quotas that are
//! used up; upkeep on a disk that has no pauses, for those between commits are shorter here than in
//! a real day, not longer. `e2e/proofs/soak.py` has sockets and processes in real time.
//!
//! `cargo xtask churn` runs it optimised, with 100,000 sessions.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

#[path = "churn/client.rs"]
mod client;
#[path = "churn/clock.rs"]
mod clock;
#[path = "churn/server.rs"]
mod server;
#[path = "churn/watch.rs"]
mod watch;

use std::sync::Arc;
use std::time::Duration;

use rejoin_core::settings::Settings;
use rejoin_gateway::config::GatewayConfig;
use rejoin_gateway::gateway::Gateway;
use rejoin_store::Store;
use rejoin_store::sqlite::{Durability, SqliteOptions, SqliteStore};
use rejoin_testkit::failure::TestResult;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::{interval, sleep};

use client::{Fate, live};
use clock::Clocked;
use server::Tools;
use watch::Watch;

/// Sets how many sessions there are.
const SESSIONS: &str = "REJOIN_CHURN_SESSIONS";
/// Sessions without that.
const SESSIONS_DEFAULT: u64 = 2_000;
/// Sessions that open at once, at least.
const BURST_MIN: u64 = 25;
/// So often sessions open, at most.
const BURSTS_MAX: u64 = 1_000;
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(24 * 3_600);
/// How long what nobody comes back for is kept, and how long tokens are remembered.
const RETENTION: Duration = Duration::from_secs(2 * 3_600);
const TOMBSTONE: Duration = Duration::from_secs(4 * 3_600);

#[tokio::test(start_paused = true)]
async fn a_day_of_churn_leaves_file_and_memory_flat_and_in_the_end_nothing() -> TestResult {
    let sessions = match std::env::var(SESSIONS) {
        Ok(sessions) => sessions.parse()?,
        Err(_) => SESSIONS_DEFAULT,
    };
    assert!(sessions >= 20 * BURST_MIN, "{sessions} sessions make no day");
    let directory = TempDir::new()?;
    let mut settings = Settings::default();
    settings.limits.retention_ms = RETENTION.as_millis() as u64;
    settings.limits.tombstone_ms = TOMBSTONE.as_millis() as u64;
    let options = SqliteOptions::new(Durability::Calls, &settings.limits);
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(directory.path(), options)?);
    let (tools, clocked) = (Arc::new(Tools::default()), Arc::new(Clocked::new(store.clone())));
    let gateway = Gateway::new(GatewayConfig::new(Arc::new(settings), tools.clone(), clocked))?;
    let kept = gateway.clone();
    let housekeeping = tokio::spawn(async move { kept.maintain().await });

    let mut watch = Watch::new(directory.path(), gateway.clone(), store);
    let (mut running, mut executions) = (JoinSet::new(), 0);
    let at_once = sessions.div_ceil(BURSTS_MAX).max(BURST_MIN);
    let bursts = sessions.div_ceil(at_once);
    let mut due = interval(DAY / u32::try_from(bursts)?);
    for burst in 0..bursts {
        due.tick().await;
        for number in burst * at_once..sessions.min((burst + 1) * at_once) {
            executions += Fate::of(number).executions();
            running.spawn(live(gateway.clone(), number));
        }
        while let Some(ended) = running.try_join_next() {
            ended??;
        }
        watch.sample().await?;
    }
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    watch.check_flat();
    assert_eq!(tools.executions(), executions, "every call ran once");
    let abandoned = (0..sessions).filter(|number| Fate::of(*number) == Fate::Abandoned).count();
    // Everybody else came back, and found all.
    let evicted = watch.metric("rejoin_evictions_total{owed=\"true\"}").await?;
    assert!(evicted as usize <= abandoned, "{evicted} evictions of what was owed");

    // An idle session is looked at once in half an hour.
    sleep(RETENTION + TOMBSTONE + 4 * HOUR).await;
    watch.check_empty().await?;
    housekeeping.abort();
    Ok(())
}
