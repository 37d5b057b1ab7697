//! A raw HTTP/1.1 client: any bytes out, and an exact account of what came in.
//!
//! Nothing is read unless a test asks for it, so a stalled reader is a test that does not ask.

mod body;
mod connection;
mod cut;
mod error;
mod head;
mod reading;
mod request;
mod sse;

pub(crate) use body::Body;
pub use body::BodyError;
pub use connection::{Connection, End, OpenOptions, Received};
pub(crate) use cut::drop_packets;
pub use error::WireError;
pub(crate) use head::RequestHead;
pub use head::{Head, HeadError};
pub use request::Request;
pub use sse::{Comment, Event, Item, SseError, SseParser};
