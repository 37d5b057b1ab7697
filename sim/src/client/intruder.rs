//! A client that has come by another principal's session id and cursor, and tries what they open.

use std::io;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::json;
use tokio::time::timeout;

use super::http::{Exchange, request};
use super::session::Opened;
use super::{Client, Clients};
use crate::history::What;

/// It waits so long for each answer.
const ANSWER_MAX: Duration = Duration::from_secs(15);

/// What has got around of a session.
pub struct Known {
    principal: Option<u32>,
    opened: Opened,
    cursor: Option<String>,
}

impl Clients {
    fn board(&self) -> MutexGuard<'_, Vec<Known>> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn publish(&self, principal: Option<u32>, opened: &Opened) {
        self.board().push(Known { principal, opened: opened.clone(), cursor: None });
    }

    pub fn reveal(&self, session: usize, cursor: &str) {
        let mut board = self.board();
        if let Some(known) = board.iter_mut().find(|known| known.opened.number == session) {
            known.cursor = Some(cursor.to_owned());
        }
    }
}

impl Client {
    /// Nothing of it may tell the session from one that never was.
    pub async fn intrude(&self) {
        let victim = {
            let board = self.clients.board();
            let foreign = board.iter().rev().find(|known| known.principal != self.plan.principal);
            foreign.map(|known| (known.opened.clone(), known.cursor.clone()))
        };
        let Some((victim, cursor)) = victim else { return };
        let headers = self.headers(&victim);
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }).to_string();
        let mut tried = vec![
            (request("POST", &headers, &call), [404, 503]),
            (request("DELETE", &headers, ""), [404, 503]),
        ];
        if let Some(cursor) = cursor {
            let with = |mut headers: Vec<(&'static str, String)>| {
                headers.push(("last-event-id", cursor.clone()));
                request("GET", &headers, "")
            };
            tried.push((with(headers), [404, 503]));
            if let Some(own) = self.session.current() {
                tried.push((with(self.headers(&own)), [405, 503]));
            }
        }
        for (message, expected) in tried {
            // On a path that is broken nothing is learned.
            if let Ok(Ok(status)) = timeout(ANSWER_MAX, self.try_out(&message)).await {
                let as_expected = expected.contains(&status);
                self.clients.history.record(What::Intruded { status, as_expected });
            }
        }
    }

    async fn try_out(&self, message: &[u8]) -> io::Result<u16> {
        let end = self.clients.net.connect(self.number).await?;
        Ok(Exchange::send(end, message).await?.head().await?.status)
    }
}
