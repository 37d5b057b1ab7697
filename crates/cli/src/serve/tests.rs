use clap::Parser;
use rejoin_core::causes::told;

use super::upstream::UpstreamChoice;
use super::*;
use crate::args::{Args, Command};

fn options(arguments: &[&str]) -> Result<ServeOptions, ServeError> {
    let whole = ["rejoin", "serve"].iter().chain(arguments);
    match Args::try_parse_from(whole).unwrap().command {
        Command::Serve(args) => ServeOptions::from_args(*args),
        other => panic!("parsed as {other:?}"),
    }
}

#[test]
fn a_listener_beyond_loopback_needs_leave_for_anonymous_callers() {
    let refusal = options(&["--listen", "0.0.0.0:8080"]).unwrap_err().to_string();
    assert!(refusal.contains("--listen 0.0.0.0:8080"), "{refusal}");
    assert!(refusal.contains("--allow-anonymous"), "{refusal}");
    assert!(options(&["--listen", "0.0.0.0:8080", "--allow-anonymous"]).is_ok());
    assert!(options(&["--listen", "[::1]:8080"]).is_ok());
}

#[test]
fn an_admin_listener_beyond_loopback_needs_leave_too() {
    let refusal = options(&["--admin", "[::]:9090"]).unwrap_err().to_string();
    assert!(refusal.contains("--admin [::]:9090"), "{refusal}");
}

#[test]
fn limits_that_contradict_each_other_are_refused() {
    let short = ["--owed-grace", "20000", "--limit", "hold_max_ms=20000"];
    assert!(matches!(options(&short), Err(ServeError::Limits(_))));
    let both = ["--owed-grace", "20000", "--limit", "hold_max_ms=20001"];
    assert_eq!(options(&both).unwrap().settings.limits.owed_grace_ms, Some(20_000));
    assert_eq!(options(&["--owed-grace", "never"]).unwrap().settings.limits.owed_grace_ms, None);
}

#[test]
fn without_a_command_the_announcement_names_the_built_in_tool_server() {
    let options = options(&[]).unwrap();
    let UpstreamChoice::Command(command) = &options.servers[0].upstream else {
        panic!("no command")
    };
    assert_eq!(command.program, std::env::current_exe().unwrap());
    assert_eq!(command.arguments, ["tool-server"]);
    assert_eq!(
        announcement("127.0.0.1:4711".parse().unwrap(), &options.servers[0]),
        "Rejoin listens on http://127.0.0.1:4711/mcp in front of: \
         the built-in tool server (rejoin tool-server)"
    );
}

#[test]
fn neither_the_announcement_nor_the_log_shows_a_secret_of_a_url() {
    let url = "https://me:secret@tools.example:8443/mcp?key=secret";
    let options = options(&["--upstream", url, "--upstream-auth", "command:secret"]).unwrap();
    assert_eq!(
        announcement("127.0.0.1:80".parse().unwrap(), &options.servers[0]),
        "Rejoin listens on http://127.0.0.1:80/mcp in front of: https://tools.example:8443/mcp"
    );
    assert!(!format!("{options:?}").contains("secret"));
    let refusal = told(&build(&options).err().unwrap());
    assert!(refusal.starts_with("--upstream https://tools.example:8443/mcp: "), "{refusal}");
    assert!(refusal.contains("--upstream-auth") && !refusal.contains("secret"), "{refusal}");
}

#[test]
fn the_announcement_stays_one_line_whatever_the_command_contains() {
    let options = options(&["--", "sh", "-c", "a\nb", ""]).unwrap();
    let line = announcement("[::1]:80".parse().unwrap(), &options.servers[0]);
    assert_eq!(line, "Rejoin listens on http://[::1]:80/mcp in front of: sh -c \"a\\nb\" \"\"");
}
