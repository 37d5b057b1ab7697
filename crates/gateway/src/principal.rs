//! Who is asking (design section 2, "principal").

use std::fmt;
use std::hint::black_box;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use rejoin_core::id::{Digest32, digest};

use crate::subjects::Subjects;

/// Who a request comes from: the subject that the operator maps its `Authorization` to, else the
/// SHA-256 of that header, or nobody in particular. A session is known only to the principal that
/// opened it.
#[derive(Clone, Copy)]
pub(crate) struct Principal {
    key: Digest32,
    anonymous: bool,
}

impl Principal {
    /// The principal that a request presents.
    pub(crate) fn of(headers: &HeaderMap, subjects: &Subjects) -> Self {
        let values = headers.get_all(AUTHORIZATION).iter();
        let credentials: Vec<_> = values.map(|value| digest(value.as_bytes())).collect();
        let anonymous = credentials.is_empty();
        let key = if anonymous { digest(b"anonymous") } else { key_of_credentials(&credentials) };
        Self { key, anonymous }.under(subjects)
    }

    /// The principal that a store has of a session.
    pub(crate) fn stored(key: Digest32, anonymous: bool) -> Self {
        Self { key, anonymous }
    }

    /// The subject that this principal belongs to, if it is a credential that is mapped to one;
    /// else itself.
    pub(crate) fn under(self, subjects: &Subjects) -> Self {
        Self { key: subjects.of(&self.key).unwrap_or(self.key), ..self }
    }

    /// True if the request presented no credential.
    pub(crate) fn is_anonymous(&self) -> bool {
        self.anonymous
    }

    /// What the store counts quotas by, and what scopes tokens.
    pub(crate) fn key(&self) -> Digest32 {
        self.key
    }

    /// Compares in a time that does not depend on where the two differ.
    pub(crate) fn is(&self, other: &Self) -> bool {
        let pairs = self.key.iter().zip(&other.key);
        let difference = pairs.fold(0_u8, |sum, (a, b)| black_box(sum | (a ^ b)));
        difference == 0
    }
}

/// The key of who presents these values of `Authorization`, given by their SHA-256. Subjects are
/// mapped from single ones, so several are never a subject.
pub(crate) fn key_of_credentials(credentials: &[Digest32]) -> Digest32 {
    digest(&[b"authorization".as_slice(), credentials.as_flattened()].concat())
}

/// The key of a subject, by the name that the operator gave it. Never that of a credential.
pub(crate) fn key_of_subject(name: &str) -> Digest32 {
    digest(&[b"subject".as_slice(), &digest(name.as_bytes())].concat())
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let anonymous = self.anonymous;
        f.debug_struct("Principal").field("anonymous", &anonymous).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn presenting(values: &[&'static str]) -> Principal {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, HeaderValue::from_static(value));
        }
        Principal::of(&headers, &Subjects::default())
    }

    #[test]
    fn only_the_same_credential_is_the_same_principal() {
        let one = presenting(&["Bearer one"]);
        assert!(one.is(&presenting(&["Bearer one"])) && !one.is_anonymous());
        for other in [&["Bearer two"][..], &["bearer one"], &["Bearer one", ""], &[""], &[]] {
            assert!(!one.is(&presenting(other)), "{other:?}");
        }
    }

    #[test]
    fn callers_without_credential_are_one_anonymous_principal() {
        assert!(presenting(&[]).is(&presenting(&[])) && presenting(&[]).is_anonymous());
        assert!(!presenting(&["anonymous"]).is(&presenting(&[])));
    }

    #[test]
    fn a_mapped_credential_is_its_subject_only_if_it_comes_alone() {
        let hash: String = digest(b"Bearer one").iter().map(|byte| format!("{byte:02x}")).collect();
        let subjects = Subjects::parse(&format!("{hash} alice")).unwrap();
        let of = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(AUTHORIZATION, HeaderValue::from_static(value));
            }
            Principal::of(&headers, &subjects)
        };
        let mapped = of(&["Bearer one"]);
        assert!(!mapped.is(&presenting(&["Bearer one"])) && !mapped.is_anonymous());
        assert!(!of(&["Bearer one", "Bearer one"]).is(&mapped));
        assert!(of(&["Bearer two"]).is(&presenting(&["Bearer two"])));
    }

    #[test]
    fn credentials_that_run_together_differ() {
        assert!(!presenting(&["ab", "c"]).is(&presenting(&["a", "bc"])));
    }

    #[test]
    fn debug_shows_no_credential() {
        let shown = format!("{:?}", presenting(&["Bearer secret"]));
        assert!(!shown.contains("secret") && !shown.contains('['), "{shown}");
    }
}
