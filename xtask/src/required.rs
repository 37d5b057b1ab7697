//! Programs that steps need beside cargo: one that is missing or too old is named before they run.

use std::process::Command;

use crate::failure::Failure;

/// A program on the path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Program {
    command: &'static str,
    name: &'static str,
    /// Oldest version that will do: major, minor.
    version_min: (u32, u32),
    /// What needs it.
    used_by: &'static str,
}

/// The tests start small MCP servers that are written in it.
pub(crate) const PYTHON: Program = Program {
    command: "python3",
    name: "Python",
    version_min: (3, 11),
    used_by: "the tests of crates/gateway and crates/cli, and all that is in e2e/,",
};

/// The stock clients and servers of the end-to-end tests run on it.
pub(crate) const NODE: Program = Program {
    command: "node",
    name: "Node.js",
    version_min: (20, 0),
    used_by: "the end-to-end tests and the wire matrix over HTTP",
};

impl Program {
    /// Fails with one line that names the program, unless it is there and new enough.
    pub(crate) fn require(self) -> Result<(), Failure> {
        let Self { command, name, version_min: (major, minor), used_by } = self;
        let needed = format!("{used_by} need {name} {major}.{minor} or later as `{command}`");
        let output = Command::new(command)
            .arg("--version")
            .output()
            .map_err(|error| Failure::new(format!("{needed}: cannot start it: {error}")))?;
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        match version(&said) {
            Some(found) if found >= self.version_min => Ok(()),
            _ => Err(Failure::new(format!("{needed}: found {said:?}"))),
        }
    }
}

/// Major and minor of what `--version` prints: `v20.20.2`, `Python 3.11.4`.
fn version(said: &str) -> Option<(u32, u32)> {
    let number = said.rsplit(' ').next()?.trim_start_matches('v');
    let mut parts = number.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        assert_eq!(version("v20.20.2"), Some((20, 20)));
        assert_eq!(version("Python 3.11.4"), Some((3, 11)));
        assert_eq!(version("Python 3.13.0rc1"), Some((3, 13)));
        assert_eq!(version("twenty"), None);
        assert_eq!(version(""), None);
    }

    #[test]
    fn a_program_that_is_missing_or_too_old_is_named_in_one_line() {
        let missing = Program { command: "no-such-program-of-xtask", ..PYTHON };
        let old = Program { version_min: (u32::MAX, 0), command: "cargo", ..PYTHON };
        for program in [missing, old] {
            let failure = program.require().unwrap_err().to_string();
            assert!(failure.contains("need Python ") && !failure.contains('\n'), "{failure}");
            assert!(failure.contains(&format!("as `{}`: ", program.command)), "{failure}");
        }
    }
}
