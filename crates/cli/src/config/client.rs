//! The file of a desktop client: what of it is another's is taken out before the keys are read.

use super::Source;
use super::document::{Field, Node, Value};
use super::unknown::{Table, is_ours};

/// What clients call `url` and `type` in their files.
const RENAMED: [(&str, &str); 3] =
    [("serverUrl", "url"), ("httpUrl", "url"), ("transport", "type")];

/// Takes out what is not for Rejoin, and servers that are disabled. Returns what it took out, with
/// places.
pub(super) fn adapt(root: &mut Node, source: &Source<'_>) -> Vec<String> {
    let mut told = Vec::new();
    let Value::Table(fields) = &mut root.value else { return told };
    let has = |name: &str| fields.iter().any(|field| field.name == name);
    let is_of_client = has("mcpServers") || (has("servers") && has("inputs"));
    if !is_of_client {
        return told;
    }
    take_out_foreign(fields, Table::Whole, source, &mut told);
    for field in fields {
        if let ("mcpServers" | "servers", Value::Table(servers)) =
            (&field.name[..], &mut field.node.value)
        {
            servers.retain(|server| !is_disabled(server, source, &mut told));
            for server in servers {
                adapt_server(server, source, &mut told);
            }
        }
    }
    told
}

fn is_disabled(server: &Field, source: &Source<'_>, told: &mut Vec<String>) -> bool {
    let Value::Table(fields) = &server.node.value else { return false };
    let off = fields.iter().find(|field| {
        let switch = (&field.name[..], &field.node.value);
        matches!(switch, ("disabled", Value::Flag(true)) | ("enabled", Value::Flag(false)))
    });
    if let Some(off) = off {
        let place = source.place(off.at);
        told.push(format!("{place}: the server {:?} is disabled: it is not served", server.name));
    }
    off.is_some()
}

fn adapt_server(server: &mut Field, source: &Source<'_>, told: &mut Vec<String>) {
    let Value::Table(fields) = &mut server.node.value else { return };
    fields.retain(|field| {
        let is_switch = matches!(&field.name[..], "disabled" | "enabled");
        !(is_switch && matches!(field.node.value, Value::Flag(_)))
    });
    for (theirs, ours) in RENAMED {
        if fields.iter().all(|field| field.name != ours)
            && let Some(field) = fields.iter_mut().find(|field| field.name == theirs)
        {
            ours.clone_into(&mut field.name);
        }
    }
    take_out_foreign(fields, Table::Server, source, told);
}

fn take_out_foreign(
    fields: &mut Vec<Field>,
    table: Table,
    source: &Source<'_>,
    told: &mut Vec<String>,
) {
    fields.retain(|field| {
        let is_ours = is_ours(&field.name, table);
        if !is_ours {
            let place = source.place(field.at);
            told.push(format!("{place}: {:?} means nothing to Rejoin: ignored", field.name));
        }
        is_ours
    });
}
