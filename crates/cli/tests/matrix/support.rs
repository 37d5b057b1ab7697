//! What all cases share: a gateway of their own, the calls they make, and the usual steps.
//!
//! Everything that depends on the command line stands here, and in `server.rs` everything that
//! depends on the server behind the gateway.

use std::net::SocketAddr;

use rejoin_testkit::call::Call;
use rejoin_testkit::check::{Owed, complete};
use rejoin_testkit::count::CountFile;
use rejoin_testkit::deadline::{WAIT, until};
use rejoin_testkit::failure::Failure;
use rejoin_testkit::process::Server;
use rejoin_testkit::raw::{Connection, Request, WireError};
use rejoin_testkit::refusal::Refusal;
use rejoin_testkit::session::{Identity, Session};
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::server::{Kind, Upstream};

/// What the gateway logs: every move of a stream, so that a test can wait for it.
const LOG: &str = "info,rejoin_gateway::telemetry=debug";

/// Limits short enough for a test: `4 x retry <= owed_grace < hold_max`.
const SHORT_LIMITS: [&str; 3] = ["owed_grace_ms=3000", "retry_ms=500", "hold_max_ms=4500"];

/// The mark of every record.
const RECORDED: &str = "dev.rejoin/recorded";

/// Where a stream can move when its connection is lost: a held one is released, one whose final
/// event was handed over becomes doubtful.
const LOST: [&str; 3] = ["to=\"owed\"", "to=\"doubtful\"", "to=\"released\""];

/// Tests that measure time or memory run alone; all others side by side.
static MACHINE: RwLock<()> = RwLock::const_new(());

enum Turn {
    Shared(#[expect(dead_code, reason = "held until the test ends")] RwLockReadGuard<'static, ()>),
    Alone(#[expect(dead_code, reason = "held until the test ends")] RwLockWriteGuard<'static, ()>),
}

/// The program under test, and its tool server.
pub(crate) fn rejoin() -> String {
    std::env::var("REJOIN_BIN").unwrap_or_else(|_| env!("CARGO_BIN_EXE_rejoin").to_owned())
}

/// A running gateway with its count file and the server behind it.
pub(crate) struct Bench {
    pub(crate) gateway: Server,
    pub(crate) address: SocketAddr,
    pub(crate) count: CountFile,
    pub(crate) upstream: Upstream,
    _folder: TempDir,
    _turn: Turn,
}

impl Bench {
    /// Starts a gateway with more options of `rejoin serve`; later limits win.
    pub(crate) async fn start(options: &[&str]) -> Result<Self, Failure> {
        Self::start_in(Turn::Shared(MACHINE.read().await), options, false).await
    }

    /// As [`Bench::start`], while no other test runs.
    pub(crate) async fn start_alone(options: &[&str]) -> Result<Self, Failure> {
        Self::start_in(Turn::Alone(MACHINE.write().await), options, false).await
    }

    /// As [`Bench::start`], in front of a server process that no other test uses.
    pub(crate) async fn start_to_crash(options: &[&str]) -> Result<Self, Failure> {
        Self::start_in(Turn::Shared(MACHINE.read().await), options, true).await
    }

    async fn start_in(turn: Turn, options: &[&str], own: bool) -> Result<Self, Failure> {
        let folder = tempfile::tempdir()?;
        let count = CountFile::at(folder.path().join("count"));
        let upstream = Upstream::start(&count, own).await?;
        let mut arguments = vec!["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        arguments.extend(["--log", LOG]);
        for limit in SHORT_LIMITS {
            arguments.extend(["--limit", limit]);
        }
        arguments.extend(options);
        arguments.extend(upstream.arguments.iter().map(String::as_str));
        let mut gateway = Server::start(&rejoin(), arguments)?;
        let address = gateway.address("listens", WAIT).await?;
        Ok(Self { gateway, address, count, upstream, _folder: folder, _turn: turn })
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

impl Drop for Bench {
    fn drop(&mut self) {
        self.upstream.show_log();
    }
}

/// The call of the base scenario: 20 progress events, 50 ms apart; the amount tells calls apart.
pub(crate) fn charge(id: u64, amount: u64) -> Call {
    charge_with(id, amount, 20, 50)
}

/// A call with `events` progress events, each after `interval_ms`.
pub(crate) fn charge_with(id: u64, amount: u64, events: u64, interval_ms: u64) -> Call {
    Kind::chosen().charge(id, amount, events, interval_ms)
}

/// A call that ends soon, but not before a test on a busy machine read five of its events and cut.
pub(crate) fn short_charge(id: u64, amount: u64) -> Call {
    charge_with(id, amount, 20, 25)
}

/// Another call, answered at once, never equal to one before.
pub(crate) fn get(id: u64) -> Call {
    Kind::chosen().get(id)
}

/// What `call` owes from its progress number `first` on.
pub(crate) fn owed(call: &Call, first: u64) -> Owed<'_> {
    let last = Kind::chosen().events_of(call);
    Owed { progress_token: &call.progress_token, id: call.id, first, last }
}

/// Cuts a connection with a reset, and waits until the gateway says that its stream lost it.
pub(crate) async fn cut(bench: &Bench, connection: Connection) -> Result<(), WireError> {
    let stream = connection.last_id().and_then(|id| id.split('-').nth(1));
    let stream = stream.map_or_else(|| "stream=".to_owned(), |stream| format!("stream={stream} "));
    let losses = || {
        let lost = |state| bench.gateway.log_count(&["a stream moved", &stream, state]);
        LOST.into_iter().map(lost).sum::<usize>()
    };
    let before = losses();
    connection.cut_rst()?;
    until(&format!("the gateway's word on the loss of {stream}"), WAIT, async || {
        Ok((losses() > before).then_some(()))
    })
    .await
}

/// Posts `call`, reads `seen` of its messages, and cuts the connection with a reset; gives the id
/// of the last event read.
pub(crate) async fn drop_after(
    bench: &Bench,
    session: &Session,
    call: &Call,
    seen: usize,
) -> Result<String, WireError> {
    let mut connection = session.call(call).await?;
    let cursor = connection.messages(seen).await?;
    cut(bench, connection).await?;
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
    answered_to(session, &session.post_request(&call.message())).await
}

/// As [`answered`], for a POST with header fields of its own.
pub(crate) async fn answered_to(session: &Session, post: &Request) -> Result<Value, WireError> {
    until("a result after refusals", WAIT, async || {
        let mut connection = session.send(post).await?;
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
    bench: &Bench,
    session: &Session,
    call: &Call,
    seen: usize,
) -> Result<String, WireError> {
    let cursor = drop_after(bench, session, call, seen).await?;
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

/// Checks that `response` answers request `id` with the result of this execution of `charge`, as
/// far as the server numbers them.
#[track_caller]
pub(crate) fn assert_result(response: &Value, id: u64, execution: u64) {
    assert_eq!(response["id"], id, "{response}");
    assert!(response.get("result").is_some(), "{response}");
    let number = Kind::chosen().execution(response);
    assert!(number.is_none_or(|number| number == execution), "not {execution}: {response}");
    assert!(number.is_some() || Kind::chosen() == Kind::Everything, "no number: {response}");
}

/// A cursor that must be there.
pub(crate) fn cursor_of(refusal: &Refusal) -> Result<String, Failure> {
    let cursor = refusal.cursor().map(str::to_owned);
    cursor.ok_or_else(|| Failure::new(format!("no cursor in {refusal:?}")))
}
