//! A session with a scripted server, on the memory store.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::BodyExt;
use rejoin_core::effect::{Batch, Event as LogEvent, Note};
use rejoin_core::id::{CallId, Epoch, EventId, Seq, StreamId, digest};
use rejoin_core::input::{GetCursor, Request};
use rejoin_core::limits::Limits;
use rejoin_core::message::{self, Incoming, Message};
use rejoin_core::revision::Revision;
use rejoin_core::session::SessionStart;
use rejoin_core::settings::Settings;
use rejoin_core::token::{DedupKey, DedupRecord, Token};
use rejoin_gateway::handle::{
    Answer, Clock, ConnectionIds, DriverParts, MessageRoom, NoteSink, PostRequest, SessionHandle,
    SessionTag, StreamBody,
};
use rejoin_gateway::tap::Wire;
use rejoin_gateway::upstream::{
    Channel, CloseReason, Command, Event, OpenError, Opened, Opening, Upstream,
};
use rejoin_store::{
    CommitError, CreateError, ExpireError, Expired, Fence, LoadError, Loaded, MemoryLimits,
    MemoryStore, Opened as Created, Page, PrincipalKey, PrincipalUsage, ReadError, RemoveError,
    SessionKey, Store, StreamWatch, TokenError, Usage, UsageError, Version,
};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::timeout;

/// Bound of every wait for something that must happen.
pub(crate) const SOON: Duration = Duration::from_secs(10);
/// Time in which something that must not happen is given the chance to.
pub(crate) const WHILE: Duration = Duration::from_millis(200);

pub(crate) async fn soon<T>(event: impl Future<Output = T>) -> T {
    timeout(SOON, event).await.expect("it must happen soon")
}

pub(crate) async fn assert_pending<T>(event: impl Future<Output = T>) {
    assert!(timeout(WHILE, event).await.is_err(), "it must not happen");
}

/// The server's side of one upstream session.
pub(crate) struct Server {
    pub(crate) commands: mpsc::Receiver<Command>,
    pub(crate) events: mpsc::Sender<Event>,
}

impl Server {
    pub(crate) async fn command(&mut self) -> Command {
        soon(self.commands.recv()).await.expect("a command comes")
    }

    /// The next command is this call; it is reported as sent.
    pub(crate) async fn take_call(&mut self) -> CallId {
        match self.command().await {
            Command::Call { call, .. } => {
                self.send(Event::Sent { call }).await;
                call
            }
            other => panic!("no call but {other:?}"),
        }
    }

    pub(crate) async fn send(&self, event: Event) {
        soon(self.events.send(event)).await.unwrap();
    }

    pub(crate) async fn say(&self, channel: Channel, text: String) {
        self.send(Event::Message { channel, message: text.into(), cursor: None }).await;
    }

    pub(crate) async fn progress(&self, call: CallId, text: &str) {
        let head = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":"#;
        let params = format!(r#"{{"progressToken":{call},"progress":1,"message":"{text}"}}"#);
        self.say(Channel::Unknown, format!("{head}{params}}}")).await;
    }

    pub(crate) async fn answer(&self, call: CallId, text: &str) {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{call},"result":{{"text":"{text}"}}}}"#);
        self.say(Channel::Call(call), body).await;
    }

    pub(crate) async fn close(&self) {
        self.send(Event::Closed { reason: CloseReason::Exited { code: 1 } }).await;
    }
}

/// Opens scripted servers and hands them to the test.
pub(crate) struct FakeUpstream {
    queue_max: usize,
    servers: mpsc::Sender<Server>,
    /// Answers to `initialize`; none left: a good one.
    pub(crate) answers: Mutex<VecDeque<&'static str>>,
}

#[async_trait]
impl Upstream for FakeUpstream {
    async fn open(&self, _opening: Opening) -> Result<Opened, OpenError> {
        let (commands, commanded) = mpsc::channel(self.queue_max);
        let (happening, events) = mpsc::channel(self.queue_max);
        let server = Server { commands: commanded, events: happening };
        self.servers.send(server).await.unwrap();
        let answer = self.answers.lock().unwrap().pop_front();
        let answer = answer.unwrap_or(r#"{"jsonrpc":"2.0","id":0,"result":{}}"#);
        Ok(Opened { answer: answer.into(), commands, events, continuation: None, pressure: None })
    }

    fn name(&self) -> &str {
        "scripted"
    }
}

/// Keeps what was noted; a test can wait for it.
pub(crate) struct Notes {
    pub(crate) seen: watch::Sender<Vec<Note>>,
    pub(crate) panics: bool,
}

impl Default for Notes {
    fn default() -> Self {
        Self { seen: watch::Sender::new(Vec::new()), panics: false }
    }
}

impl NoteSink for Notes {
    fn note(&self, _session: &SessionTag, note: &Note) {
        assert!(!self.panics, "asked for by the test");
        self.seen.send_modify(|seen| seen.push(note.clone()));
    }
}

impl Notes {
    pub(crate) async fn until(&self, wanted: impl Fn(&Note) -> bool) {
        let mut seen = self.seen.subscribe();
        let found = timeout(SOON, seen.wait_for(|seen| seen.iter().any(&wanted))).await.is_ok();
        assert!(found, "not noted; but {:?}", self.all());
    }

    pub(crate) fn all(&self) -> Vec<Note> {
        self.seen.borrow().clone()
    }

    pub(crate) fn executions(&self) -> usize {
        self.all().iter().filter(|note| matches!(note, Note::Executed(_))).count()
    }
}

/// A memory store whose commits a test can hold or fail.
pub(crate) struct TestStore {
    inner: MemoryStore,
    /// Commits use up a permit each, while it is there.
    gate: Mutex<Option<Arc<Semaphore>>>,
    held: Semaphore,
    fails: Mutex<bool>,
}

impl TestStore {
    pub(crate) fn hold(&self) -> Arc<Semaphore> {
        let gate = Arc::new(Semaphore::new(0));
        *self.gate.lock().unwrap() = Some(Arc::clone(&gate));
        gate
    }

    pub(crate) fn free(&self) {
        if let Some(gate) = self.gate.lock().unwrap().take() {
            gate.close();
        }
    }

    /// Waits until a commit waits at the gate.
    pub(crate) async fn until_held(&self) {
        self.held.acquire().await.unwrap().forget();
    }

    pub(crate) fn fail(&self) {
        *self.fails.lock().unwrap() = true;
    }
}

#[async_trait]
impl Store for TestStore {
    fn epoch(&self) -> Option<u64> {
        self.inner.epoch()
    }

    async fn create(&self, s: SessionKey, p: PrincipalKey) -> Result<Created, CreateError> {
        self.inner.create(s, p).await
    }
    async fn sessions(
        &self,
        after: Option<SessionKey>,
        rows_max: usize,
    ) -> Result<Vec<SessionKey>, LoadError> {
        self.inner.sessions(after, rows_max).await
    }

    async fn load(&self, session: SessionKey) -> Result<Option<Loaded>, LoadError> {
        self.inner.load(session).await
    }
    async fn commit(
        &self,
        session: SessionKey,
        fence: Fence,
        expected: Version,
        batch: Batch,
    ) -> Result<Version, CommitError> {
        let gate = self.gate.lock().unwrap().clone();
        if gate.is_some() {
            self.held.add_permits(1);
        }
        if let Some(gate) = gate
            && let Ok(permit) = gate.acquire().await
        {
            permit.forget();
        }
        if *self.fails.lock().unwrap() {
            let source = std::io::ErrorKind::StorageFull.into();
            return Err(CommitError::Io(rejoin_store::Failure::new("write", "make room", source)));
        }
        self.inner.commit(session, fence, expected, batch).await
    }
    async fn read(
        &self,
        session: SessionKey,
        stream: StreamId,
        after: Seq,
        bytes_max: usize,
    ) -> Result<Page, ReadError> {
        self.inner.read(session, stream, after, bytes_max).await
    }
    async fn read_part(
        &self,
        session: SessionKey,
        stream: StreamId,
        seq: Seq,
        offset: usize,
        bytes_max: usize,
    ) -> Result<Option<Bytes>, ReadError> {
        self.inner.read_part(session, stream, seq, offset, bytes_max).await
    }
    async fn read_one(
        &self,
        session: SessionKey,
        stream: StreamId,
        seq: Seq,
    ) -> Result<Option<LogEvent>, ReadError> {
        self.inner.read_one(session, stream, seq).await
    }
    async fn watch(&self, s: SessionKey, stream: StreamId) -> Result<StreamWatch, ReadError> {
        self.inner.watch(s, stream).await
    }
    async fn token(&self, key: DedupKey) -> Result<Option<DedupRecord>, TokenError> {
        self.inner.token(key).await
    }
    async fn remove(&self, session: SessionKey, fence: Fence) -> Result<(), RemoveError> {
        self.inner.remove(session, fence).await
    }
    async fn expire(&self, now_ms: u64, rows_max: usize) -> Result<Expired, ExpireError> {
        self.inner.expire(now_ms, rows_max).await
    }
    async fn usage(&self) -> Result<Usage, UsageError> {
        self.inner.usage().await
    }
    async fn principal_usage(&self, p: PrincipalKey) -> Result<PrincipalUsage, UsageError> {
        self.inner.principal_usage(p).await
    }
}

/// A gateway without HTTP: a store, and sessions with scripted servers.
pub(crate) struct World {
    pub(crate) store: Arc<TestStore>,
    pub(crate) settings: Settings,
    pub(crate) connections: ConnectionIds,
    pub(crate) queue_max: usize,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut Limits)) -> Self {
        let mut settings = Settings { upstream_is_stateless: true, ..Settings::default() };
        change(&mut settings.limits);
        let inner = MemoryStore::new(MemoryLimits::from(&settings.limits)).unwrap();
        let store = TestStore {
            inner,
            gate: Mutex::new(None),
            held: Semaphore::new(0),
            fails: Mutex::new(false),
        };
        let connections = ConnectionIds::default();
        Self { store: Arc::new(store), settings, connections, queue_max: 64 }
    }

    pub(crate) async fn session(&self, name: &str) -> Session {
        self.session_noting(name, Notes::default()).await
    }

    pub(crate) async fn session_noting(&self, name: &str, notes: Notes) -> Session {
        let (made, mut servers) = mpsc::channel(8);
        let upstream = Arc::new(FakeUpstream {
            queue_max: self.queue_max,
            servers: made,
            answers: Mutex::default(),
        });
        let opened = upstream.open(Bytes::from_static(b"{}").into()).await.unwrap();
        let server = servers.recv().await.unwrap();
        let notes = Arc::new(notes);
        let session = digest(name.as_bytes());
        let created = self.store.create(session, digest(b"somebody")).await.unwrap();
        let start = SessionStart {
            session,
            ledger_epoch: 1,
            call_base: CallId(0),
            epoch: Epoch(0xa1),
            asked: Revision::new("2025-11-25"),
            agreed: Revision::new("2025-11-25"),
            origin: Bytes::new(),
            continuation: None,
            settings: Arc::new(self.settings.clone()),
        };
        let parts = DriverParts {
            store: Arc::clone(&self.store) as Arc<dyn Store>,
            fence: created.fence,
            principal: digest(b"somebody"),
            version: created.version,
            upstream: Arc::clone(&upstream) as Arc<dyn Upstream>,
            opened: Some(opened),
            initialize: Bytes::from_static(b"{}"),
            sending: MessageRoom::new(&self.settings.limits),
            notes: Arc::clone(&notes) as Arc<dyn NoteSink>,
            connections: self.connections.clone(),
            clock: Clock::start(),
        };
        let handle = SessionHandle::spawn(start, parts);
        Session { handle, upstream, servers, server, notes }
    }
}

/// One session of the world.
pub(crate) struct Session {
    pub(crate) handle: SessionHandle,
    pub(crate) upstream: Arc<FakeUpstream>,
    pub(crate) servers: mpsc::Receiver<Server>,
    pub(crate) server: Server,
    pub(crate) notes: Arc<Notes>,
}

impl Session {
    /// Posts a call that runs, and takes it at the server.
    pub(crate) async fn call(&mut self, id: u64, text: &str) -> (Stream, CallId) {
        let handle = self.handle.clone();
        let request = post_of(tool_call(id, text), None);
        let posted = tokio::spawn(async move { handle.post(request).await });
        let call = self.server.take_call().await;
        (stream_of(soon(posted).await.unwrap()), call)
    }

    pub(crate) async fn get(&self, cursor: &str) -> Answer {
        let cursor: EventId = cursor.parse().unwrap();
        soon(self.handle.get(GetCursor::At(cursor), None)).await
    }
}

pub(crate) fn parsed(text: &str) -> Message {
    match message::parse(Bytes::copy_from_slice(text.as_bytes()), 64) {
        Ok(Incoming::One(message)) => message,
        other => panic!("{other:?}"),
    }
}

/// A call of a tool that must not run twice, which asks for progress.
pub(crate) fn tool_call(id: u64, text: &str) -> String {
    let params = format!(
        r#"{{"name":"charge","arguments":{{"text":"{text}"}},"_meta":{{"progressToken":{id}}}}}"#
    );
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}"#)
}

pub(crate) fn post_of(body: String, token: Option<&str>) -> PostRequest {
    let token = token.map(|token| Token {
        key: DedupKey(digest(token.as_bytes())),
        attempt: 1,
        epoch: None,
    });
    let request = Request { message: parsed(&body), token, record: None, scope: None };
    let body = digest(body.as_bytes());
    PostRequest { wire: None, requests: vec![request], batch: false, body }
}

pub(crate) fn post_on(wire: Option<Wire>, body: String) -> PostRequest {
    PostRequest { wire, ..post_of(body, None) }
}

/// An answer's body, read frame by frame.
pub(crate) struct Stream(pub(crate) StreamBody);

pub(crate) fn stream_of(answer: Answer) -> Stream {
    match answer {
        Answer::Stream { body, .. } => Stream(body),
        other => panic!("no stream but {other:?}"),
    }
}

impl Stream {
    /// The next frame; `None` at the end.
    pub(crate) async fn frame(&mut self) -> Option<String> {
        let frame = soon(self.0.frame()).await?;
        let data = frame.unwrap().into_data().unwrap();
        Some(String::from_utf8(data.to_vec()).unwrap())
    }

    pub(crate) fn is_ended(&self) -> bool {
        http_body::Body::is_end_stream(&self.0)
    }

    /// Everything from here to the end.
    pub(crate) async fn rest(&mut self) -> String {
        let mut read = String::new();
        while let Some(frame) = self.frame().await {
            read.push_str(&frame);
        }
        read
    }

    /// Reads until `text` was read.
    pub(crate) async fn through(&mut self, text: &str) -> String {
        let mut read = String::new();
        while !read.contains(text) {
            read.push_str(&self.frame().await.expect("the stream goes on"));
        }
        read
    }
}

/// The ids of events in what was read.
pub(crate) fn ids(read: &str) -> Vec<&str> {
    read.lines().filter_map(|line| line.strip_prefix("id: ")).collect()
}
