//! The rest of an answer that was cut: what must come, and what came.

use serde_json::Value;

use crate::hazard::Seen;
use crate::reading::{Reading, Step};
use crate::subject::{Call, Subject};

/// What came of the rest of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tail {
    /// How many steps were owed.
    pub(crate) owed: usize,
    /// Steps of them that never came.
    pub(crate) lost: usize,
    /// Steps that came although they had come before, or that came twice.
    pub(crate) again: usize,
    /// Steps that came after a later one.
    pub(crate) disorder: usize,
    /// Messages that belong to another call.
    pub(crate) foreign: usize,
    /// Responses of this call.
    pub(crate) responses: usize,
    /// How the last reading ended, in words.
    pub(crate) ending: String,
    refused: Option<u16>,
}

impl Tail {
    /// Compares what was read before a cut and after it with an undisturbed call.
    pub(crate) fn of(subject: &Subject, call: &Call, before: &Reading, after: &[&Reading]) -> Self {
        let own = |reading: &Reading| -> Vec<f64> {
            let steps = reading.steps().into_iter().filter(|step| step.token == call.token);
            steps.map(|step: Step| step.progress).collect()
        };
        let had = own(before);
        let came: Vec<f64> = after.iter().flat_map(|reading| own(reading)).collect();
        let owed = subject.steps.iter().filter(|step| !had.contains(step));
        let (mut again, mut disorder) = (0, 0);
        for (at, step) in came.iter().enumerate() {
            if had.contains(step) || came[..at].contains(step) {
                again += 1;
            } else if came[..at].iter().any(|earlier| earlier > step) {
                disorder += 1;
            }
        }
        let lost = owed.clone().filter(|step| !came.contains(step)).count();
        let last = after.last();
        Self {
            owed: owed.count(),
            lost: if subject.steady { lost } else { 0 },
            again,
            disorder,
            foreign: after.iter().map(|reading| reading.foreign(call)).sum(),
            responses: after.iter().map(|reading| reading.responses(&call.id).count()).sum(),
            ending: last.map(|reading| reading.ending()).unwrap_or_default(),
            refused: last.map(|reading| reading.status).filter(|status| *status != 200),
        }
    }

    /// What is wrong with it; empty if nothing is.
    pub(crate) fn faults(&self) -> String {
        let mut faults = Vec::new();
        if let (Some(status), 0) = (self.refused, self.responses) {
            faults.push(format!("refused with {status}: the rest of the answer cannot be had"));
        } else {
            if self.lost > 0 {
                faults.push(format!("{} of {} events lost", self.lost, self.owed));
            }
            if self.responses == 0 {
                faults.push(format!("no response ({})", self.ending));
            }
        }
        if self.responses > 1 {
            faults.push(format!("{} responses", self.responses));
        }
        if self.again > 0 {
            faults.push(format!("{} events twice", self.again));
        }
        if self.disorder > 0 {
            faults.push(format!("{} events out of order", self.disorder));
        }
        if self.foreign > 0 {
            faults.push(format!("{} messages of other calls", self.foreign));
        }
        faults.join(", ")
    }

    /// What that means.
    pub(crate) fn seen(&self) -> Seen {
        let faults = self.faults();
        if self.foreign > 0 {
            return Seen::violation("RES-6", faults);
        }
        if faults.is_empty() {
            let owed = self.owed;
            return Seen::safe(format!("all {owed} events and the response, in order"));
        }
        Seen::hazard(faults)
    }

    /// The worst of several trials, with how many were bad.
    pub(crate) fn worst(tails: &[Self]) -> Seen {
        let bad: Vec<&Self> = tails.iter().filter(|tail| !tail.faults().is_empty()).collect();
        let severity = |tail: &&&Self| (tail.foreign, tail.responses == 0, tail.lost, tail.again);
        let Some(worst) = bad.iter().max_by_key(severity) else {
            let owed = tails.iter().map(|tail| tail.owed).max().unwrap_or_default();
            let trials = tails.len();
            return Seen::safe(format!("{trials} of {trials} trials whole, up to {owed} events"));
        };
        let seen = worst.seen();
        Seen::new(
            seen.verdict,
            format!("{} of {} trials bad; the worst: {}", bad.len(), tails.len(), seen.seen),
        )
    }
}

/// A result without what only describes it, to compare two.
pub(crate) fn bare(result: &Value) -> Value {
    let mut result = result.clone();
    if let Some(members) = result.as_object_mut() {
        members.remove("_meta");
    }
    result
}
