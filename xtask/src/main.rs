//! `cargo xtask`: the checks and the tests of the workspace, the same by hand and in CI.

mod bench;
mod failure;
mod fuzz;
mod help;
mod matrix;
mod metadata;
mod mutants;
#[path = "../../crates/cli/tests/matrix/needs.rs"]
mod needs;
mod plan;
mod process_tree;
mod proofs;
mod required;
mod runner;
mod test_count;
mod tidy;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  tidy            import directions, purity of core, lengths, banned words,
                  reason pages, links, licences (seconds; builds nothing)
  test            fmt, tidy, clippy, all tests, the corpus of the fuzz targets,
                  cargo-deny when installed,
                  the wire matrix over HTTP, release build, end to end,
                  100 rounds of crash, the bridge, a quick bench, the model check, 200 seeds
                  of the simulation, the official conformance suites
  test --quick    the same up to cargo-deny: needs python3, nothing else
  matrix [stdio|fastmcp|everything]...
                  the wire matrix in front of these servers (default: all); the
                  cases that do not apply to one are named
  e2e [ARGS...]   release build, then e2e/run.py ARGS (default: --all)
  healthy [ARGS...]
                  release build, then e2e/healthy/healthy.py ARGS: stock clients,
                  10,000 calls each (--quick: 200), none refused, none held
  conformance     release build, then the official conformance suites against a
                  server of the Rust SDK: directly, through rejoin serve, and with
                  RejoinLayer; no check may be worse with Rejoin than without
  proxies [ARGS...]
                  release build, then e2e/proxies/proxies.py: a real nginx in front
                  of Rejoin and behind it (fetched by apt when it is not there)
  isolation [ARGS...]
                  release build, then e2e/proofs/isolation.py: what a second
                  principal is answered, and after how long, with another's ids
  bridge [ARGS...]
                  release build, then e2e/proofs/bridge.py: stock hosts start rejoin bridge,
                  and see nothing of what breaks behind it (--charge, --kill --calls 1000:
                  each call once), beside mcp-remote (--plain); no inversion (--order)
  soak [ARGS...]  release build, then e2e/proofs/soak.py: 10,000 sessions that
                  nobody deletes; memory, children and open files stay flat
  landscape [--write] [--only NAME...]
                  release build, then e2e/proofs/landscape.py: rejoin probe against stock
                  servers, bare and behind Rejoin: the table of docs/landscape.md (minutes)
  model [ARGS...] the model check: every reachable state of the session state machine,
                  within bounds, and what is violated without each part of the rule
                  (docs/proof.md; --write keeps its stories anew)
  mutants [FILE...] [--shard K/N]
                  changes of the rule's code, one at a time (all, or those in files below
                  crates/core/src): a test must notice each (docs/proof.md; hours)
  sim [--seeds N] [--from SEED] [--seed SEED] [--without PART]
                  the real gateway under a simulated network, disk and clock: 200 seeds,
                  or one with its log; the same seed is the same run (docs/proof.md)
  crash [ARGS...] release build, then e2e/proofs/crash.py: 100 rounds (--rounds N) of
                  calls, kill -9 and restart; nothing lost, nothing run twice
  churn [--sessions N]
                  a day of 100,000 sessions over a log in a file, in virtual time:
                  file and memory stay flat, nothing is left (minutes)
  fuzz [TARGET...] [--seconds S | --runs N | --input FILE | --keep]
                  the targets of fuzz/ under libFuzzer, 60 s each (docs/proof.md): one
                  input again, or what was grown into the corpus
  bench store [--quick]
                  figures of the log in a file, next to a raw append and sync loop
                  on the same disk in the same run (docs/performance.md)
  bench load [--quick] [--write] [--only TEXT]
                  release build, then calls and events a second through the layer and the
                  gateway, next to the bare server and a bare proxy, in turns

model, mutants, sim and fuzz have a --help of their own";

fn main() -> ExitCode {
    let owned: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = owned.iter().map(String::as_str).collect();
    let outcome = match args.as_slice() {
        [command, rest @ ..] if help::is_asked_for(command, rest) => help::print(command),
        ["tidy"] => plan::tidy(),
        ["test"] => plan::test(plan::Depth::Full),
        ["test", "--quick"] => plan::test(plan::Depth::Quick),
        ["matrix", names @ ..] => plan::matrix(names),
        ["e2e"] => plan::e2e(&["--all"]),
        ["e2e", rest @ ..] => plan::e2e(rest),
        ["healthy", rest @ ..] => proofs::healthy(rest),
        ["conformance", rest @ ..] => proofs::conformance(rest),
        ["proxies", rest @ ..] => proofs::proxies(rest),
        ["model", rest @ ..] => proofs::model(rest),
        ["mutants", files @ ..] => mutants::run(files),
        ["sim", rest @ ..] => proofs::sim(rest),
        [name @ ("isolation" | "bridge" | "soak" | "crash" | "landscape"), rest @ ..] => {
            proofs::prove(name, rest)
        }
        ["churn", rest @ ..] => proofs::churn(rest),
        ["fuzz", rest @ ..] => fuzz::run(rest),
        ["bench", rest @ ..] => bench::run(rest),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("\nxtask: FAILED: {failure}");
            ExitCode::FAILURE
        }
    }
}
