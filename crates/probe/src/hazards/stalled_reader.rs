//! A client opens a stream and reads nothing of it.

use async_trait::async_trait;
use serde_json::json;
use tokio::time::{Instant, timeout};

use crate::bench::Bench;
use crate::hazard::{About, Hazard, Seen};
use crate::limits::{SILENCE_MS, STALL_MS, STALLED_PING_MAX_MS, STALLED_RECEIVE_BYTES, ms};
use crate::reading::{Reading, Until};
use crate::session::Trouble;
use crate::session::request as request_of;
use crate::subject::Call;

pub(super) struct StalledReader;

#[async_trait]
impl Hazard for StalledReader {
    fn about(&self) -> About {
        About {
            id: "stalled-reader",
            title: "one reader that stalls",
            done: "calls the tool with --flood-args, reads nothing, and sends ping in the same \
                session",
            why: "One slow stream stops all other calls of the session.",
            fix: "Read what a tool makes into a log at full speed; let each connection read the \
                log at its own",
        }
    }

    async fn play(&self, bench: &Bench<'_>) -> Result<Seen, Trouble> {
        let Some(tool) = &bench.plan.flood else {
            let text = "give --flood-args: arguments with which the tool sends megabytes of events";
            return Ok(Seen::not_applicable(text));
        };
        let session = bench.session().await?;
        let call = Call::new(tool);
        let request = session.post_request(&call.message);
        let stalled = session.send_with(&request, Some(STALLED_RECEIVE_BYTES)).await?;
        stalled.readable(ms(SILENCE_MS)).await;
        tokio::time::sleep(ms(STALL_MS)).await;
        let started = Instant::now();
        let ping = session.post(&request_of("stalled-ping", "ping", &json!({}))).await;
        let answered = async {
            let mut exchange = ping?;
            let until = Until::response(&json!("stalled-ping")).within(ms(STALLED_PING_MAX_MS));
            let reading = Reading::of(&mut exchange, until).await?;
            Ok::<bool, Trouble>(reading.response(&json!("stalled-ping")).is_some())
        };
        let answered = timeout(ms(STALLED_PING_MAX_MS), answered).await;
        let took = started.elapsed().as_millis();
        stalled.reset();
        Ok(match answered {
            Ok(Ok(true)) => Seen::safe(format!("ping was answered within {took} ms")),
            _ => Seen::hazard(format!("ping was not answered within {STALLED_PING_MAX_MS} ms")),
        })
    }
}
