//! Drains a child's standard error into the log, whatever is written there, so that the child never
//! waits for it.
use std::sync::Arc;

use tokio::io::AsyncReadExt;
use tokio::process::ChildStderr;
use tokio::time::Instant;

use super::line::{Line, Lines};
use crate::throttle::Throttle;

/// Bytes of one line that are logged; the rest of the line is cut.
const LOG_LINE_BYTES_MAX: usize = 1_024;
/// Bytes read at once.
const READ_BYTES: usize = 16 * 1024;

/// Reads until the end. Lines are logged with the server's name, as fast as the throttle lets.
pub(super) async fn drain(mut stderr: ChildStderr, name: Arc<str>) {
    let mut lines = Lines::new(LOG_LINE_BYTES_MAX);
    let mut throttle = Throttle::new(Instant::now());
    loop {
        let count = stderr.read_buf(lines.buffer(READ_BYTES)).await.unwrap_or(0);
        while let Some(line) = lines.next_line() {
            log(&name, &line, &mut throttle);
        }
        if count == 0 {
            break;
        }
    }
    if let Some(line) = lines.finish() {
        log(&name, &line, &mut throttle);
    }
}

fn log(server: &str, line: &Line, throttle: &mut Throttle) {
    let text = printable(line);
    if text.is_empty() {
        return;
    }
    if let Some(unlogged) = throttle.admit(Instant::now()) {
        tracing::info!(server, unlogged, "stderr: {text}");
    }
}

/// The line as harmless text: a child must not be able to drive the operator's terminal.
fn printable(line: &Line) -> String {
    let (bytes, cut) = match line {
        Line::Whole(bytes) => (&bytes[..], false),
        Line::TooLong { head, .. } => (&head[..head.len().min(LOG_LINE_BYTES_MAX)], true),
    };
    let text = String::from_utf8_lossy(bytes);
    let harmless = |c: char| {
        if c.is_control() && c != '\t' { '\u{fffd}' } else { c }
    };
    let mut text: String = text.trim_end().chars().map(harmless).collect();
    if cut {
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_replaced_and_long_lines_are_cut() {
        let line = Line::Whole("\u{1b}[31mred\u{7}\ttab\r".into());
        assert_eq!(printable(&line), "\u{fffd}[31mred\u{fffd}\ttab");
        let head = vec![b'x'; 5_000].into();
        let cut = printable(&Line::TooLong { head, tail: "".into(), length_bytes: 9_000 });
        assert_eq!(cut.chars().count(), LOG_LINE_BYTES_MAX + 1);
    }
}
