//! Standard output, shared by all calls: one message a line, never torn, never buffered for long.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes gathered before a burst of messages is written.
const BURST_BYTES: usize = 64 * 1024;

/// Exit status when nobody reads standard output any more.
const EXIT_OUTPUT_CLOSED: i32 = 4;

/// The writing side of the connection to the client.
pub(super) struct Output {
    // A file, not `Stdout`: that one looks for line ends again in every byte of a burst.
    writer: Mutex<BufWriter<File>>,
    /// Held by whoever waits for the writer next. Without it the thread of a burst, which comes
    /// back for the writer at once, would keep all others from it.
    next: Mutex<()>,
}

impl Output {
    /// Standard output itself.
    ///
    /// # Errors
    /// When the process has none.
    pub(super) fn stdout() -> io::Result<Self> {
        let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let writer = Mutex::new(BufWriter::with_capacity(BURST_BYTES, file));
        Ok(Self { writer, next: Mutex::new(()) })
    }

    /// Writes one message, line end included, and everything gathered before it.
    pub(super) fn send(&self, line: &[u8]) {
        let mut writer = self.lock();
        Self::end_if_closed(writer.write_all(line).and_then(|()| writer.flush()));
    }

    /// Adds one message of a burst. The caller sends or flushes before it waits for anything.
    pub(super) fn gather(&self, line: &[u8]) {
        Self::end_if_closed(self.lock().write_all(line));
    }

    /// Writes what was gathered.
    pub(super) fn flush(&self) {
        Self::end_if_closed(self.lock().flush());
    }

    /// Writes what was gathered unless some thread is blocked in a write: for the end.
    pub(super) fn try_flush(&self) {
        if let Ok(mut writer) = self.writer.try_lock() {
            // Whether the last bytes find a reader changes nothing any more.
            let _ = writer.flush();
        }
    }

    fn lock(&self) -> MutexGuard<'_, BufWriter<File>> {
        let _next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end_if_closed(result: io::Result<()>) {
        if let Err(error) = result {
            eprintln!("rejoin tool-server: standard output is closed: {error}");
            std::process::exit(EXIT_OUTPUT_CLOSED);
        }
    }
}
