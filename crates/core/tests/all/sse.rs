//! The SSE codec: the cases of the HTML standard (section 9.2), limits, and round trips.
use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use rejoin_core::sse::{
    DecodeError, Decoder, Event, EventWriter, write_comment, write_event, write_retry_event,
};

const EVENT_BYTES_MAX: usize = 1024;

fn drain(decoder: &mut Decoder, out: &mut Vec<Result<Event, DecodeError>>) {
    loop {
        match decoder.next_event() {
            Ok(Some(event)) => out.push(Ok(event)),
            Ok(None) => return,
            Err(error) => out.push(Err(error)),
        }
    }
}

/// Decodes `stream` cut before each of the `cuts`.
fn decode_cut(stream: &[u8], cuts: &[usize], max: usize) -> Vec<Result<Event, DecodeError>> {
    let mut decoder = Decoder::new(max);
    let mut out = Vec::new();
    let mut start = 0;
    for &cut in cuts.iter().chain([&stream.len()]) {
        decoder.push(&stream[start..cut]);
        drain(&mut decoder, &mut out);
        start = cut;
    }
    out
}

fn decode(stream: &[u8]) -> Vec<Event> {
    let events = decode_cut(stream, &[], EVENT_BYTES_MAX);
    events.into_iter().map(|event| event.expect("no event is too large")).collect()
}

/// Short notation: id, name, data (`None`: no data line), retry, comments.
type Row<'a> = (Option<&'a [u8]>, Option<&'a [u8]>, Option<&'a [u8]>, Option<u64>, Vec<&'a [u8]>);

fn row(event: &Event) -> Row<'_> {
    (
        event.id.as_deref(),
        event.name.as_deref(),
        event.has_data.then_some(event.data.as_ref()),
        event.retry_ms,
        event.comments.iter().map(Bytes::as_ref).collect(),
    )
}

fn data(text: &[u8]) -> Row<'_> {
    (None, None, Some(text), None, vec![])
}

fn id(text: &[u8]) -> Row<'_> {
    (Some(text), None, None, None, vec![])
}

fn cases() -> Vec<(&'static str, &'static [u8], Vec<Row<'static>>)> {
    vec![
        ("LF", b"data: a\n\ndata: b\n\n", vec![data(b"a"), data(b"b")]),
        ("CR", b"data: a\r\rdata: b\r\r", vec![data(b"a"), data(b"b")]),
        ("CRLF", b"data: a\r\n\r\ndata: b\r\n\r\n", vec![data(b"a"), data(b"b")]),
        ("mixed ends", b"data: a\ndata: b\rdata: c\r\n\n", vec![data(b"a\nb\nc")]),
        ("CR then LF is one end", b"data: a\r\ndata: b\n\r\n", vec![data(b"a\nb")]),
        ("byte order mark", b"\xEF\xBB\xBFdata: a\n\n", vec![data(b"a")]),
        ("only one mark", b"\xEF\xBB\xBF\xEF\xBB\xBFdata: a\n\n", vec![]),
        ("mark later is no mark", b"data: a\n\n\xEF\xBB\xBFdata: b\n\n", vec![data(b"a")]),
        ("no mark after all", b"\xEF\xBBdata: a\n\ndata: b\n\n", vec![data(b"b")]),
        ("id alone", b"id: 7\n\n", vec![id(b"7")]),
        ("id without colon resets", b"id\n\n", vec![id(b"")]),
        ("empty id resets", b"id: \n\n", vec![id(b"")]),
        ("NUL in id", b"id: a\0b\ndata: x\n\n", vec![data(b"x")]),
        ("NUL in id keeps the one before", b"id: 1\nid: \0\n\n", vec![id(b"1")]),
        ("NUL in data", b"data: a\0b\n\n", vec![data(b"a\0b")]),
        ("last id counts", b"id: 1\nid: 2\n\n", vec![id(b"2")]),
        ("colon in id", b"id: a:b\n\n", vec![id(b"a:b")]),
        ("one space stripped", b"data:  a \ndata:b\ndata:\tc\n\n", vec![data(b" a \nb\n\tc")]),
        ("empty data line is data", b"data:\n\n", vec![data(b"")]),
        ("data without colon", b"data\ndata\n\n", vec![data(b"\n")]),
        ("trailing empty data line", b"data: a\ndata:\n\n", vec![data(b"a\n")]),
        ("name", b"event: x\ndata: a\n\n", vec![(None, Some(b"x"), Some(b"a"), None, vec![])]),
        ("retry", b"retry: 200\ndata:\n\n", vec![(None, None, Some(b""), Some(200), vec![])]),
        ("retry alone", b"retry:0\n\n", vec![(None, None, None, Some(0), vec![])]),
        ("junk retry", b"retry: 2s\nretry: -1\nretry:\nretry: +1\ndata: a\n\n", vec![data(b"a")]),
        ("junk keeps retry", b"retry: 5\nretry: x\n\n", vec![(None, None, None, Some(5), vec![])]),
        ("retry beyond 64 bits", b"retry: 99999999999999999999\ndata: a\n\n", vec![data(b"a")]),
        ("comment", b": held\n\n", vec![(None, None, None, None, vec![b"held"])]),
        ("comments", b":\n:a\n:  b\n\n", vec![(None, None, None, None, vec![b"", b"a", b" b"])]),
        ("unknown fields", b"foo: bar\nData: x\n data: y\n\n", vec![]),
        ("blank lines", b"\n\r\n\r\rdata: a\n\n\n\n", vec![data(b"a")]),
        ("not UTF-8", b"data: \xFF\xC3\n\n", vec![data(b"\xFF\xC3")]),
        ("UTF-8", "data: \u{1F600}\n\n".as_bytes(), vec![data("\u{1F600}".as_bytes())]),
        ("unfinished", b"data: a\n\ndata: b\n", vec![data(b"a")]),
        ("no line separator of Unicode", "data: a\u{2028}b\u{85}c\n\n".as_bytes(), {
            vec![data("a\u{2028}b\u{85}c".as_bytes())]
        }),
    ]
}

#[test]
fn every_case_decodes_as_the_standard_says_wherever_it_is_cut() {
    for (name, stream, expected) in cases() {
        let whole = decode(stream);
        assert_eq!(whole.iter().map(row).collect::<Vec<_>>(), expected, "{name}");
        for first in 0..=stream.len() {
            for second in first..=stream.len() {
                let cut = decode_cut(stream, &[first, second], EVENT_BYTES_MAX);
                let cut: Vec<Event> = cut.into_iter().map(|event| event.expect("fits")).collect();
                assert_eq!(cut, whole, "{name} cut at {first} and {second}");
            }
        }
    }
}

#[test]
fn an_event_ended_by_cr_does_not_wait_for_a_line_feed() {
    let mut decoder = Decoder::new(EVENT_BYTES_MAX);
    decoder.push(b"data: a\r\n\r");
    let event = decoder.next_event().expect("fits").expect("the blank line is complete");
    assert_eq!(event.data, "a");
    decoder.push(b"\n");
    assert_eq!(decoder.next_event(), Ok(None));
    assert_eq!(decoder.finish(), Ok(()));
}

#[test]
fn only_unnamed_events_and_those_named_message_are_messages() {
    let names = ["data: a\n\n", "event:\ndata: a\n\n", "event: message\ndata: a\n\n"];
    assert!(names.iter().all(|stream| decode(stream.as_bytes())[0].is_message()));
    assert!(!decode(b"event: ping\ndata: a\n\n")[0].is_message());
}

#[test]
fn an_event_of_exactly_the_limit_passes_and_one_byte_more_does_not() {
    let stream = b"data: 123\n\n";
    let cost = b"data: 123\n".len();
    assert!(decode_cut(stream, &[], cost)[0].is_ok());
    let refused = DecodeError::EventTooLarge { event_bytes_max: cost - 1 };
    assert_eq!(decode_cut(stream, &[], cost - 1), [Err(refused)]);
}

#[test]
fn after_an_event_beyond_the_limit_the_next_block_decodes_wherever_it_is_cut() {
    let large = [b'x'; 64];
    let mut stream = b"id: 1\r\n\r\ndata: ".to_vec();
    stream.extend_from_slice(&large);
    stream.extend_from_slice(b"\r\ndata: same block\r\nid: 2\r\n\r\nid: 3\r\ndata: a\r\n\r\n");
    let whole = decode_cut(&stream, &[], 32);
    assert_eq!(whole.len(), 3);
    assert_eq!(whole[0].as_ref().map(row), Ok(id(b"1")));
    assert_eq!(whole[1], Err(DecodeError::EventTooLarge { event_bytes_max: 32 }));
    assert_eq!(
        whole[2].as_ref().map(row),
        Ok((Some(&b"3"[..]), None, Some(&b"a"[..]), None, vec![]))
    );
    for first in 0..=stream.len() {
        for second in first..=stream.len() {
            assert_eq!(decode_cut(&stream, &[first, second], 32), whole, "{first}, {second}");
        }
    }
}

#[test]
fn many_small_lines_and_comments_count_towards_the_limit() {
    let lines = "data\n".repeat(300) + "\n";
    let comments = ":\n".repeat(100) + "\n";
    for stream in [lines, comments] {
        assert_eq!(decode_cut(stream.as_bytes(), &[], EVENT_BYTES_MAX).len(), 1);
        assert!(decode_cut(stream.as_bytes(), &[], EVENT_BYTES_MAX)[0].is_err());
    }
}

#[test]
fn a_large_event_in_small_chunks_decodes() {
    const DATA_BYTES: usize = 4 * 1024 * 1024;
    let mut decoder = Decoder::new(DATA_BYTES + 16);
    decoder.push(b"data: ");
    for _ in 0..DATA_BYTES / 64 {
        decoder.push(&[b'x'; 64]);
        assert_eq!(decoder.next_event(), Ok(None));
    }
    decoder.push(b"\n\n");
    let event = decoder.next_event().expect("fits").expect("is complete");
    assert_eq!(event.data.len(), DATA_BYTES);
}

#[test]
fn a_stream_that_ends_inside_an_event_is_told() {
    for (stream, bytes) in [(&b"data: a"[..], 7), (b"data: a\n", 8), (b"\n\n:", 1), (b"\xEF", 1)] {
        let mut decoder = Decoder::new(EVENT_BYTES_MAX);
        decoder.push(stream);
        assert_eq!(decoder.next_event(), Ok(None));
        assert_eq!(decoder.finish(), Err(DecodeError::Incomplete { bytes }));
    }
    for stream in [&b""[..], b"data: a\n\n", b"\r\n\r\n", b"data: a\r\n\r"] {
        let mut decoder = Decoder::new(EVENT_BYTES_MAX);
        decoder.push(stream);
        drain(&mut decoder, &mut Vec::new());
        assert_eq!(decoder.finish(), Ok(()), "{stream:?}");
    }
}

fn written(write: impl FnOnce(&mut BytesMut)) -> String {
    let mut out = BytesMut::new();
    write(&mut out);
    String::from_utf8(out.to_vec()).expect("the cases are UTF-8")
}

#[test]
fn blocks_are_written_in_the_documented_form() {
    let event = |id, data: &'static str| written(|out| write_event(out, id, data.as_bytes()));
    assert_eq!(event(Some("1-2-3"), "{}"), "id: 1-2-3\ndata: {}\n\n");
    assert_eq!(event(None, ""), "data:\n\n");
    assert_eq!(event(None, "a\r\nb\rc\n"), "data: a\ndata: b\ndata: c\ndata:\n\n");
    let retry = written(|out| write_retry_event(out, Some("1-2-0"), 2000));
    assert_eq!(retry, "id: 1-2-0\nretry: 2000\ndata:\n\n");
    let retry = written(|out| write_retry_event(out, None, 30_000));
    assert_eq!(retry, "retry: 30000\ndata:\n\n");
    assert_eq!(written(|out| write_comment(out, "held")), ": held\n\n");
    assert_eq!(written(|out| write_comment(out, "")), ":\n\n");
    assert_eq!(written(|out| write_comment(out, "a\n\ndata: b")), ": a\n:\n: data: b\n\n");
}

#[test]
fn an_id_that_would_break_the_line_is_left_out() {
    for id in ["a\nb", "a\rb", "a\0b"] {
        assert_eq!(written(|out| write_event(out, Some(id), b"x")), "data: x\n\n");
    }
}

/// The parts of an event whose data is cut before each of the `cuts`, without the event's end.
fn write_parts(out: &mut BytesMut, data: &[u8], cuts: &[usize]) -> EventWriter {
    let mut event = EventWriter::begin(out, Some("1-2-3"));
    let mut start = 0;
    for &cut in cuts.iter().chain([&data.len()]) {
        event.data(out, &data[start..cut]);
        start = cut;
    }
    event
}

#[test]
fn an_event_that_is_broken_off_sets_the_time_and_is_not_taken() {
    for data in ["", "a", "a\n", "a\r", "\n\n", "a\r\n"] {
        let mut out = BytesMut::new();
        write_parts(&mut out, data.as_bytes(), &[]).break_off(&mut out, 30_000);
        assert!(out.ends_with(b"\nretry: 30000\n"), "{out:?}");
        assert_eq!(decode(&out), [], "{data:?}");
        // Had the event ended, it would be one whole event.
        out.extend_from_slice(b"\n");
        assert_eq!(decode(&out).len(), 1, "{data:?}");
    }
}

#[derive(Clone, Debug)]
enum Block {
    Event(Option<String>, Vec<u8>),
    Retry(Option<String>, u64),
    Comment(String),
}

fn block() -> impl Strategy<Value = Block> {
    let id = || proptest::option::of("[ -~]{0,12}");
    let data = proptest::collection::vec(
        prop_oneof![Just(b'\n'), Just(b'\r'), Just(b':'), Just(b' '), any::<u8>()],
        0..40,
    );
    prop_oneof![
        (id(), data).prop_map(|(id, data)| Block::Event(id, data)),
        (id(), any::<u64>()).prop_map(|(id, retry_ms)| Block::Retry(id, retry_ms)),
        "[a-z :]{0,20}".prop_map(Block::Comment),
    ]
}

/// What the receiver joins with LF: CRLF and CR become LF.
fn joined(data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for (at, &byte) in data.iter().enumerate() {
        match byte {
            b'\n' if at > 0 && data[at - 1] == b'\r' => {}
            b'\r' => out.push(b'\n'),
            other => out.push(other),
        }
    }
    out
}

proptest! {
    #[test]
    fn what_is_written_is_read_again_however_it_is_cut(
        blocks in proptest::collection::vec(block(), 0..12),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let mut out = BytesMut::new();
        for block in &blocks {
            match block {
                Block::Event(id, data) => write_event(&mut out, id.as_deref(), data),
                Block::Retry(id, ms) => write_retry_event(&mut out, id.as_deref(), *ms),
                Block::Comment(text) => write_comment(&mut out, text),
            }
        }
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(out.len() + 1)).collect();
        cuts.sort_unstable();
        let events = decode_cut(&out, &cuts, EVENT_BYTES_MAX);
        prop_assert_eq!(events.len(), blocks.len());
        for (event, block) in events.into_iter().zip(blocks) {
            let event = event.expect("fits");
            let (id, name, data, retry_ms, comments) = row(&event);
            prop_assert_eq!(name, None);
            let (block_id, block_data, block_retry_ms, block_comments) = match &block {
                Block::Event(id, data) => (id.as_deref(), Some(joined(data)), None, vec![]),
                Block::Retry(id, ms) => (id.as_deref(), Some(vec![]), Some(*ms), vec![]),
                Block::Comment(text) => (None, None, None, vec![text.as_bytes()]),
            };
            prop_assert_eq!(id, block_id.map(str::as_bytes));
            prop_assert_eq!(data, block_data.as_deref());
            prop_assert_eq!(retry_ms, block_retry_ms);
            prop_assert_eq!(comments, block_comments);
        }
    }

    #[test]
    fn an_event_written_in_parts_is_the_event_written_whole(
        data in proptest::collection::vec(
            prop_oneof![Just(b'\n'), Just(b'\r'), Just(b':'), Just(b' '), any::<u8>()],
            0..40,
        ),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(data.len() + 1)).collect();
        cuts.sort_unstable();
        let (mut whole, mut parts) = (BytesMut::new(), BytesMut::new());
        write_event(&mut whole, Some("1-2-3"), &data);
        write_parts(&mut parts, &data, &cuts).end(&mut parts);
        prop_assert_eq!(parts, whole);
    }

    #[test]
    fn any_bytes_decode_the_same_however_they_are_cut(
        stream in proptest::collection::vec(
            prop_oneof![
                Just(b'\n'), Just(b'\r'), Just(b':'), Just(b' '), Just(b'i'), Just(b'd'),
                Just(0xEF), Just(0xBB), Just(0xBF), any::<u8>(),
            ],
            0..120,
        ),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.sort_unstable();
        prop_assert_eq!(decode_cut(&stream, &cuts, 24), decode_cut(&stream, &[], 24));
    }
}
