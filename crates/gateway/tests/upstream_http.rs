//! Upstreams over HTTP, at a URL and in this process: the conformance suite, with and without event
//! ids, and what each of them does beyond it.
#[path = "upstream_http/continued.rs"]
mod continued;
#[path = "upstream_http/faults.rs"]
mod faults;
#[path = "upstream_http/gone.rs"]
mod gone;
#[path = "upstream_http/opening.rs"]
mod opening;
#[path = "upstream_http/pause.rs"]
mod pause;
#[path = "upstream_http/raw.rs"]
mod raw;
#[path = "upstream_http/service.rs"]
mod service;
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

mod service_conformance_without_ids {
    use super::service::called;
    rejoin_gateway::upstream_conformance!(called(&[]));
}

mod service_conformance_with_ids {
    use super::service::called;
    rejoin_gateway::upstream_conformance!(called(&["ids", "sse"]));
}

mod service_conformance_without_session {
    use super::service::called;
    rejoin_gateway::upstream_conformance!(called(&["no-session"]));
}
