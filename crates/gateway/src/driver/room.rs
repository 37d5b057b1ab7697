//! What the quotas of the principal and of the whole store still leave for a session: told to its
//! state machine before the store would have to refuse (design sections 3 and 9).

use std::time::Duration;

use rejoin_core::input::Input;
use rejoin_store::PrincipalKey;
use tokio::time::Instant;

use super::Driver;

/// How often the quotas are looked at while a session commits.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// A change of the room below this is not worth an input.
const CHANGE_BYTES_MIN: u64 = 256 * 1024;

/// What was last known of the room.
pub(super) struct RoomWatch {
    principal: PrincipalKey,
    looked_at: Option<Instant>,
    told_bytes: Option<u64>,
}

impl RoomWatch {
    pub(super) fn new(principal: PrincipalKey) -> Self {
        Self { principal, looked_at: None, told_bytes: None }
    }
}

impl Driver {
    /// Tells the state machine the room, if it changed materially since it was last told.
    pub(super) async fn look_at_room(&mut self) {
        let now = Instant::now();
        if self.room.looked_at.is_some_and(|at| now.duration_since(at) < LOOK_INTERVAL) {
            return;
        }
        self.room.looked_at = Some(now);
        let limits = &self.session.start().settings.limits;
        let (of_principal, of_all) = (limits.principal_log_bytes_max, limits.total_log_bytes_max);
        // A store that does not answer here will say so at the next commit.
        let Ok(all) = self.store.usage().await else { return };
        let Ok(principal) = self.store.principal_usage(self.room.principal).await else { return };
        let left =
            of_all.saturating_sub(all.bytes).min(of_principal.saturating_sub(principal.bytes));
        let margin = limits.quota_margin_bytes_max.min(of_principal.min(of_all) / 8);
        let bytes = left.saturating_sub(margin);
        let is_news = self
            .room
            .told_bytes
            .is_none_or(|told| told.abs_diff(bytes) >= CHANGE_BYTES_MIN.min(margin));
        if is_news {
            self.room.told_bytes = Some(bytes);
            self.work.push_back(Input::Room { bytes }.into());
        }
    }
}
