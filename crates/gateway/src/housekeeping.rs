//! What a gateway does of itself while it runs.

use std::time::Duration;

use tokio::time::sleep;

use crate::gateway::Gateway;

/// Pause between two rounds of housekeeping.
const HOUSEKEEPING: Duration = Duration::from_secs(30);
/// Tokens whose time has come that one step of housekeeping works off.
const EXPIRED_ROWS_MAX: usize = 1_000;
/// Sessions whose log had failed that one round has driven again.
const DRIVEN_AGAIN_MAX: usize = 64;

impl Gateway {
    /// Works until the gateway stops: forgets sessions that are over, and tokens whose time has
    /// come; once a log that failed can be written again, has its sessions go on. To be run as a
    /// task beside the listener.
    pub async fn maintain(&self) {
        let rounds = async {
            loop {
                sleep(HOUSEKEEPING).await;
                self.registry().sweep();
                self.expire().await;
                if self.registry().has_kept() && self.counted().is_writable().await {
                    self.drive_kept(DRIVEN_AGAIN_MAX).await;
                }
            }
        };
        tokio::select! {
            () = rounds => {}
            () = self.stopping() => {}
        }
    }

    async fn expire(&self) {
        loop {
            let now_ms = self.clock().now_ms();
            match self.store().expire(now_ms, EXPIRED_ROWS_MAX).await {
                Ok(expired) if expired.more => tokio::task::yield_now().await,
                Ok(_) => return,
                Err(error) => return tracing::warn!(%error, "expired tokens were not forgotten"),
            }
        }
    }
}
