//! The server's URL, and where a redirect of it may lead: nowhere but to the same origin, which
//! alone may have the credential.
use http::Uri;
use http::uri::{PathAndQuery, Scheme};

/// Why a URL cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// Not `http://HOST...` or `https://HOST...`.
    #[error(
        "`{url}` is no URL of an MCP server: it must begin with http:// or https:// and a host"
    )]
    NotHttp {
        /// What was given, without what may be secret.
        url: String,
    },
    /// A user name or password in it.
    #[error(
        "a URL with user or password is not used: give the credential apart from it (`rejoin` \
         takes it with --auth)"
    )]
    User,
}

/// Reads a URL.
pub(super) fn parse(url: &str) -> Result<Uri, UrlError> {
    let shown =
        || url.split(['?', '#', '@']).next().unwrap_or_default().chars().take(100).collect();
    let uri: Uri = url.parse().map_err(|_| UrlError::NotHttp { url: shown() })?;
    let is_web = matches!(uri.scheme_str(), Some("http" | "https"));
    match uri.authority() {
        Some(authority) if authority.as_str().contains('@') => Err(UrlError::User),
        Some(authority) if is_web && !authority.host().is_empty() => Ok(uri),
        _ => Err(UrlError::NotHttp { url: shown() }),
    }
}

/// Where a redirect leads (RFC 9110 section 10.2.2). `None`: elsewhere, or nowhere.
pub(super) fn redirect(from: &Uri, location: &str) -> Option<Uri> {
    let location = location.split('#').next().unwrap_or_default();
    // A scheme stands before everything else (RFC 3986 section 4.1).
    let first = location.split(['/', '?']).next().unwrap_or_default();
    let target: Uri = if first.contains(':') {
        location.parse().ok()?
    } else if location.starts_with("//") {
        format!("{}:{location}", from.scheme_str()?).parse().ok()?
    } else {
        let path = match location.as_bytes().first()? {
            b'/' => location.to_owned(),
            b'?' => format!("{}{location}", from.path()),
            _ => {
                let (directory, _) = from.path().rsplit_once('/')?;
                format!("{directory}/{location}")
            }
        };
        let path: PathAndQuery = path.parse().ok()?;
        let origin =
            Uri::builder().scheme(from.scheme_str()?).authority(from.authority()?.as_str());
        origin.path_and_query(path).build().ok()?
    };
    (origin(from)? == origin(&target)?).then_some(target)
}

fn origin(uri: &Uri) -> Option<(&str, String, u16)> {
    let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'))?;
    let default = if uri.scheme() == Some(&Scheme::HTTPS) { 443 } else { 80 };
    let port = authority.port_u16().unwrap_or(default);
    Some((uri.scheme_str()?, authority.host().to_ascii_lowercase(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_never_leaves_its_origin() {
        let from: Uri = "https://host.example/a/mcp?x=1".parse().unwrap();
        let led = |location| redirect(&from, location).map(|uri| uri.to_string());
        for (location, target) in [
            ("/a/mcp/", "https://host.example/a/mcp/"),
            ("mcp/", "https://host.example/a/mcp/"),
            ("?y=2", "https://host.example/a/mcp?y=2"),
            ("/in?next=http://evil.example/", "https://host.example/in?next=http://evil.example/"),
            ("in?next=http://x", "https://host.example/a/in?next=http://x"),
            ("https://HOST.example:443/x#y", "https://HOST.example:443/x"),
        ] {
            assert_eq!(led(location).as_deref(), Some(target), "{location}");
        }
        for location in [
            "http://host.example/a/mcp",
            "https://host.example:8443/",
            "//evil.example/a",
            "https://me:secret@host.example/",
            "/a b",
            "",
        ] {
            assert_eq!(led(location), None, "{location}");
        }
    }

    #[test]
    fn a_url_names_a_host_and_no_user() {
        assert!(parse("http://127.0.0.1:8080/mcp").is_ok());
        for bad in ["", "/mcp", "localhost:80", "ftp://host/", "stdio"] {
            assert!(matches!(parse(bad), Err(UrlError::NotHttp { .. })), "{bad}");
        }
        let secret = parse("https://me:secret@host/").unwrap_err();
        assert!(!secret.to_string().contains("secret"), "{secret}");
    }
}
