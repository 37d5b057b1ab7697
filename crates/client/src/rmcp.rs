//! The client for programs that are written with rmcp (feature `rmcp`; `docs/client.md`).
//!
//! ```no_run
//! use rmcp::ServiceExt as _;
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let client = ().serve(rejoin_client::rmcp::transport("https://tools.example/mcp")?).await?;
//! # Ok(())
//! # }
//! ```
//!
//! It is a whole [`Transport`], no `StreamableHttpClient`: rmcp asks one of those for single HTTP
//! exchanges, and decides itself what is resumed, sent again and in which order.
mod convert;

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use ::rmcp::RoleClient;
use ::rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use ::rmcp::transport::Transport;
use bytes::Bytes;
use rejoin_core::message::ParseError;
use tokio::sync::oneshot;
use tokio::time::timeout;

use self::convert::Received;
use crate::client::{Client, ConnectError, FromServer, Receiver, Sender};
use crate::limits::ClientLimits;
use crate::machine::Notice;
use crate::transport::Config;

/// Time to end beside what the client takes for its calls and its session.
const CLOSE_SPARE: Duration = Duration::from_secs(1);

/// A transport to the MCP endpoint at `url`, for `serve` of an rmcp client. Nothing is sent before.
/// Call it in a tokio runtime.
///
/// # Errors
/// [`ConnectError`], if the URL cannot be used or the system refuses what the client needs.
pub fn transport(url: impl Into<String>) -> Result<ClientTransport, ConnectError> {
    ClientTransport::connect(&Config::new(url))
}

/// Why a message did not leave, or the session did not end. A request that gets one of these was
/// not sent; what happens to a request that was, is told as its JSON-RPC error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// The transport was closed.
    #[error("not sent: the transport is closed")]
    Closed,
    /// rmcp's message is no JSON.
    #[error("not sent: the message cannot be written as JSON: {source}")]
    Encode {
        /// What was found.
        #[source]
        source: serde_json::Error,
    },
    /// The message is larger than [`ClientLimits::message_bytes_max`].
    #[error("not sent: the message has {bytes} bytes, and at most {bytes_max} are sent")]
    TooLarge {
        /// Its size, in bytes.
        bytes: usize,
        /// The limit, in bytes.
        bytes_max: usize,
    },
    /// The message is one that the client cannot take, nested too deep for example.
    #[error("not sent: {source}")]
    Refused {
        /// What was found.
        #[source]
        source: ParseError,
    },
    /// The session was not ended in the time that it has for that.
    #[error("the session was not ended within {within_ms} ms; it is left to the server")]
    NotEnded {
        /// That time, in milliseconds.
        within_ms: u64,
    },
}

type OnNotice = Box<dyn FnMut(&Notice) + Send>;

/// One client of one server, as rmcp's transport.
///
/// Closing it, as `RunningService::cancel` and `close` of rmcp do, gives calls that run
/// [`ClientLimits::end_grace_ms`] and ends the session (DELETE) within
/// [`ClientLimits::delete_max_ms`]. Dropping it does the same unseen, as long as the runtime lives.
pub struct ClientTransport {
    /// `None`: it was closed.
    sender: Option<Sender>,
    receiver: Receiver,
    limits: ClientLimits,
    /// Is dropped when the message before was handed over.
    last: Option<oneshot::Receiver<()>>,
    /// What the server is told in the place of rmcp: an answer each to requests that wait for one,
    /// and so at most [`ClientLimits::asked_max`].
    replies: VecDeque<Bytes>,
    on_notice: Option<OnNotice>,
}

impl fmt::Debug for ClientTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTransport")
            .field("is_closed", &self.sender.is_none())
            .finish_non_exhaustive()
    }
}

impl ClientTransport {
    /// A transport with a credential, header fields or limits of its own. Nothing is sent before
    /// rmcp says something. Call it in a tokio runtime.
    ///
    /// # Errors
    /// [`ConnectError`], if the configuration cannot be used.
    pub fn connect(config: &Config) -> Result<Self, ConnectError> {
        let (sender, receiver) = Client::connect(config)?;
        Ok(Self {
            sender: Some(sender),
            receiver,
            limits: config.limits.clone(),
            last: None,
            replies: VecDeque::new(),
            on_notice: None,
        })
    }

    /// Tells what a person may want to know: a stream that broke off and goes on, calls that wait,
    /// a call that is sent again. It is called between messages, so it must not block.
    #[must_use]
    pub fn on_notice(mut self, tell: impl FnMut(&Notice) + Send + 'static) -> Self {
        self.on_notice = Some(Box::new(tell));
        self
    }
}

/// What a future gives, if there is one.
async fn maybe<T>(future: Option<impl Future<Output = T>>) -> Option<T> {
    match future {
        Some(future) => Some(future.await),
        None => None,
    }
}

impl Transport<RoleClient> for ClientTransport {
    type Error = TransportError;

    /// rmcp runs what this returns in tasks of their own: messages leave in the order of the calls,
    /// so that a cancel does not overtake its request.
    fn send(
        &mut self,
        item: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), TransportError>> + Send + 'static {
        let body = convert::to_client(&item, &self.limits);
        let sender = self.sender.clone();
        let (done, next) = oneshot::channel::<()>();
        let before = self.last.replace(next);
        async move {
            let _done = done;
            if let Some(before) = before {
                let _is_gone = before.await.is_err();
            }
            let Some(sender) = sender else { return Err(TransportError::Closed) };
            sender.send(body?).await.map_err(|_| TransportError::Closed)
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            // The client may hear nothing before something is taken from it: neither waits for the
            // other.
            let replied = match (&self.sender, self.replies.front()) {
                (Some(sender), Some(reply)) => Some(sender.send(reply.clone())),
                _ => None,
            };
            let next = tokio::select! {
                Some(_is_closed) = maybe(replied) => {
                    self.replies.pop_front();
                    continue;
                }
                next = self.receiver.recv() => next?,
            };
            match next {
                FromServer::Message(message) => match convert::to_rmcp(message, &self.limits) {
                    Received::Message(message) => return Some(*message),
                    Received::Reply(reply) if self.replies.len() < self.limits.asked_max => {
                        self.replies.push_back(reply);
                    }
                    Received::Reply(_) | Received::Nothing => {}
                },
                FromServer::Notice(notice) => {
                    if let Some(tell) = &mut self.on_notice {
                        tell(&notice);
                    }
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), TransportError> {
        self.sender = None;
        let given_ms = self.limits.end_grace_ms.saturating_add(self.limits.delete_max_ms);
        let given = Duration::from_millis(given_ms).saturating_add(CLOSE_SPARE);
        let ended = async { while self.receiver.recv().await.is_some() {} };
        let within_ms = u64::try_from(given.as_millis()).unwrap_or(u64::MAX);
        timeout(given, ended).await.map_err(|_| TransportError::NotEnded { within_ms })
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Poll;

    use ::rmcp::model::{ClientRequest, PingRequest, RequestId};

    use super::*;

    async fn poll_once(future: std::pin::Pin<&mut impl Future>) -> bool {
        let mut future = Some(future);
        std::future::poll_fn(move |context| {
            let is_ready = future.take().is_some_and(|future| future.poll(context).is_ready());
            Poll::Ready(is_ready)
        })
        .await
    }

    fn ping(id: i64) -> ClientJsonRpcMessage {
        let ping = ClientRequest::PingRequest(PingRequest::default());
        ClientJsonRpcMessage::request(ping, RequestId::Number(id))
    }

    #[tokio::test]
    async fn messages_leave_in_the_order_in_which_rmcp_gave_them() {
        let mut config = Config::new("http://127.0.0.1:9/mcp");
        config.limits.end_grace_ms = 0;
        let mut transport = ClientTransport::connect(&config).unwrap();
        let (first, mut second) = (transport.send(ping(1)), pin!(transport.send(ping(2))));
        assert!(!poll_once(second.as_mut()).await, "the second waits for the first");
        first.await.unwrap();
        second.await.unwrap();
        // One that rmcp gives up holds no other.
        drop(transport.send(ping(3)));
        transport.send(ping(4)).await.unwrap();
        transport.close().await.unwrap();
        assert!(matches!(transport.send(ping(5)).await, Err(TransportError::Closed)));
    }
}
