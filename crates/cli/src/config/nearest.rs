//! What an unknown key may have been meant to be.

/// Says that a key is unknown, with the nearest valid one, or all of them if none is near.
pub(super) fn unknown(name: &str, valid: &[&str]) -> String {
    let near = valid.iter().map(|valid| (distance(name, valid), valid));
    match near.min().filter(|(distance, valid)| distance * 3 <= valid.len().max(3)) {
        Some((_, meant)) => format!("there is no key {name:?} here: {meant:?} may be meant"),
        None => format!("there is no key {name:?} here; the keys are: {}", valid.join(", ")),
    }
}

/// Characters to insert, take out or exchange to get from one to the other (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, from) in one.chars().enumerate() {
        let mut diagonal = line;
        row[0] = line + 1;
        for (column, to) in other.iter().enumerate() {
            let exchanged = diagonal + usize::from(from != *to);
            diagonal = row[column + 1];
            row[column + 1] = exchanged.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_told_with_the_nearest_key_and_anything_else_with_all() {
        let valid = ["listen", "allow_hosts", "args"];
        assert!(unknown("lisen", &valid).ends_with("\"listen\" may be meant"));
        assert!(unknown("allow-host", &valid).ends_with("\"allow_hosts\" may be meant"));
        assert!(unknown("arg", &valid).ends_with("\"args\" may be meant"));
        let all = "there is no key \"disabled\" here; the keys are: listen, allow_hosts, args";
        assert_eq!(unknown("disabled", &valid), all);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
