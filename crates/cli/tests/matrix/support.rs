//! What all cases share: a gateway of their own, the calls they make, and the usual steps.
//!
//! Everything that depends on the command line or on the tool server's arguments stands here.

use std::net::SocketAddr;

use rejoin_testkit::call::Call;
use rejoin_testkit::check::{Owed, complete};
use rejoin_testkit::count::CountFile;
use rejoin_testkit::deadline::{WAIT, until};
use rejoin_testkit::failure::Failure;
use rejoin_testkit::process::Server;
use rejoin_testkit::raw::{Connection, WireError};
use rejoin_testkit::refusal::Refusal;
use rejoin_testkit::session::{Identity, Session};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The program under test, and its tool server.
const REJOIN: &str = env!("CARGO_BIN_EXE_rejoin");

/// Limits short enough for a test: `4 x retry <= owed_grace < hold_max`.
const SHORT_LIMITS: [&str; 3] = ["owed_grace_ms=2000", "retry_ms=500", "hold_max_ms=3000"];

/// The mark of every record.
const RECORDED: &str = "dev.rejoin/recorded";

/// Tests that measure time or memory run alone; all others side by side.
static MACHINE: RwLock<()> = RwLock::const_new(());

enum Turn {
    Shared(#[expect(dead_code, reason = "held until the test ends")] RwLockReadGuard<'static, ()>),
    Alone(#[expect(dead_code, reason = "held until the test ends")] RwLockWriteGuard<'static, ()>),
}

/// A running gateway with its count file.
pub(crate) struct Bench {
    pub(crate) gateway: Server,
    pub(crate) address: SocketAddr,
    pub(crate) count: CountFile,
    _folder: TempDir,
    _turn: Turn,
}

impl Bench {
    /// Starts a gateway with more options of `rejoin serve`; later limits win.
    pub(crate) async fn start(options: &[&str]) -> Result<Self, Failure> {
        Self::start_in(Turn::Shared(MACHINE.read().await), options).await
    }

    /// As [`Bench::start`], while no other test runs.
    pub(crate) async fn start_alone(options: &[&str]) -> Result<Self, Failure> {
        Self::start_in(Turn::Alone(MACHINE.write().await), options).await
    }

    async fn start_in(turn: Turn, options: &[&str]) -> Result<Self, Failure> {
        let folder = tempfile::tempdir()?;
        let count = CountFile::at(folder.path().join("count"));
        let count_path = count.path().display().to_string();
        let mut arguments = vec!["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        for limit in SHORT_LIMITS {
            arguments.extend(["--limit", limit]);
        }
        arguments.extend(options);
        arguments.extend(["--", REJOIN, "tool-server", "--count-file", &count_path]);
        let mut gateway = Server::start(REJOIN, arguments)?;
        let address = gateway.address("listens", WAIT).await?;
        Ok(Self { gateway, address, count, _folder: folder, _turn: turn })
    }

    /// Opens a session as the newest client.
    pub(crate) async fn session(&self) -> Result<Session, Failure> {
        Ok(Session::open(self.address).await?)
    }

    /// Opens a session as another client.
    pub(crate) async fn session_as(&self, identity: Identity) -> Result<Session, Failure> {
        Ok(Session::open_as(self.address, identity).await?)
    }

    /// How often `charge` ran.
    pub(crate) fn charges(&self) -> Result<usize, Failure> {
        Ok(self.count.runs("charge")?)
    }

    /// How often `charge` ran with this amount.
    pub(crate) fn charges_of(&self, amount: u64) -> Result<usize, Failure> {
        Ok(self.count.runs_with("charge", "amount", &amount.into())?)
    }

    /// Waits until `charge` started `wanted` times.
    pub(crate) async fn charged(&self, wanted: usize) -> Result<(), Failure> {
        Ok(self.count.wait("charge", wanted, WAIT).await?)
    }
}

/// The call of the base scenario: 20 progress events, 50 ms apart; the amount tells calls apart.
pub(crate) fn charge(id: u64, amount: u64) -> Call {
    charge_with(id, amount, 20, 50)
}

/// A call with `events` progress events, each after `interval_ms`.
pub(crate) fn charge_with(id: u64, amount: u64, events: u64, interval_ms: u64) -> Call {
    let arguments = json!({"amount": amount, "events": events, "interval_ms": interval_ms});
    Call::new(id, "charge", arguments)
}

/// Another call, answered at once, never equal to one before.
pub(crate) fn get(id: u64) -> Call {
    Call::new(id, "get", json!({"key": format!("key-{id}")}))
}

/// What `call` owes from its progress number `first` on.
pub(crate) fn owed(call: &Call, first: u64) -> Owed<'_> {
    let last = call.arguments["events"].as_u64().unwrap_or_default();
    Owed { progress_token: &call.progress_token, id: call.id, first, last }
}

/// Cuts a connection with a reset, and lets the gateway answer another request after it, which
/// comes in later than the reset.
pub(crate) async fn cut(session: &Session, connection: Connection) -> Result<(), WireError> {
    connection.cut_rst()?;
    let ping = json!({"jsonrpc": "2.0", "id": "ping", "method": "ping"});
    session.post(&ping).await?.response().await?;
    Ok(())
}

/// Posts `call`, reads `seen` of its messages, and cuts the connection with a reset; gives the id
/// of the last event read.
pub(crate) async fn drop_after(
    session: &Session,
    call: &Call,
    seen: usize,
) -> Result<String, WireError> {
    let mut connection = session.call(call).await?;
    let cursor = connection.messages(seen).await?;
    cut(session, connection).await?;
    Ok(cursor)
}

/// Posts `call`, which must be refused.
pub(crate) async fn refused(session: &Session, call: &Call) -> Result<Refusal, WireError> {
    Refusal::read(&mut session.call(call).await?).await
}

/// Posts `call` again and again until it is refused for `reason`; every other answer on the way
/// must be a refusal too.
pub(crate) async fn refused_for(
    session: &Session,
    call: &Call,
    reason: &str,
) -> Result<Refusal, WireError> {
    until(&format!("the refusal {reason}"), WAIT, async || {
        let refusal = refused(session, call).await?;
        Ok((refusal.reason == reason).then_some(refusal))
    })
    .await
}

/// Posts `call` again and again until it is answered with a result; every other answer on the way
/// must be a refusal.
pub(crate) async fn answered(session: &Session, call: &Call) -> Result<Value, WireError> {
    until("a result after refusals", WAIT, async || {
        let mut connection = session.call(call).await?;
        let head = connection.head().await?;
        let response = connection.response().await?;
        if response.get("result").is_some() {
            return Ok(Some(response));
        }
        match Refusal::of(head, &response) {
            Some(_) => Ok(None),
            None => Err(WireError::Unexpected {
                expected: "a result or a refusal".into(),
                account: response.to_string(),
            }),
        }
    })
    .await
}

/// Drops `call` after `seen` messages and waits until it ended unseen, within the grace.
pub(crate) async fn end_unseen(
    session: &Session,
    call: &Call,
    seen: usize,
) -> Result<String, WireError> {
    let cursor = drop_after(session, call, seen).await?;
    refused_for(session, call, "stream_not_drained").await?;
    Ok(cursor)
}

/// Resumes after `cursor` and reads the stream to its clean end.
pub(crate) async fn resume(session: &Session, cursor: &str) -> Result<Connection, WireError> {
    let mut connection = session.get(Some(cursor)).await?;
    let head = connection.head().await?;
    if head.status != 200 {
        return Err(WireError::Unexpected {
            expected: format!("a stream after {cursor}"),
            account: format!("{head:?}"),
        });
    }
    connection.clean_rest().await?;
    Ok(connection)
}

/// Resumes after `cursor` and checks that what follows is complete from progress number `first`.
pub(crate) async fn resume_complete(
    session: &Session,
    cursor: &str,
    call: &Call,
    first: u64,
) -> Result<Value, Failure> {
    let tail = resume(session, cursor).await?;
    Ok(complete(tail.events(), &owed(call, first))?)
}

/// Whether a response is a record of an earlier execution.
pub(crate) fn is_record(response: &Value) -> bool {
    !response["result"]["_meta"][RECORDED].is_null()
}

/// The number of the execution that a result of `charge` came from.
pub(crate) fn execution(response: &Value) -> Option<u64> {
    response["result"]["structuredContent"]["execution"].as_u64()
}

/// A cursor that must be there.
pub(crate) fn cursor_of(refusal: &Refusal) -> Result<String, Failure> {
    let cursor = refusal.cursor().map(str::to_owned);
    cursor.ok_or_else(|| Failure::new(format!("no cursor in {refusal:?}")))
}
