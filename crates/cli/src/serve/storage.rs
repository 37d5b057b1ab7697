//! Where the log is: in memory, or in the directory of `--data`.

use std::sync::Arc;

use rejoin_core::limits::Limits;
use rejoin_gateway::Recovered;
use rejoin_gateway::gateway::Gateway;
use rejoin_store::sqlite::{SqliteOptions, SqliteStore};
use rejoin_store::{MemoryLimits, MemoryStore, Store};

use super::{ServeError, ServeOptions, failed};

/// Opens the log. Options that are only checked open none.
pub(super) fn open(options: &ServeOptions, limits: &Limits) -> Result<Arc<dyn Store>, ServeError> {
    match &options.data {
        Some((directory, durability)) if !options.is_check => {
            let store = SqliteStore::open(directory, SqliteOptions::new(*durability, limits));
            let option = options.origins.name("data", "--data");
            Ok(Arc::new(store.map_err(|source| ServeError::Data { option, source })?))
        }
        _ => Ok(Arc::new(MemoryStore::new(MemoryLimits::from(limits)).map_err(failed)?)),
    }
}

/// Goes on with the sessions that an earlier process left.
pub(super) async fn recover(gateways: &[Gateway]) -> Result<(), ServeError> {
    let Recovered { sessions, left } = Gateway::recover(gateways).await.map_err(failed)?;
    if sessions > 0 || left > 0 {
        tracing::info!(sessions, left, "sessions of an earlier process go on");
    }
    Ok(())
}
