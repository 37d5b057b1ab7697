//! Adds up the result lines of `cargo test`.

/// How many tests ran, over all test binaries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TestCount {
    /// Test binaries (and doc-test runs) that reported.
    pub(crate) binaries: usize,
    /// Tests that passed.
    pub(crate) passed: usize,
    /// Tests that were left out.
    pub(crate) ignored: usize,
}

impl TestCount {
    /// Reads every `test result:` line of a log.
    pub(crate) fn from_log(log: &str) -> Self {
        let mut count = Self::default();
        for line in log.lines().filter_map(|line| line.trim().strip_prefix("test result: ")) {
            count.binaries += 1;
            count.passed += number_before(line, " passed");
            count.ignored += number_before(line, " ignored");
        }
        count
    }
}

fn number_before(line: &str, unit: &str) -> usize {
    line.split_once(unit)
        .and_then(|(before, _)| before.rsplit(' ').next())
        .and_then(|number| number.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_all_binaries() {
        let log = "running 2 tests\n\
            test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n\
            noise\n\
            test result: ok. 30 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n";
        assert_eq!(TestCount::from_log(log), TestCount { binaries: 2, passed: 42, ignored: 1 });
    }

    #[test]
    fn a_log_without_results_counts_nothing() {
        assert_eq!(TestCount::from_log("error: could not compile"), TestCount::default());
    }
}
