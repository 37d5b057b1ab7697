//! A real session on a store that a power cut sets back: it never uses a number twice, for it
//! reserves them in its own row, which is durable before they count.

use rejoin_core::effect::Output;
use rejoin_core::id::{CallId, ConnectionId, Epoch};
use rejoin_core::input::{Channel, FromUpstream, Input, Post, Request};
use rejoin_core::message::{self, Incoming, Message};
use rejoin_core::revision::Revision;
use rejoin_core::session::{Session, SessionStart, Stored};
use rejoin_core::settings::Settings;

use super::*;

/// Progress of the call: more than a session reserves at once.
const PROGRESS: usize = 6_000;
/// Messages that share a commit.
const PER_COMMIT: usize = 50;
const NOW_MS: u64 = 1_000_000;

fn start() -> SessionStart {
    let revision = Revision::new("2025-11-25");
    SessionStart {
        session: digest(b"s"),
        ledger_epoch: 1,
        call_base: CallId(0),
        epoch: Epoch(1),
        asked: revision.clone(),
        agreed: revision,
        origin: Bytes::new(),
        continuation: None,
        settings: Arc::new(Settings::default()),
    }
}

fn parse(text: String) -> Message {
    match message::parse(text.into(), 64) {
        Ok(Incoming::One(message)) => message,
        other => panic!("{other:?}"),
    }
}

fn post() -> Input {
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"charge",
        "_meta":{"progressToken":1}}}"#;
    let (message, connection) = (parse(call.to_owned()), ConnectionId(1));
    let request = Request { message, token: None, record: None, scope: None };
    let requests = vec![request];
    Input::Post(Post { connection, observed: true, requests, batch: false, body: digest(b"b") })
}

fn progress(call: CallId, number: usize) -> Input {
    let message = parse(format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{call},"progress":{number}}}}}"#
    ));
    Input::Upstream(FromUpstream::Message { channel: Channel::Call(call), message, cursor: None })
}

/// A session, and what its driver has of it.
struct Driven {
    session: Session,
    log: Log,
    calls: Vec<CallId>,
    /// The last number of its events.
    last: Seq,
}

impl Driven {
    /// Commits what inputs lead to; true if that is synced before it counts.
    async fn feed(&mut self, inputs: impl IntoIterator<Item = Input>) -> bool {
        let mut out = Output::default();
        for input in inputs {
            self.session.handle(input, NOW_MS, &mut out);
            while self.session.poll_timeout() == Some(0) {
                self.session.handle(Input::Tick, NOW_MS, &mut out);
            }
        }
        let synced = out.batch.durable;
        self.calls.extend(out.batch.calls.iter().map(|call| call.id));
        self.last = out.batch.events.last().map_or(self.last, |event| event.seq);
        self.log.commit(out.batch).await.unwrap();
        synced
    }
}

/// What is on the disk now.
fn copy(from: &Path) -> TempDir {
    let to = folder();
    for name in ["rejoin.db", "rejoin.db-wal"] {
        std::fs::copy(from.join(name), to.path().join(name)).unwrap();
    }
    to
}

#[tokio::test]
async fn no_event_id_names_two_events_whatever_a_power_cut_took() {
    let directory = folder();
    let store = open(directory.path());
    let mut log = Log::create(&store, "s").await;
    let session = Some(Box::new(start().row()));
    log.commit(Batch { session, durable: true, ..Batch::default() }).await.unwrap();
    let session = Session::new(start(), NOW_MS);
    let mut driven = Driven { session, log, calls: Vec::new(), last: Seq::ORIGIN };
    assert!(driven.feed([post()]).await, "a claim is durable");
    let call = driven.calls[0];
    driven.feed([Input::Upstream(FromUpstream::Sent(call))]).await;
    let mut synced = copy(directory.path());
    let mut syncs = 0;
    for first in (0..PROGRESS).step_by(PER_COMMIT) {
        let inputs = (first..first + PER_COMMIT).map(|number| progress(call, number));
        if driven.feed(inputs).await {
            synced = copy(directory.path());
            syncs += 1;
        }
    }
    let told = driven.last;
    assert!((1..4).contains(&syncs), "{syncs} commits reserved numbers");

    tamper(synced.path(), "update meta set value = 'another' where key = 'boot'");
    let store = open(synced.path());
    let loaded = store.load(digest(b"s")).await.unwrap().unwrap();
    assert!(loaded.last_seq < told, "the cut took nothing");
    let Loaded { fence, version, row, calls, streams, tails, last_seq, .. } = loaded;
    let stored = Stored { row: row.unwrap(), calls, streams, tails, last_seq };
    let (session, first) = Session::restart(start(), stored, NOW_MS);
    let log = Log { store, session: digest(b"s"), fence, version, last: 0 };
    let mut driven = Driven { session, log, calls: Vec::new(), last: Seq::ORIGIN };
    driven.feed(first).await;
    assert!(driven.last > told, "{} comes again: {told} was told", driven.last);
}
