//! What a request of HTTP/2 says in another way than one of HTTP/1.1.

use http::header::{COOKIE, HOST};
use http::{HeaderValue, Request, Version};

/// Puts a request of HTTP/2 into the form of HTTP/1.1, as an intermediary does (RFC 9113 sections
/// 8.2.3 and 8.3.1): what follows knows one form, and upstream there is only that one.
pub(crate) fn as_of_http1<B>(request: &mut Request<B>) {
    if request.version() != Version::HTTP_2 {
        return;
    }
    name_host(request);
    join_cookies(request);
}

/// The host stands in the request target.
fn name_host<B>(request: &mut Request<B>) {
    if !request.headers().contains_key(HOST)
        && let Some(authority) = request.uri().authority()
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        request.headers_mut().insert(HOST, host);
    }
}

/// Cookies may come in crumbs.
fn join_cookies<B>(request: &mut Request<B>) {
    let crumbs: Vec<&[u8]> =
        request.headers().get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if crumbs.len() > 1
        && let Ok(whole) = HeaderValue::from_bytes(&crumbs.join(&b"; "[..]))
    {
        request.headers_mut().insert(COOKIE, whole);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn came(version: Version) -> Request<()> {
        let request = Request::get("http://tools.example:80/mcp").version(version);
        request.header(COOKIE, "a=1").header(COOKIE, "b=2; c=3").body(()).unwrap()
    }

    #[test]
    fn a_request_of_http_2_names_its_host_and_has_its_cookies_in_one_line() {
        let mut request = came(Version::HTTP_2);
        as_of_http1(&mut request);
        assert_eq!(request.headers()[HOST], "tools.example:80");
        let cookies: Vec<_> = request.headers().get_all(COOKIE).iter().collect();
        assert_eq!(cookies, ["a=1; b=2; c=3"]);
    }

    #[test]
    fn a_host_that_is_named_stays_and_so_does_every_request_of_http_1() {
        let mut named = came(Version::HTTP_2);
        named.headers_mut().insert(HOST, HeaderValue::from_static("other.example"));
        as_of_http1(&mut named);
        assert_eq!(named.headers()[HOST], "other.example");
        let mut old = came(Version::HTTP_11);
        as_of_http1(&mut old);
        assert!(!old.headers().contains_key(HOST));
        assert_eq!(old.headers().get_all(COOKIE).iter().count(), 2);
    }
}
