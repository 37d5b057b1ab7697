//! Dedup tokens of requests (design section 5, "Token").

use rejoin_core::id::{Digest32, digest};
use rejoin_core::message::Message;
use rejoin_core::token::{ATTEMPT_META, DedupKey, EPOCH_META, TOKEN_META, Token};

use crate::headers::TOKEN_BYTES_MAX;

/// What is wrong with a request's token. All of these are told to the client, without the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DedupError {
    /// The token is not a string of an allowed length.
    #[error("_meta[\"{TOKEN_META}\"] must be a string of 1 to {TOKEN_BYTES_MAX} bytes")]
    BadToken,
    /// The attempt is not a number.
    #[error("_meta[\"{ATTEMPT_META}\"] must be a whole number, 1 at the first attempt")]
    BadAttempt,
    /// The epoch is not a number.
    #[error("_meta[\"{EPOCH_META}\"] must be the number that initialize gave at attempt 1")]
    BadEpoch,
    /// Two tokens that differ.
    #[error(
        "Idempotency-Key and _meta[\"{TOKEN_META}\"] differ: they are the same thing, send one"
    )]
    Conflict,
    /// One header for several requests.
    #[error("Idempotency-Key cannot be used with a batch: put the token into each request's _meta")]
    HeaderOfBatch,
}

/// Whose token it is: the principal's, or, if that is anonymous, the session's.
#[derive(Clone, Copy, Debug)]
pub(super) enum Holder {
    Principal(Digest32),
    Session(Digest32),
}

/// What a token's meaning is limited to, besides method and tool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scope<'a> {
    pub(super) holder: Holder,
    /// The upstream's name.
    pub(super) upstream: &'a str,
}

/// The token of a request, from its `_meta` or from `header`; `None`: it has none.
///
/// # Errors
/// See [`DedupError`].
pub(super) fn of(
    request: &Message,
    header: Option<&str>,
    scope: Scope<'_>,
) -> Result<Option<Token>, DedupError> {
    let inside = match request.meta(TOKEN_META) {
        None => None,
        Some(_) => Some(request.meta_str(TOKEN_META).ok_or(DedupError::BadToken)?),
    };
    if inside.as_ref().is_some_and(|token| token.is_empty() || token.len() > TOKEN_BYTES_MAX) {
        return Err(DedupError::BadToken);
    }
    let token = match (inside.as_deref(), header) {
        (Some(inside), Some(header)) if inside != header => return Err(DedupError::Conflict),
        (Some(token), _) | (None, Some(token)) => token,
        (None, None) => return Ok(None),
    };
    let attempt = number(request, ATTEMPT_META).map_err(|_| DedupError::BadAttempt)?;
    let epoch = number(request, EPOCH_META).map_err(|_| DedupError::BadEpoch)?;
    match attempt.unwrap_or(1) {
        0 => Err(DedupError::BadAttempt),
        attempt => Ok(Some(Token { key: key(request, token, scope), attempt, epoch })),
    }
}

/// Not a whole number of 64 bits.
struct NoNumber;

fn number(request: &Message, key: &str) -> Result<Option<u64>, NoNumber> {
    let Some(raw) = request.meta(key) else { return Ok(None) };
    let digits = std::str::from_utf8(raw).map_err(|_| NoNumber)?;
    digits.parse().map(Some).map_err(|_| NoNumber)
}

/// Where a tokenless request is looked up among all sessions of its principal: by upstream, method
/// and canonical params (design section 2, `repeat_scope`).
pub(super) fn scope_key(request: &Message, principal: Digest32, upstream: &str) -> DedupKey {
    let params = request.canonical_params_hash();
    hashed(&[b"rejoin repeat scope 1", &principal, upstream.as_bytes(), &params])
}

/// The key of a token in its scope.
fn key(request: &Message, token: &str, scope: Scope<'_>) -> DedupKey {
    let (holder, id) = match scope.holder {
        Holder::Principal(id) => ("principal", id),
        Holder::Session(id) => ("session", id),
    };
    let tool = request.tool_name();
    hashed(&[
        b"rejoin dedup token 1",
        holder.as_bytes(),
        &id,
        scope.upstream.as_bytes(),
        request.method().unwrap_or_default().as_bytes(),
        // No tool is not the tool without a name.
        if tool.is_some() { b"tool" } else { b"none" },
        tool.unwrap_or_default().as_bytes(),
        token.as_bytes(),
    ])
}

/// Every part has its length before it, so that no two scopes run together.
fn hashed(parts: &[&[u8]]) -> DedupKey {
    let mut named = Vec::new();
    for part in parts {
        named.extend_from_slice(&(part.len() as u64).to_be_bytes());
        named.extend_from_slice(part);
    }
    DedupKey(digest(&named))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use bytes::Bytes;
    use rejoin_core::message::{Incoming, parse};
    use serde_json::{Value, json};

    use super::*;

    const SCOPE: Scope<'_> = Scope { holder: Holder::Principal([1; 32]), upstream: "server" };

    fn request(method: &str, tool: Option<&str>, meta: Value) -> Message {
        let mut params = json!({ "_meta": meta });
        if let Some(tool) = tool {
            params["name"] = tool.into();
        }
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        match parse(Bytes::from(body.to_string()), 64) {
            Ok(Incoming::One(message)) => message,
            other => panic!("{other:?}"),
        }
    }

    fn charge(meta: Value) -> Message {
        request("tools/call", Some("charge"), meta)
    }

    #[test]
    fn header_and_meta_are_the_same_token() {
        let meta = charge(json!({ TOKEN_META: "t", ATTEMPT_META: 2, EPOCH_META: 7 }));
        let token = of(&meta, None, SCOPE).unwrap().unwrap();
        assert_eq!((token.attempt, token.epoch), (2, Some(7)));
        let plain = charge(json!({}));
        let by_header = of(&plain, Some("t"), SCOPE).unwrap().unwrap();
        assert_eq!((by_header.key, by_header.attempt), (token.key, 1));
        assert_eq!(of(&meta, Some("t"), SCOPE).unwrap().unwrap().key, token.key);
        assert_eq!(of(&meta, Some("u"), SCOPE), Err(DedupError::Conflict));
        assert_eq!(of(&plain, None, SCOPE), Ok(None));
    }

    #[test]
    fn every_part_of_the_scope_makes_another_key() {
        let of_session = Scope { holder: Holder::Session([1; 32]), ..SCOPE };
        let of_other = Scope { holder: Holder::Principal([2; 32]), ..SCOPE };
        let elsewhere = Scope { upstream: "server2", ..SCOPE };
        let all = [
            key(&charge(json!({})), "t", SCOPE),
            key(&charge(json!({})), "u", SCOPE),
            key(&request("tools/call", Some("chargeX"), json!({})), "t", SCOPE),
            key(&request("tools/call", None, json!({})), "t", SCOPE),
            key(&request("tools/call", Some(""), json!({})), "t", SCOPE),
            key(&request("prompts/get", None, json!({})), "t", SCOPE),
            key(&charge(json!({})), "t", of_session),
            key(&charge(json!({})), "t", of_other),
            key(&charge(json!({})), "t", elsewhere),
        ];
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        assert_eq!(all[0], key(&charge(json!({ "other": 1 })), "t", SCOPE));
    }

    #[test]
    fn a_call_of_another_principal_server_or_arguments_is_looked_up_under_another_key() {
        let call = charge(json!({}));
        let other = request("tools/call", Some("refund"), json!({}));
        let all = [
            scope_key(&call, [1; 32], "server"),
            scope_key(&call, [2; 32], "server"),
            scope_key(&call, [1; 32], "server2"),
            scope_key(&other, [1; 32], "server"),
        ];
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        assert_eq!(all[0], scope_key(&charge(json!({ "other": 1 })), [1; 32], "server"));
    }

    #[test]
    fn tokens_attempts_and_epochs_of_another_type_are_refused() {
        let refused = |meta| of(&charge(meta), None, SCOPE);
        for token in [json!(1), json!(""), json!("x".repeat(257)), Value::Null] {
            assert_eq!(refused(json!({ TOKEN_META: token })), Err(DedupError::BadToken));
        }
        assert!(refused(json!({ TOKEN_META: "x".repeat(256) })).is_ok());
        for attempt in [json!(0), json!("1"), json!(1.5), json!(-1)] {
            let meta = json!({ TOKEN_META: "t", ATTEMPT_META: attempt });
            assert_eq!(refused(meta), Err(DedupError::BadAttempt));
        }
        let meta = json!({ TOKEN_META: "t", EPOCH_META: "x" });
        assert_eq!(refused(meta), Err(DedupError::BadEpoch));
    }
}
