use std::sync::Arc;

use http_body_util::BodyExt;
use rejoin_core::id::{Epoch, Seq, StreamId};
use rejoin_core::message::parse;
use rejoin_core::rejection::{Hint, Reason};
use rejoin_core::settings::Settings;
use rejoin_store::{MemoryLimits, MemoryStore};
use serde_json::{Value, json};

use super::*;
use crate::initialize::InitializeError;
use crate::upstream::{OpenError, Opened, Opening, Upstream};

struct NoUpstream;

#[async_trait::async_trait]
impl Upstream for NoUpstream {
    async fn open(&self, _: Opening) -> Result<Opened, OpenError> {
        Err(OpenError::NotARequest)
    }

    fn name(&self) -> &str {
        "none"
    }
}

fn manner(status: RejectStatus, agent: &'static str) -> Manner {
    let settings = Arc::new(Settings::default());
    let store = MemoryStore::new(MemoryLimits::from(&settings.limits)).unwrap();
    let mut config = GatewayConfig::new(settings, Arc::new(NoUpstream), Arc::new(store));
    config.reject_status = status;
    let mut headers = HeaderMap::new();
    headers.insert(USER_AGENT, HeaderValue::from_static(agent));
    Manner::of(&headers, &config)
}

const PLAIN: Manner = Manner { softened: false };
const SOFTENED: Manner = Manner { softened: true };

async fn body_of(response: Response<AnswerBody>) -> Value {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice(&body).unwrap()
}

fn rejection(id: &'static str, hint: bool) -> Rejection {
    let at = |seq| EventId { epoch: Epoch(0xa1), stream: StreamId(3), seq: Seq(seq) };
    let hint = hint.then(|| Hint {
        cursor: at(142),
        delivered: at(142),
        produced: at(149),
        in_flight: vec![Bytes::from_static(b"7")],
        original_request_id: Some(Bytes::from_static(b"7")),
    });
    Rejection {
        reason: Reason::RequestInFlight,
        request_id: Bytes::from_static(id.as_bytes()),
        hint,
        send_again: false,
        retry_after_ms: 1_001,
        original_ended_ms: None,
    }
}

#[test]
fn only_fragile_clients_are_answered_softly_unless_the_operator_says_otherwise() {
    let auto = |agent| manner(RejectStatus::Auto, agent);
    assert_eq!(auto("python-httpx/0.28.1"), SOFTENED);
    for agent in ["python-httpx2/2.16.2", "node", "", "x python-httpx/0.28.1"] {
        assert_eq!(auto(agent), PLAIN, "{agent}");
    }
    assert_eq!(manner(RejectStatus::Conflict, "python-httpx/0.28.1"), PLAIN);
    assert_eq!(manner(RejectStatus::Ok, "node"), SOFTENED);
}

#[tokio::test]
async fn a_refusal_has_the_headers_and_the_body_of_the_protocol() {
    for (manner, status) in [(PLAIN, 409), (SOFTENED, 200)] {
        let response = refused(&[rejection("\"own\"", true)], false, manner);
        assert_eq!(response.status(), status);
        let headers = response.headers().clone();
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        assert_eq!(header("content-type"), Some("application/json"));
        assert_eq!(header("cache-control"), Some("no-store"));
        assert_eq!(header("mcp-stream-resumable"), Some("true"));
        assert_eq!(header("last-event-id"), Some("000000a1-3-142"));
        assert_eq!(header("retry-after"), Some("2"));
        let body = body_of(response).await;
        assert_eq!((&body["id"], &body["error"]["code"]), (&json!("own"), &json!(40902)));
        assert_eq!(body["error"]["data"]["lastEventId"], "000000a1-3-142");
    }
}

#[tokio::test]
async fn a_refusal_without_a_stream_to_resume_points_to_none() {
    let response = refused(&[rejection("1", false)], false, PLAIN);
    assert!(!response.headers().contains_key(MCP_STREAM_RESUMABLE));
    assert!(!response.headers().contains_key(LAST_EVENT_ID));
}

#[tokio::test]
async fn a_refused_batch_is_an_array_even_of_one() {
    let two = refused(&[rejection("1", false), rejection("2", true)], true, PLAIN);
    assert_eq!(
        (two.status(), two.headers().contains_key(LAST_EVENT_ID)),
        (StatusCode::CONFLICT, true)
    );
    let body = body_of(two).await;
    assert_eq!((&body[0]["id"], &body[1]["id"]), (&json!(1), &json!(2)));
    let one = refused(&[rejection("1", false)], true, PLAIN);
    assert_eq!(body_of(one).await[0]["id"], 1);
}

#[tokio::test]
async fn errors_of_posts_carry_the_requests_own_ids() {
    let one = Ids::One(Bytes::from_static(b"\"a\""));
    let response = post_failed(&PostError::UnknownSession, &one, SOFTENED);
    assert_eq!(response.status(), 404);
    assert_eq!(body_of(response).await["id"], "a");
    let many = Ids::Many(vec![Bytes::from_static(b"1"), Bytes::from_static(b"2")]);
    let response = post_failed(&PostError::BatchNotAgreed, &many, PLAIN);
    assert_eq!(response.status(), 400);
    assert_eq!(body_of(response).await[1]["id"], 2);
}

#[tokio::test]
async fn softened_is_what_costs_a_session_and_only_for_requests() {
    let one = Ids::One(Bytes::from_static(b"1"));
    let no_session = PostError::Header(HeaderError::NoSession);
    assert_eq!(post_failed(&no_session, &one, PLAIN).status(), 400);
    assert_eq!(post_failed(&no_session, &one, SOFTENED).status(), 200);
    assert_eq!(post_failed(&no_session, &Ids::None, SOFTENED).status(), 400);
    assert_eq!(post_failed(&PostError::Draining, &one, SOFTENED).status(), 200);
    let foreign = PostError::Header(HeaderError::NotJson);
    assert_eq!(post_failed(&foreign, &one, SOFTENED).status(), 415);
}

#[tokio::test]
async fn a_full_gateway_says_when_to_come_again_and_that_nothing_ran() {
    let one = Ids::One(Bytes::from_static(b"1"));
    let full = InitializeError::TooManySessions { sessions_max: 3 };
    let response = post_failed(&full.into(), &one, PLAIN);
    assert_eq!(response.status(), 503);
    assert_eq!(response.headers().get(RETRY_AFTER).unwrap(), "1");
    let body = body_of(response).await;
    let message = body["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("Not run. All 3 sessions"), "{message}");
    assert_eq!(body["error"]["data"]["sendAgain"], true);
    assert_eq!(body["error"]["data"]["by"], "rejoin");
}

#[tokio::test]
async fn ids_are_guessed_from_bodies_that_are_no_messages() {
    let guess = |body: &'static str| Ids::guess(&Bytes::from_static(body.as_bytes()));
    let id = |id: &'static str| Ids::One(Bytes::from_static(id.as_bytes()));
    assert_eq!(guess(r#"{"id": "x", "method": 1}"#), id("\"x\""));
    assert_eq!(guess(r#"{"id":18446744073709551616}"#), id("18446744073709551616"));
    for body in ["{", r#"{"id":null}"#, r#"{"id":{}}"#, "[]", "1", r#"{"id":1.5}"#] {
        assert_eq!(guess(body), Ids::None, "{body}");
    }
    let batch = r#"[{"jsonrpc":"2.0","method":"n"},{"jsonrpc":"2.0","id":5,"method":"m"}]"#;
    let batch = parse(Bytes::from_static(batch.as_bytes()), 64).unwrap();
    assert_eq!(Ids::of(&batch), Ids::Many(vec![Bytes::from_static(b"5")]));
}
