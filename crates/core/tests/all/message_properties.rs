//! Messages against serde_json, and changes against what they may not touch.
use bytes::Bytes;
use proptest::prelude::*;
use rejoin_core::message::{IdKey, Incoming, Message, ParseError, parse};
use serde_json::{Map, Value};

fn one(body: &str) -> Message {
    match parse(Bytes::copy_from_slice(body.as_bytes()), 128) {
        Ok(Incoming::One(message)) => message,
        other => panic!("{body}: {other:?}"),
    }
}

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3i64..3).prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::btree_map(text(), inner, 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn object() -> impl Strategy<Value = Map<String, Value>> {
    proptest::collection::btree_map(text(), json(), 0..5)
        .prop_map(|members| members.into_iter().collect())
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[ab]{0,2}", "\\PC{0,4}", Just("_meta".into()), Just("id".into()), any::<String>()]
}

/// A source of free choices in spelling.
struct Choices<'a>(std::iter::Cycle<std::slice::Iter<'a, u8>>);

impl<'a> Choices<'a> {
    fn new(choices: &'a [u8]) -> Self {
        Self(choices.iter().cycle())
    }

    fn next(&mut self, of: u8) -> u8 {
        self.0.next().map_or(0, |choice| choice % of)
    }

    fn space(&mut self, out: &mut String) {
        out.push_str(["", "", " ", "\n\t\r "][usize::from(self.next(4))]);
    }

    fn spell(&mut self, value: &Value, out: &mut String) {
        self.space(out);
        match value {
            Value::String(text) => self.spell_string(text, out),
            Value::Array(values) => {
                out.push('[');
                for (index, value) in values.iter().enumerate() {
                    out.push_str(if index > 0 { "," } else { "" });
                    self.spell(value, out);
                }
                out.push(']');
            }
            Value::Object(members) => self.spell_object(members, out),
            scalar => out.push_str(&scalar.to_string()),
        }
        self.space(out);
    }

    fn spell_object(&mut self, members: &Map<String, Value>, out: &mut String) {
        let mut members: Vec<_> = members.iter().collect();
        if !members.is_empty() {
            let turn = usize::from(self.next(255)) % members.len();
            members.rotate_left(turn);
        }
        out.push('{');
        self.space(out);
        for (index, (key, value)) in members.into_iter().enumerate() {
            out.push_str(if index > 0 { "," } else { "" });
            self.space(out);
            self.spell_string(key, out);
            self.space(out);
            out.push(':');
            self.spell(value, out);
        }
        out.push('}');
    }

    fn spell_string(&mut self, text: &str, out: &mut String) {
        out.push('"');
        for character in text.chars() {
            let must = matches!(character, '"' | '\\' | '\0'..='\u{1F}');
            if must || self.next(4) == 0 {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    let upper = self.next(2) == 0;
                    out.push_str(&if upper {
                        format!("\\u{unit:04X}")
                    } else {
                        format!("\\u{unit:04x}")
                    });
                }
            } else {
                out.push(character);
            }
        }
        out.push('"');
    }
}

fn spelled(value: &Value, choices: &[u8]) -> String {
    let mut out = String::new();
    Choices::new(choices).spell(value, &mut out);
    out
}

fn call(params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{params}}}"#)
}

fn params_hash(params: &Map<String, Value>, choices: &[u8]) -> [u8; 32] {
    one(&call(&spelled(&Value::Object(params.clone()), choices))).canonical_params_hash()
}

/// Whether serde_json takes the text for JSON. It does not look at UTF-8 in what it ignores.
fn is_json(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok()
        && serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok()
}

fn parses_as_json(text: &[u8]) -> bool {
    let refused = |error: &ParseError| match error {
        ParseError::Element { source, .. } => matches!(**source, ParseError::NotJson { .. }),
        error => matches!(error, ParseError::NotJson { .. }),
    };
    !parse(Bytes::copy_from_slice(text), usize::MAX).is_err_and(|error| refused(&error))
}

const JSON_BYTES: &[u8] = b"{}[]:,\"\\ue0019-+.Etrufalsn \n\x1F\x7F\xC3\xA9\xED\xA0\x80/b";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn exactly_what_serde_json_takes_for_json_is_json(
        soup in proptest::collection::vec(prop::sample::select(JSON_BYTES), 0..12),
        wrapped in 0..4usize,
    ) {
        let (before, after) = [("", ""), ("[", "]"), ("{\"a\":", "}"), ("[\"", "\"]")][wrapped];
        let text = [before.as_bytes(), &soup, after.as_bytes()].concat();
        prop_assert_eq!(parses_as_json(&text), is_json(&text), "{}", text.escape_ascii());
    }

    #[test]
    fn a_message_with_damage_is_json_exactly_if_serde_json_says_so(
        params in object(),
        choices in proptest::collection::vec(any::<u8>(), 1..40),
        damage in proptest::collection::vec(
            (any::<prop::sample::Index>(), prop::sample::select(JSON_BYTES), 0..3), 0..3,
        ),
    ) {
        let mut text = call(&spelled(&Value::Object(params), &choices)).into_bytes();
        for (at, byte, how) in damage {
            let at = at.index(text.len());
            match how {
                0 => text[at] = byte,
                1 => text.insert(at, byte),
                _ => drop(text.remove(at)),
            }
        }
        prop_assert_eq!(parses_as_json(&text), is_json(&text), "{}", text.escape_ascii());
    }

    #[test]
    fn every_param_and_meta_value_is_found(
        params in object(),
        meta in object(),
        choices in proptest::collection::vec(any::<u8>(), 1..40),
    ) {
        let mut params = params;
        params.insert("_meta".into(), Value::Object(meta.clone()));
        let message = one(&call(&spelled(&Value::Object(params.clone()), &choices)));
        let value = |raw: Option<&[u8]>| -> Option<Value> {
            raw.map(|raw| serde_json::from_slice(raw).expect("a JSON value"))
        };
        for (key, expected) in &params {
            prop_assert_eq!(value(message.param(key)), Some(expected.clone()));
            let text = message.param_str(key).map(String::from);
            prop_assert_eq!(text, expected.as_str().map(String::from));
        }
        for (key, expected) in &meta {
            prop_assert_eq!(value(message.meta(key)), Some(expected.clone()));
            let text = message.meta_str(key).map(String::from);
            prop_assert_eq!(text, expected.as_str().map(String::from));
        }
    }

    #[test]
    fn hashes_are_equal_exactly_if_the_params_are(
        first in object(),
        second in object(),
        choices in proptest::collection::vec(any::<u8>(), 1..40),
    ) {
        let without_meta = |params: &Map<String, Value>| {
            let mut params = params.clone();
            params.remove("_meta");
            params
        };
        prop_assert_eq!(params_hash(&first, &choices), params_hash(&without_meta(&first), &[0]));
        let is_equal = without_meta(&first) == without_meta(&second);
        prop_assert_eq!(params_hash(&first, &[0]) == params_hash(&second, &choices), is_equal);
    }

    #[test]
    fn replaced_members_are_all_that_changes(
        params in object(),
        meta in object(),
        removed in "k{3,6}",
        choices in proptest::collection::vec(any::<u8>(), 1..40),
        id in prop_oneof![any::<i64>().prop_map(Value::from), text().prop_map(Value::from)],
    ) {
        let mut choices = Choices::new(&choices);
        let mut tail = String::new();
        for (key, value) in params.iter().filter(|(key, _)| *key != "_meta") {
            choices.spell_string(key, &mut tail);
            tail.push(':');
            choices.spell(value, &mut tail);
            tail.push(',');
        }
        let mut meta = meta;
        meta.remove("progressToken");
        meta.remove(&removed);
        let mut meta_tail = String::new();
        for (key, value) in &meta {
            meta_tail.push(',');
            choices.spell_string(key, &mut meta_tail);
            meta_tail.push(':');
            choices.spell(value, &mut meta_tail);
        }
        let mut spelled_id = String::new();
        choices.spell(&id, &mut spelled_id);
        let removed_member = format!(" , \"{removed}\"\n: [\"\\\"\",{{}}]");
        let body = |id: &str, token: &str, removed: &str| format!(
            "{{\"method\":\"tools/call\", \"params\" :{{ {tail} \"_meta\" :{{\
             \"progressToken\":{token}\
             {removed}{meta_tail} }} }},\"id\" :{id}, \"jsonrpc\":\"2.0\" }}\n"
        );
        let message = one(&body(&spelled_id, " \"t\\u0031\"", &removed_member));
        let trimmed_id = spelled_id.trim();
        prop_assert_eq!(message.id(), Some(trimmed_id.as_bytes()));
        let canonical = IdKey::from_json(id.to_string().as_bytes()).expect("an id");
        prop_assert_eq!(message.id_key(), Some(canonical));
        let edited = message.edit().progress_token(b"42").remove_meta(&[&removed]).id(b"17");
        let new_id = spelled_id.replace(trimmed_id, "17");
        prop_assert_eq!(edited.finish(), body(&new_id, " 42", ""));
    }

    #[test]
    fn added_members_are_all_that_changes(
        result in object(),
        meta in proptest::option::of(object()),
        key in text(),
        value in json(),
        choices in proptest::collection::vec(any::<u8>(), 1..40),
    ) {
        let mut result = result;
        result.remove("_meta");
        if let Some(meta) = meta {
            result.insert("_meta".into(), Value::Object(meta));
        }
        let text = spelled(&Value::Object(result.clone()), &choices);
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{text}}}"#);
        let raw_value = spelled(&value, &choices);
        let message = one(&body);
        let edited = message.edit().result_meta(&key, raw_value.as_bytes()).finish();
        let new = one(std::str::from_utf8(&edited).expect("UTF-8"));
        let new_result: Value =
            serde_json::from_slice(new.result().expect("a result")).expect("a JSON value");
        let meta = result.entry("_meta").or_insert_with(|| Value::Object(Map::new()));
        let old = meta.as_object_mut().expect("an object").insert(key, value);
        prop_assert_eq!(new_result, Value::Object(result));
        if old.is_none() {
            let body = body.as_bytes();
            let same_before = edited.iter().zip(body).take_while(|(new, old)| new == old).count();
            let same_after =
                edited.iter().rev().zip(body.iter().rev()).take_while(|(new, old)| new == old);
            prop_assert!(same_before + same_after.count() >= body.len());
        }
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let _any_outcome = parse(Bytes::copy_from_slice(&bytes), 8);
        let _any_outcome = IdKey::from_json(&bytes);
    }
}
