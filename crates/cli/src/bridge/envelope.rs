//! What a message is that is too long to be kept: its outermost members, read as they pass.

use rejoin_core::message::IdKey;

/// Longest member name or value that is kept; an id beyond it is none.
const TOKEN_BYTES_MAX: usize = 4_096;

/// The outermost members of one JSON-RPC message, of which some ([`Envelope::read`]) is read at a
/// time. An `id` may stand behind everything else: some SDKs write it last.
#[derive(Debug, Default)]
pub(super) struct Envelope {
    depth: usize,
    is_batch: bool,
    is_in_string: bool,
    is_escaped: bool,
    /// The outermost string, number or word that is being read.
    token: Vec<u8>,
    /// The name of the member that is being read.
    name: Vec<u8>,
    id: Option<Vec<u8>>,
    has_method: bool,
    has_outcome: bool,
}

/// What a message is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// A request, or what cannot be told; with its id as JSON text, if that was readable.
    Request(Option<IdKey>),
    /// A notification.
    Notification,
    /// An answer to the request with this id.
    Answer(IdKey),
}

impl Envelope {
    /// Reads on.
    pub(super) fn read(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if self.is_in_string {
                self.keep(byte);
                let is_end = byte == b'"' && !self.is_escaped;
                self.is_escaped = byte == b'\\' && !self.is_escaped;
                self.is_in_string = !is_end;
            } else {
                self.read_outside_strings(byte);
            }
        }
    }

    fn read_outside_strings(&mut self, byte: u8) {
        match byte {
            b'{' | b'[' => {
                self.is_batch |= self.depth == 0 && byte == b'[';
                self.depth += 1;
            }
            b'}' | b']' => {
                self.end_member();
                self.depth = self.depth.saturating_sub(1);
            }
            b',' => self.end_member(),
            b':' if self.depth == 1 => self.name = std::mem::take(&mut self.token),
            b' ' | b'\t' | b'\r' | b'\n' => {}
            _ => {
                self.is_in_string = byte == b'"';
                self.keep(byte);
            }
        }
    }

    fn keep(&mut self, byte: u8) {
        if self.depth == 1 && self.token.len() <= TOKEN_BYTES_MAX {
            self.token.push(byte);
        }
    }

    fn end_member(&mut self) {
        if self.depth != 1 {
            return;
        }
        let value = std::mem::take(&mut self.token);
        match std::mem::take(&mut self.name).as_slice() {
            b"\"id\"" => self.id = Some(value),
            b"\"method\"" => self.has_method = true,
            b"\"result\"" | b"\"error\"" => self.has_outcome = true,
            _ => {}
        }
    }

    /// What has been read.
    pub(super) fn shape(&self) -> Shape {
        if self.is_batch {
            return Shape::Request(None);
        }
        let id = self.id.as_deref().filter(|id| id.len() <= TOKEN_BYTES_MAX);
        match id.and_then(|id| IdKey::from_json(id).ok()) {
            Some(id) if self.has_outcome && !self.has_method => Shape::Answer(id),
            None if self.has_method && self.id.is_none() => Shape::Notification,
            id => Shape::Request(id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(text: &str) -> Shape {
        let mut envelope = Envelope::default();
        for part in text.as_bytes().chunks(3) {
            envelope.read(part);
        }
        envelope.shape()
    }

    #[test]
    fn an_id_is_found_wherever_it_stands() {
        let request = |id: &str| Shape::Request(Some(IdKey::from_json(id.as_bytes()).unwrap()));
        assert_eq!(shape(r#"{"id":7,"method":"m","params":{"id":1}}"#), request("7"));
        let last = r#"{"method":"m","params":{"id":1,"a":"\\\"id\":2,}"},"x":[{"id":3}], "id" : "a,\"b" }"#;
        assert_eq!(shape(last), request(r#""a,\"b""#));
        assert_eq!(shape("{\"method\":\"m\",\"id\":-3\r\n}\r\n"), request("-3"));
    }

    #[test]
    fn what_has_no_id_that_can_be_read_is_a_request_without_one() {
        for text in ["", "x", r#"{"id":{"a":1},"method":"m"}"#, r#"[{"id":1,"method":"m"}]"#] {
            assert_eq!(shape(text), Shape::Request(None), "{text}");
        }
        let long = format!(r#"{{"id":{},"method":"m"}}"#, "1".repeat(TOKEN_BYTES_MAX + 9));
        assert_eq!(shape(&long), Shape::Request(None));
    }

    #[test]
    fn notifications_and_answers_are_told_from_requests() {
        assert_eq!(shape(r#"{"method":"m","params":{"id":1}}"#), Shape::Notification);
        let answer = Shape::Answer(IdKey::from(4));
        assert_eq!(shape(r#"{"result":{"method":"m"},"id":4}"#), answer);
        assert_eq!(shape(r#"{"id":4,"error":{}}"#), answer);
    }
}
