//! A stream is cut and resumed after each of its events.

use async_trait::async_trait;

use crate::bench::{Bench, cursor};
use crate::hazard::{About, Hazard, Seen};
use crate::limits::CUTS_MAX;
use crate::reading::{Reading, Until};
use crate::session::Trouble;
use crate::subject::Call;
use crate::tail::Tail;

pub(super) struct HandOver;

#[async_trait]
impl Hazard for HandOver {
    fn about(&self) -> About {
        About {
            id: "hand-over",
            title: "from replay to live, again and again",
            done: "calls the tool and, after each event, resets the connection and resumes the \
                stream, up to 20 times in one call",
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
        Ok(Tail::of(subject, &call, &before, &pieces).seen())
    }
}
