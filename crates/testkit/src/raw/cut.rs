//! The ways in which a connection goes away.

use std::time::Duration;

use socket2::{SockFilter, SockRef};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::connection::{Connection, READ_BYTES};
use super::error::WireError;
use crate::deadline::within;

/// A classic BPF instruction that drops a packet: `BPF_RET | BPF_K` with 0 bytes to keep.
const DROP_PACKET: SockFilter = SockFilter::new(0x06, 0, 0, 0);

impl Connection {
    /// Ends the connection with a reset, whatever is unread.
    pub fn cut_rst(self) -> Result<(), WireError> {
        SockRef::from(&self.stream)
            .set_linger(Some(Duration::ZERO))
            .map_err(|source| WireError::Socket { what: "SO_LINGER", source })
    }

    /// Says that nothing more will be sent (FIN) and keeps the connection for reading.
    pub async fn half_close(&mut self) -> Result<(), WireError> {
        let closed = self.stream.shutdown().await;
        closed.map_err(|source| WireError::Socket { what: "shutdown", source })
    }

    /// Ends the connection with a FIN and no reset: what is unread is read and thrown away first.
    pub async fn cut_fin(mut self) -> Result<(), WireError> {
        self.half_close().await?;
        let mut bytes = vec![0; READ_BYTES];
        loop {
            match within("the peer's FIN", self.wait, self.stream.read(&mut bytes)).await? {
                Ok(0) | Err(_) => return Ok(()),
                Ok(_) => {}
            }
        }
    }

    /// The path dies: from now on this kernel drops every packet that arrives for the connection,
    /// so nothing is acknowledged any more, and neither FIN nor reset leaves while it is kept.
    pub fn go_black(&self) -> Result<(), WireError> {
        drop_packets(&self.stream)
    }
}

/// Makes the kernel drop every packet that arrives for `stream`, before TCP sees it.
pub(crate) fn drop_packets(stream: &TcpStream) -> Result<(), WireError> {
    SockRef::from(stream)
        .attach_filter(&[DROP_PACKET])
        .map_err(|source| WireError::Socket { what: "SO_ATTACH_FILTER", source })
}
