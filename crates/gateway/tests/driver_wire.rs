//! The session driver on real sockets: what the peer's kernel says reaches the state machine.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

#[path = "driver/support.rs"]
#[allow(dead_code, reason = "shared with the tests without sockets")]
mod support;

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Either, Full};
use hyper::body::Incoming;
use rejoin_core::effect::Note;
use rejoin_core::input::GetCursor;
use rejoin_core::limits::Limits;
use rejoin_core::stream::StreamState;
use rejoin_gateway::handle::{Answer, SessionHandle, StreamBody};
use rejoin_gateway::listen;
use rejoin_gateway::tap::Wire;
use socket2::SockRef;
use support::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;

const LAST_CHUNK: &str = "\r\n0\r\n\r\n";

/// One session behind a listener.
struct Gateway {
    session: Session,
    address: SocketAddr,
    served: JoinHandle<usize>,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.served.abort();
    }
}

async fn answer(
    handle: SessionHandle,
    request: Request<Incoming>,
) -> Response<Either<StreamBody, Full<Bytes>>> {
    let wire = request.extensions().get::<Wire>().cloned();
    let cursor = request.headers().get("last-event-id").cloned();
    let is_get = request.method() == http::Method::GET;
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let answer = if is_get {
        let cursor = cursor.map_or(GetCursor::None, |cursor| {
            GetCursor::At(cursor.to_str().unwrap().parse().unwrap())
        });
        handle.get(cursor, wire).await
    } else {
        let body = String::from_utf8(body.to_vec()).unwrap();
        handle.post(post_on(wire, body)).await
    };
    let body = match answer {
        Answer::Stream { body, .. } => Either::Left(body),
        other => Either::Right(Full::new(format!("{other:?}").into())),
    };
    Response::new(body)
}

impl Gateway {
    async fn start(change: impl FnOnce(&mut Limits)) -> Self {
        let mut world = World::new();
        change(&mut world.settings.limits);
        let limits = world.settings.limits.clone();
        let session = world.session("a").await;
        let handle = session.handle.clone();
        let (listener, address) = listen::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
        let served = tokio::spawn(async move {
            let service = move |request| answer(handle.clone(), request);
            listen::serve(listener, &limits, service, std::future::pending(), SOON).await
        });
        Self { session, address, served }
    }

    async fn post(&self, body: &str) -> Peer {
        let mut peer = Peer(TcpStream::connect(self.address).await.unwrap());
        peer.post(body).await;
        peer
    }

    /// A GET on a connection with a small receive buffer.
    async fn get(&self, cursor: &str) -> Peer {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4_096).unwrap();
        let mut peer = Peer(socket.connect(self.address).await.unwrap());
        let head = format!("GET / HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: {cursor}\r\n\r\n");
        peer.0.write_all(head.as_bytes()).await.unwrap();
        peer
    }

    async fn moved_to(&self, state: StreamState) {
        let is_it = |note: &Note| matches!(note, Note::StreamMoved { to, .. } if *to == state);
        self.session.notes.until(is_it).await;
    }

    /// Id of the last event on the first call's stream.
    async fn produced(&self) -> String {
        self.session.handle.view().await.unwrap().streams[1].produced.clone()
    }

    async fn decided(&self, name: &str) {
        let is_it = |note: &Note| matches!(note, Note::Decided { verdict, .. } if *verdict == name);
        self.session.notes.until(is_it).await;
    }
}

/// A client's connection.
struct Peer(TcpStream);

impl Peer {
    async fn post(&mut self, body: &str) {
        let length = body.len();
        let head =
            format!("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
        self.0.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    }

    async fn through(&mut self, text: &str) -> String {
        let mut read = Vec::new();
        loop {
            let bytes = soon(self.0.read_buf(&mut read)).await.unwrap();
            let so_far = String::from_utf8_lossy(&read);
            if so_far.contains(text) {
                return so_far.into_owned();
            }
            assert_ne!(bytes, 0, "the connection ended before {text:?}: {so_far}");
        }
    }

    fn reset(self) {
        SockRef::from(&self.0).set_linger(Some(Duration::ZERO)).unwrap();
    }
}

#[tokio::test]
async fn an_answer_that_is_read_is_presumed_and_its_end_leaves_with_the_last_event() {
    let mut gateway = Gateway::start(|_| {}).await;
    let mut peer = gateway.post(&tool_call(1, "x")).await;
    let call = gateway.session.server.take_call().await;
    peer.through("retry: 2000").await;
    gateway.session.server.answer(call, "done").await;
    let read = peer.through("done").await;
    assert!(read.ends_with(LAST_CHUNK), "{read}");
    gateway.moved_to(StreamState::Presumed).await;
    // The connection is kept and carries the next call.
    peer.post(&tool_call(2, "y")).await;
    gateway.session.server.take_call().await;
}

#[tokio::test]
async fn a_connection_that_is_reset_in_a_call_leaves_its_stream_owed() {
    let mut gateway = Gateway::start(|_| {}).await;
    let mut peer = gateway.post(&tool_call(1, "x")).await;
    gateway.session.server.take_call().await;
    peer.through("retry: 2000").await;
    peer.reset();
    gateway.moved_to(StreamState::Owed).await;
}

#[tokio::test]
async fn a_client_that_closes_without_reading_its_answer_leaves_it_doubtful() {
    let mut gateway = Gateway::start(|_| {}).await;
    let peer = gateway.post(&tool_call(1, "x")).await;
    let call = gateway.session.server.take_call().await;
    gateway.session.server.answer(call, "done").await;
    gateway.moved_to(StreamState::Presumed).await;
    drop(peer);
    gateway.moved_to(StreamState::Doubtful).await;
}

#[tokio::test]
async fn a_twin_runs_once_the_first_connection_has_acknowledged_a_comment() {
    let mut gateway = Gateway::start(|_| {}).await;
    let mut first = gateway.post(&tool_call(1, "x")).await;
    let original = gateway.session.server.take_call().await;
    first.through("retry: 2000").await;
    let _second = gateway.post(&tool_call(2, "x")).await;
    let twin = gateway.session.server.take_call().await;
    assert_ne!(original, twin);
    first.through(": probe").await;
    gateway.decided("probe").await;
}

#[tokio::test]
async fn a_held_call_runs_only_after_the_whole_replay_has_arrived_and_settled() {
    let mut gateway = Gateway::start(|_| {}).await;
    let mut first = gateway.post(&tool_call(1, "x")).await;
    let call = gateway.session.server.take_call().await;
    first.through("retry: 2000").await;
    first.reset();
    gateway.moved_to(StreamState::Owed).await;
    let text = "t".repeat(2_000);
    for _ in 0..500 {
        gateway.session.server.progress(call, &text).await;
    }
    let logged = async { while gateway.produced().await != "000000a1-1-500" {} };
    soon(logged).await;

    let mut held = gateway.post(&tool_call(2, "y")).await;
    gateway.decided("hold").await;
    let mut resumed = gateway.get("000000a1-1-0").await;
    assert!(gateway.session.server.commands.try_recv().is_err());
    assert_pending(gateway.session.server.commands.recv()).await;
    // The call still runs, so that the replay's end is not the stream's.
    resumed.through("replay-end 000000a1-1-500").await;
    let second = gateway.session.server.take_call().await;
    gateway.session.server.answer(second, "second").await;
    let read = held.through("second").await;
    assert!(read.contains(": held") && read.ends_with(LAST_CHUNK), "{read}");
}

#[tokio::test]
async fn a_replay_whose_client_stops_reading_counts_as_dropped() {
    let mut gateway = Gateway::start(|limits| limits.replay_stall_ms = 300).await;
    let mut first = gateway.post(&tool_call(1, "x")).await;
    let call = gateway.session.server.take_call().await;
    first.through("retry: 2000").await;
    first.reset();
    gateway.moved_to(StreamState::Owed).await;
    let text = "t".repeat(100_000);
    for _ in 0..100 {
        gateway.session.server.progress(call, &text).await;
    }
    let resumed = gateway.get("000000a1-1-0").await;
    gateway.moved_to(StreamState::Live).await;
    let view = || async { gateway.session.handle.view().await.unwrap().streams[1].state };
    let owed_again = async {
        while view().await != "owed" {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon(owed_again).await;
    drop(resumed);
}

#[tokio::test]
async fn a_held_client_that_leaves_before_any_head_is_withdrawn() {
    let mut gateway = Gateway::start(|limits| {
        limits.held_headers_ms = 600_000;
        limits.hold_max_ms = 300_000;
        limits.owed_grace_ms = None;
    })
    .await;
    let mut first = gateway.post(&tool_call(1, "x")).await;
    gateway.session.server.take_call().await;
    first.through("retry: 2000").await;
    first.reset();
    gateway.moved_to(StreamState::Owed).await;
    let held = gateway.post(&tool_call(2, "y")).await;
    gateway.decided("hold").await;
    drop(held);
    let ended = |note: &Note| matches!(note, Note::WaitEnded { .. });
    gateway.session.notes.until(ended).await;
    assert!(gateway.session.server.commands.try_recv().is_err());
}
