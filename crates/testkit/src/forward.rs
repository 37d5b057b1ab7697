//! A TCP forwarder that stands for the network between a client and a server. It can count the
//! tool calls on their way to a server that does not count them itself.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use crate::call_reader::{CallReader, Counter};
use crate::deadline::{DeadlineError, WAIT, until};
use crate::raw::{WireError, drop_packets};

/// Bytes carried at once.
const CARRY_BYTES: usize = 16 * 1024;

/// What the network does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weather {
    /// Carries bytes, each piece after a delay.
    Open { delay: Duration },
    /// Carries nothing, acknowledges nothing, says nothing.
    Black,
    /// Every connection was reset.
    Cut,
}

/// How many connections there are.
#[derive(Debug, Default)]
struct Carried {
    open: AtomicUsize,
    black: AtomicUsize,
}

/// Forwards connections to one server until it is dropped. It has a thread of its own, so that a
/// test that keeps its thread busy does not hold up what runs through it.
#[derive(Debug)]
pub struct Forward {
    address: SocketAddr,
    weather: watch::Sender<Weather>,
    carried: Arc<Carried>,
    runtime: Option<Runtime>,
}

impl Forward {
    /// Starts to forward connections to `target`.
    pub fn start(target: SocketAddr) -> Result<Self, WireError> {
        Self::start_with(target, None)
    }

    /// As [`Forward::start`]; every tool call that a client posts to `target` is counted before
    /// its last byte is carried, so before it can run.
    pub fn start_counting(target: SocketAddr, counter: Counter) -> Result<Self, WireError> {
        Self::start_with(target, Some(counter))
    }

    fn start_with(target: SocketAddr, counter: Option<Counter>) -> Result<Self, WireError> {
        let failed = |source| WireError::Socket { what: "listen", source };
        let listener = std::net::TcpListener::bind("127.0.0.1:0").map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (weather, watcher) = watch::channel(Weather::Open { delay: Duration::ZERO });
        let carried = Arc::new(Carried::default());
        let counted = Arc::clone(&carried);
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(failed)?;
        runtime.spawn(async move {
            match TcpListener::from_std(listener) {
                Ok(listener) => accept(listener, target, watcher, counter, counted).await,
                Err(error) => eprintln!("the forwarder cannot listen: {error}"),
            }
        });
        Ok(Self { address, weather, carried, runtime: Some(runtime) })
    }

    /// Where clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Carries each piece of bytes this much later from now on.
    pub fn delay(&self, delay: Duration) {
        self.weather.send_replace(Weather::Open { delay });
    }

    /// The path dies: no byte is carried and none acknowledged, in both directions; neither FIN
    /// nor reset is sent. Lasts until the forwarder is dropped. When this returns it is so for
    /// every connection.
    pub async fn go_black(&self) -> Result<(), DeadlineError> {
        self.weather.send_replace(Weather::Black);
        until("every connection to go black", WAIT, async || {
            let open = self.carried.open.load(Ordering::Acquire);
            Ok((self.carried.black.load(Ordering::Acquire) == open).then_some(()))
        })
        .await
    }

    /// Resets every connection on both sides, and every later one.
    pub fn cut_rst(&self) {
        self.weather.send_replace(Weather::Cut);
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Waiting is not allowed where a test's own runtime is.
            runtime.shutdown_background();
        }
    }
}

async fn accept(
    listener: TcpListener,
    target: SocketAddr,
    weather: watch::Receiver<Weather>,
    counter: Option<Counter>,
    carried: Arc<Carried>,
) {
    while let Ok((client, _)) = listener.accept().await {
        let calls = counter.clone().map(CallReader::new);
        let (weather, carried) = (weather.clone(), Arc::clone(&carried));
        carried.open.fetch_add(1, Ordering::AcqRel);
        tokio::spawn(async move {
            let went_black = carry(client, target, weather, calls, &carried.black).await;
            carried.black.fetch_sub(usize::from(went_black), Ordering::AcqRel);
            carried.open.fetch_sub(1, Ordering::AcqRel);
        });
    }
}

/// Carries one connection both ways until both ends closed it, one was reset, or the weather turns.
/// Says whether it counted itself among the `black` ones.
async fn carry(
    mut client: TcpStream,
    target: SocketAddr,
    mut weather: watch::Receiver<Weather>,
    calls: Option<CallReader>,
    black: &AtomicUsize,
) -> bool {
    let Ok(mut server) = TcpStream::connect(target).await else {
        return false;
    };
    for stream in [&client, &server] {
        // Fails only for a socket that is closed already.
        let _closed = stream.set_nodelay(true).is_err();
    }
    let delays = weather.clone();
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let both_ways = async {
        tokio::try_join!(
            pipe(from_client, to_server, &delays, calls),
            pipe(from_server, to_client, &delays, None),
        )
    };
    let reset = tokio::select! {
        carried = both_ways => carried.is_err(),
        turned = weather.wait_for(|now| !matches!(now, Weather::Open { .. })) => turned.is_ok(),
    };
    let now = *weather.borrow();
    if now == Weather::Black {
        for stream in [&client, &server] {
            if let Err(error) = drop_packets(stream) {
                eprintln!("a path cannot go black: {error}");
                return false;
            }
        }
        black.fetch_add(1, Ordering::AcqRel);
        // Keeps both sockets, in silence, until the forwarder is dropped or told to cut.
        while weather.changed().await.is_ok() && *weather.borrow() == Weather::Black {}
    }
    if reset && now != Weather::Black || *weather.borrow() == Weather::Cut {
        for stream in [&client, &server] {
            // Fails only for a socket that is closed already.
            let _closed = SockRef::from(stream).set_linger(Some(Duration::ZERO)).is_err();
        }
    }
    now == Weather::Black
}

async fn pipe(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    weather: &watch::Receiver<Weather>,
    mut calls: Option<CallReader>,
) -> std::io::Result<()> {
    let mut bytes = vec![0; CARRY_BYTES];
    loop {
        let count = from.read(&mut bytes).await?;
        let now = *weather.borrow();
        if let Weather::Open { delay } = now
            && !delay.is_zero()
        {
            tokio::time::sleep(delay).await;
        }
        if count == 0 {
            return to.shutdown().await;
        }
        if let Some(calls) = &mut calls
            && let Err(error) = calls.push(&bytes[..count])
        {
            eprintln!("calls on their way to the server cannot be counted: {error}");
            return Err(std::io::Error::other(error));
        }
        to.write_all(&bytes[..count]).await?;
    }
}
