//! The deterministic simulation of Rejoin: `cargo xtask sim`, docs/proof.md.

mod check;
mod child;
mod client;
mod disk;
mod history;
mod host;
mod log;
mod net;
mod plan;
mod random;
mod report;
mod tool;
mod web;
mod world;

use std::process::ExitCode;

const USAGE: &str = "\
usage: rejoin-sim [--seeds N] [--from SEED] [--without PART]
       rejoin-sim --seed SEED [--without PART]

  --seeds N       so many seeds (200), after it was shown that a seed is always the same run
  --from SEED     the first of them (1)
  --seed SEED     this one alone, with its log
  --without PART  of the rule: drained, quiet, safe, ordered; violations are expected";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match report::Wanted::parse(&args) {
        Some(wanted) => report::run(&wanted),
        None => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}
