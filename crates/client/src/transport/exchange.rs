//! One exchange: its request is written once, and whether it may have arrived is known.
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{
    ACCEPT, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HOST, LOCATION, PROXY_AUTHORIZATION,
    RETRY_AFTER, USER_AGENT,
};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use rejoin_core::causes::told;
use rejoin_core::sse::Decoder;
use tokio::time::timeout;

use super::answers::Answers;
use super::connect::{Connector, TlsError};
use super::credential::Keeper;
use super::pool::{Link, Pool};
use super::room::Room;
use super::{Config, CredentialError, UrlError, target};
use crate::limits::ClientLimits;
use crate::machine::{Answer, ExchangeId, Head, Media, Method, Request};

/// A longer body has its connection for itself: a server may refuse it unread and end the
/// connection, on which the next request would then be lost.
const SHARED_BODY_BYTES_MAX: usize = 32 * 1024;

/// Why an answer is not read on.
const NO_ROOM: &str = "answers that are half read are together larger than half_read_bytes_max";

/// Media types of requests and answers.
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");
const EITHER: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("rejoin-client/", env!("CARGO_PKG_VERSION")));

/// The way to one server.
pub(crate) struct Transport {
    uri: Uri,
    connector: Connector,
    credential: Keeper,
    headers: HeaderMap,
    pool: Pool,
    room: Room,
    limits: ClientLimits,
}

/// Why a request has no answer.
enum Fault {
    Unsent(String),
    NoCredential(String),
    Broken(String),
}

impl Transport {
    pub(crate) fn new(config: &Config) -> Result<Self, SetUpError> {
        let uri = target::parse(&config.url)?;
        let secure = uri.scheme_str() == Some("https");
        let limits = config.limits.clone();
        let credential =
            Keeper::new(config.credential.clone(), Duration::from_millis(limits.credential_max_ms));
        credential.check()?;
        let mut headers = HeaderMap::new();
        for (name, value) in &config.headers {
            headers.append(name, value.clone());
        }
        Ok(Self {
            connector: Connector::new(config, secure)?,
            credential,
            headers,
            pool: Pool::new(Duration::from_millis(limits.pool_idle_max_ms)),
            room: Room::new(&limits),
            uri,
            limits,
        })
    }

    /// Sends a request and tells what becomes of it, until that has ended. Whoever drops the future
    /// gives the exchange up.
    pub(crate) async fn run(self: Arc<Self>, id: ExchangeId, request: Request, answers: Answers) {
        match self.send(&request).await {
            Err(Fault::Unsent(what)) => answers.tell(id, Answer::Unsent(what)).await,
            Err(Fault::NoCredential(what)) => answers.tell(id, Answer::NoCredential(what)).await,
            Err(Fault::Broken(what)) => answers.tell(id, Answer::Broken(what)).await,
            Ok((response, link)) => {
                let (parts, body) = response.into_parts();
                let head = head(parts.status.as_u16(), &parts.headers);
                let is_stream = head.media == Media::Stream;
                answers.tell(id, Answer::Head(head)).await;
                let reading = async {
                    if is_stream {
                        self.read_stream(id, body, &answers).await
                    } else if is_encoded(&parts.headers) {
                        let what = "the answer is in a coding that was not asked for";
                        Answer::Broken(what.to_owned())
                    } else {
                        self.read_whole(body).await
                    }
                };
                let end = if parts.status.is_success() {
                    Some(reading.await)
                } else {
                    let given = Duration::from_millis(self.limits.refusal_body_max_ms);
                    timeout(given, reading).await.ok()
                };
                if matches!(end, Some(Answer::Ended | Answer::Body(_))) {
                    self.pool.keep(link);
                }
                let end = end.unwrap_or_else(|| Answer::Broken("its body does not end".to_owned()));
                let is_told = match end {
                    Answer::Broken(_) => is_told_by_status(parts.status, &parts.headers),
                    _ => false,
                };
                answers.tell(id, if is_told { Answer::Body(Bytes::new()) } else { end }).await;
            }
        }
    }

    /// Sends a request, again with another credential where the first is refused, and to where the
    /// server says: in both cases the server has not processed it.
    async fn send(&self, request: &Request) -> Result<(Response<Incoming>, Link), Fault> {
        let failed = |error: CredentialError| Fault::NoCredential(error.to_string());
        let mut credential = self.credential.value().await.map_err(failed)?;
        let mut uri = self.uri.clone();
        let mut redirects = 0;
        let mut is_renewed = false;
        loop {
            let (response, link) = self.send_once(&uri, request, credential.as_ref()).await?;
            match response.status().as_u16() {
                401 if !is_renewed => {
                    is_renewed = true;
                    let Some(renewed) = self.credential.renewed(credential.as_ref()).await else {
                        return Ok((response, link));
                    };
                    credential = Some(renewed);
                }
                307 | 308 if redirects < self.limits.redirects_max => {
                    redirects += 1;
                    let location = response.headers().get(LOCATION);
                    let location = location.and_then(|value| value.to_str().ok());
                    match location.and_then(|location| target::redirect(&uri, location)) {
                        Some(target) => uri = target,
                        None => return Ok((response, link)),
                    }
                }
                _ => return Ok((response, link)),
            }
        }
    }

    async fn send_once(
        &self,
        uri: &Uri,
        request: &Request,
        credential: Option<&HeaderValue>,
    ) -> Result<(Response<Incoming>, Link), Fault> {
        // What resumes comes after a connection that broke: those kept from before may go the same
        // dead path, on which it would wait in silence.
        let resumes = request.header("last-event-id").is_some();
        let may_share = !resumes && request.body.len() <= SHARED_BODY_BYTES_MAX;
        if may_share && let Some(mut link) = self.pool.take().await {
            let message = self.build(uri, request, credential, &link)?;
            match link.sender.try_send_request(message).await {
                Ok(response) => return Ok((response, link)),
                Err(mut error) => {
                    // Else it ended before the request was written: a new connection can have it.
                    if error.take_message().is_none() {
                        return Err(Fault::Broken(told(error.error())));
                    }
                }
            }
        }
        let connected = self.connector.connect(uri).await.map_err(Fault::Unsent)?;
        let shaken = http1::handshake(connected.io).await;
        let (sender, connection) = shaken.map_err(|error| Fault::Unsent(told(&error)))?;
        // It ends with the sender and the body of the answer.
        tokio::spawn(connection);
        let mut link = Link { sender, through: connected.through };
        let message = self.build(uri, request, credential, &link)?;
        match link.sender.try_send_request(message).await {
            Ok(response) => Ok((response, link)),
            Err(mut error) => {
                let is_unsent = error.take_message().is_some();
                let what = told(error.error());
                Err(if is_unsent { Fault::Unsent(what) } else { Fault::Broken(what) })
            }
        }
    }

    fn build(
        &self,
        uri: &Uri,
        request: &Request,
        credential: Option<&HeaderValue>,
        link: &Link,
    ) -> Result<http::Request<Full<Bytes>>, Fault> {
        let unsent = |what: &str| Fault::Unsent(what.to_owned());
        let host = uri.authority().map(|authority| authority.as_str()).unwrap_or_default();
        let host = HeaderValue::from_str(host).map_err(|_| unsent("the host fits no header"))?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let asked = match &link.through {
            Some(_) => uri.clone(),
            None => path.parse().map_err(|_| unsent("the path cannot be asked for"))?,
        };
        let mut built = http::Request::new(Full::new(request.body.clone()));
        *built.uri_mut() = asked;
        let headers = built.headers_mut();
        headers.insert(USER_AGENT, AGENT);
        headers.extend(self.headers.clone());
        headers.insert(HOST, host);
        if let Some(Some(authorization)) = &link.through {
            headers.insert(PROXY_AUTHORIZATION, authorization.clone());
        }
        if let Some(credential) = credential {
            headers.insert(AUTHORIZATION, credential.clone());
        }
        for (name, value) in &request.headers {
            let value =
                HeaderValue::from_str(value).map_err(|_| unsent("a value fits no header"))?;
            headers.insert(HeaderName::from_static(name), value);
        }
        match request.method {
            Method::Post => {
                headers.insert(CONTENT_TYPE, JSON);
                headers.insert(ACCEPT, EITHER);
                *built.method_mut() = http::Method::POST;
            }
            Method::Get => {
                headers.insert(ACCEPT, STREAM);
                *built.method_mut() = http::Method::GET;
            }
            Method::Delete => *built.method_mut() = http::Method::DELETE,
        }
        Ok(built)
    }

    async fn read_stream(&self, id: ExchangeId, mut body: Incoming, answers: &Answers) -> Answer {
        let mut decoder = Decoder::new(self.limits.message_bytes_max);
        let mut part = self.room.part();
        while let Some(frame) = body.frame().await {
            match frame {
                Err(error) => return Answer::Broken(told(&error)),
                Ok(frame) => {
                    let Ok(data) = frame.into_data() else { continue };
                    decoder.push(&data);
                }
            }
            loop {
                match decoder.next_event() {
                    Ok(Some(event)) => answers.tell(id, Answer::Event(event)).await,
                    Ok(None) => break,
                    Err(_) => answers.tell(id, Answer::Oversized).await,
                }
            }
            if !part.fit(decoder.held_bytes()).await {
                answers.tell(id, Answer::NoRoom).await;
                return Answer::Broken(NO_ROOM.to_owned());
            }
        }
        // What is left of an event is discarded, as the HTML standard says.
        Answer::Ended
    }

    async fn read_whole(&self, mut body: Incoming) -> Answer {
        let mut whole = BytesMut::new();
        let mut part = self.room.part();
        while let Some(frame) = body.frame().await {
            match frame {
                Err(error) => return Answer::Broken(told(&error)),
                Ok(frame) => {
                    let Ok(data) = frame.into_data() else { continue };
                    if whole.len().saturating_add(data.len()) > self.limits.message_bytes_max {
                        return Answer::Broken(
                            "the answer is larger than message_bytes_max".into(),
                        );
                    }
                    whole.extend_from_slice(&data);
                    if !part.fit(whole.len()).await {
                        return Answer::Broken(NO_ROOM.to_owned());
                    }
                }
            }
        }
        Answer::Body(whole.freeze())
    }
}

/// Whether a refusal is clear though its body cannot be had: by a status that no body changes, or
/// because the body will never be one that this client reads. What a Rejoin refuses (409, 503) is
/// in the body: one that broke off is asked for again.
fn is_told_by_status(status: StatusCode, headers: &HeaderMap) -> bool {
    matches!(status.as_u16(), 401 | 403 | 405 | 407 | 501)
        || (!status.is_success() && is_encoded(headers))
}

/// Why a transport cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum SetUpError {
    #[error(transparent)]
    Url(#[from] UrlError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Credential(#[from] CredentialError),
}

fn is_encoded(headers: &HeaderMap) -> bool {
    headers
        .get(CONTENT_ENCODING)
        .is_some_and(|coding| !coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"identity"))
}

fn head(status: u16, headers: &HeaderMap) -> Head {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let media = text(CONTENT_TYPE.as_str()).and_then(|media| media.split(';').next());
    let is_stream =
        media.is_some_and(|media| media.trim().eq_ignore_ascii_case("text/event-stream"));
    let seconds = text(RETRY_AFTER.as_str()).and_then(|value| value.trim().parse::<u64>().ok());
    Head {
        status,
        media: if is_stream && !is_encoded(headers) { Media::Stream } else { Media::Whole },
        session: text("mcp-session-id").map(str::to_owned),
        replay_until: text("mcp-replay-until").map(str::to_owned),
        retry_after_ms: seconds.map(|seconds| seconds.saturating_mul(1_000)),
    }
}
