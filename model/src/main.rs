//! The model check of Rejoin's rule: `cargo xtask model`, docs/proof.md.

mod action;
mod agree;
mod catalogue;
mod config;
mod exchange;
mod fault;
mod feed;
mod look;
mod model;
mod necessity;
mod property;
mod report;
mod search;
mod sound;
mod step;
mod store;
mod story;
mod time;
mod world;

use std::process::ExitCode;

/// Which `cargo xtask model --help` prints without building this.
const USAGE: &str = include_str!("../usage.txt");

fn main() -> ExitCode {
    let mut wanted = report::Wanted::default();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let is_flag = arg == "--write" || arg == "--large";
        let value = if is_flag { Some(String::new()) } else { args.next() };
        let is_good = match (arg.as_str(), value) {
            ("--write", _) => {
                wanted.write = true;
                true
            }
            ("--large", _) => {
                wanted.large = true;
                true
            }
            ("--only", Some(text)) => {
                wanted.only = text;
                true
            }
            ("--states", Some(number)) => {
                number.parse().map(|number| wanted.states_max = number).is_ok()
            }
            _ => false,
        };
        if !is_good {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    }
    if report::run(&wanted) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
