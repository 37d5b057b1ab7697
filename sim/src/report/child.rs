//! A run in a process of its own: what it prints, and what is read of that.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use rejoin_core::policy::Ablation;
use serde_json::{Value, json};

use super::name_of;
use crate::check::{self, Counts};
use crate::history::{Record, What, fingerprint, print};
use crate::world;

/// What makes a process the same every time (`src/world.c`).
const WORLD: &str = env!("REJOIN_SIM_WORLD");
/// A run that takes longer has stopped to move in virtual time.
const REAL_TIME_MAX: Duration = Duration::from_secs(120);
/// The file of the wall clock.
const CLOCK: &str = "REJOIN_SIM_CLOCK";

pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What a run, or many, came to.
#[derive(Clone, Debug, Default)]
pub struct Told {
    pub violations: Vec<String>,
    pub limits: BTreeMap<String, u64>,
    /// How often each row decided, and each reason was given.
    pub decided: BTreeMap<String, u64>,
    /// Refusals of clients that did nothing wrong, by their code.
    pub refused: BTreeMap<String, u64>,
    counts: BTreeMap<String, u64>,
}

impl Told {
    pub fn add(&mut self, other: &Self) {
        for (name, count) in &other.counts {
            *self.counts.entry(name.clone()).or_default() += count;
        }
        for (name, count) in &other.limits {
            *self.limits.entry(name.clone()).or_default() += count;
        }
        for (name, count) in &other.refused {
            *self.refused.entry(name.clone()).or_default() += count;
        }
        for (name, count) in &other.decided {
            *self.decided.entry(name.clone()).or_default() += count;
        }
    }

    pub fn summary(&self) -> String {
        let of = |name: &str| self.counts.get(name).copied().unwrap_or_default();
        format!(
            "{} askings, {} POSTs, {} executions, {} answered ({} by a record), \
             {} repeats not run, {} POSTs held, {} errors read, {} streams resumed, \
             {} notifications heard, \
             {} crashes, {} drains, {} logs lost, {:.1} h of virtual time",
            of("askings"),
            of("posts"),
            of("executions"),
            of("answered"),
            of("recorded"),
            of("repeats"),
            of("waited"),
            of("refused"),
            of("resumed"),
            of("heard"),
            of("crashes"),
            of("drains"),
            of("ledgers_lost"),
            of("virtual_ms") as f64 / 3_600_000.0,
        )
    }

    fn read(text: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        let numbers = |value: &Value| {
            let all = value.as_object()?.iter();
            Some(all.filter_map(|(k, v)| Some((k.clone(), v.as_u64()?))).collect())
        };
        let violations = value["violations"].as_array()?.iter();
        Some(Self {
            violations: violations.filter_map(|v| v.as_str().map(str::to_owned)).collect(),
            limits: numbers(&value["limits"])?,
            decided: numbers(&value["decided"])?,
            refused: numbers(&value["refused"])?,
            counts: numbers(&value["counts"])?,
        })
    }
}

/// Runs a seed here.
///
/// # Errors
/// If it cannot be run.
pub fn serve(seed: u64, without: Ablation, with_log: bool) -> Result<(), Failure> {
    std::thread::spawn(|| {
        std::thread::sleep(REAL_TIME_MAX);
        eprintln!("the run does not come to an end: something happens without end at one moment");
        std::process::exit(3);
    });
    let clock = std::env::var_os(CLOCK).map(|path| OpenOptions::new().write(true).open(path));
    let run = world::run(seed, without, clock.transpose()?);
    let (plan, records) = run.map_err(|error| error.to_string())?;
    let log = print(&records);
    if with_log {
        print!("{log}");
        return Ok(());
    }
    let verdict = check::check(&plan, &records);
    let mut limits = BTreeMap::new();
    for limit in &verdict.limits {
        *limits.entry(*limit).or_insert(0) += 1;
    }
    let told: Vec<_> = verdict
        .violations
        .iter()
        .map(|v| format!("at {} ms: {}: {}", v.at_ms, v.property, v.what))
        .collect();
    let Counts {
        askings,
        posts,
        executions,
        answered,
        recorded,
        refused,
        repeats,
        waited,
        resumed,
        crashes,
        drains,
        ledgers_lost,
        heard,
        virtual_ms,
    } = verdict.counts;
    let counts = json!({
        "askings": askings, "posts": posts, "executions": executions, "answered": answered,
        "recorded": recorded, "refused": refused, "repeats": repeats, "waited": waited,
        "resumed": resumed, "crashes": crashes,
        "drains": drains, "ledgers_lost": ledgers_lost, "heard": heard,
        "virtual_ms": virtual_ms,
    });
    let log = format!("{:016x}", fingerprint(&log));
    let (mut decided, refused) = (decided(&records), verdict.refused);
    decided.extend(verdict.rows.iter().map(|(row, count)| ((*row).to_owned(), *count)));
    let all = json!({
        "violations": told, "limits": limits, "decided": decided, "refused": refused,
        "counts": counts, "log": log
    });
    println!("{all}");
    Ok(())
}

/// What the gateway's log says of its decisions: the row, its verdict, and the reason of a refusal.
fn decided(records: &[Record]) -> BTreeMap<String, u64> {
    let mut decided = BTreeMap::new();
    for Record { what, .. } in records {
        let What::Gateway(line) = what else { continue };
        if !line.contains(" decided ") {
            continue;
        }
        let of = |name: &str| line.split_whitespace().find_map(|word| word.strip_prefix(name));
        let (row, verdict) = (of("row=").unwrap_or("?"), of("verdict=").unwrap_or("?"));
        let verdict = verdict.trim_matches('"');
        *decided.entry(format!("row {row:0>2} {verdict}")).or_insert(0) += 1;
        if let Some(reason) = of("reason=") {
            *decided.entry(format!("reason {}", reason.trim_matches('"'))).or_insert(0) += 1;
        }
    }
    decided
}

/// Runs a seed in another process.
///
/// # Errors
/// If it cannot be run.
pub fn run(seed: u64, without: Ablation) -> Result<Told, Failure> {
    let output = start(seed, without, "checks", true)?;
    let text = String::from_utf8_lossy(&output.stdout);
    Told::read(&text).ok_or_else(|| {
        let said = String::from_utf8_lossy(&output.stderr);
        format!("seed {seed} ended with {} and says {text:?} {said}", output.status).into()
    })
}

/// The log of a seed; `fixed`: with the seed's randomness and clock.
///
/// # Errors
/// If it cannot be run.
pub fn log(seed: u64, without: Ablation, fixed: bool) -> Result<String, Failure> {
    let output = start(seed, without, "log", fixed)?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn start(seed: u64, without: Ablation, wanted: &str, fixed: bool) -> io::Result<Output> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--inside", wanted, "--seed", &seed.to_string()]);
    if let Some(name) = name_of(without) {
        command.args(["--without", name]);
    }
    let clock = Clock::new(seed, wanted)?;
    if fixed {
        command.env("LD_PRELOAD", WORLD);
        command.env("REJOIN_SIM_SEED", seed.to_string()).env(CLOCK, &clock.0);
    }
    command.output()
}

/// The file of a process's wall clock.
struct Clock(PathBuf);

impl Clock {
    fn new(seed: u64, wanted: &str) -> io::Result<Self> {
        let name = format!("rejoin-sim-{}-{seed}-{wanted}", std::process::id());
        let path = std::env::temp_dir().join(name);
        File::create(&path)?.set_len(8)?;
        Ok(Self(path))
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        // A file that stays in the temporary folder does no harm.
        let _removed = std::fs::remove_file(&self.0).is_ok();
    }
}
