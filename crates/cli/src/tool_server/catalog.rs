//! The answer to `tools/list`: what a newcomer, or a model, learns about each tool.

use serde_json::{Value, json};

/// The whole result.
pub(super) fn tools() -> Value {
    json!({ "tools": [
        charge(), slow(), get(), echo(), ask(), sample(), state(), crash(), notify()
    ] })
}

fn charge() -> Value {
    let properties = json!({
        "amount": { "type": "integer", "description": "How much to charge." },
        "events": {
            "type": "integer", "minimum": 0, "default": 0,
            "description": "How many progress events to send before the result.",
        },
        "interval_ms": {
            "type": "integer", "minimum": 0, "default": 50,
            "description": "Milliseconds before each event; 0 is as fast as possible.",
        },
        "event_bytes": {
            "type": "integer", "minimum": 0, "default": 0,
            "description": "Pad the message of each event to this many bytes.",
        },
        "ignore_cancel": {
            "type": "boolean", "default": false,
            "description": "Run on, and answer, although the call was cancelled.",
        },
        "result_bytes": {
            "type": "integer", "minimum": 0, "default": 0,
            "description": "Add a second text of this many bytes to the result.",
        },
        "crash_after": {
            "type": ["integer", "null"], "minimum": 0, "default": null,
            "description": "End the server process abruptly after this many events.",
        },
        "fail": {
            "type": "boolean", "default": false,
            "description": "Answer with a result that says the charge failed (isError).",
        },
    });
    json!({
        "name": "charge",
        "title": "Charge an account",
        "description": "Charges an account. Every execution takes effect: two executions charge \
            twice. Sends progress if asked for, then answers `charged <amount> (execution <n>)`, \
            where n counts the executions in this process.",
        "inputSchema": object(&properties, &["amount"]),
        "outputSchema": object(
            &json!({ "amount": { "type": "integer" }, "execution": { "type": "integer" } }),
            &["amount", "execution"],
        ),
        "annotations": { "idempotentHint": false, "openWorldHint": false },
    })
}

fn slow() -> Value {
    let seconds = json!({
        "type": "number", "minimum": 0, "maximum": 86400, "description": "How long to wait.",
    });
    json!({
        "name": "slow",
        "title": "Wait",
        "description": "Waits this many seconds, then answers. Can be cancelled.",
        "inputSchema": object(&json!({ "seconds": seconds }), &["seconds"]),
    })
}

fn get() -> Value {
    json!({
        "name": "get",
        "title": "Read the account",
        "description": "Reads, changes nothing, and answers at once with a text of constant size \
            that counts the reads in this process.",
        "inputSchema": object(&json!({}), &[]),
        "outputSchema": object(&json!({ "reads": { "type": "integer" } }), &["reads"]),
        "annotations": { "readOnlyHint": true, "openWorldHint": false },
    })
}

fn echo() -> Value {
    let text = json!({ "type": "string", "description": "Anything." });
    json!({
        "name": "echo",
        "title": "Echo",
        "description": "Answers its arguments byte for byte as they arrived, whatever they are: \
            once as JSON text in a string, once as structured content.",
        "inputSchema": object(&json!({ "text": text }), &[]),
    })
}

fn ask() -> Value {
    let question = json!({ "type": "string", "description": "What to ask the user." });
    json!({
        "name": "ask",
        "title": "Ask the user",
        "description": "Asks the client's user a question (elicitation) and answers what the user \
            answered.",
        "inputSchema": object(&json!({ "question": question }), &["question"]),
    })
}

fn sample() -> Value {
    let prompt = json!({ "type": "string", "description": "What to ask the model." });
    json!({
        "name": "sample",
        "title": "Ask the client's model",
        "description": "Asks the client's model (sampling) and answers what the model answered.",
        "inputSchema": object(&json!({ "prompt": prompt }), &["prompt"]),
    })
}

fn state() -> Value {
    let set = json!({
        "type": ["string", "null"], "default": null,
        "description": "The value to remember; without it the value is only read.",
    });
    json!({
        "name": "state",
        "title": "Remember a value",
        "description": "Remembers one value in the memory of this server process and answers it. \
            A restarted process has forgotten it.",
        "inputSchema": object(&json!({ "set": set }), &[]),
    })
}

fn crash() -> Value {
    json!({
        "name": "crash",
        "title": "Crash",
        "description": "Ends the server process with status 3 in the middle of this call, which \
            is therefore never answered.",
        "inputSchema": object(&json!({}), &[]),
    })
}

fn notify() -> Value {
    let count = json!({
        "type": "integer", "minimum": 0, "maximum": 100_000,
        "description": "How many log messages to send.",
    });
    json!({
        "name": "notify",
        "title": "Send notifications",
        "description": "Sends this many log messages of level info, then one \
            tools/list_changed, none of which belongs to any call.",
        "inputSchema": object(&json!({ "count": count }), &["count"]),
    })
}

fn object(properties: &Value, required: &[&str]) -> Value {
    json!({ "type": "object", "properties": properties, "required": required })
}
