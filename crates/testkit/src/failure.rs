//! The error of a test function: any error, with the line of the `?` that met it.

use std::fmt;
use std::panic::Location;

/// What a test function returns.
pub type TestResult = Result<(), Failure>;

/// Why a test failed, and where.
pub struct Failure {
    message: String,
    place: &'static Location<'static>,
}

impl Failure {
    /// A failure with its own words, at the caller's line.
    #[track_caller]
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), place: Location::caller() }
    }
}

impl<E: std::error::Error> From<E> for Failure {
    #[track_caller]
    fn from(error: E) -> Self {
        Self::new(error.to_string())
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}: {}", self.place.file(), self.place.line(), self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fails() -> Result<u8, Failure> {
        let number: u8 = "x".parse()?;
        Ok(number)
    }

    #[test]
    fn a_failure_names_the_line_of_its_question_mark() {
        let failure = format!("{:?}", fails().unwrap_err());
        assert!(failure.contains("failure.rs:"), "{failure}");
        assert!(failure.ends_with("invalid digit found in string"), "{failure}");
    }
}
