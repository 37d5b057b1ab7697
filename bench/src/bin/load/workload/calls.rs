//! Small calls, one after another on each connection.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rejoin_bench::Failure;

use super::{Part, Pass, open, together};
use crate::wire::Connection;

/// What the calls are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arguments {
    Distinct,
    Equal,
    /// Distinct ones of a tool that says that it only reads.
    Reads,
}

/// Calls on all connections at once.
pub(super) async fn run(
    host: SocketAddr,
    arguments: Arguments,
    connections: usize,
    time: Duration,
) -> Result<Pass, Failure> {
    let mut open = open(host, connections).await?;
    if arguments == Arguments::Reads {
        for connection in &mut open {
            connection.list_tools().await?;
        }
    }
    let began = Instant::now();
    let until = began + time;
    let drive = |connection| tokio::spawn(drive(connection, arguments, until));
    together(began, open.into_iter().map(drive).collect()).await
}

async fn drive(
    mut connection: Connection,
    arguments: Arguments,
    until: Instant,
) -> Result<Part, Failure> {
    let mut part = Part::default();
    let tool = if arguments == Arguments::Reads { "look" } else { "get" };
    for id in 1.. {
        let began = Instant::now();
        let number = if arguments == Arguments::Equal { 1 } else { id };
        connection.call(id, tool, &format!(r#"{{"account":{number}}}"#), false).await?;
        part.latencies.push(began.elapsed());
        part.count += 1;
        if Instant::now() >= until {
            break;
        }
    }
    Ok(part)
}
