//! What one connection can take, and what a reader that takes nothing costs.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use h2::client::Builder;
use http::Response;
use http_body::{Body, Frame};
use rejoin_core::limits::Limits;
use rejoin_gateway::listen::{self, ListenConfig};
use rejoin_testkit::deadline::{WAIT, until, within};
use rejoin_testkit::failure::{Failure, TestResult};
use serde_json::json;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::frames::{
    END_HEADERS, END_STREAM, GOAWAY, HEADERS, RST_STREAM, Raw, SETTINGS, WINDOW_UPDATE, frame,
    headers,
};
use crate::support::{Bench, Client};
use crate::tool::{call, flood};

/// Even of a client that has not read yet how many it may.
#[tokio::test]
async fn streams_beyond_the_cap_are_refused_and_never_looked_at() -> TestResult {
    let bench = Bench::start_with(true, |limits| limits.http2.streams_max = 3).await?;
    let socket = TcpStream::connect(bench.address).await?;
    let (mut requests, connection) = Builder::new().handshake::<_, Bytes>(socket).await?;
    let mut running = Vec::new();
    for _ in 0..5 {
        let request = http::Request::post(format!("http://{}/mcp", bench.address))
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .body(())?;
        running.push(requests.send_request(request, false)?);
    }
    // Only now anything is written.
    let connection = tokio::spawn(connection);
    for (response, _) in running.split_off(3) {
        let refused = within("a refusal", WAIT, response).await?.unwrap_err();
        assert_eq!(refused.reason(), Some(Reason::REFUSED_STREAM));
    }
    assert_eq!(requests.current_max_send_streams(), 3);
    for (response, mut body) in running {
        body.send_data(
            json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string().into(),
            true,
        )?;
        assert_eq!(within("an answer", WAIT, response).await??.status(), 400);
    }
    connection.abort();
    Ok(())
}

#[tokio::test]
async fn a_head_or_a_body_that_is_too_large_costs_its_own_stream_alone() -> TestResult {
    let bench = Bench::start_with(true, |limits| {
        limits.body_bytes_max = 64 * 1024;
        limits.http2.unread_bytes_max = 16 * 1024;
    })
    .await?;
    let mut client = Client::open(bench.address).await?;
    let mut running = client.call(&call(10, 1, 1)).await?;
    running.messages(1).await?;

    let large = client.request("GET").header("x-large", "x".repeat(40 * 1024)).body(())?;
    assert_eq!(client.send(large, None).await?.status, 431);
    let mut many = client.request("GET");
    for number in 0..100 {
        many = many.header(format!("x-{number}"), "1");
    }
    assert_eq!(client.send(many.body(())?, None).await?.status, 431);
    let long = call(20, 0, 0).with_meta("pad", "x".repeat(1024 * 1024).into());
    assert_eq!(client.call(&long).await?.status, 413);

    bench.tool.open_gate();
    running.complete(&call(10, 1, 1), 1, 2).await?;
    assert_eq!(bench.tool.runs(20), 0);
    Ok(())
}

#[tokio::test]
async fn requests_that_are_reset_at_once_end_the_connection() -> TestResult {
    let bench = Bench::start_with(true, |limits| limits.http2.early_resets_max = 5).await?;
    let request = headers(&[
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/mcp"),
        (":authority", "localhost"),
    ]);
    let cancel = u32::from(Reason::CANCEL).to_be_bytes();
    let mut frames = Vec::new();
    for stream in (1..30).step_by(2) {
        frames.extend(frame(HEADERS, END_HEADERS | END_STREAM, stream, &request));
        frames.extend(frame(RST_STREAM, 0, stream, &cancel));
    }
    let mut raw = Raw::open(bench.address).await?;
    raw.send(&frames).await?;
    let goaway = raw.until("GOAWAY", |frame| frame.kind == GOAWAY).await?;
    assert_eq!(goaway.number(4), u32::from(Reason::ENHANCE_YOUR_CALM));
    Ok(())
}

const FRAME: Bytes = Bytes::from_static(&[b'x'; 64 * 1024]);
const FRAMES: usize = 64;

/// A body of many frames, of which the listener takes as many as it likes.
struct Counted {
    taken: usize,
    in_all: Arc<AtomicUsize>,
}

impl Body for Counted {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.taken == FRAMES {
            return Poll::Ready(None);
        }
        self.taken += 1;
        self.in_all.fetch_add(1, Ordering::SeqCst);
        Poll::Ready(Some(Ok(Frame::data(FRAME))))
    }
}

/// A listener whose answers are bodies of many frames.
struct Flood {
    address: SocketAddr,
    taken: Arc<AtomicUsize>,
    stop: oneshot::Sender<()>,
    served: JoinHandle<usize>,
}

impl Flood {
    async fn start() -> Result<Self, Failure> {
        let (listener, address) = listen::bind("127.0.0.1:0".parse()?).await?;
        let taken = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&taken);
        let (stop, stopped) = oneshot::channel();
        let config = ListenConfig { limits: Limits::default(), http2: true };
        let served = tokio::spawn(async move {
            let answer = move |_| {
                let body = Counted { taken: 0, in_all: Arc::clone(&counted) };
                async move { Response::new(body) }
            };
            let stopped = async { stopped.await.unwrap_or(()) };
            listen::serve(listener, config, answer, stopped, Duration::from_millis(200)).await
        });
        Ok(Self { address, taken, stop, served })
    }

    fn taken(&self) -> usize {
        self.taken.load(Ordering::SeqCst)
    }

    /// Ends the listener; gives the number of connections that were cut.
    async fn end(self) -> Result<usize, Failure> {
        self.stop.send(()).unwrap();
        Ok(within("the end of the listener", WAIT, self.served).await??)
    }
}

/// Streams that nobody reads.
const STREAMS: usize = 50;

#[tokio::test]
async fn a_stream_without_window_costs_a_frame_holds_up_no_other_and_is_cut_at_the_end()
-> TestResult {
    const WINDOW: usize = 1_000;
    let flood = Flood::start().await?;
    let mut settings = Builder::new();
    settings.initial_window_size(WINDOW as u32).initial_connection_window_size(1 << 20);
    let mut client = Client::connect_as(flood.address, &settings).await?;
    let mut stalled = Vec::new();
    for _ in 0..STREAMS {
        let request = client.request("GET").body(())?;
        let mut answer = client.send(request, None).await?;
        let first = within("data", WAIT, answer.body.data()).await?.unwrap()?;
        assert_eq!(first.len(), WINDOW);
        stalled.push(answer);
    }
    client.ping().await?;
    let taken = flood.taken();
    assert!((STREAMS..=2 * STREAMS).contains(&taken), "{taken} frames for {STREAMS} streams");

    let mut one = stalled.pop().unwrap();
    one.body.flow_control().release_capacity(WINDOW)?;
    let mut bytes = WINDOW;
    while let Some(data) = one.data().await? {
        bytes += data.len();
    }
    assert_eq!(bytes, FRAMES * FRAME.len());
    assert!(flood.taken() <= 2 * STREAMS + FRAMES);
    assert_eq!(flood.end().await?, 1);
    Ok(())
}

/// The windows are the client's choice, and this one's do not bind.
#[tokio::test]
async fn a_client_that_reads_nothing_costs_two_frames_for_each_stream_whatever_its_window()
-> TestResult {
    /// What the kernels hold on the way, in frames: 16 MB.
    const ON_THE_WAY: usize = 256;
    const UNCHANGED: usize = 20;
    let flood = Flood::start().await?;
    let mut raw = Raw::open(flood.address).await?;
    // SETTINGS_INITIAL_WINDOW_SIZE, and the rest of the connection's window.
    let largest = (1_u32 << 31) - 1;
    let mut frames = frame(SETTINGS, 0, 0, &[&[0, 4][..], &largest.to_be_bytes()].concat());
    frames.extend(frame(WINDOW_UPDATE, 0, 0, &(largest - 65_535).to_be_bytes()));
    let request = headers(&[
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/"),
        (":authority", "localhost"),
    ]);
    for stream in 0..STREAMS as u32 {
        frames.extend(frame(HEADERS, END_HEADERS | END_STREAM, 2 * stream + 1, &request));
    }
    raw.send(&frames).await?;
    let mut looks = (0, 0);
    until("a standstill", WAIT, async || {
        let taken = flood.taken();
        looks = if looks.0 == taken { (taken, looks.1 + 1) } else { (taken, 0) };
        Ok::<_, Failure>((taken >= STREAMS && looks.1 == UNCHANGED).then_some(()))
    })
    .await?;
    let taken = flood.taken();
    assert!(taken <= 2 * STREAMS + ON_THE_WAY, "{taken} frames for {STREAMS} streams");
    assert_eq!(flood.end().await?, 1);
    Ok(())
}

#[tokio::test]
async fn a_stalled_stream_holds_up_no_other_and_loses_nothing() -> TestResult {
    let bench = Bench::start().await?;
    bench.tool.open_gate();
    let mut client = Client::open(bench.address).await?;
    let mut settings = Builder::new();
    settings.initial_window_size(1_000).initial_connection_window_size(1 << 20);
    let mut slow = Client::connect_as(bench.address, &settings).await?;
    slow.initialize().await?;
    let long = flood(10, 40, 50_000);
    let mut stalled = slow.call(&long).await?;
    let first = within("data", WAIT, stalled.body.data()).await?.unwrap()?;
    assert!(!first.is_empty());
    for id in 20..30 {
        let call = call(id, 1, 1);
        slow.call(&call).await?.complete(&call, 1, 2).await?;
    }
    bench.metric("rejoin_streams{state=\"live\"}", 1.0).await?;
    // The cursor is in the first event, which the window holds.
    let text = String::from_utf8_lossy(&first).into_owned();
    let cursor = text.lines().find_map(|line| line.strip_prefix("id: ")).unwrap().to_owned();
    let mut fast = slow.again(bench.address).await?;
    drop((slow, stalled));
    bench.owed(1.0).await?;
    fast.get(Some(&cursor)).await?.complete(&long, 1, 40).await?;
    assert_eq!(bench.tool.runs(10), 1);
    client.ping().await
}
