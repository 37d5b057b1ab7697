//! What a person may want to know. No session id, token or payload is in it.
use std::fmt;

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// A session is open; whether the server is a Rejoin.
    Opened {
        /// It advertises the continuity protocol.
        continuity: bool,
    },
    /// The answer to a call broke off; it is asked for again.
    StreamLost {
        /// The call.
        call: CallName,
        /// When.
        again_ms: u64,
    },
    /// The stream of a call goes on.
    Resumed {
        /// The call.
        call: CallName,
    },
    /// Calls wait until an older answer has been delivered.
    Held {
        /// How many.
        calls: usize,
    },
    /// A call is sent again.
    SentAgain {
        /// The call.
        call: CallName,
        /// Why that is safe.
        because: Because,
    },
    /// Nothing can be sent to the server: it cannot be reached, or the credential cannot be had. It
    /// is tried again.
    Unreachable {
        /// Where: its URL without what may be secret in it.
        server: String,
        /// What was found.
        what: String,
        /// When.
        again_ms: u64,
    },
    /// A call ended with an error of this client.
    Failed {
        /// The call.
        call: CallName,
        /// What happened.
        what: String,
        /// Whether the tool may have run.
        may_have_run: bool,
    },
    /// A server refused a call, and said why.
    Refused {
        /// The call.
        call: CallName,
        /// The reason's name.
        reason: String,
    },
    /// The server does not know the session any more.
    SessionLost,
    /// It was opened anew.
    SessionReopened,
    /// It cannot be opened anew.
    NotReopened {
        /// What was found.
        what: String,
    },
    /// The server has no stream for what belongs to no call, so that none of that can come.
    NoStandaloneStream {
        /// The status it answered with.
        status: u16,
    },
    /// The server cannot say what follows the last of its own messages that came, so that some may
    /// be lost: the stream for them is begun anew.
    StandaloneStreamCut {
        /// The status it answered with; 200: with a stream that ended empty.
        status: u16,
    },
    /// What came cannot be used and was dropped.
    Dropped {
        /// What, and why.
        what: String,
    },
}

/// A call, as its host knows it. Nothing of its arguments is in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallName {
    /// The host's request id as JSON text, shortened.
    pub id: String,
    /// The name of the tool, or the method where none is called, shortened.
    pub what: String,
}

/// Characters of an id or a name that are shown.
const NAME_CHARACTERS_MAX: usize = 64;

impl CallName {
    pub(super) fn new(id: &[u8], what: &str) -> Self {
        Self { id: shown(&String::from_utf8_lossy(id)), what: shown(what) }
    }
}

/// A text that a terminal only shows.
pub(super) fn shown(text: &str) -> String {
    let printable = |character: char| if character.is_control() { '?' } else { character };
    let mut shown: String = text.chars().take(NAME_CHARACTERS_MAX).map(printable).collect();
    if text.chars().nth(NAME_CHARACTERS_MAX).is_some() {
        shown.push_str("...");
    }
    shown
}

impl fmt::Display for CallName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call {} ({})", self.id, self.what)
    }
}

/// Why a call may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    /// Not one byte of it was sent before.
    Unsent,
    /// The server, or the protocol, says that it may run twice.
    Repeatable,
    /// It carries a token that the server honours.
    Token,
    /// The server said that it did not run, and that it may come again.
    Refusal,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opened { continuity: true } => {
                write!(f, "connected; the server keeps answers for this client")
            }
            Self::Opened { continuity: false } => write!(f, "connected"),
            Self::StreamLost { call, again_ms } => {
                write!(f, "the answer to {call} broke off; resumed in {again_ms} ms")
            }
            Self::Resumed { call } => write!(f, "the answer to {call} goes on"),
            Self::Held { calls } => write!(f, "{calls} calls wait for an older answer"),
            Self::SentAgain { call, because } => {
                write!(f, "{call} is sent again: {because}")
            }
            Self::Unreachable { server, what, again_ms } => {
                // It may be the credential that cannot be had.
                write!(f, "nothing can be sent to {server} ({what}); again in {again_ms} ms")
            }
            Self::Failed { call, what, may_have_run } => {
                let ran = if *may_have_run { "it may have run" } else { "it did not run" };
                write!(f, "{call} failed: {what}; {ran}")
            }
            Self::Refused { call, reason } => write!(f, "{call} was refused: {reason}"),
            Self::SessionLost => write!(f, "the server does not know the session any more"),
            Self::SessionReopened => write!(f, "a new session is open"),
            Self::NotReopened { what } => write!(f, "no new session can be opened: {what}"),
            Self::NoStandaloneStream { status } => write!(
                f,
                "the server has no stream for its own messages (status {status}): none can come \
                 outside of calls"
            ),
            Self::StandaloneStreamCut { status } => write!(
                f,
                "the server does not know where its own messages stopped (status {status}); they \
                 go on, and some may be lost"
            ),
            Self::Dropped { what } => write!(f, "dropped: {what}"),
        }
    }
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unsent => "nothing of it had been sent",
            Self::Repeatable => "it may run twice without harm",
            Self::Token => "its token keeps it from running twice",
            Self::Refusal => "the server says that it did not run and may come again",
        })
    }
}
