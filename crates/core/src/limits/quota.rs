//! Quotas of the log under which no call would be admitted.

use super::{Limits, LimitsError};

/// Room for the rows of a session and some small events, whatever a call's answer may take.
const LOG_BYTES_MIN: u64 = 64 * 1024;

/// Refuses a quota without room for twice what is kept free for the answer of one call: the margin
/// for rows is taken off it.
pub(super) fn check(limits: &Limits) -> Result<(), LimitsError> {
    let answer = limits.claim_room_bytes_min.min(limits.session_log_bytes_max / 2);
    let bytes_min = answer.saturating_mul(2).max(LOG_BYTES_MIN);
    let quotas = [
        ("session_log_hard_bytes_max", limits.session_log_hard_bytes_max),
        ("principal_log_bytes_max", limits.principal_log_bytes_max),
        ("total_log_bytes_max", limits.total_log_bytes_max),
    ];
    match quotas.into_iter().find(|&(_, bytes_max)| bytes_max < bytes_min) {
        Some((name, bytes_max)) => Err(LimitsError::LogTooSmall { name, bytes_max, bytes_min }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_without_room_for_a_call_is_refused_with_the_least_that_has() {
        let total =
            |total_log_bytes_max| Limits { total_log_bytes_max, ..Limits::default() }.check();
        let refusal = total(1).unwrap_err();
        let text = refusal.to_string();
        assert!(text.starts_with("total_log_bytes_max (1) must be at least 131072: "), "{text}");
        assert_eq!(refusal.names(), ["total_log_bytes_max"]);
        assert!(total(131_071).is_err());
        assert_eq!(total(131_072), Ok(()));
        let much = Limits { claim_room_bytes_min: u64::MAX, ..Limits::default() };
        assert_eq!(much.check(), Ok(()), "half of what a session may keep is the most");
        for limits in [
            Limits { principal_log_bytes_max: 1, ..Limits::default() },
            Limits { session_log_bytes_max: 1, session_log_hard_bytes_max: 1, ..Limits::default() },
            Limits { claim_room_bytes_min: 0, total_log_bytes_max: 65_535, ..Limits::default() },
        ] {
            assert!(matches!(limits.check(), Err(LimitsError::LogTooSmall { .. })), "{limits:?}");
        }
    }
}
