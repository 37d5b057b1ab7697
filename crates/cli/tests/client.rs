//! The client of `rejoin-client`, as a library, as rmcp's transport and as `rejoin bridge`, against
//! a real `rejoin serve`, over connections that are cut.

#[path = "client/bridge.rs"]
mod bridge;
#[path = "client/network.rs"]
mod network;
#[path = "client/rmcp_transport.rs"]
mod rmcp_transport;
#[path = "client/sleep.rs"]
mod sleep;
#[path = "client/stdio.rs"]
mod stdio;
#[path = "client/storm.rs"]
mod storm;
#[path = "client/support.rs"]
mod support;
#[path = "client/told.rs"]
mod told;
