//! `cargo xtask bench load`: what Rejoin costs, next to the same server without it and to a proxy
//! that looks at nothing. All contestants take turns in one run; servers have one core, the
//! generator the other, and every answer is looked at.

mod contestant;
mod decision;
mod options;
mod report;
mod wire;
mod workload;

use std::process::ExitCode;

use rejoin_bench::{Failure, describe};

use contestant::{Contestant, Kind};
use options::Options;
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
    let options = Options::from_arguments()?;
    let (passes, time) = options.passes();
    let directory = tempfile::tempdir()?;
    let machine = describe(directory.path())?;
    println!("{machine}");
    contestant::keep_off_their_core()?;
    let mut report = Report::default();
    let mut page = machine;
    let is_wanted = |workload: &Workload| {
        options.only.as_ref().is_none_or(|only| workload.name().contains(only))
    };
    for workload in Workload::ALL.into_iter().filter(is_wanted) {
        for pass in 0..workload.passes(passes, options.length) {
            let mut contestants = Kind::all(workload);
            let turn = pass % contestants.len();
            contestants.rotate_left(turn);
            for kind in contestants {
                let mut contestant = Contestant::start(kind, directory.path())?;
                match workload.run(&mut contestant, (time, options.length)).await {
                    Ok(pass) => report.add(workload, kind, &pass, contestant.resident_bytes()?),
                    Err(error) if kind.is_own() => {
                        let (kind, workload) = (kind.name(), workload.name());
                        return Err(format!("{kind}, {workload}: {error}").into());
                    }
                    Err(error) => report.add_failure(workload, kind, error.to_string()),
                }
            }
        }
        let table = report.of(workload);
        println!("{table}");
        page += &format!("\n{table}");
    }
    println!("Up to {passes} passes of {} ms each, in turns.\n", time.as_millis());
    let targets = report::targets(&report);
    print!("{targets}");
    if options.write {
        page += &format!("\n```\n{targets}```\n");
        report::write(&page, &report.chart())?;
    }
    Ok(())
}
