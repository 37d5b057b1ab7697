//! Session ids must be hard to guess.

use async_trait::async_trait;

use crate::bench::Bench;
use crate::hazard::{About, Hazard, Seen};
use crate::session::Trouble;

/// Fewest characters: 64 bits in hexadecimal digits.
const LENGTH_MIN: usize = 16;
/// Fewest places at which random ids differ.
const VARYING_MIN: usize = 8;

pub(super) struct SessionId;

#[async_trait]
impl Hazard for SessionId {
    fn about(&self) -> About {
        About {
            id: "session-id",
            title: "session ids that can be guessed",
            done: "opens four sessions and compares their ids",
            why: "Whoever guesses a session id speaks and reads in another client's session.",
            fix: "Make session ids from at least 16 random bytes, written in visible ASCII",
        }
    }

    async fn play(&self, bench: &Bench<'_>) -> Result<Seen, Trouble> {
        let mut ids = Vec::new();
        for _ in 0..4 {
            ids.push(bench.session().await?.id);
        }
        Ok(judge(&ids))
    }
}

fn judge(ids: &[String]) -> Seen {
    if ids.iter().any(String::is_empty) {
        return Seen::not_applicable("the server has no session ids");
    }
    if ids.iter().any(|id| !id.bytes().all(|byte| (0x21..=0x7e).contains(&byte))) {
        return Seen::violation("SES-3", "characters that are not visible ASCII");
    }
    let distinct: std::collections::HashSet<&String> = ids.iter().collect();
    if distinct.len() < ids.len() {
        return Seen::hazard("two sessions have the same id (SES-2)");
    }
    let shortest = ids.iter().map(String::len).min().unwrap_or_default();
    if shortest < LENGTH_MIN {
        return Seen::hazard(format!("only {shortest} characters (SES-2)"));
    }
    let varying = varying(ids);
    if varying < VARYING_MIN {
        return Seen::hazard(format!("only {varying} characters differ between them (SES-2)"));
    }
    Seen::safe(format!("{shortest} characters, {varying} of them differ"))
}

/// At how many places the ids differ.
fn varying(ids: &[String]) -> usize {
    let Some(first) = ids.first() else { return 0 };
    let differs =
        |at: usize| ids.iter().any(|id| id.as_bytes().get(at) != first.as_bytes().get(at));
    let longest = ids.iter().map(String::len).max().unwrap_or_default();
    (0..longest).filter(|at| differs(*at)).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hazard::Verdict;

    fn of(ids: &[&str]) -> Verdict {
        judge(&ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>()).verdict
    }

    #[test]
    fn ids_that_count_or_are_short_or_equal_are_found() {
        assert_eq!(of(&["a7", "f2"]), Verdict::Hazard);
        assert_eq!(of(&["session-0000000000001", "session-0000000000002"]), Verdict::Hazard);
        assert_eq!(of(&["d41d8cd98f00b204e9800998", "d41d8cd98f00b204e9800998"]), Verdict::Hazard);
        assert_eq!(of(&["d41d8cd98f 0b204e9800998", "x"]), Verdict::Violation("SES-3"));
        assert_eq!(
            of(&["d41d8cd98f00b204e9800998", "90015098 3cd24fb0d6963f7d"]),
            Verdict::Violation("SES-3")
        );
        assert_eq!(of(&["d41d8cd98f00b204e9800998", "900150983cd24fb0d6963f7d"]), Verdict::Safe);
    }
}
