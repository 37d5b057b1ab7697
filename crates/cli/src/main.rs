//! The `rejoin` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    rejoin::run()
}
