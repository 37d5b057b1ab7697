//! The end of a client's connection is noticed, whatever it left behind.

use std::time::Duration;

use rejoin_testkit::call::Call;
use rejoin_testkit::deadline::until;
use rejoin_testkit::failure::{Failure, TestResult};
use serde_json::json;

use crate::support::Bench;

/// How soon an end is noticed: long before anything is written again.
const AT_ONCE: Duration = Duration::from_secs(2);

async fn counts(bench: &Bench, name: &str, wanted: f64) -> TestResult {
    until(&format!("{name} {wanted}"), AT_ONCE, async || {
        Ok::<_, Failure>((bench.metric(name).await? == Some(wanted)).then_some(()))
    })
    .await
}

#[tokio::test]
async fn a_stream_is_lost_with_its_client_even_if_bytes_were_left_unread() -> TestResult {
    let bench = Bench::start().await?;
    let mut owed = 0.0;
    for left_behind in [1, 64 * 1024] {
        for reset in [true, false] {
            let session = bench.session().await?;
            let mut call = session.call(&Call::new(1, "hang", json!({}))).await?;
            call.messages(1).await?;
            let mut standalone = session.get(None).await?;
            standalone.head().await?;
            for mut client in [call, standalone] {
                client.send(&b"x".repeat(left_behind)).await?;
                if reset {
                    client.cut_rst()?;
                } else {
                    drop(client);
                }
            }
            owed += 1.0;
            counts(&bench, "rejoin_streams{state=\"owed\"}", owed).await?;
            counts(&bench, "rejoin_connections", 0.0).await?;
        }
    }
    Ok(())
}
