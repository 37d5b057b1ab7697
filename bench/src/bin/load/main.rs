//! `cargo xtask bench load`: what Rejoin costs, next to the same server without it and to a proxy
//! that looks at nothing. All contestants take turns in one run; servers have one core, the
//! generator the other, and every answer is looked at.

mod contestant;
mod report;
mod wire;
mod workload;

use std::process::ExitCode;
use std::time::Duration;

use rejoin_bench::{Failure, Length, describe};

use contestant::{Contestant, Kind};
use report::Report;
use workload::Workload;

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = runtime.map_err(Failure::from).and_then(|runtime| runtime.block_on(run()));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("no figures: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Failure> {
    let (passes, time) = match Length::from_arguments()? {
        Length::Full => (5, Duration::from_millis(1_000)),
        Length::Quick => (3, Duration::from_millis(300)),
    };
    let directory = tempfile::tempdir()?;
    println!("{}", describe(directory.path())?);
    contestant::keep_off_their_core()?;
    let mut report = Report::default();
    for workload in Workload::ALL {
        for pass in 0..passes {
            let mut contestants = Kind::all(workload);
            let turn = pass % contestants.len();
            contestants.rotate_left(turn);
            for kind in contestants {
                let contestant = Contestant::start(kind, directory.path())?;
                let pass = workload.run(contestant.address, time).await;
                let pass =
                    pass.map_err(|error| format!("{}, {}: {error}", kind.name(), workload.name()))?;
                report.add(workload, kind, &pass, contestant.resident_bytes()?);
            }
        }
        println!("{}", report.of(workload));
    }
    println!("{passes} passes of {} ms each, in turns.\n", time.as_millis());
    print!("{}", report.targets());
    Ok(())
}
