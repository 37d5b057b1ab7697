//! Licences, banned crates and origins of everything the workspace is built from.

use super::Violation;
use super::deny_file::DenyFile;
use super::spdx;
use crate::metadata::{Metadata, Package};

const DENY_FILE: &str = "deny.toml";

/// Checks every package of the graph against `deny.toml`.
pub(super) fn check(graph: &Metadata, deny: &DenyFile) -> Vec<Violation> {
    let packages = graph.packages.iter();
    let problems = packages.flat_map(|package| {
        [licence(package, deny), ban(package, deny), origin(package, deny)].into_iter().flatten()
    });
    problems.map(|message| Violation::new(DENY_FILE, 0, message)).collect()
}

fn licence(package: &Package, deny: &DenyFile) -> Option<String> {
    let title = title(package);
    let Some(expression) = &package.license else {
        return Some(format!("{title} names no licence: do not use it"));
    };
    (!spdx::is_satisfied(expression, &deny.licences))
        .then(|| format!("{title} is licensed {expression}, which the list does not allow"))
}

fn ban(package: &Package, deny: &DenyFile) -> Option<String> {
    deny.banned.contains(&package.name).then(|| {
        format!("{} is banned: find out with cargo tree -i what pulls it in", title(package))
    })
}

fn origin(package: &Package, deny: &DenyFile) -> Option<String> {
    let is_allowed = match &package.source {
        None => package.is_member,
        Some(source) => source
            .strip_prefix("registry+")
            .is_some_and(|url| deny.registries.iter().any(|registry| registry == url)),
    };
    let source = package.source.as_deref().unwrap_or("a path outside the workspace");
    (!is_allowed).then(|| format!("{} comes from {source}, which is not allowed", title(package)))
}

fn title(package: &Package) -> String {
    format!("{} {}", package.name, package.version)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGISTRY: &str = "registry+https://example.org/index";

    fn package(name: &str, license: Option<&str>, source: Option<&str>) -> Package {
        Package {
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            license: license.map(str::to_owned),
            source: source.map(str::to_owned),
            is_member: false,
            dependencies: Vec::new(),
        }
    }

    fn found(package: Package) -> usize {
        let deny = DenyFile {
            targets: Vec::new(),
            licences: vec!["MIT".to_owned()],
            banned: vec!["ring".to_owned()],
            registries: vec!["https://example.org/index".to_owned()],
        };
        check(&Metadata { packages: vec![package], target_dir: "target".into() }, &deny).len()
    }

    #[test]
    fn an_allowed_package_passes() {
        assert_eq!(found(package("a", Some("MIT"), Some(REGISTRY))), 0);
    }

    #[test]
    fn a_wrong_or_missing_licence_is_found() {
        assert_eq!(found(package("a", Some("GPL-3.0"), Some(REGISTRY))), 1);
        assert_eq!(found(package("a", None, Some(REGISTRY))), 1);
    }

    #[test]
    fn a_banned_crate_is_found() {
        assert_eq!(found(package("ring", Some("MIT"), Some(REGISTRY))), 1);
    }

    #[test]
    fn another_origin_is_found() {
        for source in [Some("git+https://example.org/a"), Some("registry+https://b"), None] {
            assert_eq!(found(package("a", Some("MIT"), source)), 1, "{source:?}");
        }
    }

    #[test]
    fn a_member_needs_no_registry() {
        let member = Package { is_member: true, ..package("a", Some("MIT"), None) };
        assert_eq!(found(member), 0);
    }
}
