//! A refusal must say which request it is for, and in a form that a program can read.

use async_trait::async_trait;
use serde_json::{Value, json};

use crate::bench::Bench;
use crate::hazard::{About, Hazard, Seen};
use crate::reading::{Reading, Until};
use crate::session::Trouble;
use crate::session::request;
use crate::subject::Call;

pub(super) struct Refusal;

#[async_trait]
impl Hazard for Refusal {
    fn about(&self) -> About {
        About {
            id: "refusal",
            title: "refusals that say too little",
            done: "calls a method and a tool that do not exist and, where a repeat in flight is \
                refused, reads that refusal",
            why: "A client cannot match the error to its call, or cannot tell `in flight` from \
                `broken`, and repeats.",
            fix: "Answer with one JSON-RPC error with the request's id, an integer code, and a \
                reason in data where the call may be repeated",
        }
    }

    async fn play(&self, bench: &Bench<'_>) -> Result<Seen, Trouble> {
        let session = bench.session().await?;
        let params = json!({ "name": "rejoin-probe-no-such-tool", "arguments": {} });
        for (id, method, params) in [
            ("no-such-method", "rejoin-probe/none", &json!({})),
            ("no-such-tool", "tools/call", &params),
        ] {
            let message = request(id, method, params);
            let (status, reading) = session.answer(&session.post_request(&message)).await?;
            if let Some(fault) = fault(&reading, &json!(id), status) {
                return Ok(fault);
            }
        }
        let Ok(subject) = bench.lasting() else {
            return Ok(Seen::safe("errors with the id of their request"));
        };
        let call = Call::new(&subject.tool);
        bench.cut(&session, subject, &call, 2).await?;
        let repeat = Call::new(&subject.tool);
        let mut exchange = session.post(&repeat.message).await?;
        let reading = Reading::of(&mut exchange, Until::end_of(subject, &repeat)).await?;
        let Some(error) = reading.messages().find_map(|message| message.get("error")) else {
            return Ok(Seen::safe("errors with the id of their request; repeats are not refused"));
        };
        if let Some(fault) = fault(&reading, &repeat.id, reading.status) {
            return Ok(fault);
        }
        Ok(match error.get("data") {
            Some(_) => Seen::safe("errors with the id of their request, and a reason in data"),
            None => {
                Seen::hazard("a repeat is refused without a reason that a program can read (data)")
            }
        })
    }
}

/// What is wrong with the answer to a request that cannot be served.
fn fault(reading: &Reading, id: &Value, status: u16) -> Option<Seen> {
    let answer = reading.messages().find(|message| message.get("method").is_none());
    let Some(answer) = answer else {
        return Some(Seen::hazard(format!("{id}: status {status} without a JSON-RPC answer")));
    };
    if answer["id"] != *id {
        return Some(Seen::violation("B-3", format!("{id} was answered for id {}", answer["id"])));
    }
    match answer.get("error") {
        Some(error) if !error["code"].is_i64() => {
            Some(Seen::violation("B-5", format!("{id}: the code of the error is no integer")))
        }
        _ => None,
    }
}
