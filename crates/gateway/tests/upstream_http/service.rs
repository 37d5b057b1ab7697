//! A service in this process as upstream: what it is given, and what becomes of calls it fails.
use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rejoin_core::id::CallId;
use rejoin_gateway::passthrough::{BoxError, Outgoing, Target};
use rejoin_gateway::upstream::conformance::Session;
use rejoin_gateway::upstream::service::{
    ServiceBody, ServiceOptions, ServiceUpstream, ServiceUpstreamError,
};
use rejoin_gateway::upstream::{Command, Event, LostReason, NotSentReason, Upstream};
use serde_json::{Value, json};
use tower_service::Service;

use crate::support::{Served, Server, event, limits};

type Answered<B> = Pin<Box<dyn Future<Output = Result<Response<B>, BoxError>> + Send>>;

fn options() -> ServiceOptions {
    ServiceOptions::new(Arc::new(limits()))
}

/// A service that hands each request on to the scripted server.
#[derive(Clone)]
struct HandOn {
    client: Client<HttpConnector, ServiceBody>,
    url: String,
}

impl Service<Request<ServiceBody>> for HandOn {
    type Response = Response<hyper::body::Incoming>;
    type Error = BoxError;
    type Future = Answered<hyper::body::Incoming>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<ServiceBody>) -> Self::Future {
        let Self { client, url } = self.clone();
        Box::pin(async move {
            *request.uri_mut() = format!("{url}{}", request.uri()).parse()?;
            Ok(client.request(request).await?)
        })
    }
}

/// An upstream that calls a service in front of the scripted server.
pub(crate) fn called(flags: &[&str]) -> Arc<dyn Upstream> {
    let server = Server::start(flags);
    let mut tcp = HttpConnector::new();
    tcp.set_nodelay(true);
    let client = Client::builder(TokioExecutor::new()).build(tcp);
    let service = HandOn { client, url: server.url.clone() };
    let upstream = ServiceUpstream::new(service, "/mcp", options()).expect("a good path");
    Arc::new(Served { upstream, _server: server })
}

/// A service that does as the method of a request says.
#[derive(Clone, Default)]
struct Scripted {
    /// It is not ready for anything.
    busy: Arc<AtomicBool>,
    /// It fails before it is ready.
    broken: Arc<AtomicBool>,
    /// A request that is never answered was given up.
    given_up: Arc<AtomicBool>,
}

struct GivenUp(Arc<AtomicBool>);

impl Drop for GivenUp {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

type ScriptedBody = UnsyncBoxBody<Bytes, BoxError>;

impl Service<Request<ServiceBody>> for Scripted {
    type Response = Response<ScriptedBody>;
    type Error = BoxError;
    type Future = Answered<ScriptedBody>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        if self.broken.load(Ordering::SeqCst) {
            return Poll::Ready(Err("out of order".into()));
        }
        if self.busy.load(Ordering::SeqCst) { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    fn call(&mut self, request: Request<ServiceBody>) -> Self::Future {
        let given_up = Arc::clone(&self.given_up);
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let message: Value = serde_json::from_slice(&body).unwrap_or_default();
            let text = |name: &HeaderName| head.headers[name].to_str().unwrap_or_default();
            let result = match message["method"].as_str().unwrap_or_default() {
                "" if head.method == Method::GET => {
                    return plain(StatusCode::METHOD_NOT_ALLOWED);
                }
                "initialize" => json!({ "protocolVersion": "2025-11-25", "capabilities": {} }),
                "ping" => json!({}),
                "panic" => panic!("as it was told"),
                "fail" => return Err("as it was told".into()),
                "break" => return Ok(stream(Breaking::default())),
                "comment" => return Ok(stream(Commenting)),
                "burst" => return Err(Box::new(Bursting)),
                "hang" => {
                    let _guard = GivenUp(given_up);
                    pending().await
                }
                "echo" => {
                    let names = head.headers.keys();
                    let headers: Value =
                        names.map(|name| (name.to_string(), Value::from(text(name)))).collect();
                    json!({ "uri": head.uri.to_string(), "headers": headers })
                }
                _ => return plain(StatusCode::ACCEPTED),
            };
            let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result });
            let body = Full::from(answer.to_string()).map_err(Into::into).boxed_unsync();
            let answer = Response::builder().header(CONTENT_TYPE, "application/json");
            Ok(answer.header("Mcp-Session-Id", "one").body(body)?)
        })
    }
}

fn plain(status: StatusCode) -> Result<Response<ScriptedBody>, BoxError> {
    let body = Full::default().map_err(Into::into).boxed_unsync();
    Ok(Response::builder().status(status).body(body)?)
}

fn stream<B>(body: B) -> Response<ScriptedBody>
where
    B: Body<Data = Bytes, Error = BoxError> + Send + 'static,
{
    let mut response = Response::new(body.boxed_unsync());
    response.headers_mut().insert(CONTENT_TYPE, "text/event-stream".parse().expect("a value"));
    response
}

/// One event, and then a panic.
#[derive(Default)]
struct Breaking {
    begun: bool,
}

impl Body for Breaking {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        assert!(!self.begun, "as it was told");
        self.begun = true;
        let event = "data: {\"jsonrpc\":\"2.0\",\"method\":\"begun\"}\n\n";
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(event.as_bytes())))))
    }
}

/// Comments without end, one each millisecond.
struct Commenting;

impl Body for Commenting {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let waker = context.waker().clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            waker.wake();
        });
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b": still here\n\n")))))
    }
}

/// An error that panics when it is told.
#[derive(Debug)]
struct Bursting;

impl std::fmt::Display for Bursting {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("as it was told")
    }
}

impl std::error::Error for Bursting {}

fn upstream(service: &Scripted, options: ServiceOptions) -> Arc<dyn Upstream> {
    Arc::new(ServiceUpstream::new(service.clone(), "/tools?x=1", options).expect("a good path"))
}

async fn call(session: &mut Session, id: u64, method: &str) {
    let message = json!({ "jsonrpc": "2.0", "id": id, "method": method }).to_string().into();
    assert!(session.command(Command::Call { call: CallId(id), message }).await);
}

async fn echo(session: &mut Session, id: u64) -> Value {
    call(session, id, "echo").await;
    let answer: Value = serde_json::from_str(&session.message().await).expect("JSON");
    assert_eq!(answer["id"], id, "{answer}");
    answer["result"].clone()
}

#[tokio::test]
async fn a_request_comes_as_a_listener_would_hand_it_over() {
    let upstream = upstream(&Scripted::default(), options());
    assert_eq!(upstream.name(), "service");
    let mut session = Session::open(&upstream).await;
    let seen = echo(&mut session, 1).await;
    assert_eq!(seen["uri"], "/tools?x=1");
    let headers = &seen["headers"];
    assert_eq!(
        (&headers["host"], &headers["mcp-session-id"]),
        (&"localhost".into(), &"one".into())
    );
    let length = json!({ "jsonrpc": "2.0", "id": 1, "method": "echo" }).to_string().len();
    assert_eq!(headers["content-length"], length.to_string());
    assert_eq!(headers["content-type"], "application/json");
    session.end().await;
}

#[tokio::test]
async fn a_call_that_fails_or_panics_was_sent_and_is_lost_and_the_session_goes_on() {
    let upstream = upstream(&Scripted::default(), options());
    let mut session = Session::open(&upstream).await;
    for (id, method) in [(1, "panic"), (2, "fail"), (5, "burst")] {
        call(&mut session, id, method).await;
        let lost = Event::Lost { call: CallId(id), reason: LostReason::ConnectionLost };
        assert_eq!(event(&mut session).await, lost, "{method}");
        assert_eq!(session.was_sent(id), Some(true));
    }
    call(&mut session, 3, "break").await;
    assert!(session.message().await.contains("begun"));
    let what = "its events have no ids";
    let lost = Event::Lost { call: CallId(3), reason: LostReason::StreamEnded { what } };
    assert_eq!(event(&mut session).await, lost);
    echo(&mut session, 4).await;
    session.end().await;
}

#[tokio::test]
async fn a_call_that_the_service_was_not_ready_for_was_not_sent() {
    let service = Scripted::default();
    let mut options = options();
    Arc::make_mut(&mut options.limits).upstream.connect_max_ms = 50;
    Arc::make_mut(&mut options.limits).upstream.unreachable_max_ms = 60_000;
    let upstream = upstream(&service, options);
    let mut session = Session::open(&upstream).await;
    for (id, reason) in [(1, &service.busy), (2, &service.broken)] {
        reason.store(true, Ordering::SeqCst);
        call(&mut session, id, "echo").await;
        let not_sent = Event::NotSent { call: CallId(id), reason: NotSentReason::Unreachable };
        assert_eq!(event(&mut session).await, not_sent);
        reason.store(false, Ordering::SeqCst);
    }
    echo(&mut session, 3).await;
    session.end().await;
}

#[tokio::test]
async fn a_cancelled_call_that_its_service_does_not_heed_is_given_up() {
    let service = Scripted::default();
    let mut options = options();
    Arc::make_mut(&mut options.limits).upstream.cancelled_silence_max_ms = 50;
    let upstream = upstream(&service, options);
    let mut session = Session::open(&upstream).await;
    let what = "the call was cancelled";
    let reasons = [LostReason::Cancelled, LostReason::StreamEnded { what }];
    for ((id, method), reason) in [(1, "hang"), (2, "comment")].into_iter().zip(reasons) {
        call(&mut session, id, method).await;
        assert_eq!(session.next().await, Some(Event::Sent { call: CallId(id) }));
        let message = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled" });
        let message = message.to_string().into();
        assert!(session.command(Command::Cancel { call: CallId(id), message }).await);
        assert_eq!(event(&mut session).await, Event::Lost { call: CallId(id), reason }, "{method}");
    }
    assert!(service.given_up.load(Ordering::SeqCst), "its handler was dropped");
    session.end().await;
}

#[tokio::test]
async fn who_gives_up_a_request_that_is_passed_through_gives_up_the_call() {
    let service = Scripted::default();
    let upstream = upstream(&service, options());
    let outgoing = Outgoing {
        method: Method::POST,
        target: Target::Endpoint,
        query: None,
        headers: HeaderMap::new(),
        body: json!({ "jsonrpc": "2.0", "id": 1, "method": "hang" }).to_string().into(),
    };
    let way = upstream.passthrough().expect("a way");
    let mut passing = way.exchange(outgoing);
    // One poll brings it to where it hangs: nothing in between waits.
    let polled = poll_fn(|context| Poll::Ready(passing.as_mut().poll(context).is_ready())).await;
    assert!(!polled && !service.given_up.load(Ordering::SeqCst));
    drop(passing);
    assert!(service.given_up.load(Ordering::SeqCst));
}

#[tokio::test]
async fn a_path_must_be_one_and_headers_must_be_the_operators_to_choose() {
    let new = |path: &str, options| ServiceUpstream::new(Scripted::default(), path, options);
    for path in ["", "mcp", "http://localhost/mcp", "/a b"] {
        let error = new(path, options()).err();
        assert!(matches!(error, Some(ServiceUpstreamError::BadPath { .. })), "{path}");
    }
    let mut reserved = options();
    reserved.forward_headers = vec![HeaderName::from_static("mcp-session-id")];
    let error = new("/", reserved).err();
    assert!(matches!(error, Some(ServiceUpstreamError::ReservedHeader { .. })));
    let mut tenant = options();
    tenant.forward_headers = vec![HeaderName::from_static("x-tenant")];
    let names = new("/", tenant).expect("good").forwarded_headers().to_vec();
    assert_eq!(names, ["x-tenant", "authorization"]);
}
