//! `rejoin serve -c FILE`: servers side by side, checks, precedence and errors.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Output};

use rejoin_testkit::call::Call;
use rejoin_testkit::count::CountFile;
use rejoin_testkit::deadline::WAIT;
use rejoin_testkit::failure::{Failure, TestResult};
use rejoin_testkit::process::Server;
use rejoin_testkit::raw::{Connection, Request};
use rejoin_testkit::session::{Identity, Session};
use serde_json::json;

const REJOIN: &str = env!("CARGO_BIN_EXE_rejoin");
const ANYWHERE: &str = "listen = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n";

/// A folder with a file of options.
struct Folder {
    folder: tempfile::TempDir,
    file: PathBuf,
}

impl Folder {
    fn with(name: &str, text: &str) -> Result<Self, Failure> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join(name);
        std::fs::write(&file, text)?;
        Ok(Self { folder, file })
    }

    /// Runs to its end, in the folder: relative names are short ones.
    fn run(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Result<Output, Failure> {
        let mut command = Command::new(REJOIN);
        command.arg("serve").arg("-c").arg(self.file.file_name().unwrap()).args(arguments);
        command.current_dir(self.folder.path()).envs(variables.iter().copied());
        Ok(command.output()?)
    }

    /// What it says when it refuses.
    fn refusal(&self, arguments: &[&str]) -> Result<String, Failure> {
        let output = self.run(arguments, &[])?;
        assert_eq!(output.status.code(), Some(1));
        Ok(String::from_utf8(output.stderr)?)
    }

    async fn start(&self, arguments: &[&str]) -> Result<(Server, SocketAddr), Failure> {
        let file = self.file.display().to_string();
        let whole = [&["serve", "-c", &file], arguments].concat();
        let mut gateway = Server::start(REJOIN, whole)?;
        let address = gateway.address("listens", WAIT).await?;
        Ok((gateway, address))
    }
}

/// Two servers that count what they run, each in a file of its own. Their variables hold a secret.
fn two_servers(folder: &Folder, more: &str) -> Result<[CountFile; 2], Failure> {
    let counts = ["one", "two"].map(|name| CountFile::at(folder.folder.path().join(name)));
    let tables = ["one", "two"].iter().zip(&counts).map(|(name, count)| {
        format!(
            "[servers.{name}]\ncommand = {REJOIN:?}\nargs = [\"tool-server\"]\n\
             env = {{ REJOIN_COUNT_FILE = {:?}, KEY = \"${{HOME}}a-secret\" }}\n",
            count.path()
        )
    });
    std::fs::write(&folder.file, format!("{ANYWHERE}{more}\n{}", tables.collect::<String>()))?;
    Ok(counts)
}

async fn open(address: SocketAddr, path: &str) -> Result<Session, Failure> {
    Ok(Session::open_at(address, path, Identity::authorized("Bearer one")).await?)
}

async fn status(address: SocketAddr, request: &Request) -> Result<u16, Failure> {
    let mut connection = Connection::open(address).await?;
    connection.request(request).await?;
    Ok(connection.head().await?.status)
}

#[tokio::test]
async fn two_servers_stand_at_two_paths_and_know_nothing_of_each_other() -> TestResult {
    let folder = Folder::with("rejoin.toml", "")?;
    let counts = two_servers(&folder, "log = \"debug\"\nrepeat_scope = \"principal\"")?;
    let (gateway, address) = folder.start(&[]).await?;
    let lines = gateway.lines(true);
    for (line, name) in lines.iter().zip(["one", "two"]) {
        assert!(line.contains(&format!("http://{address}/{name}/mcp in front of: ")), "{line}");
        assert!(!line.contains("tool-server"), "arguments are not shown: {line}");
    }
    let (one, two) = (open(address, "/one/mcp").await?, open(address, "/two/mcp/").await?);
    let charge = |id| Call::new(id, "charge", json!({"amount": 7})).with_dedup_token("same");
    for session in [&one, &two] {
        let answer = session.answer(&charge(1)).await?;
        assert!(answer["result"].is_object(), "{answer}");
    }
    // The same token of the same principal: it is another call at another server.
    assert_eq!([counts[0].runs("charge")?, counts[1].runs("charge")?], [1, 1]);
    // A repeat at the same one does not run.
    one.answer(&charge(2)).await?;
    assert_eq!(counts[0].runs("charge")?, 1);

    let ping = json!({"jsonrpc": "2.0", "id": 9, "method": "ping"});
    let header = |request: Request| request.header("Mcp-Session-Id", one.id());
    let at = |method: &str, path: &str| {
        let request = Request::new(method, path)
            .header("Host", "localhost")
            .header("Authorization", "Bearer one")
            .header("Mcp-Protocol-Version", "2025-11-25")
            .header("Content-Type", "application/json")
            .header("Accept", "application/json, text/event-stream");
        let request = header(request);
        if method == "POST" { request.body(ping.to_string()) } else { request }
    };
    for method in ["POST", "GET", "DELETE"] {
        assert_eq!(status(address, &at(method, "/two/mcp")).await?, 404, "{method}");
    }
    assert_eq!(status(address, &at("POST", "/one/mcp")).await?, 200);
    for path in ["/mcp", "/three/mcp", "/one", "/"] {
        assert_eq!(status(address, &at("POST", path)).await?, 404, "{path}");
    }
    assert_eq!(gateway.log_count(&["a-secret"]), 0, "a secret was logged");
    Ok(())
}

#[tokio::test]
async fn caps_and_the_end_are_those_of_all_servers_together() -> TestResult {
    let folder = Folder::with("rejoin.toml", "")?;
    two_servers(&folder, "limits = { children_max = 1, drain_ms = 20000 }")?;
    let (mut gateway, address) = folder.start(&[]).await?;
    let one = open(address, "/one/mcp").await?;
    let admin = gateway.log_line("admin on http://", WAIT).await?;
    let admin: SocketAddr = admin.rsplit('/').next().unwrap().parse()?;
    assert!(open(address, "/two/mcp").await.is_err(), "children_max holds for both");
    let metrics = Request::new("GET", "/metrics").header("Host", "localhost");
    let mut connection = Connection::open(admin).await?;
    connection.request(&metrics).await?;
    let page = String::from_utf8(connection.plain_body().await?)?;
    assert!(page.contains("rejoin_sessions 1\n"), "{page}");
    // The end waits for the call of either.
    let charge = json!({"amount": 1, "events": 5, "interval_ms": 100});
    let mut running = one.call(&Call::new(1, "charge", charge)).await?;
    running.messages(1).await?;
    let (ended, answer) = tokio::join!(gateway.end(WAIT), running.response());
    let answer = answer?;
    assert!(answer["result"].is_object(), "{answer}");
    assert!(ended?.success());
    Ok(())
}

#[test]
fn a_check_says_what_would_be_served_and_opens_nothing() -> TestResult {
    let text = r#"{"listen": "127.0.0.1:1", "admin": "127.0.0.1:2", "mcpServers": {
        "files": {"command": "sh", "args": ["a-secret"], "env": {"K": "${GIVEN}"}},
        "tools": {"url": "https://tools.example/mcp?k=a-secret", "headers": {"X-Key": "${GIVEN}"}}
    }}"#;
    let folder = Folder::with("client.JSON", text)?;
    let output = folder.run(&["--check"], &[("GIVEN", "a-secret")])?;
    let (said, log) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
    assert!(output.status.success(), "{said} {log}");
    for line in [
        "http://127.0.0.1:1/files/mcp in front of: sh\n",
        "http://127.0.0.1:1/tools/mcp in front of: https://tools.example/mcp\n",
        "operator on http://127.0.0.1:2\n",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert!(!format!("{said}{log}").contains("a-secret"), "{said} {log}");
    let refused = folder.refusal(&["--check"])?;
    assert!(
        refused.starts_with("rejoin serve: client.JSON:2:71: the variable GIVEN is"),
        "{refused}"
    );
    Ok(())
}

#[test]
fn the_command_line_wins_over_the_file() -> TestResult {
    let text = "listen = \"127.0.0.1:1\"\nadmin = \"127.0.0.1:2\"\nupstream = \"http://h/mcp\"\n\
                upstream_auth = \"env:NO_SUCH\"\nlog = \"error\"\nlimits.hold_max_ms = 5";
    let folder = Folder::with("rejoin.toml", text)?;
    let said = |arguments: &[&str]| -> Result<String, Failure> {
        let output = folder.run(&[&["--check"], arguments].concat(), &[])?;
        let log = String::from_utf8(output.stderr)?;
        Ok(String::from_utf8(output.stdout)? + &log)
    };
    let limit = ["--limit", "hold_max_ms=20000"];
    let refused = said(&limit)?;
    assert!(refused.starts_with("rejoin serve: rejoin.toml:4:1: upstream_auth: "), "{refused}");
    assert!(refused.contains("`NO_SUCH` is not set"), "{refused}");
    let listed = said(&[&limit[..], &["--listen", "[::1]:3", "--upstream-auth", "none"]].concat())?;
    assert!(listed.contains("http://[::1]:3/mcp in front of: http://h/mcp\n"), "{listed}");
    assert!(listed.contains("http://127.0.0.1:2\n"), "{listed}");
    let listed = said(&[&limit[..], &["--", "sh", "-c"]].concat())?;
    assert!(listed.contains("http://127.0.0.1:1/mcp in front of: sh -c\n"), "{listed}");
    let refused = said(&[])?;
    let expected = "rejoin.toml:6:8: hold_max_ms = 5: the limits cannot be used: hold_max_ms (5)";
    assert!(refused.contains(expected), "{refused}");
    let refused = said(&["--limit", "retry_ms=1000"])?;
    assert!(refused.contains("hold_max_ms = 5: the limits"), "another limit stays: {refused}");
    // The credential of the file is that server's, and no other's.
    let listed = said(&[&limit[..], &["--upstream", "http://other/mcp"]].concat())?;
    assert!(listed.contains("in front of: http://other/mcp\n"), "{listed}");
    Ok(())
}

#[test]
fn every_error_of_a_file_names_its_place() -> TestResult {
    for (text, expected) in [
        ("lisen = 1", "rejoin.toml:1:1: there is no key \"lisen\" here: \"listen\" may be meant\n"),
        (
            "\nlisten = \"0.0.0.0:1\"",
            "rejoin.toml:2:1: listen 0.0.0.0:1 can be reached from other machines, and no \
             authentication is configured. Listen on 127.0.0.1, or set allow_anonymous = true to",
        ),
        ("\nsubjects = \"none\"", "rejoin.toml:2:1: subjects none: the file cannot be read"),
        ("log = \"a=b=c\"", "rejoin.toml:1:1: log: \"a=b=c\" is not a log filter"),
        ("upstream = \"banana\"", "rejoin.toml:1:1: upstream banana: it is not a URL"),
        (
            "upstream = \"banana${PATH}\"",
            "rejoin.toml:1:1: upstream a URL that cannot be read: it is not a URL",
        ),
        ("[servers.a]\nurl = \"x\"", "rejoin.toml:2:1: url x: it is not a URL"),
        (
            "[servers.a]\nurl = \"x${PATH}\"",
            "rejoin.toml:2:1: url a URL that cannot be read: it is not a URL",
        ),
        (
            "limits = { tcp_keepalive_time_ms = 500 }",
            "rejoin.toml:1:12: tcp_keepalive_time_ms = 500: the limits cannot be used: \
             tcp_keepalive_time_ms (500) must be from 1000 to 32767999",
        ),
        (
            "[servers.a]\nurl = \"http://h/\"\nheaders = { Host = \"a-secret\" }",
            "rejoin.toml:3:1: headers: the header `host` cannot be forwarded or set",
        ),
        (
            "[servers.a]\nurl = \"https://h/\"\nupstream_ca = \"none\"",
            "rejoin.toml:3:1: upstream_ca: the CA file `none`",
        ),
    ] {
        let said = Folder::with("rejoin.toml", text)?.refusal(&["--check"])?;
        assert!(said.starts_with(&format!("rejoin serve: {expected}")), "{text}: {said}");
        assert!(!said.contains("a-secret") && said.lines().count() == 1, "{said}");
    }
    Ok(())
}

#[test]
fn a_file_that_cannot_be_read_is_named() -> TestResult {
    let folder = Folder::with("rejoin.toml", "")?;
    for (make, expected) in [
        (None, "-c rejoin.toml: the file cannot be read; check its path and permissions: No such"),
        (Some(vec![b'#'; 1024 * 1024 + 1]), "-c rejoin.toml: the file has more than 1048576 bytes"),
        (Some(b"# \xff".to_vec()), "-c rejoin.toml: the file is not UTF-8 text"),
    ] {
        match make {
            Some(bytes) => std::fs::write(&folder.file, bytes)?,
            None => std::fs::remove_file(&folder.file)?,
        }
        let said = folder.refusal(&["--check"])?;
        assert!(said.starts_with(&format!("rejoin serve: {expected}")), "{said}");
    }
    Ok(())
}

#[tokio::test]
async fn a_server_at_a_url_gets_the_headers_of_the_file() -> TestResult {
    let small = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/upstream_http_server.py");
    let folder = Folder::with("rejoin.json", "")?;
    let count = folder.folder.path().join("count").display().to_string();
    let mut upstream = Server::start_tied("python3", [small, &count])?;
    let place = upstream.address("serves", WAIT).await?;
    let text = json!({
        "listen": "127.0.0.1:0",
        "admin": "127.0.0.1:0",
        "mcpServers": {"small": {
            "type": "streamable-http",
            "url": format!("http://{place}/mcp"),
            "headers": {"Authorization": "Bearer good", "X-Tenant": "acme"},
        }},
    });
    std::fs::write(&folder.file, text.to_string())?;
    let (_gateway, address) = folder.start(&[]).await?;
    // The client's own credential would be refused there.
    let session = open(address, "/small/mcp").await?;
    let answer = session.answer(&Call::new(1, "tenant", json!({}))).await?;
    assert!(answer.to_string().contains("acme"), "{answer}");
    Ok(())
}

#[tokio::test]
async fn a_command_gets_its_arguments_variables_and_directory() -> TestResult {
    let script = "printf '%s %s' \"$PLACE\" \"$PWD\" > said; exec \"$1\" tool-server";
    let folder = Folder::with("rejoin.toml", "")?;
    let cwd = folder.folder.path().canonicalize()?;
    let text = format!(
        "{ANYWHERE}command = \"sh\"\nargs = [\"-c\", {script:?}, \"sh\", {REJOIN:?}]\n\
         env.PLACE = \"${{NOBODY_SETS_THIS:-here}}\"\ncwd = {cwd:?}\n"
    );
    std::fs::write(&folder.file, text)?;
    let (_gateway, address) = folder.start(&[]).await?;
    open(address, "/mcp").await?;
    let said = std::fs::read_to_string(folder.folder.path().join("said"))?;
    assert_eq!(said, format!("here {}", cwd.display()));
    Ok(())
}

#[tokio::test]
async fn a_command_never_sees_the_variables_of_another_server() -> TestResult {
    let script = "env > said.$NAME; exec \"$1\" tool-server";
    let folder = Folder::with("rejoin.toml", "")?;
    let cwd = folder.folder.path().canonicalize()?;
    let command = format!(
        "command = \"sh\"\nargs = [\"-c\", {script:?}, \"sh\", {REJOIN:?}]\ncwd = {cwd:?}\n"
    );
    let text = format!(
        "{ANYWHERE}log = \"${{OF_LOG:-info}}\"\n\
         [servers.one]\n{command}env = {{ NAME = \"one\", SET = \"mine\", K = \"${{OF_ONE}}\" }}\n\
         [servers.two]\n{command}env = {{ NAME = \"two\", PATH = \"${{PATH}}\" }}\n\
         [servers.url]\nurl = \"http://h/mcp\"\nheaders = {{ X-A = \"${{OF_URL}}${{SET}}\" }}\n\
         [servers.auth]\nurl = \"http://h.example/mcp\"\nupstream_auth = \"env:OF_AUTH\"\n"
    );
    std::fs::write(&folder.file, text)?;
    let names = ["OF_ONE", "OF_URL", "OF_AUTH", "OF_LOG", "OF_NOBODY", "SET"];
    let file = folder.file.display().to_string();
    let variables = names.map(|name| match name {
        "OF_LOG" => "OF_LOG=info".to_owned(),
        _ => format!("{name}=a-secret"),
    });
    let words = variables.iter().map(String::as_str).chain([REJOIN, "serve", "-c", &file]);
    let mut gateway = Server::start("env", words)?;
    let address = gateway.address("listens", WAIT).await?;
    for (name, expected) in
        [("one", &["OF_NOBODY", "OF_ONE", "SET"][..]), ("two", &["OF_NOBODY"][..])]
    {
        open(address, &format!("/{name}/mcp")).await?;
        let said = std::fs::read_to_string(cwd.join(format!("said.{name}")))?;
        let mut seen: Vec<_> = said
            .lines()
            .filter_map(|line| line.split_once('='))
            .filter(|(name, _)| names.contains(name))
            .collect();
        seen.sort_unstable();
        let seen_names: Vec<_> = seen.iter().map(|(name, _)| *name).collect();
        assert_eq!(seen_names, expected, "{name}: {said}");
        assert!(name == "two" || seen.contains(&("SET", "mine")), "{said}");
        assert!(said.lines().any(|line| line.starts_with("PATH=/")), "what all need stays: {said}");
    }
    Ok(())
}

#[test]
fn a_check_fails_for_a_command_or_directory_that_is_not_there() -> TestResult {
    for (text, expected) in [
        (
            "command = \"no-such-server\"",
            "rejoin.toml:1:1: command: cannot start `no-such-server`: ",
        ),
        (
            "command = \"npx -y a\"",
            "arguments are words of their own behind it (in a file: `args`)",
        ),
        ("command = \"~/server\"", "no shell expands the ~"),
        ("command = \"/tmp\"", "it is a folder"),
        ("command = \"sh\"\ncwd = \"/no-such\"", "cannot start `sh` in `/no-such`: No such file"),
        (
            "[servers.a]\ncommand = \"sh\"\n[servers.b]\ncommand = \"no-such\"",
            "rejoin.toml:4:1: command: ",
        ),
    ] {
        let folder = Folder::with("rejoin.toml", text)?;
        let output = folder.run(&["--check"], &[])?;
        let said = String::from_utf8(output.stderr)?;
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.starts_with("rejoin serve: ") && said.contains(expected), "{said}");
        assert!(output.stdout.is_empty() && said.lines().count() == 1, "{said}");
    }
    let output = Folder::with("rejoin.toml", "")?.run(&["--check", "--", "no-such"], &[])?;
    assert_eq!(output.status.code(), Some(1));
    // What the command line has wrong is another status, as the help says.
    let output = Folder::with("rejoin.toml", "")?.run(&["--check", "--no-such"], &[])?;
    assert_eq!(output.status.code(), Some(2));
    Ok(())
}

#[test]
fn listeners_that_meet_each_other_or_the_server_are_refused() -> TestResult {
    for (text, expected) in [
        (
            "admin = \"127.0.0.1:8080\"",
            "rejoin.toml:1:1: admin are both 127.0.0.1:8080: give each a port",
        ),
        ("listen = \"0.0.0.0:9090\"\nallow_anonymous = true", "are both 127.0.0.1:9090"),
        (
            "upstream = \"http://127.0.0.1:8080/mcp\"",
            "rejoin.toml:1:1: upstream http://127.0.0.1:8080/mcp: Rejoin itself listens there (--listen 127.0.0.1:8080)",
        ),
        (
            "upstream = \"http://localhost:9090/mcp\"",
            "Rejoin itself listens there (--admin 127.0.0.1:9090)",
        ),
        ("[servers.a]\nurl = \"http://[::1]/\"\n", ""),
        (
            "listen = \"[::]:80\"\nallow_anonymous = true\n[servers.a]\nurl = \"http://[::1]/\"",
            "rejoin.toml:4:1: url http://[::1]/: Rejoin itself listens there (rejoin.toml:1:1: listen [::]:80)",
        ),
        ("upstream = \"http://127.0.0.2:8080/mcp\"", ""),
        ("upstream = \"https://127.0.0.1/mcp\"", ""),
        ("listen = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"", ""),
    ] {
        let output = Folder::with("rejoin.toml", text)?.run(&["--check"], &[])?;
        let said = String::from_utf8(output.stderr)?;
        assert_eq!(output.status.success(), expected.is_empty(), "{text}: {said}");
        assert!(said.contains(expected), "{text}: {said}");
    }
    Ok(())
}

#[test]
fn what_a_file_leaves_out_or_has_too_much_is_told_in_the_log() -> TestResult {
    let demo = Folder::with("rejoin.toml", "log = \"warn\"")?.run(&["--check"], &[])?;
    let said = String::from_utf8(demo.stderr)?;
    assert!(said.contains("WARN") && said.contains("-c rejoin.toml names no MCP server"), "{said}");
    let text = "\u{feff}{\"theme\": \"dark\", \"mcpServers\": {\"a\": {\"command\": \"sh\"}}}";
    let client = Folder::with("client.json", text)?.run(&["--check"], &[])?;
    let said = String::from_utf8(client.stderr)?;
    assert!(client.status.success(), "a mark of the encoding is skipped: {said}");
    assert!(said.contains("client.json:1:2: \"theme\" means nothing to Rejoin"), "{said}");
    assert!(!said.contains("names no MCP server"), "{said}");
    Ok(())
}

#[test]
fn a_mistyped_log_level_is_refused_wherever_it_was_set() -> TestResult {
    let folder = Folder::with("rejoin.toml", "log = \"inof\"")?;
    let said = folder.refusal(&["--check"])?;
    assert!(said.starts_with("rejoin serve: rejoin.toml:1:1: log: \"inof\" is no level"), "{said}");
    let said = folder.refusal(&["--check", "--log", "lalala"])?;
    assert!(said.starts_with("rejoin serve: --log: \"lalala\" is no level"), "{said}");
    Ok(())
}
