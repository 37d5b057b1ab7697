//! Sessions, and the log of each of their streams.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::sync::watch;

/// One stream: a call, or the standalone one.
pub(crate) struct Stream {
    pub(crate) session: String,
    pub(crate) number: u64,
    /// JSON-RPC id of the call.
    pub(crate) request: Value,
    /// Tool and arguments.
    pub(crate) key: String,
    pub(crate) events: Mutex<Vec<(String, String)>>,
    changed: watch::Sender<u64>,
    pub(crate) done: AtomicBool,
    pub(crate) connected: AtomicBool,
    pub(crate) delivered: AtomicBool,
    /// Number of the connection that has the stream.
    pub(crate) holder: AtomicU64,
}

impl Stream {
    pub(crate) fn new(session: &str, number: u64, request: Value, key: String) -> Arc<Self> {
        Arc::new(Self {
            session: session.to_owned(),
            number,
            request,
            key,
            events: Mutex::default(),
            changed: watch::Sender::new(0),
            done: AtomicBool::new(false),
            connected: AtomicBool::new(true),
            delivered: AtomicBool::new(false),
            holder: AtomicU64::new(0),
        })
    }

    pub(crate) fn push(&self, bare_ids: bool, data: String) {
        let mut events = self.events.lock().unwrap();
        let place = events.len() + 1;
        let id = if bare_ids {
            format!("e-{place:06}")
        } else {
            // The tail of an id is no part of its place: one that is changed is unknown.
            format!("{}-{}-{place}-{:04}", self.session, self.number, place * 7 % 9_973)
        };
        events.push((id, data));
        drop(events);
        self.change();
    }

    pub(crate) fn finish(&self) {
        self.done.store(true, Ordering::SeqCst);
        self.change();
    }

    pub(crate) fn change(&self) {
        self.changed.send_modify(|version| *version += 1);
    }

    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// The place after this event.
    pub(crate) fn after(&self, id: &str) -> Option<usize> {
        let events = self.events.lock().unwrap();
        events.iter().position(|(known, _)| known == id).map(|place| place + 1)
    }

    pub(crate) fn is_done(&self) -> bool {
        self.done.load(Ordering::SeqCst)
    }

    /// Whether its answer is owed: nobody has it, and nobody is about to get it.
    pub(crate) fn is_owed(&self) -> bool {
        !self.delivered.load(Ordering::SeqCst) && !self.connected.load(Ordering::SeqCst)
    }

    /// The response, once it is there.
    pub(crate) fn response(&self) -> Option<Value> {
        let events = self.events.lock().unwrap();
        events.last().and_then(|(_, data)| serde_json::from_str(data).ok())
    }
}

/// One session.
pub(crate) struct Session {
    pub(crate) id: String,
    pub(crate) revision: String,
    pub(crate) streams: Mutex<Vec<Arc<Stream>>>,
    pub(crate) standalone: Arc<Stream>,
    /// How many replays are being written.
    pub(crate) replays: watch::Sender<usize>,
    /// Held while one event is written, by a server with that fault.
    pub(crate) writing: tokio::sync::Mutex<()>,
}

impl Session {
    pub(crate) fn new(id: String, revision: String) -> Arc<Self> {
        let standalone = Stream::new(&id, 0, Value::Null, String::new());
        Arc::new(Self {
            id,
            revision,
            streams: Mutex::default(),
            standalone,
            replays: watch::Sender::new(0),
            writing: tokio::sync::Mutex::default(),
        })
    }

    pub(crate) fn all(&self) -> Vec<Arc<Stream>> {
        self.streams.lock().unwrap().clone()
    }

    pub(crate) fn find(&self, cursor: &str) -> Option<(Arc<Stream>, usize)> {
        self.all().into_iter().find_map(|stream| {
            let place = stream.after(cursor)?;
            Some((stream, place))
        })
    }
}
