//! DELETE: the client is done with its session (spec SES-9).

use http::Response;
use http::request::Parts;

use crate::gateway::Gateway;
use crate::handle::Delivered;
use crate::headers::{self, HeaderError};
use crate::respond::{self, AnswerBody};
use crate::revive::NoSession;

/// Why a DELETE ended nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DeleteError {
    /// Its header fields.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// A session that is not there, is over, or is another principal's (spec SES-7).
    #[error("there is no such session")]
    UnknownSession,
    /// Its log cannot be read or written at the moment.
    #[error("this session cannot be reached at the moment: send the same again")]
    Unavailable,
}

impl From<NoSession> for DeleteError {
    fn from(none: NoSession) -> Self {
        match none {
            NoSession::Unknown => Self::UnknownSession,
            NoSession::Unavailable => Self::Unavailable,
        }
    }
}

impl Gateway {
    /// Answers a DELETE.
    pub(crate) async fn delete(&self, parts: &Parts) -> Response<AnswerBody> {
        match self.try_delete(parts).await {
            Ok(()) => respond::no_content(),
            Err(error) => respond::delete_failed(&error),
        }
    }

    async fn try_delete(&self, parts: &Parts) -> Result<(), DeleteError> {
        let headers = &parts.headers;
        let presented = headers::session_id(headers)?.ok_or(HeaderError::NoSession)?;
        let entry = self.session(presented, &self.principal(headers)).await?;
        headers::check_revision(headers, &entry.agreed)?;
        // Without room the server is asked to end it as its client was known before.
        let _presented = entry.handle.present(self.forwarded(headers));
        let acknowledged = headers::acknowledgements(headers);
        let gateway = self.clone();
        // A task: the session ends even if this client does not wait for the answer.
        let ending = tokio::spawn(async move {
            if !acknowledged.is_empty() {
                // If it is over already, the next one says so too.
                let _either = entry.handle.acknowledge(acknowledged).await;
            }
            let deleted = entry.handle.delete().await;
            // Unknown from here on; unless its log cannot be written: then it is not deleted.
            gateway.forget(&entry);
            deleted
        });
        match ending.await {
            Ok(Delivered::Taken) => Ok(()),
            Ok(Delivered::Overloaded) => Err(DeleteError::Unavailable),
            Ok(Delivered::SessionOver) | Err(_) => Err(DeleteError::UnknownSession),
        }
    }
}
