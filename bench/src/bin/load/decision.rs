//! What one decision costs: measured by `benches/decision.rs`, read from where criterion left it.

use std::path::Path;

use rejoin_bench::DECISION_CALLS;
use serde_json::Value;

/// The median in nanoseconds for each number of calls; `None`: it was not measured.
pub(crate) fn known() -> [(u64, Option<f64>); 3] {
    DECISION_CALLS.map(|calls| (calls, median_ns(calls)))
}

fn median_ns(calls: u64) -> Option<f64> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/criterion/decision");
    let file = folder.join(calls.to_string()).join("new/estimates.json");
    let estimates: Value = serde_json::from_slice(&std::fs::read(file).ok()?).ok()?;
    estimates.get("median")?.get("point_estimate")?.as_f64()
}
