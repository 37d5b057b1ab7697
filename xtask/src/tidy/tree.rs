//! The text files of the repository.

use std::fs;
use std::path::Path;

use crate::failure::Failure;

const EXTENSIONS: [&str; 11] =
    ["cjs", "css", "html", "js", "md", "mjs", "py", "rs", "sh", "toml", "ts"];
/// Folders that hold what tools made, not what people wrote.
const SKIPPED_FOLDERS: [&str; 4] = ["__pycache__", "dist", "node_modules", "target"];
/// Hidden folders that are part of the repository.
const HIDDEN_FOLDERS: [&str; 2] = [".cargo", ".ci"];
const FILES_MAX: usize = 10_000;
const DEPTH_MAX: usize = 16;

/// A text file of the repository.
#[derive(Clone, Debug)]
pub(super) struct TextFile {
    /// Path from the workspace root, with `/`.
    pub(super) path: String,
    /// Its content.
    pub(super) text: String,
}

impl TextFile {
    /// The part of the name after the last dot, or nothing.
    pub(super) fn extension(&self) -> &str {
        self.path
            .rsplit('/')
            .next()
            .and_then(|name| name.rsplit_once('.'))
            .map_or("", |pair| pair.1)
    }

    /// Whether the file is Rust source.
    pub(super) fn is_rust(&self) -> bool {
        self.extension() == "rs"
    }
}

/// Reads every text file below `root`, in the order of their paths.
pub(super) fn text_files(root: &Path) -> Result<Vec<TextFile>, Failure> {
    let mut files = Vec::new();
    visit(root, "", 0, &mut files)?;
    files.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(files)
}

fn visit(
    folder: &Path,
    prefix: &str,
    depth: usize,
    files: &mut Vec<TextFile>,
) -> Result<(), Failure> {
    let unreadable = |what: &Path, error: std::io::Error| {
        Failure::new(format!("cannot read {}: {error}", what.display()))
    };
    if depth > DEPTH_MAX {
        return Err(Failure::new(format!("{} is nested too deeply", folder.display())));
    }
    for entry in fs::read_dir(folder).map_err(|error| unreadable(folder, error))? {
        let entry = entry.map_err(|error| unreadable(folder, error))?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let kind = entry.file_type().map_err(|error| unreadable(&entry.path(), error))?;
        let path = format!("{prefix}{name}");
        if kind.is_dir() && is_own_folder(&name) {
            visit(&entry.path(), &format!("{path}/"), depth + 1, files)?;
        } else if kind.is_file() && is_text(&path) {
            let text = fs::read_to_string(entry.path())
                .map_err(|error| unreadable(&entry.path(), error))?;
            files.push(TextFile { path, text });
        }
        if files.len() > FILES_MAX {
            return Err(Failure::new(format!("more than {FILES_MAX} text files")));
        }
    }
    Ok(())
}

fn is_own_folder(name: &str) -> bool {
    let is_hidden = name.starts_with('.') && !HIDDEN_FOLDERS.contains(&name);
    !is_hidden && !SKIPPED_FOLDERS.contains(&name)
}

fn is_text(path: &str) -> bool {
    let extension = path.rsplit_once('.').map_or("", |pair| pair.1);
    EXTENSIONS.contains(&extension) || path.starts_with(".ci/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_and_hidden_folders_are_skipped() {
        for name in ["target", "node_modules", ".git", ".venv", "__pycache__"] {
            assert!(!is_own_folder(name), "{name}");
        }
        for name in ["crates", ".ci", "docs"] {
            assert!(is_own_folder(name), "{name}");
        }
    }

    #[test]
    fn the_ci_script_is_text_and_the_lock_file_is_not() {
        assert!(is_text(".ci/run"));
        assert!(is_text("crates/core/src/lib.rs"));
        assert!(!is_text("Cargo.lock"));
    }
}
