//! Which `Host` and `Origin` are let in: loopback names, and what the operator added. A page in a
//! browser can reach a loopback port, but it cannot choose these two (spec SEC-1 to SEC-3).

use std::net::IpAddr;

use http::HeaderMap;
use http::header::{HOST, ORIGIN};
use http::uri::{Authority, Uri};

use super::HeaderError;

/// Longest `Host` or `Origin` that is repeated to whoever sent it, in bytes: a name has up to 253.
const SHOWN_BYTES_MAX: usize = 270;

/// Why a value can be no `Host`, or no `Origin`. No message holds the value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AllowError {
    /// No host.
    #[error("expected a host, such as mcp.example or mcp.example:8443")]
    Host,
    /// A URL, of which nothing is a host.
    #[error("{}, not a URL", Self::Host)]
    Url,
    /// A URL, of which a part is meant.
    #[error("{}: write {meant}", Self::Url)]
    HostInUrl {
        /// The host in it.
        meant: String,
    },
    /// No origin.
    #[error("expected an origin, such as https://app.example or http://app.example:3000")]
    Origin,
    /// An origin with something behind it that no browser sends (RFC 6454 section 6.2).
    #[error("{}, without a path or the default port: write {meant}", Self::Origin)]
    LongOrigin {
        /// The origin in it.
        meant: String,
    },
}

/// Checks a value of `Host` that is to be let in.
///
/// # Errors
/// [`AllowError`], if it can be none.
pub fn check_host(text: &str) -> Result<String, AllowError> {
    if let Some((_, rest)) = text.split_once("://") {
        let meant = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let meant = check_host(meant).map_err(|_| AllowError::Url)?;
        return Err(AllowError::HostInUrl { meant });
    }
    let authority = text.parse::<Authority>().map_err(|_| AllowError::Host)?;
    let is_place = !authority.host().is_empty() && has_port_or_none(&authority);
    if !is_place || text.contains(['@', '*']) {
        return Err(AllowError::Host);
    }
    Ok(text.to_owned())
}

/// Checks a value of `Origin` that is to be let in; a slash at its end is taken away.
///
/// # Errors
/// [`AllowError`], if it can be none.
pub fn check_origin(text: &str) -> Result<String, AllowError> {
    let origin = text.strip_suffix('/').unwrap_or(text);
    if origin == "null" {
        return Ok(origin.to_owned());
    }
    let (scheme, rest) = origin.split_once("://").ok_or(AllowError::Origin)?;
    let place = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let place = check_host(place).map_err(|_| AllowError::Origin)?;
    if !is_scheme(scheme) {
        return Err(AllowError::Origin);
    }
    // A browser never names a default port: such a value lets nobody in.
    let default_port = match &scheme.to_ascii_lowercase()[..] {
        "http" => ":80",
        "https" => ":443",
        _ => "",
    };
    let meant = place.strip_suffix(default_port).unwrap_or(&place);
    if meant.len() < rest.len() {
        return Err(AllowError::LongOrigin { meant: format!("{scheme}://{meant}") });
    }
    Ok(origin.to_owned())
}

/// True for the scheme of a URL (RFC 3986 section 3.1).
fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
}

/// Who chooses what is let in, and by what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    /// Whoever starts `rejoin serve`.
    Command,
    /// The application that holds the layer, in its code.
    Application,
}

impl Operator {
    fn refuse_host(self, host: &str) -> HeaderError {
        let (named, value) = shown(host, "NAME");
        let remedy = match self {
            Self::Command => {
                format!("start rejoin with --allow-host {value} (allow_hosts in a file)")
            }
            Self::Application => "add it to LayerConfig::allowed_hosts".to_owned(),
        };
        HeaderError::ForeignHost { named, remedy }
    }

    fn refuse_origin(self, origin: &str) -> HeaderError {
        let (named, value) = shown(origin, "ORIGIN");
        let remedy = match self {
            Self::Command => {
                format!("start rejoin with --allow-origin {value} (allow_origins in a file)")
            }
            Self::Application => "add it to LayerConfig::allowed_origins".to_owned(),
        };
        HeaderError::ForeignOrigin { named, remedy }
    }
}

/// A value for a sentence and for a command line, where it can do no more than name: a stranger
/// wrote it, and somebody may paste it into a shell.
fn shown<'a>(value: &'a str, placeholder: &'a str) -> (String, &'a str) {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:/[]+".contains(&byte);
    if value.len() <= SHOWN_BYTES_MAX && !value.is_empty() && value.bytes().all(is_plain) {
        (format!("`{value}`"), value)
    } else {
        ("what the request names".to_owned(), placeholder)
    }
}

/// The allow-lists of a gateway.
#[derive(Clone, Debug)]
pub(crate) struct Allowed {
    hosts: Vec<String>,
    origins: Vec<String>,
    operator: Operator,
}

impl Allowed {
    /// Loopback names, and these.
    pub(crate) fn new(hosts: &[String], origins: &[String], operator: Operator) -> Self {
        let lower = |values: &[String]| {
            values.iter().map(|value| value.trim_end_matches('/').to_ascii_lowercase()).collect()
        };
        Self { hosts: lower(hosts), origins: lower(origins), operator }
    }

    /// Checks who the request thinks it talks to, and which page sent it.
    pub(crate) fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), HeaderError> {
        self.check_host(uri, headers)?;
        self.check_origin(headers)
    }

    fn check_host(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), HeaderError> {
        let mut values = headers.get_all(HOST).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return Err(HeaderError::BadHost);
        };
        let host: Authority = value.as_bytes().try_into().map_err(|_| HeaderError::BadHost)?;
        // A request target with a host of its own overrides the header (RFC 9112 section 3.2.2).
        let mut named = uri.authority().into_iter().chain([&host]);
        // Nor has either a user in it (RFC 9110 section 4.2.4).
        let is_place = |one: &Authority| !one.as_str().contains('@') && has_port_or_none(one);
        if !named.clone().all(is_place) {
            return Err(HeaderError::BadHost);
        }
        match named.find(|authority| !self.allows_host(authority)) {
            None => Ok(()),
            Some(foreign) => Err(self.operator.refuse_host(foreign.as_str())),
        }
    }

    fn allows_host(&self, authority: &Authority) -> bool {
        let (whole, host) = (authority.as_str(), authority.host());
        is_loopback(host)
            || self.hosts.iter().any(|allowed| {
                allowed.eq_ignore_ascii_case(whole) || allowed.eq_ignore_ascii_case(host)
            })
    }

    fn check_origin(&self, headers: &HeaderMap) -> Result<(), HeaderError> {
        // What is not visible ASCII is no origin, as the empty text is none.
        let mut origins = headers.get_all(ORIGIN).iter();
        let mut origins = origins.by_ref().map(|value| value.to_str().unwrap_or_default());
        match origins.find(|origin| !self.allows_origin(origin)) {
            None => Ok(()),
            Some(foreign) => Err(self.operator.refuse_origin(foreign)),
        }
    }

    fn allows_origin(&self, origin: &str) -> bool {
        let origin = origin.trim_end_matches('/');
        if self.origins.iter().any(|allowed| allowed.eq_ignore_ascii_case(origin)) {
            return true;
        }
        let Ok(uri) = origin.parse::<Uri>() else { return false };
        let web = matches!(uri.scheme_str(), Some("http" | "https"));
        let place = uri.authority();
        web && place.is_some_and(has_port_or_none) && uri.host().is_some_and(is_loopback)
    }
}

/// False if what follows the host is no port (RFC 3986 section 3.2.3), which `Authority` may let
/// pass.
fn has_port_or_none(authority: &Authority) -> bool {
    let (_, place) = authority.as_str().rsplit_once('@').unwrap_or(("", authority.as_str()));
    let rest = place.strip_prefix(authority.host()).unwrap_or(place);
    let port = rest.strip_prefix(':');
    rest.is_empty() || port.is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// True for `localhost` and every loopback address: no name server can make them another's.
fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Result<String, String> {
        check_host(text).map_err(|error| error.to_string())
    }

    fn origin(text: &str) -> Result<String, String> {
        check_origin(text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_host_is_no_url_and_the_refusal_says_what_was_meant() {
        for text in ["mcp.example", "mcp.example:8443", "10.0.0.7", "[::1]:80"] {
            assert_eq!(host(text).unwrap(), text);
        }
        let refusal = host("http://x/").unwrap_err();
        assert!(refusal.ends_with("not a URL: write x"), "{refusal}");
        assert!(host("https://x:8443/mcp?a").unwrap_err().ends_with("write x:8443"));
        for text in ["", "x/", "a b", "me@x", "http://", "*"] {
            assert!(host(text).unwrap_err().contains("expected a host"), "{text}");
        }
    }

    #[test]
    fn an_origin_has_a_scheme_and_no_path() {
        for text in ["https://app.example", "http://x:3000", "vscode-webview://abc", "null"] {
            assert_eq!(origin(text).unwrap(), text);
        }
        assert_eq!(origin("https://app.example/").unwrap(), "https://app.example");
        let refusal = origin("https://app.example/tools").unwrap_err();
        assert!(refusal.ends_with("write https://app.example"), "{refusal}");
        for text in ["https://app.example:443", "https://app.example:443/"] {
            assert!(origin(text).unwrap_err().ends_with("write https://app.example"), "{text}");
        }
        assert_eq!(origin("http://x:443").unwrap(), "http://x:443");
        let none = ["", "x", "app.example", "app.example:3000", "://x", "https://", "https://me@x"];
        for text in [&none[..], &["1s://x", "a b://x", "https:/x", "*", "https://*"]].concat() {
            assert!(origin(text).unwrap_err().contains("expected an origin"), "{text}");
        }
    }
}
