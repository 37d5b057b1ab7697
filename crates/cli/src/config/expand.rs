//! `${NAME}` and `${NAME:-default}` in the texts of a configuration file.

use std::env::VarError;

/// Looks up a variable of the environment.
pub(super) type Lookup<'a> = &'a dyn Fn(&str) -> Result<String, VarError>;

/// Replaces every `${NAME}` by the variable's value, and `${NAME:-default}` by the default where
/// the variable is unset or empty, as shells do. `$${` stands for `${`; any other `$` for itself.
///
/// # Errors
/// What is wrong and what to do, without any value.
pub(super) fn expand(text: &str, lookup: Lookup<'_>) -> Result<String, String> {
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
        expanded.push_str(&value(inside, lookup)?);
        rest = after;
    }
    expanded.push_str(rest);
    Ok(expanded)
}

fn value(inside: &str, lookup: Lookup<'_>) -> Result<String, String> {
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    let is_name = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !is_name {
        return Err("what stands in ${} is no variable: write ${NAME} or ${NAME:-default}, or \
                    $${ for the two characters themselves"
            .to_owned());
    }
    if default.is_some_and(|default| default.contains("${")) {
        return Err(format!("a default cannot hold another variable: write {name} and it apart"));
    }
    match (lookup(name), default) {
        (Ok(value), Some(default)) if value.is_empty() => Ok(default.to_owned()),
        (Ok(value), _) => Ok(value),
        (Err(VarError::NotPresent), Some(default)) => Ok(default.to_owned()),
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
        expand(text, &|name| match name {
            "ONE" => Ok("1${TWO}".to_owned()),
            "EMPTY" => Ok(String::new()),
            "BYTES" => Err(VarError::NotUnicode("secret".into())),
            _ => Err(VarError::NotPresent),
        })
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
        for text in ["${", "${ONE", "${}", "${1A}", "${A B}", "${:-x}", "${é}"] {
            let refusal = expanded(text).unwrap_err();
            assert!(refusal.contains("${NAME}") && !refusal.contains("${ONE"), "{text}: {refusal}");
        }
    }
}
