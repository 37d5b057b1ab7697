//! The session driver on real sockets: what the peer's kernel says reaches the state machine.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

#[path = "driver/support.rs"]
#[allow(dead_code, reason = "shared with the tests without sockets")]
mod support;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use rejoin_core::effect::Note;
use rejoin_core::input::GetCursor;
use rejoin_core::limits::Limits;
use rejoin_core::stream::StreamState;
use rejoin_gateway::handle::{Answer, SessionHandle};
use rejoin_gateway::listen;
use rejoin_gateway::tap::Wire;
use socket2::SockRef;
use support::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;

const LAST_CHUNK: &str = "\r\n0\r\n\r\n";
/// More than kernels buffer on the way to a client that reads nothing.
const LARGE_BYTES: usize = 12 * 1024 * 1024;

/// One session behind a listener.
struct Gateway {
    session: Session,
    address: SocketAddr,
    served: JoinHandle<usize>,
    /// Frames that were taken from the bodies of streams.
    frames: Arc<AtomicUsize>,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.served.abort();
    }
}

async fn answer(
    handle: SessionHandle,
    frames: Arc<AtomicUsize>,
    request: Request<Incoming>,
) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
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
        Answer::Stream { body, .. } => {
            let count = move |frame| {
                frames.fetch_add(1, Ordering::SeqCst);
                frame
            };
            body.map_frame(count).boxed_unsync()
        }
        other => Full::new(format!("{other:?}").into()).boxed_unsync(),
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
        let frames = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&frames);
        let served = tokio::spawn(async move {
            let service = move |request| answer(handle.clone(), Arc::clone(&count), request);
            listen::serve(listener, &limits, service, std::future::pending(), SOON).await
        });
        Self { session, address, served, frames }
    }

    async fn post(&self, body: &str) -> Peer {
        let mut peer = Peer(TcpStream::connect(self.address).await.unwrap());
        peer.post(body).await;
        peer
    }

    /// A POST on a connection with a small receive buffer.
    async fn post_slowly(&self, body: &str) -> Peer {
        let mut peer = self.slow_peer().await;
        peer.post(body).await;
        peer
    }

    async fn slow_peer(&self) -> Peer {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4_096).unwrap();
        Peer(socket.connect(self.address).await.unwrap())
    }

    /// A GET on a connection with a small receive buffer.
    async fn get(&self, cursor: &str) -> Peer {
        let mut peer = self.slow_peer().await;
        let head = format!("GET / HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: {cursor}\r\n\r\n");
        peer.0.write_all(head.as_bytes()).await.unwrap();
        peer
    }

    /// Waits until the second of two streams has begun and gives no frame any more.
    async fn stalls(&self) {
        let mut frames = 0;
        loop {
            tokio::time::sleep(WHILE).await;
            let before = std::mem::replace(&mut frames, self.frames.load(Ordering::SeqCst));
            if before == frames && frames > 2 {
                return;
            }
        }
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
            let searched = read.len().saturating_sub(text.len());
            let bytes = soon(self.0.read_buf(&mut read)).await.unwrap();
            let so_far = String::from_utf8_lossy(&read[searched..]);
            if so_far.contains(text) {
                return String::from_utf8_lossy(&read).into_owned();
            }
            assert_ne!(bytes, 0, "the connection ended before {text:?}: {so_far}");
        }
    }

    /// Waits, without a read, until the other side has reset the connection.
    async fn cut(&self) {
        while self.0.take_error().unwrap().is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
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

/// A resumed stream of one large event, whose client takes nothing of it.
async fn unread(gateway: &mut Gateway) -> Peer {
    let mut first = gateway.post(&tool_call(1, "x")).await;
    let call = gateway.session.server.take_call().await;
    first.through("retry: 2000").await;
    first.reset();
    gateway.moved_to(StreamState::Owed).await;
    gateway.session.server.progress(call, &"t".repeat(LARGE_BYTES)).await;
    soon(async { while gateway.produced().await != "000000a1-1-1" {} }).await;
    let unread = gateway.get("000000a1-1-0").await;
    soon(gateway.stalls()).await;
    unread
}

#[tokio::test]
async fn a_fenced_connection_that_takes_nothing_is_closed() {
    let mut gateway = Gateway::start(|limits| limits.stream_end_grace_ms = 300).await;
    let unread = unread(&mut gateway).await;
    let mut newer = gateway.get("000000a1-1-0").await;
    soon(unread.cut()).await;
    newer.through("replay-end 000000a1-1-1").await;
}

#[tokio::test]
async fn a_connection_of_an_ended_session_that_takes_nothing_is_closed() {
    let mut gateway = Gateway::start(|limits| limits.stream_end_grace_ms = 300).await;
    let unread = unread(&mut gateway).await;
    gateway.session.handle.delete().await;
    soon(unread.cut()).await;
}

#[tokio::test]
async fn a_fenced_connection_that_takes_its_end_is_kept() {
    let mut gateway = Gateway::start(|limits| limits.stream_end_grace_ms = 1).await;
    let mut older = gateway.post(&tool_call(1, "x")).await;
    gateway.session.server.take_call().await;
    older.through("retry: 2000").await;
    let mut newer = gateway.get("000000a1-1-0").await;
    newer.through("\n\n").await;
    older.through("retry: 30000").await;
    assert_pending(older.cut()).await;
    older.post(&tool_call(2, "y")).await;
    gateway.session.server.take_call().await;
}

#[tokio::test]
async fn a_liveness_comment_waits_for_the_end_of_a_large_event() {
    let mut gateway = Gateway::start(|limits| {
        limits.liveness_answer_ms = 60_000;
        limits.twin_window_ms = 60_000;
    })
    .await;
    let mut first = gateway.post_slowly(&tool_call(1, "x")).await;
    let call = gateway.session.server.take_call().await;
    first.through("retry: 2000").await;
    gateway.session.server.progress(call, &"t".repeat(LARGE_BYTES)).await;
    soon(async { while gateway.produced().await != "000000a1-1-1" {} }).await;
    let _twin = gateway.post(&tool_call(2, "x")).await;
    gateway.decided("probe").await;
    let read = first.through(": probe").await;
    assert!(read.contains("\"}}\n\n"), "the event was not finished before");
    assert_eq!(read.matches('t').count() / LARGE_BYTES, 1, "bytes of the event are missing");
    gateway.session.server.take_call().await;
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
