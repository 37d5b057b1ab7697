//! The transport for rmcp, where the server says what rmcp cannot read.

use rejoin_client::rmcp::ClientTransport;
use rejoin_testkit::deadline::{WAIT_MAX, within};
use rejoin_testkit::failure::Failure;
use rmcp::model::ClientJsonRpcMessage;
use rmcp::transport::Transport as _;
use serde_json::{Value, json};

use super::{Act, Played, config, is_call, opening, stream, whole};

/// More than the client keeps for a host that reads nothing.
const REQUESTS: usize = 700;

async fn say(transport: &mut ClientTransport, message: Value) -> Result<(), Failure> {
    let message: ClientJsonRpcMessage = serde_json::from_value(message)?;
    Ok(within("a message to leave", WAIT_MAX, transport.send(message)).await??)
}

async fn receive(transport: &mut ClientTransport) -> Result<Value, Failure> {
    let message = within("a message", WAIT_MAX, transport.receive()).await?;
    Ok(serde_json::to_value(message.ok_or_else(|| Failure::new("it has ended"))?)?)
}

#[tokio::test]
async fn many_requests_that_cannot_be_read_are_answered_and_hold_no_call() -> Result<(), Failure> {
    let server = Played::start(|_, request| {
        if let Some(act) = opening(request) {
            return act;
        }
        if !is_call(request) {
            return Act::Say(whole("202 Accepted", "", ""));
        }
        let method = r#""method":"roots/list","params":{"a":1e999}"#;
        let requests: Vec<_> =
            (0..REQUESTS).map(|id| format!(r#"{{"jsonrpc":"2.0","id":{id},{method}}}"#)).collect();
        let answer = json!({ "jsonrpc": "2.0", "id": request.json()["id"],
            "result": { "content": [] } });
        Act::Say(stream(&format!("data: [{}]\n\ndata: {answer}\n\n", requests.join(","))))
    })
    .await?;
    let mut transport = ClientTransport::connect(&config(&server))?;
    let initialize = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": { "name": "test", "version": "1" } } });
    say(&mut transport, initialize).await?;
    assert_eq!(receive(&mut transport).await?["id"], 0);
    say(&mut transport, json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await?;
    for id in 1..=2 {
        let call = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": { "name": "charge", "arguments": {} } });
        say(&mut transport, call).await?;
        assert_eq!(receive(&mut transport).await?["id"], id);
    }
    let replies = server.requests(|request| request.body.contains("cannot read")).await;
    assert!(!replies.is_empty(), "the server was told");
    Ok(())
}
