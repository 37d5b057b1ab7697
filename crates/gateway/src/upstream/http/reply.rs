//! What a response is, by its head; and bodies that are read whole.
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http_body_util::BodyExt as _;

use crate::passthrough::UpstreamBody;

/// What a body holds, by its headers.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Server-sent events.
    Stream,
    /// JSON.
    Json,
    /// A coding nobody asked for; its name.
    Encoded(String),
    /// Something else; its media type, if it has one.
    Other(Option<String>),
}

impl Form {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let text = |name| headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()));
        if let Some(coding) = text(CONTENT_ENCODING) {
            let coding = coding.trim();
            if !coding.is_empty() && !coding.eq_ignore_ascii_case("identity") {
                return Self::Encoded(short(coding));
            }
        }
        let media = text(CONTENT_TYPE);
        let media = media.as_deref().and_then(|media| media.split(';').next()).map(str::trim);
        match media {
            Some(media) if media.eq_ignore_ascii_case("text/event-stream") => Self::Stream,
            Some(media) if media.eq_ignore_ascii_case("application/json") => Self::Json,
            other => Self::Other(other.map(short)),
        }
    }
}

/// A header's text, short enough for a message to a person.
pub(super) fn short(text: &str) -> String {
    text.chars().filter(|character| !character.is_control()).take(100).collect()
}

/// Why a body could not be read whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BodyError {
    #[error("is larger than the limit of {bytes_max} bytes")]
    TooLarge { bytes_max: usize },
    #[error("broke off")]
    Broken,
}

/// Reads a body of at most `bytes_max` bytes.
pub(super) async fn collect(mut body: UpstreamBody, bytes_max: usize) -> Result<Bytes, BodyError> {
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| BodyError::Broken)?;
        let Ok(data) = frame.into_data() else { continue };
        if whole.len().saturating_add(data.len()) > bytes_max {
            return Err(BodyError::TooLarge { bytes_max });
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn the_form_is_read_from_type_and_coding() {
        let form = |media: Option<&'static str>, coding: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            if let Some(media) = media {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
            }
            if let Some(coding) = coding {
                headers.insert(CONTENT_ENCODING, HeaderValue::from_static(coding));
            }
            Form::of(&headers)
        };
        assert_eq!(form(Some("Text/Event-Stream; charset=utf-8"), None), Form::Stream);
        assert_eq!(form(Some("application/json;charset=UTF-8"), Some("identity")), Form::Json);
        assert_eq!(form(Some("application/json"), Some("gzip")), Form::Encoded("gzip".into()));
        assert_eq!(form(Some("text/html"), None), Form::Other(Some("text/html".into())));
        assert_eq!(form(None, None), Form::Other(None));
    }
}
