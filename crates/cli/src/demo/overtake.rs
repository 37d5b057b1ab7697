//! The second failure: a stream is resumed by GET while a new call is sent by POST.

use std::time::Duration;

use serde_json::json;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::timeout;

use super::client::{Client, ClientError, Connection, Received, What};
use super::narration::Tone;
use super::side::{Side, charge};
use super::{DemoError, Story, told};

/// Events of the first call, their size, and how many the app has seen at the break.
const EVENTS: u64 = 6_000;
const EVENT_BYTES: u64 = 1_000;
const CUT_AFTER: u64 = 3;

/// Events of the new call.
const NEW_EVENTS: u64 = 3;

/// How long the app is offline: the first call ends meanwhile. Not shortened by `--fast`.
const OFFLINE: Duration = Duration::from_millis(1_500);

/// Longest wait for all that both connections carry.
const READ_MAX: Duration = Duration::from_secs(60);

/// Things received and not yet looked at.
const ARRIVALS_MAX: usize = 256;

/// What the app and the count file saw.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    executions: usize,
    /// HTTP status of the GET and of the POST.
    statuses: [u16; 2],
    /// How many of the first call's events arrived, and whether each followed its predecessor.
    replayed: u64,
    in_order: bool,
    /// How many of them had arrived when the new call's first message came.
    pub(super) replayed_before_new: u64,
    /// Texts of the results in the order of their arrival.
    answers: Vec<String>,
}

/// The connection a thing arrived on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Resumed,
    New,
}

/// A thing that arrived; the head of a response counts as one.
enum Arrival {
    Status(Source, u16),
    Received(Source, Received),
    Failed(ClientError),
}

/// Plays it.
///
/// # Errors
/// See [`DemoError`].
pub(super) async fn play(side: &Side, story: &mut Story) -> Result<Outcome, DemoError> {
    let client = Client::open(side.address()).await?;
    let arguments = json!({
        "amount": 5, "events": EVENTS, "interval_ms": 0, "event_bytes": EVENT_BYTES,
    });
    story.line("app", Tone::Plain, &format!("calls charge, amount 5, {EVENTS} events: POST"))?;
    let cursor = read_and_cut(&client, &charge(1, &arguments)).await?;
    story.set_count(side.executions());
    story.line("server", Tone::Plain, &format!("events 1 to {CUT_AFTER} of {EVENTS}"))?;
    story.line("network", Tone::Fault, "-- the connection breaks --")?;
    tokio::time::sleep(OFFLINE).await;
    story.line("server", Tone::Plain, "has finished meanwhile; events and answer wait")?;
    story.line("app", Tone::Plain, "is back: resumes by GET, and calls charge, amount 9: POST")?;

    let new_arguments = json!({ "amount": 9, "events": NEW_EVENTS, "interval_ms": 0 });
    let (mut get, mut post) = (client.connect().await?, client.connect().await?);
    let post_bytes = client.post_bytes(&charge(2, &new_arguments));
    get.send(&client.resume_bytes(&cursor)).await?;
    post.send(&post_bytes).await?;
    let (sender, arrivals) = channel(ARRIVALS_MAX);
    tokio::spawn(read(get, Source::Resumed, sender.clone()));
    tokio::spawn(read(post, Source::New, sender));
    let listening = listen(arrivals, side, story);
    let mut outcome = timeout(READ_MAX, listening).await.map_err(|_| DemoError::TimedOut)??;
    outcome.executions = side.executions();
    Ok(outcome)
}

/// The new call's answer comes before the first one's.
///
/// # Errors
/// [`DemoError::Story`].
pub(super) fn check_bare(outcome: &Outcome) -> Result<(), DemoError> {
    check_complete(outcome)?;
    let overtaken = outcome.answers == ["charged 9 (execution 2)", "charged 5 (execution 1)"];
    told(overtaken, "a plain server's new answer overtakes the replay", outcome)
}

/// Nothing of the new call comes before the end of the first one.
///
/// # Errors
/// [`DemoError::Story`].
pub(super) fn check_guarded(outcome: &Outcome) -> Result<(), DemoError> {
    check_complete(outcome)?;
    let ordered = outcome.answers == ["charged 5 (execution 1)", "charged 9 (execution 2)"];
    told(ordered, "the new answer waits for the replay", outcome)?;
    let waited = outcome.replayed_before_new == outcome.replayed;
    told(waited, "the new call's events wait for the replay", outcome)
}

fn check_complete(outcome: &Outcome) -> Result<(), DemoError> {
    told(outcome.statuses == [200, 200], "both are answered with 200", outcome)?;
    let complete = outcome.replayed == EVENTS - CUT_AFTER && outcome.in_order;
    told(complete, "all remaining events arrive, in order", outcome)?;
    told(outcome.executions == 2, "each call runs once", outcome)
}

/// Reads the first events, cuts the connection, and gives the last one's id.
async fn read_and_cut(client: &Client, call: &serde_json::Value) -> Result<String, DemoError> {
    let mut first = client.post(call).await?;
    let mut cursor = None;
    while let Some(received) = first.next().await? {
        cursor = received.id.or(cursor);
        if received.what == What::Progress(CUT_AFTER) {
            break;
        }
    }
    first.cut()?;
    cursor.ok_or_else(|| DemoError::Story { told: "events carry ids", seen: "none did".to_owned() })
}

async fn read(connection: Connection, source: Source, arrivals: Sender<Arrival>) {
    if let Err(error) = forward(connection, source, &arrivals).await {
        // The listener is gone only after it has failed itself.
        let _ = arrivals.send(Arrival::Failed(error)).await;
    }
}

async fn forward(
    connection: Connection,
    source: Source,
    arrivals: &Sender<Arrival>,
) -> Result<(), ClientError> {
    let mut exchange = connection.head().await?;
    let mut open = arrivals.send(Arrival::Status(source, exchange.status)).await.is_ok();
    while open && let Some(received) = exchange.next().await? {
        open = arrivals.send(Arrival::Received(source, received)).await.is_ok();
    }
    Ok(())
}

/// Tells what arrives, in its order, until both connections have ended.
async fn listen(
    mut arrivals: Receiver<Arrival>,
    side: &Side,
    story: &mut Story,
) -> Result<Outcome, DemoError> {
    let mut outcome = Outcome { in_order: true, ..Outcome::default() };
    // Events of the first call not told yet: thousands become one line.
    let mut untold: Option<(u64, u64)> = None;
    let mut new_seen = false;
    while let Some(arrival) = arrivals.recv().await {
        match arrival {
            Arrival::Failed(error) => return Err(error.into()),
            Arrival::Status(source, status) => outcome.statuses[source as usize] = status,
            Arrival::Received(Source::Resumed, Received { what: What::Progress(number), .. }) => {
                outcome.replayed += 1;
                outcome.in_order &= number == CUT_AFTER + outcome.replayed;
                untold = Some((untold.map_or(number, |(first, _)| first), number));
            }
            Arrival::Received(source, Received { what, .. }) => {
                let (call, tone) = match source {
                    Source::Resumed => ("old call", Tone::Plain),
                    Source::New => ("new call", Tone::Fault),
                };
                let text = match what {
                    What::Progress(number) => format!("event {number} of {NEW_EVENTS}"),
                    What::Result(text) => {
                        outcome.answers.push(text.clone());
                        format!("answer: {text}")
                    }
                    What::Error { code, message } => format!("error {code}: {message}"),
                    What::Sign(sign) if sign == "held" => sign,
                    What::Sign(_) | What::Other => continue,
                };
                if source == Source::New && text != "held" && !new_seen {
                    new_seen = true;
                    outcome.replayed_before_new = outcome.replayed;
                }
                tell_replayed(&mut untold, side, story)?;
                story.line(call, tone, &text)?;
            }
        }
    }
    tell_replayed(&mut untold, side, story)?;
    Ok(outcome)
}

fn tell_replayed(
    untold: &mut Option<(u64, u64)>,
    side: &Side,
    story: &mut Story,
) -> Result<(), DemoError> {
    story.set_count(side.executions());
    match untold.take() {
        Some((first, last)) => {
            let text = format!("events {first} to {last} of {EVENTS}");
            Ok(story.line("old call", Tone::Plain, &text)?)
        }
        None => Ok(()),
    }
}
