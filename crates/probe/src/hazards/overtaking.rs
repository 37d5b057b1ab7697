//! A new call is sent while an old answer is replayed: which comes first?

use async_trait::async_trait;
use tokio::time::Instant;

use crate::bench::{Bench, cursor};
use crate::hazard::{About, Hazard, Seen, Verdict};
use crate::limits::{
    CALL_MAX_MS, GET_FIRST_MS, MISSING_MAX, OVERTAKING_TRIALS, QUICK_CALL_EVERY_MS, QUICK_CALLS,
    REST_MAX_MS, SHORT_TAIL_EVENTS, ms,
};
use crate::reading::{Reading, Until};
use crate::session::{Session, Trouble};
use crate::subject::{Call, Subject, Tool};
use crate::wire::{Exchange, Item};

/// Events of the old answer that are read before it is cut.
const READ: usize = 2;

pub(super) struct Overtaking;

#[async_trait]
impl Hazard for Overtaking {
    fn about(&self) -> About {
        About {
            id: "overtaking",
            title: "a new call while the old answer is replayed",
            done: "lets a call end unread, resumes its stream, and POSTs up to four quick calls \
                a millisecond apart while the replay runs; ten times",
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
        // An old answer that a small log has lost overtakes nothing: with a shorter rest it may.
        let long = bench.bursting().map(|subject| (subject, READ));
        let short = bench.bursting().map(|subject| {
            (subject, subject.steps.len().saturating_sub(SHORT_TAIL_EVENTS).max(READ))
        });
        let slow = bench.resumable().map(|subject| (subject, READ));
        let mut last = None;
        for attempt in [long, short, slow] {
            match attempt {
                Ok((subject, read)) => {
                    let seen = trials(bench, subject, read, quick).await?;
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
async fn trials(
    bench: &Bench<'_>,
    subject: &Subject,
    read: usize,
    quick: &Tool,
) -> Result<Seen, Trouble> {
    let (mut overtaken, mut missing) = (0, 0);
    for trial in 0..OVERTAKING_TRIALS {
        // Of its own: in one session the next call would be a repeat of this one.
        let session = bench.session().await?;
        let call = Call::new(&subject.tool);
        let mut exchange = session.post(&call.message).await?;
        let before = Reading::of(&mut exchange, Until::steps(subject, read)).await?;
        exchange.reset();
        bench.let_end(subject).await;
        let old = session.get(Some(&cursor(&before)?)).await?;
        // A POST that arrives before the GET is no fault of the server's.
        old.readable(ms(GET_FIRST_MS)).await;
        match first(&session, old, &call, quick).await? {
            First::Old => {}
            First::New => overtaken += 1,
            First::NewOnly => missing += 1,
            First::Neither => return Ok(Seen::unclear("the quick call was not answered")),
        }
        if missing >= MISSING_MAX && overtaken == 0 {
            let trials = trial + 1;
            return Ok(Seen::unclear(format!(
                "the old answer never came in {missing} of {trials}"
            )));
        }
    }
    let (trials, rest) = (OVERTAKING_TRIALS, subject.steps.len().saturating_sub(read));
    if overtaken > 0 {
        return Ok(Seen::hazard(format!(
            "the new answer came first in {overtaken} of {trials}, before an old one of {rest} \
             events"
        )));
    }
    if missing > 0 {
        return Ok(Seen::unclear(format!("the old answer never came in {missing} of {trials}")));
    }
    Ok(Seen::safe(format!("the old answer of {rest} events came first in {trials} of {trials}")))
}

/// Which of the two responses came first.
enum First {
    Old,
    New,
    NewOnly,
    Neither,
}

/// Sends new calls while it reads the old answer as it comes.
async fn first(
    session: &Session,
    mut old: Exchange,
    call: &Call,
    quick: &Tool,
) -> Result<First, Trouble> {
    let end = Instant::now() + ms(CALL_MAX_MS);
    let (mut new, mut sent, mut old_ended) = (Vec::new(), 0, false);
    while Instant::now() < end {
        if sent == 0 || sent < QUICK_CALLS && !old_ended {
            let call = Call::new(quick);
            new.push((session.post(&call.message).await?, call));
            sent += 1;
        }
        let pass = Instant::now() + ms(QUICK_CALL_EVERY_MS);
        if old_ended {
            tokio::time::sleep_until(pass).await;
        }
        while !old_ended && Instant::now() < pass {
            let item = old.next(pass).await?;
            if is_there(std::slice::from_ref(&item), call) {
                return Ok(First::Old);
            }
            old_ended = matches!(item, Item::End(_));
        }
        let mut open = Vec::new();
        for (mut exchange, its_call) in new {
            let items = exchange.available().await?;
            if is_there(&items, &its_call) {
                return rest(old, old_ended, call).await;
            }
            if !items.iter().any(|item| matches!(item, Item::End(_))) {
                open.push((exchange, its_call));
            }
        }
        new = open;
        if new.is_empty() && old_ended {
            break;
        }
    }
    Ok(First::Neither)
}

/// What came of the old answer when a new one was there.
async fn rest(mut old: Exchange, ended: bool, call: &Call) -> Result<First, Trouble> {
    // What the kernel had of the old answer by now came before the new one.
    let available = if ended { Vec::new() } else { old.available().await? };
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
