//! Structs that know the documentation of their fields.

/// Defines a struct of public fields, with their doc comments as a constant beside it.
macro_rules! described {
    (
        $(#[$attribute:meta])*
        pub struct $name:ident {
            $($(#[doc = $line:literal])+ pub $field:ident: $kind:ty,)+
        }
    ) => {
        $(#[$attribute])*
        pub struct $name {
            $($(#[doc = $line])+ pub $field: $kind,)+
        }

        impl $name {
            /// Each field's name and documentation.
            pub(super) const DESCRIPTIONS: &'static [(&'static str, &'static str)] =
                &[$((stringify!($field), concat!($($line),+))),+];
        }
    };
}

#[cfg(test)]
mod tests {
    use crate::limits::Limits;

    #[test]
    fn a_limit_is_described_by_the_first_sentence_of_its_documentation() {
        for (name, expected) in [
            ("retry_ms", "`retry:` of an ordinary stream"),
            ("upstream.retry_max_ms", "Longest `retry:` that is honoured in full"),
            ("session_log_bytes_max", "Log bytes of one session"),
        ] {
            assert_eq!(Limits::description(name), Some(expected));
        }
        for name in ["upstream.hold_max_ms", "none", ""] {
            assert_eq!(Limits::description(name), None, "{name}");
        }
    }
}
