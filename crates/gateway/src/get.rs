//! GET: attach to the standalone stream, or resume one (design section 6, spec GET-1 to GET-7).

use std::sync::Arc;

use http::Response;
use http::request::Parts;
use rejoin_core::input::GetCursor;

use crate::gateway::Gateway;
use crate::handle::{Answer, Delivered};
use crate::headers::{self, HeaderError};
use crate::registry::Entry;
use crate::respond::{self, AnswerBody};
use crate::revive::NoSession;
use crate::tap::Wire;

/// Why a GET was not given to its session.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GetError {
    /// Its header fields.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// A session that is not there, is over, or is another principal's (spec SES-7).
    #[error("there is no such session: send initialize without Mcp-Session-Id to start a new one")]
    UnknownSession,
    /// The gateway is about to stop.
    #[error("Rejoin is about to stop")]
    Draining,
    /// The session takes no more.
    #[error("this session takes no more at the moment")]
    Overloaded,
}

impl From<NoSession> for GetError {
    fn from(none: NoSession) -> Self {
        match none {
            NoSession::Unknown => Self::UnknownSession,
            NoSession::Unavailable => Self::Overloaded,
        }
    }
}

impl Gateway {
    /// Answers a GET.
    pub(crate) async fn get(&self, parts: &Parts) -> Response<AnswerBody> {
        match self.try_get(parts).await {
            Ok(response) => response,
            Err(error) => respond::get_failed(&error),
        }
    }

    async fn try_get(&self, parts: &Parts) -> Result<Response<AnswerBody>, GetError> {
        let headers = &parts.headers;
        headers::check_get(headers)?;
        let presented = headers::session_id(headers)?.ok_or(HeaderError::NoSession)?;
        let entry = self.session(presented, &self.principal(headers)).await?;
        headers::check_revision(headers, &entry.agreed)?;
        if !entry.handle.present(self.forwarded(headers)) && !entry.handle.is_over() {
            return Err(GetError::Overloaded);
        }
        let acknowledged = headers::acknowledgements(headers);
        if !acknowledged.is_empty() {
            match entry.handle.acknowledge(acknowledged).await {
                Delivered::Taken => {}
                Delivered::Overloaded => return Err(GetError::Overloaded),
                Delivered::SessionOver => {
                    self.forget(&entry);
                    return Err(GetError::UnknownSession);
                }
            }
        }
        if self.is_stopping() {
            return Err(GetError::Draining);
        }
        let cursor = headers::cursor(headers);
        let wire = parts.extensions.get::<Wire>().cloned();
        match entry.handle.get(cursor, wire).await {
            Answer::Stream { body, replay_until } => {
                if let (GetCursor::At(after), Some(until)) = (cursor, replay_until) {
                    self.count_replay(&entry, after, until);
                }
                Ok(respond::stream(body, replay_until, presented))
            }
            Answer::SessionOver => {
                self.forget(&entry);
                Err(GetError::UnknownSession)
            }
            Answer::Overloaded => Err(GetError::Overloaded),
            Answer::NotResumable
            | Answer::Json(_)
            | Answer::Challenged { .. }
            | Answer::Refused { .. } => Ok(respond::not_resumable()),
        }
    }

    /// A session that said that it is over is not asked again.
    pub(crate) fn forget(&self, entry: &Arc<Entry>) {
        if !entry.handle.is_kept() {
            self.registry().remove(&entry.key);
        }
    }
}
