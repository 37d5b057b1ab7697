//! The wire matrix: what a client sees on its sockets when connections break, against the real
//! binary in front of its own tool server, or of a stock server over HTTP (`matrix/server.rs`).
//! Executions are counted in a file outside both. `REJOIN_BIN` names another binary to test.
//!
//! The letter at the start of a name groups the cases of one hazard; each test starts its own
//! gateway. Only the raw client of `rejoin-testkit` speaks here: no code of the product is shared
//! with these tests.

#[path = "matrix/direct.rs"]
mod direct;
#[path = "matrix/needs.rs"]
mod needs;
#[path = "matrix/server.rs"]
mod server;
#[path = "matrix/support.rs"]
mod support;

#[path = "matrix/asking.rs"]
mod asking;
#[path = "matrix/collect.rs"]
mod collect;
#[path = "matrix/http.rs"]
mod http;
#[path = "matrix/isolation.rs"]
mod isolation;
#[path = "matrix/load.rs"]
mod load;
#[path = "matrix/loss.rs"]
mod loss;
#[path = "matrix/mapping.rs"]
mod mapping;
#[path = "matrix/order.rs"]
mod order;
#[path = "matrix/parallel.rs"]
mod parallel;
#[path = "matrix/resume.rs"]
mod resume;
#[path = "matrix/retry.rs"]
mod retry;
#[path = "matrix/takeover.rs"]
mod takeover;
#[path = "matrix/token.rs"]
mod token;
#[path = "matrix/upstream.rs"]
mod upstream;
