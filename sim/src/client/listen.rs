//! A client that reads its session's standalone stream, and resumes it when it lost it.

use std::io;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::Client;
use super::http::{Exchange, Item, request};
use super::session::Opened;
use crate::history::{Leave, Mark, What};
use crate::net::marks;
use crate::plan::ListenPlan;

/// It listens for so long.
const LISTEN_MAX: Duration = Duration::from_secs(50);
/// As for calls.
const SILENCE_MAX: Duration = Duration::from_secs(40);

impl Client {
    /// Listens until its time is over, or its session is gone.
    pub async fn listen(&self, plan: &ListenPlan) {
        let Some(opened) = self.session().await else { return };
        let until = Instant::now() + LISTEN_MAX;
        let mut leaves = plan.leaves.iter();
        let mut cursor = None;
        while Instant::now() < until {
            let rest = until - Instant::now();
            let leave = leaves.next().map(|after_ms| Duration::from_millis(*after_ms));
            let time = leave.map_or(rest, |leave| leave.min(rest));
            match timeout(time, self.hear(&opened, &mut cursor)).await {
                Ok(Ok(404 | 405)) => break,
                // It broke, or ended, or was left.
                _ => sleep(Duration::from_millis(plan.retry_ms)).await,
            }
        }
        self.clients.history.record(What::Deaf { session: opened.number });
    }

    /// One connection of it. `cursor` moves with what is read, also if this future is dropped.
    async fn hear(&self, opened: &Opened, cursor: &mut Option<String>) -> io::Result<u16> {
        let end = self.clients.net.connect(self.number).await?;
        let (client, session, conn) = (self.number, opened.number, end.conn());
        let resumes = cursor.is_some();
        self.clients.history.record(What::Listening { client, session, conn, resumes });
        let mut headers = self.headers(opened);
        headers.extend(cursor.clone().map(|cursor| ("last-event-id", cursor)));
        let mut exchange = Exchange::send(end, &request("GET", &headers, "")).await?;
        let head = timeout(SILENCE_MAX, exchange.head()).await??;
        let replays = head.header("mcp-replay-until").is_some();
        self.clients.history.record(What::Head { conn, status: head.status, replays });
        loop {
            match timeout(SILENCE_MAX, exchange.next()).await?? {
                Item::Event { id, data, .. } => {
                    *cursor = id.or(cursor.take());
                    for (mark, _) in marks(&data) {
                        if let Mark::Note(_, note) = mark {
                            self.clients.history.record(What::Heard { session, conn, note });
                        }
                    }
                }
                Item::End => {
                    self.clients.history.record(What::Whole { conn });
                    exchange.leave(Leave::Close);
                    return Ok(head.status);
                }
                Item::Comment(_) | Item::Whole(_) => {}
            }
        }
    }
}
