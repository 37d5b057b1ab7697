//! A call that is sent again: how often did it run?

use serde_json::Value;

use crate::bench::{Bench, cursor};
use crate::hazard::Seen;
use crate::reading::{Reading, Until};
use crate::session::Trouble;
use crate::subject::{Call, Subject};
use crate::tail::bare;

/// What repairs a server that runs a repeat of a call whose stream was cut.
pub(crate) const REPEAT_FIX: &str = "Key what runs by the call, not by the connection: refuse the \
    repeat with a cursor to resume from, or give it the recorded answer; Rejoin in front does both";

/// How a call is sent again whose stream was cut after two events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// Byte for byte, while it runs.
    SameBody,
    /// With a new id, while it runs.
    NewId,
    /// Byte for byte, when it has ended.
    SameBodyAfterEnd,
    /// With a new id, when it has ended.
    NewIdAfterEnd,
}

impl Again {
    /// Plays it: the call, the cut, the repeat, and the first stream resumed.
    pub(crate) async fn play(self, bench: &Bench<'_>) -> Result<Seen, Trouble> {
        let subject = match bench.lasting() {
            Ok(subject) => subject,
            Err(seen) => return Ok(seen),
        };
        let session = bench.session().await?;
        let (counted, first) = (bench.count().await?, Call::new(&subject.tool));
        let before = bench.cut(&session, subject, &first, 2).await?;
        if matches!(self, Self::SameBodyAfterEnd | Self::NewIdAfterEnd) {
            bench.let_end(subject).await;
        }
        let second = match self {
            Self::SameBody | Self::SameBodyAfterEnd => first.clone(),
            Self::NewId | Self::NewIdAfterEnd => Call::new(&subject.tool),
        };
        let mut exchange = session.post(&second.message).await?;
        let answer = Reading::of(&mut exchange, Until::end_of(subject, &second)).await?;
        let resumed = match cursor(&before) {
            Ok(cursor) => Some(bench.resume(&session, subject, &first, &cursor).await?),
            Err(_) => None,
        };
        let counted = counted.zip(bench.count().await?);
        let (resumed, answer, before) = (resumed.as_ref(), &answer, &before);
        let repeat =
            Repeat { subject, first: &first, second: &second, before, answer, resumed, counted };
        Ok(repeat.seen())
    }
}

/// All that was seen of a call and its repeat.
pub(crate) struct Repeat<'a> {
    pub(crate) subject: &'a Subject,
    /// The call.
    pub(crate) first: &'a Call,
    /// Its repeat; the same if it was sent again byte for byte.
    pub(crate) second: &'a Call,
    /// What was read of the call before it was cut.
    pub(crate) before: &'a Reading,
    /// What the repeat was answered.
    pub(crate) answer: &'a Reading,
    /// What came when the stream of the call was resumed afterwards.
    pub(crate) resumed: Option<&'a Reading>,
    /// What the counting command said before and after.
    pub(crate) counted: Option<(u64, u64)>,
}

impl Repeat<'_> {
    /// What that means, of the executions and of what was replayed.
    pub(crate) fn seen(&self) -> Seen {
        let seen = self.executions();
        match self.resumed.map(|resumed| resumed.foreign(self.first)) {
            None | Some(0) => seen,
            Some(strangers) => {
                let text = "messages of other calls were replayed on the stream of the first";
                Seen::violation("RES-6", format!("{}; {strangers} {text}", seen.seen))
            }
        }
    }

    fn executions(&self) -> Seen {
        let answered = match self.answer.error() {
            Some(error) => format!("answered {} with error {error}", self.answer.status),
            None => format!("answered: {}", self.answer.ending()),
        };
        if let Some((before, after)) = self.counted {
            let ran = after.saturating_sub(before);
            return match ran {
                0 => Seen::unclear("the counting command counted no execution"),
                1 => Seen::safe(format!("1 execution counted; the repeat was {answered}")),
                _ => Seen::hazard(format!("{ran} executions counted{}", self.first_answer())),
            };
        }
        if let Some(evidence) = self.ran_twice() {
            return Seen::hazard(format!("2 executions: {evidence}{}", self.first_answer()));
        }
        if self.answer.error().is_some() || self.answer.status >= 400 {
            return Seen::safe(format!("not run again: {answered}"));
        }
        let has_result = self.answer.messages().any(|message| message.get("result").is_some());
        if has_result && self.subject.has_tail() {
            return Seen::safe(format!(
                "one execution: the repeat got a result, and {}",
                "no progress of a second execution was seen"
            ));
        }
        Seen::unclear(format!(
            "the repeat was {answered}; nothing tells the executions apart: use --count-cmd"
        ))
    }

    /// What shows that the tool ran a second time.
    fn ran_twice(&self) -> Option<String> {
        let later = || [Some(self.answer), self.resumed].into_iter().flatten();
        if self.first.token != self.second.token {
            let own = later().flat_map(Reading::steps).find(|step| step.token == self.second.token);
            if let Some(step) = own {
                return Some(format!("the repeat has progress of its own, from {}", step.progress));
            }
        } else {
            let had = self.before.steps();
            let again = later().flat_map(Reading::steps).find(|step| {
                let known = |one: &crate::reading::Step| one.id.is_some() && one.id == step.id;
                let reported = had.iter().any(|one| one.progress >= step.progress);
                reported && !had.iter().any(known)
            });
            if let Some(step) = again {
                return Some(format!("progress began anew at {}", step.progress));
            }
        }
        if !self.subject.distinct {
            return None;
        }
        let answers: Vec<Value> = later()
            .flat_map(Reading::messages)
            .filter(|message| message["id"] == self.first.id || message["id"] == self.second.id)
            .filter_map(|message| message.get("result").map(bare))
            .collect();
        let first = answers.first()?;
        let differ = answers.iter().any(|answer| answer != first);
        differ.then(|| "two answers that differ".to_owned())
    }

    fn first_answer(&self) -> String {
        let Some(resumed) = self.resumed else {
            return String::new();
        };
        match resumed.responses(&self.first.id).count() {
            0 => format!("; the first answer never came ({})", resumed.ending()),
            1 => "; resuming the first gave its answer".to_owned(),
            many => format!("; resuming the first gave {many} responses"),
        }
    }
}
