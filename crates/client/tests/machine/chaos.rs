//! Whatever servers and networks do, in any order: no call of unknown outcome is sent again without
//! a token, none is told as not run that may have run, each is answered once, and all end.

use std::collections::HashMap;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::support::{ATTEMPT, Kind, Post, TOKEN, World, head};
use rejoin_client::machine::{Answer, ExchangeId, Input, Media, Method, Request};

/// Runs, each of another seed.
const RUNS: u64 = 300;
/// Steps of one run.
const STEPS: u64 = 150;

/// What a call's POSTs came to, as the server knows.
#[derive(Default)]
struct Account {
    /// POSTs that may have run.
    ran: usize,
    token: Option<Value>,
    last_attempt: u64,
}

/// An exchange, as the network sees it.
struct Exchange {
    id: ExchangeId,
    request: Request,
    stream: Option<u64>,
    whole: Option<u16>,
}

struct Chaos {
    world: World,
    kind: Kind,
    random: u64,
    exchanges: Vec<Exchange>,
    accounts: HashMap<u64, Account>,
    cancelled: Vec<u64>,
    answered: HashMap<u64, usize>,
    last_call: u64,
    sessions: u64,
}

impl Chaos {
    fn new(seed: u64, kind: Kind) -> Self {
        Self {
            world: World::opened(kind),
            kind,
            random: seed,
            exchanges: Vec::new(),
            accounts: HashMap::new(),
            cancelled: Vec::new(),
            answered: HashMap::new(),
            last_call: 0,
            sessions: 1,
        }
    }

    /// A number below `below` (SplitMix64).
    fn pick(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below
    }

    fn step(&mut self) {
        match self.pick(10) {
            0 => {
                self.last_call += 1;
                self.world.call(self.last_call, "charge");
            }
            1 if self.last_call > 0 => {
                let id = self.pick(self.last_call) + 1;
                if !self.answered.contains_key(&id) && self.pick(4) == 0 {
                    self.cancelled.push(id);
                    self.world.host(json!({ "jsonrpc": "2.0", "method":
                        "notifications/cancelled", "params": { "requestId": id } }));
                }
            }
            2 | 3 => {
                let ms = [1, 50, 700, 40_000][usize::try_from(self.pick(4)).unwrap_or(0)];
                self.world.pass(ms);
            }
            _ => self.answer(),
        }
        self.look();
    }

    /// Takes what the machine has asked for and said.
    fn look(&mut self) {
        while let Some((id, request)) = self.world.opened.pop_front() {
            self.opened(&request);
            self.exchanges.push(Exchange { id, request, stream: None, whole: None });
        }
        let closed = std::mem::take(&mut self.world.closed);
        for id in closed {
            // What an answer says of a call is said by its head.
            let has_begun = |exchange: &Exchange| {
                exchange.id == id && (exchange.stream.is_some() || exchange.whole.is_some())
            };
            let has_begun = self.exchanges.iter().any(has_begun);
            self.ends(id, !has_begun);
        }
        while let Some(message) = self.world.delivered.pop_front() {
            self.told(&message);
        }
    }

    /// The call that a POST carries.
    fn call_of(request: &Request) -> Option<u64> {
        let body: Value = serde_json::from_slice(&request.body).ok()?;
        body["params"]["arguments"]["n"].as_u64()
    }

    fn opened(&mut self, request: &Request) {
        let Some(call) = Self::call_of(request) else { return };
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let meta = &body["params"]["_meta"];
        let account = self.accounts.entry(call).or_default();
        if self.kind == Kind::Plain {
            assert_eq!(account.ran, 0, "call {call} may have run, and is sent again");
            return;
        }
        let token = account.token.get_or_insert_with(|| meta[TOKEN].clone());
        assert_eq!(*token, meta[TOKEN], "call {call} has another token");
        assert!(token.is_string());
        let attempt = meta[ATTEMPT].as_u64().unwrap_or(0);
        if account.ran > 0 {
            assert!(attempt > 1, "call {call} may have run, and says that it is new");
        }
        account.last_attempt = attempt;
    }

    fn told(&mut self, message: &Value) {
        let Some(id) = message["id"].as_u64().filter(|_| message.get("method").is_none()) else {
            return;
        };
        let answers = self.answered.entry(id).or_default();
        *answers += 1;
        assert_eq!(*answers, 1, "call {id} was answered twice");
        assert!(!self.cancelled.contains(&id), "call {id} was cancelled");
        let data = &message["error"]["data"];
        if data["mayHaveRun"] == false {
            let ran = self.accounts.get(&id).map_or(0, |account| account.ran);
            assert_eq!(ran, 0, "call {id} may have run: {message}");
        }
        if message.get("error").is_some() {
            assert!(data["mayHaveRun"].is_boolean(), "{message}");
        }
    }

    /// An exchange is over. `ran`: what it carried may have run.
    fn ends(&mut self, id: ExchangeId, ran: bool) {
        let Some(at) = self.exchanges.iter().position(|exchange| exchange.id == id) else { return };
        let exchange = self.exchanges.swap_remove(at);
        if let Some(call) = Self::call_of(&exchange.request).filter(|_| ran) {
            self.accounts.entry(call).or_default().ran += 1;
        }
    }

    /// Something happens to one exchange.
    fn answer(&mut self) {
        if self.exchanges.is_empty() {
            return;
        }
        let at = usize::try_from(self.pick(self.exchanges.len() as u64)).unwrap_or(0);
        let id = self.exchanges[at].id;
        match (self.exchanges[at].stream, self.exchanges[at].whole) {
            (Some(events), _) => self.goes_on(at, id, events),
            (None, Some(status)) => self.comes_whole(at, id, status),
            (None, None) => self.begins(at, id),
        }
    }

    fn begins(&mut self, at: usize, id: ExchangeId) {
        match self.pick(8) {
            0 => {
                self.ends(id, false);
                self.world.answer(id, Answer::Unsent("refused".to_owned()));
            }
            1 => {
                self.ends(id, true);
                self.world.cut(id);
            }
            2..=4 => {
                self.exchanges[at].stream = Some(0);
                let mut head = head(200, Media::Stream);
                if self.exchanges[at].request.method == Method::Get && self.pick(2) == 0 {
                    head.replay_until = Some(format!("1-{}-3", id.0));
                }
                self.sign(at, &mut head);
                self.world.answer(id, Answer::Head(head));
            }
            _ => {
                let statuses = [200, 202, 400, 401, 404, 405, 409, 429, 500, 502, 503];
                let picked = usize::try_from(self.pick(statuses.len() as u64)).unwrap_or(0);
                let status = statuses[picked];
                self.exchanges[at].whole = Some(status);
                let mut head = head(status, Media::Whole);
                head.retry_after_ms = (status == 503 && self.pick(2) == 0).then_some(1_000);
                self.sign(at, &mut head);
                let may_have_run = matches!(status, 200 | 202 | 500 | 502 | 503);
                if may_have_run && let Some(call) = Self::call_of(&self.exchanges[at].request) {
                    self.accounts.entry(call).or_default().ran += 1;
                }
                self.world.answer(id, Answer::Head(head));
            }
        }
        if self.exchanges.get(at).is_some_and(|exchange| exchange.stream.is_some())
            && let Some(call) = Self::call_of(&self.exchanges[at].request)
        {
            self.accounts.entry(call).or_default().ran += 1;
        }
    }

    /// The answer to `initialize` opens a session.
    fn sign(&mut self, at: usize, head: &mut rejoin_client::machine::Head) {
        let body: Value =
            serde_json::from_slice(&self.exchanges[at].request.body).unwrap_or_default();
        if body["method"] == "initialize" {
            self.sessions += 1;
            head.session = Some(format!("s{}", self.sessions));
        }
    }

    fn post(&self, at: usize) -> Post {
        let exchange = &self.exchanges[at];
        let body = serde_json::from_slice(&exchange.request.body).unwrap_or_default();
        Post { exchange: exchange.id, request: exchange.request.clone(), body }
    }

    fn result(&self, post: &Post) -> Value {
        if post.body["method"] != "initialize" {
            return post.result("done");
        }
        let mut capabilities = json!({});
        if let Kind::Rejoin(epoch) = self.kind {
            capabilities["experimental"] =
                json!({ "dev.rejoin/continuity": { "version": 1, "epoch": epoch } });
        }
        json!({ "jsonrpc": "2.0", "id": post.id(), "result": {
            "protocolVersion": "2025-11-25", "capabilities": capabilities } })
    }

    fn goes_on(&mut self, at: usize, id: ExchangeId, events: u64) {
        let post = self.post(at);
        self.exchanges[at].stream = Some(events + 1);
        let name = format!("1-{}-{events}", id.0);
        match self.pick(8) {
            0 => {
                self.ends(id, false);
                self.world.cut(id);
            }
            1 => {
                self.ends(id, false);
                self.world.answer(id, Answer::Ended);
            }
            2 => self.world.sse(id, &format!("id: {name}\nretry: 30\ndata:\n\n")),
            3 => self.world.sse(id, &format!("data: {}\n\n", post.progress(events))),
            4 => {
                let question = json!({ "jsonrpc": "2.0", "id": events, "method": "roots/list" });
                self.world.event(id, &name, &question);
            }
            5 => self.world.sse(id, "data: nonsense\n\n: comment\n\n"),
            6 => self.world.event(id, &name, &self.result(&post)),
            _ => self.world.event(id, &name, &post.progress(events)),
        }
    }

    fn comes_whole(&mut self, at: usize, id: ExchangeId, status: u16) {
        let post = self.post(at);
        self.ends(id, false);
        if self.pick(6) == 0 {
            // The head had come: what it said of the call holds.
            return self.world.cut(id);
        }
        if status == 409 && self.kind != Kind::Plain {
            let refusal = self.refusal(&post);
            return self.world.answer(id, Answer::Body(Bytes::from(refusal.to_string())));
        }
        let is_answered = status == 200 && self.pick(3) > 0;
        let body = if is_answered { self.result(&post).to_string() } else { String::new() };
        self.world.answer(id, Answer::Body(Bytes::from(body)));
    }

    fn refusal(&mut self, post: &Post) -> Value {
        let reasons = ["stream_not_drained", "request_in_flight", "outcome_unknown", "state_lost"];
        let picked = usize::try_from(self.pick(reasons.len() as u64)).unwrap_or(0);
        let mut data = json!({ "by": "rejoin", "reason": reasons[picked], "retryAfterMs": 2_000,
            "sendAgain": self.pick(2) == 0 });
        if self.pick(2) == 0 {
            data["lastEventId"] = json!("1-9-0");
            data["originalRequestId"] = post.id().clone();
        }
        json!({ "jsonrpc": "2.0", "id": post.id(),
            "error": { "code": 40900 + picked, "message": "Not run.", "data": data } })
    }

    /// The server is gone for good.
    fn dies(&mut self) {
        for _ in 0..20_000 {
            self.look();
            if self.world.machine.pending_calls() == 0 {
                return;
            }
            if self.exchanges.is_empty() {
                let wake_ms = self.world.machine.wake_ms();
                let wake_ms = wake_ms.unwrap_or_else(|| panic!("{:?}", self.world.machine));
                self.world.pass(wake_ms.saturating_sub(self.world.now_ms).max(1));
                continue;
            }
            let exchange = &self.exchanges[0];
            let (id, has_begun) =
                (exchange.id, exchange.stream.is_some() || exchange.whole.is_some());
            self.ends(id, has_begun);
            match has_begun {
                true => self.world.cut(id),
                false => self.world.answer(id, Answer::Unsent("gone".to_owned())),
            }
        }
        panic!("calls never end: {:?}", self.world.machine);
    }
}

fn run(seed: u64, kind: Kind) {
    let mut chaos = Chaos::new(seed, kind);
    for _ in 0..STEPS {
        chaos.step();
    }
    chaos.dies();
    for id in 1..=chaos.last_call {
        let answers = chaos.answered.get(&id).copied().unwrap_or(0);
        let expected = usize::from(!chaos.cancelled.contains(&id));
        assert_eq!(answers, expected, "call {id}");
    }
    chaos.world.input(Input::HostGone);
    chaos.world.pass(60_000);
    assert!(chaos.world.is_done);
}

#[test]
fn no_call_of_a_plain_server_runs_twice_or_is_told_wrongly_or_never_ends() {
    for seed in 0..RUNS {
        run(seed, Kind::Plain);
    }
}

#[test]
fn every_attempt_of_a_call_says_by_its_token_which_call_it_is() {
    for seed in 0..RUNS {
        run(seed, Kind::Rejoin(1));
    }
}
