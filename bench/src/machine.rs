//! The machine that figures were taken on.

use std::path::Path;
use std::process::Command;

use crate::Failure;

/// The machine, and the file system of a directory, in a line each.
///
/// # Errors
/// If a tool of the system is missing.
pub fn describe(directory: &Path) -> Result<String, Failure> {
    let file_system = Command::new("df").arg("--output=fstype").arg(directory).output()?;
    let file_system = String::from_utf8(file_system.stdout)?;
    let cores = std::thread::available_parallelism()?;
    let model = std::fs::read_to_string("/proc/cpuinfo")?;
    let model = model.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let model = model.map_or("unknown processor", |(_, model)| model.trim());
    let load = std::fs::read_to_string("/proc/loadavg")?;
    let load = load.split(' ').next().unwrap_or_default();
    Ok(format!(
        "- {date}, {cores} cores ({model}), load {load} at the start\n- Linux {kernel}, {disk}\n",
        date = said("date", "-u +%F")?,
        kernel = said("uname", "-r")?,
        disk = file_system.lines().last().unwrap_or_default(),
    ))
}

fn said(program: &str, arguments: &str) -> Result<String, Failure> {
    let output = Command::new(program).args(arguments.split(' ')).output()?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
