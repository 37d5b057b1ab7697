//! The client that obeys: the other half of Rejoin's rule (`docs/protocol.md`).
//!
//! A client must assume that events are owed to it whenever a connection broke in the middle of an
//! answer. [`machine::Machine`] is the rule, with no clock, randomness or I/O: it resumes streams,
//! holds what would overtake them, drops what comes twice, and sends a call again only if that is
//! safe. [`transport`] gives it sockets, TLS and credentials; [`Client`] is what both are used
//! through. With the feature `rmcp`, `rmcp` gives it to clients that are written with that SDK.

mod client;
mod limits;
pub mod machine;
#[cfg(feature = "rmcp")]
pub mod rmcp;
pub mod transport;
mod waiting;

pub use client::{Client, Closed, ConnectError, FromServer, Receiver, Sender};
pub use limits::ClientLimits;
pub use transport::{Config, Credential, Proxies, is_reserved};

/// The snippets of the page, compiled.
#[cfg(all(doctest, feature = "rmcp"))]
#[doc = include_str!("../../../docs/client.md")]
mod page {}
