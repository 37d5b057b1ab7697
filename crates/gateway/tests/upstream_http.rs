//! The HTTP upstream: the conformance suite, with and without event ids.
#[path = "upstream_http/faults.rs"]
mod faults;
#[path = "upstream_http/gone.rs"]
mod gone;
#[path = "upstream_http/opening.rs"]
mod opening;
#[path = "upstream_http/pause.rs"]
mod pause;
#[path = "upstream_http/streams.rs"]
mod streams;
#[path = "upstream_http/support.rs"]
mod support;

mod conformance_without_ids {
    use super::support::served;
    rejoin_gateway::upstream_conformance!(served(&[]));
}

mod conformance_with_ids {
    use super::support::served;
    rejoin_gateway::upstream_conformance!(served(&["ids", "sse"]));
}

mod conformance_without_session {
    use super::support::served;
    rejoin_gateway::upstream_conformance!(served(&["no-session"]));
}
