//! What a run is asked for.

use std::time::Duration;

use rejoin_bench::{Failure, Length};

const USAGE: &str = "bench load takes [--quick] [--write] [--only TEXT]";

/// The arguments of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) length: Length,
    /// The tables and the chart are written into the documentation.
    pub(crate) write: bool,
    /// Workloads whose name has this text.
    pub(crate) only: Option<String>,
}

impl Options {
    pub(crate) fn from_arguments() -> Result<Self, Failure> {
        Self::read(std::env::args().skip(1))
    }

    fn read(mut arguments: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let mut own = Self { length: Length::Full, write: false, only: None };
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--quick" => own.length = Length::Quick,
                "--write" => own.write = true,
                "--only" => own.only = Some(arguments.next().ok_or(USAGE)?),
                _ => return Err(format!("{argument:?} is not known: {USAGE}").into()),
            }
        }
        Ok(own)
    }

    /// How often each contestant has its turn, and how long a turn is.
    pub(crate) fn passes(&self) -> (usize, Duration) {
        match self.length {
            Length::Full => (5, Duration::from_millis(1_000)),
            Length::Quick => (3, Duration::from_millis(250)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_in_any_order_and_unknown_ones_refused() {
        let read = |text: &str| Options::read(text.split_whitespace().map(str::to_owned));
        let options = read("--only idle --write --quick").unwrap();
        assert_eq!(options.only.as_deref(), Some("idle"));
        assert!(options.write && options.length == Length::Quick);
        assert!(read("--quik").unwrap_err().to_string().contains("--quick"));
        assert!(read("--only").is_err());
    }
}
