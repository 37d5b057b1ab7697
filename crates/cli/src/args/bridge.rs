//! Arguments of `rejoin bridge`.

use std::path::PathBuf;
use std::str::FromStr;

use hyper::header::{HeaderName, HeaderValue};
use rejoin_client::Credential;
use rejoin_gateway::upstream::http::UpstreamAuth;

use super::value::AuthSource;

/// What `rejoin bridge --help` says below its options.
const NOTES: &str = "\
Messages are lines of standard input and output, as hosts that start commands speak them. What \
happens to the connection is told on standard error. The bridge ends when its standard input does, \
when the process that started it ends, and on SIGTERM, SIGINT and SIGHUP (unless that was ignored \
at the start, as by nohup); it then ends its session. A second SIGTERM or SIGINT ends it at once.

HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY are heeded.";

/// Arguments of `rejoin bridge`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = NOTES)]
pub(crate) struct BridgeArgs {
    /// URL of the MCP server, one over Streamable HTTP
    pub(crate) url: String,
    /// Where the value of Authorization comes from; one word is taken for a bearer token
    ///
    /// env:VARIABLE: the value of this environment variable.
    /// file:PATH: the content of this file.
    /// command:CMD: what this command line prints, run by `sh -c`.
    /// File and command are read at the first use, and again when the server answers 401.
    #[arg(verbatim_doc_comment, long, value_name = "env:VARIABLE|file:PATH|command:CMD")]
    pub(crate) auth: Option<BridgeAuth>,
    /// Send this header with every request; repeatable
    #[arg(long = "header", value_name = "NAME: VALUE")]
    pub(crate) headers: Vec<Header>,
    /// PEM file of certificate authorities to trust beside those of the system
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Connect straight, whatever the environment says of proxies
    #[arg(long)]
    pub(crate) no_proxy: bool,
    /// Never send a call again because the server's annotations say that it may run twice
    #[arg(long)]
    pub(crate) distrust_annotations: bool,
    /// Say nothing on standard error while it runs
    #[arg(long)]
    pub(crate) quiet: bool,
}

/// Where a credential comes from.
#[derive(Clone, Debug)]
pub(crate) struct BridgeAuth(pub(crate) Credential);

impl FromStr for BridgeAuth {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let forms = "expected `env:VARIABLE`, `file:PATH` or `command:CMD`; a credential itself is \
                     never an argument";
        match text.parse::<AuthSource>().map(|source| source.0) {
            Ok(UpstreamAuth::Variable(name)) => Ok(Self(Credential::Variable(name))),
            Ok(UpstreamAuth::File(path)) => Ok(Self(Credential::File(path))),
            Ok(UpstreamAuth::Command(line)) => Ok(Self(Credential::Command(line))),
            Err(what) if text.starts_with("env:") => Err(what),
            _ => Err(forms.to_owned()),
        }
    }
}

/// A header field with its value.
#[derive(Clone)]
pub(crate) struct Header(pub(crate) HeaderName, pub(crate) HeaderValue);

impl std::fmt::Debug for Header {
    /// Without the value, which can be secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Header {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let form = || "expected a header as `NAME: VALUE`, such as `X-Team: blue`".to_owned();
        let (name, value) = text.split_once(':').ok_or_else(form)?;
        let name: HeaderName = name.trim().parse().map_err(|_| form())?;
        if name == hyper::header::AUTHORIZATION {
            return Err("give Authorization with --auth, which never shows it".to_owned());
        }
        if rejoin_client::is_reserved(&name) {
            return Err(format!("{name} is for the client itself to set"));
        }
        let value = HeaderValue::from_str(value.trim()).map_err(|_| form())?;
        Ok(Self(name, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_is_named_and_never_given() {
        let parse = |text: &str| text.parse::<BridgeAuth>().map(|auth| auth.0);
        assert_eq!(parse("env:TOKEN"), Ok(Credential::Variable("TOKEN".to_owned())));
        assert_eq!(parse("file:/a:b"), Ok(Credential::File("/a:b".into())));
        assert_eq!(parse("command:pass x"), Ok(Credential::Command("pass x".to_owned())));
        for text in ["forward", "none", "Bearer zqsecret", "", "env:Bearer zqsecret"] {
            let refusal = parse(text).unwrap_err();
            assert!(!refusal.contains("zqsecret"), "{refusal}");
        }
    }

    #[test]
    fn a_header_has_a_name_and_a_value_and_is_none_of_the_clients_own() {
        let Header(name, value) = "X-Team:  blue ".parse().unwrap();
        assert_eq!((name.as_str(), value.as_bytes()), ("x-team", b"blue".as_slice()));
        for text in ["", "X-Team", ": blue", "Mcp-Session-Id: 1", "Authorization: x", "Host: x"] {
            assert!(text.parse::<Header>().is_err(), "{text}");
        }
    }
}
