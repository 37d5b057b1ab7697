//! A world around a machine: a clock that a test turns, and a network that a test plays.

use std::collections::VecDeque;

use bytes::Bytes;
use rejoin_client::ClientLimits;
use rejoin_client::machine::{
    Answer, ExchangeId, Head, Input, Machine, Media, Method, Notice, Output, Request, Settings,
};
use rejoin_core::sse::Decoder;
use serde_json::{Value, json};

/// What a server says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A Rejoin of this ledger epoch.
    Rejoin(u64),
    /// Any other server with sessions.
    Plain,
}

pub(crate) struct World {
    pub(crate) machine: Machine,
    pub(crate) now_ms: u64,
    /// Requests that no test has looked at.
    pub(crate) opened: VecDeque<(ExchangeId, Request)>,
    pub(crate) delivered: VecDeque<Value>,
    pub(crate) closed: Vec<ExchangeId>,
    pub(crate) notices: Vec<Notice>,
    pub(crate) is_done: bool,
}

/// A POST that a test plays the server of.
#[derive(Clone, Debug)]
pub(crate) struct Post {
    pub(crate) exchange: ExchangeId,
    pub(crate) request: Request,
    pub(crate) body: Value,
}

impl Post {
    /// The id under which the server knows the call.
    pub(crate) fn id(&self) -> &Value {
        &self.body["id"]
    }

    pub(crate) fn meta(&self, key: &str) -> &Value {
        &self.body["params"]["_meta"][key]
    }

    /// The call's result.
    pub(crate) fn result(&self, text: &str) -> Value {
        json!({ "jsonrpc": "2.0", "id": self.id(), "result": { "text": text } })
    }

    /// A progress event of the call.
    pub(crate) fn progress(&self, number: u64) -> Value {
        let token = self.meta("progressToken");
        json!({ "jsonrpc": "2.0", "method": "notifications/progress",
            "params": { "progressToken": token, "progress": number } })
    }
}

pub(crate) const TOKEN: &str = "dev.rejoin/dedup-token";
pub(crate) const ATTEMPT: &str = "dev.rejoin/attempt";
pub(crate) const EPOCH: &str = "dev.rejoin/epoch";

impl World {
    pub(crate) fn new() -> Self {
        Self::with(Settings::default())
    }

    pub(crate) fn with(settings: Settings) -> Self {
        Self {
            machine: Machine::new(settings, [7; 32]),
            now_ms: 1_000,
            opened: VecDeque::new(),
            delivered: VecDeque::new(),
            closed: Vec::new(),
            notices: Vec::new(),
            is_done: false,
        }
    }

    /// A world in which a session is open, the standalone stream too, unless `kind` has none.
    pub(crate) fn opened(kind: Kind) -> Self {
        let mut world = Self::new();
        world.initialize(kind);
        world
    }

    /// A world with a session and an open standalone stream.
    pub(crate) fn listening() -> (Self, ExchangeId) {
        let mut world = Self::new();
        world.begin_session(Kind::Plain);
        let (standalone, request) = world.get();
        assert_eq!(request.header("last-event-id"), None);
        world.stream(standalone);
        (world, standalone)
    }

    pub(crate) fn initialize(&mut self, kind: Kind) {
        self.begin_session(kind);
        self.refuse_standalone();
    }

    /// Opens a session, up to its standalone stream.
    fn begin_session(&mut self, kind: Kind) {
        self.say_initialize("i");
        self.answer_initialize(kind, "s1");
        assert_eq!(self.delivered()["id"], "i");
        self.say_initialized();
        let post = self.post();
        self.accept(&post);
    }

    /// The host asks for a session.
    pub(crate) fn say_initialize(&mut self, id: &str) {
        self.host(json!({ "jsonrpc": "2.0", "id": id, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {} } }));
    }

    pub(crate) fn say_initialized(&mut self) {
        self.host(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    }

    /// Answers the `initialize` that was sent.
    pub(crate) fn answer_initialize(&mut self, kind: Kind, session: &str) {
        let post = self.post();
        assert_eq!(post.body["method"], "initialize");
        let mut capabilities = json!({ "tools": {} });
        if let Kind::Rejoin(epoch) = kind {
            capabilities["experimental"] =
                json!({ "dev.rejoin/continuity": { "version": 1, "epoch": epoch } });
        }
        let result = json!({ "jsonrpc": "2.0", "id": post.id(), "result": {
            "protocolVersion": "2025-11-25", "capabilities": capabilities } });
        let head = Head { session: Some(session.to_owned()), ..head(200, Media::Whole) };
        self.answer(post.exchange, Answer::Head(head));
        self.answer(post.exchange, Answer::Body(Bytes::from(result.to_string())));
    }

    /// The server has no standalone stream.
    pub(crate) fn refuse_standalone(&mut self) {
        let (id, request) = self.get();
        assert_eq!(request.header("last-event-id"), None);
        self.status(id, 405);
    }

    pub(crate) fn input(&mut self, input: Input) {
        for output in self.machine.handle(self.now_ms, input) {
            match output {
                Output::Open(id, request) => self.opened.push_back((id, request)),
                Output::Close(id) => {
                    self.opened.retain(|(opened, _)| *opened != id);
                    self.closed.push(id);
                }
                Output::Deliver(bytes) => {
                    self.delivered.push_back(
                        serde_json::from_slice(&bytes).expect("what is delivered is JSON"),
                    );
                }
                Output::Notice(notice) => self.notices.push(notice),
                Output::Done => self.is_done = true,
            }
        }
    }

    pub(crate) fn host(&mut self, message: Value) {
        self.input(Input::Host(Bytes::from(message.to_string())));
    }

    /// The host calls `tool`, wanting progress.
    pub(crate) fn call(&mut self, id: u64, tool: &str) {
        self.host(json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {
            "name": tool, "arguments": { "n": id }, "_meta": { "progressToken": id } } }));
    }

    /// The host calls `tool`, and the POST is taken.
    pub(crate) fn posted(&mut self, id: u64, tool: &str) -> Post {
        self.call(id, tool);
        self.post()
    }

    /// A call whose stream has begun: its first progress came under this id.
    #[track_caller]
    pub(crate) fn reading(&mut self, id: u64, tool: &str, event_id: &str) -> Post {
        let post = self.posted(id, tool);
        self.stream(post.exchange);
        self.event(post.exchange, event_id, &post.progress(1));
        self.delivered();
        post
    }

    /// A call whose stream has begun and is lost, and the GET for what follows.
    #[track_caller]
    pub(crate) fn resuming(&mut self, id: u64, tool: &str, event_id: &str) -> (Post, ExchangeId) {
        let post = self.reading(id, tool, event_id);
        self.cut(post.exchange);
        self.pass(1);
        let get = self.get_after(event_id);
        (post, get)
    }

    /// A call whose connection is lost before its answer began, and the POST that repeats it.
    #[track_caller]
    pub(crate) fn repeated(&mut self, id: u64, tool: &str) -> (Post, Post) {
        let first = self.posted(id, tool);
        self.cut(first.exchange);
        self.pass_until_opened(1_000);
        (first, self.post())
    }

    pub(crate) fn answer(&mut self, id: ExchangeId, answer: Answer) {
        self.input(Input::Answer(id, answer));
    }

    /// The next request, which is a POST.
    #[track_caller]
    pub(crate) fn post(&mut self) -> Post {
        let (exchange, request) = self.opened.pop_front().expect("a request was opened");
        assert_eq!(request.method, Method::Post, "{request:?}");
        let body = serde_json::from_slice(&request.body).expect("a body is JSON");
        Post { exchange, request, body }
    }

    /// The next request, which is a GET.
    #[track_caller]
    pub(crate) fn get(&mut self) -> (ExchangeId, Request) {
        let (id, request) = self.opened.pop_front().expect("a request was opened");
        assert_eq!(request.method, Method::Get, "{request:?}");
        (id, request)
    }

    /// The next request, which is a GET for what follows `cursor`.
    #[track_caller]
    pub(crate) fn get_after(&mut self, cursor: &str) -> ExchangeId {
        let (id, request) = self.get();
        assert_eq!(request.header("last-event-id"), Some(cursor));
        id
    }

    #[track_caller]
    pub(crate) fn nothing_opened(&self) {
        assert!(self.opened.is_empty(), "{:?}", self.opened);
    }

    #[track_caller]
    pub(crate) fn nothing_delivered(&self) {
        assert!(self.delivered.is_empty(), "{:?}", self.delivered);
    }

    /// The next message for the host.
    #[track_caller]
    pub(crate) fn delivered(&mut self) -> Value {
        self.delivered.pop_front().expect("something was delivered")
    }

    pub(crate) fn accept(&mut self, post: &Post) {
        self.answer(post.exchange, Answer::Head(head(202, Media::Whole)));
        self.answer(post.exchange, Answer::Body(Bytes::new()));
    }

    /// Answers with a status and an empty body.
    pub(crate) fn status(&mut self, id: ExchangeId, status: u16) {
        self.answer(id, Answer::Head(head(status, Media::Whole)));
        self.answer(id, Answer::Body(Bytes::new()));
    }

    pub(crate) fn json(&mut self, id: ExchangeId, status: u16, body: &Value) {
        self.answer(id, Answer::Head(head(status, Media::Whole)));
        self.answer(id, Answer::Body(Bytes::from(body.to_string())));
    }

    /// A stream begins.
    pub(crate) fn stream(&mut self, id: ExchangeId) {
        self.answer(id, Answer::Head(head(200, Media::Stream)));
    }

    /// A replay begins, up to an event.
    pub(crate) fn replay(&mut self, id: ExchangeId, until: &str) {
        let head = Head { replay_until: Some(until.to_owned()), ..head(200, Media::Stream) };
        self.answer(id, Answer::Head(head));
    }

    /// Events come, as a server writes them.
    pub(crate) fn sse(&mut self, id: ExchangeId, text: &str) {
        let mut decoder = Decoder::new(1 << 20);
        decoder.push(text.as_bytes());
        while let Some(event) = decoder.next_event().expect("the test writes events") {
            self.answer(id, Answer::Event(event));
        }
    }

    /// A message comes as an event.
    pub(crate) fn event(&mut self, id: ExchangeId, event_id: &str, message: &Value) {
        self.sse(id, &format!("id: {event_id}\ndata: {message}\n\n"));
    }

    pub(crate) fn cut(&mut self, id: ExchangeId) {
        self.answer(id, Answer::Broken("reset".to_owned()));
    }

    /// Time passes; whatever is due happens in its time.
    pub(crate) fn pass(&mut self, ms: u64) {
        let end_ms = self.now_ms + ms;
        for _ in 0..10_000 {
            match self.machine.wake_ms() {
                Some(at_ms) if at_ms <= end_ms => {
                    self.now_ms = self.now_ms.max(at_ms);
                    self.input(Input::Tick);
                }
                _ => {
                    self.now_ms = end_ms;
                    return;
                }
            }
        }
        panic!("the machine wants to be woken again and again");
    }

    /// Passes time until a request is opened.
    #[track_caller]
    pub(crate) fn pass_until_opened(&mut self, max_ms: u64) -> u64 {
        let begin_ms = self.now_ms;
        while self.opened.is_empty() && self.now_ms < begin_ms + max_ms {
            let wake_ms = self.machine.wake_ms().unwrap_or(u64::MAX);
            let step_ms = wake_ms.saturating_sub(self.now_ms).clamp(1, max_ms);
            self.pass(step_ms);
        }
        assert!(!self.opened.is_empty(), "nothing was opened within {max_ms} ms");
        self.now_ms - begin_ms
    }

    /// The machine asks whether its session lives, and it does.
    #[track_caller]
    pub(crate) fn pong(&mut self) {
        let ping = self.post();
        assert_eq!(ping.body["method"], "ping");
        self.json(ping.exchange, 200, &ping.result("here"));
    }

    /// Notices, as a person reads them.
    pub(crate) fn told(&self) -> String {
        let notices: Vec<_> = self.notices.iter().map(ToString::to_string).collect();
        notices.join("\n")
    }

    /// The error that the host got for a call: may it have run?
    #[track_caller]
    pub(crate) fn failed(&mut self, id: u64) -> bool {
        let error = self.delivered();
        assert_eq!(error["id"], id, "{error}");
        let data = &error["error"]["data"];
        data["mayHaveRun"].as_bool().unwrap_or_else(|| panic!("{error} does not say"))
    }
}

/// Lets the machine open the session anew.
#[track_caller]
pub(crate) fn reopen(world: &mut World, kind: Kind) {
    world.answer_initialize(kind, "s2");
    let initialized = world.post();
    assert_eq!(initialized.body["method"], "notifications/initialized");
    assert_eq!(initialized.request.header("mcp-session-id"), Some("s2"));
    world.accept(&initialized);
}

/// The server does not know the session of this POST.
#[track_caller]
pub(crate) fn gone(world: &mut World, post: &Post) {
    world.status(post.exchange, 404);
    assert!(world.notices.contains(&Notice::SessionLost), "{:?}", world.notices);
}

pub(crate) fn head(status: u16, media: Media) -> Head {
    Head { status, media, session: None, replay_until: None, retry_after_ms: None }
}

pub(crate) fn limits() -> ClientLimits {
    ClientLimits::default()
}
