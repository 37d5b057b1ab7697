//! Several streams are open at once: each message must be on its own.

use async_trait::async_trait;
use serde_json::Value;

use crate::bench::Bench;
use crate::hazard::{About, Hazard, Seen};
use crate::reading::{Reading, Until};
use crate::session::Trouble;
use crate::subject::Call;

pub(super) struct WrongStream;

#[async_trait]
impl Hazard for WrongStream {
    fn about(&self) -> About {
        About {
            id: "wrong-stream",
            title: "messages on a stream that is not theirs",
            done: "opens the standalone GET stream, runs two calls at once, then cuts a third and \
                watches the standalone stream",
            why: "A client finds a call by its stream; a response elsewhere is dropped or taken \
                for another's.",
            fix: "Bind every message to the stream of its call when it is made, and keep it there",
        }
    }

    async fn play(&self, bench: &Bench<'_>) -> Result<Seen, Trouble> {
        let subject = &bench.plan.subject;
        let session = bench.session().await?;
        let mut standalone = session.get(None).await?;
        let is_open = standalone.head().await?.status == 200;
        let (one, two) = (Call::new(&subject.tool), Call::new(&subject.tool));
        let mut first = session.post(&one.message).await?;
        let mut second = session.post(&two.message).await?;
        let (first, second) = tokio::join!(
            Reading::of(&mut first, Until::end_of(subject, &one)),
            Reading::of(&mut second, Until::end_of(subject, &two)),
        );
        let strangers = first?.foreign(&one) + second?.foreign(&two);
        if strangers > 0 {
            let text = format!("{strangers} messages on the stream of another call");
            return Ok(Seen::violation("MULTI-2", text));
        }
        if !is_open {
            return Ok(Seen::safe("two calls kept apart; there is no standalone stream"));
        }
        let third = Call::new(&subject.tool);
        if subject.lasts() {
            bench.cut(&session, subject, &third, 2).await?;
            bench.let_end(subject).await;
        }
        let reading = Reading::of(&mut standalone, Until::silence()).await?;
        let is_response = |message: &&Value| message.get("method").is_none();
        let responses = reading.messages().filter(is_response).count();
        if responses > 0 {
            let text = format!("{responses} responses on the standalone stream");
            return Ok(Seen::violation("GET-5", text));
        }
        let progress = reading.steps().len();
        if progress > 0 {
            let text = format!("{progress} progress events of calls on the standalone stream");
            return Ok(Seen::hazard(text));
        }
        Ok(Seen::safe("every message on its own stream"))
    }
}
