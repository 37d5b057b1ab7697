//! The event stream format as the HTML standard words it (section 9.2.6), the slow way: the whole
//! stream is there, its line ends are made alike, and then it is read line by line.

/// What the standard sees in one block, and what it would pass over but Rejoin tells: comments, and
/// blocks without data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) id: Option<Vec<u8>>,
    pub(super) name: Option<Vec<u8>>,
    pub(super) data: Option<Vec<u8>>,
    pub(super) retry_ms: Option<u64>,
    pub(super) comments: Vec<Vec<u8>>,
}

/// A block that was read, or one that was beyond the limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    Block(Block),
    TooLarge,
}

/// The items of a stream, and whether something of a block was left at its end.
pub(super) fn read(stream: &[u8], event_bytes_max: usize) -> (Vec<Item>, bool) {
    if b"\xEF\xBB\xBF".starts_with(stream) {
        return (Vec::new(), !stream.is_empty() && stream.len() < 3);
    }
    let stream = stream.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(stream);
    let text = replace(&replace(stream, b"\r\n", b"\n"), b"\r", b"\n");
    let mut lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    let unfinished = lines.pop().unwrap_or_default();
    let mut items = Vec::new();
    let mut block: Vec<&[u8]> = Vec::new();
    for line in lines {
        if !line.is_empty() {
            block.push(line);
            continue;
        }
        if cost(&block) > event_bytes_max {
            items.push(Item::TooLarge);
        } else {
            items.extend(block_of(&block).map(Item::Block));
        }
        block.clear();
    }
    let is_beyond = !unfinished.is_empty() && cost(&block) + unfinished.len() > event_bytes_max;
    if cost(&block) > event_bytes_max || is_beyond {
        items.push(Item::TooLarge);
    }
    (items, !block.is_empty() || !unfinished.is_empty())
}

/// What a block's lines count: their bytes and ends, and the handle of each comment.
fn cost(block: &[&[u8]]) -> usize {
    let handles = block.iter().filter(|line| line.starts_with(b":")).count();
    let lines: usize = block.iter().map(|line| line.len() + 1).sum();
    lines + handles * size_of::<bytes::Bytes>()
}

fn block_of(lines: &[&[u8]]) -> Option<Block> {
    let mut block = Block::default();
    for line in lines {
        let (field, value) = match line.iter().position(|byte| *byte == b':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (*line, &b""[..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value).to_vec();
        match field {
            b"" => block.comments.push(value),
            b"event" => block.name = Some(value),
            b"data" => {
                let data = block.data.get_or_insert_default();
                data.extend_from_slice(&value);
                data.push(b'\n');
            }
            b"id" if !value.contains(&b'\0') => block.id = Some(value),
            b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
                let sum = value.iter().try_fold(0_u64, |sum, digit| {
                    sum.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
                });
                block.retry_ms = sum.or(block.retry_ms);
            }
            _ => {}
        }
    }
    if let Some(data) = &mut block.data {
        data.pop();
    }
    (block != Block::default()).then_some(block)
}

/// Replaces every occurrence, front to back.
pub(super) fn replace(text: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), text);
    while let Some((first, after)) = rest.split_first() {
        // Most bytes do not begin it, and need no comparison of texts.
        if from.first() == Some(first)
            && let Some(after) = rest.strip_prefix(from)
        {
            out.extend_from_slice(to);
            rest = after;
        } else {
            out.push(*first);
            rest = after;
        }
    }
    out
}
