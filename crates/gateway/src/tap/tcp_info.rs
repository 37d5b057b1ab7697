//! The count of acknowledged bytes in the kernel's `TCP_INFO` (tcp(7)), read without unsafe code.
//!
//! The struct of the libc crate stops before the field, so its layout is declared here, after
//! `struct tcp_info` of linux/tcp.h (Linux 4.1 and later).

use nix::{getsockopt_impl, sockopt_impl};
use tokio::net::TcpStream;

/// Offset of `tcpi_bytes_acked` in `struct tcp_info`.
const BYTES_ACKED_OFFSET: usize = 120;

/// The head of `struct tcp_info`, through the field read here.
#[expect(unreachable_pub, reason = "the option type that nix declares is public and names it")]
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Head {
    unused: [u8; BYTES_ACKED_OFFSET],
    bytes_acked: u64,
}

sockopt_impl!(
    /// Reads the head of `struct tcp_info`.
    TcpInfo,
    GetOnly,
    libc::IPPROTO_TCP,
    libc::TCP_INFO,
    Head
);

/// Bytes sent on `stream` that the peer's kernel has acknowledged: 0 when the connection was
/// accepted, then equal to the bytes written, plus one for an acknowledged FIN.
pub(super) fn acked_bytes(stream: &TcpStream) -> Option<u64> {
    nix::sys::socket::getsockopt(stream, TcpInfo).ok().map(|head| head.bytes_acked)
}
