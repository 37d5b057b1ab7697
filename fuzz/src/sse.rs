//! The SSE codec, next to a reference that reads the whole stream at once; cut anywhere, the stream
//! gives the same events; what is written reads back.

mod reference;

use bytes::BytesMut;
use rejoin_core::sse::{
    DecodeError, Decoder, Event, EventWriter, write_comment, write_event, write_retry_event,
};

use crate::split::Numbers;
use reference::{Block, Item, read, replace};

/// A limit that no input reaches.
const ENDLESS: usize = 1 << 30;

/// The input is a stream, and then data to write.
pub fn run(data: &[u8]) {
    let mut numbers = Numbers::of(data);
    let small = numbers.below(data.len() + 48);
    for event_bytes_max in [ENDLESS, small] {
        let (items, is_incomplete) = read(data, event_bytes_max);
        for part_bytes_max in [data.len(), 1, 1 + numbers.below(16)] {
            let parts = numbers.cut(data, part_bytes_max);
            let decoded = decode(&parts, event_bytes_max);
            assert_eq!(decoded, (items.clone(), is_incomplete), "in parts of {part_bytes_max}");
        }
    }
    write_and_read(data, &mut numbers);
    break_off(data, &mut numbers);
}

/// What our decoder makes of the parts, and whether it says that the end is cut off.
fn decode(parts: &[&[u8]], event_bytes_max: usize) -> (Vec<Item>, bool) {
    let mut decoder = Decoder::new(event_bytes_max);
    let mut items = Vec::new();
    for part in parts {
        decoder.push(part);
        loop {
            match decoder.next_event() {
                Ok(Some(event)) => items.push(Item::Block(block(event))),
                Ok(None) => break,
                Err(DecodeError::EventTooLarge { event_bytes_max: told }) => {
                    assert_eq!(told, event_bytes_max);
                    items.push(Item::TooLarge);
                }
                Err(other) => panic!("the stream has not ended, but: {other}"),
            }
        }
    }
    (items, decoder.finish().is_err())
}

fn block(event: Event) -> Block {
    let data = event.data.to_vec();
    assert!(event.has_data || data.is_empty(), "data without a line");
    Block {
        id: event.id.map(|id| id.to_vec()),
        name: event.name.map(|name| name.to_vec()),
        data: event.has_data.then_some(data),
        retry_ms: event.retry_ms,
        comments: event.comments.iter().map(|comment| comment.to_vec()).collect(),
    }
}

/// What is written reads back: the data with its line breaks as LF, the id unless it cannot be
/// written.
fn write_and_read(data: &[u8], numbers: &mut Numbers) {
    let id_bytes = numbers.below(12).min(data.len());
    let id = std::str::from_utf8(&data[..id_bytes]).ok();
    let is_writable = |id: &&str| !id.contains(['\r', '\n', '\0']);
    let expected_id = id.filter(is_writable).map(|id| id.as_bytes().to_vec());
    let lines = replace(&replace(data, b"\r\n", b"\n"), b"\r", b"\n");

    let mut whole = BytesMut::new();
    write_event(&mut whole, id, data);
    let mut in_parts = BytesMut::new();
    let mut writer = EventWriter::begin(&mut in_parts, id);
    for part in numbers.cut(data, 9) {
        writer.data(&mut in_parts, part);
    }
    writer.end(&mut in_parts);
    assert_eq!(whole, in_parts, "an event written in parts");

    write_retry_event(&mut whole, id, 1_000);
    let text = String::from_utf8_lossy(data);
    write_comment(&mut whole, &text);
    let empty = Some(Vec::new());
    let event = Block { id: expected_id.clone(), data: Some(lines), ..Block::default() };
    let retry = Block { id: expected_id, data: empty, retry_ms: Some(1_000), ..Block::default() };
    let comment = replace(&replace(text.as_bytes(), b"\r\n", b"\n"), b"\r", b"\n");
    let comments = comment.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    let comment = Block { comments, ..Block::default() };
    let expected = [event, retry, comment].map(Item::Block).to_vec();
    assert_eq!(decode(&[&whole], ENDLESS), (expected.clone(), false), "written and read");
    assert_eq!(read(&whole, ENDLESS), (expected, false), "written and read by the reference");
}

/// An event that is broken off is no event.
fn break_off(data: &[u8], numbers: &mut Numbers) {
    let mut out = BytesMut::new();
    let mut writer = EventWriter::begin(&mut out, Some("1"));
    writer.data(&mut out, &data[..numbers.below(data.len() + 1)]);
    writer.break_off(&mut out, 5);
    assert_eq!(decode(&[&out], ENDLESS), (Vec::new(), true), "broken off");
}
