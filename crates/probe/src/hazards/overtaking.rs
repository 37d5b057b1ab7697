//! A new call is sent while an old answer is replayed: which comes first?

use async_trait::async_trait;
use tokio::time::Instant;

use crate::bench::{Bench, cursor};
use crate::hazard::{About, Hazard, Seen, Verdict};
use crate::limits::{CALL_MAX_MS, GET_FIRST_MS, OVERTAKING_TRIALS, REST_MAX_MS, ms};
use crate::reading::{Reading, Until};
use crate::session::Trouble;
use crate::subject::{Call, Subject, Tool};
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
        let Some(quick) = &bench.plan.quick else {
            return Ok(Seen::not_applicable("no read-only tool answers at once"));
        };
        let mut last = None;
        for subject in [bench.bursting(), bench.resumable()] {
            match subject {
                Ok(subject) => {
                    let seen = trials(bench, subject, quick).await?;
                    // An old answer that a small log has lost overtakes nothing: a shorter one may.
                    if seen.verdict != Verdict::CouldNotTell {
                        return Ok(seen);
                    }
                    last = Some(seen);
                }
                Err(seen) => last = last.or(Some(seen)),
            }
        }
        Ok(last.unwrap_or_else(|| Seen::unclear("nothing was tried")))
    }
}

/// A new call during a replay, several times.
async fn trials(bench: &Bench<'_>, subject: &Subject, quick: &Tool) -> Result<Seen, Trouble> {
    let (mut overtaken, mut missing) = (0, 0);
    for _ in 0..OVERTAKING_TRIALS {
        // Of its own: in one session the next call would be a repeat of this one.
        let session = bench.session().await?;
        let call = Call::new(&subject.tool);
        let mut exchange = session.post(&call.message).await?;
        let before = Reading::of(&mut exchange, Until::steps(subject, 2)).await?;
        exchange.reset();
        bench.let_end(subject).await;
        let old = session.get(Some(&cursor(&before)?)).await?;
        // A POST that arrives before the GET is no fault of the server's.
        old.readable(ms(GET_FIRST_MS)).await;
        let new = Call::new(quick);
        let exchange = session.post(&new.message).await?;
        match first(old, &call, exchange, &new).await? {
            First::Old => {}
            First::New => overtaken += 1,
            First::NewOnly => missing += 1,
            First::Neither => return Ok(Seen::unclear("the quick call was not answered")),
        }
    }
    let trials = OVERTAKING_TRIALS;
    if overtaken > 0 {
        return Ok(Seen::hazard(format!("the new answer came first in {overtaken} of {trials}")));
    }
    if missing > 0 {
        return Ok(Seen::unclear(format!("the old answer never came in {missing} of {trials}")));
    }
    Ok(Seen::safe(format!("the old answer came first in {trials} of {trials}")))
}

/// Which of the two responses came first.
enum First {
    Old,
    New,
    NewOnly,
    Neither,
}

/// Reads both answers as they come.
async fn first(
    mut old: Exchange,
    call: &Call,
    mut exchange: Exchange,
    new: &Call,
) -> Result<First, Trouble> {
    let end = Instant::now() + ms(CALL_MAX_MS);
    let mut old_ended = false;
    loop {
        let (item, is_old) = tokio::select! {
            biased;
            item = old.next(end), if !old_ended => (item?, true),
            item = exchange.next(end) => (item?, false),
        };
        match (is_there(std::slice::from_ref(&item), call), is_old, &item) {
            (true, true, _) => return Ok(First::Old),
            (_, true, Item::End(_) | Item::Nothing) => old_ended = true,
            (_, true, _) => {}
            _ if is_there(std::slice::from_ref(&item), new) => break,
            (_, false, Item::Heard(_)) => {}
            (_, false, _) => return Ok(First::Neither),
        }
    }
    // What the kernel had of the old answer by now came before the new one.
    let available = if old_ended { Vec::new() } else { old.available().await? };
    if is_there(&available, call) {
        return Ok(First::Old);
    }
    let rest = Reading::of(&mut old, Until::response(&call.id).within(ms(REST_MAX_MS))).await?;
    Ok(if rest.response(&call.id).is_some() { First::New } else { First::NewOnly })
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
