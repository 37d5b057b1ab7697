//! Which protocol a connection begins with.
//!
//! Without TLS nothing is agreed beforehand: a client that knows that the server speaks HTTP/2
//! begins with a preface that is no request of HTTP/1.1 (RFC 9113 sections 3.3 and 3.4).

use std::io;

use bytes::Bytes;
use tokio::io::AsyncReadExt as _;

use super::Tap;

/// What every HTTP/2 connection begins with.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1, or nothing that is known.
    Http1,
    /// HTTP/2, by prior knowledge.
    Http2,
}

impl Tap {
    /// Reads as much as it takes to tell the protocol; what was read is read again by whoever reads
    /// next. To be called once, before anything else is read.
    ///
    /// # Errors
    /// What the socket says.
    pub async fn protocol(&mut self) -> io::Result<Protocol> {
        let mut seen = [0; PREFACE.len()];
        let mut length = 0;
        while length < PREFACE.len() && seen[..length] == PREFACE[..length] {
            match self.read(&mut seen[length..]).await? {
                0 => break,
                bytes => length += bytes,
            }
        }
        self.unread(Bytes::copy_from_slice(&seen[..length]));
        Ok(if seen == *PREFACE { Protocol::Http2 } else { Protocol::Http1 })
    }
}
