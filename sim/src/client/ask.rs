//! One asking, from the first POST to what becomes of it.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::Client;
use super::session::Opened;
use super::stream::{For, Learned, Reading, Refusal};
use crate::history::{Asking, Leave, Outcome, What};
use crate::plan::{AskPlan, Kind};
use crate::tool::{REQUEST_META, request_meta};

/// How often a call is sent.
const ATTEMPTS_MAX: u32 = 100;
/// A stream that asks for so long a pause was taken over.
const FENCED_MS: u64 = 30_000;
/// Pause after no connection could be made, at least.
const UNREACHABLE_MS: u64 = 200;
/// From its first POST on, a client is patient for so long.
const PATIENCE: Duration = Duration::from_secs(300);
/// Errors after which there is nothing to do: the token is another call's, or nobody knows whether
/// the call ran.
const UNKNOWN: [i64; 2] = [40904, 40906];
/// The call ran, and its answer is only to be had by a cursor.
const NOT_IDEMPOTENT: i64 = 40903;

/// What a client does next.
enum Next {
    Settle(Outcome),
    /// The call again, after so many milliseconds.
    Repeat(u64),
    /// The rest of a stream, after so many milliseconds.
    Resume(String, u64),
}

/// An asking that is not settled yet.
struct Pursuit<'a> {
    client: &'a Client,
    plan: &'a AskPlan,
    asking: Asking,
    attempt: u32,
    /// The newest request's id.
    id: u64,
    leaves: std::vec::IntoIter<(u64, Leave)>,
    /// The ledger epoch at attempt 1.
    epoch: Option<u64>,
    has_chased: bool,
}

impl Client {
    fn begin<'a>(&'a self, plan: &'a AskPlan) -> Pursuit<'a> {
        let asking = self.clients.next_asking();
        let (client, key, charge) = (self.number, plan.work.key, plan.work.charge);
        let asked = What::Asked { client, asking, key, token: plan.token, charge };
        self.clients.history.record(asked);
        let (leaves, epoch, has_chased) = (plan.leaves.clone().into_iter(), None, false);
        Pursuit { client: self, plan, asking, attempt: 0, id: 0, leaves, epoch, has_chased }
    }

    /// Wants something, and takes what comes of the first try.
    pub async fn ask_once(&self, plan: AskPlan) {
        let mut pursuit = self.begin(&plan);
        let opened = self.session().await;
        if let Some(opened) = opened {
            // Whatever it says.
            let _next = pursuit.post(&opened).await;
        }
        let (client, asking, outcome) = (self.number, pursuit.asking, Outcome::Dropped);
        self.clients.history.record(What::Settled { client, asking, outcome });
    }

    /// Wants something once, until it is settled.
    pub async fn ask(&self, plan: AskPlan) {
        let mut pursuit = self.begin(&plan);
        let asking = pursuit.asking;
        let outcome = match plan.cancel_ms {
            None => pursuit.run().await,
            Some(after_ms) => {
                let after = Instant::now() + Duration::from_millis(after_ms);
                let settled = tokio::select! {
                    biased;
                    outcome = pursuit.run() => Some(outcome),
                    () = sleep_until(after) => None,
                };
                match settled {
                    Some(outcome) => outcome,
                    None => pursuit.cancel().await,
                }
            }
        };
        let client = self.number;
        self.clients.history.record(What::Settled { client, asking, outcome });
    }
}

impl Pursuit<'_> {
    async fn run(&mut self) -> Outcome {
        let began = Instant::now();
        let mut next = Next::Repeat(0);
        let mut opened: Option<Opened> = None;
        loop {
            if began.elapsed() > PATIENCE || self.attempt >= ATTEMPTS_MAX {
                return Outcome::Patience;
            }
            next = match next {
                Next::Settle(outcome) => return outcome,
                Next::Repeat(wait_ms) => {
                    sleep(Duration::from_millis(wait_ms)).await;
                    let Some(current) = self.client.session().await else {
                        return Outcome::Patience;
                    };
                    let next = self.post(&current).await;
                    opened = Some(current);
                    next
                }
                Next::Resume(cursor, wait_ms) => {
                    sleep(Duration::from_millis(wait_ms)).await;
                    match &opened {
                        Some(opened) => self.resume(opened, cursor).await,
                        None => Next::Repeat(0),
                    }
                }
            };
        }
    }

    fn body(&mut self, opened: &Opened) -> Value {
        let keeps_id = self.client.plan.kind == Kind::Repeats { same_id: true };
        if !keeps_id || self.id == 0 {
            self.id = self.client.session.next_id();
        }
        let epoch = *self.epoch.get_or_insert(opened.ledger_epoch);
        let mut meta = json!({ "progressToken": format!("p{}", self.id) });
        meta[REQUEST_META] = json!(request_meta(self.client.number, self.id));
        if let Some(token) = self.plan.token {
            meta["dev.rejoin/dedup-token"] = json!(format!("token-{token}"));
            meta["dev.rejoin/attempt"] = json!(self.attempt);
            meta["dev.rejoin/epoch"] = json!(epoch);
        }
        let work = &self.plan.work;
        let params = json!({ "name": work.tool(), "arguments": work.arguments(), "_meta": meta });
        json!({ "jsonrpc": "2.0", "id": self.id, "method": "tools/call", "params": params })
    }

    async fn post(&mut self, opened: &Opened) -> Next {
        self.attempt += 1;
        let body = self.body(opened);
        let on = For { asking: self.asking, opened };
        let reading =
            self.client.post(on, (self.attempt, self.id), &body, self.plan.pause_ms).await;
        if let Err(Learned::Unreachable) = reading {
            self.attempt -= 1;
            return Next::Repeat(self.plan.retry_ms.max(UNREACHABLE_MS));
        }
        let leave = self.leaves.next();
        let (learned, cursor) = self.follow(on, reading, leave).await;
        self.after(on, learned, cursor)
    }

    async fn resume(&mut self, opened: &Opened, cursor: String) -> Next {
        let on = For { asking: self.asking, opened };
        let reading = self.client.get(on, cursor.clone(), self.plan.pause_ms).await;
        let may_chase =
            self.plan.cancel_ms.is_none() && !std::mem::replace(&mut self.has_chased, true);
        let chase = self.plan.chase.filter(|_| may_chase);
        let chase = async {
            if let Some((after_ms, key)) = chase {
                sleep(Duration::from_millis(after_ms)).await;
                Box::pin(self.client.ask(AskPlan::plain(key))).await;
            }
        };
        let (followed, ()) = tokio::join!(self.follow(on, reading, None), chase);
        match followed {
            (Learned::Unreachable, _) => {
                Next::Resume(cursor, self.plan.retry_ms.max(UNREACHABLE_MS))
            }
            (Learned::Status(status), _) if status != 405 => Next::Resume(cursor, 1_000),
            (learned, moved) => self.after(on, learned, moved.or(Some(cursor))),
        }
    }

    /// Reads a stream to its end, or until the client leaves it.
    async fn follow(
        &self,
        on: For<'_>,
        reading: Result<Reading, Learned>,
        leave: Option<(u64, Leave)>,
    ) -> (Learned, Option<String>) {
        let mut reading = match reading {
            Ok(reading) => reading,
            Err(learned) => return (learned, None),
        };
        let learned = match leave {
            None => Some(self.client.read(on, &mut reading).await),
            Some((after_ms, _)) => {
                let time = Duration::from_millis(after_ms);
                timeout(time, self.client.read(on, &mut reading)).await.ok()
            }
        };
        let cursor = reading.cursor.clone();
        if reading.retry_ms.is_some_and(|retry_ms| retry_ms >= FENCED_MS)
            && learned == Some(Learned::Lost)
        {
            // Another connection has the stream.
            self.client.finish(reading);
            sleep(Duration::from_millis(FENCED_MS)).await;
            return (Learned::Lost, cursor);
        }
        match (learned, leave) {
            (None, Some((_, how))) => {
                self.client.leave(reading, how);
                (Learned::Lost, cursor)
            }
            (learned, _) => {
                self.client.finish(reading);
                (learned.unwrap_or(Learned::Lost), cursor)
            }
        }
    }

    fn after(&self, on: For<'_>, learned: Learned, cursor: Option<String>) -> Next {
        let retry_ms = self.plan.retry_ms;
        let resumes = self.client.plan.kind.resumes();
        match (learned, cursor) {
            (Learned::Answer { exec, recorded }, _) => {
                Next::Settle(Outcome::Answered(exec, recorded))
            }
            (Learned::Refused(refusal), _) => self.refused(refusal),
            (Learned::Lost, Some(cursor)) if resumes => Next::Resume(cursor, retry_ms),
            (Learned::Lost | Learned::Unreachable, _) => Next::Repeat(retry_ms),
            (Learned::Gone, _) => {
                self.client.session.forget(on.opened.number);
                Next::Repeat(retry_ms)
            }
            (Learned::Status(405), _) => Next::Settle(Outcome::NothingToResume),
            (Learned::Status(_), _) => Next::Repeat(retry_ms.max(1_000)),
        }
    }

    fn refused(&self, refusal: Refusal) -> Next {
        let Refusal { code, is_rejoins, send_again, retry_ms, cursor } = refusal;
        if !is_rejoins {
            return Next::Settle(Outcome::Failed(code));
        }
        if send_again {
            return Next::Repeat(retry_ms.max(1));
        }
        if UNKNOWN.contains(&code) {
            return Next::Settle(Outcome::Refused(code));
        }
        match cursor {
            Some(cursor) if self.client.plan.kind.resumes() => Next::Resume(cursor, 1),
            _ if code == NOT_IDEMPOTENT => Next::Settle(Outcome::Refused(code)),
            // To look again is always safe.
            _ => Next::Repeat(retry_ms.max(self.plan.retry_ms)),
        }
    }

    async fn cancel(&self) -> Outcome {
        let Some(opened) = self.client.session().await else { return Outcome::Dropped };
        let params = json!({ "requestId": self.id, "reason": "not wanted any more" });
        let method = "notifications/cancelled";
        let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        let (session, request) = (opened.number, self.id);
        let history = &self.client.clients.history;
        history.record(What::Cancelling { session, request });
        let told = timeout(Duration::from_secs(20), self.client.tell(&opened, &message)).await;
        match told {
            Ok(Ok(202)) => {
                history.record(What::CancelTaken { session, request });
                Outcome::Cancelled
            }
            Ok(Ok(_)) => Outcome::Cancelled,
            _ => Outcome::Dropped,
        }
    }
}
