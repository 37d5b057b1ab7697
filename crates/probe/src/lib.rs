//! `rejoin probe`: does your MCP server run calls twice, and does it lose their answers?
//!
//! A raw client that breaks its connections on purpose, resumes streams, repeats calls, and asks
//! for what is not its own. Each hazard is one file in `hazards`: what is done on the wire, what is
//! seen, and what that means. [`run`] plays them one after the other; [`Report`] is what a person,
//! a program or a page gets of it. Requirement ids such as `RES-6` name sentences of MCP's
//! transport page (`docs/probe.md`).

mod bench;
mod command;
mod hazard;
mod hazards;
mod limits;
mod reading;
mod repeat;
mod report;
mod run;
mod session;
mod subject;
mod tail;
mod transcript;
mod visible;
mod wire;

pub use hazard::{About, Seen, Verdict};
pub use report::{Finding, Report};
pub use run::{Notice, Options, RunError, Watcher, hazards, run};
pub use session::Trouble;
pub use subject::{ChoiceError, Subject, Tool};
pub use transcript::Entry;
pub use wire::{SetUpError, WireError};
