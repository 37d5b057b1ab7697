//! The limits of a gateway as its operator set them.

use rejoin_core::limits::{Limits, LimitsError};

use crate::args::OwedGrace;
use crate::limit::{self, LimitArgument, LimitSetting};

/// The limit that has an option of its own.
const OWED_GRACE: &str = "owed_grace_ms";

/// By how much a hold outlasts the grace, if it was not set: as much as by default.
const HOLD_BEYOND_GRACE_MS: u64 = 2_000;

/// Why the limits cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LimitOptionsError {
    /// Nobody knows which of the two is meant.
    #[error("--owed-grace and --limit owed_grace_ms= set the same limit: leave one of them out")]
    GraceTwice,
    /// The limits contradict each other, or one is senseless.
    #[error("{options}: the limits cannot be used")]
    Contradiction {
        /// The options at fault, as they were given.
        options: String,
        /// What is wrong, and what to do.
        source: LimitsError,
    },
    /// The limits do not fit together as one set.
    #[error("the limits cannot be applied")]
    Values(#[from] serde_json::Error),
}

/// The limits that these options make, and a file where they leave it open. What goes with the
/// grace follows it, unless it is set.
///
/// # Errors
/// When they contradict each other; each message names the options and the remedy.
pub(super) fn take(
    grace: Option<OwedGrace>,
    arguments: &[LimitArgument],
    of_file: &[LimitSetting],
) -> Result<Limits, LimitOptionsError> {
    let on_line: Vec<LimitSetting> = arguments.iter().filter_map(LimitArgument::set).collect();
    let is_open = |setting: &&LimitSetting| {
        let is_grace = grace.is_some() && setting.name() == OWED_GRACE;
        !is_grace && on_line.iter().all(|other| other.name() != setting.name())
    };
    let settings: Vec<_> = of_file.iter().filter(is_open).chain(&on_line).cloned().collect();
    let is_set = |name| settings.iter().any(|setting| setting.name() == name);
    let mut limits = limit::apply(&Limits::default(), &settings)?;
    if let Some(OwedGrace(grace_ms)) = grace {
        if is_set(OWED_GRACE) {
            return Err(LimitOptionsError::GraceTwice);
        }
        limits.owed_grace_ms = grace_ms;
    }
    if let Some(grace_ms) = limits.owed_grace_ms {
        let retry_ms = limits.retry_ms.min(grace_ms / 4);
        if !is_set("retry_ms") && limits.retry_ms != retry_ms {
            limits.retry_ms = retry_ms;
            tracing::info!("retry_ms={retry_ms} goes with owed_grace_ms={grace_ms}");
        }
        let hold_max_ms = limits.hold_max_ms.max(grace_ms.saturating_add(HOLD_BEYOND_GRACE_MS));
        if !is_set("hold_max_ms") && limits.hold_max_ms != hold_max_ms {
            limits.hold_max_ms = hold_max_ms;
            tracing::info!("hold_max_ms={hold_max_ms} goes with owed_grace_ms={grace_ms}");
        }
    }
    match limits.check() {
        Ok(()) => Ok(limits),
        Err(source) => {
            let options = options_of(&source.names(), grace, &settings);
            Err(LimitOptionsError::Contradiction { options, source })
        }
    }
}

/// The options that set these limits, as they were given.
fn options_of(names: &[&str], grace: Option<OwedGrace>, settings: &[LimitSetting]) -> String {
    let grace = grace.filter(|_| names.contains(&OWED_GRACE));
    let grace = grace.map(|grace| format!("--owed-grace {grace}"));
    let set = settings.iter().filter(|setting| names.contains(&setting.name()));
    let set = set.map(LimitSetting::shown);
    grace.into_iter().chain(set).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use rejoin_core::causes::told;

    use super::*;

    fn taken(grace: Option<&str>, limits: &[&str]) -> Result<Limits, String> {
        let limits: Vec<_> = limits.iter().map(|text| text.parse().unwrap()).collect();
        let grace = grace.map(|text| text.parse().unwrap());
        take(grace, &limits, &[]).map_err(|error| told(&error))
    }

    #[test]
    fn what_goes_with_the_grace_follows_it_unless_it_is_set() {
        let times = |grace, limits: &[&str]| {
            let limits = taken(grace, limits).unwrap();
            (limits.owed_grace_ms, limits.retry_ms, limits.hold_max_ms)
        };
        assert_eq!(times(None, &[]), (Some(8_000), 2_000, 10_000));
        assert_eq!(times(Some("20000"), &[]), (Some(20_000), 2_000, 22_000));
        assert_eq!(times(Some("3000"), &[]), (Some(3_000), 750, 10_000));
        assert_eq!(times(Some("0"), &[]), (Some(0), 0, 10_000));
        assert_eq!(times(Some("never"), &[]), (None, 2_000, 10_000));
        let largest = limit::VALUE_MAX.to_string();
        let (_, _, hold_max_ms) = times(Some(&largest), &[]);
        assert!(hold_max_ms > limit::VALUE_MAX);
        assert_eq!(times(None, &["owed_grace_ms=3000"]), (Some(3_000), 750, 10_000));
        let both = ["retry_ms=100", "hold_max_ms=20001"];
        assert_eq!(times(Some("20000"), &both), (Some(20_000), 100, 20_001));
    }

    #[test]
    fn a_contradiction_names_the_options_that_were_given() {
        for (grace, limits, expected) in [
            (
                Some("20000"),
                &["hold_max_ms=15000", "sessions_max=5"][..],
                "--owed-grace 20000, --limit hold_max_ms=15000: the limits cannot be used: \
                 hold_max_ms (15000) must be more than owed_grace_ms (20000)",
            ),
            (
                Some("3000"),
                &["retry_ms=2000"],
                "--owed-grace 3000, --limit retry_ms=2000: the limits cannot be used: \
                 owed_grace_ms (3000) must be at least 4 x retry_ms (2000)",
            ),
            (None, &["retry_ms=8000"], "--limit retry_ms=8000: the limits cannot be used"),
            (None, &["upstream.head_max_ms=0"], "--limit upstream.head_max_ms=0: "),
        ] {
            let refusal = taken(grace, limits).unwrap_err();
            assert!(refusal.starts_with(expected), "{refusal}");
        }
    }

    #[test]
    fn options_win_over_a_file_limit_by_limit_and_a_contradiction_names_both() {
        let set = |text: &str, line: usize| {
            text.parse::<LimitSetting>().unwrap().set_at(format!("rejoin.toml:{line}:1"))
        };
        let file = [set("owed_grace_ms=20000", 1), set("hold_max_ms=30000", 2)];
        let taken = |grace: Option<&str>, limits: &[&str]| {
            let limits: Vec<_> = limits.iter().map(|text| text.parse().unwrap()).collect();
            take(grace.map(|text| text.parse().unwrap()), &limits, &file)
        };
        let times = |limits: Limits| (limits.owed_grace_ms, limits.hold_max_ms);
        assert_eq!(times(taken(None, &[]).unwrap()), (Some(20_000), 30_000));
        assert_eq!(times(taken(Some("9000"), &[]).unwrap()), (Some(9_000), 30_000));
        let both = ["owed_grace_ms=9000", "hold_max_ms=9001"];
        assert_eq!(times(taken(None, &both).unwrap()), (Some(9_000), 9_001));
        let refusal = told(&taken(None, &["hold_max_ms=9"]).unwrap_err());
        let expected = "rejoin.toml:1:1: owed_grace_ms = 20000, --limit hold_max_ms=9: the limits";
        assert!(refusal.starts_with(expected), "{refusal}");
    }

    #[test]
    fn a_grace_that_is_set_twice_is_refused() {
        for grace in ["9000", "never"] {
            let refusal = taken(Some(grace), &["owed_grace_ms=9000"]).unwrap_err();
            assert!(refusal.contains("--owed-grace and --limit owed_grace_ms="), "{refusal}");
        }
    }
}
