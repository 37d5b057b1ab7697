//! Links between the documents lead somewhere.

use super::Violation;
use super::tree::TextFile;

/// Checks every relative link of the Markdown files; `exists` answers for paths from the root.
pub(super) fn check(files: &[TextFile], exists: impl Fn(&str) -> bool) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in files.iter().filter(|file| file.extension() == "md") {
        for (line, target) in links(&file.text) {
            let path = resolve(&file.path, target);
            if !path.is_some_and(|path| exists(&path)) {
                let message = format!("the link to {target} leads nowhere");
                violations.push(Violation::new(&file.path, line, message));
            }
        }
    }
    violations
}

/// Relative link targets with their lines; code blocks and addresses are left out.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut is_code = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        if is_code {
            continue;
        }
        for (at, mark) in line.match_indices("](") {
            let Some((target, _)) = line[at + mark.len()..].split_once(')') else {
                continue;
            };
            let target = target.split('#').next().unwrap_or(target);
            if !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:") {
                found.push((index + 1, target));
            }
        }
    }
    found
}

/// `target` as seen from the file at `from`, as a path from the root; nothing if it leaves it.
fn resolve(from: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let file = TextFile { path: path.to_owned(), text: text.to_owned() };
        let exists = |path: &str| matches!(path, "README.md" | "docs/protocol.md");
        check(&[file], exists).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn links_that_lead_somewhere_pass() {
        assert!(
            found("README.md", "[a](docs/protocol.md#words) [b](https://example.org)").is_empty()
        );
        assert!(found("docs/reasons/a.md", "[a](../protocol.md), [b](../../README.md)").is_empty());
        assert!(found("README.md", "```\n[a](missing.md)\n```\n[b](#here)").is_empty());
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let message = "docs/a.md:2: the link to b.md leads nowhere";
        assert_eq!(found("docs/a.md", "text\n[b](b.md)"), [message]);
        assert_eq!(found("README.md", "[b](../../b.md)").len(), 1);
    }
}
