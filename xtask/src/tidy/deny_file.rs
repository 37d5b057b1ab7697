//! Reads the part of `deny.toml` (cargo-deny's own format) that tidy checks by itself.

use std::path::Path;

use crate::failure::Failure;

/// The rules of `deny.toml`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DenyFile {
    /// Platforms whose dependencies count.
    pub(super) targets: Vec<String>,
    /// Licences that may be used.
    pub(super) licences: Vec<String>,
    /// Crates that must not be in the graph.
    pub(super) banned: Vec<String>,
    /// Registries that crates may come from.
    pub(super) registries: Vec<String>,
}

/// Reads `deny.toml` at the workspace root.
pub(super) fn load(root: &Path) -> Result<DenyFile, Failure> {
    let text = std::fs::read_to_string(root.join("deny.toml"))
        .map_err(|error| Failure::new(format!("cannot read deny.toml: {error}")))?;
    let file = parse(&text);
    if file.licences.is_empty() || file.banned.is_empty() || file.registries.is_empty() {
        return Err(Failure::new("deny.toml must list licences, banned crates and registries"));
    }
    Ok(file)
}

/// Reads the four arrays; everything else in the file is for cargo-deny alone.
fn parse(text: &str) -> DenyFile {
    let lines: Vec<&str> = text.lines().map(without_comment).collect();
    let banned = array(&lines, "[bans]", "deny");
    DenyFile {
        targets: strings(&array(&lines, "[graph]", "targets")),
        licences: strings(&array(&lines, "[licenses]", "allow")),
        // An entry is `{ crate = "name", reason = "why" }`.
        banned: banned.split("crate = ").skip(1).filter_map(first_string).collect(),
        registries: strings(&array(&lines, "[sources]", "allow-registry")),
    }
}

/// What stands between the brackets of `key` in `section`, over one or several lines.
fn array(lines: &[&str], section: &str, key: &str) -> String {
    let body = lines.iter().skip_while(|line| **line != section).skip(1);
    let body = body.take_while(|line| !line.starts_with('['));
    let is_key = |line: &str| line.split('=').next().is_some_and(|name| name.trim() == key);
    let text: Vec<&str> = body.skip_while(|line| !is_key(line)).copied().collect();
    let text = text.join("\n");
    let inner = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inner.map_or_else(String::new, |(inner, _)| inner.to_owned())
}

fn without_comment(line: &str) -> &str {
    let is_outside = |at: usize| line[..at].matches('"').count().is_multiple_of(2);
    let comment = line.match_indices('#').map(|(at, _)| at).find(|&at| is_outside(at));
    line[..comment.unwrap_or(line.len())].trim()
}

fn first_string(text: &str) -> Option<String> {
    strings(text).into_iter().next()
}

fn strings(text: &str) -> Vec<String> {
    text.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_four_arrays_are_read() {
        let text = r##"
[graph]
targets = ["x86_64-unknown-linux-gnu"]

[licenses]
confidence-threshold = 0.9
allow = [
    "MIT", # a "comment"
    "Apache-2.0",
]

[bans]
multiple-versions = "allow"
deny = [
    { crate = "ring", reason = "one provider" },
    { crate = "openssl" },
]

[sources]
unknown-git = "deny"
allow-registry = ["https://example.org/index"]
"##;
        let file = parse(text);
        assert_eq!(file.targets, ["x86_64-unknown-linux-gnu"]);
        assert_eq!(file.licences, ["MIT", "Apache-2.0"]);
        assert_eq!(file.banned, ["ring", "openssl"]);
        assert_eq!(file.registries, ["https://example.org/index"]);
    }

    #[test]
    fn a_missing_array_is_empty() {
        assert_eq!(parse("[bans]\n[licenses]\nallow = [\"MIT\"]").banned, [] as [&str; 0]);
    }
}
