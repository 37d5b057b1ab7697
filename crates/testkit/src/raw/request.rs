//! The bytes of an HTTP/1.1 request.

/// A request, built field by field and sent as it is.
#[derive(Clone, Debug)]
pub struct Request {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Request {
    /// A request without header fields.
    pub fn new(method: &str, path: &str) -> Self {
        let (method, path) = (method.to_owned(), path.to_owned());
        Self { method, path, headers: Vec::new(), body: Vec::new() }
    }

    /// With one more header field; a field of that name that is already there is replaced.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(field, _)| !field.eq_ignore_ascii_case(name));
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Without a header field.
    pub fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(field, _)| !field.eq_ignore_ascii_case(name));
        self
    }

    /// With a body; `Content-Length` follows from it unless a field says otherwise.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// The request as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        let framed = |name: &str| {
            name.eq_ignore_ascii_case("content-length")
                || name.eq_ignore_ascii_case("transfer-encoding")
        };
        if !self.headers.iter().any(|(name, _)| framed(name)) && self.method != "GET" {
            head.push_str(&format!("Content-Length: {}\r\n", self.body.len()));
        }
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_added_once_and_fields_are_replaced() {
        let request = Request::new("POST", "/mcp").header("Host", "a").header("host", "b");
        let text = String::from_utf8(request.clone().body("{}").to_bytes()).unwrap();
        assert_eq!(text, "POST /mcp HTTP/1.1\r\nhost: b\r\nContent-Length: 2\r\n\r\n{}");
        let text = request.header("Content-Length", "9").without("host").body("{}").to_bytes();
        assert_eq!(text, b"POST /mcp HTTP/1.1\r\nContent-Length: 9\r\n\r\n{}");
    }
}
