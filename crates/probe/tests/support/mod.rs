//! A small honest MCP server over Streamable HTTP, whose faults can be switched on one by one.

mod calls;
mod faults;
mod http;
mod log;
mod server;
mod streams;

pub(crate) use faults::Fault;
pub(crate) use server::Server;
