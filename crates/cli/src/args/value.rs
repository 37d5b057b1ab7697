//! Values on the command line that are no addresses.

use std::fmt;
use std::str::FromStr;

use hyper::header::HeaderName;
use rejoin_core::limits::Limits;
use rejoin_gateway::upstream::http::UpstreamAuth;

use crate::limit::VALUE_MAX;

/// Time an owed stream holds other calls back; `None` is `never`: it holds them without end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwedGrace(pub(crate) Option<u64>);

impl FromStr for OwedGrace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "never" {
            return Ok(Self(None));
        }
        match text.parse() {
            Ok(milliseconds) if milliseconds <= VALUE_MAX => Ok(Self(Some(milliseconds))),
            _ => Err("expected a whole number of milliseconds, or `never`".to_owned()),
        }
    }
}

impl fmt::Display for OwedGrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(milliseconds) => milliseconds.fmt(f),
            None => f.write_str("never"),
        }
    }
}

/// The help of `--owed-grace`.
pub(super) fn owed_grace_help() -> String {
    let default = OwedGrace(Limits::default().owed_grace_ms);
    format!(
        "How long a lost answer holds other calls back, in milliseconds; `never`: until it is \
         fetched, however long [default: {default}]"
    )
}

/// Whose `Authorization` an upstream over HTTP sees (design section 8).
#[derive(Clone)]
pub(crate) struct AuthSource(pub(crate) UpstreamAuth);

impl fmt::Debug for AuthSource {
    /// Without the command, which may hold a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AuthSource")
    }
}

impl FromStr for AuthSource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let auth = match text.split_once(':') {
            None if text == "forward" => UpstreamAuth::Forward,
            None if text == "none" => UpstreamAuth::None,
            Some(("env", name)) if is_variable(name) => UpstreamAuth::Variable(name.to_owned()),
            // Without what stands there: it may be the credential itself.
            Some(("env", name)) if !name.is_empty() => {
                return Err(
                    "env: takes the name of a variable, such as env:TOKEN, never what the \
                            variable holds"
                        .to_owned(),
                );
            }
            Some(("file", path)) if !path.is_empty() => UpstreamAuth::File(path.into()),
            Some(("command", line)) if !line.is_empty() => UpstreamAuth::Command(line.to_owned()),
            _ => {
                let forms = "`forward`, `none`, `env:VARIABLE`, `file:PATH` or `command:CMD`";
                return Err(format!("expected {forms}; a credential itself is never an argument"));
            }
        };
        Ok(Self(auth))
    }
}

/// True for the name of a variable of the environment (POSIX.1, "Environment Variables").
pub(crate) fn is_variable(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Reads the name of a header.
///
/// # Errors
/// A text for the operator, if it is none.
pub(crate) fn header(text: &str) -> Result<HeaderName, String> {
    let form = "expected the name of a header alone, such as X-Tenant";
    text.parse().map_err(|_| form.to_owned())
}

/// Reads the name of a tool. A blank one would never be that of a call.
///
/// # Errors
/// A text for the operator, if it is none.
pub(crate) fn tool(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("expected the name of a tool, as tools/list of the server has it".to_owned());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn owed_grace_takes_milliseconds_or_never() {
        assert_eq!("9000".parse(), Ok(OwedGrace(Some(9000))));
        assert_eq!("never".parse(), Ok(OwedGrace(None)));
        for text in ["18446744073709551615", "9s", ""] {
            let refusal = text.parse::<OwedGrace>().unwrap_err();
            assert!(refusal.contains("milliseconds, or `never`"), "{refusal}");
        }
    }

    #[test]
    fn the_source_of_a_credential_is_named_and_a_credential_itself_is_refused() {
        let parse = |text: &str| text.parse::<AuthSource>().map(|source| source.0);
        assert!(matches!(parse("none"), Ok(UpstreamAuth::None)));
        assert!(matches!(parse("env:TOKEN"), Ok(UpstreamAuth::Variable(name)) if name == "TOKEN"));
        let Ok(UpstreamAuth::File(path)) = parse("file:a:b") else { panic!("no file") };
        assert_eq!(path, PathBuf::from("a:b"));
        let Ok(UpstreamAuth::Command(line)) = parse("command:pass x") else { panic!("none") };
        assert_eq!(line, "pass x");
        for text in ["", "Bearer secret", "env:", "file:", "command:", "Forward"] {
            assert!(parse(text).is_err(), "{text}");
        }
        for text in ["env:Bearer zqsecret7", "env:zq.secret7", "env:${TOKEN}", "env:7zqsecret"] {
            let refusal = parse(text).err().unwrap();
            assert!(refusal.contains("such as env:TOKEN"), "{text}: {refusal}");
            assert!(!refusal.contains("secret"), "{refusal}");
        }
    }
}
