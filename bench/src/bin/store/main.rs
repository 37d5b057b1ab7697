//! `cargo xtask bench store`: the SQLite store next to a loop that appends to a file and syncs it,
//! on the same disk and in the same run. Passes of all workloads take turns, so that what else the
//! machine does falls on all of them.

mod raw;
mod replay;
mod writes;

use std::process::ExitCode;
use std::time::Duration;

use rejoin_bench::{Failure, Length, Table, Unit, describe};
use rejoin_store::sqlite::Durability;

use raw::RAW;
use replay::Replay;
use writes::{Kind, Writes};

/// Sessions that commit at the same time.
const CROWD: usize = 64;

/// What a workload did in one pass.
pub(crate) struct Pass {
    /// How often, in a second.
    pub(crate) per_second: f64,
    /// How long each took, sorted.
    pub(crate) latencies: Vec<Duration>,
}

impl Pass {
    pub(crate) fn new(time: Duration, mut latencies: Vec<Duration>) -> Self {
        latencies.sort_unstable();
        Self { per_second: latencies.len() as f64 / time.as_secs_f64(), latencies }
    }

    fn percentile_us(&self, percent: usize) -> f64 {
        let at = (self.latencies.len() * percent / 100).min(self.latencies.len() - 1);
        self.latencies[at].as_secs_f64() * 1e6
    }
}

/// A workload of commits, and what its figures are called.
struct Workload {
    writes: Writes,
    rate: &'static str,
    latencies: Option<[&'static str; 2]>,
}

fn workloads() -> [Workload; 5] {
    let writes = |kind, durability, writers| Writes { kind, durability, writers };
    [
        Workload {
            writes: writes(Kind::Claim, Durability::Calls, 1),
            rate: "durable claims, one session",
            latencies: Some(["... commit, p50", "... commit, p99"]),
        },
        Workload {
            writes: writes(Kind::Claim, Durability::Calls, CROWD),
            rate: "durable claims, 64 sessions at once",
            latencies: Some(["... commit among 64, p50", "... commit among 64, p99"]),
        },
        Workload {
            writes: writes(Kind::Event, Durability::Calls, 1),
            rate: "events, one session",
            latencies: None,
        },
        Workload {
            writes: writes(Kind::Event, Durability::Calls, CROWD),
            rate: "events, 64 sessions at once",
            latencies: None,
        },
        Workload {
            writes: writes(Kind::Event, Durability::Events, CROWD),
            rate: "events, 64 sessions at once, `--durability events`",
            latencies: None,
        },
    ]
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("no figures: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Failure> {
    let (passes, time) = match Length::from_arguments()? {
        Length::Full => (7, Duration::from_millis(1_500)),
        Length::Quick => (3, Duration::from_millis(300)),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().build()?;
    let directory = tempfile::tempdir()?;
    println!("{}", describe(directory.path())?);
    let (file, memory) = runtime.block_on(async {
        let file = Replay::from_file(directory.path()).await?;
        Ok::<_, Failure>((file, Replay::from_memory(directory.path()).await?))
    })?;
    let mut table = Table::default();
    for _ in 0..passes {
        let pass = raw::run(directory.path(), time)?;
        table.add(RAW, Unit::PerSecond, None, pass.per_second);
        table.add("... p50", Unit::Microseconds, None, pass.percentile_us(50));
        table.add("... p99", Unit::Microseconds, None, pass.percentile_us(99));
        for Workload { writes, rate, latencies } in workloads() {
            let pass = runtime.block_on(writes.run(directory.path(), time))?;
            table.add(rate, Unit::PerSecond, Some(RAW), pass.per_second);
            for (name, (percent, beside)) in
                latencies.into_iter().flatten().zip([(50, "... p50"), (99, "... p99")])
            {
                let value = pass.percentile_us(percent);
                table.add(name, Unit::Microseconds, Some(beside), value);
            }
        }
        for (what, replay) in [
            ("replayed events, from the file", &file),
            ("replayed events, from the tail in memory", &memory),
        ] {
            let per_second = runtime.block_on(replay.run(time))?;
            table.add(what, Unit::PerSecond, None, per_second);
        }
    }
    println!("{passes} passes of {} ms each, in turns:\n\n{table}", time.as_millis());
    Ok(())
}
