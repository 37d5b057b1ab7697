//! What the suites want listed, in the words in which they describe it.

use serde_json::{Value, json};

/// The smallest PNG: one red pixel.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC";
/// A WAV file without samples.
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=";

/// Tools that take nothing, with what they do.
const PLAIN_TOOLS: [(&str, &str); 24] = [
    ("test_simple_text", "Returns text"),
    ("test_image_content", "Returns an image"),
    ("test_audio_content", "Returns audio"),
    ("test_embedded_resource", "Returns a resource"),
    ("test_multiple_content_types", "Returns text, an image and a resource"),
    ("test_tool_with_logging", "Logs three times while it runs"),
    ("test_tool_with_progress", "Reports progress three times while it runs"),
    ("test_error_handling", "Fails"),
    ("test_reconnection", "Ends its stream before it has answered"),
    ("test_elicitation_sep1034_defaults", "Asks the user, with defaults for each type"),
    ("test_elicitation_sep1330_enums", "Asks the user to choose, in five ways"),
    ("test_missing_capability", "Needs a client that samples"),
    ("test_streaming_elicitation", "Reports progress, then asks the user"),
    ("test_logging_tool", "Logs if the client wants it to"),
    ("test_trigger_tool_change", "Says that the list of tools changed"),
    ("test_trigger_prompt_change", "Says that the list of prompts changed"),
    ("test_input_required_result_elicitation", "Needs the user's name"),
    ("test_input_required_result_sampling", "Needs a sample"),
    ("test_input_required_result_list_roots", "Needs the client's roots"),
    ("test_input_required_result_request_state", "Needs a confirmation and its own state"),
    ("test_input_required_result_multiple_inputs", "Needs three things at once"),
    ("test_input_required_result_multi_round", "Needs two things one after the other"),
    ("test_input_required_result_tampered_state", "Needs its own state untouched"),
    ("test_input_required_result_capabilities", "Needs what the client can do"),
];

fn tool(name: &str, description: &str, schema: &Value) -> Value {
    json!({ "name": name, "description": description, "inputSchema": schema })
}

/// All tools.
pub(crate) fn tools() -> Value {
    let nothing = json!({ "type": "object", "properties": {} });
    let one = |name: &str| {
        json!({
            "type": "object",
            "properties": { name: { "type": "string" } },
            "required": [name],
        })
    };
    let mut tools: Vec<Value> =
        PLAIN_TOOLS.iter().map(|(name, does)| tool(name, does, &nothing)).collect();
    tools.push(tool("test_sampling", "Asks the client's model", &one("prompt")));
    tools.push(tool("test_elicitation", "Asks the user", &one("message")));
    let mut header = one("region");
    header["properties"]["region"]["x-mcp-header"] = json!("Region");
    tools.push(tool("test_custom_header", "Takes an argument that is a header too", &header));
    let rich = json_schema_2020_12();
    tools.push(tool("json_schema_2020_12_tool", "Has a schema of many keywords", &rich));
    Value::Array(tools)
}

/// A schema with every keyword that must survive.
fn json_schema_2020_12() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": { "street": { "type": "string" }, "city": { "type": "string" } },
            },
        },
        "properties": {
            "name": { "type": "string" },
            "address": { "$ref": "#/$defs/address" },
            "contactMethod": { "type": "string", "enum": ["phone", "email"] },
            "phone": { "type": "string" },
            "email": { "type": "string" },
        },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
        "if": {
            "properties": { "contactMethod": { "const": "phone" } },
            "required": ["contactMethod"],
        },
        "then": { "required": ["phone"] },
        "else": { "required": ["email"] },
        "additionalProperties": false,
    })
}

/// All prompts, as the result of `prompts/list`.
pub(crate) fn prompts() -> Value {
    let prompts: Vec<Value> = [
        ("test_simple_prompt", &[][..]),
        ("test_prompt_with_arguments", &["arg1", "arg2"]),
        ("test_prompt_with_embedded_resource", &["resourceUri"]),
        ("test_prompt_with_image", &[]),
        ("test_input_required_result_prompt", &[]),
    ]
    .into_iter()
    .map(|(name, arguments)| prompt(name, arguments))
    .collect();
    json!({ "prompts": prompts })
}

fn prompt(name: &str, arguments: &[&str]) -> Value {
    let argument = |name: &&str| json!({ "name": name, "description": name, "required": true });
    let arguments: Vec<Value> = arguments.iter().map(argument).collect();
    json!({ "name": name, "description": format!("For {name}"), "arguments": arguments })
}

/// All resources, as the result of `resources/list`.
pub(crate) fn resources() -> Value {
    let resource = |uri: &str, name: &str, kind: &str| {
        let mut resource = json!({ "uri": uri, "name": name, "description": name });
        resource["mimeType"] = json!(kind);
        resource
    };
    json!({ "resources": [
        resource("test://static-text", "A text", "text/plain"),
        resource("test://static-binary", "An image", "image/png"),
        resource("test://watched-resource", "A text to subscribe to", "text/plain"),
    ] })
}

/// All templates, as the result of `resources/templates/list`.
pub(crate) fn templates() -> Value {
    json!({ "resourceTemplates": [{
        "uriTemplate": "test://template/{id}/data",
        "name": "Data of an id",
        "description": "Data of an id",
        "mimeType": "application/json",
    }] })
}

/// What a resource holds.
pub(crate) fn resource(uri: &str) -> Option<Value> {
    let text =
        |mime_type: &str, text: &str| json!({ "uri": uri, "mimeType": mime_type, "text": text });
    if let Some(id) = uri.strip_prefix("test://template/") {
        let id = id.strip_suffix("/data")?;
        let data = json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") });
        return Some(text("application/json", &data.to_string()));
    }
    match uri {
        "test://static-text" => {
            Some(text("text/plain", "This is the content of the static text resource."))
        }
        "test://static-binary" => Some(json!({ "uri": uri, "mimeType": "image/png", "blob": PNG })),
        "test://watched-resource" => Some(text("text/plain", "A text that is watched.")),
        _ => None,
    }
}

/// A content block of text.
pub(crate) fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

/// A content block of an image.
pub(crate) fn image() -> Value {
    json!({ "type": "image", "data": PNG, "mimeType": "image/png" })
}

/// A content block of audio.
pub(crate) fn audio() -> Value {
    json!({ "type": "audio", "data": WAV, "mimeType": "audio/wav" })
}

/// A content block that is a resource.
pub(crate) fn embedded(uri: &str, mime_type: &str, text: &str) -> Value {
    let resource = json!({ "uri": uri, "mimeType": mime_type, "text": text });
    json!({ "type": "resource", "resource": resource })
}
