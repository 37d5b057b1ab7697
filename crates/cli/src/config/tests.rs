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
        http2 = true
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
    assert!(args.http2);
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
        ("owed_grace = -1", "a.toml:1:14: expected a whole number of milliseconds, or `never`"),
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
            "a.toml:1:37: `type` says that the server has a URL, but it has a `command`",
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
        (
            "{\"log\": \"a\", \"log\": \"b\"}",
            "a.json:1:14: the key \"log\" is there twice, first in line 1: take",
        ),
        ("{\"listen\": null}", "a.json:1:12: expected a string in quotes, found null"),
        ("{\"log\":\n\"${UNSET}\"}", "a.json:2:1: the variable UNSET is not set"),
        (
            "{\"servers\": {\"a\": {\"command\": \"x\",\n \"disabled\": true}}}",
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

#[test]
fn a_key_in_the_wrong_table_is_told_where_it_belongs() {
    for (text, expected) in [
        (
            "[limits]\nsessions_max = 5\non_repeat = \"join\"",
            "3:1: there is no key \"on_repeat\" here: it is a key of the whole file: put it",
        ),
        (
            "[servers.b]\ncommand = \"b\"\nlisten = \"x\"",
            "3:1: there is no key \"listen\" here: it is a key for all servers: put it",
        ),
        (
            "sessions_max = 5",
            "1:1: there is no key \"sessions_max\" here: it is a limit: put it under [limits]",
        ),
        (
            "[servers.a]\nupstream = \"x\"\nurl = \"x\"",
            "2:1: there is no key \"upstream\" here: \"url\" may be meant",
        ),
        ("[servers.a]\ncmd = \"x\"", "2:1: there is no key \"cmd\" here: \"command\" may be meant"),
        (
            "[limits]\nconnect_max_ms = 5",
            "2:1: there is no key \"connect_max_ms\" here: \"upstream.connect_max_ms\"",
        ),
        (
            "limits = { banana = 1 }",
            "1:12: there is no key \"banana\" here; `rejoin serve --limit help` lists",
        ),
    ] {
        let refusal = toml(text).unwrap_err();
        assert!(refusal.starts_with(&format!("a.toml:{expected}")), "{text}: {refusal}");
        assert!(refusal.len() < 200, "{refusal}");
    }
}

#[test]
fn what_is_no_toml_or_json_is_told_with_what_to_do() {
    let twice = "[servers.a]\ncommand = \"x\"\n[servers.a]\ncommand = \"y\"";
    for (name, text, expected) in [
        ("a.toml", "listen = 127.0.0.1:8080", "needs quotes around it"),
        ("a.toml", "subjects = /etc/subjects", "needs quotes around it"),
        ("a.toml", "listen: \"x\"", "KEY = VALUE, not KEY: VALUE"),
        ("a.toml", "{ \"listen\": \"x\" }", "its name must end in .json"),
        (
            "a.toml",
            "log = \"a\"\nhttp2 = true\nlog = \"b\"",
            "\"log\" is there twice, first in line 1: take",
        ),
        ("a.toml", twice, "\"a\" is there twice, first in line 1: take"),
        ("a.toml", "log = \"a-secret", "a string ends with the quotes"),
        ("a.json", "{\n // mine\n \"log\": \"x\"}", "no comments in JSON"),
        ("a.json", "{\"log\": \"x\", }", "a comma stands between two values only"),
        ("a.json", "{\"idempotent_tools\": [\"x\", ]}", "a comma stands between two values only"),
        ("a.json", " \n", "the file is empty"),
        ("a.yaml", "listen: x", "is TOML, or JSON if its name ends in .json"),
    ] {
        let refusal = read(name, text, &[]).unwrap_err();
        assert!(refusal.contains(expected), "{text}: {refusal}");
        assert!(!refusal.contains("a-secret") && refusal.lines().count() == 1, "{refusal}");
    }
}

#[test]
fn all_that_is_wrong_is_told_at_once() {
    let text = "lisen = 1\nadmin = 2\n[servers.a]\ncmd = \"x\"\n[servers.b]\n[limits]\nx = 1\n\
                hold_max_ms = \"a-secret\"";
    let refusal = toml(text).unwrap_err();
    let places: Vec<_> = refusal.lines().filter_map(|line| line.split(": ").next()).collect();
    assert_eq!(
        places,
        ["a.toml:1:1", "a.toml:2:9", "a.toml:4:1", "a.toml:5:10", "a.toml:7:1", "a.toml:8:15"]
    );
    assert!(!refusal.contains("a-secret"), "{refusal}");
    let many: String = (0..30).map(|key| format!("unknown_{key} = 1\n")).collect();
    let refusal = toml(&many).unwrap_err();
    assert!(refusal.lines().count() == 21 && refusal.ends_with("and 10 more"), "{refusal}");
}

#[test]
fn what_disagrees_or_cannot_be_a_name_is_told_why() {
    for (text, expected) in [
        (
            "servers.a = { type = \"stdio\", url = \"x\" }",
            "says \"stdio\", but the server has a `url`",
        ),
        (
            "servers.a = { type = \"sse\", url = \"x\" }",
            "only passes the older HTTP+SSE transport through",
        ),
        ("servers.a = { type = \"ws\", url = \"x\" }", "expected \"stdio\" with a `command`"),
        ("servers.\"..\".command = \"x\"", "(there it means a folder, not a name)"),
        (
            "limits.retry_ms = 9007199254740992",
            "expected a smaller number of milliseconds, such as",
        ),
        ("owed_grace = 8.5", "expected a whole number of milliseconds, or `never`, such as"),
    ] {
        let refusal = toml(text).unwrap_err();
        assert!(refusal.contains(expected), "{text}: {refusal}");
    }
}

#[test]
fn the_file_of_a_desktop_client_is_taken_without_what_is_its_own() {
    let text = r#"{
        "globalShortcut": "Ctrl+Space",
        "preferences": { "menuBarEnabled": true, "folder": "${UNSET}" },
        "mcpServers": {
            "cline": { "command": "npx", "disabled": false, "autoApprove": ["read"], "timeout": 60 },
            "cursor": { "command": "npx", "envFile": ".env", "env": { "K": "${env:KEY}" } },
            "windsurf": { "serverUrl": "https://w.example/mcp", "disabledTools": [] },
            "gemini": { "httpUrl": "https://g.example/mcp", "trust": true, "description": "x" },
            "fast": { "transport": "streamable-http", "url": "https://f.example/mcp", "icon": "" },
            "off": { "disabled": true, "command": "x", "args": ["${UNSET}"] },
            "out": { "enabled": false, "command": "x", "env": { "K": "${OF_OUT}" } }
        }
    }"#;
    let args = json(text).unwrap();
    let names: Vec<_> = args.file.servers.iter().map(|server| server.name.as_str()).collect();
    assert_eq!(names, ["cline", "cursor", "windsurf", "gemini", "fast"]);
    let shown = format!("{:?}", args.file.servers);
    for url in ["https://w.example/mcp", "https://g.example/mcp", "https://f.example/mcp"] {
        assert!(shown.contains(url), "{shown}");
    }
    let told = args.file.unused.join("\n");
    for (place, key) in [
        (2, "globalShortcut"),
        (3, "preferences"),
        (5, "autoApprove"),
        (5, "timeout"),
        (6, "envFile"),
        (7, "disabledTools"),
        (8, "trust"),
        (8, "description"),
        (9, "icon"),
    ] {
        let told_of = |line: &str| {
            line.starts_with(&format!("a.json:{place}:"))
                && line.ends_with(&format!(": {key:?} means nothing to Rejoin: ignored"))
        };
        assert!(told.lines().any(told_of), "{key}: {told}");
    }
    assert!(told.contains("the server \"off\" is disabled: it is not served"), "{told}");
    assert_eq!(args.file.unused.len(), 11, "{told}");
    // Of a server that is not served too.
    assert!(args.file.variables.contains("OF_OUT") && args.file.variables.contains("KEY"));

    let editor = r#"{"inputs": [{"id": "key"}], "servers": {"a": {"command": "x", "dev": {}}}}"#;
    let unused = json(editor).unwrap().file.unused;
    assert!(unused.len() == 2 && unused[0].contains("\"inputs\""), "{unused:?}");
    for (text, expected) in [
        (r#"{"mcpServers": {"a": {"comand": "x"}}}"#, "\"command\" may be meant"),
        (r#"{"mcpServers": {"a": {"command": "x"}}, "allowHosts": []}"#, "\"allow_hosts\" may be"),
        (
            r#"{"mcpServers": {"a": {"command": "x", "disabled": true}}}"#,
            "disabled ones do not count",
        ),
        (r#"{"mcpServers": {"a": {"command": "${input:key}"}}}"#, "asks a person"),
    ] {
        let refusal = json(text).unwrap_err();
        assert!(refusal.contains(expected), "{text}: {refusal}");
    }
}

#[test]
fn no_fault_repeats_what_a_variable_holds() {
    for (text, expected) in [
        ("upstream = \"http://u/mcp\"\nupstream_auth = \"env:${TOKEN}\"", "write env:TOKEN"),
        ("[servers.a]\nurl = \"http://u/mcp\"\nupstream_auth = \"env:${K}\"", "write env:K"),
        ("upstream = \"http://u/mcp\"\nupstream_auth = \"${TOKEN}\"", "holds (TOKEN) makes"),
        ("listen = \"${TOKEN}:1\"", "a.toml:1:10: what the environment holds (TOKEN) makes"),
        ("allow_hosts = [\"http://${TOKEN}/x\"]", "holds (TOKEN) makes"),
        ("allow_origins = [\"http://${TOKEN}/x\"]", "holds (TOKEN) makes"),
        ("log = \"${TOKEN}\"", "holds (TOKEN) makes"),
        ("[limits]\nsessions_max = \"${TOKEN}\"", "holds (TOKEN) makes"),
    ] {
        let refusal = toml(text).unwrap_err();
        assert!(refusal.contains(expected), "{text}: {refusal}");
        assert!(!refusal.contains("a-secret"), "{text}: {refusal}");
    }
    let args = toml("upstream = \"${TOKEN}\"").unwrap();
    assert_eq!(args.upstream.as_deref(), Some("a-secret"), "what it is worth is seen later");
}

#[test]
fn a_word_that_no_program_can_be_given_is_refused() {
    for (text, place) in [
        ("command = \"c\\u0000at\"", "a.toml:1:11: "),
        ("command = \"cat\"\nargs = [\"a\", \"a\\u0000b\"]", "a.toml:2:14: "),
        ("command = \"cat\"\ncwd = \"/tmp\\u0000\"", "a.toml:2:7: "),
        ("[servers.a]\ncommand = \"cat\"\nargs = [\"\\u0000\"]", "a.toml:3:9: "),
    ] {
        let refusal = toml(text).unwrap_err();
        assert!(refusal.starts_with(place) && refusal.contains("NUL"), "{text}: {refusal}");
    }
}
