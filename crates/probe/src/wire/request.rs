//! The bytes of an HTTP/1.1 request.

/// A request, built field by field and sent as it is.
#[derive(Clone, Debug)]
pub struct Request {
    pub(crate) method: &'static str,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Request {
    /// A request without header fields.
    pub fn new(method: &'static str) -> Self {
        Self { method, headers: Vec::new(), body: String::new() }
    }

    /// With one more header field; a field of that name that is already there is replaced.
    #[must_use]
    pub fn header(self, name: &str, value: &str) -> Self {
        let mut request = self.without(name);
        request.headers.push((name.to_owned(), value.to_owned()));
        request
    }

    /// Without a header field.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(field, _)| !field.eq_ignore_ascii_case(name));
        self
    }

    /// With a body.
    #[must_use]
    pub fn body(mut self, body: String) -> Self {
        self.body = body;
        self
    }

    /// The request as bytes, for this path.
    pub fn to_bytes(&self, path: &str) -> Vec<u8> {
        let mut text = format!("{} {path} HTTP/1.1\r\n", self.method);
        for (name, value) in &self.headers {
            // A server's session id or event id must not become a field, or a request, of its own.
            let value = value.replace(['\r', '\n', '\0'], " ");
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if self.method == "POST" {
            text.push_str(&format!("Content-Length: {}\r\n", self.body.len()));
        }
        text.push_str("\r\n");
        text.push_str(&self.body);
        text.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_post_has_a_length_and_fields_are_replaced() {
        let request = Request::new("POST").header("Host", "a").header("host", "b");
        let text = String::from_utf8(request.body("{}".to_owned()).to_bytes("/mcp")).unwrap();
        assert_eq!(text, "POST /mcp HTTP/1.1\r\nhost: b\r\nContent-Length: 2\r\n\r\n{}");
        let text = Request::new("GET").header("a", "b\r\n\r\nGET /").to_bytes("/");
        assert_eq!(text, b"GET / HTTP/1.1\r\na: b    GET /\r\n\r\n");
        assert_eq!(Request::new("GET").to_bytes("/"), b"GET / HTTP/1.1\r\n\r\n");
    }
}
