//! The HTTP gateway of Rejoin, and its library face: [`RejoinLayer`] keeps the conversations of an
//! MCP service in this process whole, and [`serve`] is the listener that sees what arrives.
mod admin;
mod app;
pub mod body;
pub mod config;
mod cors;
mod delete;
mod driver;
mod exchange;
#[cfg(feature = "fuzz")]
pub mod fuzz;
pub mod gateway;
mod get;
pub mod handle;
mod headers;
mod housekeeping;
mod http2;
mod initialize;
mod layer;
pub mod listen;
mod metrics;
pub mod operator;
pub mod passthrough;
mod post;
mod principal;
mod registry;
mod respond;
mod revive;
mod room;
mod service;
pub mod subjects;
pub mod tap;
mod telemetry;
mod throttle;
pub mod upstream;

pub use app::{serve, serve_with};
pub use config::RejectStatus;
pub use headers::{AllowError, check_host, check_origin};
pub use layer::{LayerConfig, LayerError, RejoinLayer, RejoinService};
pub use rejoin_core::limits::Limits;
pub use rejoin_core::settings::{Delivery, OnRepeat, RepeatScope, Settings};
pub use revive::Recovered;
pub use subjects::Subjects;

/// The snippets of the page, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/embedding.md")]
mod embedding {}
