//! The HTTP face on real sockets: which request gets which status, and what has an effect.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

#[path = "http/support.rs"]
mod support;

#[path = "http/batch.rs"]
mod batch;
#[path = "http/batch_repeat.rs"]
mod batch_repeat;
#[path = "http/bounds.rs"]
mod bounds;
#[path = "http/cors.rs"]
mod cors;
#[path = "http/ends.rs"]
mod ends;
#[path = "http/form.rs"]
mod form;
#[path = "http/idle.rs"]
mod idle;
#[path = "http/kept.rs"]
mod kept;
#[path = "http/life.rs"]
mod life;
#[path = "http/living.rs"]
mod living;
#[path = "http/paths.rs"]
mod paths;
#[path = "http/refusal.rs"]
mod refusal;
#[path = "http/session.rs"]
mod session;
#[path = "http/subjects.rs"]
mod subjects;
#[path = "http/subscription.rs"]
mod subscription;
#[path = "http/tasks.rs"]
mod tasks;
#[path = "http/token.rs"]
mod token;
#[path = "http/unsent.rs"]
mod unsent;
#[path = "http/upstream.rs"]
mod upstream;
