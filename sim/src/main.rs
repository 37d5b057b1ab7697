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

/// Also what `cargo xtask sim --help` prints.
const USAGE: &str = include_str!("usage.txt");

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match report::Wanted::parse(&args) {
        Some(wanted) => report::run(&wanted),
        None => {
            eprint!("{USAGE}");
            ExitCode::from(2)
        }
    }
}
