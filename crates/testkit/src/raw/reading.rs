//! What tests ask of a connection: so many events, the answer, the rest.

use std::time::Instant;

use serde_json::Value;

use super::connection::{Connection, End, Received};
use super::error::WireError;
use super::sse::{Comment, Event};

impl Connection {
    /// Every event handed out so far.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Every comment handed out so far.
    pub fn comments(&self) -> &[Comment] {
        &self.comments
    }

    /// The id of the last event that had one.
    pub fn last_id(&self) -> Option<&str> {
        self.events.iter().rev().find_map(|event| event.id.as_deref())
    }

    /// The next event, passing over comments.
    pub async fn event(&mut self) -> Result<Event, WireError> {
        loop {
            match self.next().await? {
                Received::Event(event) => return Ok(event),
                Received::Comment(_) => {}
                Received::End(_) => return Err(self.unexpected("another event")),
            }
        }
    }

    /// The next event that carries a message, passing over comments and empty events.
    pub async fn message(&mut self) -> Result<Event, WireError> {
        loop {
            let event = self.event().await?;
            if !event.is_empty() {
                return Ok(event);
            }
        }
    }

    /// Reads `count` messages and stops; gives the id of the last one.
    pub async fn messages(&mut self, count: usize) -> Result<String, WireError> {
        for _ in 0..count {
            self.message().await?;
        }
        match self.last_id() {
            Some(id) => Ok(id.to_owned()),
            None => Err(self.unexpected("an event id")),
        }
    }

    /// Reads until a comment whose text starts with `start`.
    pub async fn comment(&mut self, start: &str) -> Result<Comment, WireError> {
        loop {
            match self.next().await? {
                Received::Comment(comment) if comment.text.starts_with(start) => {
                    return Ok(comment);
                }
                Received::End(_) => return Err(self.unexpected(&format!("comment {start:?}"))),
                _ => {}
            }
        }
    }

    /// Reads to the end of the answer.
    pub async fn rest(&mut self) -> Result<End, WireError> {
        loop {
            if let Received::End(end) = self.next().await? {
                return Ok(end);
            }
        }
    }

    /// Reads to the end of the answer, which must be clean: a last chunk or the whole length.
    pub async fn clean_rest(&mut self) -> Result<End, WireError> {
        match self.rest().await? {
            end @ (End::LastChunk | End::Length) => Ok(end),
            _ => Err(self.unexpected("a clean end")),
        }
    }

    /// The whole body of an answer that is not a stream.
    pub async fn plain_body(&mut self) -> Result<Vec<u8>, WireError> {
        self.clean_rest().await?;
        Ok(self.plain.clone())
    }

    /// The response or error of a JSON-RPC request: the body of a JSON answer, or the first
    /// message of a stream that has an id and no method. Events before it are kept.
    pub async fn response(&mut self) -> Result<Value, WireError> {
        let head = self.head().await?;
        if !head.is_event_stream() {
            let body = self.plain_body().await?;
            return serde_json::from_slice(&body).map_err(|_| self.unexpected("a JSON body"));
        }
        loop {
            let event = self.message().await?;
            match event.message() {
                Some(message) if is_response(&message) => return Ok(message),
                Some(_) => {}
                None => return Err(self.unexpected("JSON in every event")),
            }
        }
    }

    /// Reads until the kernel holds unread bytes that contain `pattern`, and leaves them there;
    /// looks at no more than `limit_bytes`.
    pub async fn unread_contains(
        &self,
        pattern: &str,
        limit_bytes: usize,
    ) -> Result<(), WireError> {
        let end = Instant::now() + crate::deadline::WAIT;
        while Instant::now() < end {
            let bytes = self.peek(limit_bytes).await?;
            if bytes.windows(pattern.len()).any(|part| part == pattern.as_bytes()) {
                return Ok(());
            }
            crate::deadline::pause(std::time::Duration::from_millis(2)).await;
        }
        Err(self.unexpected(&format!("unread bytes with {pattern:?}")))
    }
}

/// Whether a JSON-RPC message is a response or an error.
fn is_response(message: &Value) -> bool {
    message.get("method").is_none() && message.get("id").is_some()
}
