//! What is asked of each contestant.

mod calls;
mod idle;
mod initialize;
mod progress;
mod replay;
mod stalled;
mod storm;

use std::time::{Duration, Instant};

use rejoin_bench::{Failure, Length};

use crate::contestant::Contestant;
use crate::wire::Connection;

/// What is done for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workload {
    /// Small calls with arguments that differ, one after another on each connection.
    Calls { connections: usize },
    /// The same with equal arguments.
    Equal { connections: usize },
    /// The same of a tool that only reads.
    Reads { connections: usize },
    /// One call on each connection, with as much progress as it has time for.
    Progress { streams: usize, bytes: usize },
    /// A long tail, read by clients that resume.
    Replay { restarted: bool },
    /// Sessions that nobody uses.
    IdleSessions,
    /// Standalone streams on which nothing comes.
    IdleStreams,
    /// Clients that are dropped and resume, all at once.
    Storm,
    /// A client that does not read its stream, beside one that calls.
    Stalled,
    /// Sessions, opened on connections of their own.
    Initialize,
}

impl Workload {
    pub(crate) const ALL: [Self; 19] = [
        Self::Calls { connections: 1 },
        Self::Calls { connections: 16 },
        Self::Calls { connections: 64 },
        Self::Calls { connections: 256 },
        Self::Equal { connections: 1 },
        Self::Reads { connections: 64 },
        Self::Progress { streams: 1, bytes: 100 },
        Self::Progress { streams: 1, bytes: 1_024 },
        Self::Progress { streams: 1, bytes: 65_536 },
        Self::Progress { streams: 64, bytes: 100 },
        Self::Progress { streams: 64, bytes: 1_024 },
        Self::Progress { streams: 64, bytes: 65_536 },
        Self::Replay { restarted: false },
        Self::Replay { restarted: true },
        Self::IdleSessions,
        Self::IdleStreams,
        Self::Storm,
        Self::Stalled,
        Self::Initialize,
    ];

    pub(crate) fn name(self) -> String {
        let streams = |count| if count == 1 { "stream" } else { "streams" };
        let many = |count| if count == 1 { "connection" } else { "connections" };
        match self {
            Self::Calls { connections } => format!("calls/s, {connections} {}", many(connections)),
            Self::Equal { connections } => {
                format!("calls/s with equal arguments, {connections} {}", many(connections))
            }
            Self::Reads { connections } => {
                format!("calls/s of a read-only tool, {connections} {}", many(connections))
            }
            Self::Progress { streams: count, bytes } => {
                format!("events/s of {bytes} bytes, {count} {}", streams(count))
            }
            Self::Replay { restarted: false } => "replayed events/s, tail of 50,000".to_owned(),
            Self::Replay { restarted: true } => {
                "replayed events/s, tail of 50,000, after a restart".to_owned()
            }
            Self::IdleSessions => "KB of memory for an idle session".to_owned(),
            Self::IdleStreams => "KB of memory for an idle stream".to_owned(),
            Self::Storm => "resumed streams/s, 1,000 at once".to_owned(),
            Self::Stalled => "MB of growth for a reader that stalls".to_owned(),
            Self::Initialize => "sessions/s".to_owned(),
        }
    }

    /// True if less is better.
    pub(crate) fn is_cost(self) -> bool {
        matches!(self, Self::IdleSessions | Self::IdleStreams | Self::Stalled)
    }

    /// How often it is measured: what takes long and hardly varies, once if time is short.
    pub(crate) fn passes(self, passes: usize, length: Length) -> usize {
        let is_short = !(self.is_cost() || self == Self::Storm);
        if is_short || length == Length::Full { passes } else { 1 }
    }

    /// Runs for about so long.
    pub(crate) async fn run(
        self,
        contestant: &mut Contestant,
        (time, length): (Duration, Length),
    ) -> Result<Pass, Failure> {
        let host = contestant.address;
        match self {
            Self::Calls { connections } => {
                calls::run(host, calls::Arguments::Distinct, connections, time).await
            }
            Self::Equal { connections } => {
                calls::run(host, calls::Arguments::Equal, connections, time).await
            }
            Self::Reads { connections } => {
                calls::run(host, calls::Arguments::Reads, connections, time).await
            }
            Self::Progress { streams, bytes } => progress::run(host, streams, bytes, time).await,
            Self::Replay { restarted } => replay::run(contestant, restarted, time).await,
            Self::IdleSessions => idle::sessions(contestant, length).await,
            Self::IdleStreams => idle::streams(contestant).await,
            Self::Storm => storm::run(host).await,
            Self::Stalled => stalled::run(contestant).await,
            Self::Initialize => initialize::run(host, time).await,
        }
    }
}

/// Opens as many connections, each with a session of its own.
async fn open(host: std::net::SocketAddr, count: usize) -> Result<Vec<Connection>, Failure> {
    let mut open = Vec::with_capacity(count);
    for _ in 0..count {
        open.push(Connection::open(host).await?);
    }
    Ok(open)
}

/// Fails unless all events of a stream came.
fn all_of(came: u64, events: u64) -> Result<(), Failure> {
    if came == events { Ok(()) } else { Err(format!("{came} events of {events}").into()) }
}

/// What one connection did.
#[derive(Default)]
struct Part {
    count: u64,
    latencies: Vec<Duration>,
}

/// Waits for all tasks, and puts what they did together.
async fn together(
    began: Instant,
    tasks: Vec<tokio::task::JoinHandle<Result<Part, Failure>>>,
) -> Result<Pass, Failure> {
    let (mut count, mut latencies) = (0, Vec::new());
    for task in tasks {
        let part = task.await??;
        count += part.count;
        latencies.extend(part.latencies);
    }
    Ok(Pass::rate(began.elapsed(), count, latencies))
}

/// What one pass measured.
pub(crate) struct Pass {
    /// What the workload is named for.
    pub(crate) value: f64,
    latencies: Vec<Duration>,
}

impl Pass {
    fn rate(time: Duration, count: u64, latencies: Vec<Duration>) -> Self {
        Self::of(count as f64 / time.as_secs_f64(), latencies)
    }

    fn of(value: f64, mut latencies: Vec<Duration>) -> Self {
        latencies.sort_unstable();
        Self { value, latencies }
    }

    /// How long one exchange took that so many of a hundred did not exceed; `None`: none was timed.
    pub(crate) fn percentile_us(&self, percent: usize) -> Option<f64> {
        let at = (self.latencies.len() * percent / 100).min(self.latencies.len().checked_sub(1)?);
        Some(self.latencies[at].as_secs_f64() * 1e6)
    }
}
