//! The MCP server behind the gateway: a service in this process that answers as the input says.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{Method, Request, Response};
use http_body::{Body, Frame};
use http_body_util::Full;
use rejoin_core::message::{Incoming, Kind, Message, parse};
use tower_service::Service;

/// How the server answers a call.
#[derive(Clone, Debug)]
pub(super) enum Reply {
    Json,
    Stream {
        progress: u8,
        ends: bool,
    },
    Never,
    /// A head that says what it says, and these bytes for a body.
    Raw {
        status: u16,
        is_stream: bool,
        body: Bytes,
    },
}

#[derive(Debug, Default)]
struct State {
    replies: VecDeque<Reply>,
    victims_calls: usize,
}

/// Clones are one server.
#[derive(Clone, Debug)]
pub(super) struct Server {
    state: Arc<Mutex<State>>,
    /// The credential of the well-behaved client, and what it is answered.
    pub(super) secret: Arc<str>,
}

impl Server {
    pub(super) fn new(secret: String) -> Self {
        Self { state: Arc::default(), secret: secret.into() }
    }

    /// The next calls are answered so; all others are with JSON.
    pub(super) fn will(&self, reply: Reply) {
        self.state().replies.push_back(reply);
    }

    /// Calls that the server ran for the well-behaved client.
    pub(super) fn victims_calls(&self) -> usize {
        self.state().victims_calls
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, request: &Request<Full<Bytes>>, body: Bytes) -> Response<Parts> {
        if request.method() != Method::POST {
            return plain(if request.method() == Method::GET { 405 } else { 200 });
        }
        let Ok(Incoming::One(message)) = parse(body, 128) else { return plain(400) };
        let credential = request.headers().get(AUTHORIZATION);
        let is_victim = credential.is_some_and(|value| value == &*self.secret);
        let text = if is_victim { &*self.secret } else { "done" };
        match (message.kind(), message.id(), message.method()) {
            (Kind::Request, Some(id), Some("initialize")) => {
                let result = r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},
                    "serverInfo":{"name":"scripted","version":"1"}}"#;
                let mut answer = json(id, result);
                answer.headers_mut().insert("mcp-session-id", http::HeaderValue::from_static("s"));
                answer
            }
            (Kind::Request, Some(id), method) => {
                let mut state = self.state();
                let reply = if is_victim { None } else { state.replies.pop_front() };
                state.victims_calls += usize::from(is_victim && method == Some("tools/call"));
                drop(state);
                reply_to(&message, id, text, reply.unwrap_or(Reply::Json))
            }
            _ => plain(202),
        }
    }
}

fn reply_to(message: &Message, id: &[u8], text: &str, reply: Reply) -> Response<Parts> {
    let result = format!(r#"{{"content":[{{"type":"text","text":"{text}"}}]}}"#);
    match reply {
        Reply::Json => json(id, &result),
        Reply::Never => stream(Vec::new(), false),
        Reply::Raw { status, is_stream, body } => {
            let mut response = stream(vec![body], true);
            *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or_default();
            if !is_stream {
                let json = http::HeaderValue::from_static("application/json");
                response.headers_mut().insert(CONTENT_TYPE, json);
            }
            response
        }
        Reply::Stream { progress, ends } => {
            let token = message.progress_token_raw().unwrap_or(b"0");
            let token = String::from_utf8_lossy(token);
            let mut chunks: Vec<_> = (0..progress)
                .map(|number| {
                    format!(
                        "id: {number}\ndata: {{\"jsonrpc\":\"2.0\",\"method\":\
                         \"notifications/progress\",\"params\":{{\"progressToken\":{token},\
                         \"progress\":{number}}}}}\n\n"
                    )
                    .into()
                })
                .collect();
            if ends {
                let id = String::from_utf8_lossy(id);
                let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
                chunks.push(format!("id: end\ndata: {answer}\n\n").into());
            }
            stream(chunks, ends)
        }
    }
}

fn plain(status: u16) -> Response<Parts> {
    let mut response = Response::new(Parts { chunks: VecDeque::new(), ends: true });
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or_default();
    response
}

fn json(id: &[u8], result: &str) -> Response<Parts> {
    let id = String::from_utf8_lossy(id);
    let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
    let mut response = stream(vec![body.into()], true);
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

fn stream(chunks: Vec<Bytes>, ends: bool) -> Response<Parts> {
    let mut response = Response::new(Parts { chunks: chunks.into(), ends });
    let stream = http::HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(CONTENT_TYPE, stream);
    response
}

/// A body in parts; one that does not end is silent after them.
#[derive(Debug)]
pub(super) struct Parts {
    chunks: VecDeque<Bytes>,
    ends: bool,
}

impl Body for Parts {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.chunks.pop_front() {
            Some(chunk) => Poll::Ready(Some(Ok(Frame::data(chunk)))),
            None if self.ends => Poll::Ready(None),
            // Whoever listens leaves one day; nothing wakes them before.
            None => Poll::Pending,
        }
    }
}

impl Service<Request<Full<Bytes>>> for Server {
    type Response = Response<Parts>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Parts>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Full<Bytes>>) -> Self::Future {
        let frame = Pin::new(request.body_mut())
            .poll_frame(&mut Context::from_waker(std::task::Waker::noop()));
        let body = match frame {
            Poll::Ready(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
            _ => Bytes::new(),
        };
        ready(Ok(self.answer(&request, body)))
    }
}
