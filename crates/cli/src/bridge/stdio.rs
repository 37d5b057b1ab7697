//! Lines of standard input and output (MCP *Transports*, stdio).

use std::io::{self, BufRead, Read as _, Write as _};

use tokio::sync::mpsc;

/// Lines that wait to be handed over.
const LINES_MAX: usize = 16;

/// The lines of standard input, read in a thread of their own: a read cannot be given up. A line
/// longer than `bytes_max` is left out, and told.
pub(super) fn lines(bytes_max: usize) -> io::Result<mpsc::Receiver<Vec<u8>>> {
    let (sender, receiver) = mpsc::channel(LINES_MAX);
    std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
        let mut stdin = io::stdin().lock();
        while let Ok(Some(line)) = line(&mut stdin, bytes_max) {
            match line {
                Some(line) if line.trim_ascii().is_empty() => {}
                Some(line) => {
                    if sender.blocking_send(line).is_err() {
                        return;
                    }
                }
                None => super::say(&format!("a line longer than {bytes_max} bytes was left out")),
            }
        }
    })?;
    Ok(receiver)
}

/// The next line. `None`: there is no more; `Some(None)`: it was too long.
fn line(reader: &mut impl BufRead, bytes_max: usize) -> io::Result<Option<Option<Vec<u8>>>> {
    let mut line = Vec::new();
    let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX).saturating_add(1);
    if reader.by_ref().take(limit).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    if line.len() <= bytes_max || line.ends_with(b"\n") {
        return Ok(Some(Some(line)));
    }
    loop {
        let chunk = reader.fill_buf()?;
        let (skipped, is_over) = match chunk.iter().position(|&byte| byte == b'\n') {
            Some(at) => (at + 1, true),
            None => (chunk.len(), chunk.is_empty()),
        };
        reader.consume(skipped);
        if is_over {
            return Ok(Some(None));
        }
    }
}

/// Writes one message as a line.
pub(super) fn write(message: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(message)?;
    stdout.write_all(b"\n")?;
    stdout.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_too_long_is_left_out_whole() {
        let mut text: &[u8] = b"12345\n123456\nx\nlast";
        let mut read = Vec::new();
        while let Some(line) = line(&mut text, 5).unwrap() {
            read.push(line.map(|line| String::from_utf8(line).unwrap()));
        }
        let expected = [Some("12345\n".into()), None, Some("x\n".into()), Some("last".into())];
        assert_eq!(read, expected);
    }
}
