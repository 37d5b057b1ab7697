//! What an operator chooses (design sections 3, 5 and 8).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::limits::Limits;

/// What a repeat by params gets (design section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnRepeat {
    /// The recorded response, once the first stream is abandoned or doubtful.
    #[default]
    Collect,
    /// An open stream at once that ends with the recorded response.
    Join,
    /// A refusal.
    Reject,
}

/// What counts as delivered (design section 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// An answer that the peer's kernel acknowledged is presumed delivered.
    #[default]
    Presumed,
    /// Only the client's own evidence counts; `presumed` counts as `doubtful`.
    Proved,
}

/// Where the original of a repeat by params is looked up (design section 2, "repeat").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RepeatScope {
    /// In the session of the POST.
    #[default]
    Session,
    /// In all sessions of its principal: a client that starts a new session and repeats a call
    /// there does not run it twice.
    Principal,
}

/// All that shapes decisions, besides the state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Limits.
    pub limits: Limits,
    /// What a repeat by params gets.
    pub on_repeat: OnRepeat,
    /// Where the original of a repeat by params is looked up.
    pub repeat_scope: RepeatScope,
    /// What counts as delivered.
    pub delivery: Delivery,
    /// Tools that the operator declares idempotent.
    pub idempotent_tools: BTreeSet<String>,
    /// True if the tool annotations of the upstream are trusted.
    pub trust_annotations: bool,
    /// True if the upstream keeps no state worth mentioning after a restart
    /// (`upstream_state = "none"`): `state_lost` is never told.
    pub upstream_is_stateless: bool,
    /// What is missing of the rule.
    #[cfg(feature = "model-check")]
    #[serde(skip)]
    pub ablation: crate::policy::Ablation,
}
