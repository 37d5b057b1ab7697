//! The first failure: the answer is cut off, the app sends the call again.

use std::time::Duration;

use serde_json::{Value, json};

use super::client::{Client, Exchange, Received, What, what_of};
use super::narration::Tone;
use super::side::{Side, charge};
use super::{DemoError, Story, told};

/// Events of the call, and how many the app has seen when the connection breaks.
const EVENTS: u64 = 8;
const CUT_AFTER: u64 = 3;

/// Time between two events.
const INTERVAL: Duration = Duration::from_millis(320);

/// How long the app takes to send the call again, and to resume.
const PAUSE: Duration = Duration::from_millis(900);

/// What the app and the count file saw.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) executions: usize,
    /// Texts of the results that reached the app, in their order.
    pub(super) answers: Vec<String>,
    /// HTTP status of the second POST.
    status_again: u16,
    /// What the refusal said, if it was one.
    refusal: Option<String>,
    /// Events of the first execution that reached the app after the break.
    tail: Vec<u64>,
    /// Messages of the first execution that the server keeps and nobody asks for.
    kept: Vec<Value>,
}

/// Plays it; what the app does after the second POST depends on the answer only.
///
/// # Errors
/// See [`DemoError`].
pub(super) async fn play(side: &Side, story: &mut Story) -> Result<Outcome, DemoError> {
    let interval = story.scaled(INTERVAL).as_millis();
    let arguments = json!({ "amount": 5, "events": EVENTS, "interval_ms": interval as u64 });
    let client = Client::open(side.address()).await?;
    let mut outcome = Outcome::default();

    story.line("app", Tone::Plain, "calls charge, amount 5: POST")?;
    let mut first = client.post(&charge(1, &arguments)).await?;
    let cursor = read_before_the_break(&mut first, side, story).await?;
    first.cut()?;
    story.line("network", Tone::Fault, "-- the connection breaks --")?;
    story.pause(PAUSE).await;

    story.line("app", Tone::Plain, "sees an error, knows nothing, calls again: POST")?;
    let mut again = client.post(&charge(2, &arguments)).await?;
    outcome.status_again = again.status;
    if again.is_stream() {
        let received = read_to_end(&mut again, side, story, Tone::Bad).await?;
        outcome.answers.extend(received.answers);
        outcome.kept = side.kept_after(&cursor).unwrap_or_default();
        tell_kept(&outcome.kept, side, story)?;
    } else {
        let refusal = tell_refusal(&mut again, side, story).await?;
        outcome.refusal = Some(refusal);
        story.pause(PAUSE).await;
        story.line("app", Tone::Plain, &format!("resumes: GET, Last-Event-ID {cursor}"))?;
        let mut resumed = client.resume(&cursor).await?;
        let received = read_to_end(&mut resumed, side, story, Tone::Good).await?;
        outcome.answers.extend(received.answers);
        outcome.tail = received.events;
    }
    outcome.executions = side.executions();
    Ok(outcome)
}

/// Two executions, two times 200, and the first answer in a buffer nobody reads.
///
/// # Errors
/// [`DemoError::Story`].
pub(super) fn check_bare(outcome: &Outcome) -> Result<(), DemoError> {
    told(outcome.executions == 2, "a plain server runs the call twice", outcome)?;
    told(outcome.status_again == 200, "the second call is answered with 200", outcome)?;
    told(outcome.answers == ["charged 5 (execution 2)"], "the second answer arrives", outcome)?;
    let kept = outcome.kept.last().map(what_of);
    let rots = kept == Some(What::Result("charged 5 (execution 1)".to_owned()));
    told(rots, "the first answer stays in the server's buffer", outcome)
}

/// One execution, a refusal that says so, and the whole tail.
///
/// # Errors
/// [`DemoError::Story`].
pub(super) fn check_guarded(outcome: &Outcome) -> Result<(), DemoError> {
    told(outcome.status_again == 409, "the second call is refused with 409", outcome)?;
    let says_so = outcome.refusal.as_ref().is_some_and(|text| text.starts_with("Not run."));
    told(says_so, "the refusal says that nothing was run", outcome)?;
    let tail: Vec<u64> = (CUT_AFTER + 1..=EVENTS).collect();
    told(outcome.tail == tail, "the rest of the events arrives by GET, in order", outcome)?;
    told(outcome.answers == ["charged 5 (execution 1)"], "the first answer arrives", outcome)?;
    told(outcome.executions == 1, "the call runs once", outcome)
}

/// Reads the first events; gives the last one's id.
async fn read_before_the_break(
    first: &mut Exchange,
    side: &Side,
    story: &mut Story,
) -> Result<String, DemoError> {
    let mut cursor = None;
    while let Some(received) = first.next().await? {
        story.set_count(side.executions());
        cursor = received.id.or(cursor);
        if let What::Progress(number) = received.what {
            story.line("server", Tone::Plain, &format!("event {number} of {EVENTS}"))?;
            if number == CUT_AFTER {
                break;
            }
        }
    }
    cursor.ok_or_else(|| DemoError::Story { told: "events carry ids", seen: "none did".to_owned() })
}

#[derive(Default)]
struct Rest {
    events: Vec<u64>,
    answers: Vec<String>,
}

async fn read_to_end(
    exchange: &mut Exchange,
    side: &Side,
    story: &mut Story,
    tone: Tone,
) -> Result<Rest, DemoError> {
    let mut rest = Rest::default();
    while let Some(Received { what, .. }) = exchange.next().await? {
        story.set_count(side.executions());
        match what {
            What::Progress(number) => {
                story.line("server", Tone::Plain, &format!("event {number} of {EVENTS}"))?;
                rest.events.push(number);
            }
            What::Result(text) => {
                let status = exchange.status;
                story.line("server", tone, &format!("{status}, answer: {text}"))?;
                rest.answers.push(text);
            }
            What::Error { code, message } => {
                story.line("server", Tone::Bad, &format!("error {code}: {message}"))?;
            }
            What::Sign(_) | What::Other => {}
        }
    }
    Ok(rest)
}

async fn tell_refusal(
    refused: &mut Exchange,
    side: &Side,
    story: &mut Story,
) -> Result<String, DemoError> {
    let message = refused.message().await?;
    story.set_count(side.executions());
    let What::Error { code, message } = what_of(&message) else {
        return Err(DemoError::Story { told: "a refusal is an error", seen: message.to_string() });
    };
    let status = refused.status;
    story.line("Rejoin", Tone::Good, &format!("{status}, error {code}: {message}"))?;
    Ok(message)
}

fn tell_kept(kept: &[Value], side: &Side, story: &mut Story) -> Result<(), DemoError> {
    let events = kept.iter().filter(|message| matches!(what_of(message), What::Progress(_)));
    let events = events.count();
    let answers = kept.len() - events;
    story.set_count(side.executions());
    let text = format!(
        "keeps {events} events and {answers} answer of the first run in its buffer; nobody \
         will ask for them"
    );
    Ok(story.line("server", Tone::Bad, &text)?)
}
