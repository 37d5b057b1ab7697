//! Why a body is not a JSON-RPC message.

/// Why a body was refused. Offsets count bytes from the start of the message, or of the body for
/// [`ParseError::NotJson`] outside a batch element.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// Not one JSON text in UTF-8 (RFC 8259), or cut off.
    #[error(
        "the message is not JSON: expected {expected} at byte {offset}. \
         Send one complete JSON-RPC message in UTF-8"
    )]
    NotJson {
        /// Where the text stops to be JSON, in bytes.
        offset: usize,
        /// What would have been right there.
        expected: &'static str,
    },
    /// Larger than positions in it can be counted.
    #[error("the message has {bytes} bytes: send less than 4 GiB")]
    TooLarge {
        /// Size of the body in bytes.
        bytes: usize,
    },
    /// More objects and arrays inside each other than allowed.
    #[error(
        "the message is nested deeper than {depth_max} levels: send it flatter, or raise \
         `--limit json_depth_max=`"
    )]
    TooDeep {
        /// The limit in levels.
        depth_max: usize,
    },
    /// JSON, but no object.
    #[error("the message is not a JSON object: send {{\"jsonrpc\":\"2.0\",...}}")]
    NotAnObject,
    /// A batch without messages (JSON-RPC 2.0, section 6).
    #[error("the batch is empty: send at least one message")]
    EmptyBatch,
    /// A batch with more messages than are read at once.
    #[error("the batch has more than {messages_max} messages: send them in smaller batches")]
    TooManyMessages {
        /// The limit.
        messages_max: usize,
    },
    /// A key twice in one object; receivers disagree about which one counts.
    #[error("the key {key:?} is there twice in {place}: send it once")]
    DuplicateKey {
        /// The key, unescaped and shortened.
        key: String,
        /// The object that has it.
        place: &'static str,
    },
    /// No `jsonrpc` member with the string `"2.0"`.
    #[error("the message has no \"jsonrpc\":\"2.0\": add it")]
    BadVersion,
    /// An id that is neither string nor integer (MCP base protocol: requests).
    #[error("the id is {found}: send a string or an integer, another one for each request")]
    BadId {
        /// What the id is instead.
        found: &'static str,
    },
    /// A response that does not say which request it answers.
    #[error("the response has no id: send the id of the request it answers")]
    NoResponseId,
    /// A method that is no string of Unicode characters.
    #[error("the method is not a string: send the method's name")]
    BadMethod,
    /// Neither request nor response.
    #[error("the message has no method, result or error: send exactly one of them")]
    NoMethodNorResult,
    /// More than one of `method`, `result` and `error`.
    #[error("the message has both {first} and {second}: send exactly one of method, result, error")]
    Ambiguous {
        /// One member.
        first: &'static str,
        /// The other.
        second: &'static str,
    },
    /// Params of another type (JSON-RPC 2.0, section 4.2).
    #[error("params is neither an object nor an array: send an object, or leave it out")]
    ParamsNotObjectOrArray,
    /// One message of a batch was refused, and with it the batch.
    #[error("message {index} of the batch (counted from 0): {source}")]
    Element {
        /// Position in the batch, from 0.
        index: usize,
        /// What is wrong with it.
        source: Box<Self>,
    },
}

impl ParseError {
    /// The JSON-RPC error code that tells it to the sender: -32700 (parse error) if the body is not
    /// JSON, else -32600 (invalid request).
    pub fn json_rpc_code(&self) -> i64 {
        match self {
            Self::NotJson { .. } => -32700,
            Self::Element { source, .. } => source.json_rpc_code(),
            _ => -32600,
        }
    }
}
