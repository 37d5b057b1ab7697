//! Event ids: whatever is accepted prints back to itself, and nothing else is accepted.

use arbitrary::Unstructured;
use rejoin_core::id::{Epoch, EventId, Seq, StreamId};

/// The input is the text of an id, and numbers for one.
pub fn run(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        let read = text.parse::<EventId>().ok();
        assert_eq!(read, reference(text), "{text:?}");
        if let Some(id) = read {
            assert_eq!(id.to_string(), text);
        }
    }
    let mut numbers = Unstructured::new(data);
    let (Ok(epoch), Ok(stream), Ok(seq)) =
        (numbers.arbitrary(), numbers.arbitrary(), numbers.arbitrary())
    else {
        return;
    };
    let id = EventId { epoch: Epoch(epoch), stream: StreamId(stream), seq: Seq(seq) };
    let text = id.to_string();
    assert_eq!(text.parse(), Ok(id), "{text}");
    assert_eq!(reference(&text), Some(id), "{text}");
    assert!(text.bytes().all(|byte| byte.is_ascii_graphic()), "{text}");
}

/// Eight lower-case hexadecimal digits and two plain decimal numbers, with dashes between.
fn reference(text: &str) -> Option<EventId> {
    let [epoch, stream, seq] = text.split('-').collect::<Vec<_>>().try_into().ok()?;
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if epoch.len() != 8 || !epoch.bytes().all(is_hex) {
        return None;
    }
    let epoch = epoch.bytes().fold(0_u32, |sum, digit| {
        let value = if digit.is_ascii_digit() { digit - b'0' } else { digit - b'a' + 10 };
        (sum << 4) | u32::from(value)
    });
    let stream = u32::try_from(decimal(stream)?).ok()?;
    let (epoch, stream) = (Epoch(epoch), StreamId(stream));
    Some(EventId { epoch, stream, seq: Seq(decimal(seq)?) })
}

fn decimal(text: &str) -> Option<u64> {
    let has_zero = text.len() > 1 && text.starts_with('0');
    if text.is_empty() || has_zero || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.bytes()
        .try_fold(0_u64, |sum, digit| sum.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
}
