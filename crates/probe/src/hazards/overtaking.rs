//! A new call is sent while an old answer is replayed: which comes first?

use async_trait::async_trait;
use tokio::time::Instant;

use crate::bench::Bench;
use crate::bench::cursor;
use crate::hazard::{About, Hazard, Seen};
use crate::limits::{CALL_MAX_MS, OVERTAKING_TRIALS, ms};
use crate::reading::{Reading, Until};
use crate::session::Trouble;
use crate::subject::Call;
use crate::wire::{Exchange, Item};

pub(super) struct Overtaking;

#[async_trait]
impl Hazard for Overtaking {
    fn about(&self) -> About {
        About {
            id: "overtaking",
            title: "a new call while the old answer is replayed",
            done: "lets a call end unread, resumes its stream, and at the same moment POSTs a \
                quick call; five times",
            why: "The client acts on the new answer before it has the old one, and the order in \
                which things happened is lost.",
            fix: "Hold a new call until the running replay has left; Rejoin does, and with \
                acknowledgements the order is exact",
        }
    }

    async fn play(&self, bench: &Bench<'_>) -> Result<Seen, Trouble> {
        let fast = bench.bursting().or_else(|_| bench.resumable());
        let (subject, quick) = match (fast, &bench.plan.quick) {
            (Ok(subject), Some(quick)) => (subject, quick),
            (Ok(_), None) => return Ok(Seen::not_applicable("no read-only tool answers at once")),
            (Err(seen), _) => return Ok(seen),
        };
        let session = bench.session().await?;
        let (mut overtaken, mut missing) = (0, 0);
        for _ in 0..OVERTAKING_TRIALS {
            let call = Call::new(&subject.tool);
            let mut exchange = session.post(&call.message).await?;
            let before = Reading::of(&mut exchange, Until::steps(subject, 2)).await?;
            exchange.reset();
            bench.let_end(subject).await;
            let new = Call::new(quick);
            let mut old = session.get(Some(&cursor(&before)?)).await?;
            let mut exchange = session.post(&new.message).await?;
            let answer = read_to(&mut exchange, &new).await?;
            let before_it = old.available().await?;
            if !answer {
                return Ok(Seen::unclear("the quick call was not answered"));
            }
            if is_there(&before_it, &call) {
                continue;
            }
            let rest = Reading::of(&mut old, Until::end_of(subject, &call)).await?;
            match rest.response(&call.id) {
                Some(_) => overtaken += 1,
                None => missing += 1,
            }
        }
        let trials = OVERTAKING_TRIALS;
        if overtaken > 0 {
            return Ok(Seen::hazard(format!(
                "the new answer came first in {overtaken} of {trials}"
            )));
        }
        if missing > 0 {
            return Ok(Seen::unclear(format!(
                "the old answer never came in {missing} of {trials}"
            )));
        }
        Ok(Seen::safe(format!("the old answer came first in {trials} of {trials}")))
    }
}

/// Reads up to the response and not a moment longer; says whether it came.
async fn read_to(exchange: &mut Exchange, call: &Call) -> Result<bool, Trouble> {
    let end = Instant::now() + ms(CALL_MAX_MS);
    loop {
        match exchange.next(end).await? {
            Item::Nothing | Item::End(_) => return Ok(false),
            item if is_there(std::slice::from_ref(&item), call) => return Ok(true),
            Item::Heard(_) => {}
        }
    }
}

fn is_there(items: &[Item], call: &Call) -> bool {
    items.iter().any(|item| match item {
        Item::Heard(heard) => heard
            .message
            .as_ref()
            .is_some_and(|message| message.get("method").is_none() && message["id"] == call.id),
        _ => false,
    })
}
