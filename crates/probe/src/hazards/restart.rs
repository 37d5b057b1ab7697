//! The server is restarted in the middle of a call.

use async_trait::async_trait;
use serde_json::json;

use crate::bench::{Bench, cursor};
use crate::command::run_silently;
use crate::hazard::{About, Hazard, Seen};
use crate::session::Trouble;
use crate::session::request;
use crate::subject::Call;

pub(super) struct Restart;

#[async_trait]
impl Hazard for Restart {
    fn about(&self) -> About {
        About {
            id: "restart",
            title: "the server restarts while a call runs",
            done: "cuts a call, runs --restart-cmd, resumes the stream, and sends ping in the \
                session",
            why: "After a restart a client does not know whether its call ran, and repeats it.",
            fix: "Keep sessions and answers in a log that outlives the process (Rejoin: --data), \
                or answer 404 so that clients start anew",
        }
    }

    async fn play(&self, bench: &Bench<'_>) -> Result<Seen, Trouble> {
        let Some(restart) = &bench.plan.restart_command else {
            return Ok(Seen::not_applicable(
                "give --restart-cmd: a command that restarts the server",
            ));
        };
        let subject = match bench.resumable() {
            Ok(subject) => subject,
            Err(seen) => return Ok(seen),
        };
        let session = bench.session().await?;
        let call = Call::new(&subject.tool);
        let before = bench.cut(&session, subject, &call, 2).await?;
        run_silently("--restart-cmd", restart).await?;
        let after = bench.resume(&session, subject, &call, &cursor(&before)?).await?;
        let ping = request("restart-ping", "ping", &json!({}));
        let status = session.answer(&session.post_request(&ping)).await?.0;
        Ok(match (after.response(&call.id), status) {
            (Some(answer), _) if answer.get("result").is_some() => Seen::safe("the answer came"),
            (Some(_), _) => Seen::safe("the outcome was told as an error of the call"),
            (None, 404) => Seen::hazard("404: the session is gone, and the answer with it"),
            (None, 200..300) => Seen::hazard(format!("no answer: {}", after.ending())),
            (None, _) => {
                Seen::violation("SES-7", format!("status {status} for a session that is gone"))
            }
        })
    }
}
