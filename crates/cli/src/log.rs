//! What `rejoin serve` logs, and where.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use crate::nearest::nearest;

/// Words that are levels.
const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];
/// The parts of Rejoin that log.
const PARTS: [&str; 4] = ["rejoin", "rejoin_core", "rejoin_gateway", "rejoin_store"];

/// Logs go to standard error; standard output belongs to the one line with the URL.
///
/// # Errors
/// If the filter is none, or would log nothing for a slip in it: what to do, after the setting.
pub(crate) fn start(filter: &str, setting: &str) -> Result<(), String> {
    let filter = read(filter).map_err(|problem| format!("{setting}: {problem}"))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // A terminal that is gone takes no log, and no complaint about that either: it would panic.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
        .init();
    Ok(())
}

/// Reads a filter.
///
/// # Errors
/// If it is none, or would log nothing for a slip in it: what is wrong, and what to do.
pub(crate) fn read(filter: &str) -> Result<EnvFilter, String> {
    check(filter)?;
    // Values of fields are what they are: as a regular expression one of them takes minutes to
    // read, and gigabytes.
    EnvFilter::builder().with_regex(false).parse(filter).map_err(|error| {
        format!("{filter:?} is not a log filter ({error}); set it to `info`, for example")
    })
}

/// A filter takes any word for a target, and so a mistyped one silences everything.
fn check(filter: &str) -> Result<(), String> {
    // Commas inside of spans and fields part no directives.
    if filter.contains(['[', '{']) {
        return Ok(());
    }
    for directive in filter.split(',').map(str::trim).filter(|directive| !directive.is_empty()) {
        let (target, level) = match directive.split_once('=') {
            Some((target, level)) => (target, Some(level)),
            None => (directive, None),
        };
        let part = target.split("::").next().unwrap_or(target);
        let is_level = level.is_none()
            && (LEVELS.iter().any(|level| level.eq_ignore_ascii_case(target))
                || matches!(target, "0" | "1" | "2" | "3" | "4" | "5"));
        if is_level || PARTS.contains(&part) {
            continue;
        }
        let known = if level.is_none() { [&LEVELS[..], &PARTS].concat() } else { PARTS.to_vec() };
        match (nearest(part, &known), level) {
            (Some(meant), _) => {
                return Err(format!(
                    "{part:?} is no level and no part of Rejoin: {meant:?} may be meant"
                ));
            }
            (None, None) => {
                return Err(format!(
                    "{part:?} is no level and no part of Rejoin: the levels are {}; for the log \
                     of another part write it as TARGET=LEVEL",
                    LEVELS.join(", ")
                ));
            }
            (None, Some(_)) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_level_or_part_is_refused_and_any_other_target_needs_a_level() {
        for filter in [
            "info",
            "WARN",
            "3",
            "",
            "info,rejoin_gateway=debug",
            "rejoin::serve",
            "rejoin_core",
            "hyper=debug, warn",
            "rejoin[span{field=lalala,x}]=debug",
        ] {
            assert_eq!(check(filter), Ok(()), "{filter}");
        }
        for (filter, expected) in [
            ("inof", "\"inof\" is no level and no part of Rejoin: \"info\" may be meant"),
            ("warn,debgu", "\"debgu\" is no level and no part of Rejoin: \"debug\" may be meant"),
            ("lalala", "\"lalala\" is no level and no part of Rejoin: the levels are error, warn"),
            ("rejoin_gatway=debug", "\"rejoin_gatway\" is no level and no part of Rejoin: \"rejoi"),
            ("hyper", "\"hyper\" is no level"),
        ] {
            let refusal = check(filter).unwrap_err();
            assert!(refusal.starts_with(expected), "{refusal}");
        }
    }
}
