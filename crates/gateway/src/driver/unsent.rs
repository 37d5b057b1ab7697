//! Calls that never went to the server although a commit that may be in the log claims them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use rejoin_core::effect::{Effect, ToUpstream};
use rejoin_core::id::CallId;
use rejoin_core::input::{FromUpstream, Input};

/// Calls of a session whose claim could not be committed for sure. Their POSTs were told that
/// nothing was admitted: whoever drives the session next must not take them for calls that ran.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unsent(Arc<Mutex<BTreeSet<CallId>>>);

impl Unsent {
    /// Notes the calls among effects that will not be carried out.
    pub(super) fn note(&self, effects: &[Effect]) {
        let calls = effects.iter().filter_map(|effect| match effect {
            Effect::Upstream(ToUpstream::Call { call, .. }) => Some(*call),
            _ => None,
        });
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(calls);
    }

    /// Corrects what a session is told first when it is driven again. Returns the calls it was
    /// corrected for, should that driver fail before it has committed them.
    pub(crate) fn correct(&self, first: &mut [Input]) -> Self {
        let unsent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left = BTreeSet::new();
        for input in first {
            if let Input::Upstream(event) = input
                && let FromUpstream::Lost(call) = *event
                && unsent.contains(&call)
            {
                *event = FromUpstream::NotSent(call);
                left.insert(call);
            }
        }
        Self(Arc::new(Mutex::new(left)))
    }
}
