//! What is asked of each contestant.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rejoin_bench::Failure;

use crate::wire::Connection;

/// Bytes of text in each event of a stream.
const EVENTS: u64 = 20_000;

/// What is done for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workload {
    /// Small calls with arguments that differ, one after another on each connection.
    Calls { connections: usize },
    /// The same with equal arguments.
    Equal { connections: usize },
    /// One call on each connection, with as much progress as it has time for.
    Progress { streams: usize, bytes: usize },
    /// Sessions, opened on connections of their own.
    Initialize,
}

impl Workload {
    pub(crate) const ALL: [Self; 8] = [
        Self::Calls { connections: 1 },
        Self::Calls { connections: 16 },
        Self::Calls { connections: 64 },
        Self::Equal { connections: 1 },
        Self::Progress { streams: 1, bytes: 100 },
        Self::Progress { streams: 1, bytes: 1_024 },
        Self::Progress { streams: 64, bytes: 100 },
        Self::Initialize,
    ];

    pub(crate) fn name(self) -> String {
        match self {
            Self::Calls { connections } => format!("calls/s, {connections} connections"),
            Self::Equal { connections } => {
                format!("calls/s with equal arguments, {connections} connections")
            }
            Self::Progress { streams, bytes } => {
                format!("events/s of {bytes} bytes, {streams} streams")
            }
            Self::Initialize => "sessions/s".to_owned(),
        }
    }

    /// Runs for about so long.
    pub(crate) async fn run(self, host: SocketAddr, time: Duration) -> Result<Pass, Failure> {
        let connections = match self {
            Self::Calls { connections } | Self::Equal { connections } => connections,
            Self::Progress { streams, .. } => streams,
            Self::Initialize => return initialize(host, time).await,
        };
        let mut open = Vec::with_capacity(connections);
        for _ in 0..connections {
            open.push(Connection::open(host).await?);
        }
        let began = Instant::now();
        let tasks: Vec<_> = open
            .into_iter()
            .map(|connection| tokio::spawn(self.drive(connection, began + time)))
            .collect();
        let (mut count, mut latencies) = (0, Vec::new());
        for task in tasks {
            let part = task.await??;
            count += part.count;
            latencies.extend(part.latencies);
        }
        Ok(Pass::new(began.elapsed(), count, latencies))
    }

    async fn drive(self, mut connection: Connection, until: Instant) -> Result<Part, Failure> {
        let mut part = Part::default();
        for id in 1.. {
            let began = Instant::now();
            part.count += match self {
                Self::Progress { streams, bytes } => {
                    let events = EVENTS / streams as u64;
                    let arguments = format!(r#"{{"events":{events},"bytes":{bytes},"n":{id}}}"#);
                    let came = connection.call(id, "stream", &arguments, true).await?;
                    if came != events {
                        return Err(format!("{came} events of {events}").into());
                    }
                    came
                }
                Self::Equal { .. } => {
                    connection.call(id, "get", r#"{"account":1}"#, false).await?;
                    1
                }
                _ => {
                    let arguments = format!(r#"{{"account":{id}}}"#);
                    connection.call(id, "get", &arguments, false).await?;
                    1
                }
            };
            part.latencies.push(began.elapsed());
            if Instant::now() >= until {
                break;
            }
        }
        Ok(part)
    }
}

async fn initialize(host: SocketAddr, time: Duration) -> Result<Pass, Failure> {
    let (began, mut latencies) = (Instant::now(), Vec::new());
    while began.elapsed() < time {
        let one = Instant::now();
        drop(Connection::open(host).await?);
        latencies.push(one.elapsed());
    }
    Ok(Pass::new(began.elapsed(), latencies.len() as u64, latencies))
}

#[derive(Default)]
struct Part {
    count: u64,
    latencies: Vec<Duration>,
}

/// What one pass measured.
pub(crate) struct Pass {
    pub(crate) per_second: f64,
    latencies: Vec<Duration>,
}

impl Pass {
    fn new(time: Duration, count: u64, mut latencies: Vec<Duration>) -> Self {
        latencies.sort_unstable();
        Self { per_second: count as f64 / time.as_secs_f64(), latencies }
    }

    /// How long one exchange took that so many of a hundred did not exceed.
    pub(crate) fn percentile_us(&self, percent: usize) -> f64 {
        let at = (self.latencies.len() * percent / 100).min(self.latencies.len() - 1);
        self.latencies[at].as_secs_f64() * 1e6
    }
}
