//! The servers of a file: a command or a URL, in the shape that clients on desktops use.

use std::collections::BTreeSet;

use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue};
use rejoin_gateway::upstream::http::UpstreamAuth;

use super::document::{Fault, Field};
use super::unknown::{Table, unknown};
use super::{FileServer, Origins, ServerFacts, Source};
use crate::args::{AuthSource, value};
use crate::serve::upstream::{FileCommand, UpstreamChoice, UpstreamCommand, UpstreamUrl};

/// Every key of a server.
pub(super) const KEYS: [&str; 13] = [
    "type",
    "command",
    "args",
    "env",
    "cwd",
    "url",
    "headers",
    "upstream_auth",
    "upstream_ca",
    "upstream_headers",
    "idempotent_tools",
    "trust_annotations",
    "stateless_upstream",
];

/// What belongs to a command.
const OF_COMMAND: [&str; 3] = ["args", "env", "cwd"];
/// What belongs to a URL.
const OF_URL: [&str; 4] = ["headers", "upstream_auth", "upstream_ca", "upstream_headers"];
/// Characters of a name.
const NAME_CHARS_MAX: usize = 64;

/// The servers of a table, each with its name.
pub(super) fn all(table: &Field, source: &Source<'_>) -> Result<Vec<FileServer>, Vec<Fault>> {
    let fields = table.node.table()?;
    if fields.is_empty() {
        let name = &table.name;
        let problem = format!(
            "{name} holds no server (disabled ones do not count): name one, or take it out"
        );
        return Err(Fault::new(table.at, problem).into());
    }
    let mut faults = Vec::new();
    let mut servers = Vec::new();
    for field in fields {
        match one(field, source) {
            Ok(server) => servers.push(server),
            Err(fault) => faults.push(fault),
        }
    }
    if faults.is_empty() { Ok(servers) } else { Err(faults) }
}

fn one(server: &Field, source: &Source<'_>) -> Result<FileServer, Fault> {
    let fields = server.node.table()?;
    if let Some(field) = fields.iter().find(|field| !KEYS.contains(&field.name.as_str())) {
        return Err(Fault::new(field.at, unknown(&field.name, Table::Server)));
    }
    let name = name(server)?;
    let upstream = match (find(fields, "command"), find(fields, "url")) {
        (Some(_), Some(url)) => {
            let problem = "a server has a `command` or a `url`: take one of them out";
            return Err(Fault::new(url.at, problem));
        }
        (None, None) => {
            let problem = format!("the server {name:?} has neither `command` nor `url`: set one");
            return Err(Fault::new(server.at, problem));
        }
        (Some(_), None) => {
            alone(fields, &OF_URL, "url")?;
            command(fields, source)?.map(|command| UpstreamChoice::Command(command.named(&name)))
        }
        (None, Some(field)) => Some(UpstreamChoice::Url(url(field, fields, &name, source)?)),
    };
    kind(fields)?;
    let flag = |key| find(fields, key).map(|field| field.node.flag()).transpose();
    let tools = find(fields, "idempotent_tools").map(|field| field.node.each(value::tool));
    let facts = ServerFacts {
        idempotent_tools: tools.transpose()?,
        trust_annotations: flag("trust_annotations")?,
        stateless_upstream: flag("stateless_upstream")?,
    };
    let upstream = upstream.ok_or_else(|| Fault::new(server.at, "the server has no `command`"))?;
    Ok(FileServer { name, upstream, facts })
}

fn find<'a>(fields: &'a [Field], key: &str) -> Option<&'a Field> {
    fields.iter().find(|field| field.name == key)
}

/// The name of a server, which is a segment of a path.
fn name(server: &Field) -> Result<String, Fault> {
    let name = &server.name;
    let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    let is_short = (1..=NAME_CHARS_MAX).contains(&name.len());
    if is_plain && is_short && !matches!(&name[..], "." | "..") {
        return Ok(name.clone());
    }
    let why = match &name[..] {
        "." | ".." => " (there it means a folder, not a name)",
        _ => "",
    };
    let problem = format!(
        "{name:?} cannot stand in the path /NAME/mcp{why}: name the server with 1 to \
         {NAME_CHARS_MAX} letters, digits, `-`, `_` and `.`"
    );
    Err(Fault::new(server.at, problem))
}

/// The command among the fields, with what belongs to it.
pub(super) fn command(
    fields: &[Field],
    source: &Source<'_>,
) -> Result<Option<UpstreamCommand>, Fault> {
    let Some(command) = find(fields, "command") else {
        alone(fields, &OF_COMMAND, "command")?;
        return Ok(None);
    };
    let program = command.node.text()?;
    if program.is_empty() {
        let problem = "the command is empty: write the program; its arguments go to `args`";
        return Err(Fault::new(command.node.at, problem));
    }
    whole(command, program)?;
    let argument = |text: &str| match text.contains('\0') {
        true => Err(NUL.to_owned()),
        false => Ok(text.to_owned()),
    };
    let args = find(fields, "args").map(|args| args.node.each(argument));
    let environment = find(fields, "env").map(environment).transpose()?;
    let cwd = find(fields, "cwd").map(|cwd| whole(cwd, cwd.node.text()?)).transpose()?;
    let mut variables = BTreeSet::new();
    let of_command = fields
        .iter()
        .filter(|field| field.name == "command" || OF_COMMAND.contains(&field.name.as_str()));
    of_command.for_each(|field| field.add_variables(&mut variables));
    Ok(Some(UpstreamCommand::from_file(FileCommand {
        program: program.into(),
        arguments: args.transpose()?.unwrap_or_default(),
        environment: environment.unwrap_or_default(),
        directory: cwd.map(Into::into),
        variables,
        place: format!("{}: command", source.place(command.at)),
    })))
}

/// What the system takes no word of a command with: it would end there (execve(2)).
const NUL: &str = "this holds a character NUL, which no program can be given: take it out";

/// A text that the system takes whole.
fn whole<'a>(field: &Field, text: &'a str) -> Result<&'a str, Fault> {
    if text.contains('\0') { Err(Fault::new(field.node.at, NUL)) } else { Ok(text) }
}

fn environment(env: &Field) -> Result<Vec<(String, String)>, Fault> {
    let texts = env.node.texts()?.into_iter().map(|(field, value)| {
        let name = &field.name;
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            let problem = "this can be no variable: write NAME = \"value\", without = in the name";
            return Err(Fault::new(field.at, problem));
        }
        Ok((name.clone(), value.to_owned()))
    });
    texts.collect()
}

/// Checks that no field is there whose `other` is not.
fn alone(fields: &[Field], keys: &[&str], other: &str) -> Result<(), Fault> {
    match fields.iter().find(|field| keys.contains(&field.name.as_str())) {
        Some(field) => {
            let problem = format!("{} goes with `{other}`, which is not here", field.name);
            Err(Fault::new(field.at, format!("{problem}: set that, or take this out")))
        }
        None => Ok(()),
    }
}

/// Checks `type`, which clients use to tell servers apart: it must fit.
fn kind(fields: &[Field]) -> Result<(), Fault> {
    let Some(kind) = find(fields, "type") else { return Ok(()) };
    let has_command = find(fields, "command").is_some();
    let problem = match (kind.node.text()?, has_command) {
        ("stdio", true) | ("http" | "streamable-http" | "streamableHttp", false) => return Ok(()),
        ("stdio", false) => {
            "`type` says \"stdio\", but the server has a `url`: take one of the two out"
        }
        ("http" | "streamable-http" | "streamableHttp" | "sse", true) => {
            "`type` says that the server has a URL, but it has a `command`: take one of the two out"
        }
        ("sse", false) => {
            "Rejoin only passes the older HTTP+SSE transport through, and keeps nothing of it: \
             name the server's Streamable HTTP endpoint, or take `type` out if that is enough"
        }
        _ => {
            "expected \"stdio\" with a `command`, or \"http\" with a `url`: `type` may be left out"
        }
    };
    Err(Fault::new(kind.node.at, problem))
}

fn url(
    field: &Field,
    fields: &[Field],
    name: &str,
    source: &Source<'_>,
) -> Result<UpstreamUrl, Fault> {
    alone(fields, &OF_COMMAND, "command")?;
    let mut origins = Origins::default();
    origins.set("upstream", format!("{}: url", source.place(field.at)), field);
    for key in OF_URL {
        if let Some(field) = find(fields, key) {
            origins.set(key, format!("{}: {key}", source.place(field.at)), field);
        }
    }
    let auth = find(fields, "upstream_auth");
    let AuthSource(mut source_of_auth) = match auth {
        Some(field) => field.node.auth()?,
        None => AuthSource(UpstreamAuth::Forward),
    };
    let mut headers = match find(fields, "headers") {
        Some(field) => headers(field)?,
        None => HeaderMap::new(),
    };
    if let Some(own) = headers.remove(AUTHORIZATION) {
        if let Some(auth) = auth {
            let problem = "`headers` has an Authorization too: take one of the two out";
            return Err(Fault::new(auth.at, problem));
        }
        source_of_auth = UpstreamAuth::Value(own);
    }
    let forwarded = find(fields, "upstream_headers").map(|names| names.node.each(value::header));
    let ca_file = find(fields, "upstream_ca").map(|path| path.node.text()).transpose()?;
    let mut url = UpstreamUrl::new(field.node.text()?.to_owned(), source_of_auth, origins);
    url.ca_file = ca_file.map(Into::into);
    url.forward_headers = forwarded.transpose()?.unwrap_or_default();
    url.headers = headers;
    url.name = Some(name.to_owned());
    Ok(url)
}

/// Headers that a server is sent with every request.
fn headers(table: &Field) -> Result<HeaderMap, Fault> {
    let mut headers = HeaderMap::new();
    for (field, text) in table.node.texts()? {
        let name: HeaderName =
            value::header(&field.name).map_err(|problem| Fault::new(field.at, problem))?;
        let mut value = HeaderValue::from_str(text).map_err(|_| {
            Fault::new(field.node.at, "this can be no header: write one line of text")
        })?;
        value.set_sensitive(true);
        if headers.insert(name, value).is_some() {
            let problem = "this header is there twice: take one of the two out";
            return Err(Fault::new(field.at, problem));
        }
    }
    Ok(headers)
}
