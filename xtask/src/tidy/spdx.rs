//! Decides whether an SPDX licence expression can be satisfied by a list of licences.

/// Whether a person can take what is licensed under `expression` with only `allowed` licences.
///
/// `AND` binds closer than `OR`; `/` is the old way to write `OR`; `A WITH B` is one licence.
/// An expression that cannot be read is not satisfied.
pub(super) fn is_satisfied(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser { tokens: &tokens, at: 0, allowed };
    parser.any().is_some_and(|answer| answer && parser.at == tokens.len())
}

struct Parser<'a> {
    tokens: &'a [&'a str],
    at: usize,
    allowed: &'a [String],
}

impl Parser<'_> {
    fn any(&mut self) -> Option<bool> {
        let mut answer = self.all()?;
        while self.accept("OR") {
            answer |= self.all()?;
        }
        Some(answer)
    }

    fn all(&mut self) -> Option<bool> {
        let mut answer = self.one()?;
        while self.accept("AND") {
            answer &= self.one()?;
        }
        Some(answer)
    }

    fn one(&mut self) -> Option<bool> {
        if self.accept("(") {
            let answer = self.any()?;
            return self.accept(")").then_some(answer);
        }
        let mut licence = self.next()?.to_owned();
        if self.accept("WITH") {
            licence = format!("{licence} WITH {}", self.next()?);
        }
        Some(self.allowed.contains(&licence))
    }

    fn next(&mut self) -> Option<&str> {
        let token = self.tokens.get(self.at)?;
        self.at += 1;
        Some(token)
    }

    fn accept(&mut self, token: &str) -> bool {
        let is_next = self.tokens.get(self.at) == Some(&token);
        self.at += usize::from(is_next);
        is_next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn satisfied(expression: &str) -> bool {
        is_satisfied(expression, &["MIT".to_owned(), "Unicode-3.0".to_owned()])
    }

    #[test]
    fn one_of_several_is_enough() {
        assert!(satisfied("Apache-2.0 OR MIT"));
        assert!(satisfied("MIT/Apache-2.0"));
        assert!(!satisfied("Apache-2.0 OR GPL-3.0"));
    }

    #[test]
    fn all_of_several_are_needed() {
        assert!(satisfied("(MIT OR Apache-2.0) AND Unicode-3.0"));
        assert!(!satisfied("MIT AND GPL-3.0"));
        assert!(satisfied("GPL-3.0 AND MIT OR MIT"));
    }

    #[test]
    fn an_exception_makes_another_licence() {
        assert!(!satisfied("MIT WITH LLVM-exception"));
        assert!(satisfied("Apache-2.0 WITH LLVM-exception OR MIT"));
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for expression in ["", "MIT MIT", "(MIT", "MIT OR", "MIT WITH"] {
            assert!(!satisfied(expression), "{expression}");
        }
    }
}
