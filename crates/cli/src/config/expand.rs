//! `${NAME}` and `${NAME:-default}` in the texts of a configuration file.

use std::env::VarError;

use crate::args::value::is_variable;

/// What editors put into the files of their servers, and no environment has.
const OF_EDITORS: [&str; 4] =
    ["workspaceFolder", "workspaceFolderBasename", "userHome", "pathSeparator"];

/// Looks up a variable of the environment.
pub(super) type Lookup<'a> = &'a dyn Fn(&str) -> Result<String, VarError>;

/// A text of a file. What is wrong with it matters only if it is used.
#[derive(Debug)]
pub(super) struct Text {
    /// With the values of its variables, or what is wrong and what to do.
    pub(super) expanded: Result<String, String>,
    /// The variables that it names.
    pub(super) variables: Vec<String>,
}

impl Text {
    pub(super) fn read(text: &str, lookup: Lookup<'_>) -> Self {
        let mut variables = Vec::new();
        let expanded = expand(text, lookup, &mut variables);
        Self { expanded, variables }
    }
}

/// Replaces every `${NAME}` by the variable's value, and `${NAME:-default}` by the default where
/// the variable is unset or empty, as shells do. `${env:NAME}` is the same. `$${` stands for `${`;
/// any other `$` for itself. Adds the names of the variables.
///
/// # Errors
/// What is wrong and what to do, without any value.
fn expand(text: &str, lookup: Lookup<'_>, variables: &mut Vec<String>) -> Result<String, String> {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(found) = rest.find("${") {
        let (before, after) = (&rest[..found], &rest[found + 2..]);
        if let Some(before) = before.strip_suffix('$') {
            expanded.push_str(before);
            expanded.push_str("${");
            rest = after;
            continue;
        }
        expanded.push_str(before);
        let (inside, after) = after
            .split_once('}')
            .ok_or("`${` without `}`: write ${NAME}, or $${ for the two characters themselves")?;
        expanded.push_str(&value(inside, lookup, variables)?);
        rest = after;
    }
    expanded.push_str(rest);
    Ok(expanded)
}

fn value(inside: &str, lookup: Lookup<'_>, variables: &mut Vec<String>) -> Result<String, String> {
    // Some clients write it so.
    let inside = inside.strip_prefix("env:").unwrap_or(inside);
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    if inside.starts_with("input:") {
        return Err("${input:...} asks a person, which Rejoin cannot do: write ${NAME}, and set \
                    the variable NAME before Rejoin starts"
            .to_owned());
    }
    if !is_variable(name) {
        return Err("what stands in ${} is no variable: write ${NAME} or ${NAME:-default}, or \
                    $${ for the two characters themselves"
            .to_owned());
    }
    variables.push(name.to_owned());
    if default.is_some_and(|default| default.contains("${")) {
        return Err(format!("a default cannot hold another variable: write {name} and it apart"));
    }
    match (lookup(name), default) {
        (Ok(value), Some(default)) if value.is_empty() => Ok(default.to_owned()),
        (Ok(value), _) => Ok(value),
        (Err(VarError::NotPresent), Some(default)) => Ok(default.to_owned()),
        (Err(VarError::NotPresent), None) if OF_EDITORS.contains(&name) => Err(format!(
            "${{{name}}} is known to an editor alone: write the path itself, or set the variable \
             {name} before Rejoin starts"
        )),
        (Err(VarError::NotPresent), None) => Err(format!(
            "the variable {name} is not set: set it before Rejoin starts, or write a default as \
             ${{{name}:-default}}"
        )),
        (Err(VarError::NotUnicode(_)), _) => {
            Err(format!("the variable {name} is not UTF-8 text: set it to text"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(text: &str) -> Result<String, String> {
        let read = Text::read(text, &|name| match name {
            "ONE" => Ok("1${TWO}".to_owned()),
            "EMPTY" => Ok(String::new()),
            "BYTES" => Err(VarError::NotUnicode("secret".into())),
            _ => Err(VarError::NotPresent),
        });
        read.expanded
    }

    #[test]
    fn variables_are_replaced_once_and_defaults_stand_in() {
        for (text, expected) in [
            ("", ""),
            ("a$b$", "a$b$"),
            ("$ONE {ONE}", "$ONE {ONE}"),
            ("x${ONE}y${ONE}", "x1${TWO}y1${TWO}"),
            ("${NONE:-d}${ONE:-d}${EMPTY:-e}", "d1${TWO}e"),
            ("[${EMPTY}${NONE:-}]", "[]"),
            ("${NONE:-http://h:1/-}", "http://h:1/-"),
            ("$${ONE} $$${ONE}", "${ONE} $${ONE}"),
            ("${env:ONE}${env:NONE:-d}", "1${TWO}d"),
        ] {
            assert_eq!(expanded(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_expanded_is_told_by_its_name() {
        let unset = expanded("a ${NONE} ${ONE}").unwrap_err();
        assert!(unset.starts_with("the variable NONE is not set: set it"), "{unset}");
        assert!(unset.ends_with("${NONE:-default}"), "{unset}");
        assert!(
            expanded("${BYTES:-x}").unwrap_err().starts_with("the variable BYTES is not UTF-8")
        );
        for text in ["a ${NONE:-${ONE}}", "${ONE:-${NONE}}"] {
            let refusal = expanded(text).unwrap_err();
            assert!(refusal.starts_with("a default cannot hold another variable"), "{refusal}");
        }
        assert!(expanded("${input:key}").unwrap_err().contains("asks a person"));
        assert!(expanded("${workspaceFolder}").unwrap_err().contains("write the path itself"));
        for text in ["${", "${ONE", "${}", "${1A}", "${A B}", "${:-x}", "${é}"] {
            let refusal = expanded(text).unwrap_err();
            assert!(refusal.contains("${NAME}") && !refusal.contains("${ONE"), "{text}: {refusal}");
        }
    }
}
