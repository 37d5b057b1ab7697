//! What is wrong with the arguments of a call, in the words of the tool's own schema.

use serde_json::{Map, Value};

use super::catalog;

/// Longest value that is shown.
const SHOWN_CHARS_MAX: usize = 40;

/// The first argument that does not fit, and what to send. `None`: the schema finds nothing.
pub(super) fn problem(tool: &str, arguments: &str) -> Option<String> {
    let Ok(Value::Object(sent)) = serde_json::from_str(arguments) else {
        return Some("`arguments` must be an object".to_owned());
    };
    let tools = catalog::tools();
    let tool = tools["tools"].as_array()?.iter().find(|listed| listed["name"] == tool)?;
    let schema = &tool["inputSchema"];
    let required = schema["required"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut properties = schema["properties"].as_object()?.iter();
    properties.find_map(|(name, property)| {
        let is_required = required.iter().any(|required| required == name.as_str());
        problem_of(name, property, is_required, &sent)
    })
}

fn problem_of(
    name: &str,
    property: &Value,
    is_required: bool,
    sent: &Map<String, Value>,
) -> Option<String> {
    let found = match sent.get(name) {
        Some(value) if fits(property, value) => return None,
        None if !is_required => return None,
        Some(value) => {
            let text = value.to_string();
            let more = if text.chars().count() > SHOWN_CHARS_MAX { ".." } else { "" };
            format!("is {}{more}", text.chars().take(SHOWN_CHARS_MAX).collect::<String>())
        }
        None => "is missing".to_owned(),
    };
    let mut form = types(property).collect::<Vec<_>>().join(" or ");
    for (bound, word) in [("minimum", "from"), ("maximum", "to")] {
        if let Some(number) = property.get(bound) {
            form = format!("{form} {word} {number}");
        }
    }
    let what = property["description"].as_str().unwrap_or_default();
    Some(format!("`{name}` {found}: send it as {form}. {what}"))
}

/// The names of the JSON types that a property may have.
fn types(property: &Value) -> impl Iterator<Item = &str> {
    let listed = property["type"].as_array().map(Vec::as_slice).unwrap_or_default();
    property["type"].as_str().into_iter().chain(listed.iter().filter_map(Value::as_str))
}

fn fits(property: &Value, value: &Value) -> bool {
    let has_type = types(property).any(|name| match name {
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        _ => value.is_null(),
    });
    let bound = |name: &str| property[name].as_f64();
    let number = value.as_f64();
    has_type
        && number.is_none_or(|number| bound("minimum").is_none_or(|minimum| number >= minimum))
        && number.is_none_or(|number| bound("maximum").is_none_or(|maximum| number <= maximum))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_argument_that_does_not_fit_is_named_with_what_to_send() {
        for (tool, arguments, expected) in [
            ("charge", "{}", "`amount` is missing: send it as integer. How much to charge."),
            ("charge", r#"{"amount":"five"}"#, "`amount` is \"five\": send it as integer."),
            ("charge", r#"{"amount":1,"events":-1}"#, "`events` is -1: send it as integer from 0."),
            ("charge", r#"{"amount":1,"fail":1}"#, "`fail` is 1: send it as boolean."),
            (
                "slow",
                r#"{"seconds":99999}"#,
                "`seconds` is 99999: send it as number from 0 to 86400",
            ),
            ("state", r#"{"set":7}"#, "`set` is 7: send it as string or null."),
            ("notify", "[]", "`arguments` must be an object"),
        ] {
            let told = problem(tool, arguments).unwrap();
            assert!(told.starts_with(expected), "{told}");
        }
        assert_eq!(problem("charge", r#"{"amount":1,"crash_after":null}"#), None);
        let long = format!(r#"{{"question":[{}1]}}"#, "1,".repeat(9_999));
        assert!(problem("ask", &long).unwrap().len() < 200);
    }
}
