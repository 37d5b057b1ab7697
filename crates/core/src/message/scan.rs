//! A validating JSON scanner (RFC 8259) that yields byte ranges and builds no values.
//!
//! Only the few objects a message is routed by are entered by recursion, as far as the caller's
//! closures do; all other values are skipped by a loop, so that depth costs no stack.
use std::ops::Range;

use super::ParseError;
use super::text::{inner, unescape};

/// A range of bytes in a message. 32 bits, since a message keeps many; [`super::parse`] refuses
/// bodies they cannot count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    start: u32,
    end: u32,
}

impl Span {
    pub(super) fn new(range: Range<usize>) -> Self {
        Self { start: range.start as u32, end: range.end as u32 }
    }

    pub(super) fn start(self) -> usize {
        self.start as usize
    }

    pub(super) fn end(self) -> usize {
        self.end as usize
    }

    pub(super) fn of(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.start()..self.end()]
    }
}

/// A member of an object: its key with quotes, and its value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) key: Span,
    pub(super) value: Span,
}

/// An object: its span with braces, and its members as written.
#[derive(Clone, Debug)]
pub(super) struct Object {
    pub(super) span: Span,
    pub(super) members: Box<[Member]>,
}

impl Object {
    /// The value of `key`, compared after unescaping; the last one if there are several.
    pub(super) fn get(&self, bytes: &[u8], key: &str) -> Option<Span> {
        let is_key = |member: &&Member| *unescape(inner(member.key.of(bytes))) == *key.as_bytes();
        self.members.iter().rfind(is_key).map(|member| member.value)
    }

    /// Refuses keys that are equal after unescaping. `place` names the object in the error.
    pub(super) fn check_keys(&self, bytes: &[u8], place: &'static str) -> Result<(), ParseError> {
        let unescaped = |member: &Member| unescape(inner(member.key.of(bytes)));
        let mut keys: Vec<_> = self.members.iter().map(unescaped).collect();
        keys.sort_unstable();
        let Some(twice) = keys.windows(2).find(|pair| pair[0] == pair[1]) else {
            return Ok(());
        };
        let key = String::from_utf8_lossy(&twice[0]).chars().take(64).collect();
        Err(ParseError::DuplicateKey { key, place })
    }
}

/// A position in a JSON text.
pub(super) struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: usize,
    depth_max: usize,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(bytes: &'a [u8], depth_max: usize) -> Self {
        Self { bytes, at: 0, depth: 0, depth_max }
    }

    /// A scanner in the middle of a text that was checked before, depth included.
    pub(super) fn at(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at, depth: 0, depth_max: usize::MAX }
    }

    pub(super) fn position(&self) -> usize {
        self.at
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    pub(super) fn whitespace(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    /// Accepts nothing but whitespace up to the end.
    pub(super) fn end(&mut self) -> Result<(), ParseError> {
        self.whitespace();
        if self.at < self.bytes.len() {
            return Err(self.expected("the end"));
        }
        Ok(())
    }

    /// Reads an object at the position. `each` gets every unescaped key, with the scanner at its
    /// value, and must read exactly that value.
    pub(super) fn object<F>(&mut self, mut each: F) -> Result<Object, ParseError>
    where
        F: FnMut(&mut Self, &[u8]) -> Result<(), ParseError>,
    {
        let start = self.at;
        let mut members = Vec::new();
        self.check_depth(0)?;
        self.byte(b'{', "an object")?;
        self.depth += 1;
        self.whitespace();
        if !self.eat(b'}') {
            loop {
                let key = self.key()?;
                let value_start = self.at;
                each(self, &unescape(inner(key.of(self.bytes))))?;
                members.push(Member { key, value: Span::new(value_start..self.at) });
                self.whitespace();
                if self.eat(b'}') {
                    break;
                }
                self.byte(b',', "a comma or a closing brace")?;
            }
        }
        self.depth -= 1;
        Ok(Object { span: Span::new(start..self.at), members: members.into() })
    }

    /// Reads an array at the position and gives the spans of its elements, of which there may be
    /// this many.
    pub(super) fn array(&mut self, elements_max: usize) -> Result<Vec<Span>, ParseError> {
        let mut elements = Vec::new();
        self.check_depth(0)?;
        self.byte(b'[', "an array")?;
        self.depth += 1;
        self.whitespace();
        if !self.eat(b']') {
            loop {
                self.whitespace();
                if elements.len() == elements_max {
                    return Err(ParseError::TooManyMessages { messages_max: elements_max });
                }
                let start = self.at;
                self.value()?;
                elements.push(Span::new(start..self.at));
                self.whitespace();
                if self.eat(b']') {
                    break;
                }
                self.byte(b',', "a comma or a closing bracket")?;
            }
        }
        self.depth -= 1;
        Ok(elements)
    }

    /// Reads one value of any kind and depth, without whitespace around it.
    pub(super) fn value(&mut self) -> Result<(), ParseError> {
        // The closing byte of every object and array that is open.
        let mut open: Vec<u8> = Vec::new();
        loop {
            match self.peek() {
                Some(opening @ (b'{' | b'[')) => {
                    self.check_depth(open.len())?;
                    self.at += 1;
                    self.whitespace();
                    let closing = if opening == b'{' { b'}' } else { b']' };
                    if !self.eat(closing) {
                        open.push(closing);
                        if closing == b'}' {
                            self.key()?;
                        }
                        continue;
                    }
                }
                _ => self.scalar()?,
            }
            loop {
                let Some(&closing) = open.last() else {
                    return Ok(());
                };
                self.whitespace();
                if self.eat(closing) {
                    open.pop();
                    continue;
                }
                self.byte(b',', "a comma or the end of the object or array")?;
                self.whitespace();
                if closing == b'}' {
                    self.key()?;
                }
                break;
            }
        }
    }

    /// Reads a string; its span has the quotes.
    pub(super) fn string(&mut self) -> Result<Span, ParseError> {
        let start = self.at;
        self.byte(b'"', "a string")?;
        loop {
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => {
                    self.at += 1;
                    self.escape()?;
                }
                Some(0x20..) => self.at += 1,
                Some(_) => return Err(self.expected("no raw control character in a string")),
                None => return Err(self.expected("the end of the string")),
            }
        }
        self.at += 1;
        Ok(Span::new(start..self.at))
    }

    /// Reads a key, its colon and the whitespace around both.
    fn key(&mut self) -> Result<Span, ParseError> {
        self.whitespace();
        if self.peek() != Some(b'"') {
            return Err(self.expected("a key"));
        }
        let key = self.string()?;
        self.whitespace();
        self.byte(b':', "a colon")?;
        self.whitespace();
        Ok(key)
    }

    fn scalar(&mut self) -> Result<(), ParseError> {
        match self.peek() {
            Some(b'"') => self.string().map(drop),
            Some(b't') => self.literal(b"true"),
            Some(b'f') => self.literal(b"false"),
            Some(b'n') => self.literal(b"null"),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => Err(self.expected("a value")),
        }
    }

    fn escape(&mut self) -> Result<(), ParseError> {
        match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 1,
            Some(b'u') => {
                self.at += 1;
                for _ in 0..4 {
                    if !self.peek().is_some_and(|byte| byte.is_ascii_hexdigit()) {
                        return Err(self.expected("four hexadecimal digits"));
                    }
                    self.at += 1;
                }
            }
            _ => return Err(self.expected("an escape of JSON")),
        }
        Ok(())
    }

    fn literal(&mut self, word: &[u8]) -> Result<(), ParseError> {
        if !self.bytes[self.at..].starts_with(word) {
            return Err(self.expected("a value"));
        }
        self.at += word.len();
        Ok(())
    }

    fn number(&mut self) -> Result<(), ParseError> {
        self.eat(b'-');
        if !self.eat(b'0') {
            self.digits()?;
        }
        if self.eat(b'.') {
            self.digits()?;
        }
        if self.eat(b'e') || self.eat(b'E') {
            let _signed = self.eat(b'+') || self.eat(b'-');
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), ParseError> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at == start {
            return Err(self.expected("a digit"));
        }
        Ok(())
    }

    fn check_depth(&self, open: usize) -> Result<(), ParseError> {
        if self.depth + open >= self.depth_max {
            return Err(ParseError::TooDeep { depth_max: self.depth_max });
        }
        Ok(())
    }

    fn eat(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn byte(&mut self, byte: u8, expected: &'static str) -> Result<(), ParseError> {
        if self.eat(byte) { Ok(()) } else { Err(self.expected(expected)) }
    }

    fn expected(&self, expected: &'static str) -> ParseError {
        ParseError::NotJson { offset: self.at, expected }
    }
}
