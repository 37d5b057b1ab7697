//! Limits under which nothing could be served.

use super::{Limits, LimitsError};

/// A field's name as it is written in a setting.
macro_rules! setting_name {
    ($first:ident) => {
        stringify!($first)
    };
    ($first:ident . $second:ident) => {
        concat!(stringify!($first), ".", stringify!($second))
    };
}

/// The first of these fields that is zero, by its name.
macro_rules! first_zero {
    ($limits:expr, $($($name:ident).+),+ $(,)?) => {
        [$((setting_name!($($name).+), $limits.$($name).+ == 0)),+]
            .into_iter()
            .find_map(|(name, is_zero)| is_zero.then_some(name))
    };
}

/// The standalone stream, and one for a call.
const SESSION_STREAMS_MIN: usize = 2;

/// Refuses a zero under which the gateway could serve nothing, would end at once what it serves, or
/// would never rest. Other zeros turn off what they limit.
pub(super) fn check(limits: &Limits) -> Result<(), LimitsError> {
    let zero = first_zero!(
        limits,
        replay_stall_ms,
        call_silence_max_ms,
        server_request_max_ms,
        session_idle_ms,
        session_unused_ms,
        stream_end_grace_ms,
        keep_alive_ms,
        tcp_keepalive_time_ms,
        tcp_keepalive_interval_ms,
        tcp_keepalive_probes,
        request_head_max_ms,
        request_headers_max,
        request_head_bytes_max,
        request_body_max_ms,
        initialize_max_ms,
        retention_ms,
        sessions_max,
        children_max,
        session_streams_max,
        connections_max,
        session_log_bytes_max,
        principal_log_bytes_max,
        total_log_bytes_max,
        body_bytes_max,
        kept_message_bytes_max,
        name_bytes_max,
        line_bytes_max,
        event_bytes_max,
        json_depth_max,
        upstream_queue_max,
        http2.streams_max,
        http2.unread_bytes_max,
        http2.ping_ms,
        http2.ping_answer_ms,
        upstream.events_max,
        upstream.kept_settings_max,
        upstream.kept_settings_bytes_max,
        upstream.connect_max_ms,
        upstream.head_max_ms,
        upstream.retry_ms,
        upstream.backoff_max_ms,
    );
    if let Some(name) = zero {
        return Err(LimitsError::Zero { name });
    }
    // The standalone stream is there from the start: with one stream no call has any.
    let session_streams_max = limits.session_streams_max;
    if session_streams_max < SESSION_STREAMS_MIN {
        return Err(LimitsError::NoStreamForCalls { session_streams_max });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zero_that_serves_nothing_is_named_with_its_remedy() {
        assert_eq!(Limits::default().check(), Ok(()));
        let sessions = Limits { sessions_max: 0, ..Limits::default() };
        let refusal = sessions.check().unwrap_err().to_string();
        assert!(refusal.starts_with("sessions_max must not be 0"), "{refusal}");
        assert!(refusal.contains("at least 1"), "{refusal}");
        let mut nested = Limits::default();
        nested.upstream.backoff_max_ms = 0;
        let name = "upstream.backoff_max_ms";
        assert_eq!(nested.check(), Err(LimitsError::Zero { name }));
    }

    #[test]
    fn one_stream_is_refused_since_no_call_would_have_any() {
        let with =
            |session_streams_max| Limits { session_streams_max, ..Limits::default() }.check();
        let refusal = with(1).unwrap_err().to_string();
        assert!(refusal.starts_with("session_streams_max (1) must be at least 2"), "{refusal}");
        assert_eq!(with(2), Ok(()));
        assert_eq!(with(0), Err(LimitsError::Zero { name: "session_streams_max" }));
    }

    #[test]
    fn a_zero_that_turns_something_off_is_allowed() {
        let mut limits = Limits { twin_window_ms: 0, held_posts_max: 0, ..Limits::default() };
        limits.upstream.resume_attempts_max = 0;
        assert_eq!(limits.check(), Ok(()));
    }

    #[test]
    fn a_strict_grace_is_no_way_around_the_check() {
        let limits = Limits { owed_grace_ms: None, event_bytes_max: 0, ..Limits::default() };
        assert_eq!(limits.check(), Err(LimitsError::Zero { name: "event_bytes_max" }));
    }
}
