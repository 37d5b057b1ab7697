//! HTTP/2 beside HTTP/1.1 on one port, by a client of the `h2` crate (0.4) on real sockets.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

#[path = "http2/frames.rs"]
mod frames;
#[path = "support/serve.rs"]
mod serving;
#[path = "http2/support.rs"]
mod support;
#[path = "http2/tool.rs"]
mod tool;

#[path = "http2/bounds.rs"]
mod bounds;
#[path = "http2/calls.rs"]
mod calls;
#[path = "http2/ends.rs"]
mod ends;
#[path = "http2/passed.rs"]
mod passed;
#[path = "http2/protocol.rs"]
mod protocol;
