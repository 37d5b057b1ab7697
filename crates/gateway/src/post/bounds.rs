//! Parts of a message that are kept long after its body is gone, and so must be short.

use rejoin_core::limits::Limits;
use rejoin_core::message::{Incoming, Kind, Message};

/// Why a message was not taken. Nothing of it has had an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BoundError {
    /// A part that is kept with the call is too long.
    #[error(
        "the {part} of a request may have at most {bytes_max} bytes: send a shorter one, or raise \
         `--limit name_bytes_max=`"
    )]
    LongName {
        /// Which part.
        part: &'static str,
        /// The limit.
        bytes_max: usize,
    },
    /// A message that is kept with the session is too long.
    #[error(
        "this message may have at most {bytes_max} bytes, as it is kept with its session: send a \
         shorter one, or raise `--limit kept_message_bytes_max=`"
    )]
    LongKept {
        /// The limit.
        bytes_max: usize,
    },
}

/// Checks what outlives the body.
pub(super) fn check(incoming: &Incoming, limits: &Limits) -> Result<(), BoundError> {
    match incoming {
        Incoming::One(message) => check_one(message, limits),
        Incoming::Batch(messages) => {
            messages.iter().try_for_each(|message| check_one(message, limits))
        }
    }
}

fn check_one(message: &Message, limits: &Limits) -> Result<(), BoundError> {
    if message.kind() == Kind::Request {
        let bytes_max = limits.name_bytes_max;
        let parts = [
            ("id", message.id().map(<[u8]>::len)),
            ("method", message.method().map(str::len)),
            ("tool name", message.tool_name().map(str::len)),
            ("progress token", message.progress_token_raw().map(<[u8]>::len)),
        ];
        let is_long = |length: Option<usize>| length.is_some_and(|length| length > bytes_max);
        if let Some((part, _)) = parts.into_iter().find(|(_, length)| is_long(*length)) {
            return Err(BoundError::LongName { part, bytes_max });
        }
    }
    let bytes_max = limits.kept_message_bytes_max;
    if message.method().is_some_and(is_kept) && message.bytes().len() > bytes_max {
        return Err(BoundError::LongKept { bytes_max });
    }
    Ok(())
}

/// True if the message is sent again whenever the server is started again.
fn is_kept(method: &str) -> bool {
    matches!(
        method,
        "initialize"
            | "notifications/initialized"
            | "logging/setLevel"
            | "resources/subscribe"
            | "resources/unsubscribe"
    )
}
