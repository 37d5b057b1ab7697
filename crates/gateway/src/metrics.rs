//! Prometheus metrics. Every label has a fixed set of values.

mod health;
mod ledger;

use std::fmt;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Metric, Registry, Unit};

use crate::passthrough::PassedEnd;
pub(crate) use ledger::CountedStore;

/// First bucket of waiting times, in seconds; each of the others is twice the one before.
const HELD_SECONDS_FIRST: f64 = 0.005;
/// Buckets of waiting times: up to 20 s.
const HELD_SECONDS_BUCKETS: u16 = 13;

/// Labels of `rejoin_posts_total`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Decision {
    /// What was decided.
    pub(crate) verdict: &'static str,
    /// Why it was refused; empty if it was not.
    pub(crate) reason: &'static str,
}

/// Label of `rejoin_evictions_total`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Eviction {
    /// `true` if a client was still owed what was dropped.
    pub(crate) owed: &'static str,
}

/// Label of `rejoin_streams`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct State {
    /// Name of the state.
    pub(crate) state: &'static str,
}

/// Label of `rejoin_log_bytes`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Place {
    /// `counted` (as the quotas count), `memory`, `spilled`.
    pub(crate) place: &'static str,
}

/// Label of `rejoin_passed_exchanges_total`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Ended {
    /// Name of the end.
    pub(crate) ended: &'static str,
}

/// All metrics of a gateway.
pub(crate) struct Metrics {
    registry: Registry,
    pub(crate) posts: Family<Decision, Counter>,
    pub(crate) executions: Counter,
    pub(crate) repeats_prevented: Counter,
    pub(crate) held_seconds: Histogram,
    pub(crate) events_owed: Gauge,
    pub(crate) events_replayed: Counter,
    pub(crate) evictions: Family<Eviction, Counter>,
    pub(crate) evicted_bytes: Family<Eviction, Counter>,
    pub(crate) streams: Family<State, Gauge>,
    pub(crate) unknown_outcomes: Counter,
    pub(crate) sessions: Gauge,
    pub(crate) sessions_refused: Counter,
    pub(crate) connections: Gauge,
    pub(crate) log_bytes: Family<Place, Gauge<u64, AtomicU64>>,
    pub(crate) tokens: Gauge<u64, AtomicU64>,
    pub(crate) upstream_restarts: Counter,
    pub(crate) passed_exchanges: Family<Ended, Counter>,
    pub(crate) passed_exchanges_running: Gauge,
}

/// The text of the metrics could not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the metrics could not be written")]
pub(crate) struct EncodeError(#[from] fmt::Error);

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("rejoin");
        let r = &mut registry;
        let buckets = exponential_buckets(HELD_SECONDS_FIRST, 2.0, HELD_SECONDS_BUCKETS);
        let held_seconds = Histogram::new(buckets);
        r.register_with_unit(
            "held",
            "How long POSTs waited before they were admitted or refused",
            Unit::Seconds,
            held_seconds.clone(),
        );
        let metrics = Self {
            posts: add(r, "posts", "Requests by what was decided at last, and why"),
            executions: add(r, "executions", "Calls that were sent to a server"),
            repeats_prevented: add(r, "repeats_prevented", "Repeats that did not run again"),
            held_seconds,
            events_owed: add(r, "events_owed", "Unconfirmed events of owed and abandoned streams"),
            events_replayed: add(r, "events_replayed", "Unconfirmed events sent again by a GET"),
            evictions: add(r, "evictions", "Evictions from the log"),
            evicted_bytes: add(r, "evicted_bytes", "Bytes evicted from the log"),
            streams: add(r, "streams", "Call streams that are not settled, by state"),
            unknown_outcomes: add(r, "unknown_outcomes", "Calls whose outcome nobody knows"),
            sessions: add(r, "sessions", "Sessions"),
            sessions_refused: add(r, "sessions_refused", "Sessions refused with 503"),
            connections: add(r, "connections", "HTTP connections of clients"),
            log_bytes: add(r, "log_bytes", "Bytes of the log, by where they are"),
            tokens: add(r, "tokens", "Dedup tokens known, tombstones included"),
            upstream_restarts: add(r, "upstream_restarts", "Times a server was opened again"),
            passed_exchanges: add(r, "passed_exchanges", "Passed exchanges, by how they ended"),
            passed_exchanges_running: add(
                r,
                "passed_exchanges_running",
                "Exchanges that are passed through now",
            ),
            registry,
        };
        // What has not happened yet is 0, not absent.
        for owed in ["true", "false"] {
            drop(metrics.evictions.get_or_create(&Eviction { owed }));
            drop(metrics.evicted_bytes.get_or_create(&Eviction { owed }));
        }
        for state in ["held", "live", "ending", "owed", "abandoned", "doubtful"] {
            drop(metrics.streams.get_or_create(&State { state }));
        }
        for end in PassedEnd::ALL {
            drop(metrics.passed_exchanges.get_or_create(&Ended { ended: end.name() }));
        }
        metrics
    }

    /// All metrics in the OpenMetrics text format.
    ///
    /// # Errors
    /// If a metric cannot be written as text.
    pub(crate) fn text(&self) -> Result<String, EncodeError> {
        let mut text = String::new();
        text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

fn add<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_names_every_metric_with_its_labels() -> Result<(), EncodeError> {
        let metrics = Metrics::new();
        let refused = Decision { verdict: "reject", reason: "request_in_flight" };
        metrics.posts.get_or_create(&refused).inc();
        metrics.held_seconds.observe(0.3);
        metrics.evictions.get_or_create(&Eviction { owed: "true" }).inc();
        metrics.streams.get_or_create(&State { state: "owed" }).inc();
        let text = metrics.text()?;
        for line in [
            "rejoin_posts_total{verdict=\"reject\",reason=\"request_in_flight\"} 1",
            "rejoin_executions_total 0",
            "rejoin_repeats_prevented_total 0",
            "rejoin_held_seconds_count 1",
            "rejoin_events_owed 0",
            "rejoin_events_replayed_total 0",
            "rejoin_evictions_total{owed=\"true\"} 1",
            "rejoin_streams{state=\"owed\"} 1",
            "rejoin_unknown_outcomes_total 0",
            "rejoin_sessions 0",
            "rejoin_connections 0",
            "rejoin_upstream_restarts_total 0",
            "rejoin_passed_exchanges_total{ended=\"client_left\"} 0",
            "rejoin_passed_exchanges_running 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
        }
        Ok(())
    }
}
