//! The second endpoint of the older transport: its `GET` stream begins with an event `endpoint`,
//! whose data says where messages are to be posted (revision 2024-11-05).
//!
//! Nothing but such a path is open beside the MCP endpoint, and only as long as the stream that
//! announced it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::Uri;
use rejoin_core::sse::Decoder;

/// Bytes of the event that announces; a longer one is something else.
const ANNOUNCEMENT_BYTES_MAX: usize = 4 * 1024;

/// The paths that are announced now.
#[derive(Clone, Default)]
pub(super) struct Announced(Arc<Mutex<HashMap<String, Path>>>);

/// What a path of the gateway stands for.
struct Path {
    at_server: String,
    /// How many streams announced it.
    streams: usize,
}

impl Announced {
    /// The server's path for a path of the gateway.
    pub(super) fn find(&self, path: &str) -> Option<String> {
        self.paths().get(path).map(|path| path.at_server.clone())
    }

    /// Listens to a stream that was opened at this path of the gateway and that path of the server.
    pub(super) fn listen(&self, gateway_path: String, server_path: String) -> Listener {
        let decoder = Some(Decoder::new(ANNOUNCEMENT_BYTES_MAX));
        Listener { announced: self.clone(), gateway_path, server_path, decoder, path: None }
    }

    fn paths(&self) -> MutexGuard<'_, HashMap<String, Path>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads along until the first event of a stream. What it announces is void when this is dropped.
pub(super) struct Listener {
    announced: Announced,
    gateway_path: String,
    server_path: String,
    /// `None` after the first event.
    decoder: Option<Decoder>,
    /// The path of the gateway that was announced.
    path: Option<String>,
}

impl Listener {
    /// Hears the next bytes.
    pub(super) fn hear(&mut self, bytes: &[u8]) {
        let Some(decoder) = &mut self.decoder else { return };
        decoder.push(bytes);
        let event = loop {
            match decoder.next_event() {
                Ok(None) => return,
                Ok(Some(event)) if event.has_data => break Some(event),
                // A comment, or the reconnection time.
                Ok(Some(_)) => {}
                Err(_) => break None,
            }
        };
        self.decoder = None;
        let Some(event) = event.filter(|event| event.name.as_deref() == Some(b"endpoint")) else {
            return;
        };
        let Ok(reference) = std::str::from_utf8(&event.data) else { return };
        let at_gateway = resolve(&self.gateway_path, reference);
        let at_server = resolve(&self.server_path, reference);
        let (Some(at_gateway), Some(at_server)) = (at_gateway, at_server) else { return };
        tracing::debug!("a second endpoint was announced");
        let mut paths = self.announced.paths();
        let path = paths.entry(at_gateway.clone()).or_insert(Path { at_server, streams: 0 });
        path.streams += 1;
        drop(paths);
        self.path = Some(at_gateway);
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let Some(path) = &self.path else { return };
        let mut paths = self.announced.paths();
        let Some(announced) = paths.get_mut(path) else { return };
        announced.streams = announced.streams.saturating_sub(1);
        if announced.streams == 0 {
            paths.remove(path);
        }
    }
}

/// The path of a reference beside `base` (RFC 3986 section 5.2). The host, if it names one, is the
/// client's affair: messages go to the server that announced it in any case.
fn resolve(base: &str, reference: &str) -> Option<String> {
    let reference = reference.trim().split(['?', '#']).next().unwrap_or_default();
    let path = if reference.is_empty() {
        base.to_owned()
    } else if reference.contains("://") {
        reference.parse::<Uri>().ok()?.path().to_owned()
    } else if reference.starts_with("//") {
        format!("http:{reference}").parse::<Uri>().ok()?.path().to_owned()
    } else if reference.starts_with('/') {
        reference.to_owned()
    } else {
        let directory = base.rsplit_once('/').map_or("", |(directory, _)| directory);
        format!("{directory}/{reference}")
    };
    let is_plain = path.split('/').all(|segment| !matches!(segment, "." | ".."));
    (is_plain && path.parse::<Uri>().is_ok()).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(announced: &Announced, pieces: &[&str]) -> Listener {
        let mut listener = announced.listen("/mcp".into(), "/a/sse".into());
        for piece in pieces {
            listener.hear(piece.as_bytes());
        }
        listener
    }

    #[test]
    fn a_path_is_open_as_long_as_a_stream_that_announced_it() {
        let announced = Announced::default();
        let pieces = [": hi\n\nevent: endp", "oint\r\ndata: /messages/?session_id=7\r\n\r\n", "x"];
        let one = heard(&announced, &pieces);
        let other = heard(&announced, &pieces);
        assert_eq!(announced.find("/messages/").as_deref(), Some("/messages/"));
        assert_eq!(announced.find("/messages"), None);
        drop(one);
        assert!(announced.find("/messages/").is_some());
        drop(other);
        assert!(announced.find("/messages/").is_none() && announced.paths().is_empty());
    }

    #[test]
    fn only_the_first_event_announces_and_only_under_its_name() {
        let announced = Announced::default();
        let endpoint = "event: endpoint\ndata: /late\n\n";
        let long = format!("event: endpoint\ndata: /{}\n\n", "x".repeat(8_000));
        for pieces in [
            ["data: {}\n\n", endpoint],
            ["event: message\ndata: /m\n\n", endpoint],
            [&long, endpoint],
            ["event: endpoint\ndata: /a/../admin\n\n", endpoint],
        ] {
            let _listener = heard(&announced, &pieces);
            assert!(announced.paths().is_empty(), "{pieces:?}");
        }
    }

    #[test]
    fn a_reference_is_resolved_beside_the_path_of_either_side() {
        for (reference, at_gateway, at_server) in [
            ("/m?s=1", "/m", "/m"),
            ("m?s=1#x", "/m", "/a/m"),
            ("?s=1", "/mcp", "/a/sse"),
            ("https://elsewhere.example/m/n?s=1", "/m/n", "/m/n"),
            ("//elsewhere.example/m", "/m", "/m"),
        ] {
            assert_eq!(resolve("/mcp", reference).as_deref(), Some(at_gateway), "{reference}");
            assert_eq!(resolve("/a/sse", reference).as_deref(), Some(at_server), "{reference}");
        }
        assert_eq!(resolve("/mcp", "a b"), None);
    }
}
