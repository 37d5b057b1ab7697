//! A call of the host, and what is known of it.
use bytes::Bytes;
use rejoin_core::backoff::Backoff;
use rejoin_core::message::{IdKey, Message};
use rejoin_core::revision::Revision;
use rejoin_core::token::{ATTEMPT_META, TOKEN_META};

use super::StreamKey;
use super::notice::CallName;
use super::recorded::Recorded;
use super::track::Track;
use super::wire::ExchangeId;
use crate::limits::ClientLimits;

/// Key of the revision that a request without a session names (spec 3.1).
pub(super) const REVISION_META: &str = "io.modelcontextprotocol/protocolVersion";

/// Number of a call in this process.
pub(super) type CallKey = u64;

/// The rules by which a request is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Era {
    /// In the session, if the server keeps any: a disconnect is no cancel.
    Session,
    /// On its own, of this revision: a disconnect is a cancel, and nothing can be resumed.
    Alone(String),
}

impl Era {
    pub(super) fn of(message: &Message) -> Self {
        match message.meta_str(REVISION_META) {
            Some(revision) if Revision::new(&*revision).is_stateless() => {
                Self::Alone(revision.into_owned())
            }
            _ => Self::Session,
        }
    }
}

/// What a call waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// To be sent; it is in the queue.
    Queued,
    /// The head of the answer to its POST.
    Posted(ExchangeId),
    /// The rest of a body that is no stream.
    Whole(ExchangeId, u16),
    /// The rest of its stream.
    Reading(ExchangeId),
    /// The time to resume its stream.
    Waiting { at_ms: u64 },
    /// The head of the answer to its GET.
    Asking(ExchangeId),
    /// Whether the session still lives, after a GET that was answered 404.
    Knocking(ExchangeId),
    /// An answer on the standalone stream; then it ends.
    Elsewhere { until_ms: u64 },
    /// A new session. `ran`: the call may have run in the old one.
    Orphaned { ran: bool },
}

impl State {
    /// The exchange that works for the call.
    pub(super) fn exchange(&self) -> Option<ExchangeId> {
        match self {
            Self::Posted(id)
            | Self::Whole(id, _)
            | Self::Reading(id)
            | Self::Asking(id)
            | Self::Knocking(id) => Some(*id),
            _ => None,
        }
    }
}

/// A call of the host that has not ended.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) message: Message,
    /// The host's id, as written.
    pub(super) host_id: Bytes,
    pub(super) host_key: IdKey,
    /// The host's progress token, as written.
    pub(super) host_progress: Option<Bytes>,
    pub(super) era: Era,
    pub(super) state: State,
    /// Its stream.
    pub(super) track: Track,
    /// Ids under which the server got it, oldest first.
    pub(super) wires: Vec<u64>,
    /// The first of these whose progress is the host's to see.
    pub(super) progress_from: usize,
    /// The stream that brought the last progress that the host was told, and the most it was told.
    pub(super) told_progress: Option<(StreamKey, f64)>,
    /// Id of the event that brought the last of it, if that came on a stream of the call itself.
    pub(super) read_to: Option<String>,
    /// Its answer, without what the host still lacks before it.
    pub(super) recorded: Option<Recorded>,
    /// Its dedup token as JSON text, if it was given one.
    pub(super) token: Option<String>,
    /// Attempts that the host made itself, with a token of its own.
    pub(super) host_attempts: u64,
    /// The ledger epoch at attempt 1, while its session lives.
    pub(super) epoch: Option<u64>,
    /// POSTs of it that may have arrived.
    pub(super) attempts: u64,
    /// A POST of it may have arrived at a server that did not say it was not run.
    pub(super) may_have_run: bool,
    /// POSTs since the last sign of it.
    pub(super) resends: u32,
    /// Waits between POSTs.
    pub(super) backoff: Backoff,
    /// Not to be sent before.
    pub(super) not_before_ms: u64,
    /// Since when the server could not be reached for it.
    pub(super) unreachable_ms: Option<u64>,
    /// Times in a row that there was no credential to send it with.
    pub(super) uncredited: u32,
    /// Where its stream stood when an event came that was too large to be read, and for what.
    pub(super) unread_behind: Option<(Option<String>, &'static str)>,
    /// When what may be its answer came, that cannot be read, and why; nothing came on its stream
    /// since.
    pub(super) unreadable: Option<(u64, String)>,
    /// When something of it was heard last.
    pub(super) heard_ms: u64,
    /// The last refusal, to tell if nothing better comes.
    pub(super) refusal: Option<Message>,
    /// The host gave it up then: nothing of it is delivered any more.
    pub(super) cancelled_ms: Option<u64>,
    /// Its cancel, until that cannot have overtaken it.
    pub(super) cancel: Option<Message>,
    /// The server refused it, and does not say whether it knows the session.
    pub(super) doubt: Option<Doubt>,
    /// Sessions that were lost under it.
    pub(super) losses: u32,
    /// It is this client's, and not the host's to hear of.
    pub(super) is_own: bool,
}

/// A refusal that may mean that the session is gone.
#[derive(Debug)]
pub(super) struct Doubt {
    /// What the server said.
    pub(super) said: Option<Message>,
    /// It speaks of the session.
    pub(super) names_session: bool,
}

impl Call {
    pub(super) fn new(
        message: Message,
        id: &[u8],
        host_key: IdKey,
        now_ms: u64,
        limits: &ClientLimits,
    ) -> Self {
        Self {
            host_id: Bytes::copy_from_slice(id),
            host_key,
            host_progress: message.progress_token_raw().map(Bytes::copy_from_slice),
            era: Era::of(&message),
            state: State::Queued,
            track: Track::new(limits),
            wires: Vec::new(),
            progress_from: 0,
            told_progress: None,
            read_to: None,
            recorded: None,
            token: message_token(&message),
            host_attempts: host_attempts(&message),
            epoch: None,
            attempts: 0,
            may_have_run: false,
            resends: 0,
            backoff: Backoff::new(limits.backoff_ms, limits.backoff_max_ms),
            not_before_ms: now_ms,
            unreachable_ms: None,
            uncredited: 0,
            unread_behind: None,
            unreadable: None,
            heard_ms: now_ms,
            refusal: None,
            cancelled_ms: None,
            cancel: None,
            doubt: None,
            losses: 0,
            is_own: false,
            message,
        }
    }

    pub(super) fn method(&self) -> &str {
        self.message.method().unwrap_or_default()
    }

    /// The call as a person may know it.
    pub(super) fn name(&self) -> CallName {
        let tool = self.message.tool_name();
        CallName::new(&self.host_id, tool.unwrap_or_else(|| self.method()))
    }

    pub(super) fn is_initialize(&self) -> bool {
        self.method() == "initialize"
    }

    /// It runs until the server ends it, and what comes on it names its id, as the host gave it
    /// (revision 2026-07-28, `subscriptions/listen`).
    pub(super) fn is_subscription(&self) -> bool {
        self.era != Era::Session && self.method() == "subscriptions/listen"
    }

    /// What may be what unblocks a call waits for no other (design section 5).
    pub(super) fn is_ungated(&self) -> bool {
        self.era != Era::Session
            || matches!(
                self.method(),
                "ping"
                    | "initialize"
                    | "tasks/get"
                    | "tasks/list"
                    | "tasks/result"
                    | "tasks/cancel"
            )
    }

    /// Whether its answer is on its way over a connection that broke, or waits to be fetched: what
    /// the server says next must not overtake it.
    pub(super) fn holds_others(&self) -> bool {
        let is_lost = match self.state {
            // The server was silent: nothing is known to be on its way.
            State::Waiting { .. } if self.track.was_silent() => false,
            State::Waiting { .. } | State::Asking(_) | State::Knocking(_) => true,
            State::Reading(_) => self.track.replay.is_some(),
            _ => false,
        };
        is_lost && self.cancelled_ms.is_none() && self.era == Era::Session
    }

    /// When it holds no others any more, though it is still away: a server may ask to wait for as
    /// long as it likes, and the others wait for none of it.
    pub(super) fn holds_until_ms(&self, limits: &ClientLimits) -> u64 {
        self.track.away_ms().map_or(u64::MAX, |at_ms| at_ms.saturating_add(limits.hold_max_ms))
    }

    /// Whether the host is told of progress that came on `stream`, the call's own or the standalone
    /// one. What comes on the same stream as the last is passed on as it is, even if it does not
    /// increase as the spec demands: to a host it is a sign of life, and to withhold it can let the
    /// call time out, while a number that is too small only looks odd. On the other stream only
    /// what is larger than all before is new: some servers replay on one what came on both.
    pub(super) fn takes_progress(&mut self, stream: StreamKey, progress: Option<f64>) -> bool {
        let told = self.told_progress.map_or(f64::NEG_INFINITY, |(_, told)| told);
        let is_same = self.told_progress.is_none_or(|(source, _)| source == stream);
        let takes = is_same || progress.is_some_and(|progress| progress > told);
        if takes {
            self.told_progress = Some((stream, progress.map_or(told, |new| new.max(told))));
        }
        takes
    }

    /// Its stream was one of a session that is gone.
    pub(super) fn forget_stream(&mut self) {
        self.track.cursor = None;
        self.track.replay = None;
        self.read_to = None;
    }

    /// An answer on the standalone stream is waited for no longer than this.
    pub(super) fn expect_until(&mut self, max_ms: u64) {
        if let State::Elsewhere { until_ms } = &mut self.state {
            *until_ms = max_ms.min(*until_ms);
        }
    }

    /// Whether a POST of it may have arrived.
    pub(super) fn may_have_arrived(&self) -> bool {
        self.attempts > 0
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled_ms.is_some()
    }
}

/// The dedup token that the host gave a call itself, as written.
fn message_token(message: &Message) -> Option<String> {
    let token = message.meta(TOKEN_META).filter(|token| token.starts_with(b"\""))?;
    Some(String::from_utf8_lossy(token).into_owned())
}

/// How often the host sent a call before, by its own count.
fn host_attempts(message: &Message) -> u64 {
    let attempt = message.meta(ATTEMPT_META).and_then(|text| std::str::from_utf8(text).ok());
    attempt.and_then(|text| text.parse::<u64>().ok()).map_or(0, |attempt| attempt.saturating_sub(1))
}
