//! The socket wrapper and the listener, on real sockets under hyper.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::convert::Infallible;
use std::future::Future;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use hyper::body::Incoming;
use rejoin_core::limits::Limits;
use rejoin_gateway::listen;
use rejoin_gateway::tap::{AckError, Mark, Wire, WireEnd, WireGone};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

/// Bound of every wait for something that must happen.
const SOON: Duration = Duration::from_secs(10);
/// Time in which something that must not happen is given the chance to.
const WHILE: Duration = Duration::from_millis(300);
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
const REQUEST_AND_CLOSE: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
const LAST_CHUNK: &[u8] = b"\r\n0\r\n\r\n";

/// A response body that a test feeds frame by frame.
struct FedBody {
    frames: mpsc::Receiver<(Bytes, bool)>,
    marks: mpsc::Sender<Mark>,
    wire: Wire,
    is_ended: bool,
    _dropped: oneshot::Sender<()>,
}

impl Body for FedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.frames.poll_recv(cx).map(|fed| {
            let (data, is_last) = fed?;
            self.is_ended = is_last;
            self.marks.try_send(self.wire.hand()).unwrap();
            Some(Ok(Frame::data(data)))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.is_ended
    }
}

/// The test's side of one exchange.
struct Exchange {
    wire: Wire,
    number: u64,
    frames: mpsc::Sender<(Bytes, bool)>,
    marks: mpsc::Receiver<Mark>,
    dropped: oneshot::Receiver<()>,
}

impl Exchange {
    async fn send(&mut self, data: impl Into<Bytes>, is_last: bool) -> Mark {
        self.frames.send((data.into(), is_last)).await.unwrap();
        soon(self.marks.recv()).await.unwrap()
    }
}

struct Server {
    address: SocketAddr,
    exchanges: mpsc::Receiver<Exchange>,
    stop: oneshot::Sender<()>,
    served: JoinHandle<usize>,
}

impl Server {
    async fn start(limits: Limits, drain: Duration) -> Self {
        let (listener, address) = listen::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
        let (report, exchanges) = mpsc::channel(16);
        let (stop, stopped) = oneshot::channel();
        let service = move |request: Request<Incoming>| answer(request, report.clone());
        let served = tokio::spawn(async move {
            let stopped = async { stopped.await.unwrap_or(()) };
            listen::serve(listener, &limits, service, stopped, drain).await
        });
        Self { address, exchanges, stop, served }
    }

    async fn with_defaults() -> Self {
        Self::start(Limits::default(), SOON).await
    }

    async fn connect(&mut self) -> (TcpStream, Exchange) {
        let mut peer = TcpStream::connect(self.address).await.unwrap();
        peer.write_all(REQUEST).await.unwrap();
        let exchange = self.exchange().await;
        (peer, exchange)
    }

    async fn exchange(&mut self) -> Exchange {
        soon(self.exchanges.recv()).await.unwrap()
    }
}

async fn answer(request: Request<Incoming>, report: mpsc::Sender<Exchange>) -> Response<FedBody> {
    assert_ne!(request.uri().path(), "/panic", "asked for by the test");
    let wire = request.extensions().get::<Wire>().unwrap().clone();
    let (frames, fed) = mpsc::channel(64);
    let (report_mark, marks) = mpsc::channel(64);
    let (_dropped, dropped) = oneshot::channel();
    let number = wire.exchange();
    let body =
        FedBody { frames: fed, marks: report_mark, wire: wire.clone(), is_ended: false, _dropped };
    report.send(Exchange { wire, number, frames, marks, dropped }).await.unwrap();
    Response::new(body)
}

async fn soon<T>(event: impl Future<Output = T>) -> T {
    timeout(SOON, event).await.expect("it must happen soon")
}

async fn assert_pending(event: impl Future) {
    assert!(timeout(WHILE, event).await.is_err(), "it must not happen");
}

/// Reads until `end` was read; returns everything read.
async fn read_through(peer: &mut TcpStream, end: &[u8]) -> Vec<u8> {
    let mut read = Vec::new();
    while !read.ends_with(end) {
        let bytes = soon(peer.read_buf(&mut read)).await.unwrap();
        assert_ne!(bytes, 0, "the server ended the connection too early");
    }
    read
}

fn reset(peer: TcpStream) {
    SockRef::from(&peer).set_linger(Some(Duration::ZERO)).unwrap();
    drop(peer);
}

#[tokio::test]
async fn a_first_frame_and_the_head_before_it_are_flushed_and_acknowledged() {
    let mut server = Server::with_defaults().await;
    let (mut peer, mut exchange) = server.connect().await;
    let mark = exchange.send("first", false).await;
    soon(exchange.wire.flushed(mark)).await.unwrap();
    soon(exchange.wire.acknowledged(mark)).await.unwrap();
    let read = read_through(&mut peer, b"first\r\n").await;
    assert!(read.starts_with(b"HTTP/1.1 200 OK\r\n"));
    assert_eq!(exchange.wire.acked_bytes(), Some(read.len() as u64));
}

#[tokio::test]
async fn bytes_beyond_the_window_of_a_peer_that_reads_nothing_are_flushed_not_acknowledged() {
    const BYTES: usize = 1024 * 1024;
    let mut server = Server::with_defaults().await;
    let (mut peer, mut exchange) = server.connect().await;
    let first = exchange.send("first", false).await;
    soon(exchange.wire.acknowledged(first)).await.unwrap();
    let large = exchange.send(vec![b'x'; BYTES], true).await;
    soon(exchange.wire.flushed(large)).await.unwrap();

    assert_pending(exchange.wire.acknowledged(large)).await;
    let stall = Duration::from_millis(200);
    let stalled = soon(exchange.wire.acknowledged_or_stalled(large, stall)).await;
    assert_eq!(stalled, Err(AckError::Stalled));
    soon(exchange.wire.acknowledged(first)).await.expect("the earlier frame stays acknowledged");

    let read = read_through(&mut peer, LAST_CHUNK).await;
    assert!(read.len() > BYTES);
    soon(exchange.wire.acknowledged(large)).await.unwrap();
    soon(exchange.wire.acknowledged_or_stalled(large, stall)).await.unwrap();
}

#[tokio::test]
async fn a_frame_the_kernel_does_not_take_is_not_flushed_until_the_peer_reads() {
    const FRAME_BYTES: usize = 16 * 1024 * 1024;
    let mut server = Server::with_defaults().await;
    let (mut peer, mut exchange) = server.connect().await;
    let huge = exchange.send(vec![b'x'; FRAME_BYTES], true).await;

    assert_pending(exchange.wire.flushed(huge)).await;
    let stall = Duration::from_millis(200);
    let stalled = soon(exchange.wire.acknowledged_or_stalled(huge, stall)).await;
    assert_eq!(stalled, Err(AckError::Stalled));

    let wire = exchange.wire.clone();
    let moving = tokio::spawn(async move { wire.acknowledged_or_stalled(huge, SOON).await });
    read_through(&mut peer, LAST_CHUNK).await;
    soon(exchange.wire.flushed(huge)).await.unwrap();
    assert_eq!(soon(moving).await.unwrap(), Ok(()));
}

#[tokio::test]
async fn the_final_frame_and_the_last_chunk_leave_in_one_write_and_share_a_mark() {
    let mut server = Server::with_defaults().await;
    let (mut peer, mut exchange) = server.connect().await;
    let first = exchange.send("first", false).await;
    let head = read_through(&mut peer, b"first\r\n").await;
    soon(exchange.wire.acknowledged(first)).await.unwrap();

    let last = exchange.send("last", true).await;
    let mut read = [0; 64];
    let bytes = soon(peer.read(&mut read)).await.unwrap();
    assert_eq!(&read[..bytes], b"4\r\nlast\r\n0\r\n\r\n");
    soon(exchange.wire.acknowledged(last)).await.unwrap();
    assert_eq!(exchange.wire.acked_bytes(), Some((head.len() + bytes) as u64));
}

#[tokio::test]
async fn a_reset_after_the_body_ended_is_reported() {
    let mut server = Server::with_defaults().await;
    let (mut peer, mut exchange) = server.connect().await;
    let last = exchange.send("last", true).await;
    read_through(&mut peer, LAST_CHUNK).await;
    soon(exchange.wire.acknowledged(last)).await.unwrap();
    soon(exchange.dropped).await.expect_err("the body is dropped at its end");

    reset(peer);
    assert_eq!(soon(exchange.wire.ended()).await, WireEnd::Reset);
    assert_eq!(exchange.wire.acknowledged(last).await, Err(WireGone));
    soon(exchange.wire.flushed(last)).await.expect("it was flushed all the same");
}

#[tokio::test]
async fn a_peer_that_closes_without_reading_the_answer_resets() {
    let mut server = Server::with_defaults().await;
    let (peer, mut exchange) = server.connect().await;
    let last = exchange.send("last", true).await;
    soon(exchange.wire.acknowledged(last)).await.unwrap();
    drop(peer);
    assert_eq!(soon(exchange.wire.ended()).await, WireEnd::Reset);
}

#[tokio::test]
async fn a_reset_is_seen_although_the_client_asked_for_connection_close() {
    let mut server = Server::with_defaults().await;
    let mut peer = TcpStream::connect(server.address).await.unwrap();
    peer.write_all(REQUEST_AND_CLOSE).await.unwrap();
    let mut exchange = server.exchange().await;
    let last = exchange.send("last", true).await;
    soon(exchange.wire.acknowledged(last)).await.unwrap();
    drop(peer);
    assert_eq!(soon(exchange.wire.ended()).await, WireEnd::Reset);
}

#[tokio::test]
async fn an_answer_with_connection_close_is_acknowledged_and_ends_with_the_peers_fin() {
    let mut server = Server::with_defaults().await;
    let mut peer = TcpStream::connect(server.address).await.unwrap();
    peer.write_all(REQUEST_AND_CLOSE).await.unwrap();
    let mut exchange = server.exchange().await;
    let last = exchange.send("last", true).await;
    let mut read = Vec::new();
    soon(peer.read_to_end(&mut read)).await.unwrap();
    assert!(read.ends_with(LAST_CHUNK));
    soon(exchange.wire.acknowledged(last)).await.unwrap();
    drop(peer);
    assert_eq!(soon(exchange.wire.ended()).await, WireEnd::Fin);
    closed(&exchange.wire).await;
    soon(exchange.wire.acknowledged(last)).await.expect("the last count outlives the socket");
}

/// Waits until the listener has closed the socket: what is still to be flushed then never is.
async fn closed(wire: &Wire) {
    let never_flushed = wire.hand();
    assert_eq!(soon(wire.flushed(never_flushed)).await, Err(WireGone));
}

#[tokio::test]
async fn a_fin_is_reported_and_what_was_acknowledged_stays_so_after_the_close() {
    let mut server = Server::with_defaults().await;
    let (mut peer, mut exchange) = server.connect().await;
    let last = exchange.send("last", true).await;
    read_through(&mut peer, LAST_CHUNK).await;
    drop(peer);
    assert_eq!(soon(exchange.wire.ended()).await, WireEnd::Fin);
    closed(&exchange.wire).await;
    soon(exchange.wire.acknowledged(last)).await.unwrap();
    assert!(exchange.wire.acked_bytes().is_some());
    assert_pending(exchange.wire.next_exchange(exchange.number)).await;
}

#[tokio::test]
async fn a_peer_that_goes_in_mid_body_drops_the_body_and_its_marks_at_once() {
    for is_reset in [true, false] {
        let mut server = Server::with_defaults().await;
        let (mut peer, mut exchange) = server.connect().await;
        exchange.send("first", false).await;
        read_through(&mut peer, b"first\r\n").await;
        let end = if is_reset { WireEnd::Reset } else { WireEnd::Fin };
        if is_reset {
            reset(peer)
        } else {
            drop(peer)
        }
        soon(exchange.dropped).await.expect_err("the body's sender is dropped, not used");
        assert_eq!(soon(exchange.wire.ended()).await, end);
        let unsent = exchange.wire.hand();
        assert_eq!(soon(exchange.wire.flushed(unsent)).await, Err(WireGone));
        assert_eq!(soon(exchange.wire.acknowledged(unsent)).await, Err(WireGone));
    }
}

#[tokio::test]
async fn waiters_of_an_unread_answer_end_when_the_peer_goes() {
    let mut server = Server::with_defaults().await;
    let (peer, mut exchange) = server.connect().await;
    let mark = exchange.send(vec![b'x'; 16 * 1024 * 1024], true).await;
    let (flushed, acked) = (exchange.wire.clone(), exchange.wire.clone());
    let flushed = tokio::spawn(async move { flushed.flushed(mark).await });
    let acked = tokio::spawn(async move { acked.acknowledged_or_stalled(mark, SOON).await });
    drop(peer);
    assert_eq!(soon(flushed).await.unwrap(), Err(WireGone));
    assert_eq!(soon(acked).await.unwrap(), Err(AckError::Gone));
    assert_eq!(soon(exchange.wire.ended()).await, WireEnd::Reset);
}

#[tokio::test]
async fn a_request_on_the_reused_connection_is_the_next_exchange() {
    let mut server = Server::with_defaults().await;
    let (mut peer, mut first) = server.connect().await;
    assert_eq!(first.number, 1);
    first.send("last", true).await;
    read_through(&mut peer, LAST_CHUNK).await;
    assert_pending(first.wire.next_exchange(first.number)).await;

    let wire = first.wire.clone();
    let next = tokio::spawn(async move { wire.next_exchange(1).await });
    peer.write_all(REQUEST).await.unwrap();
    let mut second = server.exchange().await;
    soon(next).await.unwrap();
    assert_eq!((second.number, first.wire.exchange()), (2, 2));

    let last = second.send("again", true).await;
    soon(second.wire.acknowledged(last)).await.unwrap();
    read_through(&mut peer, b"again\r\n0\r\n\r\n").await;
}

#[tokio::test]
async fn an_observer_does_not_delay_the_fin() {
    let mut server = Server::start(Limits::default(), SOON).await;
    let (mut peer, mut exchange) = server.connect().await;
    exchange.send("last", true).await;
    read_through(&mut peer, LAST_CHUNK).await;
    let wire = exchange.wire.clone();
    server.stop.send(()).unwrap();
    let mut rest = Vec::new();
    assert_eq!(soon(peer.read_to_end(&mut rest)).await.unwrap(), 0);
    assert_eq!(soon(server.served).await.unwrap(), 0);
    assert_eq!(soon(wire.ended()).await, WireEnd::ClosedByUs);
}

#[tokio::test]
async fn a_stopped_listener_refuses_new_connections_and_lets_running_streams_end() {
    let mut server = Server::with_defaults().await;
    let (mut peer, mut exchange) = server.connect().await;
    exchange.send("first", false).await;
    server.stop.send(()).unwrap();
    let refused = async {
        while TcpStream::connect(server.address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    soon(refused).await;
    assert!(!server.served.is_finished());
    exchange.send("last", true).await;
    read_through(&mut peer, LAST_CHUNK).await;
    assert_eq!(soon(server.served).await.unwrap(), 0);
}

#[tokio::test]
async fn a_stream_that_nobody_ends_is_cut_after_the_drain_time_and_counted() {
    let drain = Duration::from_millis(100);
    let mut server = Server::start(Limits::default(), drain).await;
    let (_peer, mut exchange) = server.connect().await;
    exchange.send("first", false).await;
    server.stop.send(()).unwrap();
    assert_eq!(soon(server.served).await.unwrap(), 1);
    assert_eq!(soon(exchange.wire.ended()).await, WireEnd::ClosedByUs);
    soon(exchange.dropped).await.expect_err("the body is dropped");
}

#[tokio::test]
async fn a_panic_in_one_connection_ends_no_other() {
    let mut server = Server::with_defaults().await;
    let (mut peer, mut exchange) = server.connect().await;
    exchange.send("first", false).await;
    read_through(&mut peer, b"first\r\n").await;

    let mut bad = TcpStream::connect(server.address).await.unwrap();
    bad.write_all(b"GET /panic HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut nothing = Vec::new();
    let ended = soon(bad.read_to_end(&mut nothing)).await;
    assert!(matches!(ended, Ok(0)) || ended.is_err_and(|e| e.kind() == ErrorKind::ConnectionReset));

    exchange.send("last", true).await;
    read_through(&mut peer, LAST_CHUNK).await;
    server.connect().await;
}

#[tokio::test]
async fn beyond_the_connection_cap_a_client_waits_until_another_is_gone() {
    let mut limits = Limits::default();
    limits.connections_max = 1;
    let mut server = Server::start(limits, SOON).await;
    let (first, _exchange) = server.connect().await;
    let mut second = TcpStream::connect(server.address).await.unwrap();
    second.write_all(REQUEST).await.unwrap();
    assert_pending(server.exchanges.recv()).await;
    drop(first);
    server.exchange().await;
}

#[tokio::test]
async fn an_unfinished_or_oversized_request_head_ends_its_connection() {
    let mut limits = Limits::default();
    limits.request_head_max_ms = 200;
    let server = Server::start(limits, SOON).await;

    let mut slow = TcpStream::connect(server.address).await.unwrap();
    slow.write_all(b"GET / HTTP/1.1\r\nHost: loc").await.unwrap();
    let started = Instant::now();
    let mut answer = Vec::new();
    let _end = soon(slow.read_to_end(&mut answer)).await;
    assert!(started.elapsed() >= Duration::from_millis(190));

    let mut large = TcpStream::connect(server.address).await.unwrap();
    large.write_all(b"GET / HTTP/1.1\r\nA: ").await.unwrap();
    large.write_all(&vec![b'x'; 40 * 1024]).await.unwrap();
    let mut answer = Vec::new();
    let _end = soon(large.read_to_end(&mut answer)).await;
    assert!(answer.starts_with(b"HTTP/1.1 431 "), "{}", String::from_utf8_lossy(&answer));
}

#[tokio::test]
async fn a_peer_that_reads_nothing_is_given_up_after_the_user_timeout() {
    let mut limits = Limits::default();
    limits.tcp_user_timeout_ms = 300;
    let mut server = Server::start(limits, SOON).await;
    let (_peer, mut exchange) = server.connect().await;
    let mark = exchange.send(vec![b'x'; 16 * 1024 * 1024], true).await;
    assert_eq!(soon(exchange.wire.ended()).await, WireEnd::TimedOut);
    assert_eq!(exchange.wire.acknowledged(mark).await, Err(WireGone));
}

#[tokio::test]
async fn a_client_that_never_closes_its_finished_connection_is_left_after_the_reset_window() {
    let mut limits = Limits::default();
    limits.reset_window_ms = 100;
    let mut server = Server::start(limits, SOON).await;
    let mut peer = TcpStream::connect(server.address).await.unwrap();
    peer.write_all(REQUEST_AND_CLOSE).await.unwrap();
    let mut exchange = server.exchange().await;
    let last = exchange.send("last", true).await;
    assert_eq!(soon(exchange.wire.ended()).await, WireEnd::ClosedByUs);
    soon(exchange.wire.acknowledged(last)).await.expect("unread, but in the peer's kernel");
    read_through(&mut peer, LAST_CHUNK).await;
}

/// Feeds `count` frames of `bytes` bytes. Returns, per frame, the bytes acknowledged on the
/// connection at the moment the frame's mark was.
async fn feed_and_watch(mut exchange: Exchange, count: usize, bytes: usize) -> Vec<u64> {
    let mut waits = Vec::new();
    for index in 0..count {
        let mark = exchange.send(vec![b'a'; bytes], index + 1 == count).await;
        let wire = exchange.wire.clone();
        waits.push(tokio::spawn(async move {
            wire.acknowledged(mark).await.unwrap();
            wire.acked_bytes().unwrap()
        }));
    }
    let mut acked = Vec::new();
    for wait in waits {
        acked.push(soon(wait).await.unwrap());
    }
    acked
}

#[tokio::test]
async fn no_mark_is_acknowledged_before_all_its_bytes_are() {
    const FRAMES: usize = 400;
    const FRAME_BYTES: usize = 10_000;
    const CHUNK_BYTES: usize = "2710\r\n".len() + FRAME_BYTES + "\r\n".len();
    let mut server = Server::with_defaults().await;
    // A small window keeps the frames queued in hyper and in both kernels.
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut peer = soon(socket.connect(server.address)).await.unwrap();
    peer.write_all(REQUEST).await.unwrap();
    let watching = tokio::spawn(feed_and_watch(server.exchange().await, FRAMES, FRAME_BYTES));
    let read = read_through(&mut peer, LAST_CHUNK).await;
    let acked = soon(watching).await.unwrap();

    let head = read.len() - FRAMES * CHUNK_BYTES - "0\r\n\r\n".len();
    for (index, bytes) in acked.iter().enumerate() {
        assert!(*bytes >= (head + (index + 1) * CHUNK_BYTES) as u64, "frame {index}: {bytes}");
    }
    assert!(acked[0] < read.len() as u64 / 2, "the first mark must not wait for the last");
    assert_eq!(acked.last(), Some(&(read.len() as u64)));
}
