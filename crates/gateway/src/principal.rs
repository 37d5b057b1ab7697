//! Who is asking (design section 2, "principal").

use std::fmt;
use std::hint::black_box;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use rejoin_core::id::{Digest32, digest};

/// Who a request comes from: the SHA-256 of its `Authorization` header, or nobody in particular.
/// A session is known only to the principal that opened it.
#[derive(Clone, Copy)]
pub(crate) struct Principal {
    key: Digest32,
    anonymous: bool,
}

impl Principal {
    /// The principal that a request presents.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let mut named = b"authorization".to_vec();
        for value in headers.get_all(AUTHORIZATION) {
            named.extend_from_slice(&(value.len() as u64).to_be_bytes());
            named.extend_from_slice(value.as_bytes());
        }
        let anonymous = !headers.contains_key(AUTHORIZATION);
        let key = if anonymous { digest(b"anonymous") } else { digest(&named) };
        Self { key, anonymous }
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
        Principal::of(&headers)
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
    fn credentials_that_run_together_differ() {
        assert!(!presenting(&["ab", "c"]).is(&presenting(&["a", "bc"])));
    }

    #[test]
    fn debug_shows_no_credential() {
        let shown = format!("{:?}", presenting(&["Bearer secret"]));
        assert!(!shown.contains("secret") && !shown.contains('['), "{shown}");
    }
}
