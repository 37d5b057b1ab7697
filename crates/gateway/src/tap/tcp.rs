//! TCP sockets as transports.

use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{Interest, ReadBuf};
use tokio::net::TcpStream;

use super::tcp_info;
use super::transport::{Transport, TransportOptions};

#[async_trait]
impl Transport for TcpStream {
    /// Small events leave at once (`TCP_NODELAY`), a path that went dead is noticed with bytes in
    /// flight (`TCP_USER_TIMEOUT`) and without (keep-alive probes).
    fn prepare(&self, options: &TransportOptions) -> io::Result<()> {
        self.set_nodelay(true)?;
        let socket = SockRef::from(self);
        socket.set_tcp_user_timeout(Some(options.user_timeout))?;
        let keepalive = TcpKeepalive::new()
            .with_time(options.keepalive_time)
            .with_interval(options.keepalive_interval)
            .with_retries(options.keepalive_probes);
        socket.set_tcp_keepalive(&keepalive)
    }

    fn poll_read_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Self::poll_read_ready(self, context)
    }

    fn try_read(&self, mut buffer: &mut ReadBuf<'_>) -> io::Result<usize> {
        self.try_read_buf(&mut buffer)
    }

    fn poll_write_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Self::poll_write_ready(self, context)
    }

    fn try_write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match parts {
            [part] => Self::try_write(self, part),
            parts => self.try_write_vectored(parts),
        }
    }

    fn shutdown_write(&self) -> io::Result<()> {
        SockRef::from(self).shutdown(Shutdown::Write)
    }

    fn acked_bytes(&self) -> Option<u64> {
        tcp_info::acked_bytes(self)
    }

    fn take_error(&self) -> io::Result<Option<io::Error>> {
        Self::take_error(self)
    }

    async fn hung_up(&self) -> io::Result<()> {
        // Nothing asks for urgent data, so this waits for the end of the peer's side alone.
        self.ready(Interest::PRIORITY).await.map(drop)
    }

    fn reset_on_close(&self) {
        // Without the option the kernel keeps the bytes for a while: then they go a little later.
        let _at_once = SockRef::from(self).set_linger(Some(Duration::ZERO)).is_ok();
    }
}
