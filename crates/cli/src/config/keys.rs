//! The keys of a file: one for each option of `rejoin serve`, by the name of its argument, and the
//! servers.

use super::document::{Fault, Field, Node, Value};
use super::unknown::{Table, unknown};
use super::{Source, server};
use crate::args::{ServeArgs, place, value};
use crate::limit::{self, LimitSetting, LimitSettingError};

/// Every key of a file. Those of options have the names of the arguments of `ServeArgs`.
pub(super) const KEYS: [&str; 29] = [
    "listen",
    "data",
    "durability",
    "http2",
    "admin",
    "allow_hosts",
    "allow_origins",
    "allow_anonymous",
    "subjects",
    "reject_status",
    "on_repeat",
    "repeat_scope",
    "delivery",
    "owed_grace",
    "limits",
    "idempotent_tools",
    "trust_annotations",
    "stateless_upstream",
    "log",
    "upstream",
    "upstream_auth",
    "upstream_ca",
    "upstream_headers",
    "command",
    "args",
    "env",
    "cwd",
    "servers",
    "mcpServers",
];

/// What belongs to a URL, and its options on the command line.
const OF_URL: [(&str, &str); 3] = [
    ("upstream_auth", "--upstream-auth"),
    ("upstream_ca", "--upstream-ca"),
    ("upstream_headers", "--upstream-header"),
];

/// Ways to name what stands behind Rejoin, of which a file has one.
const OF_SERVERS: [&str; 4] = ["upstream", "command", "servers", "mcpServers"];

/// Sets what the file sets and the command line does not.
pub(super) fn apply(
    fields: &[Field],
    source: &Source<'_>,
    args: &mut ServeArgs,
    is_on_line: &dyn Fn(&str) -> bool,
) -> Result<(), Vec<Fault>> {
    let names_server = is_on_line("upstream") || is_on_line("command");
    // What the command line has is only checked.
    let mut checked = args.clone();
    let mut faults = Vec::new();
    for field in fields {
        let Some(key) = KEYS.into_iter().find(|key| *key == field.name) else {
            faults.push(Fault::new(field.at, unknown(&field.name, Table::Whole)));
            continue;
        };
        let is_of_server =
            OF_SERVERS.contains(&key) || OF_URL.iter().any(|(of_url, _)| *of_url == key);
        // Limits win one by one: see `serve::limits`.
        let is_set = (key != "limits" && is_on_line(key)) || (is_of_server && names_server);
        let args = if is_set { &mut checked } else { &mut *args };
        args.file.origins.set(key, format!("{}: {key}", source.place(field.at)), field);
        faults.extend(set(args, key, field, source).err().unwrap_or_default());
    }
    match server::command(fields, source) {
        Ok(command) if !names_server => args.file.command = command,
        Ok(_) => {}
        Err(fault) => faults.push(fault),
    }
    faults.extend(one_server(fields).err());
    faults.extend(url_of(fields, args, is_on_line).err());
    for server in &mut args.file.servers {
        let facts = &mut server.facts;
        facts.idempotent_tools.take_if(|_| is_on_line("idempotent_tools"));
        facts.trust_annotations.take_if(|_| is_on_line("trust_annotations"));
        facts.stateless_upstream.take_if(|_| is_on_line("stateless_upstream"));
    }
    none(faults)
}

/// All is well if there is none.
fn none(faults: Vec<Fault>) -> Result<(), Vec<Fault>> {
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

fn add_limit(args: &mut ServeArgs, setting: LimitSetting, field: &Field) -> Result<(), Fault> {
    if args.file.limits.iter().any(|set| set.name() == setting.name()) {
        let problem = "owed_grace and owed_grace_ms are the same: take one of them out";
        return Err(Fault::new(field.at, problem));
    }
    args.file.limits.push(setting);
    Ok(())
}

fn set(
    args: &mut ServeArgs,
    key: &str,
    field: &Field,
    source: &Source<'_>,
) -> Result<(), Vec<Fault>> {
    let node = &field.node;
    match key {
        "listen" => args.listen = node.parsed(place::address)?,
        "data" => args.data = Some(node.text()?.into()),
        "durability" => args.durability = node.choice()?,
        "http2" => args.http2 = node.flag()?,
        "admin" => args.admin = node.parsed(place::address)?,
        "allow_hosts" => args.allow_hosts = node.each(place::host)?,
        "allow_origins" => args.allow_origins = node.each(place::origin)?,
        "allow_anonymous" => args.allow_anonymous = node.flag()?,
        "subjects" => args.subjects = Some(node.text()?.into()),
        "reject_status" => args.reject_status = node.choice()?,
        "on_repeat" => args.on_repeat = node.choice()?,
        "repeat_scope" => args.repeat_scope = node.choice()?,
        "delivery" => args.delivery = node.choice()?,
        "owed_grace" => add_limit(args, limit("owed_grace_ms", field, source)?, field)?,
        "limits" => {
            let added = limits(node)?.into_iter().filter_map(|(name, field)| {
                let limit = limit(&name, field, source);
                limit.and_then(|limit| add_limit(args, limit, field)).err()
            });
            none(added.collect())?;
        }
        "idempotent_tools" => args.idempotent_tools = node.each(value::tool)?,
        "trust_annotations" => args.trust_annotations = node.flag()?,
        "stateless_upstream" => args.stateless_upstream = node.flag()?,
        "log" => args.log = log(node)?,
        "upstream" => args.upstream = Some(node.text()?.to_owned()),
        "upstream_auth" => args.upstream_auth = node.auth()?,
        "upstream_ca" => args.upstream_ca = Some(node.text()?.into()),
        "upstream_headers" => args.upstream_headers = node.each(value::header)?,
        "servers" | "mcpServers" => args.file.servers = server::all(field, source)?,
        // `command` and what belongs to it are read together.
        _ => {}
    }
    Ok(())
}

/// A log filter. What is wrong with it is told when it is used, unless that would repeat what a
/// variable holds.
fn log(node: &Node) -> Result<String, Fault> {
    let filter = node.text()?;
    match crate::log::read(filter) {
        Err(problem) if node.is_expanded() => Err(node.fault(problem)),
        _ => Ok(filter.to_owned()),
    }
}

/// The limits of a table, those of a group with its name and a dot before their own.
fn limits(node: &Node) -> Result<Vec<(String, &Field)>, Fault> {
    let mut named = Vec::new();
    for field in node.table()? {
        match &field.node.value {
            Value::Table(group) => {
                let name = |inner: &Field| format!("{}.{}", field.name, inner.name);
                named.extend(group.iter().map(|inner| (name(inner), inner)));
            }
            _ => named.push((field.name.clone(), field)),
        }
    }
    Ok(named)
}

fn limit(name: &str, field: &Field, source: &Source<'_>) -> Result<LimitSetting, Fault> {
    let setting: Result<LimitSetting, _> = format!("{name}={}", field.node.word()?).parse();
    match setting {
        Ok(setting) => Ok(setting.set_at(source.place(field.at))),
        Err(LimitSettingError::UnknownName { .. }) => {
            Err(Fault::new(field.at, unknown(name, Table::Limits)))
        }
        Err(_) => Err(field.node.fault(limit::form(name, field.node.word()?))),
    }
}

/// Checks that the file names what stands behind Rejoin in one way.
fn one_server(fields: &[Field]) -> Result<(), Fault> {
    let mut named = fields.iter().filter(|field| OF_SERVERS.contains(&field.name.as_str()));
    match (named.next(), named.next()) {
        (Some(one), Some(other)) => Err(Fault::new(
            other.at,
            format!(
                "{} and {} both name what stands behind Rejoin: take one of them out, or put all \
                 servers into [servers.NAME]",
                one.name, other.name
            ),
        )),
        _ => Ok(()),
    }
}

/// Checks that what belongs to a URL has one.
fn url_of(
    fields: &[Field],
    args: &ServeArgs,
    is_on_line: &dyn Fn(&str) -> bool,
) -> Result<(), Fault> {
    if args.upstream.is_some() || fields.iter().any(|field| field.name == "upstream") {
        return Ok(());
    }
    for (key, option) in OF_URL {
        if let Some(field) = fields.iter().find(|field| field.name == key) {
            let problem = format!(
                "{key} goes with `upstream`, which is not here: set that, or put {key} into the \
                 table of its server"
            );
            return Err(Fault::new(field.at, problem));
        }
        if is_on_line(key) {
            let problem = format!(
                "{option} is for the URL of one server, and neither `upstream` here nor --upstream \
                 names one: leave {option} out, or set {key} in the table of its server"
            );
            return Err(Fault::new(0, problem));
        }
    }
    Ok(())
}
