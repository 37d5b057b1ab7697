//! The machine in virtual time: every rule of `docs/protocol.md`, and every way in which a server
//! or a connection can fail it.

#[path = "machine/support.rs"]
mod support;

#[path = "machine/chaos.rs"]
mod chaos;
#[path = "machine/ends.rs"]
mod ends;
#[path = "machine/host.rs"]
mod host;
#[path = "machine/lost.rs"]
mod lost;
#[path = "machine/order.rs"]
mod order;
#[path = "machine/pause.rs"]
mod pause;
#[path = "machine/progress.rs"]
mod progress;
#[path = "machine/recorded.rs"]
mod recorded;
#[path = "machine/refusals.rs"]
mod refusals;
#[path = "machine/resend.rs"]
mod resend;
#[path = "machine/resume.rs"]
mod resume;
#[path = "machine/session.rs"]
mod session;
#[path = "machine/silent.rs"]
mod silent;
#[path = "machine/standalone.rs"]
mod standalone;
#[path = "machine/status.rs"]
mod status;
