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

const USAGE: &str = "\
usage: rejoin-model [--write] [--large] [--only TEXT] [--states N]

  --write      write the stories (model/stories) anew instead of comparing them
  --large      also the spaces that take minutes each
  --only TEXT  only the searches whose line contains TEXT
  --states N   at most N states generated in a search";

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
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    }
    if report::run(&wanted) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
