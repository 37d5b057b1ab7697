//! `charge`: the tool with an effect. Every execution counts, and every one can be told apart.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::message::Failure;
use super::tools::{Execution, Outcome, Progress, ToolResult, check_max, parse_arguments};

/// Most progress events of one execution.
const EVENTS_MAX: u64 = 10_000_000;

/// Longest pause before an event: one hour.
const INTERVAL_MS_MAX: u64 = 3_600_000;

/// Longest message of one event, and longest padding of a result.
const BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Pause before an event unless the call says otherwise.
const INTERVAL_MS_DEFAULT: u64 = 50;

/// The arguments of `charge`.
#[derive(Debug, Deserialize)]
pub(super) struct Charge {
    amount: i64,
    #[serde(default)]
    events: u64,
    #[serde(default = "interval_ms_default")]
    interval_ms: u64,
    #[serde(default)]
    event_bytes: u64,
    #[serde(default)]
    ignore_cancel: bool,
    #[serde(default)]
    result_bytes: u64,
    #[serde(default)]
    crash_after: Option<u64>,
    #[serde(default)]
    fail: bool,
}

fn interval_ms_default() -> u64 {
    INTERVAL_MS_DEFAULT
}

impl Charge {
    /// The arguments, if they fit.
    pub(super) fn parse(arguments: &RawValue) -> Result<Self, Failure> {
        let charge: Self = parse_arguments("charge", arguments)?;
        check_max("charge", "events", charge.events, EVENTS_MAX)?;
        check_max("charge", "interval_ms", charge.interval_ms, INTERVAL_MS_MAX)?;
        check_max("charge", "event_bytes", charge.event_bytes, BYTES_MAX)?;
        check_max("charge", "result_bytes", charge.result_bytes, BYTES_MAX)?;
        Ok(charge)
    }

    /// Charges: events, then the result.
    pub(super) fn run(&self, execution: &Execution) -> Outcome {
        let number = execution.server.memory.charges.fetch_add(1, Ordering::Relaxed) + 1;
        if self.crash_after == Some(0) {
            execution.crash();
        }
        let mut line = Vec::new();
        for event in 1..=self.events {
            if self.pause(execution) {
                return Outcome::Silence;
            }
            let message_bytes = usize::try_from(self.event_bytes).unwrap_or(usize::MAX);
            let step = Progress { number: event, total: self.events, message_bytes };
            execution.progress(&mut line, &step, self.interval_ms == 0);
            if self.crash_after == Some(event) {
                execution.crash();
            }
        }
        if self.stops(execution.call.is_cancelled()) {
            return Outcome::Silence;
        }
        Outcome::Result(self.result(number))
    }

    /// Waits before an event; says whether the call is to stop.
    fn pause(&self, execution: &Execution) -> bool {
        let interval = Duration::from_millis(self.interval_ms);
        if self.ignore_cancel {
            if !interval.is_zero() {
                std::thread::sleep(interval);
            }
            return false;
        }
        if interval.is_zero() {
            execution.call.is_cancelled()
        } else {
            execution.call.wait(interval)
        }
    }

    fn stops(&self, cancelled: bool) -> bool {
        cancelled && !self.ignore_cancel
    }

    fn result(&self, number: u64) -> ToolResult {
        let amount = self.amount;
        let result = if self.fail {
            ToolResult::error(format!("could not charge {amount} (execution {number})"))
        } else {
            ToolResult::text(format!("charged {amount} (execution {number})"))
        };
        let result = result.structured(&json!({ "amount": amount, "execution": number }));
        match usize::try_from(self.result_bytes) {
            Ok(0) | Err(_) => result,
            Ok(bytes) => result.and_text(".".repeat(bytes)),
        }
    }
}
