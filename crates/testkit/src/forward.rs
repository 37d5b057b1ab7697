//! A TCP forwarder that stands for the network between a client and a server.

use std::net::SocketAddr;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

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

/// Forwards connections to one server until it is dropped.
#[derive(Debug)]
pub struct Forward {
    address: SocketAddr,
    weather: watch::Sender<Weather>,
    accepting: JoinHandle<()>,
}

impl Forward {
    /// Starts to forward connections to `target`; must run inside a runtime.
    pub async fn start(target: SocketAddr) -> Result<Self, WireError> {
        let failed = |source| WireError::Socket { what: "listen", source };
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (weather, watcher) = watch::channel(Weather::Open { delay: Duration::ZERO });
        let accepting = tokio::spawn(accept(listener, target, watcher));
        Ok(Self { address, weather, accepting })
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
    /// nor reset is sent. Lasts until the forwarder is dropped.
    pub fn go_black(&self) {
        self.weather.send_replace(Weather::Black);
    }

    /// Resets every connection on both sides, and every later one.
    pub fn cut_rst(&self) {
        self.weather.send_replace(Weather::Cut);
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, target: SocketAddr, weather: watch::Receiver<Weather>) {
    while let Ok((client, _)) = listener.accept().await {
        tokio::spawn(carry(client, target, weather.clone()));
    }
}

/// Carries one connection both ways until both ends closed it, one was reset, or the weather turns.
async fn carry(mut client: TcpStream, target: SocketAddr, mut weather: watch::Receiver<Weather>) {
    let Ok(mut server) = TcpStream::connect(target).await else {
        return;
    };
    let delays = weather.clone();
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let both_ways = async {
        tokio::try_join!(
            pipe(from_client, to_server, &delays),
            pipe(from_server, to_client, &delays),
        )
    };
    let reset = tokio::select! {
        carried = both_ways => carried.is_err(),
        turned = weather.wait_for(|now| !matches!(now, Weather::Open { .. })) => turned.is_ok(),
    };
    let now = *weather.borrow();
    if now == Weather::Black {
        for stream in [&client, &server] {
            if drop_packets(stream).is_err() {
                return;
            }
        }
        // Keeps both sockets, in silence, until the forwarder is dropped or told to cut.
        while weather.changed().await.is_ok() && *weather.borrow() == Weather::Black {}
    }
    if reset && now != Weather::Black || *weather.borrow() == Weather::Cut {
        for stream in [&client, &server] {
            // Fails only for a socket that is closed already.
            let _closed = SockRef::from(stream).set_linger(Some(Duration::ZERO)).is_err();
        }
    }
}

async fn pipe(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    weather: &watch::Receiver<Weather>,
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
        to.write_all(&bytes[..count]).await?;
    }
}
