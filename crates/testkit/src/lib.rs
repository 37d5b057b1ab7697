//! Black-box test tools: they know the wire and the command line, and nothing of the product.
//!
//! - [`raw`]: a raw HTTP/1.1 client with its own head, chunk and SSE parsers, so that it can find
//!   the faults of the product's parsers instead of repeating them;
//! - [`session`], [`call`], [`refusal`]: an MCP session over it;
//! - [`forward`], [`call_reader`]: a TCP forwarder that can cut, go black, delay, or count calls;
//! - [`cutter`]: one that cuts connections after so many bytes, again and again;
//! - [`process`], [`count`]: servers as processes, and the file that counts executions;
//! - [`disk`], [`page`]: a disk that fails as it is told, and what the operator's address says;
//! - [`check`]: what a client received, against what it was owed;
//! - [`deadline`], [`failure`]: every wait is bounded, and says what it waited for.

pub mod call;
pub mod call_reader;
pub mod check;
pub mod count;
pub mod cutter;
pub mod deadline;
pub mod disk;
pub mod failure;
pub mod forward;
pub mod page;
pub mod process;
pub mod raw;
pub mod refusal;
pub mod session;
