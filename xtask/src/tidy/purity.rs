//! `core` has no clock, no I/O, no threads and no randomness.

use std::collections::BTreeSet;

use super::Violation;
use super::source::{Source, is_word};
use super::tree::TextFile;
use crate::metadata::{DependencyKind, Metadata};

const CORE: &str = "rejoin-core";
const CORE_SOURCES: &str = "crates/core/src/";
const CORE_MANIFEST: &str = "crates/core/Cargo.toml";
/// Exactly what core is built from.
const CORE_DEPENDENCIES: [&str; 5] = ["bytes", "serde", "serde_json", "sha2", "thiserror"];
/// Modules of std that reach outside the process.
const BANNED_MODULES: [&str; 3] = ["fs", "net", "thread"];
/// Types that read a clock.
const BANNED_TYPES: [&str; 2] = ["Instant", "SystemTime"];
const BANNED_CRATE: &str = "rand";

/// Checks that core's dependency list is exactly the allowed one.
pub(super) fn dependencies(graph: &Metadata) -> Vec<Violation> {
    let Some(core) = graph.packages.iter().find(|one| one.is_member && one.name == CORE) else {
        return vec![Violation::new(CORE_MANIFEST, 0, format!("there is no crate {CORE}"))];
    };
    let linked: BTreeSet<&str> = core
        .dependencies
        .iter()
        .filter(|one| one.kind != DependencyKind::Dev)
        .map(|one| one.name.as_str())
        .collect();
    let allowed = BTreeSet::from(CORE_DEPENDENCIES);
    let more = linked.difference(&allowed).map(|name| format!("core must not depend on {name}"));
    let less = allowed
        .difference(&linked)
        .map(|name| format!("core no longer depends on {name}: take it off the list in purity.rs"));
    more.chain(less).map(|message| Violation::new(CORE_MANIFEST, 0, message)).collect()
}

/// Checks that one file of core names nothing impure; other files pass.
pub(super) fn sources(file: &TextFile) -> Vec<Violation> {
    if !file.path.starts_with(CORE_SOURCES) || !file.is_rust() {
        return Vec::new();
    }
    let code = Source::scan(&file.text).code();
    let found = impure_names(&tokens(&code));
    found
        .into_iter()
        .map(|(line, name)| Violation::new(&file.path, line, format!("core must not use {name}")))
        .collect()
}

/// A word or a single mark, with its line from 1.
type Token<'a> = (usize, &'a str);

fn tokens(code: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    for (index, mut rest) in code.lines().enumerate() {
        while let Some(first) = rest.chars().next() {
            let length = match rest.find(|character| !is_word(character)) {
                Some(0) => first.len_utf8(),
                Some(length) => length,
                None => rest.len(),
            };
            if !first.is_whitespace() {
                found.push((index + 1, &rest[..length]));
            }
            rest = &rest[length..];
        }
    }
    found
}

fn impure_names(tokens: &[Token<'_>]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, &(line, word)) in tokens.iter().enumerate() {
        let is_path = words(tokens, at + 1, 2) == [":", ":"];
        if BANNED_TYPES.contains(&word) {
            found.push((line, format!("std::time::{word}")));
        } else if word == BANNED_CRATE && is_path {
            found.push((line, word.to_owned()));
        } else if word == "std" && is_path {
            let names = first_names(tokens, at + 3);
            let banned = names.into_iter().filter(|(_, name)| BANNED_MODULES.contains(name));
            found.extend(banned.map(|(line, name)| (line, format!("std::{name}"))));
        }
    }
    found
}

fn words<'a>(tokens: &[Token<'a>], from: usize, count: usize) -> Vec<&'a str> {
    tokens.iter().skip(from).take(count).map(|&(_, word)| word).collect()
}

/// The names directly below `std::`: one, or the first of each entry of a group.
fn first_names<'a>(tokens: &[Token<'a>], from: usize) -> Vec<Token<'a>> {
    let rest = tokens.get(from..).unwrap_or_default();
    match rest.first() {
        Some((_, "{")) => {}
        Some(&one) => return vec![one],
        None => return Vec::new(),
    }
    let mut found = Vec::new();
    let mut depth = 0_usize;
    for (at, &(line, word)) in rest.iter().enumerate() {
        match word {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ if depth == 1 && matches!(rest[at - 1].1, "{" | ",") => found.push((line, word)),
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::{Dependency, Package};

    fn found(path: &str, text: &str) -> Vec<String> {
        let file = TextFile { path: path.to_owned(), text: text.to_owned() };
        sources(&file).iter().map(ToString::to_string).collect()
    }

    fn found_in_core(text: &str) -> Vec<String> {
        let strip = |line: String| line.replace("crates/core/src/a.rs:", "");
        found("crates/core/src/a.rs", text).into_iter().map(strip).collect()
    }

    #[test]
    fn impure_paths_are_found() {
        assert_eq!(found_in_core("use std::fs::File;"), ["1: core must not use std::fs"]);
        assert_eq!(found_in_core("\nstd :: thread::spawn()"), ["2: core must not use std::thread"]);
        assert_eq!(found_in_core("rand::random()"), ["1: core must not use rand"]);
    }

    #[test]
    fn impure_names_in_groups_are_found() {
        let text = "use std::{\n    collections::BTreeMap,\n    net::IpAddr,\n    io::{fs, x},\n};";
        assert_eq!(found_in_core(text), ["3: core must not use std::net"]);
        let text = "use std::time::{Duration, Instant};";
        assert_eq!(found_in_core(text), ["1: core must not use std::time::Instant"]);
    }

    #[test]
    fn comments_strings_and_other_crates_are_free() {
        assert!(found_in_core("// std::fs\nlet a = \"std::net\"; let rand = 1;").is_empty());
        assert!(found_in_core("use std::time::Duration;").is_empty());
        assert!(found("crates/store/src/a.rs", "use std::fs;").is_empty());
    }

    fn core_with(names: &[&str], extra: &[Dependency]) -> Metadata {
        let normal = names
            .iter()
            .map(|name| Dependency { name: (*name).to_owned(), kind: DependencyKind::Normal });
        let core = Package {
            name: CORE.to_owned(),
            version: "0.1.0".to_owned(),
            license: None,
            source: None,
            is_member: true,
            dependencies: normal.chain(extra.iter().cloned()).collect(),
        };
        Metadata { packages: vec![core], target_dir: "target".into() }
    }

    #[test]
    fn core_has_exactly_its_dependencies() {
        let dev = Dependency { name: "proptest".to_owned(), kind: DependencyKind::Dev };
        assert_eq!(dependencies(&core_with(&CORE_DEPENDENCIES, &[dev])), []);
        let tokio = Dependency { name: "tokio".to_owned(), kind: DependencyKind::Normal };
        assert_eq!(dependencies(&core_with(&CORE_DEPENDENCIES, &[tokio])).len(), 1);
        let build = Dependency { name: "cc".to_owned(), kind: DependencyKind::Build };
        assert_eq!(dependencies(&core_with(&CORE_DEPENDENCIES, &[build])).len(), 1);
        assert_eq!(dependencies(&core_with(&CORE_DEPENDENCIES[1..], &[])).len(), 1);
    }
}
