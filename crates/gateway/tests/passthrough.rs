//! Pass-through on real sockets: the server is a raw socket in the test's hands, so that every byte
//! and every end can be seen on both sides of the gateway.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

#[path = "passthrough/support.rs"]
mod support;

#[path = "passthrough/among.rs"]
mod among;
#[path = "passthrough/bounds.rs"]
mod bounds;
#[path = "passthrough/bytes.rs"]
mod bytes;
#[path = "passthrough/challenge.rs"]
mod challenge;
#[path = "passthrough/counts.rs"]
mod counts;
#[path = "passthrough/ends.rs"]
mod ends;
#[path = "passthrough/eras.rs"]
mod eras;
#[path = "passthrough/head.rs"]
mod head;
#[path = "passthrough/stop.rs"]
mod stop;
