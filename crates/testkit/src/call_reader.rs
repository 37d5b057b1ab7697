//! Reads the tool calls in a client's half of an HTTP/1.1 connection: the honest counter for a
//! server that keeps no count of its own. What it counts has reached the server, and no server
//! seen so far runs a call it received any other number of times than once.

use serde_json::Value;

use crate::count::{CountError, CountFile};
use crate::raw::{Body, BodyError, HeadError, RequestHead};

/// Where calls are counted, and under which names.
#[derive(Clone, Debug)]
pub struct Counter {
    file: CountFile,
    names: &'static [(&'static str, &'static str)],
}

/// Why calls could not be counted.
#[derive(Debug, thiserror::Error)]
pub enum CallReaderError {
    /// The head is not HTTP/1.1.
    #[error(transparent)]
    Head(#[from] HeadError),
    /// The body breaks its framing.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// The body is not JSON.
    #[error("a body that is not JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// The count file cannot be written.
    #[error(transparent)]
    Count(#[from] CountError),
}

impl Counter {
    /// Counts in `file`; a tool named first in a pair is counted under the second name, any other
    /// under its own.
    pub fn new(file: CountFile, names: &'static [(&'static str, &'static str)]) -> Self {
        Self { file, names }
    }

    fn count(&self, body: &[u8]) -> Result<(), CallReaderError> {
        let value: Value = serde_json::from_slice(body)?;
        let messages = match &value {
            Value::Array(messages) => messages.as_slice(),
            one => std::slice::from_ref(one),
        };
        for message in messages.iter().filter(|message| message["method"] == "tools/call") {
            let tool = message["params"]["name"].as_str().unwrap_or_default();
            let renamed = self.names.iter().find(|(from, _)| *from == tool);
            let tool = renamed.map_or(tool, |(_, to)| to);
            self.file.add(tool, &message["params"]["arguments"])?;
        }
        Ok(())
    }
}

/// Follows the requests of one connection.
#[derive(Debug)]
pub(crate) struct CallReader {
    counter: Counter,
    input: Vec<u8>,
    open: Option<Open>,
}

/// A request whose body is not complete yet.
#[derive(Debug)]
struct Open {
    is_post: bool,
    framing: Body,
    body: Vec<u8>,
}

impl CallReader {
    pub(crate) fn new(counter: Counter) -> Self {
        Self { counter, input: Vec::new(), open: None }
    }

    /// Takes the next bytes and counts the calls of every request that is complete with them.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), CallReaderError> {
        self.input.extend_from_slice(bytes);
        loop {
            let mut open = match self.open.take() {
                Some(open) => open,
                None => {
                    let Some((head, taken)) = RequestHead::parse(&self.input)? else {
                        return Ok(());
                    };
                    self.input.drain(..taken);
                    let framing = Body::of_request(&head)?;
                    Open { is_post: head.method == "POST", framing, body: Vec::new() }
                }
            };
            open.framing.decode(&mut self.input, &mut open.body)?;
            if open.framing.ended().is_none() {
                self.open = Some(open);
                return Ok(());
            }
            if open.is_post {
                self.counter.count(&open.body)?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn post(body: &str) -> String {
        format!("POST /mcp HTTP/1.1\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    }

    #[test]
    fn calls_are_counted_with_their_last_byte_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let file = CountFile::at(folder.path().join("count"));
        let mut reader = CallReader::new(Counter::new(file.clone(), &[("long", "charge")]));
        let call = r#"{"id":1,"method":"tools/call","params":{"name":"long","arguments":{"a":1}}}"#;
        let get = "GET /mcp HTTP/1.1\r\nHost: a\r\n\r\n";
        let list = r#"{"id":2,"method":"tools/list"}"#;
        let bytes = [post(list), get.to_owned(), post(call), post(call)].concat();
        let (most, last) = bytes.as_bytes().split_at(bytes.len() - 1);
        for byte in most {
            reader.push(&[*byte]).unwrap();
        }
        assert_eq!(file.runs("charge").unwrap(), 1);
        reader.push(last).unwrap();
        assert_eq!(file.runs_with("charge", "a", &1.into()).unwrap(), 2);
        assert_eq!(file.executions().unwrap().len(), 2);
    }

    #[test]
    fn batches_and_chunks_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let file = CountFile::at(folder.path().join("count"));
        let mut reader = CallReader::new(Counter::new(file.clone(), &[]));
        let call = r#"{"id":1,"method":"tools/call","params":{"name":"get","arguments":{}}}"#;
        let body = format!("[{call},{call}]");
        let head = "POST /mcp HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
        let bytes = format!("{head}{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
        reader.push(bytes.as_bytes()).unwrap();
        assert_eq!(file.runs("get").unwrap(), 2);
        assert!(reader.push(post("no json").as_bytes()).is_err());
    }
}
