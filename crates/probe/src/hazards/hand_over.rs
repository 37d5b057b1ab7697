//! A stream is cut and resumed after each of its events.

use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use crate::bench::{Bench, cursor};
use crate::hazard::{About, Hazard, Seen};
use crate::limits::{AIM_STEP_MICROS, AIMED_CALLS, CUTS_MAX, LEAD_MS, TIMER_MS, ms};
use crate::reading::{Reading, Until};
use crate::session::Trouble;
use crate::subject::{Call, Subject};
use crate::tail::Tail;

pub(super) struct HandOver;

#[async_trait]
impl Hazard for HandOver {
    fn about(&self) -> About {
        About {
            id: "hand-over",
            title: "from replay to live, again and again",
            done: "calls the tool and, after each event, resets the connection and resumes the \
                stream, up to 20 times in one call; in three more calls it resumes again and \
                again from the first event, each time so that the replay ends about when the \
                next event is made",
            why: "Between the end of the replay and the first live event there is a moment in \
                which an event belongs to neither.",
            fix: "Keep each stream's events in a log by session and stream, replay from the \
                cursor, then go on live from the same log without a gap",
        }
    }

    async fn play(&self, bench: &Bench<'_>) -> Result<Seen, Trouble> {
        let subject = match bench.resumable() {
            Ok(subject) => subject,
            Err(seen) => return Ok(seen),
        };
        let mut tails = vec![after_each_event(bench, subject).await?];
        for _ in 0..AIMED_CALLS {
            tails.push(from_the_first(bench, subject).await?);
        }
        Ok(Tail::worst(&tails))
    }
}

/// One call, cut after each event and resumed from it at once.
async fn after_each_event(bench: &Bench<'_>, subject: &Subject) -> Result<Tail, Trouble> {
    let session = bench.session().await?;
    let call = Call::new(&subject.tool);
    let before = bench.cut(&session, subject, &call, 1).await?;
    let (mut cursor, mut pieces) = (cursor(&before)?, Vec::new());
    for _ in 1..CUTS_MAX.min(subject.steps.len()) {
        let mut exchange = session.get(Some(&cursor)).await?;
        let piece = Reading::of(&mut exchange, Until::steps(subject, 1)).await?;
        exchange.reset();
        let Some(next) = piece.cursor() else { break };
        let ended = piece.steps().is_empty() || piece.response(&call.id).is_some();
        cursor = next;
        pieces.push(piece);
        if ended {
            break;
        }
    }
    if !pieces.iter().any(|piece| piece.response(&call.id).is_some()) {
        pieces.push(bench.resume(&session, subject, &call, &cursor).await?);
    }
    let pieces: Vec<&Reading> = pieces.iter().collect();
    Ok(Tail::of(subject, &call, &before, &pieces))
}

/// One call, resumed from its first event again and again, so that each replay, which is longer
/// than the one before it, ends about when the next event is made.
async fn from_the_first(bench: &Bench<'_>, subject: &Subject) -> Result<Tail, Trouble> {
    let session = bench.session().await?;
    let call = Call::new(&subject.tool);
    let before = bench.cut(&session, subject, &call, 1).await?;
    let cursor = cursor(&before)?;
    let mut aim = Aim::new(subject, &before);
    let mut gaps = 0;
    while let Some(wanted) = aim.events() {
        wait_until(aim.moment()).await;
        let sent = Instant::now();
        let mut exchange = session.get(Some(&cursor)).await?;
        let until = Until::steps(subject, wanted).or_response(&call);
        let piece = Reading::of(&mut exchange, until).await?;
        exchange.reset();
        let places = places(subject, &piece);
        let last = match piece.response(&call.id) {
            Some(_) => subject.steps.len(),
            None => places.iter().copied().max().unwrap_or_default(),
        };
        gaps = gaps.max((1..last).filter(|place| !places.contains(place)).count());
        if !aim.correct(sent, &piece, last) {
            break;
        }
    }
    let whole = bench.resume(&session, subject, &call, &cursor).await?;
    let mut tail = Tail::of(subject, &call, &before, &[&whole]);
    if subject.steady {
        tail.lost = tail.lost.max(gaps);
    }
    Ok(tail)
}

/// The places in an undisturbed call of the steps that were read.
fn places(subject: &Subject, reading: &Reading) -> Vec<usize> {
    let place = |value: f64| subject.steps.iter().position(|step| *step == value);
    reading.steps().iter().filter_map(|step| place(step.progress)).collect()
}

/// When a resume is to be sent so that its replay ends as the next event is made. One that had to
/// wait for that event came too early, and the next is sent a little later; one that did not,
/// earlier.
struct Aim {
    /// How many events a call has, and how long it takes from one to the next.
    events: usize,
    pace: Duration,
    /// When the last event was made, as far as can be told, and its place.
    made: Instant,
    place: usize,
    /// How long before the next one is made the resume is sent.
    lead: Duration,
    resumes: usize,
}

impl Aim {
    fn new(subject: &Subject, before: &Reading) -> Self {
        let events = subject.steps.len();
        let pace = ms(subject.duration_ms) / u32::try_from(events).unwrap_or(1).max(1);
        let made = before.heard.last().map_or_else(Instant::now, |heard| heard.at);
        Self { events, pace, made, place: 0, lead: ms(LEAD_MS), resumes: 0 }
    }

    /// How many events to read, up to the next one; none if the call has no more.
    fn events(&self) -> Option<usize> {
        let more = self.place + 1 < self.events && self.resumes < CUTS_MAX;
        more.then_some(self.place + 1)
    }

    fn moment(&self) -> Instant {
        self.made + self.pace.saturating_sub(self.lead)
    }

    /// Takes account of a resume; says whether it gave what is new.
    fn correct(&mut self, sent: Instant, piece: &Reading, last: usize) -> bool {
        self.resumes += 1;
        let times: Vec<Instant> =
            piece.heard.iter().filter(|heard| heard.step().is_some()).map(|one| one.at).collect();
        let (Some(at), true) = (times.last().copied(), last > self.place) else {
            return false;
        };
        let earlier = times.iter().rev().nth(1).copied().unwrap_or(sent);
        let step = Duration::from_micros(AIM_STEP_MICROS);
        if at.saturating_duration_since(earlier) > step * 2 {
            self.made = at;
            self.lead = self.lead.saturating_sub(step);
        } else {
            self.made = at.min(self.made + self.pace);
            self.lead += step;
        }
        self.place = last;
        true
    }
}

/// Waits more exactly than the runtime's timers do.
async fn wait_until(moment: Instant) {
    tokio::time::sleep_until(moment.checked_sub(ms(TIMER_MS)).unwrap_or(moment)).await;
    while Instant::now() < moment {
        tokio::task::yield_now().await;
    }
}
