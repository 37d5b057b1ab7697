//! Requests in, answers out: one on each connection.

use std::collections::HashMap;
use std::io;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A request.
#[derive(Debug, Default)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    headers: HashMap<String, String>,
    pub(crate) body: Value,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

/// Reads a request; `None` if the connection ends before it is whole.
pub(crate) async fn read(socket: &mut TcpStream) -> io::Result<Option<Request>> {
    let mut input = Vec::new();
    let head_end = loop {
        if let Some(at) = input.windows(4).position(|four| four == b"\r\n\r\n") {
            break at;
        }
        if socket.read_buf(&mut input).await? == 0 {
            return Ok(None);
        }
    };
    let head = String::from_utf8_lossy(&input[..head_end]).into_owned();
    let mut lines = head.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ').map(str::to_owned);
    let mut request = Request {
        method: words.next().unwrap_or_default(),
        path: words.next().unwrap_or_default(),
        ..Request::default()
    };
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        request.headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length: usize =
        request.header("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
    while input.len() < head_end + 4 + length {
        if socket.read_buf(&mut input).await? == 0 {
            return Ok(None);
        }
    }
    request.body = serde_json::from_slice(&input[head_end + 4..]).unwrap_or_default();
    Ok(Some(request))
}

/// Writes an answer with a JSON body, or with none.
pub(crate) async fn answer(
    socket: &mut TcpStream,
    status: u16,
    fields: &[(&str, &str)],
    body: Option<&Value>,
) -> io::Result<()> {
    let text = body.map(Value::to_string).unwrap_or_default();
    let mut head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n", text.len());
    if body.is_some() {
        head.push_str("Content-Type: application/json\r\n");
    }
    for (name, value) in fields {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    socket.write_all(format!("{head}\r\n{text}").as_bytes()).await
}

/// Begins a stream of events.
pub(crate) async fn begin(socket: &mut TcpStream) -> io::Result<()> {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
                Transfer-Encoding: chunked\r\n\r\n";
    socket.write_all(head.as_bytes()).await
}

/// Writes events as one chunk.
pub(crate) async fn events(socket: &mut TcpStream, events: &[(String, String)]) -> io::Result<()> {
    let mut text = String::new();
    for (id, data) in events {
        text.push_str(&format!("id: {id}\ndata: {data}\n\n"));
    }
    socket.write_all(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes()).await
}

/// Ends a stream of events.
pub(crate) async fn end(socket: &mut TcpStream) -> io::Result<()> {
    socket.write_all(b"0\r\n\r\n").await
}
