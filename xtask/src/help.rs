//! `cargo xtask COMMAND --help`, at once: what the programs behind these commands take, without
//! building them.

use crate::failure::Failure;
use crate::{USAGE, fuzz, mutants};

/// The commands that have help of their own. The arguments of others go to programs that have.
const COMMANDS: [&str; 4] = ["model", "mutants", "sim", "fuzz"];
/// What the model check itself says of wrong arguments.
const MODEL: &str = include_str!("../../model/usage.txt");

/// True if the help of this command is wanted, and is here.
pub(crate) fn is_asked_for(command: &str, args: &[&str]) -> bool {
    let is_asked = args.iter().any(|arg| matches!(*arg, "--help" | "-h"));
    is_asked && COMMANDS.contains(&command)
}

/// Prints the help of a command.
pub(crate) fn print(command: &str) -> Result<(), Failure> {
    print!("{}", of(command)?);
    Ok(())
}

fn of(command: &str) -> Result<String, Failure> {
    match command {
        "fuzz" => fuzz::usage(),
        "model" => Ok(MODEL.to_owned()),
        "mutants" => Ok(mutants::USAGE.to_owned()),
        other => Ok(entry(other)),
    }
}

/// What the list of all commands says of one.
fn entry(command: &str) -> String {
    let is_head = |line: &&str| line.split_whitespace().next() == Some(command);
    let is_of_it = |line: &&str| line.starts_with("          ");
    let mut lines = USAGE.lines().skip_while(|line| !is_head(line));
    let head = lines.next().unwrap_or(command);
    let mut text = format!("usage: cargo xtask {}\n\n", head.trim());
    for line in lines.take_while(is_of_it) {
        text.push_str(&format!("  {}\n", line.trim()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_is_given_wherever_it_is_asked_for_and_builds_nothing() {
        for command in COMMANDS {
            assert!(is_asked_for(command, &["--seeds", "3", "--help"]));
            assert!(is_asked_for(command, &["-h"]));
            assert!(!is_asked_for(command, &["--seeds", "3"]));
            let text = of(command).unwrap_or_default();
            let begin = format!("usage: cargo xtask {command}");
            assert!(text.starts_with(&begin) && text.lines().count() > 3, "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        }
        assert!(!is_asked_for("e2e", &["--help"]), "its program has help");
    }

    #[test]
    fn each_option_and_each_target_is_named() {
        for (command, words) in [
            ("fuzz", &["--seconds", "--runs", "--input", "--keep", "event_id", "sqlite"][..]),
            ("model", &["--only", "--write", "--large", "--states"]),
            ("mutants", &["FILE", "--shard"]),
            ("sim", &["--seeds", "--seed"]),
        ] {
            let text = of(command).unwrap_or_default();
            assert!(words.iter().all(|word| text.contains(word)), "{text}");
        }
    }
}
