//! The log and the ledger behind Rejoin: what was produced, what was claimed, and who owns it.
//!
//! [`Store`] is the contract. [`MemoryStore`] keeps it for one process, `SqliteStore` (feature
//! `sqlite`) in one file that survives the process. Whoever writes another
//! implementation runs the suite in `conformance` (feature `conformance`) against it, unchanged.
//! Stores carry no policy: they commit what `rejoin_core` decided, or say why not (design
//! section 4).

mod charge;
mod contract;
mod error;
mod memory;
mod page;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod watch;

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
#[cfg(any(test, feature = "fault"))]
pub mod fault;

pub use contract::{
    END_BYTES_MAX, Expired, Fence, Loaded, Opened, PrincipalKey, PrincipalUsage, Quota, SessionKey,
    Store, Usage, Version,
};
pub use error::{
    CommitError, CreateError, ExpireError, Failure, LoadError, OverQuota, QuotaScope, ReadError,
    RemoveError, TokenError, UsageError,
};
pub use memory::{MemoryLimits, MemoryStore, OpenError};
pub use page::{Bounds, Gap, Page, PageBuilder, Shape};
pub use watch::{StreamWatch, WatchEnded};
