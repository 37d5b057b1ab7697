//! Which `Host` and `Origin` are let in: loopback names, and what the operator added. A page in a
//! browser can reach a loopback port, but it cannot choose these two (spec SEC-1 to SEC-3).

use std::net::IpAddr;

use http::HeaderMap;
use http::header::{HOST, ORIGIN};
use http::uri::{Authority, Uri};

use super::HeaderError;

/// The allow-lists of a gateway.
#[derive(Clone, Debug)]
pub(crate) struct Allowed {
    hosts: Vec<String>,
    origins: Vec<String>,
}

impl Allowed {
    /// Loopback names, and these.
    pub(crate) fn new(hosts: &[String], origins: &[String]) -> Self {
        let lower = |values: &[String]| {
            values.iter().map(|value| value.trim_end_matches('/').to_ascii_lowercase()).collect()
        };
        Self { hosts: lower(hosts), origins: lower(origins) }
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
        if host.as_str().contains('@') {
            return Err(HeaderError::BadHost);
        }
        // A request target with a host of its own overrides the header (RFC 9112 section 3.2.2).
        let named = uri.authority().into_iter().chain([&host]);
        if named.into_iter().all(|authority| self.allows_host(authority)) {
            Ok(())
        } else {
            Err(HeaderError::ForeignHost)
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
        let mut origins = headers.get_all(ORIGIN).iter();
        let allowed =
            origins.all(|value| value.to_str().is_ok_and(|origin| self.allows_origin(origin)));
        if allowed { Ok(()) } else { Err(HeaderError::ForeignOrigin) }
    }

    fn allows_origin(&self, origin: &str) -> bool {
        let origin = origin.trim_end_matches('/');
        if self.origins.iter().any(|allowed| allowed.eq_ignore_ascii_case(origin)) {
            return true;
        }
        let Ok(uri) = origin.parse::<Uri>() else { return false };
        let web = matches!(uri.scheme_str(), Some("http" | "https"));
        web && uri.host().is_some_and(is_loopback)
    }
}

/// True for `localhost` and every loopback address: no name server can make them another's.
fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}
