//! The gateway's own log, as a part of the history.

use std::io::{self, Write};

use tracing_subscriber::fmt::MakeWriter;

use crate::history::{History, What};

/// Writes a line for each event of the gateway.
#[derive(Clone)]
struct Lines(History);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let line = String::from_utf8_lossy(bytes).trim_end().to_owned();
        self.0.record(What::Gateway(line));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Has everything that is logged from now on go to `history`. Once for each process.
pub fn to(history: History) {
    let panics = history.clone();
    std::panic::set_hook(Box::new(move |panic| {
        panics.record(What::Gateway(format!("a panic: {panic}")));
    }));
    let logging = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .with_ansi(false)
        .without_time()
        .with_target(false)
        .with_writer(Lines(history))
        .finish();
    // Nobody else sets one in this process.
    let _set = tracing::subscriber::set_global_default(logging).is_ok();
}
