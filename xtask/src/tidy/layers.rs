//! Which crate of the workspace may import which (`ARCHITECTURE.md`, "Layers").

use super::Violation;
use crate::metadata::{Dependency, DependencyKind, Metadata, Package};

/// The tools for tests: anyone's dev-dependency, nobody's part.
const TESTKIT: &str = "rejoin-testkit";

/// Every crate of the workspace, its folder, and the crates it may import.
const LAYERS: [(&str, &str, &[&str]); 8] = [
    ("rejoin-core", "crates/core", &[]),
    ("rejoin-store", "crates/store", &["rejoin-core"]),
    ("rejoin-gateway", "crates/gateway", &["rejoin-core", "rejoin-store"]),
    ("rejoin-client", "crates/client", &["rejoin-core"]),
    ("rejoin-probe", "crates/probe", &["rejoin-core"]),
    (
        "rejoin",
        "crates/cli",
        &["rejoin-core", "rejoin-store", "rejoin-gateway", "rejoin-client", "rejoin-probe"],
    ),
    (TESTKIT, "crates/testkit", &["rejoin-core"]),
    ("xtask", "xtask", &[]),
];

/// Checks every member's dependencies on other members.
pub(super) fn check(graph: &Metadata) -> Vec<Violation> {
    let members: Vec<&Package> =
        graph.packages.iter().filter(|package| package.is_member).collect();
    let is_member = |name: &str| members.iter().any(|member| member.name == name);
    let mut violations = Vec::new();
    for member in &members {
        let Some((_, folder, allowed)) = LAYERS.iter().find(|layer| layer.0 == member.name) else {
            let message = format!("{} has no layer: add it to layers.rs", member.name);
            violations.push(Violation::new("Cargo.toml", 0, message));
            continue;
        };
        let imports = member.dependencies.iter().filter(|one| is_member(&one.name));
        for import in imports.filter(|import| !is_allowed(import, allowed)) {
            let message = format!("{} must not import {}", member.name, describe(import));
            violations.push(Violation::new(&format!("{folder}/Cargo.toml"), 0, message));
        }
    }
    violations
}

fn is_allowed(import: &Dependency, allowed: &[&str]) -> bool {
    let is_tool = import.name == TESTKIT && import.kind == DependencyKind::Dev;
    is_tool || allowed.contains(&import.name.as_str())
}

fn describe(import: &Dependency) -> String {
    if import.name == TESTKIT {
        return format!("{TESTKIT} except as a dev-dependency");
    }
    import.name.clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(members: &[(&str, &[(&str, DependencyKind)])]) -> Metadata {
        let package = |(name, imports): &(&str, &[(&str, DependencyKind)])| Package {
            name: (*name).to_owned(),
            version: "0.1.0".to_owned(),
            license: None,
            source: None,
            is_member: true,
            dependencies: imports
                .iter()
                .map(|&(name, kind)| Dependency { name: name.to_owned(), kind })
                .collect(),
        };
        Metadata { packages: members.iter().map(package).collect(), target_dir: "target".into() }
    }

    #[test]
    fn the_documented_directions_pass() {
        use DependencyKind::{Dev, Normal};
        let graph = graph(&[
            ("rejoin-core", &[]),
            ("rejoin-store", &[("rejoin-core", Normal)]),
            ("rejoin-testkit", &[("rejoin-core", Normal)]),
            ("rejoin-gateway", &[("rejoin-store", Normal), ("rejoin-testkit", Dev)]),
        ]);
        assert_eq!(check(&graph), []);
    }

    #[test]
    fn an_import_upwards_is_found() {
        let graph = graph(&[
            ("rejoin-core", &[("rejoin-store", DependencyKind::Normal)]),
            ("rejoin-store", &[("rejoin-gateway", DependencyKind::Dev)]),
            ("rejoin-gateway", &[]),
        ]);
        let messages: Vec<String> = check(&graph).iter().map(ToString::to_string).collect();
        assert_eq!(
            messages,
            [
                "crates/core/Cargo.toml: rejoin-core must not import rejoin-store",
                "crates/store/Cargo.toml: rejoin-store must not import rejoin-gateway",
            ]
        );
    }

    #[test]
    fn the_testkit_is_for_tests_only() {
        let imports: &[_] = &[(TESTKIT, DependencyKind::Normal)];
        assert_eq!(check(&graph(&[("rejoin", imports), (TESTKIT, &[])])).len(), 1);
    }

    #[test]
    fn a_crate_without_a_layer_is_found() {
        assert_eq!(check(&graph(&[("rejoin-extra", &[])])).len(), 1);
    }
}
