//! The pure rule of Rejoin: no I/O, no clock, no randomness.
//!
//! Start at [`migration::authorize_post_migration`], the rule in its plainest form. Then
//! [`policy::decide`], the numbered rows that judge every POST, and [`session::Session`], the state
//! machine that feeds it: inputs and `now` go in, one durable batch and effects come out.
pub mod backoff;
pub mod causes;
pub mod cursor;
pub mod effect;
pub mod id;
pub mod input;
pub mod ledger;
pub mod limits;
pub mod message;
pub mod migration;
pub mod policy;
pub mod rejection;
pub mod revision;
pub mod session;
pub mod settings;
pub mod sse;
pub mod stream;
pub mod text;
pub mod token;
pub mod tool;
