//! What was read of an answer, and what it says of the call it belongs to.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::limits::{AFTERMATH_MS, CALL_MAX_MS, QUOTED_CHARS_MAX, SILENCE_MS, SPARE_MS, ms};
use crate::subject::{Call, Subject};
use crate::visible::beginning;
use crate::wire::{End, Exchange, Heard, Item, WireError};

/// How far an answer is read.
#[derive(Clone, Debug, Default)]
pub struct Until {
    /// Up to the response with this id, and a little beyond.
    response: Option<Value>,
    /// Up to so many progress events.
    steps: Option<usize>,
    /// No longer than this.
    limit: Duration,
}

impl Until {
    /// Up to a response, in the time that any call may take.
    pub fn response(id: &Value) -> Self {
        Self { response: Some(id.clone()), steps: None, limit: ms(CALL_MAX_MS) }
    }

    /// Up to the response of a call, in the time that its tool takes and some more.
    pub fn end_of(subject: &Subject, call: &Call) -> Self {
        let limit = ms(subject.duration_ms * 2 + SPARE_MS);
        Self { response: Some(call.id.clone()), steps: None, limit }
    }

    /// Up to so many progress events.
    pub fn steps(subject: &Subject, steps: usize) -> Self {
        let limit = ms(subject.duration_ms * 2 + SPARE_MS);
        Self { response: None, steps: Some(steps), limit }
    }

    /// Or up to the response of a call, and a little beyond.
    #[must_use]
    pub fn or_response(self, call: &Call) -> Self {
        Self { response: Some(call.id.clone()), ..self }
    }

    /// As long as something comes within a second.
    pub fn silence() -> Self {
        Self { limit: ms(SILENCE_MS), ..Self::default() }
    }

    /// No longer than this.
    #[must_use]
    pub fn within(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }
}

/// What was read of an answer.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// The status.
    pub status: u16,
    /// Its events, or its body.
    pub heard: Vec<Heard>,
    /// How it ended, if it did.
    pub end: Option<End>,
    /// How long it was read.
    pub took: Duration,
    /// Whether it was a stream of events.
    pub event_stream: bool,
}

impl Reading {
    /// Reads an answer as far as `until` says.
    ///
    /// # Errors
    /// No head came, or no HTTP.
    pub async fn of(exchange: &mut Exchange, until: Until) -> Result<Self, WireError> {
        let started = Instant::now();
        let mut end = started + until.limit;
        let head = exchange.head().await?;
        let event_stream = head.is_event_stream();
        let mut reading = Self { status: head.status, event_stream, ..Self::default() };
        let (mut steps, mut responded) = (0, false);
        loop {
            match exchange.next(end).await? {
                Item::Heard(heard) => {
                    steps += usize::from(Step::of(&heard).is_some());
                    reading.heard.push(heard);
                }
                Item::End(how) => reading.end = Some(how),
                Item::Nothing => {}
            }
            let last = reading.heard.last().and_then(|heard| heard.message.as_ref());
            let is_it = |last: &Value| {
                last.get("method").is_none() && until.response.as_ref() == last.get("id")
            };
            if !responded && until.response.is_some() && last.is_some_and(is_it) {
                responded = true;
                reading.took = started.elapsed();
                end = Instant::now() + ms(AFTERMATH_MS);
            }
            let enough = until.steps.is_some_and(|wanted| steps >= wanted);
            if reading.end.is_some() || enough || Instant::now() >= end {
                break;
            }
        }
        if !responded {
            reading.took = started.elapsed();
        }
        Ok(reading)
    }

    /// The messages in it.
    pub fn messages(&self) -> impl Iterator<Item = &Value> {
        self.heard.iter().filter_map(|heard| heard.message.as_ref())
    }

    /// The responses with this id.
    pub fn responses<'a>(&'a self, id: &'a Value) -> impl Iterator<Item = &'a Value> {
        self.messages()
            .filter(move |message| message.get("method").is_none() && message["id"] == *id)
    }

    /// The response with this id.
    pub fn response<'a>(&'a self, id: &'a Value) -> Option<&'a Value> {
        self.responses(id).next()
    }

    /// What belongs to neither this id nor this token: responses and progress of other calls.
    pub fn foreign(&self, call: &Call) -> usize {
        let is_foreign = |message: &&Value| match message["method"].as_str() {
            Some("notifications/progress") => message["params"]["progressToken"] != call.token,
            Some(_) => false,
            None => message.get("id").is_some_and(|id| !id.is_null() && *id != call.id),
        };
        self.messages().filter(is_foreign).count()
    }

    /// The progress in it: what was reported, for which token, and the event's id.
    pub fn steps(&self) -> Vec<Step> {
        self.heard.iter().filter_map(Step::of).collect()
    }

    /// The id of the last event that has one.
    pub fn cursor(&self) -> Option<String> {
        self.heard.iter().rev().find_map(|heard| heard.id.clone())
    }

    /// The id of the first event that has one and carries a message.
    pub fn first_message_id(&self) -> Option<String> {
        self.heard.iter().filter(|heard| heard.message.is_some()).find_map(|heard| heard.id.clone())
    }

    /// In words: status and how it ended.
    pub fn ending(&self) -> String {
        let end = match self.end {
            Some(End::Whole) => "ended",
            Some(End::Cut) => "was closed in the middle",
            Some(End::Reset) => "was reset",
            None => "stayed open",
        };
        format!("status {}, {} messages, {end}", self.status, self.messages().count())
    }

    /// The first JSON-RPC error in it, as `code: message`.
    pub fn error(&self) -> Option<String> {
        let errors = self.messages().filter_map(|message| message.get("error"));
        let error = errors.into_iter().find(|error| error.is_object())?;
        let text = error["message"].as_str().unwrap_or_default();
        let code = error["code"].to_string();
        let shown = |text: &str| beginning(text, QUOTED_CHARS_MAX);
        Some(format!("{}: {}", shown(&code), shown(text)))
    }
}

/// A progress event.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The token it is for.
    pub token: Value,
    /// What it reports.
    pub progress: f64,
    /// The event's id.
    pub id: Option<String>,
}

impl Heard {
    /// What it reports, if it is progress.
    pub(crate) fn step(&self) -> Option<f64> {
        Step::of(self).map(|step| step.progress)
    }
}

impl Step {
    fn of(heard: &Heard) -> Option<Self> {
        let message = heard.message.as_ref()?;
        if message["method"] != "notifications/progress" {
            return None;
        }
        let params = &message["params"];
        let progress = params["progress"].as_f64()?;
        Some(Self { token: params["progressToken"].clone(), progress, id: heard.id.clone() })
    }
}
