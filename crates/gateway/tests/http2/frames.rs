//! HTTP/2 by hand (RFC 9113 section 4, RFC 7541), for what no library does.

use std::net::SocketAddr;

use rejoin_testkit::deadline::{WAIT, within};
use rejoin_testkit::failure::Failure;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// A frame as it is written.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length.to_vec();
    frame.extend_from_slice(&[kind, flags]);
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// A header block without any compression.
pub(crate) fn headers(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            // More would take a second byte.
            assert!(text.len() < 127, "{text}");
            block.push(u8::try_from(text.len()).unwrap());
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

/// A frame as it was read.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    /// The number at this place of the payload.
    pub(crate) fn number(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.payload[at..at + 4].try_into().unwrap())
    }
}

/// A connection that has said that it speaks HTTP/2.
pub(crate) struct Raw(pub(crate) TcpStream);

impl Raw {
    pub(crate) async fn open(address: SocketAddr) -> Result<Self, Failure> {
        let mut socket = TcpStream::connect(address).await?;
        socket.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()).await?;
        Ok(Self(socket))
    }

    pub(crate) async fn send(&mut self, frames: &[u8]) -> Result<(), Failure> {
        Ok(self.0.write_all(frames).await?)
    }

    /// Passes over frames up to the first that is wanted.
    pub(crate) async fn until(
        &mut self,
        what: &str,
        mut wanted: impl FnMut(&Frame) -> bool,
    ) -> Result<Frame, Failure> {
        loop {
            let frame = within(what, WAIT, self.frame()).await??;
            if wanted(&frame) {
                return Ok(frame);
            }
        }
    }

    async fn frame(&mut self) -> Result<Frame, Failure> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).await?;
        let [a, b, c, kind, ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.0.read_exact(&mut payload).await?;
        Ok(Frame { kind, payload })
    }
}
