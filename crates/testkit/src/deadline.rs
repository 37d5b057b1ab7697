//! Bounded waits. A test never waits without a limit and never sleeps to synchronise.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

/// How long a wait may take unless a test says otherwise.
pub const WAIT: Duration = Duration::from_secs(10);

/// The longest wait of any test.
pub const WAIT_MAX: Duration = Duration::from_secs(30);

/// How often a condition without an event is looked at.
const POLL: Duration = Duration::from_millis(5);

/// A wait that reached its limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("waited {waited_ms} ms for {what}")]
pub struct DeadlineError {
    /// What did not happen.
    pub what: String,
    /// How long the wait was, in milliseconds.
    pub waited_ms: u128,
}

impl DeadlineError {
    fn new(what: &str, limit: Duration) -> Self {
        Self { what: what.to_owned(), waited_ms: limit.as_millis() }
    }
}

/// Waits for `future`, at most `limit`.
pub async fn within<T>(
    what: &str,
    limit: Duration,
    future: impl Future<Output = T>,
) -> Result<T, DeadlineError> {
    tokio::time::timeout(limit, future).await.map_err(|_| DeadlineError::new(what, limit))
}

/// Looks again and again, at most `limit` long, until `look` gives a value or an error.
pub async fn until<T, E: From<DeadlineError>>(
    what: &str,
    limit: Duration,
    mut look: impl AsyncFnMut() -> Result<Option<T>, E>,
) -> Result<T, E> {
    let end = Instant::now() + limit;
    loop {
        if let Some(value) = look().await? {
            return Ok(value);
        }
        if Instant::now() >= end {
            return Err(DeadlineError::new(what, limit).into());
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Lets time pass because the scenario says so ("the client comes back after 50 ms"), never in
/// order to wait for something.
pub async fn pause(time: Duration) {
    tokio::time::sleep(time.min(WAIT_MAX)).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wait_that_never_ends_names_what_it_waited_for() {
        let limit = Duration::from_millis(5);
        let error = within("the answer", limit, std::future::pending::<()>()).await.unwrap_err();
        assert_eq!(error.to_string(), "waited 5 ms for the answer");
    }

    #[tokio::test]
    async fn until_returns_the_first_value_and_stops_at_its_limit() {
        let mut looks = 0;
        let found = until("three looks", WAIT, async || {
            looks += 1;
            Ok::<_, DeadlineError>((looks == 3).then_some(looks))
        });
        assert_eq!(found.await, Ok(3));
        let never =
            until("nothing", Duration::from_millis(5), async || Ok::<_, DeadlineError>(None::<()>));
        assert!(never.await.is_err());
    }
}
