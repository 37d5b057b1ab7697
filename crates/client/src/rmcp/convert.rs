//! Between rmcp's messages and bytes. What rmcp has no type for must not leave a call, of either
//! side, without an answer.
use ::rmcp::model::{
    ClientJsonRpcMessage, ErrorCode, ErrorData, JsonRpcMessage, RequestId, ServerJsonRpcMessage,
};
use bytes::Bytes;
use rejoin_core::message::{self, Incoming, Kind, Message};
use rejoin_core::rejection::{REFUSED_BY, Reason};
use serde_json::json;

use super::TransportError;
use crate::limits::ClientLimits;

/// What became of a message for rmcp.
#[derive(Debug)]
pub(super) enum Received {
    /// rmcp takes it.
    Message(Box<ServerJsonRpcMessage>),
    /// rmcp cannot: the server gets this answer.
    Reply(Bytes),
    /// rmcp cannot, and nobody waits for an answer.
    Nothing,
}

/// A message of rmcp as bytes. An answer to the server that cannot be sent becomes an error.
pub(super) fn to_client(
    item: &ClientJsonRpcMessage,
    limits: &ClientLimits,
) -> Result<Bytes, TransportError> {
    encode(item, limits).or_else(|error| {
        let id = match item {
            JsonRpcMessage::Response(answer) => Some(&answer.id),
            JsonRpcMessage::Error(answer) => answer.id.as_ref(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        let id = id.and_then(|id| serde_json::to_vec(id).ok()).ok_or(error)?;
        Ok(message::error_response(
            Some(&id),
            i64::from(ErrorCode::INTERNAL_ERROR.0),
            "The client's answer could not be sent.",
            None,
        ))
    })
}

fn encode(item: &ClientJsonRpcMessage, limits: &ClientLimits) -> Result<Bytes, TransportError> {
    let body = serde_json::to_vec(item).map_err(|source| TransportError::Encode { source })?;
    let (bytes, bytes_max) = (body.len(), limits.message_bytes_max);
    if bytes > bytes_max {
        return Err(TransportError::TooLarge { bytes, bytes_max });
    }
    let body = Bytes::from(body);
    match message::parse(body.clone(), limits.json_depth_max) {
        Ok(_) => Ok(body),
        Err(source) => Err(TransportError::Refused { source }),
    }
}

/// A message for rmcp.
pub(super) fn to_rmcp(body: Bytes, limits: &ClientLimits) -> Received {
    let error = match serde_json::from_slice(&body) {
        Ok(message) => return Received::Message(Box::new(message)),
        Err(error) => error,
    };
    match message::parse(body, limits.json_depth_max) {
        Ok(Incoming::One(message)) => unreadable(&message, &error),
        _ => Received::Nothing,
    }
}

/// rmcp has no type for a message.
fn unreadable(message: &Message, error: &serde_json::Error) -> Received {
    let Some(id) = message.id() else { return Received::Nothing };
    match message.kind() {
        Kind::Notification => Received::Nothing,
        Kind::Request => Received::Reply(message::error_response(
            Some(id),
            i64::from(ErrorCode::INVALID_REQUEST.0),
            "The client cannot read the request.",
            None,
        )),
        Kind::Response | Kind::ErrorResponse => {
            let Ok(id) = serde_json::from_slice::<RequestId>(id) else { return Received::Nothing };
            let text = format!(
                "The outcome is unknown. The answer came, and rmcp cannot read it ({error}); the \
                 call may have taken effect. Check before you repeat it."
            );
            let reason = Reason::OutcomeUnknown;
            let data = json!({
                "by": REFUSED_BY,
                "reason": reason.name(),
                "sendAgain": false,
                "mayHaveRun": true,
                "doc": reason.doc(),
            });
            let code =
                ErrorCode(i32::try_from(reason.code()).unwrap_or(ErrorCode::INTERNAL_ERROR.0));
            let error = ErrorData::new(code, text, Some(data));
            Received::Message(Box::new(ServerJsonRpcMessage::error(error, Some(id))))
        }
    }
}

#[cfg(test)]
mod tests {
    use ::rmcp::model::{
        CallToolRequest, CallToolRequestParams, ClientRequest, ClientResult, CustomResult,
        JsonObject,
    };
    use serde_json::Value;

    use super::*;

    fn limits() -> ClientLimits {
        ClientLimits { message_bytes_max: 1_000, ..ClientLimits::default() }
    }

    fn received(text: &'static str) -> Received {
        to_rmcp(Bytes::from_static(text.as_bytes()), &limits())
    }

    fn request(argument: Value) -> ClientJsonRpcMessage {
        let arguments = JsonObject::from_iter([("a".to_owned(), argument)]);
        let params = CallToolRequestParams::new("charge").with_arguments(arguments);
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        ClientJsonRpcMessage::request(request, RequestId::Number(7))
    }

    #[test]
    fn an_answer_that_rmcp_cannot_read_ends_its_call_with_an_error() {
        let number =
            r#"{"jsonrpc":"2.0","id":7,"result":{"content":[],"structuredContent":1e999}}"#;
        let code = r#"{"jsonrpc":"2.0","id":7,"error":{"code":99999999999,"message":"no"}}"#;
        for text in [number, code] {
            let Received::Message(message) = received(text) else { panic!("{text}") };
            let JsonRpcMessage::Error(answer) = *message else { panic!("{message:?}") };
            assert_eq!(answer.id, Some(RequestId::Number(7)));
            assert_eq!(answer.error.code.0, 40906);
            assert_eq!(answer.error.data.unwrap()["mayHaveRun"], true);
        }
    }

    #[test]
    fn a_request_that_rmcp_cannot_read_is_answered_and_a_notification_is_left_out() {
        let request = r#"{"jsonrpc":"2.0","id":"x","method":"roots/list","params":{"a":1e999}}"#;
        let Received::Reply(reply) = received(request) else { panic!("no reply") };
        let reply: Value = serde_json::from_slice(&reply).unwrap();
        assert_eq!((&reply["id"], &reply["error"]["code"]), (&json!("x"), &json!(-32600)));
        let told = r#"{"jsonrpc":"2.0","method":"notifications/x","params":{"a":1e999}}"#;
        assert!(matches!(received(told), Received::Nothing));
    }

    #[test]
    fn a_request_that_cannot_be_sent_is_an_error_of_its_sender() {
        let large = to_client(&request(Value::from("x".repeat(2_000))), &limits());
        assert!(matches!(large, Err(TransportError::TooLarge { bytes_max: 1_000, .. })));
        let deep = (0..200).fold(Value::Null, |inner, _| Value::Array(vec![inner]));
        assert!(matches!(
            to_client(&request(deep), &limits()),
            Err(TransportError::Refused { .. })
        ));
        assert!(to_client(&request(Value::from(1)), &limits()).is_ok());
    }

    #[test]
    fn an_answer_to_the_server_that_cannot_be_sent_becomes_an_error() {
        let result = ClientResult::CustomResult(CustomResult(Value::from("x".repeat(2_000))));
        let answer = ClientJsonRpcMessage::response(result, RequestId::Number(7));
        let body = to_client(&answer, &limits()).unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((&body["id"], &body["error"]["code"]), (&json!(7), &json!(-32603)));
    }
}
