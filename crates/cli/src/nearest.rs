//! Which known word a mistyped one may have been meant to be.

/// The known word that is nearest, if any is near. A word with dots counts by its last part too:
/// whoever leaves out the rest is understood.
pub(crate) fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let near = known.iter().filter_map(|known| {
        let whole = near(word, known);
        let last = (word.contains('.') || known.contains('.'))
            .then(|| near(last_part(word), last_part(known)).map(|distance| distance + 1));
        let distance = whole.into_iter().chain(last.flatten()).min()?;
        Some((distance, *known))
    });
    near.min().map(|(_, known)| known)
}

/// True for the same word, whatever its capitals and the dashes between its parts.
pub(crate) fn is_same(one: &str, other: &str) -> bool {
    plain(one) == plain(other)
}

/// What is behind the last dot.
pub(crate) fn last_part(word: &str) -> &str {
    word.rsplit('.').next().unwrap_or(word)
}

fn near(word: &str, known: &str) -> Option<usize> {
    let (word, known_plain) = (plain(word), plain(known));
    let is_near = |distance: usize| distance * 3 <= known.len().max(3);
    let differs_by = word.len().abs_diff(known_plain.len());
    is_near(differs_by).then(|| distance(&word, &known_plain)).filter(|found| is_near(*found))
}

fn plain(word: &str) -> String {
    word.chars().filter(|c| !matches!(c, '-' | '_')).flat_map(char::to_lowercase).collect()
}

/// Characters to insert, take out or exchange, and neighbours to swap, to get from one to the other
/// (Damerau and Levenshtein, in the form of optimal string alignment).
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut rows = [vec![0; other.len() + 1], (0..=other.len()).collect()];
    let mut last = None;
    for (line, from) in one.chars().enumerate() {
        let [before, above] = &rows;
        let mut row = vec![line + 1];
        for (column, to) in other.iter().enumerate() {
            let exchanged = above[column] + usize::from(from != *to);
            let mut least = exchanged.min(row[column] + 1).min(above[column + 1] + 1);
            let is_swap = column > 0 && last == Some(*to) && other[column - 1] == from;
            if is_swap {
                least = least.min(before[column - 1] + 1);
            }
            row.push(least);
        }
        let [_, above] = rows;
        rows = [above, row];
        last = Some(from);
    }
    rows[1][other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_near_and_anything_else_is_not() {
        let known = ["listen", "allow_hosts", "args", "upstream.connect_max_ms"];
        for (word, meant) in [
            ("lisen", "listen"),
            ("allow-host", "allow_hosts"),
            ("allowHosts", "allow_hosts"),
            ("arg", "args"),
            ("connect_max_ms", "upstream.connect_max_ms"),
            ("conect_max_ms", "upstream.connect_max_ms"),
            ("upstream_connect_max_ms", "upstream.connect_max_ms"),
            ("upstream.listen", "listen"),
        ] {
            assert_eq!(nearest(word, &known), Some(meant), "{word}");
        }
        assert_eq!(nearest("disabled", &known), None);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!([distance("inof", "info"), distance("", "abc"), distance("ab", "b")], [1, 3, 1]);
    }
}
