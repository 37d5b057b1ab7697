//! What the session does besides the rows of design section 5 so that they judge what is true. Each
//! can be taken away by the model check (feature `model-check`), to show what it is needed for.

use super::Session;
use super::waiting::{Wait, Waiter};
use crate::limits::Limits;
use crate::policy::{Decision, Verdict};

/// One safeguard.
#[cfg_attr(not(feature = "model-check"), expect(unreachable_pub, reason = "the model check's"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Safeguard {
    /// A POST that waited is claimed only once its own connection has proved that it lives.
    OwnProof,
    /// Of equal POSTs that wait the first to come is the first to run.
    FirstComeFirst,
    /// A stream that was ever lost or resumed has no twins.
    Scar,
    /// Every attached twin must give a sign of life, not just one.
    EveryTwin,
    /// Who waited for a twin is decided again by all rows, that of the reset among them.
    DecideAgain,
    /// A POST whose connection is closed while it waits is withdrawn.
    Withdrawal,
    /// An end is presumed delivered when the peer's kernel has acknowledged it, not when written.
    Acknowledgement,
    /// A reset after the end makes the delivery doubtful.
    LateReset,
    /// A replay is over when the peer's kernel has acknowledged it, not when it is written.
    ReplayAcknowledgement,
    /// The repeat window runs from the later of a call's end and its loss.
    LaterStart,
    /// A claim is durable before its call goes to the server.
    DurableClaim,
    /// What ran when the process died is unknown, not free.
    UnknownAfterRestart,
    /// A restart counts as a reset for what had just ended.
    DoubtAfterRestart,
}

/// Without [`Safeguard::DecideAgain`]: who has waited for a twin or its own proof, and need wait no
/// more, runs, whatever has become of the calls it may repeat.
pub(super) fn go_on(waiter: &Waiter, decisions: &mut [Decision], now_ms: u64, limits: &Limits) {
    let waited = matches!(waiter.wait, Wait::Twin | Wait::Proof);
    if !waited || waiter.hold_is_over(now_ms, limits) {
        return;
    }
    for decision in decisions {
        if !matches!(decision.verdict, Verdict::Probe(_) | Verdict::WaitForTwin) {
            decision.verdict = Verdict::Claim { supersede: Vec::new() };
        }
    }
}

impl Session {
    /// True if the model check has taken a safeguard away.
    #[cfg(feature = "model-check")]
    pub(super) fn lacks(&self, safeguard: Safeguard) -> bool {
        self.start.settings.ablation == crate::policy::Ablation::Safeguard(safeguard)
    }

    /// Nothing is ever missing in the product.
    #[cfg(not(feature = "model-check"))]
    pub(super) const fn lacks(&self, _safeguard: Safeguard) -> bool {
        false
    }
}
