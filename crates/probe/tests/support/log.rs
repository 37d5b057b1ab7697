//! Sessions, and the log of each of their streams.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::sync::watch;

/// One stream: a call, or the standalone one.
pub struct Stream {
    pub session: String,
    pub number: u64,
    /// JSON-RPC id of the call.
    pub request: Value,
    /// Tool and arguments.
    pub key: String,
    pub events: Mutex<Vec<(String, String)>>,
    changed: watch::Sender<u64>,
    pub done: AtomicBool,
    pub connected: AtomicBool,
    pub delivered: AtomicBool,
    /// Number of the connection that has the stream.
    pub holder: AtomicU64,
}

impl Stream {
    pub fn new(session: &str, number: u64, request: Value, key: String) -> Arc<Self> {
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

    pub fn push(&self, bare_ids: bool, data: String) {
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

    pub fn finish(&self) {
        self.done.store(true, Ordering::SeqCst);
        self.change();
    }

    pub fn change(&self) {
        self.changed.send_modify(|version| *version += 1);
    }

    pub fn watch(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// The place after this event.
    pub fn after(&self, id: &str) -> Option<usize> {
        let events = self.events.lock().unwrap();
        events.iter().position(|(known, _)| known == id).map(|place| place + 1)
    }

    pub fn is_done(&self) -> bool {
        self.done.load(Ordering::SeqCst)
    }

    /// Whether its answer is owed: nobody has it, and nobody is about to get it.
    pub fn is_owed(&self) -> bool {
        !self.delivered.load(Ordering::SeqCst) && !self.connected.load(Ordering::SeqCst)
    }

    /// The response, once it is there.
    pub fn response(&self) -> Option<Value> {
        let events = self.events.lock().unwrap();
        events.last().and_then(|(_, data)| serde_json::from_str(data).ok())
    }
}

/// One session.
pub struct Session {
    pub id: String,
    pub revision: String,
    pub streams: Mutex<Vec<Arc<Stream>>>,
    pub standalone: Arc<Stream>,
    /// How many replays are being written.
    pub replays: watch::Sender<usize>,
    /// Held while one event is written, by a server with that fault.
    pub writing: tokio::sync::Mutex<()>,
}

impl Session {
    pub fn new(id: String, revision: String) -> Arc<Self> {
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

    pub fn all(&self) -> Vec<Arc<Stream>> {
        self.streams.lock().unwrap().clone()
    }

    pub fn find(&self, cursor: &str) -> Option<(Arc<Stream>, usize)> {
        self.all().into_iter().find_map(|stream| {
            let place = stream.after(cursor)?;
            Some((stream, place))
        })
    }
}
