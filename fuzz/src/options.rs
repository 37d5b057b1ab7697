//! A file of options (`-c FILE`), TOML or JSON: it is read, or its operator is told where it is
//! wrong, in short, without any value of the environment and without what a terminal obeys.

use std::env::VarError;

use rejoin::fuzz::{FileRead, read_file, shown};

/// What a variable holds, which nobody may be told.
const SECRET: &str = "SeCrEt";
/// Longest message: twenty places with the longest list of keys each.
const TOLD_BYTES_MAX: usize = 64 * 1_024;

/// The first byte says TOML (even) or JSON, the rest is the text.
pub fn run(data: &[u8]) {
    let [kind, text @ ..] = data else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    // A text that has it by itself shows nothing.
    if text.contains(SECRET) {
        return;
    }
    let (one, other) = if kind % 2 == 0 { ("a.toml", "a.json") } else { ("a.json", "a.toml") };
    let read = check(one, text);
    assert_eq!(format!("{read:?}"), format!("{:?}", check(one, text)), "read twice");
    // As the other kind it is wrong in most cases, and told all the same.
    check(other, text).ok();
    if let Ok(read) = &read
        && kind % 2 == 1
        && let Some(toml) = as_toml(text)
        && read.unused.is_empty()
    {
        let again = check("a.toml", &toml);
        let names = |read: &FileRead| {
            let mut names = read.servers.clone();
            names.sort();
            names
        };
        match again {
            Ok(again) => assert_eq!(names(&again), names(read), "as TOML: {toml}"),
            Err(told) => panic!("taken as JSON, but not as TOML: {told}\n{toml}"),
        }
    }
}

fn check(name: &str, text: &str) -> Result<FileRead, String> {
    let lookup = |variable: &str| match variable.len() {
        1 => Err(VarError::NotPresent),
        2 => Ok(String::new()),
        3 => Err(VarError::NotUnicode(SECRET.into())),
        _ => Ok(SECRET.to_owned()),
    };
    let read = read_file(name, text, &lookup);
    let told = match &read {
        Ok(read) => read.unused.clone(),
        Err(told) => {
            assert!(!told.is_empty());
            told.lines().map(str::to_owned).collect()
        }
    };
    let all = told.join("\n");
    assert!(!all.contains(SECRET), "what a variable holds is told: {all}");
    assert!(all.len() <= TOLD_BYTES_MAX + 4 * text.len(), "{} bytes are told", all.len());
    let on_terminal = shown(&all);
    assert!(!on_terminal.contains(|c: char| c.is_control() && c != '\n'), "{on_terminal:?}");
    for line in told.iter().filter(|line| line.starts_with(&format!("{name}:"))) {
        check_place(line, name, text);
    }
    read
}

/// A place is one of the text.
fn check_place(told: &str, name: &str, text: &str) {
    let mut parts = told[name.len() + 1..].splitn(3, ':');
    let mut number = || parts.next().and_then(|part| part.parse::<usize>().ok());
    let (Some(line), Some(column)) = (number(), number()) else { panic!("no place: {told}") };
    let lines: Vec<&str> = text.split('\n').collect();
    let columns = lines.get(line.wrapping_sub(1)).map(|line| line.chars().count());
    let is_there = columns.is_some_and(|columns| (1..=columns + 1).contains(&column));
    assert!(is_there, "there is no such place: {told}");
}

/// The same as TOML, if TOML can say it.
fn as_toml(json: &str) -> Option<String> {
    let value: serde_json::Value = serde_json::from_str(json).ok()?;
    let serde_json::Value::Object(members) = &value else { return None };
    let lines =
        members.iter().map(|(key, value)| Some(format!("{} = {}", quoted(key), inline(value)?)));
    Some(lines.collect::<Option<Vec<_>>>()?.join("\n"))
}

/// A value on one line.
fn inline(value: &serde_json::Value) -> Option<String> {
    use serde_json::Value;
    Some(match value {
        Value::Null => return None,
        Value::Bool(flag) => flag.to_string(),
        // Floats and numbers beyond 64 bits are written otherwise.
        Value::Number(number) => number.as_i64()?.to_string(),
        Value::String(text) => quoted(text),
        Value::Array(values) => {
            let values = values.iter().map(inline).collect::<Option<Vec<_>>>()?;
            format!("[{}]", values.join(", "))
        }
        Value::Object(members) => {
            let members = members
                .iter()
                .map(|(key, value)| Some(format!("{} = {}", quoted(key), inline(value)?)))
                .collect::<Option<Vec<_>>>()?;
            format!("{{{}}}", members.join(", "))
        }
    })
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for character in text.chars() {
        if character.is_control() || matches!(character, '"' | '\\') {
            out.push_str(&format!("\\u{:04X}", u32::from(character)));
        } else {
            out.push(character);
        }
    }
    out.push('"');
    out
}
