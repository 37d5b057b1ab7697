//! Fuzz targets: whatever reads bytes that somebody else wrote, next to references that read them
//! naively, and the properties that must hold of both (docs/proof.md, "Fuzzing").
//!
//! Each target is a function of bytes that panics on a finding. The programs in `fuzz_targets/`
//! give it to libFuzzer; `tests/corpus.rs` gives it what is kept in `corpus/` and `findings/`.

pub mod envelope;
pub mod event_id;
pub mod headers;
pub mod http;
pub mod options;
pub mod printed;
pub mod rows;
pub mod session;
mod split;
pub mod sqlite;
pub mod sse;
#[path = "../../crates/core/tests/all/support/mod.rs"]
mod support;
