//! What was said on the wire, in the order in which it was, without what is secret.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::limits::{ENTRIES_MAX, MASKED_BYTES_MAX, SECRET_BYTES_MIN, SHOWN_CHARS_MAX};
use crate::visible::visible;
use crate::wire::{Head, Request};

/// One line of a transcript.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// Milliseconds since the hazard began.
    pub at_ms: u64,
    /// Number of the connection.
    pub connection: u64,
    /// `>` sent, `<` received, `*` neither.
    pub direction: char,
    /// What.
    pub text: String,
}

impl std::fmt::Display for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:>7} ms  #{:<2} {} ", self.at_ms, self.connection, self.direction)?;
        f.write_str(&self.text)
    }
}

/// Is told each line as it is written.
pub(crate) type Watcher = Arc<dyn Fn(&Entry) + Send + Sync>;

/// The transcript of one hazard.
#[derive(Clone)]
pub struct Transcript(Arc<Shared>);

struct Shared {
    started: Instant,
    watcher: Option<Watcher>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    entries: Vec<Entry>,
    left_out: usize,
    connections: u64,
    secrets: Vec<(String, String)>,
}

impl Transcript {
    /// An empty one.
    pub fn new(watcher: Option<Watcher>) -> Self {
        Self(Arc::new(Shared { started: Instant::now(), watcher, state: Mutex::default() }))
    }

    /// Shows a session id by the first characters of its hash from now on.
    pub(crate) fn hide(&self, session_id: &str) {
        if session_id.is_empty() {
            return;
        }
        let shown = format!("session:{}", hash8(session_id));
        self.state().secrets.push((session_id.to_owned(), shown));
    }

    /// Shows the value of a header field of the user's as `***` from now on, and of a scheme with a
    /// token the token alone, too: a server may send back what it got.
    pub(crate) fn hide_header(&self, value: &str) {
        let token = value.rsplit(' ').next().unwrap_or_default();
        for secret in [value, token] {
            if secret.len() >= SECRET_BYTES_MIN {
                self.state().secrets.push((secret.to_owned(), "***".to_owned()));
            }
        }
    }

    /// A text without what is secret.
    pub(crate) fn masked(&self, text: &str) -> String {
        let mut shown = text.to_owned();
        for (secret, instead) in &self.state().secrets {
            shown = shown.replace(secret, instead);
        }
        shown
    }

    /// A new connection.
    pub(crate) fn line(&self) -> Line {
        let mut state = self.state();
        state.connections += 1;
        Line { transcript: self.clone(), connection: state.connections }
    }

    /// All lines, and one that says how many were left out.
    pub fn entries(&self) -> Vec<Entry> {
        let state = self.state();
        let mut entries = state.entries.clone();
        if let (true, Some(last)) = (state.left_out > 0, entries.last().cloned()) {
            let text = format!("... {} more lines", state.left_out);
            entries.push(Entry { connection: 0, direction: '*', text, ..last });
        }
        entries
    }

    fn write(&self, connection: u64, direction: char, text: String) {
        let at_ms = u64::try_from(self.0.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut state = self.state();
        let whole_bytes = text.len();
        let mut shown = text;
        shown.truncate(shown.floor_char_boundary(MASKED_BYTES_MAX));
        for (secret, instead) in &state.secrets {
            shown = shown.replace(secret, instead);
        }
        let entry = Entry { at_ms, connection, direction, text: shortened(&shown, whole_bytes) };
        if let Some(watcher) = &self.0.watcher {
            watcher(&entry);
        }
        if state.entries.len() < ENTRIES_MAX {
            state.entries.push(entry);
        } else {
            state.left_out += 1;
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes what happens on one connection.
#[derive(Clone)]
pub struct Line {
    transcript: Transcript,
    connection: u64,
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "#{}", self.connection)
    }
}

/// Fields that the probe may show; of all others only the name is.
const SHOWN: [&str; 9] = [
    "accept",
    "content-type",
    "host",
    "last-event-id",
    "mcp-protocol-version",
    "mcp-replay-until",
    "mcp-stream-resumable",
    "origin",
    "retry-after",
];

impl Line {
    pub(crate) fn sent(&self, request: &Request) {
        let fields = fields(&request.headers);
        self.write('>', format!("{}{fields} {}", request.method, request.body));
    }

    pub(crate) fn answered(&self, head: &Head) {
        self.write('<', format!("{}{}", head.status, fields(&head.headers)));
    }

    pub(crate) fn heard(&self, id: Option<&str>, data: &str) {
        self.write('<', format!("id {}: {data}", id.unwrap_or("-")));
    }

    pub(crate) fn note(&self, text: &str) {
        self.write('*', text.to_owned());
    }

    fn write(&self, direction: char, text: String) {
        self.transcript.write(self.connection, direction, text);
    }
}

fn fields(headers: &[(String, String)]) -> String {
    let mut text = String::new();
    for (name, value) in headers {
        let name = name.to_ascii_lowercase();
        if name == "mcp-session-id" {
            text.push_str(&format!(" [{name}: session:{}]", hash8(value)));
        } else if SHOWN.contains(&name.as_str()) {
            text.push_str(&format!(" [{name}: {value}]"));
        } else if name == "authorization" {
            text.push_str(" [authorization: ***]");
        }
    }
    text
}

/// A text's beginning, as it may be shown, and how long all of it was.
fn shortened(text: &str, whole_bytes: usize) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}... ({whole_bytes} bytes)", visible(&text[..end])),
        None => visible(text).into_owned(),
    }
}

/// The first 8 characters of a hash, to tell two secrets apart without showing them.
pub(crate) fn hash8(secret: &str) -> String {
    Sha256::digest(secret).iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_masked_wherever_they_stand_and_long_texts_cut() {
        let transcript = Transcript::new(None);
        transcript.hide("zqsession");
        transcript.hide_header("Bearer zqtoken");
        let line = transcript.line();
        let request = Request::new("POST")
            .header("Authorization", "Bearer zqtoken")
            .header("X-Team", "zqteam")
            .header("Mcp-Session-Id", "zqsession");
        line.sent(&request.body("x".repeat(9_000)));
        line.heard(Some("zqsession_7"), "{\"token\": \"zqtoken\"}");
        let text: Vec<String> = transcript.entries().iter().map(ToString::to_string).collect();
        let text = text.join("\n");
        assert!(!text.contains("zq"), "{text}");
        assert!(text.contains("[authorization: ***]") && text.contains("session:"), "{text}");
        assert!(text.len() < 1_200 && text.contains("bytes)"), "{text}");
    }

    #[test]
    fn what_is_left_out_is_counted() {
        let transcript = Transcript::new(None);
        let line = transcript.line();
        for _ in 0..ENTRIES_MAX + 3 {
            line.note("x");
        }
        let entries = transcript.entries();
        assert_eq!(entries.len(), ENTRIES_MAX + 1);
        assert_eq!(entries[ENTRIES_MAX].text, "... 3 more lines");
    }
}
