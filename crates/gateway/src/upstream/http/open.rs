//! The opening of a session: `initialize` and its answer (spec SES-1, VER-1).
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri};
use http_body_util::BodyExt as _;
use rejoin_core::limits::Limits;
use rejoin_core::message::{self, IdKey, Incoming, Kind, Message};
use rejoin_core::sse::Decoder;
use serde::Deserialize;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, timeout_at};

use super::Origin;
use super::calls::Calls;
use super::continued::continuation;
use super::credential::select;
use super::departure::Departure;
use super::intake::{Intake, Streams};
use super::reply::{Form, collect};
use super::session::{Session, Terms, initialize_headers};
use super::wire::Fault;
use crate::headers::MCP_SESSION_ID;
use crate::passthrough::UpstreamBody as Body;
use crate::upstream::outlet::events_max;
use crate::upstream::{Channel, Event, OpenError, Opened, Opening};

/// An answer to `initialize`, and what came with it.
struct Answer {
    message: Message,
    /// What came before it.
    early: Vec<Message>,
    /// The stream it came on, if that goes on.
    rest: Option<Body>,
}

/// A session that the server has opened, before anything is made of it.
pub(super) struct Begun {
    /// The URL behind the redirects.
    uri: Uri,
    terms: Terms,
    /// With the headers that are passed on.
    opening: Opening,
    answer: Answer,
}

impl Begun {
    /// Whether the server agreed.
    pub(super) fn is_agreed(&self) -> bool {
        self.answer.message.kind() == Kind::Response
    }

    /// A session whose events nobody hears.
    pub(super) fn into_silent_session(self, origin: &Arc<Origin>) -> Session {
        silent(origin, self.uri, self.terms, self.opening)
    }
}

/// Opens a session.
pub(super) async fn open(origin: Arc<Origin>, opening: Opening) -> Result<Opened, OpenError> {
    let begun = begin(&origin, opening).await?;
    Ok(start(origin, begun))
}

/// Sends `initialize` and waits for its answer. A session without a usable one is ended.
pub(super) async fn begin(origin: &Arc<Origin>, opening: Opening) -> Result<Begun, OpenError> {
    let Opening { initialize, headers } = opening;
    let depth_max = origin.limits.json_depth_max;
    let id = match message::parse(initialize.clone(), depth_max) {
        Ok(Incoming::One(message)) if message.kind() == Kind::Request => message.id_key(),
        _ => None,
    };
    let Some(id) = id else { return Err(OpenError::NotARequest) };
    let limit_ms = origin.limits.initialize_max_ms;
    let deadline = Instant::now() + Duration::from_millis(limit_ms);
    let log = "the log of that server";
    let late = || OpenError::TimedOut { upstream: origin.name.clone(), limit_ms, log };
    let opening = Opening { initialize, headers: select(&origin.forwarded, &headers) };
    let sending = send(origin, opening.headers.clone(), opening.initialize.clone());
    let (response, uri) = timeout_at(deadline, sending).await.map_err(|_| late())??;
    let session_id = response.headers().get(MCP_SESSION_ID).filter(|id| is_visible(id)).cloned();
    let mut terms = Terms { id: session_id, revision: None };
    let answered = timeout_at(deadline, answer(origin, &id, response)).await;
    match answered.unwrap_or_else(|_| Err(late())) {
        Ok(answer) => {
            terms.revision = revision(&answer.message);
            Ok(Begun { uri, terms, opening, answer })
        }
        Err(error) => {
            let session = silent(origin, uri, terms, opening);
            tokio::spawn(async move { session.delete().await });
            Err(error)
        }
    }
}

/// Starts the tasks of a session that is open.
fn start(origin: Arc<Origin>, begun: Begun) -> Opened {
    let Begun { uri, terms, opening, answer } = begun;
    let limits = &origin.limits;
    let (commands, commanded) = mpsc::channel(queue_max(limits));
    let (events, received) = mpsc::channel(events_max(limits).max(answer.early.len()));
    for message in &answer.early {
        let (channel, message, cursor) = (Channel::Unknown, message.bytes().clone(), None);
        let _room = events.try_send(Event::Message { channel, message, cursor });
    }
    let continuation = continuation(&origin, &uri, &terms, &opening.headers);
    let calls = Calls::new(events.clone(), limits.line_bytes_max.saturating_mul(2));
    let session = Session::new(Arc::clone(&origin), uri, terms, calls, opening);
    let pressure = Some(session.pressure.clone());
    let streams = Streams { rest: answer.rest, ..Streams::default() };
    Intake::start(Arc::new(session), commanded, events, streams);
    let answer = answer.message.bytes().clone();
    Opened { answer, continuation, commands, events: received, pressure }
}

/// Commands that may wait. A channel cannot hold more than the runtime can count.
pub(super) fn queue_max(limits: &Limits) -> usize {
    limits.upstream_queue_max.clamp(1, Semaphore::MAX_PERMITS / 4)
}

/// A session without tasks, whose events nobody hears.
fn silent(origin: &Arc<Origin>, uri: Uri, terms: Terms, opening: Opening) -> Session {
    let (events, _nobody) = mpsc::channel(1);
    Session::new(Arc::clone(origin), uri, terms, Calls::new(events, 0), opening)
}

async fn send(
    origin: &Origin,
    client: HeaderMap,
    initialize: Bytes,
) -> Result<(Response<Body>, Uri), OpenError> {
    let upstream = || origin.name.clone();
    let failed = |fault| match fault {
        Fault::Broken { what } => OpenError::Unreachable { upstream: upstream(), what },
        Fault::Redirected { what, .. } => OpenError::Redirected { upstream: upstream(), what },
        Fault::Credential(error) => {
            OpenError::Credential { upstream: upstream(), what: error.to_string() }
        }
    };
    let headers = initialize_headers(origin, client).await.map_err(failed)?;
    let departure = Departure::new();
    let sent = origin.wire.exchange(Method::POST, &origin.uri, headers, initialize, &departure);
    sent.await.map_err(failed)
}

async fn answer(
    origin: &Origin,
    id: &IdKey,
    response: Response<Body>,
) -> Result<Answer, OpenError> {
    let (head, body) = response.into_parts();
    let bad = |what| OpenError::BadAnswer { upstream: origin.name.clone(), what };
    let form = Form::of(&head.headers);
    if !head.status.is_success() {
        if head.status == StatusCode::UNAUTHORIZED {
            origin.credential.forget().await;
        }
        let body =
            collect(body, origin.limits.upstream.refusal_bytes_max).await.unwrap_or_default();
        let parsed = message::parse(body.clone(), origin.limits.json_depth_max);
        let is_challenge = matches!(head.status.as_u16(), 401 | 403);
        if let Ok(Incoming::One(message)) = parsed
            && is_answer(&message, id)
            && !is_challenge
        {
            return Ok(Answer { message, early: Vec::new(), rest: None });
        }
        let mut headers = Box::new(HeaderMap::new());
        for name in [WWW_AUTHENTICATE, RETRY_AFTER, CONTENT_TYPE] {
            for value in head.headers.get_all(&name) {
                headers.append(&name, value.clone());
            }
        }
        let (upstream, status) = (origin.name.clone(), head.status);
        let remedy = remedy(&origin.uri, status);
        return Err(OpenError::Refused { upstream, remedy, status, headers, body });
    }
    match form {
        Form::Stream => from_stream(origin, id, body).await,
        Form::Json => {
            let body = collect(body, origin.limits.event_bytes_max).await;
            let body = body.map_err(|_| bad("sent a broken or too large answer to initialize"))?;
            let mut early = Vec::new();
            let message = find(origin, id, body, &mut early)
                .ok_or_else(|| bad("answered initialize with JSON that is no answer"))?;
            Ok(Answer { message, early, rest: None })
        }
        Form::Encoded(_) => Err(bad("answered initialize in a coding nobody asked for")),
        Form::Other(_) => Err(bad("answered initialize with neither JSON nor an event stream")),
    }
}

/// What to do if `initialize` is refused.
fn remedy(uri: &Uri, status: StatusCode) -> &'static str {
    let is_misplaced = matches!(status, StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED);
    if is_misplaced && uri.path() == "/" {
        "the URL has no path, and most servers are at /mcp: add that"
    } else {
        "check URL and credentials"
    }
}

async fn from_stream(origin: &Origin, id: &IdKey, mut body: Body) -> Result<Answer, OpenError> {
    let bad = |what| OpenError::BadAnswer { upstream: origin.name.clone(), what };
    let mut decoder = Decoder::new(origin.limits.event_bytes_max);
    let (mut early, mut answer) = (Vec::new(), None);
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(data) = frame.into_data() else { continue };
        decoder.push(&data);
        while let Ok(Some(event)) = decoder.next_event() {
            if event.is_message() && answer.is_none() {
                answer = find(origin, id, event.data, &mut early);
            } else if event.is_message() {
                let _more = find(origin, id, event.data, &mut early);
            }
        }
        if let Some(message) = answer {
            return Ok(Answer { message, early, rest: Some(body) });
        }
        if early.len() > origin.limits.upstream_queue_max {
            return Err(bad("sent too much before it answered initialize"));
        }
    }
    Err(bad("ended its stream before it answered initialize"))
}

/// The answer in one body or event; other messages go to `early`.
fn find(origin: &Origin, id: &IdKey, text: Bytes, early: &mut Vec<Message>) -> Option<Message> {
    let messages = match message::parse(text, origin.limits.json_depth_max) {
        Ok(Incoming::One(message)) => vec![message],
        Ok(Incoming::Batch(messages)) => messages,
        Err(_) => Vec::new(),
    };
    let mut answer = None;
    for message in messages {
        if answer.is_none() && is_answer(&message, id) {
            answer = Some(message);
        } else {
            early.push(message);
        }
    }
    answer
}

fn is_answer(message: &Message, id: &IdKey) -> bool {
    matches!(message.kind(), Kind::Response | Kind::ErrorResponse)
        && message.id_key().as_ref() == Some(id)
}

/// Spec SES-3.
fn is_visible(id: &HeaderValue) -> bool {
    !id.is_empty() && id.as_bytes().iter().all(u8::is_ascii_graphic)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Agreement {
    protocol_version: String,
}

fn revision(answer: &Message) -> Option<HeaderValue> {
    let agreement: Agreement = serde_json::from_slice(answer.result()?).ok()?;
    HeaderValue::from_str(&agreement.protocol_version).ok()
}
