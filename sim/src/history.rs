//! What happened in a run, in order: the log that is printed, and all that the checkers see.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rejoin_core::id::Digest32;
use tokio::time::Instant;

/// The number of a connection, in the order in which they were opened.
pub type Conn = u32;
/// The number of an execution of the tool.
pub type Exec = u32;
/// The number of an asking: one wish of one client.
pub type Asking = u32;
/// The number in a call's arguments. Twins have the same, and so may clients that are nobody to
/// each other.
pub type Key = u32;
/// A client and what it wants: what may be asked once, or on purpose again.
pub type Wish = (usize, Key);
/// A JSON-RPC id that a client gave a request of its own.
pub type RequestId = u64;
/// The id under which the server knows a call of a session.
pub type CallNumber = u64;

/// What can be recognised in the bytes of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mark {
    /// The result of an execution.
    Answer(Exec),
    /// Progress of it, by its number from 1.
    Progress(Exec, u32),
    /// What it asks its client.
    Ask(Exec),
    /// What a server says of its own in a session, by its number from 1.
    Note(usize, u32),
    /// The comment after a replay.
    ReplayEnd,
}

/// How a side of a connection was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// By an ordinary close: FIN, or a reset if something was unread.
    Close,
    /// By a reset.
    Reset,
    /// Without a word: nothing leaves or arrives any more.
    Vanish,
    /// The connection stays open, and nobody reads it.
    Stay,
}

/// What became of an asking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A result, of this execution, and whether it was marked as recorded.
    Answered(Exec, bool),
    /// An error of Rejoin, with its code, after which the client gave up.
    Refused(i64),
    /// An error of somebody else.
    Failed(i64),
    /// The client cancelled it.
    Cancelled,
    /// The client lost it and does not come back.
    Dropped,
    /// A resume was answered 405.
    NothingToResume,
    /// The client tried as long as it is patient.
    Patience,
}

/// A thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The run begins: its plan, for the reader.
    Plan(String),
    /// A line of the gateway's own log.
    Gateway(String),
    /// Something else worth telling.
    Told(String),
    /// The gateway runs (again).
    Started { life: u32, skew_ms: i64 },
    /// It was killed.
    Crashed { life: u32 },
    /// It ends in order from now on.
    Draining { life: u32 },
    /// It has ended so; with so many servers of its own that live on.
    Drained { life: u32, left: usize },
    /// The disk is another one: nothing of before is on it.
    LedgerLost,
    /// The server died, and with it what ran.
    ServerDied,
    /// The server's connections broke.
    ServerCut,
    /// The server cannot be reached, or can again.
    ServerAway { away: bool },
    /// The store failed a commit of a session (the digest of its id).
    StoreFailed { store_key: Digest32 },
    /// The claim of a call of a session is on the disk, and survives a power cut.
    Claimed { store_key: Digest32, call: CallNumber },
    /// So is the answer of an execution.
    Kept { exec: Exec },
    /// The disk is slow or fails, or does no longer.
    Disk { disturbed: bool },
    /// Nothing new connects, or does again.
    Dark { dark: bool },
    /// A client is connected.
    Connected { conn: Conn, client: usize },
    /// Bytes came into the kernel of the client's side, or of the proxy's in its place.
    InKernel { conn: Conn, mark: Mark },
    /// The gateway's program has written an answer.
    Written { conn: Conn, mark: Mark },
    /// A reset came to a living gateway.
    ResetSeen { conn: Conn },
    /// Bytes moved between two kernels.
    Moved { conn: Conn, to_client: bool, bytes: usize },
    /// A client left a connection.
    Left { conn: Conn, how: Leave },
    /// The gateway's side of a connection is over.
    Over { conn: Conn },
    /// The network does no longer carry a connection, or does again.
    Blocked { conn: Conn, to_client: bool, blocked: bool },
    /// A client begins to open a session.
    Opening { session: usize },
    /// A session was opened.
    Session { client: usize, session: usize, principal: Option<u32>, store_key: Digest32 },
    /// A client wants something once. Whoever has the same token of a client wants the same.
    Asked { client: usize, asking: Asking, key: Key, token: Option<Key>, charge: bool },
    /// It says so: a POST.
    Posted {
        client: usize,
        asking: Asking,
        session: usize,
        conn: Conn,
        attempt: u32,
        request: RequestId,
    },
    /// It asks for the rest of a stream.
    Resumed { client: usize, asking: Asking, session: usize, conn: Conn },
    /// The head of an answer.
    Head { conn: Conn, status: u16, replays: bool },
    /// A client's code read an answer to its end.
    Whole { conn: Conn },
    /// A client's code read something for an asking.
    Read { client: usize, asking: Asking, conn: Conn, mark: Mark },
    /// A client's code read an error for an asking.
    Error { client: usize, asking: Asking, conn: Conn, code: i64 },
    /// The tool runs, for this request of a client; as the server sees it.
    Executed {
        exec: Exec,
        key: Key,
        session: usize,
        charge: bool,
        client: usize,
        request: RequestId,
        call: CallNumber,
    },
    /// A server is called that was not told that its client is ready.
    Unready { session: usize },
    /// A client's code read an answer that is not what the execution gave.
    Garbled { asking: Asking, exec: Exec },
    /// A server says something of its own.
    Noted { session: usize, note: u32 },
    /// A client asks for the standalone stream; from a cursor, or as it stands.
    Listening { client: usize, session: usize, conn: Conn, resumes: bool },
    /// It has read something there.
    Heard { session: usize, conn: Conn, note: u32 },
    /// It listens no more.
    Deaf { session: usize },
    /// A client cancels a request.
    Cancelling { session: usize, request: RequestId },
    /// The gateway has taken that.
    CancelTaken { session: usize, request: RequestId },
    /// The server is told that a call is cancelled.
    CancelTold { session: usize, call: CallNumber },
    /// The gateway has taken a client's answer to what an execution asked.
    AnswerTaken { session: usize, exec: Exec },
    /// The server is told an answer to it: for what its client meant it, if it is one of a client.
    AnswerTold { exec: Exec, meant: Option<Exec> },
    /// A client ends its session.
    Ending { session: usize },
    /// The gateway says that it is over.
    EndTaken { session: usize },
    /// The server is told to end a session.
    EndTold { session: usize },
    /// A client asks for something that nothing may hold.
    Pinged { client: usize, session: usize, conn: Conn },
    /// The tool has given its result, after so many steps of progress.
    Produced { exec: Exec, steps: u32 },
    /// The tool ends without a result: it was cancelled.
    Stopped { exec: Exec },
    /// A client is done with an asking.
    Settled { client: usize, asking: Asking, outcome: Outcome },
    /// A request with another principal's session or cursor: what it was answered.
    Intruded { status: u16, as_expected: bool },
    /// All faults are over.
    Calm,
    /// The run is over; false: not in its time.
    Ended { in_time: bool },
}

/// What happened, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Virtual milliseconds since the run began.
    pub at_ms: u64,
    /// What.
    pub what: What,
}

/// The recorder. Clones are the same.
#[derive(Clone)]
pub struct History {
    began: Instant,
    records: Arc<Mutex<Vec<Record>>>,
}

impl History {
    /// Begins now, in virtual time.
    pub fn begin() -> Self {
        Self { began: Instant::now(), records: Arc::default() }
    }

    /// Milliseconds since it began.
    pub fn now_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    /// Adds what happens now.
    pub fn record(&self, what: What) {
        let at_ms = self.now_ms();
        self.lock().push(Record { at_ms, what });
    }

    /// Everything so far.
    pub fn records(&self) -> Vec<Record> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Record>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The log of a run: a line for each record.
pub fn print(records: &[Record]) -> String {
    let mut log = String::new();
    for Record { at_ms, what } in records {
        // Writing to a string cannot fail.
        let _ = match what {
            What::Gateway(text) => writeln!(log, "{at_ms:>8}       {text}"),
            What::Plan(text) | What::Told(text) => writeln!(log, "{at_ms:>8} {text}"),
            What::StoreFailed { store_key } => {
                writeln!(log, "{at_ms:>8} StoreFailed {{ {} }}", short(store_key))
            }
            What::Claimed { store_key, call } => {
                writeln!(log, "{at_ms:>8} Claimed {{ {}, call: {call} }}", short(store_key))
            }
            What::Session { client, session, principal, store_key } => writeln!(
                log,
                "{at_ms:>8} Session {{ client: {client}, session: {session}, \
                 principal: {principal:?}, {} }}",
                short(store_key)
            ),
            other => writeln!(log, "{at_ms:>8} {other:?}"),
        };
    }
    log
}

/// As the gateway's log names a session.
fn short(store_key: &Digest32) -> String {
    store_key.iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

/// A number that tells two logs apart (FNV-1a).
pub fn fingerprint(log: &str) -> u64 {
    log.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
