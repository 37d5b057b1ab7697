//! The baseline: what this disk can do.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use rejoin_bench::Failure;

use crate::Pass;

/// What the baseline is called.
pub(crate) const RAW: &str = "raw: append 4 KiB and fdatasync";
/// A page: no commit writes less.
const BYTES: usize = 4_096;

/// Appends and syncs, again and again.
pub(crate) fn run(directory: &Path, time: Duration) -> Result<Pass, Failure> {
    let path = directory.join("raw");
    let (mut file, page) = (File::create(&path)?, [b'x'; BYTES]);
    let (began, mut latencies) = (Instant::now(), Vec::new());
    while began.elapsed() < time {
        let at = Instant::now();
        file.write_all(&page)?;
        file.sync_data()?;
        latencies.push(at.elapsed());
    }
    let pass = Pass::new(began.elapsed(), latencies);
    std::fs::remove_file(path)?;
    Ok(pass)
}
