//! The Server-Sent Events codec, sans I/O and byte-exact (HTML standard, section 9.2; design
//! section 6).
//!
//! [`Decoder`] turns chunks of a body, split anywhere, into [`Event`]s. It never interprets text:
//! bytes that are not UTF-8 pass unchanged. The `write_*` functions append the blocks Rejoin sends;
//! [`EventWriter`] writes a large event in parts.
mod decode;
mod encode;
mod seen;

pub use decode::{DecodeError, Decoder, Event};
pub use encode::{EventWriter, write_comment, write_event, write_retry_event};
pub use seen::{Mark, Seen};
