//! URLs: of the upstream, and of redirects.
use http::Uri;
use http::uri::{Authority, PathAndQuery, Scheme};

use super::HttpUpstreamError;

/// Reads the upstream's URL. Returns it with its name: origin and path, the same however the URL
/// is spelled, and without the query, which can be a secret.
pub(super) fn parse(url: &str) -> Result<(Uri, String), HttpUpstreamError> {
    if url.contains('#') {
        return Err(HttpUpstreamError::Fragment);
    }
    let uri: Uri = url.parse().map_err(|_| HttpUpstreamError::BadUrl)?;
    let is_web = matches!(uri.scheme_str(), Some("http" | "https"));
    let authority = uri.authority().filter(|authority| is_web && !authority.host().is_empty());
    let authority = authority.ok_or(HttpUpstreamError::BadUrl)?;
    if authority.as_str().contains('@') {
        return Err(HttpUpstreamError::UserInUrl);
    }
    let host = authority.host().to_ascii_lowercase();
    let scheme = if uri.scheme() == Some(&Scheme::HTTPS) { "https" } else { "http" };
    let port = authority.port_u16().filter(|port| *port != default_port(scheme));
    let port = port.map(|port| format!(":{port}")).unwrap_or_default();
    let name = format!("{scheme}://{host}{port}{}", uri.path());
    Ok((uri, name))
}

fn default_port(scheme: &str) -> u16 {
    if scheme == "https" { 443 } else { 80 }
}

/// Where a redirect leads.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Redirect {
    /// To the same scheme, host and port.
    Same(Uri),
    /// To another; its scheme and authority.
    Other(String),
    /// Nowhere that can be read.
    Unreadable,
}

/// Resolves the `Location` of an answer to a request for `from` (RFC 9110 section 10.2.2).
pub(super) fn redirect(from: &Uri, location: &str) -> Redirect {
    let location = location.split('#').next().unwrap_or_default();
    let (Some(scheme), Some(authority)) = (from.scheme(), from.authority()) else {
        return Redirect::Unreadable;
    };
    // A scheme stands before everything else (RFC 3986 section 4.1).
    let first = location.split(['/', '?']).next().unwrap_or_default();
    let target = if first.contains(':') {
        location.parse()
    } else if let Some(rest) = location.strip_prefix("//") {
        format!("{scheme}://{rest}").parse()
    } else {
        let path = if location.starts_with('/') {
            location.to_owned()
        } else if location.starts_with('?') {
            format!("{}{location}", from.path())
        } else {
            let directory = from.path().rsplit_once('/').map_or("", |(directory, _)| directory);
            format!("{directory}/{location}")
        };
        return path.parse().map_or(Redirect::Unreadable, |path: PathAndQuery| {
            let uri = Uri::builder().scheme(scheme.clone()).authority(authority.clone());
            uri.path_and_query(path).build().map_or(Redirect::Unreadable, Redirect::Same)
        });
    };
    let Ok(target) = target else { return Redirect::Unreadable };
    let target: Uri = target;
    match (target.scheme(), target.authority()) {
        (Some(to_scheme), Some(to)) if to_scheme == scheme && is_same(scheme, authority, to) => {
            Redirect::Same(target)
        }
        // Without a user name, which could be a secret.
        (Some(to_scheme), Some(to)) => {
            let port = to.port().map(|port| format!(":{port}")).unwrap_or_default();
            Redirect::Other(format!("{to_scheme}://{}{port}", to.host()))
        }
        _ => Redirect::Unreadable,
    }
}

fn is_same(scheme: &Scheme, one: &Authority, other: &Authority) -> bool {
    let default = default_port(scheme.as_str());
    let port = |authority: &Authority| authority.port_u16().unwrap_or(default);
    !other.as_str().contains('@')
        && one.host().eq_ignore_ascii_case(other.host())
        && port(one) == port(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_stays_on_its_origin_or_names_the_other() {
        let from: Uri = "https://Host.example/a/mcp?x=1".parse().unwrap();
        let same = |location| match redirect(&from, location) {
            Redirect::Same(uri) => uri.to_string(),
            other => panic!("{location} gave {other:?}"),
        };
        assert_eq!(same("/a/mcp/"), "https://Host.example/a/mcp/");
        assert_eq!(same("mcp/"), "https://Host.example/a/mcp/");
        assert_eq!(same("?y=2"), "https://Host.example/a/mcp?y=2");
        assert_eq!(same("https://host.example:443/x#frag"), "https://host.example:443/x");
        assert_eq!(same("//HOST.example/x"), "https://HOST.example/x");
        for (location, target) in [
            ("/in?next=http://x/", "https://Host.example/in?next=http://x/"),
            ("in?next=http://x/", "https://Host.example/a/in?next=http://x/"),
            ("?next=http://x/", "https://Host.example/a/mcp?next=http://x/"),
            ("in/http://x/", "https://Host.example/a/in/http://x/"),
        ] {
            assert_eq!(same(location), target, "{location}");
        }
        for (location, target) in [
            ("http://host.example/a/mcp", "http://host.example"),
            ("https://host.example:8443/", "https://host.example:8443"),
            ("https://user:secret@evil.example/", "https://evil.example"),
            ("//evil.example/a", "https://evil.example"),
        ] {
            assert_eq!(redirect(&from, location), Redirect::Other(target.into()), "{location}");
        }
        assert_eq!(redirect(&from, "https://"), Redirect::Unreadable);
        assert_eq!(redirect(&from, "/a b"), Redirect::Unreadable);
    }

    #[test]
    fn the_name_tells_paths_apart_and_not_spellings_and_hides_the_query() {
        let name = |url| parse(url).unwrap().1;
        assert_eq!(name("http://127.0.0.1:3001/mcp?key=secret"), "http://127.0.0.1:3001/mcp");
        assert_ne!(name("http://host/one"), name("http://host/two"));
        assert_eq!(name("https://Host:443/mcp"), "https://host/mcp");
        assert_eq!(name("HTTP://host:443"), "http://host:443/");
    }

    #[test]
    fn a_url_needs_scheme_and_host_and_no_user() {
        assert!(parse("http://127.0.0.1:3001/mcp").is_ok());
        for bad in ["/mcp", "localhost:3001", "ftp://x/", "http:///mcp", "", "stdio"] {
            assert!(matches!(parse(bad), Err(HttpUpstreamError::BadUrl)), "{bad}");
        }
        let error = parse("https://me:secret@host/").unwrap_err();
        assert!(matches!(error, HttpUpstreamError::UserInUrl));
        assert!(error.to_string().contains("--upstream-auth"), "{error}");
        assert!(matches!(parse("https://host/mcp#x"), Err(HttpUpstreamError::Fragment)));
    }
}
