//! What a session costs that nobody uses, and a standalone stream on which nothing comes.

use rejoin_bench::{Failure, Length};

use super::{Pass, open};
use crate::contestant::Contestant;
use crate::wire::Connection;

/// Opened before memory is looked at: what the first ones need is not theirs alone.
const WARM_UP: usize = 500;
const SESSIONS: usize = 10_000;
const SESSIONS_QUICK: usize = 3_000;
const STREAMS: usize = 1_000;

/// Memory of the contestant's own process for each session; their connections are closed.
pub(super) async fn sessions(contestant: &Contestant, length: Length) -> Result<Pass, Failure> {
    let all = if length == Length::Full { SESSIONS } else { SESSIONS_QUICK };
    drop_each(contestant, WARM_UP).await?;
    let before = contestant.resident_bytes()?;
    drop_each(contestant, all - WARM_UP).await?;
    growth(contestant, before, all - WARM_UP)
}

/// The same for each stream beyond its session, which is there before.
pub(super) async fn streams(contestant: &Contestant) -> Result<Pass, Failure> {
    let host = contestant.address;
    let opened = open(host, STREAMS + WARM_UP).await?;
    let sessions: Vec<String> = opened.iter().map(|one| one.session().to_owned()).collect();
    drop(opened);
    let mut streams = Vec::with_capacity(sessions.len());
    for session in &sessions[..WARM_UP] {
        streams.push(Connection::listen(host, session).await?);
    }
    let before = contestant.resident_bytes()?;
    for session in &sessions[WARM_UP..] {
        streams.push(Connection::listen(host, session).await?);
    }
    growth(contestant, before, STREAMS)
}

async fn drop_each(contestant: &Contestant, count: usize) -> Result<(), Failure> {
    for _ in 0..count {
        drop(Connection::open(contestant.address).await?);
    }
    Ok(())
}

fn growth(contestant: &Contestant, before: u64, count: usize) -> Result<Pass, Failure> {
    let grown = contestant.resident_bytes()?.saturating_sub(before);
    Ok(Pass::of(grown as f64 / count as f64 / 1_024.0, Vec::new()))
}
