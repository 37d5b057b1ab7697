//! What must hold in every state.

/// One property. The first that is violated ends the search below its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property {
    /// The session's own invariants (`Session::check`), and it comes to rest.
    Invariant,
    /// At most one execution for each intent that must not run twice, and for each token.
    Executions,
    /// Nothing counts as delivered that its client has not read and cannot reach.
    Reach,
    /// A replay is in its client's kernel before the answer of a call that came after it is read.
    Order,
    /// No answer of a call that came after a stream was lost is read before that stream's rest.
    Overtaken,
    /// No client gets the answer of another intent.
    Foreign,
    /// Every POST is answered within its bound.
    HeldBound,
    /// Nothing is locked for ever.
    Settles,
    /// The plain rule and the decision agree (design section 1).
    Agreement,
    /// Who lost the server's state is told before anything runs on the new one.
    StateLossTold,
    /// What is never gated does not wait, and is not refused.
    NeverGated,
    /// Nobody is refused: not required, looked for where a row only spares refusals.
    Refusal,
}

/// All, in the order in which they are listed.
pub const ALL: [Property; 12] = [
    Property::Invariant,
    Property::Executions,
    Property::Reach,
    Property::Order,
    Property::Overtaken,
    Property::Foreign,
    Property::HeldBound,
    Property::Settles,
    Property::Agreement,
    Property::StateLossTold,
    Property::NeverGated,
    Property::Refusal,
];

impl Property {
    /// Its place in a set.
    pub fn bit(self) -> u32 {
        1 << self as u32
    }

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Invariant => "invariant",
            Self::Executions => "one execution",
            Self::Reach => "nothing believed delivered that is out of reach",
            Self::Order => "replay before newer answers",
            Self::Overtaken => "owed before newer answers",
            Self::Foreign => "nothing foreign",
            Self::HeldBound => "answered within the bound",
            Self::Settles => "nothing locked for ever",
            Self::Agreement => "plain rule and decision agree",
            Self::StateLossTold => "state loss is told",
            Self::NeverGated => "never gated",
            Self::Refusal => "nobody refused",
        }
    }

    /// What happened, in a story.
    pub fn text(self) -> &'static str {
        match self {
            Self::Invariant => "an invariant of the session does not hold",
            Self::Executions => "what was asked once runs twice",
            Self::Reach => {
                "an answer counts as delivered that its client has not, and cannot reach"
            }
            Self::Order => "a newer answer is read while the replay that came first is not there",
            Self::Overtaken => "a newer answer was read before what was owed came",
            Self::Foreign => "a client gets the answer of another call",
            Self::HeldBound => "a POST is held beyond its bound",
            Self::Settles => "a call is refused for ever",
            Self::Agreement => "the plain rule and the decision disagree",
            Self::StateLossTold => {
                "a call runs on a server that lost its state, and nobody was told"
            }
            Self::NeverGated => "what is never gated waits or is refused",
            Self::Refusal => "a POST is refused",
        }
    }
}
