//! Changes to a message, in place.
use std::borrow::Cow;

use bytes::Bytes;

use super::scan::{Object, Scanner, Span};
use super::text::{inner, unescape, write_string};
use super::{Kind, Message};

/// A set of changes to one message, applied together by [`Edit::finish`].
///
/// Every byte no change asks for stays as it is. A change whose place the message does not have is
/// no error and changes nothing. All values are JSON text and are written as given; of several for
/// one place the last counts.
///
/// ```
/// use bytes::Bytes;
/// use rejoin_core::message::{Incoming, parse};
///
/// let body = Bytes::from_static(br#"{"jsonrpc":"2.0", "id": "x", "method":"ping"}"#);
/// let Ok(Incoming::One(ping)) = parse(body, 128) else { panic!("a ping is a message") };
/// let relayed = ping.edit().id(b"17").finish();
/// assert_eq!(relayed, r#"{"jsonrpc":"2.0", "id": 17, "method":"ping"}"#);
/// ```
#[derive(Debug)]
#[must_use = "changes do nothing until they are finished"]
pub struct Edit<'a> {
    message: &'a Message,
    patches: Vec<Patch<'a>>,
    removed_meta: Vec<&'a str>,
    param_members: Vec<Put<'a>>,
    result_members: Vec<Put<'a>>,
    error_members: Vec<Put<'a>>,
}

/// New text for a range of the message; an empty range inserts.
struct Patch<'a> {
    span: Span,
    text: Cow<'a, [u8]>,
}

impl std::fmt::Debug for Patch<'_> {
    /// Without the text, which is payload.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{:?}: {} bytes", self.span, self.text.len())
    }
}

/// A member to set, below an object that exists. Objects missing on the way are made.
#[derive(Clone)]
struct Put<'a> {
    path: Vec<&'a str>,
    value: &'a [u8],
}

impl std::fmt::Debug for Put<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{:?}: {} bytes", self.path, self.value.len())
    }
}

impl<'a> Edit<'a> {
    pub(super) fn new(message: &'a Message) -> Self {
        Self {
            message,
            patches: Vec::new(),
            removed_meta: Vec::new(),
            param_members: Vec::new(),
            result_members: Vec::new(),
            error_members: Vec::new(),
        }
    }

    /// Replaces the id.
    pub fn id(self, id: &'a [u8]) -> Self {
        let span = self.message.shape.id;
        self.replace(span, id)
    }

    /// Replaces the token under which a request asks for progress (`params._meta.progressToken`).
    pub fn progress_token(self, token: &'a [u8]) -> Self {
        let span = self.message.progress_token_span();
        self.replace(span, token)
    }

    /// Replaces the token a `notifications/progress` reports on (`params.progressToken`).
    pub fn progress_of(self, token: &'a [u8]) -> Self {
        let span = self.message.progress_of_span();
        self.replace(span, token)
    }

    /// Replaces the id a `notifications/cancelled` cancels (`params.requestId`).
    pub fn cancelled_id(self, id: &'a [u8]) -> Self {
        let span = self.message.cancels_span();
        self.replace(span, id)
    }

    /// Replaces the revision that an `initialize` asks for (`params.protocolVersion`).
    pub fn protocol_version(self, revision: &'a [u8]) -> Self {
        let span = self.message.protocol_version_span();
        self.replace(span, revision)
    }

    /// Removes members of `params._meta`, each with one comma.
    pub fn remove_meta(mut self, keys: &[&'a str]) -> Self {
        self.removed_meta.extend_from_slice(keys);
        self
    }

    /// Sets `params._meta[key]` of a request that has params. Params or `_meta` that is no object
    /// stays as it is.
    pub fn request_meta(mut self, key: &'a str, value: &'a [u8]) -> Self {
        if self.message.kind() == Kind::Request {
            self.param_members.push(Put { path: vec!["_meta", key], value });
        }
        self
    }

    /// Sets `result._meta[key]`. A result or `_meta` that is no object stays as it is.
    pub fn result_meta(mut self, key: &'a str, value: &'a [u8]) -> Self {
        self.result_members.push(Put { path: vec!["_meta", key], value });
        self
    }

    /// Sets `result.capabilities.experimental[key]` of an answer to `initialize`, with the same
    /// exceptions as [`Self::result_meta`].
    pub fn experimental_capability(mut self, key: &'a str, value: &'a [u8]) -> Self {
        self.result_members.push(Put { path: vec!["capabilities", "experimental", key], value });
        self
    }

    /// Sets `error.data[key]`. Data that is no object stays as it is.
    pub fn error_data(mut self, key: &'a str, value: &'a [u8]) -> Self {
        self.error_members.push(Put { path: vec!["data", key], value });
        self
    }

    /// Leaves out a `result` or `error` that is null beside the other: strict readers take only
    /// one of the two.
    pub fn without_null_outcome(mut self) -> Self {
        let bytes = &self.message.bytes;
        let start = bytes.iter().position(|&byte| byte == b'{').unwrap_or_default();
        if let Some(key) = self.message.shape.null_outcome
            && let Some(object) = object_at(bytes, Span::new(start..bytes.len()))
        {
            remove_members(bytes, &object, &[key], &mut self.patches);
        }
        self
    }

    /// The changed message; the same bytes, not copied, if nothing changed.
    pub fn finish(mut self) -> Bytes {
        let message = self.message;
        let bytes = &message.bytes;
        if let Some(meta) = message.shape.meta_members.as_ref() {
            remove_members(bytes, meta, &self.removed_meta, &mut self.patches);
        }
        for (span, puts) in [
            (message.shape.params, &self.param_members),
            (message.shape.result, &self.result_members),
            (message.shape.error, &self.error_members),
        ] {
            if let Some(span) = span {
                put_members(bytes, span, puts, &mut self.patches);
            }
        }
        apply(bytes, self.patches)
    }

    fn replace(mut self, span: Option<Span>, text: &'a [u8]) -> Self {
        if let Some(span) = span {
            self.patches.retain(|patch| patch.span != span);
            self.patches.push(Patch { span, text: Cow::Borrowed(text) });
        }
        self
    }
}

fn apply(bytes: &Bytes, mut patches: Vec<Patch<'_>>) -> Bytes {
    if patches.is_empty() {
        return bytes.clone();
    }
    patches.sort_by_key(|patch| patch.span.start());
    let added: usize = patches.iter().map(|patch| patch.text.len()).sum();
    let mut out = Vec::with_capacity(bytes.len() + added);
    let mut copied = 0;
    for patch in patches {
        // Inside a member that is removed: gone with it.
        if patch.span.start() < copied {
            continue;
        }
        out.extend_from_slice(&bytes[copied..patch.span.start()]);
        out.extend_from_slice(&patch.text);
        copied = patch.span.end();
    }
    out.extend_from_slice(&bytes[copied..]);
    out.into()
}

/// Removes members with the comma before them, or the one after where no member stays before.
fn remove_members(bytes: &[u8], object: &Object, keys: &[&str], patches: &mut Vec<Patch<'_>>) {
    let is_removed = |key: Span| {
        let key = unescape(inner(key.of(bytes)));
        keys.iter().any(|removed| *key == *removed.as_bytes())
    };
    let members = &object.members;
    let mut stays_before = false;
    for (index, member) in members.iter().enumerate() {
        if !is_removed(member.key) {
            stays_before = true;
            continue;
        }
        let range = match members.get(index + 1) {
            _ if stays_before => members[index - 1].value.end()..member.value.end(),
            Some(next) => member.key.start()..next.key.start(),
            None => member.key.start()..member.value.end(),
        };
        patches.push(Patch { span: Span::new(range), text: Cow::Borrowed(b"") });
    }
}

/// Sets members in the value at `span`, if that is an object. Recursion is as deep as the paths.
fn put_members<'a>(bytes: &[u8], span: Span, puts: &[Put<'a>], patches: &mut Vec<Patch<'a>>) {
    if puts.is_empty() || bytes.get(span.start()) != Some(&b'{') {
        return;
    }
    let Some(object) = object_at(bytes, span) else {
        return;
    };
    let mut inserted = Vec::new();
    for (key, inner_puts) in by_key(puts) {
        match (object.get(bytes, key), inner_puts.last()) {
            (Some(value), Some(last)) if last.path.is_empty() => {
                patches.push(Patch { span: value, text: Cow::Borrowed(last.value) });
            }
            (Some(value), _) => put_members(bytes, value, &inner_puts, patches),
            (None, _) => write_member(key, &inner_puts, &mut inserted),
        }
    }
    if inserted.is_empty() {
        return;
    }
    // Written with a comma behind each member; before the first one there may be none.
    inserted.pop();
    let at = match object.members.last() {
        Some(last) => {
            inserted.insert(0, b',');
            last.value.end()
        }
        None => object.span.start() + 1,
    };
    patches.push(Patch { span: Span::new(at..at), text: Cow::Owned(inserted) });
}

/// The object at `span` of a message, with spans of that message.
fn object_at(bytes: &[u8], span: Span) -> Option<Object> {
    let mut scanner = Scanner::at(bytes, span.start());
    scanner.object(|scanner, _key| scanner.value()).ok()
}

/// Appends `"key":value,` for a member that is not there yet.
fn write_member(key: &str, puts: &[Put<'_>], out: &mut Vec<u8>) {
    write_string(key.as_bytes(), out);
    out.push(b':');
    match puts.last() {
        Some(last) if last.path.is_empty() => out.extend_from_slice(last.value),
        _ => {
            out.push(b'{');
            for (inner_key, inner_puts) in by_key(puts) {
                write_member(inner_key, &inner_puts, out);
            }
            out.pop();
            out.push(b'}');
        }
    }
    out.push(b',');
}

/// The puts of every first key, in order of appearance, with that key taken off their paths.
fn by_key<'a>(puts: &[Put<'a>]) -> Vec<(&'a str, Vec<Put<'a>>)> {
    let mut groups: Vec<(&'a str, Vec<Put<'a>>)> = Vec::new();
    for put in puts {
        let Some((&key, path)) = put.path.split_first() else {
            continue;
        };
        let put = Put { path: path.to_vec(), value: put.value };
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, group)) => group.push(put),
            None => groups.push((key, vec![put])),
        }
    }
    groups
}
