//! The rule with a part of it missing: only the model check does so (feature `model-check`), to
//! show what each part is needed for.

use super::{Original, Place, RequestFacts, SessionFacts, TokenFact};
use crate::ledger::Phase;
use crate::session::Safeguard;
use crate::stream::StreamState;

/// What is missing of the rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Ablation {
    /// Nothing.
    #[default]
    Nothing,
    /// Condition 1: what a call that ended left undelivered counts as delivered.
    Drained,
    /// Condition 2: a call that may still produce counts as over and delivered.
    Quiet,
    /// Condition 3: every call counts as one that may be repeated, and no token is honoured.
    SafeToRepeat,
    /// Condition 4: no answer waits for a replay.
    Ordered,
    /// One row of design section 5; of row 16, that POSTs wait for what is owed.
    Row(u8),
    /// What the session does besides the rows.
    Safeguard(Safeguard),
}

impl Ablation {
    /// True if a row is missing. Row 16 is not decided like the others: see [`Self::apply`].
    pub(super) fn removes(self, row: u8) -> bool {
        self == Self::Row(row)
    }

    /// The facts as the rule sees them without the missing part.
    pub(super) fn apply(
        self,
        request: &mut RequestFacts,
        originals: &mut Vec<Original>,
        session: &mut SessionFacts,
    ) {
        match self {
            Self::Drained => {
                session.owed = false;
                originals.retain(|o| is_attached(o) || o.phase != Phase::Finished);
            }
            Self::Quiet => {
                let owed = |o: &Original| o.place == Place::Stream(StreamState::Owed);
                session.owed &= !originals.iter().any(|o| o.phase.may_produce() && owed(o));
                originals.retain(|o| is_attached(o) || !o.phase.may_produce());
            }
            Self::SafeToRepeat => {
                request.repeatable = true;
                if request.token != TokenFact::Absent {
                    request.token = TokenFact::Fresh;
                    originals.clear();
                }
            }
            Self::Ordered => session.replay = false,
            Self::Row(1) => request.ungated = false,
            Self::Row(16) => session.owed = false,
            Self::Row(17) => session.state_lost = false,
            Self::Nothing | Self::Row(_) | Self::Safeguard(_) => {}
        }
    }
}

/// Conditions 1 and 2 are about streams that were left, or dropped.
fn is_attached(original: &Original) -> bool {
    matches!(original.place, Place::Stream(state) if state.is_attached())
}
