//! What each part of the rule is for: without it, the checker finds a violation.

use rejoin_core::policy::Ablation;
use rejoin_core::session::Safeguard;
use rejoin_core::settings::OnRepeat;

use crate::catalogue;
use crate::config::Config;
use crate::property::Property;

/// A part of the rule that is taken away.
pub struct Part {
    /// Which.
    pub ablation: Ablation,
    /// What it says.
    pub says: &'static str,
    /// Where its absence is looked for, in this order.
    pub configs: Vec<Config>,
    /// What must be violated then.
    pub breaks: Property,
    /// The file of its story, if that is kept.
    pub story: Option<&'static str>,
}

/// The four conditions.
pub fn conditions() -> Vec<Part> {
    let condition = |ablation, says, config, breaks, story| Part {
        ablation,
        says,
        configs: vec![config],
        breaks,
        story: Some(story),
    };
    vec![
        condition(
            Ablation::Drained,
            "condition 1 drained",
            catalogue::observed_repeat(),
            Property::Executions,
            "condition-1-drained",
        ),
        condition(
            Ablation::Quiet,
            "condition 2 quiet",
            catalogue::observed_repeat(),
            Property::Executions,
            "condition-2-quiet",
        ),
        condition(
            Ablation::SafeToRepeat,
            "condition 3 safe to repeat",
            catalogue::retry(),
            Property::Executions,
            "condition-3-safe-to-repeat",
        ),
        condition(
            Ablation::Ordered,
            "condition 4 ordered",
            catalogue::observed_overtaking(),
            Property::Order,
            "condition-4-ordered",
        ),
    ]
}

/// The rows of design section 5 but the last, without which nothing runs.
pub fn rows() -> Vec<Part> {
    let row = |number, says, configs: &[Config], breaks| Part {
        ablation: Ablation::Row(number),
        says,
        configs: configs.to_vec(),
        breaks,
        story: None,
    };
    let once = Property::Executions;
    vec![
        row(1, "row 1 never gated", &[catalogue::ungated()], Property::NeverGated),
        row(2, "row 2 token of another call", &[catalogue::token_reused()], Property::Foreign),
        row(3, "row 3 token forgotten", &[catalogue::token_forgotten()], once),
        row(4, "row 4 re-send attaches", &[catalogue::resend().none_refused()], Property::Refusal),
        row(5, "row 5 record by token", &[catalogue::token()], once),
        row(6, "row 6 supersede", &[catalogue::idempotent().none_refused()], Property::Refusal),
        row(7, "row 7 outcome unknown", &[catalogue::cancel(), catalogue::death()], once),
        row(8, "row 8 token in flight", &[catalogue::token()], once),
        row(9, "row 9 running and dropped", &[catalogue::retry()], once),
        row(
            10,
            "row 10 finished and owed",
            &[catalogue::token_after_loss(), catalogue::retries()],
            once,
        ),
        row(
            11,
            "row 11 collect",
            &[catalogue::retry(), catalogue::retry().on_repeat(OnRepeat::Reject)],
            once,
        ),
        row(
            12,
            "row 12 idempotent twin",
            &[catalogue::idempotent().none_refused()],
            Property::Refusal,
        ),
        row(13, "row 13 scarred", &[catalogue::resume_or_retry()], once),
        row(14, "row 14 attached twin", &[catalogue::retry()], once),
        row(15, "row 15 wait for a reset", &[catalogue::retry()], once),
        row(16, "row 16 hold while owed", &[catalogue::other_call()], Property::Overtaken),
        row(17, "row 17 state lost", &[catalogue::state_lost()], Property::StateLossTold),
    ]
}

/// What the session does besides the rows.
pub fn safeguards() -> Vec<Part> {
    let safeguard = |safeguard, says, configs: &[Config], breaks| Part {
        ablation: Ablation::Safeguard(safeguard),
        says,
        configs: configs.to_vec(),
        breaks,
        story: None,
    };
    let once = Property::Executions;
    let of = |config: fn() -> Config| [config()];
    vec![
        safeguard(Safeguard::OwnProof, "own connection lives", &of(catalogue::twins_retry), once),
        safeguard(
            Safeguard::FirstComeFirst,
            "first come, first run",
            &of(catalogue::slow_review),
            once,
        ),
        safeguard(Safeguard::Scar, "scar", &of(catalogue::resume_or_retry), once),
        safeguard(Safeguard::EveryTwin, "every twin is asked", &of(catalogue::twins_retry), once),
        safeguard(Safeguard::DecideAgain, "decided again", &of(catalogue::retry), once),
        safeguard(
            Safeguard::Withdrawal,
            "withdrawn when closed",
            &of(catalogue::retries),
            Property::Settles,
        ),
        safeguard(Safeguard::Acknowledgement, "end acknowledged", &of(catalogue::retry), once),
        safeguard(Safeguard::LateReset, "reset after the end", &of(catalogue::retry), once),
        safeguard(
            Safeguard::ReplayAcknowledgement,
            "replay acknowledged",
            &of(catalogue::observed_overtaking),
            Property::Order,
        ),
        safeguard(Safeguard::LaterStart, "window from the later", &of(catalogue::long_call), once),
        safeguard(Safeguard::DurableClaim, "durable claim", &of(catalogue::power_cut_later), once),
        safeguard(
            Safeguard::UnknownAfterRestart,
            "unknown after restart",
            &of(catalogue::crash_retries),
            once,
        ),
        safeguard(
            Safeguard::DoubtAfterRestart,
            "doubt after restart",
            &of(catalogue::crash),
            Property::Reach,
        ),
    ]
}
