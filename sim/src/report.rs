//! Many seeds, each in a process of its own, and what is said of them.

mod child;

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use rejoin_core::policy::Ablation;

use self::child::{Failure, Told};

/// Seeds at the same time.
const AT_ONCE: usize = 2;
/// Seeds that are run twice, to see that they are the same.
const TWICE: u64 = 4;
/// Violations that are told of one run over many seeds.
const TOLD_MAX: usize = 20;
const SEEDS: u64 = 200;
/// Seeds, at least, in which a violation is searched that must be there.
const SEARCHED: u64 = 2_000;

/// What must be decided in so many seeds.
const DECIDED: [&str; 27] = [
    "row 01 pass",
    "row 02 reject",
    "row 03 reject",
    "row 04 attach",
    "row 05 record",
    "row 06 supersede",
    "row 07 reject",
    "row 08 reject",
    "row 09 join",
    "row 09 reject",
    "row 10 reject",
    "row 11 collect",
    "row 11 reject",
    "row 12 admit",
    "row 13 reject",
    "row 14 probe",
    "row 15 wait",
    "row 16 hold",
    "row 17 reject",
    "row 18 claim",
    "reason dedup_token_reused",
    "reason not_idempotent",
    "reason outcome_unknown",
    "reason replay_in_progress",
    "reason request_in_flight",
    "reason state_lost",
    "reason stream_not_drained",
];

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    seeds: u64,
    from: u64,
    /// This one, with its log.
    seed: Option<u64>,
    /// In this process, for the one that started it; true: with its log.
    inside: Option<bool>,
    without: Ablation,
}

impl Wanted {
    /// `None`: it cannot be understood.
    pub fn parse(args: &[String]) -> Option<Self> {
        let mut wanted =
            Self { seeds: SEEDS, from: 1, seed: None, inside: None, without: Ablation::Nothing };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--inside" => wanted.inside = Some(args.next()? == "log"),
                "--seeds" => wanted.seeds = args.next()?.parse().ok().filter(|seeds| *seeds > 0)?,
                "--from" => wanted.from = args.next()?.parse().ok()?,
                "--seed" => wanted.seed = Some(args.next()?.parse().ok()?),
                "--without" => wanted.without = ablation(args.next()?)?,
                _ => return None,
            }
        }
        Some(wanted)
    }
}

const PARTS: [(&str, Ablation); 4] = [
    ("drained", Ablation::Drained),
    ("quiet", Ablation::Quiet),
    ("safe", Ablation::SafeToRepeat),
    ("ordered", Ablation::Ordered),
];

fn ablation(name: &str) -> Option<Ablation> {
    PARTS.iter().find(|(known, _)| *known == name).map(|(_, part)| *part)
}

fn name_of(without: Ablation) -> Option<&'static str> {
    PARTS.iter().find(|(_, part)| *part == without).map(|(name, _)| *name)
}

/// Does it.
pub fn run(wanted: &Wanted) -> ExitCode {
    let done = match (wanted.inside, wanted.seed) {
        (Some(with_log), Some(seed)) => child::serve(seed, wanted.without, with_log).map(|()| true),
        (_, Some(seed)) => one(seed, wanted.without),
        (_, None) => many(wanted),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("the simulation could not be run: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn one(seed: u64, without: Ablation) -> Result<bool, Failure> {
    print!("{}", child::log(seed, without, true)?);
    let told = child::run(seed, without)?;
    tell(seed, &told, without);
    println!("seed {seed}: {}", told.summary());
    Ok(told.violations.is_empty())
}

/// A seed is the same run every time, and would not be without what makes it so.
fn same(from: u64) -> Result<bool, Failure> {
    for seed in from..from + TWICE {
        let (first, second) = (
            child::log(seed, Ablation::Nothing, true)?,
            child::log(seed, Ablation::Nothing, true)?,
        );
        if first != second {
            let line = first.lines().zip(second.lines()).position(|(a, b)| a != b);
            println!("seed {seed} is not the same twice, from line {line:?} on");
            return Ok(false);
        }
    }
    let (first, second) =
        (child::log(from, Ablation::Nothing, false)?, child::log(from, Ablation::Nothing, false)?);
    if first == second {
        println!("seed {from} is the same twice even with the system's own randomness");
        return Ok(false);
    }
    println!("{TWICE} seeds twice: the same logs, byte for byte; another log without the seed's");
    println!("randomness and clock");
    Ok(true)
}

fn many(wanted: &Wanted) -> Result<bool, Failure> {
    if !same(wanted.from)? {
        return Ok(false);
    }
    if wanted.without != Ablation::Nothing {
        return without(wanted);
    }
    let all = sweep(wanted.from, wanted.seeds, Ablation::Nothing, false)?;
    all.print();
    let mut is_good = all.violated == 0;
    // What is never played proves nothing: a gateway that holds nothing at all is found by this.
    for what in DECIDED.iter().filter(|_| wanted.seeds >= SEEDS) {
        if !all.told.decided.contains_key(*what) {
            println!("never decided in {} seeds: {what}", wanted.seeds);
            is_good = false;
        }
    }
    // The checkers see what each condition is for.
    for (name, part) in PARTS {
        let seeds = wanted.seeds.max(SEARCHED);
        let seen = sweep(wanted.from, seeds, part, true)?;
        match seen.first {
            Some(seed) => println!("without {name}: violated, first seen with seed {seed}"),
            None => {
                println!("without {name}: no violation in {seeds} seeds");
                is_good = false;
            }
        }
    }
    Ok(is_good)
}

fn without(wanted: &Wanted) -> Result<bool, Failure> {
    let all = sweep(wanted.from, wanted.seeds, wanted.without, false)?;
    all.print();
    Ok(all.violated > 0)
}

/// What many seeds came to.
#[derive(Debug, Default)]
struct Sum {
    seeds: u64,
    violated: u64,
    /// The lowest seed with a violation.
    first: Option<u64>,
    told: Told,
    real_ms: u128,
}

impl Sum {
    fn print(&self) {
        let Self { seeds, violated, told, real_ms, .. } = self;
        println!("{seeds} seeds in {:.1} s: {}", *real_ms as f64 / 1_000.0, told.summary());
        for (limit, count) in &told.limits {
            println!("  beyond what a server can know (docs/proof.md): {limit}: {count}");
        }
        let decided: Vec<_> =
            told.decided.iter().map(|(what, count)| format!("{what}: {count}")).collect();
        println!("  decided: {}", decided.join(", "));
        let refused: Vec<_> =
            told.refused.iter().map(|(code, count)| format!("{code}: {count}")).collect();
        println!("  refusals of clients that did nothing wrong: {}", refused.join(", "));
        println!("  seeds with violations: {violated}");
    }
}

fn sweep(from: u64, seeds: u64, without: Ablation, until_first: bool) -> Result<Sum, Failure> {
    let (next, is_over) = (AtomicU64::new(from), AtomicBool::new(false));
    let sum = Mutex::new(Ok(Sum::default()));
    let began = Instant::now();
    let work = || {
        while !is_over.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= from + seeds {
                return;
            }
            let told = child::run(seed, without);
            let mut sum = sum.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let (Ok(sum), Ok(told)) = (sum.as_mut(), &told) else {
                if let Err(failure) = told {
                    *sum = Err(failure);
                }
                return is_over.store(true, Ordering::Relaxed);
            };
            sum.seeds += 1;
            if !told.violations.is_empty() {
                sum.violated += 1;
                sum.first = Some(sum.first.map_or(seed, |first| first.min(seed)));
                is_over.store(until_first, Ordering::Relaxed);
                if !until_first && sum.violated <= TOLD_MAX as u64 {
                    tell(seed, told, without);
                }
            }
            sum.told.add(told);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(work);
        }
    });
    let mut sum = sum.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)?;
    sum.real_ms = began.elapsed().as_millis();
    Ok(sum)
}

fn tell(seed: u64, told: &Told, without: Ablation) {
    for violation in &told.violations {
        println!("VIOLATED  seed {seed}  {violation}");
    }
    if !told.violations.is_empty() {
        let part = name_of(without).map(|name| format!(" --without {name}")).unwrap_or_default();
        println!("          its log: cargo xtask sim --seed {seed}{part}");
    }
}
