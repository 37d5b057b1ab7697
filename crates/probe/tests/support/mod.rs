//! A small honest MCP server over Streamable HTTP, whose faults can be switched on one by one.

mod http;
mod log;
mod server;

pub(crate) use server::{Fault, Server};
