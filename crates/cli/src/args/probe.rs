//! Arguments of `rejoin probe`.

use std::ffi::OsString;
use std::path::PathBuf;

use super::bridge::{BridgeAuth, Header};
use super::value;

/// What `rejoin probe --help` says below its options.
const NOTES: &str = "\
Status 0: nothing bad was found. 1: hazards or violations. 2: the probe could not run. What could \
not be judged changes no status; if that is whether calls run twice, the last line says so.

The probe breaks its connections on purpose and sends calls again. It calls only tools that are \
annotated read-only (readOnlyHint), unless --tool names another and --allow-effects says that it \
may run many times. It sends at most 1,000 requests in 30 minutes and ends its sessions.";

/// A URL or a command, not both.
const USAGE: &str = "rejoin probe [OPTIONS] <URL>\n       rejoin probe [OPTIONS] -- <COMMAND>...";

/// Arguments of `rejoin probe`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = NOTES, override_usage = USAGE)]
pub(crate) struct ProbeArgs {
    /// URL of the MCP server, one over Streamable HTTP
    #[arg(required_unless_present_any = ["command", "list"], conflicts_with = "command")]
    pub(crate) url: Option<String>,
    /// Tool to call, some fifty times; without it a read-only one that sends progress is looked for
    #[arg(long, value_name = "NAME", value_parser = value::tool)]
    pub(crate) tool: Option<String>,
    /// Its arguments, a JSON object: best such that it takes a second and sends ten events
    #[arg(long, value_name = "JSON", value_parser = object)]
    pub(crate) args: Option<Json>,
    /// Arguments with which it sends a hundred events as fast as it can
    #[arg(long, value_name = "JSON", value_parser = object)]
    pub(crate) burst_args: Option<Json>,
    /// Arguments with which it sends tens of megabytes of events
    #[arg(long, value_name = "JSON", value_parser = object)]
    pub(crate) flood_args: Option<Json>,
    /// The named tool may be called although it is not annotated read-only
    #[arg(long, requires = "tool")]
    pub(crate) allow_effects: bool,
    /// Play only this hazard; repeatable
    #[arg(long, value_name = "HAZARD")]
    pub(crate) only: Vec<String>,
    /// Name the hazards, and end
    #[arg(long)]
    pub(crate) list: bool,
    /// Where the value of Authorization comes from; one word is taken for a bearer token
    ///
    /// env:VARIABLE: the value of this environment variable.
    /// file:PATH: the content of this file.
    /// command:CMD: what this command line prints, run by `sh -c`.
    #[arg(verbatim_doc_comment, long, value_name = "env:VARIABLE|file:PATH|command:CMD")]
    pub(crate) auth: Option<BridgeAuth>,
    /// Send this header with every request; repeatable
    #[arg(long = "header", value_name = "NAME: VALUE")]
    pub(crate) headers: Vec<Header>,
    /// PEM file of certificate authorities to trust beside those of the system
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Command line that prints how often tools ran so far, a number
    #[arg(long, value_name = "CMD")]
    pub(crate) count_cmd: Option<String>,
    /// Command line that restarts the server, and ends when that serves again
    #[arg(long, value_name = "CMD")]
    pub(crate) restart_cmd: Option<String>,
    /// Print the report as JSON, with the wire of every hazard
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the report as JUnit XML to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,
    /// Write the report as one HTML page to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Show on standard error what goes over the wire
    #[arg(long)]
    pub(crate) trace: bool,
    /// A stdio MCP server to probe; `rejoin serve` is put in front of it
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// A JSON object from the command line.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Json(pub(crate) serde_json::Value);

fn object(text: &str) -> Result<Json, String> {
    match serde_json::from_str(text) {
        Ok(value @ serde_json::Value::Object(_)) => Ok(Json(value)),
        Ok(_) => Err("expected a JSON object, such as {\"amount\": 1}".to_owned()),
        Err(error) => Err(format!("expected a JSON object: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::super::{Args, Command};
    use super::*;

    fn parse(words: &[&str]) -> Result<ProbeArgs, clap::Error> {
        let all = ["rejoin", "probe"].iter().chain(words);
        match Args::try_parse_from(all)?.command {
            Command::Probe(args) => Ok(*args),
            other => panic!("parsed as {other:?}"),
        }
    }

    #[test]
    fn a_url_or_a_command_is_probed_but_not_both() {
        assert_eq!(parse(&["http://h/mcp"]).unwrap().url.as_deref(), Some("http://h/mcp"));
        assert_eq!(parse(&["--json", "--", "npx", "--x"]).unwrap().command, ["npx", "--x"]);
        assert!(parse(&["--list"]).is_ok());
        for words in [&[][..], &["http://h/mcp", "--", "npx"], &["http://h/", "--allow-effects"]] {
            assert!(parse(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn arguments_of_a_tool_are_a_json_object() {
        let args = parse(&["http://h/", "--tool", "t", "--args", "{\"n\": 1}"]).unwrap();
        assert_eq!(args.args, Some(Json(serde_json::json!({ "n": 1 }))));
        for text in ["1", "[]", "{n: 1}", ""] {
            assert!(parse(&["http://h/", "--args", text]).is_err(), "{text}");
        }
    }
}
