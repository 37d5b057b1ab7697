//! What `cargo metadata` says about the workspace and its dependencies.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::failure::Failure;

/// The kind of a dependency, as cargo names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DependencyKind {
    /// Linked into the crate itself.
    Normal,
    /// Linked into the build script.
    Build,
    /// Linked into tests and examples only.
    Dev,
}

/// One line of a manifest's dependency tables.
#[derive(Clone, Debug)]
pub(crate) struct Dependency {
    /// The package's name (not its local alias).
    pub(crate) name: String,
    /// The table it stands in.
    pub(crate) kind: DependencyKind,
}

/// One package of the resolved graph.
#[derive(Clone, Debug)]
pub(crate) struct Package {
    /// The package's name.
    pub(crate) name: String,
    /// The package's version.
    pub(crate) version: String,
    /// The SPDX expression of its manifest, if it has one.
    pub(crate) license: Option<String>,
    /// Where it came from; `None` is a path.
    pub(crate) source: Option<String>,
    /// Whether it is a member of this workspace.
    pub(crate) is_member: bool,
    /// Its direct dependencies.
    pub(crate) dependencies: Vec<Dependency>,
}

/// The resolved graph of the workspace.
#[derive(Clone, Debug)]
pub(crate) struct Metadata {
    /// Every package of the graph.
    pub(crate) packages: Vec<Package>,
    /// Where cargo puts what it builds.
    pub(crate) target_dir: PathBuf,
}

/// The root of the workspace.
pub(crate) fn workspace_root() -> PathBuf {
    let manifest_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest_dir.parent().unwrap_or(manifest_dir).to_path_buf()
}

/// The cargo that runs this tool, else the one on the path.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // Logs are files.
    command.current_dir(workspace_root()).env("CARGO_TERM_COLOR", "never");
    command
}

/// A Python program of the workspace, by its path there.
pub(crate) fn python(program: &str, args: &[&str]) -> Command {
    let mut command = Command::new("python3");
    command.arg(program).args(args).current_dir(workspace_root());
    // Python buffers a log file by the block; a stopped run must show where it stood.
    command.env("PYTHONUNBUFFERED", "1");
    command
}

/// Asks cargo for the graph as it is on `targets` (all platforms if empty).
///
/// The lock file, and with it `cargo metadata`, also holds packages that only a weak feature names
/// and that nothing builds: those are left out.
pub(crate) fn load(targets: &[String]) -> Result<Metadata, Failure> {
    let filters = targets.iter().flat_map(|target| ["--filter-platform", target]);
    let mut metadata = ask(&filters.collect::<Vec<_>>())?;
    let built = built(targets)?;
    let is_built =
        |package: &Package| built.contains(&(package.name.clone(), package.version.clone()));
    metadata.packages.retain(is_built);
    Ok(metadata)
}

/// Names and versions of the packages that are really built.
fn built(targets: &[String]) -> Result<BTreeSet<(String, String)>, Failure> {
    let output = cargo()
        .args(["tree", "--workspace", "--locked", "--all-features", "--prefix", "none"])
        .args(["--edges", "normal,build,dev", "--format", "{p}"])
        .args(targets.iter().flat_map(|target| ["--target", target]))
        .output()
        .map_err(|error| Failure::new(format!("cannot start cargo tree: {error}")))?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::new(format!("cargo tree failed: {}", reason.trim())));
    }
    Ok(parse_tree(&String::from_utf8_lossy(&output.stdout)))
}

/// Reads lines such as `bytes v1.12.0` and `core v0.1.0 (/a/path) (*)`.
fn parse_tree(text: &str) -> BTreeSet<(String, String)> {
    let packages = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (name, version) = (words.next()?, words.next()?);
        Some((name.to_owned(), version.strip_prefix('v')?.to_owned()))
    });
    packages.collect()
}

/// Where cargo puts what it builds; needs no dependency and no network.
pub(crate) fn target_dir() -> Result<PathBuf, Failure> {
    Ok(ask(&["--no-deps"])?.target_dir)
}

fn ask(args: &[&str]) -> Result<Metadata, Failure> {
    let output = cargo()
        .args(["metadata", "--format-version", "1", "--locked"])
        .args(args)
        .output()
        .map_err(|error| Failure::new(format!("cannot start cargo metadata: {error}")))?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr);
        let reason = reason.trim();
        return Err(Failure::new(format!("cargo metadata failed: {reason}")));
    }
    let json: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| Failure::new(format!("cargo metadata wrote no JSON: {error}")))?;
    parse(&json).ok_or_else(|| Failure::new("cargo metadata has an unknown shape"))
}

/// Reads format version 1 of `cargo metadata`.
pub(crate) fn parse(json: &Value) -> Option<Metadata> {
    let members: BTreeSet<&str> =
        json.get("workspace_members")?.as_array()?.iter().filter_map(Value::as_str).collect();
    let packages = json.get("packages")?.as_array()?;
    Some(Metadata {
        packages: packages
            .iter()
            .map(|package| parse_package(package, &members))
            .collect::<Option<_>>()?,
        target_dir: PathBuf::from(json.get("target_directory")?.as_str()?),
    })
}

fn parse_package(json: &Value, members: &BTreeSet<&str>) -> Option<Package> {
    let text = |name: &str| json.get(name).and_then(Value::as_str).map(str::to_owned);
    let dependencies = json.get("dependencies")?.as_array()?;
    Some(Package {
        name: text("name")?,
        version: text("version")?,
        license: text("license"),
        source: text("source"),
        is_member: members.contains(json.get("id")?.as_str()?),
        dependencies: dependencies.iter().map(parse_dependency).collect::<Option<_>>()?,
    })
}

fn parse_dependency(json: &Value) -> Option<Dependency> {
    let kind = match json.get("kind")?.as_str() {
        None => DependencyKind::Normal,
        Some("build") => DependencyKind::Build,
        Some("dev") => DependencyKind::Dev,
        Some(_) => return None,
    };
    Some(Dependency { name: json.get("name")?.as_str()?.to_owned(), kind })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_is_built() {
        let tree = "bytes v1.12.0\ncore v0.1.0 (/a/path)\nbytes v1.12.0 (*)\n\n";
        let built: Vec<_> = parse_tree(tree).into_iter().collect();
        let pair = |name: &str, version: &str| (name.to_owned(), version.to_owned());
        assert_eq!(built, [pair("bytes", "1.12.0"), pair("core", "0.1.0")]);
    }

    #[test]
    fn reads_members_kinds_and_sources() {
        let json = serde_json::json!({
            "workspace_members": ["path+file:///a#a@0.1.0"],
            "target_directory": "/t",
            "packages": [
                {"id": "path+file:///a#a@0.1.0", "name": "a", "version": "0.1.0",
                 "license": "MIT", "source": null,
                 "dependencies": [{"name": "b", "kind": null}, {"name": "c", "kind": "dev"}]},
                {"id": "registry#b@1.0.0", "name": "b", "version": "1.0.0", "license": null,
                 "source": "registry+https://example.org", "dependencies": []}
            ]
        });
        let metadata = parse(&json).unwrap();
        assert!(metadata.packages[0].is_member);
        assert!(!metadata.packages[1].is_member);
        assert_eq!(metadata.packages[0].dependencies[1].kind, DependencyKind::Dev);
        assert_eq!(metadata.packages[1].license, None);
    }

    #[test]
    fn refuses_an_unknown_shape() {
        assert!(parse(&serde_json::json!({"packages": []})).is_none());
    }
}
