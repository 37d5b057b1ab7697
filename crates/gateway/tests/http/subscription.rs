//! Resource subscriptions: an update arrives on the standalone stream, across lost connections and
//! across the end of the server's process.

use rejoin_gateway::upstream::Channel;
use rejoin_testkit::deadline::{WAIT, until};
use rejoin_testkit::failure::{Failure, TestResult};
use rejoin_testkit::raw::Connection;
use rejoin_testkit::session::Session;
use serde_json::{Value, json};

use crate::living::Place;
use crate::support::request;

const UPDATED: &str = "notifications/resources/updated";

async fn ask(session: &Session, id: u64, method: &str, params: Value) -> TestResult {
    let mut message = request(id, method);
    message["params"] = params;
    let answer = session.post(&message).await?.response().await?;
    assert!(answer.get("result").is_some(), "{answer}");
    Ok(())
}

/// The resource that the next update on a stream is about; other notifications are passed over.
async fn updated(stream: &mut Connection) -> Result<Value, Failure> {
    for _ in 0..8 {
        let message = stream.message().await?.message().unwrap_or_default();
        if message["method"] == UPDATED {
            return Ok(message["params"]["uri"].clone());
        }
    }
    Err(Failure::new("eight messages and no update"))
}

#[tokio::test]
async fn an_update_arrives_on_the_standalone_stream_and_survives_its_loss() -> TestResult {
    let place = Place::start().await?;
    let session = Session::open(place.address).await?;
    let mut standalone = session.get(None).await?;
    standalone.head().await?;
    ask(&session, 1, "resources/subscribe", json!({"uri": "file:a"})).await?;
    assert!(!place.server.update("file:b", Channel::Standalone).await);
    // As a server at a URL sends it, and as one over stdio does.
    for channel in [Channel::Standalone, Channel::Unknown] {
        assert!(place.server.update("file:a", channel).await);
        assert_eq!(updated(&mut standalone).await?, "file:a");
    }
    let cursor = standalone.last_id().map(str::to_owned);
    standalone.cut_rst()?;
    assert!(place.server.update("file:a", Channel::Standalone).await);
    let mut resumed = session.get(cursor.as_deref()).await?;
    assert_eq!(updated(&mut resumed).await?, "file:a");
    Ok(())
}

#[tokio::test]
async fn a_server_that_is_started_again_is_subscribed_again() -> TestResult {
    let place = Place::start().await?;
    let session = Session::open(place.address).await?;
    let mut standalone = session.get(None).await?;
    standalone.head().await?;
    ask(&session, 1, "resources/subscribe", json!({"uri": "file:a"})).await?;
    ask(&session, 2, "resources/subscribe", json!({"uri": "file:b"})).await?;
    ask(&session, 3, "resources/unsubscribe", json!({"uri": "file:b"})).await?;
    place.server.crash().await;
    // The next request for it starts it again.
    ask(&session, 4, "resources/list", json!({})).await?;
    assert_eq!(place.server.processes(), 2);
    until("the subscription in the new process", WAIT, async || {
        let told = place.server.update("file:a", Channel::Standalone).await;
        Ok::<_, Failure>(told.then_some(()))
    })
    .await?;
    assert_eq!(updated(&mut standalone).await?, "file:a");
    assert!(!place.server.update("file:b", Channel::Standalone).await);
    Ok(())
}
