//! POST: from bytes to what a session is told (design section 5, spec POST-1 to POST-6).

mod bounds;
mod read;
mod token;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use http_body_util::Either;
use rejoin_core::id::digest;
use rejoin_core::input;
use rejoin_core::message::{Incoming, Kind, Message, ParseError, parse};
use rejoin_core::revision::Revision;
use rejoin_core::settings::RepeatScope;
use rejoin_core::token::Token;
use rejoin_store::TokenError;

use crate::gateway::Gateway;
use crate::handle::{Answer, Delivered, PostRequest};
use crate::headers::{self, HeaderError};
use crate::initialize::InitializeError;
use crate::passthrough::{self, INITIALIZE, PassError, Passthrough, Target};
use crate::registry::Entry;
use crate::respond::{self, AnswerBody, Ids, Manner};
use crate::revive::NoSession;
use crate::tap::Wire;

pub(crate) use bounds::BoundError;
pub(crate) use read::{BodyError, whole};
pub(crate) use token::DedupError;
use token::{Holder, Scope, scope_key};

/// Why a POST was not given to its session. Nothing of it has had an effect.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PostError {
    /// Its header fields.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// Its body did not arrive.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// Its body is no JSON-RPC message.
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// A part of it is too long.
    #[error(transparent)]
    Bound(#[from] BoundError),
    /// A dedup token that cannot be used.
    #[error(transparent)]
    Dedup(#[from] DedupError),
    /// A session that is not there, is over, or is another principal's (spec SES-7).
    #[error("there is no such session: send initialize without Mcp-Session-Id to start a new one")]
    UnknownSession,
    /// A request of a revision without sessions (spec 3.2).
    #[error(
        "this endpoint serves MCP revisions {} to {}: send initialize to start a session",
        Revision::GUARDED[0], Revision::GUARDED[2]
    )]
    Stateless,
    /// A batch outside revision 2025-03-26 (spec B-7).
    #[error("this session agreed on a revision without batches: send one message for each POST")]
    BatchNotAgreed,
    /// A batch with too many messages.
    #[error(
        "the batch has {messages} messages, and may have {messages_max}: send less at once, or \
         raise `--limit batch_requests_max=`"
    )]
    BatchTooLarge {
        /// How many it has.
        messages: usize,
        /// How many it may have.
        messages_max: usize,
    },
    /// `initialize` in a batch (spec B-7).
    #[error("initialize must not be part of a batch: send it alone")]
    InitializeInBatch,
    /// `initialize` without an id (spec: Lifecycle, "Initialization").
    #[error("initialize must be a request: send it with an id")]
    InitializeNotRequest,
    /// `initialize` of a revision that has none (spec 3.2).
    #[error(
        "the revision that this initialize names has none: send server/discover, or an \
         initialize without it to start a session"
    )]
    InitializeUnknown,
    /// The session could not be opened.
    #[error(transparent)]
    Initialize(#[from] InitializeError),
    /// It was to be passed through.
    #[error(transparent)]
    Pass(#[from] PassError),
    /// The token could not be looked up.
    #[error("the dedup token could not be looked up")]
    Store(#[from] TokenError),
    /// The gateway is about to stop.
    #[error("Rejoin is about to stop")]
    Draining,
    /// The session has no room; nothing was admitted.
    #[error("this session takes no more at the moment")]
    Overloaded,
}

impl From<NoSession> for PostError {
    fn from(none: NoSession) -> Self {
        match none {
            NoSession::Unknown => Self::UnknownSession,
            NoSession::Unavailable => Self::Overloaded,
        }
    }
}

impl Gateway {
    /// Answers a POST.
    pub(crate) async fn post<B: Body<Data = Bytes>>(
        &self,
        request: Request<B>,
    ) -> Response<AnswerBody> {
        let (parts, body) = request.into_parts();
        let manner = self.manner(&parts.headers);
        let mut ids = Ids::None;
        match self.try_post(&parts, body, manner, &mut ids).await {
            Ok(response) => response,
            Err(error) => {
                self.log_no_room(&error);
                respond::post_failed(&error, &ids, manner)
            }
        }
    }

    async fn try_post<B: Body<Data = Bytes>>(
        &self,
        parts: &Parts,
        body: B,
        manner: Manner,
        ids: &mut Ids,
    ) -> Result<Response<AnswerBody>, PostError> {
        let way = self.passthrough();
        let form = headers::check_post(&parts.headers);
        if way.is_none() {
            form.clone()?;
        }
        let limits = &self.settings().limits;
        let body = whole(body, &parts.headers, limits, self.body_room()).await?;
        let incoming = parse(body.clone(), limits.json_depth_max);
        *ids = incoming.as_ref().map_or_else(|_| Ids::guess(&body), Ids::of);
        if let Some(way) = way
            && passthrough::is_passed(&parts.headers, incoming.as_ref().ok(), &body)
        {
            return self.pass_post(way, parts, incoming.ok(), body).await;
        }
        form?;
        let incoming = incoming?;
        bounds::check(&incoming, limits)?;
        self.guard(parts, incoming, &body, manner).await
    }

    /// Gives a POST to its session, or opens one.
    async fn guard(
        &self,
        parts: &Parts,
        incoming: Incoming,
        body: &Bytes,
        manner: Manner,
    ) -> Result<Response<AnswerBody>, PostError> {
        let presented = headers::session_id(&parts.headers)?;
        let principal = self.principal(&parts.headers);
        let find = async |id| -> Result<_, PostError> { Ok(self.session(id, &principal).await?) };
        if let Some(initialize) = alone(&incoming, INITIALIZE) {
            if initialize.kind() != Kind::Request {
                return Err(PostError::InitializeNotRequest);
            }
            if passthrough::has_no_initialize(&parts.headers, initialize) {
                return Err(PostError::InitializeUnknown);
            }
            if let Some(id) = presented {
                find(id).await?;
                return Err(InitializeError::AlreadyInitialized.into());
            }
            let forwarded = self.forwarded(&parts.headers);
            return Ok(self.initialize(initialize, principal, forwarded).await?);
        }
        // Everything but a newer revision's own error codes makes a client of both eras fall back
        // to `initialize` (spec 3.2).
        if passthrough::is_stateless(&parts.headers, &incoming) {
            return Err(PostError::Stateless);
        }
        // Before anything of a session: who sends it has none yet.
        if holds_initialize(&incoming) {
            return Err(PostError::InitializeInBatch);
        }
        let presented = presented.ok_or(HeaderError::NoSession)?;
        let entry = find(presented).await?;
        headers::check_revision(&parts.headers, &entry.agreed)?;
        let post = self.prepare(parts, &entry, incoming, body).await?;
        if !entry.handle.present(self.forwarded(&parts.headers)) && !entry.handle.is_over() {
            return Err(PostError::Overloaded);
        }
        let acknowledged = headers::acknowledgements(&parts.headers);
        if !acknowledged.is_empty() {
            self.taken(&entry, entry.handle.acknowledge(acknowledged).await)?;
        }
        for message in post.others {
            let delivered = match message.kind() {
                Kind::Notification => entry.handle.notify(message).await,
                _ => entry.handle.respond(message).await,
            };
            self.taken(&entry, delivered)?;
        }
        let Some(request) = post.request else { return Ok(respond::accepted()) };
        let answer = entry.handle.post(request).await;
        if let Answer::Stream { .. } = &answer {
            for cancel in post.own_cancels {
                self.taken(&entry, entry.handle.notify(cancel).await)?;
            }
        }
        self.answer_post(&entry, presented, answer, manner).await
    }

    /// What a session answers to a POST, as HTTP.
    async fn answer_post(
        &self,
        entry: &Arc<Entry>,
        presented: &str,
        answer: Answer,
        manner: Manner,
    ) -> Result<Response<AnswerBody>, PostError> {
        match answer {
            Answer::Stream { mut body, replay_until } => {
                // The server may answer with a challenge: that is told by the status, or by none.
                let longest = Duration::from_millis(self.settings().limits.held_headers_ms);
                Ok(match body.challenge(longest).await {
                    Some(challenge) => respond::challenged(challenge, Either::Right(body)),
                    None => respond::stream(body, replay_until, presented),
                })
            }
            Answer::Json(body) => Ok(respond::answered(body)),
            Answer::Challenged { challenge, body } => {
                Ok(respond::challenged(challenge, Either::Left(body)))
            }
            Answer::Refused { rejections, batch } => {
                Ok(respond::refused(&rejections, batch, manner))
            }
            Answer::Overloaded => Err(PostError::Overloaded),
            // A POST is never answered that it cannot be resumed.
            Answer::SessionOver | Answer::NotResumable => {
                self.forget(entry);
                Err(PostError::UnknownSession)
            }
        }
    }

    async fn pass_post(
        &self,
        way: &dyn Passthrough,
        parts: &Parts,
        incoming: Option<Incoming>,
        body: Bytes,
    ) -> Result<Response<AnswerBody>, PostError> {
        let is_call = match &incoming {
            Some(Incoming::One(message)) => passthrough::is_call(message.method()),
            _ => true,
        };
        // The message shares the body's bytes and its room.
        drop(incoming);
        Ok(self.pass(way, parts, body, Target::Endpoint, is_call).await?)
    }

    fn taken(&self, entry: &Arc<Entry>, delivered: Delivered) -> Result<(), PostError> {
        match delivered {
            Delivered::Taken => Ok(()),
            Delivered::SessionOver => {
                self.forget(entry);
                Err(PostError::UnknownSession)
            }
            Delivered::Overloaded => Err(PostError::Overloaded),
        }
    }

    /// Checks all that can be wrong, so that nothing of a POST that is refused has an effect.
    async fn prepare(
        &self,
        parts: &Parts,
        entry: &Arc<Entry>,
        incoming: Incoming,
        body: &Bytes,
    ) -> Result<Prepared, PostError> {
        let (messages, batch) = match incoming {
            Incoming::One(message) => (vec![message], false),
            Incoming::Batch(messages) => (messages, true),
        };
        if batch {
            self.check_batch(entry, &messages)?;
        }
        let (requests, others): (Vec<_>, Vec<_>) =
            messages.into_iter().partition(|message| message.kind() == Kind::Request);
        let (own_cancels, others): (Vec<_>, Vec<_>) =
            others.into_iter().partition(|message| cancels_one_of(&requests, message));
        if requests.is_empty() {
            return Ok(Prepared { others, request: None, own_cancels });
        }
        if self.is_draining() {
            return Err(PostError::Draining);
        }
        let header = headers::idempotency_key(&parts.headers)?;
        if header.is_some() && requests.len() > 1 {
            return Err(DedupError::HeaderOfBatch.into());
        }
        let scope = Scope { holder: holder(entry), upstream: self.upstream().name() };
        let mut prepared = Vec::with_capacity(requests.len());
        for message in requests {
            let token = token::of(&message, header.as_deref(), scope)?;
            prepared.push(self.look_up(message, token, entry).await?);
        }
        let wire = parts.extensions.get::<Wire>().cloned();
        let body = digest(body);
        let request = Some(PostRequest { wire, requests: prepared, batch, body });
        Ok(Prepared { others, request, own_cancels })
    }

    fn check_batch(&self, entry: &Entry, messages: &[Message]) -> Result<(), PostError> {
        if !entry.agreed.batches() {
            return Err(PostError::BatchNotAgreed);
        }
        let messages_max = self.settings().limits.batch_requests_max;
        if messages.len() > messages_max {
            return Err(PostError::BatchTooLarge { messages: messages.len(), messages_max });
        }
        Ok(())
    }

    async fn look_up(
        &self,
        message: Message,
        token: Option<Token>,
        entry: &Entry,
    ) -> Result<input::Request, PostError> {
        let record = match token {
            Some(token) => self.store().token(token.key).await?,
            None => None,
        };
        let is_scoped = self.settings().repeat_scope == RepeatScope::Principal
            && token.is_none()
            && !entry.principal.is_anonymous();
        let scope = if is_scoped {
            let key = scope_key(&message, entry.principal.key(), self.upstream().name());
            Some(input::Scope { key, record: self.store().token(key).await? })
        } else {
            None
        };
        Ok(input::Request { message, token, record, scope })
    }
}

/// A POST of which nothing can be refused any more before it reaches its session.
struct Prepared {
    /// Notifications and responses: they go first, for they may be what unblocks a call.
    others: Vec<Message>,
    request: Option<PostRequest>,
    /// Cancels of these requests, which mean nothing before they are claimed.
    own_cancels: Vec<Message>,
}

/// True for a cancel of one of the requests of its own batch.
fn cancels_one_of(requests: &[Message], message: &Message) -> bool {
    let is_cancel = message.method() == Some("notifications/cancelled");
    let Some(key) = message.cancels().filter(|_| is_cancel) else { return false };
    requests.iter().any(|request| request.id_key().as_ref() == Some(&key))
}

/// Tokens of anonymous callers count in their session only.
fn holder(entry: &Entry) -> Holder {
    if entry.principal.is_anonymous() {
        Holder::Session(entry.key)
    } else {
        Holder::Principal(entry.principal.key())
    }
}

/// The message, if it is a single one of this method.
fn holds_initialize(incoming: &Incoming) -> bool {
    match incoming {
        Incoming::One(_) => false,
        Incoming::Batch(messages) => {
            messages.iter().any(|message| message.method() == Some(INITIALIZE))
        }
    }
}

fn alone<'a>(incoming: &'a Incoming, method: &str) -> Option<&'a Message> {
    match incoming {
        Incoming::One(message) => Some(message).filter(|message| message.method() == Some(method)),
        Incoming::Batch(_) => None,
    }
}
