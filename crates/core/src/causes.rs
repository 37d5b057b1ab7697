//! An error and its causes in one sentence.

use std::error::Error;

/// The error's message, followed by those of its causes that it does not hold itself. Some errors
/// put their cause in the middle of the sentence, before what to do.
pub fn told(error: &dyn Error) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !message.contains(&text) {
            message = format!("{message}: {text}");
        }
        cause = error.source();
    }
    message
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    enum Sample {
        #[error("outer")]
        Bare(#[source] Box<Self>),
        #[error("cannot listen: {source}; free it")]
        Named { source: io::Error },
    }

    #[test]
    fn every_cause_is_told_once() {
        let named = Sample::Named { source: io::Error::other("in use") };
        assert_eq!(told(&named), "cannot listen: in use; free it");
        assert_eq!(told(&Sample::Bare(Box::new(named))), "outer: cannot listen: in use; free it");
    }
}
