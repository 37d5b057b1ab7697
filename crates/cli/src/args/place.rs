//! Addresses, hosts and origins on the command line.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use hyper::http::uri::Authority;

/// Reads the address of a listener. Of all names only `localhost` has the same address everywhere.
///
/// # Errors
/// A text for the operator, if it is none.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    match text.rsplit_once(':') {
        Some((name, port)) if name.eq_ignore_ascii_case("localhost") => {
            let port = port.parse().map_err(|_| "the port must be 0 to 65535".to_owned())?;
            Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port))
        }
        _ => {
            let forms = "expected an IP address and a port, such as 127.0.0.1:8080 or [::1]:8080";
            Err(format!("{forms}; no name but `localhost` is looked up"))
        }
    }
}

/// Reads a value of `Host` that is let in.
///
/// # Errors
/// A text for the operator, if it can be none.
pub(crate) fn host(text: &str) -> Result<String, String> {
    let form = "expected a host, such as mcp.example or mcp.example:8443";
    if let Some((_, rest)) = text.split_once("://") {
        let meant = rest.split(['/', '?', '#']).next().unwrap_or_default();
        return Err(match host(meant) {
            Ok(meant) => format!("{form}, not a URL: write {meant}"),
            Err(_) => format!("{form}, not a URL"),
        });
    }
    let authority = text.parse::<Authority>().map_err(|_| form.to_owned())?;
    if authority.host().is_empty() || text.contains(['@', '*']) {
        Err(form.to_owned())
    } else {
        Ok(text.to_owned())
    }
}

/// Reads a value of `Origin` that is let in.
///
/// # Errors
/// A text for the operator, if it can be none.
pub(crate) fn origin(text: &str) -> Result<String, String> {
    let form = "expected an origin, such as https://app.example or http://app.example:3000";
    let origin = text.strip_suffix('/').unwrap_or(text);
    if origin == "null" {
        return Ok(origin.to_owned());
    }
    let (scheme, rest) = origin.split_once("://").ok_or_else(|| form.to_owned())?;
    let place = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let place = host(place).map_err(|_| form.to_owned())?;
    if !is_scheme(scheme) {
        return Err(form.to_owned());
    }
    // A browser never names a default port (RFC 6454 section 6.2): such a value lets nobody in.
    let default_port = match &scheme.to_ascii_lowercase()[..] {
        "http" => ":80",
        "https" => ":443",
        _ => "",
    };
    let meant = place.strip_suffix(default_port).unwrap_or(&place);
    if meant.len() < rest.len() {
        Err(format!("{form}, without a path or the default port: write {scheme}://{meant}"))
    } else {
        Ok(origin.to_owned())
    }
}

/// True for the scheme of a URL (RFC 3986 section 3.1).
fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_an_ip_address_or_localhost_with_a_port() {
        assert_eq!(address("127.0.0.1:0").unwrap().to_string(), "127.0.0.1:0");
        assert_eq!(address("[::1]:80").unwrap().to_string(), "[::1]:80");
        assert_eq!(address("localhost:0").unwrap().to_string(), "127.0.0.1:0");
        assert_eq!(address("LocalHost:8080").unwrap().to_string(), "127.0.0.1:8080");
        for text in ["", "8080", "127.0.0.1", "mcp.example:80", "localhost"] {
            let refusal = address(text).unwrap_err();
            assert!(refusal.contains("127.0.0.1:8080"), "{text}: {refusal}");
        }
        assert!(address("localhost:70000").unwrap_err().contains("port"));
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
