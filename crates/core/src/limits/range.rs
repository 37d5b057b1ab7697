//! Limits that the system, or a library, takes only within a range.

use std::ops::RangeInclusive;

use super::{Limits, LimitsError};

/// Milliseconds that the kernel takes as whole seconds, from 1 to 32,767 (`MAX_TCP_KEEPIDLE` and
/// `MAX_TCP_KEEPINTVL` of Linux, tcp(7)).
const KEEPALIVE_MS: RangeInclusive<u64> = 1_000..=32_767_999;
/// Probes that the kernel takes (`MAX_TCP_KEEPCNT`).
const KEEPALIVE_PROBES: RangeInclusive<u64> = 1..=127;
/// Milliseconds of `TCP_USER_TIMEOUT`, a signed number of 32 bits; 0 leaves the kernel's own.
const USER_TIMEOUT_MS: RangeInclusive<u64> = 0..=(1 << 31) - 1;
/// Header fields for which room is made ahead for each request: what a map of them can hold is
/// less than twice as much.
const REQUEST_HEADERS: RangeInclusive<u64> = 1..=1 << 14;

/// Refuses a value under which no connection could be set up.
pub(super) fn check(limits: &Limits) -> Result<(), LimitsError> {
    let headers_max = u64::try_from(limits.request_headers_max).unwrap_or(u64::MAX);
    let ranges = [
        ("tcp_keepalive_time_ms", limits.tcp_keepalive_time_ms, KEEPALIVE_MS),
        ("tcp_keepalive_interval_ms", limits.tcp_keepalive_interval_ms, KEEPALIVE_MS),
        ("tcp_keepalive_probes", limits.tcp_keepalive_probes.into(), KEEPALIVE_PROBES),
        ("tcp_user_timeout_ms", limits.tcp_user_timeout_ms, USER_TIMEOUT_MS),
        ("request_headers_max", headers_max, REQUEST_HEADERS),
    ];
    match ranges.into_iter().find(|(_, value, range)| !range.contains(value)) {
        Some((name, value, range)) => {
            let (min, max) = range.into_inner();
            Err(LimitsError::OutOfRange { name, value, min, max })
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_socket_takes_is_refused_with_the_range_that_it_takes() {
        let default = Limits::default;
        let refused = [
            Limits { tcp_keepalive_time_ms: 500, ..default() },
            Limits { tcp_keepalive_time_ms: 32_768_000, ..default() },
            Limits { tcp_keepalive_interval_ms: 999, ..default() },
            Limits { tcp_keepalive_interval_ms: u64::MAX, ..default() },
            Limits { tcp_keepalive_probes: 128, ..default() },
            Limits { tcp_user_timeout_ms: 1 << 31, ..default() },
            Limits { request_headers_max: (1 << 14) + 1, ..default() },
        ];
        for limits in refused {
            let error = limits.check().unwrap_err();
            assert!(matches!(error, LimitsError::OutOfRange { .. }), "{error}");
        }
        let few = Limits { tcp_keepalive_time_ms: 500, ..default() }.check().unwrap_err();
        let expected = "tcp_keepalive_time_ms (500) must be from 1000 to 32767999: ";
        assert!(few.to_string().starts_with(expected), "{few}");
        assert_eq!(few.names(), ["tcp_keepalive_time_ms"]);
    }

    #[test]
    fn the_ends_of_each_range_are_allowed() {
        let mut limits = Limits {
            tcp_keepalive_time_ms: 1_000,
            tcp_keepalive_interval_ms: 1_000,
            tcp_keepalive_probes: 1,
            tcp_user_timeout_ms: 0,
            request_headers_max: 1,
            ..Limits::default()
        };
        assert_eq!(limits.check(), Ok(()));
        limits.tcp_keepalive_time_ms = 32_767_999;
        limits.tcp_keepalive_interval_ms = 32_767_999;
        limits.tcp_keepalive_probes = 127;
        limits.tcp_user_timeout_ms = (1 << 31) - 1;
        limits.request_headers_max = 1 << 14;
        assert_eq!(limits.check(), Ok(()));
    }
}
