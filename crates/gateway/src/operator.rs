//! Sessions as an operator sees them: `rejoin sessions`, live by the admin address, stopped by the
//! store. Nothing secret is in it: no session id, no credential, no payload.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode, Uri};
use http_body_util::Full;
use rejoin_core::id::{CallId, hex};
use rejoin_core::session::{Session, SessionView};
use rejoin_core::settings::Settings;
use rejoin_store::{Loaded, PrincipalKey, SessionKey};
use serde::Serialize;
use serde_json::json;

use crate::admin::{self, JSON, text};
use crate::gateway::Gateway;
use crate::handle::{Delivered, SessionTag};
use crate::registry::Entry;
use crate::revive::{Origin, parts_of};

/// Header that a page in a browser cannot send without being asked for leave, which it does not
/// get: whoever sends it is no page.
pub const OPERATOR_HEADER: &str = "x-rejoin-operator";

/// One session.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Described {
    /// What logs call it.
    pub session: String,
    /// The SHA-256 of its id.
    pub key: String,
    /// The endpoint where it was opened; `None`: a store has it and does not say.
    pub path: Option<String>,
    /// What logs would call its principal.
    pub principal: String,
    /// True if its client presented no credential.
    pub anonymous: bool,
    /// The revision that was agreed.
    pub revision: String,
    /// Its streams and calls.
    #[serde(flatten)]
    pub view: SessionView,
}

impl Described {
    /// A session as a store has it, at this time (Unix ms); `None`: its own row is not there yet,
    /// or it is over.
    pub fn stored(key: &SessionKey, loaded: Loaded, now_ms: u64) -> Option<Self> {
        let settings = Arc::new(Settings::default());
        let principal = loaded.principal;
        let row = loaded.row.as_ref().filter(|row| !row.ended)?;
        let origin = serde_json::from_slice::<Origin>(&row.origin).ok();
        let (start, stored) = parts_of(*key, loaded, 0, settings)?;
        let revision = start.agreed.to_string();
        let (session, _) = Session::restart(start, stored, now_ms);
        let anonymous = origin.as_ref().is_some_and(|origin| origin.anonymous);
        let path = origin.map(|origin| origin.path);
        Some(Self::new(key, path, &principal, anonymous, revision, session.view()))
    }

    fn new(
        key: &SessionKey,
        path: Option<String>,
        principal: &PrincipalKey,
        anonymous: bool,
        revision: String,
        view: SessionView,
    ) -> Self {
        let principal = hex(&principal[..4]);
        let session = SessionTag::new(key).to_string();
        Self { session, key: hex(key), path, principal, anonymous, revision, view }
    }

    async fn live(entry: &Entry) -> Option<Self> {
        let view = entry.handle.view().await?;
        let path = Some(entry.path().to_owned());
        let (principal, revision) = (entry.principal.key(), entry.agreed.to_string());
        let anonymous = entry.principal.is_anonymous();
        Some(Self::new(&entry.key, path, &principal, anonymous, revision, view))
    }
}

impl Gateway {
    /// Answers what is below `/sessions` on the admin address; `None`: nothing is there.
    pub(crate) async fn operate(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Option<Response<Full<Bytes>>> {
        let path = uri.path().strip_prefix("/sessions")?;
        if let Err(error) = self.allowed().check(uri, headers) {
            return Some(text(StatusCode::FORBIDDEN, &format!("{error}\n")));
        }
        if !headers.contains_key(OPERATOR_HEADER) {
            let said = "Send the header x-rejoin-operator: 1, or use `rejoin sessions`.\n";
            return Some(text(StatusCode::FORBIDDEN, said));
        }
        let parts: Vec<_> = path.split('/').skip(1).collect();
        match (method.as_str(), &parts[..]) {
            ("GET", []) => Some(self.list().await),
            ("GET", [session]) => Some(self.show(session).await),
            ("POST", [session, "calls", call, "release"]) => {
                Some(self.release(session, call).await)
            }
            _ => None,
        }
    }

    async fn list(&self) -> Response<Full<Bytes>> {
        self.registry().sweep();
        let mut sessions = Vec::new();
        for entry in self.registry().all() {
            sessions.extend(Described::live(&entry).await);
        }
        sessions.sort_by(|one, other| one.key.cmp(&other.key));
        json_answer(&json!({ "sessions": sessions }))
    }

    async fn show(&self, session: &str) -> Response<Full<Bytes>> {
        match self.meant(session) {
            Ok(entry) => match Described::live(&entry).await {
                Some(described) => json_answer(&json!(described)),
                None => not_running(&entry),
            },
            Err(none) => none.answer(),
        }
    }

    async fn release(&self, session: &str, call: &str) -> Response<Full<Bytes>> {
        let entry = match self.meant(session) {
            Ok(entry) => entry,
            Err(none) => return none.answer(),
        };
        let Ok(call) = call.parse().map(CallId) else {
            return text(StatusCode::BAD_REQUEST, "A call is named by its number.\n");
        };
        let Some(view) = entry.handle.view().await else { return not_running(&entry) };
        if !view.calls.iter().any(|known| known.id == call) {
            return text(StatusCode::NOT_FOUND, "This session has no such call.\n");
        }
        match entry.handle.release(call).await {
            Delivered::Taken => {
                tracing::info!(session = %entry.handle.tag(), %call, "an operator released a call");
                json_answer(&json!({ "released": call }))
            }
            Delivered::Overloaded | Delivered::SessionOver => not_running(&entry),
        }
    }

    /// The one session whose key begins so.
    fn meant(&self, prefix: &str) -> Result<Arc<Entry>, NotMeant> {
        let mut entries = self.registry().all();
        entries.retain(|entry| !prefix.is_empty() && hex(&entry.key).starts_with(prefix));
        match (entries.pop(), entries.is_empty()) {
            (Some(entry), true) => Ok(entry),
            (None, _) => Err(NotMeant::None),
            (Some(_), false) => Err(NotMeant::Several),
        }
    }
}

/// A beginning of a key that is not that of one session.
enum NotMeant {
    None,
    Several,
}

impl NotMeant {
    fn answer(&self) -> Response<Full<Bytes>> {
        match self {
            Self::None => text(StatusCode::NOT_FOUND, "There is no such session.\n"),
            Self::Several => {
                let said = "Several sessions begin so: give more of the key.\n";
                text(StatusCode::CONFLICT, said)
            }
        }
    }
}

/// The answer for a session that nobody drives: it is over, or kept until its log can be written.
fn not_running(entry: &Entry) -> Response<Full<Bytes>> {
    if entry.handle.is_kept() {
        let said = "Its log could not be written: it goes on with its client's next request.\n";
        return text(StatusCode::SERVICE_UNAVAILABLE, said);
    }
    text(StatusCode::NOT_FOUND, "This session is over.\n")
}

fn json_answer(value: &serde_json::Value) -> Response<Full<Bytes>> {
    let mut response = admin::answer(StatusCode::OK, value.to_string().into());
    response.headers_mut().insert(http::header::CONTENT_TYPE, JSON);
    response
}
