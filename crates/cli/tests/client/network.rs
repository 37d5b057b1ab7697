//! A network that loses the answers of tool calls before they begin, and notes what is said.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rejoin_testkit::deadline::{WAIT, until};
use rejoin_testkit::failure::Failure;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::runtime::{Builder, Runtime};

/// What the body of a tool call has in it.
const CALL: &str = "\"tools/call\"";

/// Forwards connections to one server. It has a thread of its own.
pub(crate) struct Network {
    heard: Arc<Heard>,
    runtime: Option<Runtime>,
    target: SocketAddr,
}

#[derive(Default)]
struct Heard {
    /// Answers to tool calls that are still to be lost.
    left: AtomicUsize,
    /// What clients said, connection by connection as far as it was read.
    said: Mutex<String>,
}

impl Network {
    /// A network that loses the first `lost` answers to tool calls, whole.
    pub(crate) fn start(target: SocketAddr, lost: usize) -> Result<Self, Failure> {
        let heard = Arc::new(Heard { left: AtomicUsize::new(lost), ..Heard::default() });
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        Ok(Self { heard, runtime: Some(runtime), target })
    }

    /// Where clients can connect to.
    pub(crate) async fn tcp(&self) -> Result<SocketAddr, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let listener = listener.into_std()?;
        let address = listener.local_addr()?;
        let (heard, target) = (Arc::clone(&self.heard), self.target);
        self.spawn(async move {
            let Ok(listener) = TcpListener::from_std(listener) else { return };
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, target, Arc::clone(&heard)));
            }
        });
        Ok(address)
    }

    /// Clients can connect to this socket.
    pub(crate) fn unix(&self, path: &Path) -> Result<(), Failure> {
        let listener = std::os::unix::net::UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        let (heard, target) = (Arc::clone(&self.heard), self.target);
        self.spawn(async move {
            let Ok(listener) = UnixListener::from_std(listener) else { return };
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, target, Arc::clone(&heard)));
            }
        });
        Ok(())
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.runtime {
            runtime.spawn(task);
        }
    }

    /// Answers that it has not lost yet.
    pub(crate) fn left(&self) -> usize {
        self.heard.left.load(Ordering::Acquire)
    }

    /// Whether a client has said this.
    pub(crate) fn heard(&self, text: &str) -> bool {
        self.heard.said.lock().unwrap_or_else(PoisonError::into_inner).contains(text)
    }

    /// Waits until a client has said this.
    pub(crate) async fn hears(&self, text: &str) -> Result<(), Failure> {
        until(&format!("a client to say {text:?}"), WAIT, async || {
            Ok::<_, Failure>(self.heard(text).then_some(()))
        })
        .await
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn carry(client: impl AsyncRead + AsyncWrite, target: SocketAddr, heard: Arc<Heard>) {
    let Ok(server) = TcpStream::connect(target).await else { return };
    let (mut from_client, mut to_client) = split(client);
    let (mut from_server, mut to_server) = split(server);
    let calls = AtomicUsize::new(0);
    let up = async {
        let (mut said, mut bytes) = (String::new(), vec![0; 16 * 1024]);
        while let Ok(count @ 1..) = from_client.read(&mut bytes).await {
            let text = String::from_utf8_lossy(&bytes[..count]);
            said.push_str(&text);
            heard.said.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
            calls.store(said.matches(CALL).count(), Ordering::Release);
            if to_server.write_all(&bytes[..count]).await.is_err() {
                return;
            }
        }
        let _closed = to_server.shutdown().await.is_err();
    };
    let down = async {
        let (mut bytes, mut begun) = (vec![0; 16 * 1024], 0);
        while let Ok(count @ 1..) = from_server.read(&mut bytes).await {
            let asked = calls.load(Ordering::Acquire);
            let begins = asked > std::mem::replace(&mut begun, asked);
            let take = |left: usize| left.checked_sub(1);
            let (set, get) = (Ordering::AcqRel, Ordering::Acquire);
            if begins && heard.left.fetch_update(set, get, take).is_ok() {
                return;
            }
            if to_client.write_all(&bytes[..count]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = up => {}
        () = down => {}
    }
}
