//! A TCP forwarder that cuts connections after so many bytes of the server, again and again.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};

use crate::raw::WireError;

/// How a connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Both sides are reset.
    Reset,
    /// The client's side is reset; the server's is closed properly.
    Finish,
    /// Half of the cuts are resets.
    Either,
    /// Nothing more is carried, and nothing is said: as if the path had died.
    Hang,
}

/// Forwards connections to one server and cuts each after a number of bytes that the seed decides.
/// It has a thread of its own.
#[derive(Debug)]
pub struct Cutter {
    address: SocketAddr,
    counts: Arc<Counts>,
    runtime: Option<Runtime>,
}

#[derive(Debug, Default)]
struct Counts {
    connections: AtomicU64,
    cuts: AtomicUsize,
    /// Cuts that are still to be made.
    left: AtomicUsize,
}

impl Cutter {
    /// Cuts connections to `target` after 1 to `bytes_max` bytes from the server, `cuts_max` of
    /// them.
    pub fn start(
        target: SocketAddr,
        seed: u64,
        bytes_max: u64,
        cuts_max: usize,
        cut: Cut,
    ) -> Result<Self, WireError> {
        let failed = |source| WireError::Socket { what: "listen", source };
        let listener = std::net::TcpListener::bind("127.0.0.1:0").map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let counts = Arc::new(Counts { left: AtomicUsize::new(cuts_max), ..Counts::default() });
        let counted = Arc::clone(&counts);
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(failed)?;
        runtime.spawn(async move {
            let listener = match TcpListener::from_std(listener) {
                Ok(listener) => listener,
                Err(error) => return eprintln!("the cutter cannot listen: {error}"),
            };
            while let Ok((client, _)) = listener.accept().await {
                let number = counted.connections.fetch_add(1, Ordering::AcqRel);
                let random = mixed(seed ^ mixed(number));
                let plan = Plan { bytes: random % bytes_max.max(1) + 1, cut, random };
                tokio::spawn(carry(client, target, plan, Arc::clone(&counted)));
            }
        });
        Ok(Self { address, counts, runtime: Some(runtime) })
    }

    /// Where clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections that were cut so far.
    pub fn cuts(&self) -> usize {
        self.counts.cuts.load(Ordering::Acquire)
    }
}

impl Drop for Cutter {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

struct Plan {
    bytes: u64,
    cut: Cut,
    random: u64,
}

/// A number that looks random (SplitMix64).
fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

async fn carry(mut client: TcpStream, target: SocketAddr, plan: Plan, counts: Arc<Counts>) {
    let Ok(mut server) = TcpStream::connect(target).await else { return };
    for stream in [&client, &server] {
        // Fails only for a socket that is closed already.
        let _closed = stream.set_nodelay(true).is_err();
    }
    let was_cut = forward(&mut client, &mut server, plan.bytes, &counts).await;
    if !was_cut {
        return;
    }
    if plan.cut == Cut::Hang {
        // Keeps both sockets.
        std::future::pending::<()>().await;
    }
    let resets_server = match plan.cut {
        Cut::Reset => true,
        Cut::Finish | Cut::Hang => false,
        Cut::Either => plan.random >> 32 & 1 == 0,
    };
    let mut reset = vec![&client];
    if resets_server {
        reset.push(&server);
    }
    for stream in reset {
        let _closed = SockRef::from(stream).set_linger(Some(Duration::ZERO)).is_err();
    }
}

/// Carries bytes both ways. Says whether the connection is to be cut.
async fn forward(
    client: &mut TcpStream,
    server: &mut TcpStream,
    mut left: u64,
    counts: &Counts,
) -> bool {
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let up = async {
        let _ended = tokio::io::copy(&mut from_client, &mut to_server).await.is_err();
        let _closed = to_server.shutdown().await.is_err();
    };
    let down = async {
        let mut bytes = vec![0; 16 * 1024];
        loop {
            let count = match from_server.read(&mut bytes).await {
                Ok(0) | Err(_) => return false,
                Ok(count) => count,
            };
            let carried = usize::try_from(left).unwrap_or(usize::MAX).min(count);
            let is_cut = carried as u64 == left
                && counts
                    .left
                    .fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1))
                    .is_ok();
            let carried = if is_cut { carried } else { count };
            if to_client.write_all(&bytes[..carried]).await.is_err() {
                return false;
            }
            if is_cut {
                counts.cuts.fetch_add(1, Ordering::AcqRel);
                return true;
            }
            left = left.saturating_sub(count as u64).max(1);
        }
    };
    tokio::pin!(up);
    tokio::select! {
        was_cut = down => was_cut,
        () = &mut up => false,
    }
}
