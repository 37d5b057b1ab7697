//! What an unknown key may have been meant to be, and where it belongs.

use super::{keys, server};
use crate::limit;
use crate::nearest::{is_same, last_part, nearest};

/// The tables of a file that have keys of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    /// The file itself.
    Whole,
    /// One of its servers.
    Server,
    /// Its limits.
    Limits,
}

/// What others call a key: the table, their words, the key.
const ALIASES: [(Table, &[&str], &str); 8] = [
    (Table::Whole, &["url", "uri", "server_url", "http_url", "endpoint"], "upstream"),
    (Table::Whole, &["cmd", "program", "executable"], "command"),
    (Table::Server, &["uri", "server_url", "http_url", "endpoint", "upstream"], "url"),
    (Table::Server, &["cmd", "program", "executable"], "command"),
    (Table::Server, &["arguments"], "args"),
    (Table::Server, &["environment"], "env"),
    (Table::Server, &["dir", "directory", "workdir", "working_directory"], "cwd"),
    (Table::Server, &["transport"], "type"),
];

/// Options that are no keys.
const OF_LINE: [&str; 2] = ["check", "config"];

impl Table {
    fn knows(self, name: &str) -> bool {
        match self {
            Self::Whole => keys::KEYS.contains(&name),
            Self::Server => server::KEYS.contains(&name),
            Self::Limits => limit::names().iter().any(|limit| limit == name),
        }
    }

    fn nearest(self, name: &str) -> Option<String> {
        let meant = match self {
            Self::Whole => nearest(name, &keys::KEYS),
            Self::Server => nearest(name, &server::KEYS),
            Self::Limits => return limit::nearest_name(name),
        };
        meant.map(str::to_owned)
    }

    fn alias(self, name: &str) -> Option<&'static str> {
        let same = |words: &[&str]| words.iter().any(|word| is_same(word, name));
        let found = ALIASES.iter().find(|(table, words, _)| *table == self && same(words));
        found.map(|(_, _, key)| *key)
    }

    /// What its keys are, and where they belong, for somebody who put one elsewhere.
    fn place(self, from: Self) -> &'static str {
        match (self, from) {
            (Self::Whole, Self::Server) => {
                "a key for all servers: put it at the top level of the file (in TOML, above the \
                 first [table])"
            }
            (Self::Whole, _) => {
                "a key of the whole file: put it at its top level (in TOML, above the first \
                 [table])"
            }
            (Self::Server, _) => "a key of a server: put it under [servers.NAME]",
            (Self::Limits, _) => "a limit: put it under [limits]",
        }
    }

    fn others(self) -> impl Iterator<Item = Self> {
        let all = [Self::Whole, Self::Limits, Self::Server];
        all.into_iter().filter(move |table| *table != self)
    }
}

/// Says that a key is unknown, and what was probably meant; if nothing is near, what there is.
pub(super) fn unknown(name: &str, table: Table) -> String {
    let told = format!("there is no key {name:?} here");
    if let Some(meant) = meant(name, table) {
        return format!("{told}: {meant}");
    }
    match table {
        Table::Whole => format!("{told}; the keys are: {}", keys::KEYS.join(", ")),
        Table::Server => format!("{told}; the keys are: {}", server::KEYS.join(", ")),
        Table::Limits => format!("{told}; `rejoin serve --limit help` lists the limits"),
    }
}

/// What an unknown key of this table may have been meant to be.
pub(super) fn meant(name: &str, table: Table) -> Option<String> {
    if let Some(key) = table.alias(name) {
        return Some(format!("{key:?} may be meant"));
    }
    if table == Table::Whole && OF_LINE.contains(&name) {
        return Some(format!("--{name} is an option of the command line alone"));
    }
    let group = format!("{name}.");
    if table == Table::Limits && limit::names().iter().any(|limit| limit.starts_with(&group)) {
        return Some("it is a group of limits, and needs the name of one behind a dot".to_owned());
    }
    if let Some(other) = table.others().find(|other| other.knows(name)) {
        return Some(format!("it is {}", other.place(table)));
    }
    if let Some(near) = table.nearest(name) {
        return Some(format!("{near:?} may be meant"));
    }
    let elsewhere = table.others().find_map(|other| Some((other, other.nearest(name)?)));
    elsewhere.map(|(other, near)| format!("{near:?} may be meant, {}", other.place(table)))
}

/// True for a key that its writer meant for Rejoin, known or not: that of a client's own is not.
pub(super) fn is_ours(name: &str, table: Table) -> bool {
    let is_limit = || limit::names().iter().any(|limit| last_part(limit) == name);
    table.knows(name)
        || table.alias(name).is_some()
        || table.nearest(name).is_some()
        || is_limit()
        || table.others().any(|other| other.knows(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_in_the_wrong_table_is_told_where_it_belongs() {
        for (name, table, expected) in [
            ("on_repeat", Table::Limits, "it is a key of the whole file: put it at its top level"),
            ("on_repeat", Table::Server, "it is a key for all servers: put it at the top"),
            ("listen", Table::Server, "it is a key for all servers: put it at the top"),
            ("sessions_max", Table::Whole, "it is a limit: put it under [limits]"),
            ("sessions_max", Table::Server, "it is a limit: put it under [limits]"),
            ("headers", Table::Whole, "it is a key of a server: put it under [servers.NAME]"),
            ("connect_max_ms", Table::Whole, "\"upstream.connect_max_ms\" may be meant, a limit:"),
            ("on_repaet", Table::Limits, "\"on_repeat\" may be meant, a key of the whole file:"),
            ("upstream", Table::Server, "\"url\" may be meant"),
            ("serverUrl", Table::Server, "\"url\" may be meant"),
            ("http_url", Table::Whole, "\"upstream\" may be meant"),
            ("uri", Table::Server, "\"url\" may be meant"),
            ("cmd", Table::Server, "\"command\" may be meant"),
            ("cmd", Table::Whole, "\"command\" may be meant"),
            ("connect_max_ms", Table::Limits, "\"upstream.connect_max_ms\" may be meant"),
            ("upstream.hold_max_ms", Table::Limits, "\"hold_max_ms\" may be meant"),
            ("upstream", Table::Limits, "it is a group of limits"),
            ("check", Table::Whole, "--check is an option of the command line alone"),
        ] {
            let told = meant(name, table).unwrap_or_default();
            assert!(told.starts_with(expected), "{name} {table:?}: {told}");
        }
    }
}
