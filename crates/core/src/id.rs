//! Identifiers: sessions, streams, events, calls, connections (design section 2).

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// SHA-256 of some bytes.
pub type Digest32 = [u8; 32];

/// Hashes bytes with SHA-256.
pub fn digest(bytes: &[u8]) -> Digest32 {
    Sha256::digest(bytes).into()
}

/// The first 8 hexadecimal characters of the SHA-256 of some bytes: what logs show of a secret.
pub fn tag(secret: &[u8]) -> String {
    hex(&digest(secret)[..4])
}

/// Bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    let halves = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xF]);
    halves.filter_map(|half| char::from_digit(half.into(), 16)).collect()
}

/// What `Mcp-Session-Id` carries (spec SES-1). It is a secret: `Debug` and `Display` show a tag.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SessionId(Arc<str>);

impl SessionId {
    /// Wraps an id that the gateway made from at least 128 random bits.
    pub fn new(id: impl Into<Arc<str>>) -> Self {
        Self(id.into())
    }

    /// The id as it stands in the header. Never log it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// 8 characters of its hash, for logs and pages.
    pub fn tag(&self) -> String {
        tag(self.0.as_bytes())
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionId({})", self.tag())
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.tag())
    }
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize,
            Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// The bare number.
            pub fn get(self) -> $inner {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// A stream inside its session; [`StreamId::STANDALONE`] is the session's GET stream.
    StreamId(u32)
}
number! {
    /// A position in a session's log. It only grows; 0 is a stream's origin, which no event
    /// carries.
    Seq(u64)
}
number! {
    /// A life of a session's log; ids of another life are not in this one (design section 2).
    Epoch(u32)
}
number! {
    /// A call in a session's ledger: the JSON-RPC id and progress token that upstream sees.
    CallId(u64)
}
number! {
    /// One HTTP request as the gateway numbers it: a POST or a GET that waits for its answer.
    ExchangeId(u64)
}
number! {
    /// One HTTP exchange that carries a stream. A newer one of the same stream fences it.
    ConnectionId(u64)
}

impl StreamId {
    /// The session's standalone stream (spec GET-1).
    pub const STANDALONE: Self = Self(0);
}

impl Seq {
    /// The position before a stream's first event.
    pub const ORIGIN: Self = Self(0);
}

/// An SSE event id, `<epoch>-<stream>-<seq>`: visible ASCII, opaque to clients, looked up only
/// inside the session that presents it (design section 2, spec RES-2 and RES-3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EventId {
    /// Life of the log.
    pub epoch: Epoch,
    /// Stream of the event.
    pub stream: StreamId,
    /// Position in the session's order.
    pub seq: Seq,
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}-{}-{}", self.epoch.0, self.stream, self.seq)
    }
}

/// The text is not an event id that Rejoin wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an event id of this gateway: send back the id exactly as it was received")]
pub struct EventIdError;

impl FromStr for EventId {
    type Err = EventIdError;

    /// Reads exactly the form that `Display` writes; leading zeros and signs are refused so that
    /// one event has one id.
    fn from_str(text: &str) -> Result<Self, EventIdError> {
        let mut parts = text.split('-');
        let (Some(epoch), Some(stream), Some(seq), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(EventIdError);
        };
        let id = Self {
            epoch: Epoch(u32::from_str_radix(epoch, 16).map_err(|_| EventIdError)?),
            stream: StreamId(stream.parse().map_err(|_| EventIdError)?),
            seq: Seq(seq.parse().map_err(|_| EventIdError)?),
        };
        if id.to_string() == text { Ok(id) } else { Err(EventIdError) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_id_reads_back_exactly() {
        let id = EventId { epoch: Epoch(0xa1), stream: StreamId(3), seq: Seq(142) };
        assert_eq!(id.to_string(), "000000a1-3-142");
        assert_eq!(id.to_string().parse(), Ok(id));
    }

    #[test]
    fn anything_but_the_exact_form_is_refused() {
        for text in ["", "1-3-142", "000000a1-3", "000000a1-03-142", "000000A1-3-142"] {
            assert_eq!(text.parse::<EventId>(), Err(EventIdError), "{text}");
        }
        for text in ["000000a1-3-142-1", "000000a1--3-142", "000000a1-3-+142", "x"] {
            assert_eq!(text.parse::<EventId>(), Err(EventIdError), "{text}");
        }
        let beyond = format!("000000a1-3-{}0", u64::MAX);
        assert_eq!(beyond.parse::<EventId>(), Err(EventIdError));
    }

    #[test]
    fn a_session_id_is_never_printed() {
        let id = SessionId::new("secret-session-id");
        assert!(!format!("{id:?} {id}").contains("secret"));
        assert_eq!(id.tag().len(), 8);
    }
}
