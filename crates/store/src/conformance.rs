//! The suite that every implementation of [`Store`] runs, unchanged. It panics where one fails.
//!
//! ```text
//! #[tokio::test(flavor = "multi_thread")]
//! async fn it_keeps_the_contract() {
//!     let make = async |quota| Arc::new(MyStore::open(quota).await) as Arc<dyn Store>;
//!     conformance::run(make).await;
//! }
//! ```

pub mod commits;
pub mod quotas;
pub mod races;
pub mod reads;
pub mod sessions;
pub mod tokens;
mod writer;

#[cfg(all(test, feature = "sqlite"))]
pub(crate) use writer::row;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::contract::{Quota, Store};

/// Room for everything that the suite does at once, but for [`quotas`].
pub const WIDE: Quota =
    Quota { principal_bytes_max: 256 * 1024 * 1024, total_bytes_max: 1024 * 1024 * 1024 };

/// A case that takes longer hangs.
const CASE_MAX: Duration = Duration::from_secs(60);

/// Runs one case, and names it if it hangs.
macro_rules! case {
    ($make:ident, $quota:expr, $case:path) => {
        let done = timeout(CASE_MAX, $case($make($quota).await)).await;
        assert!(done.is_ok(), "{} did not end in {CASE_MAX:?}", stringify!($case));
    };
}

/// Runs every case, each on a new empty store that `make` returns. Needs a runtime with several
/// threads to mean something.
pub async fn run(make: impl AsyncFn(Quota) -> Arc<dyn Store>) {
    case!(make, WIDE, sessions::a_session_is_created_once);
    case!(make, WIDE, sessions::what_was_committed_is_loaded);
    case!(make, WIDE, sessions::a_load_tells_how_far_each_stream_goes);
    case!(make, WIDE, sessions::sessions_are_listed_in_parts);
    case!(make, WIDE, sessions::a_load_fences_every_older_owner);
    case!(make, WIDE, sessions::several_are_loaded_as_each_is_alone);
    case!(make, WIDE, sessions::a_removed_session_is_unknown_and_its_tokens_stay);
    case!(make, WIDE, sessions::everything_is_given_back);

    case!(make, WIDE, commits::a_stale_version_is_refused);
    case!(make, WIDE, commits::an_event_that_does_not_follow_is_refused);
    case!(make, WIDE, commits::a_refused_batch_leaves_no_trace);
    case!(make, WIDE, commits::an_empty_batch_changes_nothing);
    case!(make, WIDE, commits::a_ledger_row_is_replaced);
    case!(make, WIDE, commits::forgotten_rows_are_gone);

    case!(make, WIDE, tokens::a_taken_token_refuses_the_batch);
    case!(make, WIDE, tokens::a_row_is_replaced_by_its_owner_only);
    case!(make, WIDE, tokens::writes_of_one_batch_follow_each_other);
    case!(make, WIDE, tokens::a_freed_token_is_free);
    case!(make, WIDE, tokens::results_expire_to_tombstones_then_to_nothing);
    case!(make, WIDE, tokens::expiry_is_worked_off_in_parts);

    case!(make, WIDE, reads::events_come_in_order_and_whole);
    case!(make, WIDE, reads::a_page_is_bounded_and_never_empty_handed);
    case!(make, WIDE, reads::a_large_event_is_read_in_parts);
    case!(make, WIDE, reads::responses_outlive_the_rest);
    case!(make, WIDE, reads::evicted_events_are_reported);
    case!(make, WIDE, reads::what_was_never_there_reads_as_nothing);
    case!(make, WIDE, reads::a_watch_ends_with_its_session);

    case!(make, quotas::NARROW, quotas::a_full_principal_refuses_itself_only);
    case!(make, quotas::NARROW, quotas::a_full_store_refuses_all);
    case!(make, quotas::NARROW, quotas::what_is_full_can_still_say_so);
    case!(make, quotas::NARROW, quotas::refused_bytes_are_not_kept);

    case!(make, WIDE, races::one_claim_of_a_token_wins);
    case!(make, WIDE, races::a_token_is_never_seen_without_its_events);
    case!(make, WIDE, races::a_batch_is_never_seen_in_part);
    case!(make, WIDE, races::following_readers_miss_nothing);
    case!(make, WIDE, races::no_wake_up_is_lost);
    case!(make, WIDE, races::one_commit_of_a_version_wins);
}
