//! A disk that does as it is told, for a process that has a database on it: `disk/faults.c` stands
//! between the two.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

/// The library's source, so that whoever uses it needs nothing but a C compiler.
const SOURCE: &str = include_str!("disk/faults.c");

/// A folder for what the process has, and the library through which it sees that.
#[derive(Debug)]
pub struct Disk {
    folder: TempDir,
}

impl Disk {
    /// A disk without fault.
    ///
    /// # Errors
    /// If the folder cannot be made, or the library not be built.
    pub fn new() -> io::Result<Self> {
        let disk = Self { folder: tempfile::tempdir()? };
        let (source, object) = (disk.path("faults.c"), disk.object());
        fs::write(&source, SOURCE)?;
        fs::create_dir(disk.path("kept"))?;
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-Wall", "-o"]).arg(&object).arg(source);
        if !compiler.status()?.success() {
            return Err(io::Error::other("the C compiler `cc` refused disk/faults.c"));
        }
        disk.set_fault("-")?;
        Ok(disk)
    }

    /// Where something of this name is, or may be put.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What happens from now on: `w` (writes fail), `s` (syncs fail), `f` (it is full), `d200`
    /// (syncs take 200 ms), `-` (nothing).
    ///
    /// # Errors
    /// If that cannot be said.
    pub fn set_fault(&self, fault: &str) -> io::Result<()> {
        let new = self.path("new");
        fs::write(&new, fault)?;
        fs::rename(new, self.path("fault"))
    }

    /// How many syncs were asked for.
    pub fn syncs(&self) -> u64 {
        fs::metadata(self.path("syncs")).map_or(0, |file| file.len())
    }

    /// What a process must find in its environment.
    pub fn environment(&self) -> [(&'static str, PathBuf); 4] {
        [
            ("LD_PRELOAD", self.object()),
            ("REJOIN_FAULT", self.path("fault")),
            ("REJOIN_SYNCS", self.path("syncs")),
            ("REJOIN_KEPT", self.path("kept")),
        ]
    }

    fn object(&self) -> PathBuf {
        self.path("faults.so")
    }
}
