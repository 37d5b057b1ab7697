//! `cargo xtask bench`: figures, by the programs of the workspace in `bench/`.

use std::time::Duration;

use crate::failure::Failure;
use crate::metadata::{cargo, workspace_root};
use crate::plan;
use crate::proofs::build_apart;
use crate::runner::{Runner, print_lines, tail};

/// What can be measured.
const NAMES: [&str; 2] = ["store", "load"];
/// Nothing is measured for longer.
const TIME_MAX: Duration = Duration::from_secs(45 * 60);
/// Lines of the log that are shown when it passed: the machine and the tables.
const LINES_MAX: usize = 320;

/// Builds the programs, then runs one: `NAME [--quick]`, `load [--write] [--only TEXT]`.
pub(crate) fn run(args: &[&str]) -> Result<(), Failure> {
    let (name, rest) = named(args)?;
    let mut runner = plan::runner()?;
    if name == "load" {
        // The gateway that is measured; the server and the proxy next to it are of `bench/`.
        plan::build(&mut runner)?;
    }
    if name == "load" {
        decision(&mut runner)?;
    }
    steps(&mut runner, name, rest)?;
    runner.print_summary();
    Ok(())
}

/// What one decision costs; the report of `load` reads what criterion leaves.
fn decision(runner: &mut Runner) -> Result<(), Failure> {
    let mut program = cargo();
    program.current_dir(workspace_root().join("bench"));
    program.args(["bench", "--locked", "--bench", "decision"]);
    runner.command("bench-decision", program, TIME_MAX, |_| Ok(String::new()))
}

/// As [`run`], as a part of a longer run.
pub(crate) fn steps(runner: &mut Runner, name: &str, args: &[&str]) -> Result<(), Failure> {
    let features: &[&str] = if name == "load" { &["--features", "load"] } else { &[] };
    build_apart(runner, "bench-build", "bench", &[&["--release"], features].concat())?;
    let mut program = cargo();
    program.current_dir(workspace_root().join("bench"));
    program.args(["run", "--quiet", "--locked", "--release"]).args(features);
    program.args(["--bin", name, "--"]).args(args);
    runner.command(&format!("bench-{name}"), program, TIME_MAX, |log| {
        print_lines(&tail(log, LINES_MAX));
        Ok(String::new())
    })
}

fn named<'a>(args: &'a [&'a str]) -> Result<(&'a str, &'a [&'a str]), Failure> {
    let known = NAMES.join(", ");
    match args.split_first() {
        Some((name, rest)) if NAMES.contains(name) => Ok((*name, rest)),
        Some((name, _)) => {
            Err(Failure::new(format!("no bench is called {name:?}: there is {known}")))
        }
        None => Err(Failure::new(format!("bench needs the name of one: there is {known}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_refused_with_those_that_there_are() {
        assert_eq!(named(&["store", "--quick"]).unwrap(), ("store", &["--quick"][..]));
        let unknown = named(&["stores"]).unwrap_err().to_string();
        assert_eq!(unknown, "no bench is called \"stores\": there is store, load");
        assert!(named(&[]).unwrap_err().to_string().ends_with("there is store, load"));
    }
}
