//! Sessions that outlive the process that opened them: the server has all of theirs, and here a
//! few values are enough to go on.
use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Uri};
use rejoin_core::id::{digest, hex};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::Origin;
use super::calls::Calls;
use super::credential::select;
use super::cursor::Cursor;
use super::intake::{Intake, Streams};
use super::open::queue_max;
use super::session::{Gate, Session, Terms};
use crate::upstream::outlet::events_max;
use crate::upstream::{Continuation, Opening, Resumed, Resumption};

/// What the continuation of a session holds.
#[derive(Serialize, Deserialize)]
struct Kept {
    /// SHA-256 of the URL that the operator gave: a session of another is not looked for.
    url: String,
    /// The URL behind the redirects of `initialize`.
    uri: String,
    /// `Mcp-Session-Id`.
    session: Option<String>,
    /// The revision that was agreed.
    revision: Option<String>,
    /// True if headers of the client were passed on. They may be credentials, which are not
    /// written down: the client has to come back with them first.
    has_client_headers: bool,
}

/// How a session that was opened now goes on in another process; `None`: it cannot.
pub(super) fn continuation(
    origin: &Origin,
    uri: &Uri,
    terms: &Terms,
    client: &HeaderMap,
) -> Option<Continuation> {
    let text = |value: &HeaderValue| value.to_str().ok().map(str::to_owned);
    let optional = |value: &Option<HeaderValue>| match value {
        Some(value) => text(value).map(Some),
        None => Some(None),
    };
    let kept = Kept {
        url: url_of(origin),
        uri: uri.to_string(),
        session: optional(&terms.id)?,
        revision: optional(&terms.revision)?,
        has_client_headers: !client.is_empty(),
    };
    let kept = serde_json::to_string(&kept).ok()?;
    origin.outlives.then(|| Continuation::new(kept))
}

fn url_of(origin: &Origin) -> String {
    hex(&digest(origin.uri.to_string().as_bytes()))
}

/// Goes on with a session, if it is one of this URL.
pub(super) fn resume(origin: &Arc<Origin>, resumption: Resumption) -> Option<Resumed> {
    let Resumption { continuation, initialize, headers, is_initialized, calls, standalone } =
        resumption;
    let kept: Kept = serde_json::from_str(continuation.expose()).ok()?;
    if !origin.outlives || kept.url != url_of(origin) {
        return None;
    }
    let uri = kept.uri.parse().ok()?;
    let header = |text: Option<String>| text.map(HeaderValue::try_from).transpose().ok();
    let terms = Terms { id: header(kept.session)?, revision: header(kept.revision)? };
    let limits = &origin.limits;
    let (commands, commanded) = mpsc::channel(queue_max(limits));
    let (events, received) = mpsc::channel(events_max(limits));
    let told = Calls::new(events.clone(), limits.line_bytes_max.saturating_mul(2));
    // What is not passed on any more is not waited for.
    let passes = !origin.forwarded.is_empty();
    let is_known = !kept.has_client_headers || !headers.is_empty() || !passes;
    let opening = Opening { initialize, headers: select(&origin.forwarded, &headers) };
    let session = Session::new(Arc::clone(origin), uri, terms, told, opening);
    session.client.send_replace(is_known);
    if is_initialized {
        session.gate.send_replace(Gate::Behind);
    }
    let pressure = Some(session.pressure.clone());
    let calls = calls.into_iter().map(|(call, cursor)| (call, Cursor::from_text(&cursor)));
    let standalone = standalone.and_then(|cursor| Cursor::from_text(&cursor));
    let streams = Streams { rest: None, calls: calls.collect(), standalone };
    Intake::start(Arc::new(session), commanded, events, streams);
    Some(Resumed { commands, events: received, pressure })
}
