//! For `fuzz/` alone (feature `fuzz`): what reads a file of options, and what is printed to a
//! terminal of what strangers sent.

use std::env::VarError;

use clap::Parser as _;
use rejoin_core::effect::Event;
use serde_json::Value;

use crate::args::{Args, Command};
use crate::{config, sessions, terminal};

/// What the file of options made of the command line.
#[derive(Debug)]
pub struct FileRead {
    /// All options, as they are printed for diagnosis.
    pub options: String,
    /// The names of its servers.
    pub servers: Vec<String>,
    /// What of it is not used, with places.
    pub unused: Vec<String>,
}

/// Reads the text of a file of this name beside an empty command line. `lookup` has the variables
/// of the environment.
///
/// # Errors
/// What its operator is told.
pub fn read_file(
    name: &str,
    text: &str,
    lookup: &dyn Fn(&str) -> Result<String, VarError>,
) -> Result<FileRead, String> {
    let parsed = Args::try_parse_from(["rejoin", "serve"]).map_err(|error| error.to_string())?;
    let Command::Serve(mut args) = parsed.command else {
        return Err("serve is another command".to_owned());
    };
    config::read_text_into(name.as_ref(), text, lookup, &mut args)
        .map_err(|error| error.to_string())?;
    Ok(FileRead {
        servers: args.file.servers.iter().map(|server| server.name.clone()).collect(),
        unused: std::mem::take(&mut args.file.unused),
        options: format!("{args:?}"),
    })
}

/// Everything that `rejoin sessions` prints of such an answer or log: as JSON, and as its tables.
pub fn said_of(value: &Value) -> [String; 4] {
    sessions::all_said(value)
}

/// An event as `rejoin sessions export` prints it.
///
/// # Errors
/// If it cannot be written as JSON.
pub fn exported(event: &Event) -> serde_json::Result<String> {
    sessions::exported(event)
}

/// A message of several lines, as it stands on standard error.
pub fn shown(message: &str) -> String {
    terminal::shown(message)
}
