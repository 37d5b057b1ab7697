//! The layer around rmcp's service, on real sockets: under Rejoin's listener, which sees what
//! arrives, and under axum's, which does not.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

#[path = "../examples/rmcp/charges.rs"]
mod charges;
#[path = "layer/errors.rs"]
mod errors;
#[path = "layer/examples.rs"]
mod examples;
#[path = "layer/life.rs"]
mod life;
#[path = "layer/passed.rs"]
mod passed;
#[path = "layer/promise.rs"]
mod promise;
#[path = "layer/rmcp_settings.rs"]
mod rmcp_settings;
#[path = "layer/support.rs"]
mod support;
