use std::collections::BTreeSet;
use std::env::VarError;

use clap::{CommandFactory as _, Parser as _};

use super::*;
use crate::args::{Args, Command};

const DOCUMENT: &str = include_str!("../../../../docs/configuration.md");

fn line(arguments: &[&str]) -> ServeArgs {
    let whole = ["rejoin", "serve"].iter().chain(arguments);
    match Args::try_parse_from(whole).unwrap().command {
        Command::Serve(args) => *args,
        other => panic!("parsed as {other:?}"),
    }
}

/// Reads a file of this name, beside a command line on which these options were given.
fn read(name: &str, text: &str, given: &[&str]) -> Result<ServeArgs, String> {
    let mut args = line(&[]);
    let lookup = |name: &str| match name {
        "UNSET" => Err(VarError::NotPresent),
        _ => Ok("a-secret".to_owned()),
    };
    let source = Source { path: Path::new(name), text };
    let read = apply(&source, &lookup, &mut args, &|option| given.contains(&option));
    read.map(|()| args).map_err(|error| error.to_string())
}

fn toml(text: &str) -> Result<ServeArgs, String> {
    read("a.toml", text, &[])
}

fn json(text: &str) -> Result<ServeArgs, String> {
    read("a.json", text, &[])
}

#[test]
fn every_option_has_a_key_of_the_same_name() {
    let mut command = Args::command();
    let serve = command.find_subcommand_mut("serve").unwrap();
    let not_of_a_file = ["config", "check"];
    let ids = serve.get_arguments().map(|argument| argument.get_id().as_str());
    for id in ids.filter(|id| !not_of_a_file.contains(id)) {
        assert!(keys::KEYS.contains(&id), "{id} has no key");
    }
}

#[test]
fn the_document_has_every_key_with_its_default() {
    let rows = |key: &str| -> Vec<&str> {
        let begin = format!("| `{key}` |");
        DOCUMENT.lines().filter(|line| line.starts_with(&begin)).collect()
    };
    for key in keys::KEYS.iter().chain(&server::KEYS) {
        let tables = [keys::KEYS.contains(key), server::KEYS.contains(key)];
        let expected = tables.into_iter().filter(|is_there| *is_there).count();
        assert_eq!(rows(key).len(), expected, "{key}");
    }
    let mut command = Args::command();
    let serve = command.find_subcommand_mut("serve").unwrap();
    for argument in serve.get_arguments().filter(|argument| argument.get_long().is_some()) {
        let defaults = argument.get_default_values();
        if let (Some(default), Some(row)) =
            (defaults.first(), rows(argument.get_id().as_str()).first())
        {
            let default = format!("| `{}` |", default.to_string_lossy());
            assert!(row.ends_with(&default), "{row}: {default}");
        }
    }
}

#[test]
fn every_example_of_the_document_can_be_used() {
    let mut examples = 0;
    for (kind, name) in [("toml", "a.toml"), ("json", "a.json")] {
        for part in DOCUMENT.split(&format!("```{kind}\n")).skip(1) {
            let example = part.split("```").next().unwrap();
            read(name, example, &[]).unwrap_or_else(|error| panic!("{error}: {example}"));
            examples += 1;
        }
    }
    assert!(examples >= 4, "{examples}");
}

#[test]
fn every_option_can_be_set_in_either_form() {
    let text = r#"
        listen = "[::1]:0"
        admin = "localhost:7"
        allow_hosts = ["mcp.example"]
        allow_origins = ["https://app.example"]
        allow_anonymous = true
        subjects = "s"
        reject_status = 409
        on_repeat = "join"
        repeat_scope = "principal"
        delivery = "proved"
        owed_grace = "never"
        idempotent_tools = ["a"]
        trust_annotations = true
        stateless_upstream = true
        upstream = "http://h/mcp"
        upstream_auth = "none"
        upstream_ca = "ca.pem"
        upstream_headers = ["X-A"]
        log = "warn"
        limits = { hold_max_ms = 20_000, sessions_max = "7", upstream = { connect_max_ms = 0x10 } }
    "#;
    let args = toml(text).unwrap();
    let ends = (args.listen.to_string(), args.admin.to_string());
    assert_eq!(ends, ("[::1]:0".to_owned(), "127.0.0.1:7".to_owned()));
    let chosen = (args.reject_status, args.on_repeat, args.repeat_scope, args.delivery);
    let mut expected = line(&[
        "--reject-status=409",
        "--on-repeat=join",
        "--repeat-scope=principal",
        "--delivery=proved",
    ]);
    expected.log = "warn".to_owned();
    let wanted =
        (expected.reject_status, expected.on_repeat, expected.repeat_scope, expected.delivery);
    assert_eq!(chosen, wanted);
    assert!(args.allow_anonymous && args.trust_annotations && args.stateless_upstream);
    let lists = [&args.allow_hosts, &args.allow_origins, &args.idempotent_tools];
    assert_eq!(lists, [&["mcp.example"][..], &["https://app.example"], &["a"]]);
    assert_eq!((args.subjects, args.upstream_ca), (Some("s".into()), Some("ca.pem".into())));
    assert_eq!(
        (&args.upstream_headers[..], &args.log[..]),
        (&["x-a".parse().unwrap()][..], "warn")
    );
    assert_eq!(args.upstream.as_deref(), Some("http://h/mcp"));
    let limits: BTreeSet<_> = args.file.limits.iter().map(LimitSetting::shown).collect();
    let limits: Vec<_> = limits.iter().map(|limit| limit.split(": ").last().unwrap()).collect();
    let wanted = [
        "owed_grace_ms = never",
        "hold_max_ms = 20000",
        "sessions_max = 7",
        "upstream.connect_max_ms = 16",
    ];
    assert_eq!(limits, wanted);
    let same = json(r#"{"listen": "[::1]:0", "limits": {"hold_max_ms": 20000}}"#).unwrap();
    assert_eq!((same.listen, same.file.limits.len()), (args.listen, 1));
}

#[test]
fn an_error_names_file_line_and_column_what_is_wrong_and_what_to_do_and_no_value() {
    for (text, expected) in [
        ("listen = 1\nx", "a.toml:2:2: this is not TOML: "),
        ("lisen = 1", "a.toml:1:1: there is no key \"lisen\" here: \"listen\" may be meant"),
        ("\n  banana = 1", "a.toml:2:3: there is no key \"banana\" here; the keys are: listen, "),
        ("listen = 8080", "a.toml:1:10: expected a string in quotes, found a number"),
        ("listen = \"a-secret\"", "a.toml:1:10: expected an IP address and a port, such as"),
        ("allow_hosts = \"x\"", "a.toml:1:15: expected a list, such as"),
        ("allow_hosts = [\n\"x\",\n\"a-secret/\"]", "a.toml:3:1: expected a host, such as"),
        ("allow_anonymous = \"yes\"", "a.toml:1:19: expected true or false, without quotes"),
        ("on_repeat = \"a-secret\"", "a.toml:1:13: expected one of \"collect\", \"join\", \"rej"),
        ("subjects = \"é${UNSET}\"", "a.toml:1:12: the variable UNSET is not set: set it"),
        (
            "limits.hold_max_m = 1",
            "a.toml:1:8: there is no key \"hold_max_m\" here: \"hold_max_ms\"",
        ),
        ("limits.hold_max_ms = \"a-secret\"", "a.toml:1:22: expected a whole number of mill"),
        ("owed_grace = -1", "a.toml:1:14: expected a whole number of milliseconds that fits, or"),
        ("owed_grace = 9000\nlimits.owed_grace_ms = 1", "a.toml:2:8: owed_grace and owed_grace_ms"),
        ("upstream_ca = \"x\"", "a.toml:1:1: upstream_ca goes with `upstream`, which is not here"),
        ("args = [\"x\"]", "a.toml:1:1: args goes with `command`, which is not here"),
        ("command = \"\"", "a.toml:1:11: the command is empty"),
        ("command = \"x\"\nupstream = \"y\"", "a.toml:2:1: command and upstream both name"),
        ("upstream = \"x\"\n[servers.a]\ncommand = \"b\"", "a.toml:2:2: upstream and servers both"),
        ("[servers]", "a.toml:1:2: servers holds no server"),
        ("[servers.a]\nurl = \"x\"\ncommand = \"y\"", "a.toml:2:1: a server has a `command` or"),
        ("[servers.a]\nargs = []", "a.toml:1:10: the server \"a\" has neither"),
        ("[servers.a]\ncomand = \"x\"", "a.toml:2:1: there is no key \"comand\" here: \"command\""),
        ("[servers.\"a b\"]\ncommand = \"x\"", "a.toml:1:10: \"a b\" cannot stand in the path"),
        (
            "servers.a = { command = \"x\", type = \"sse\" }",
            "a.toml:1:37: `type` is \"stdio\" with",
        ),
        ("servers.a = { command = \"x\", headers = {} }", "a.toml:1:30: headers goes with `url`"),
        ("servers.a = { url = \"x\", cwd = \"/\" }", "a.toml:1:26: cwd goes with `command`"),
        (
            "servers.a = { command = \"x\", env = { \"A=\" = \"\" } }",
            "a.toml:1:38: this can be no v",
        ),
        (
            "servers.a = { url = \"x\", headers = { \"a b\" = \"\" } }",
            "a.toml:1:38: expected the nam",
        ),
        ("servers.a = { url = \"x\", headers = { a = \"\\n\" } }", "a.toml:1:42: this can be no h"),
        (
            "servers.a = { url = \"x\", headers.authorization = \"y\", upstream_auth = \"none\" }",
            "a.toml:1:55: `headers` has an Authorization too",
        ),
    ] {
        let refusal = toml(text).unwrap_err();
        assert!(refusal.starts_with(expected), "{text}: {refusal}");
        assert!(!refusal.contains("a-secret") && refusal.lines().count() == 1, "{refusal}");
    }
}

#[test]
fn an_error_in_json_names_its_place_too() {
    let deep = format!("{{\"limits\": {}1{}}}", "[".repeat(20), "]".repeat(20));
    for (text, expected) in [
        ("{\n  \"listen\": \"x\",,\n}", "a.json:2:17: this is not JSON: key must be a string"),
        ("", "a.json:1:1: this is not JSON: EOF"),
        ("[]", "a.json:1:1: expected a table of keys and values, found a list"),
        ("{\n  \"lisen\": 1}", "a.json:2:3: there is no key \"lisen\" here: \"listen\""),
        ("{\"log\": \"a\", \"log\": \"b\"}", "a.json:1:14: this key is there twice"),
        ("{\"listen\": null}", "a.json:1:12: expected a string in quotes, found null"),
        ("{\"log\":\n\"${UNSET}\"}", "a.json:2:1: the variable UNSET is not set"),
        (
            "{\"mcpServers\": {\"a\": {\"command\": \"x\",\n \"disabled\": true}}}",
            "a.json:2:2: there is no key \"disabled\" here; the keys are: type, command",
        ),
        (&deep, "a.json:1:"),
    ] {
        let refusal = json(text).unwrap_err();
        assert!(refusal.starts_with(expected), "{text}: {refusal}");
    }
    assert!(json(&deep).unwrap_err().contains("nested so deeply"));
}

#[test]
fn what_the_command_line_gives_is_checked_in_the_file_and_not_taken() {
    let text = "listen = \"[::1]:1\"\nadmin = \"[::1]:2\"\ncommand = \"x\"";
    let args = read("a.toml", text, &["listen"]).unwrap();
    assert_eq!((args.listen, args.admin.port()), (line(&[]).listen, 2));
    assert!(args.file.command.is_some());
    for given in ["upstream", "command"] {
        assert!(read("a.toml", text, &[given]).unwrap().file.command.is_none(), "{given}");
        let servers = read("a.toml", "servers.a.command = \"x\"", &[given]).unwrap();
        assert!(servers.file.servers.is_empty(), "{given}");
    }
    assert!(read("a.toml", "listen = 1", &["listen"]).is_err());
    let facts =
        "servers.a = { command = \"x\", trust_annotations = true, stateless_upstream = true }";
    let args = read("a.toml", facts, &["trust_annotations"]).unwrap();
    let facts = &args.file.servers[0].facts;
    assert_eq!((facts.trust_annotations, facts.stateless_upstream), (None, Some(true)));
    let refusal = read("a.toml", "servers.a.url = \"x\"", &["upstream_auth"]).unwrap_err();
    assert!(refusal.contains("--upstream-auth is for the URL of one server"), "{refusal}");
}

#[test]
fn what_is_shown_of_a_server_holds_no_argument_variable_header_or_query() {
    let text = r#"{"mcpServers": {
        "one": {"command": "run", "args": ["${KEY}"], "env": {"K": "${KEY}"}, "cwd": "/"},
        "two": {
            "url": "http://h/mcp?k=${KEY}",
            "headers": {"Authorization": "${KEY}", "K": "${KEY}"}
        }
    }}"#;
    let args = json(text).unwrap();
    let shown = format!("{:?}", args.file);
    assert!(shown.contains("run") && shown.contains("http://h/mcp"), "{shown}");
    assert!(!shown.contains("a-secret"), "{shown}");
}

#[test]
fn the_grace_is_set_once_in_whatever_order() {
    let (grace, limits) = (r#""owed_grace": 9000"#, r#""limits": {"owed_grace_ms": 9000}"#);
    for text in [format!("{{{grace}, {limits}}}"), format!("{{{limits}, {grace}}}")] {
        let refusal = json(&text).unwrap_err();
        assert!(refusal.contains("are the same: take one of them out"), "{refusal}");
    }
}
