//! Which credentials belong to one subject, as the operator says (design section 2, "principal").
//!
//! Rejoin verifies no credential, so nothing inside one is believed: a forged token could name
//! anybody. It is the operator who says that a refreshed credential is the old one's successor.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;

use rejoin_core::id::Digest32;

use crate::principal::{key_of_credentials, key_of_subject};

/// The operator's map from credentials to subjects. A credential that is not in it is a subject of
/// its own.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Subjects {
    /// Keys of principals: of a credential, and of its subject. They are hashes of hashes, so the
    /// time of a look-up tells nothing about a credential that its presenter does not know.
    by_credential: HashMap<Digest32, Digest32>,
}

/// Why a map of subjects cannot be used. No message repeats what a line holds: it may be a
/// credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubjectsError {
    /// The first word is not 64 hexadecimal digits.
    #[error(
        "line {line} does not begin with a SHA-256 in 64 hexadecimal digits: write `<hash> \
         <subject>`, the hash as printf %s \"Bearer TOKEN\" | sha256sum prints it"
    )]
    NoHash {
        /// The line, from 1.
        line: usize,
    },
    /// No second word, or what `sha256sum` prints in its place.
    #[error(
        "line {line} names no subject: write `<hash> <subject>`, one word of yours in place of \
         the `-` or `*FILE` that sha256sum prints"
    )]
    NoSubject {
        /// The line, from 1.
        line: usize,
    },
    /// The second word holds what nobody sees or types.
    #[error(
        "line {line} has a control character in its subject: write `<hash> <subject>`, the \
         subject in visible characters"
    )]
    Invisible {
        /// The line, from 1.
        line: usize,
    },
    /// A third word that begins no comment.
    #[error(
        "line {line} has more than a hash and a subject: write `<hash> <subject>`, the subject as \
         one word, and a comment after a #"
    )]
    TooMuch {
        /// The line, from 1.
        line: usize,
    },
    /// The hash of an earlier line, with another subject.
    #[error(
        "line {line} gives the credential of line {first} to another subject: take one of them out"
    )]
    Twice {
        /// The line, from 1.
        line: usize,
        /// The earlier one.
        first: usize,
    },
}

impl Subjects {
    /// Reads a map: a line for each credential, the SHA-256 of its whole `Authorization` value in
    /// hexadecimal, then its subject: `<hash> <subject>`. What follows a `#` at the begin of a word
    /// is a comment.
    ///
    /// # Errors
    ///
    /// See [`SubjectsError`].
    pub fn parse(text: &str) -> Result<Self, SubjectsError> {
        let mut by_credential = HashMap::new();
        let mut first_lines = HashMap::new();
        for (line, text) in (1..).zip(text.lines()) {
            let mut words = text.split_whitespace().take_while(|word| !word.starts_with('#'));
            let Some(hash) = words.next() else { continue };
            let credential = unhex(hash).ok_or(SubjectsError::NoHash { line })?;
            let credential = key_of_credentials(&[credential]);
            // `sha256sum` ends its line with `-` or, in binary mode, with `*` and a file's name: as
            // a subject that would make one principal of strangers.
            let subject = words.next().filter(|word| *word != "-" && !word.starts_with('*'));
            let subject = subject.ok_or(SubjectsError::NoSubject { line })?;
            if subject.contains(char::is_control) {
                return Err(SubjectsError::Invisible { line });
            }
            if words.next().is_some() {
                return Err(SubjectsError::TooMuch { line });
            }
            let subject = key_of_subject(subject);
            match by_credential.entry(credential) {
                Entry::Vacant(entry) => {
                    entry.insert(subject);
                    first_lines.insert(credential, line);
                }
                Entry::Occupied(entry) if *entry.get() == subject => {}
                Entry::Occupied(_) => {
                    let first = first_lines.get(&credential).copied().unwrap_or(line);
                    return Err(SubjectsError::Twice { line, first });
                }
            }
        }
        Ok(Self { by_credential })
    }

    /// The number of credentials.
    pub fn len(&self) -> usize {
        self.by_credential.len()
    }

    /// True without any credential.
    pub fn is_empty(&self) -> bool {
        self.by_credential.is_empty()
    }

    /// The key of the subject that a credential belongs to, by its key.
    pub(crate) fn of(&self, credential: &Digest32) -> Option<Digest32> {
        self.by_credential.get(credential).copied()
    }
}

impl fmt::Debug for Subjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subjects").field("credentials", &self.len()).finish_non_exhaustive()
    }
}

fn unhex(text: &str) -> Option<Digest32> {
    let mut hash = Digest32::default();
    if !text.is_ascii() || text.len() != 2 * hash.len() {
        return None;
    }
    for (byte, at) in hash.iter_mut().zip((0..).step_by(2)) {
        let digits = text.get(at..at + 2)?;
        // `from_str_radix` alone would take a sign.
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        *byte = u8::from_str_radix(digits, 16).ok()?;
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use rejoin_core::id::digest;

    use super::*;

    /// SHA-256 of `Bearer a` and of `Bearer b`, as `sha256sum` prints them.
    const A: &str = "122c4e371d393490e5789c418af3d3854ed07f2b8b087f8ac4b418dba01cf197";
    const B: &str = "929ce5eeb27132f67ed7163993eaa8e4d5e7dbd26d2a1005a94d4314b385688d";

    fn of(subjects: &Subjects, credential: &str) -> Option<Digest32> {
        subjects.of(&key_of_credentials(&[digest(credential.as_bytes())]))
    }

    #[test]
    fn credentials_of_one_subject_are_one_and_others_are_none() {
        let upper = B.to_uppercase();
        let text =
            format!("# who is who\n\n{A}  alice # her first\n  {upper}\talice\r\n{A} alice\n");
        let subjects = Subjects::parse(&text).unwrap();
        assert_eq!(subjects.len(), 2);
        assert_eq!(of(&subjects, "Bearer a"), Some(key_of_subject("alice")));
        assert_eq!(of(&subjects, "Bearer b"), Some(key_of_subject("alice")));
        assert_eq!((of(&subjects, "Bearer c"), of(&subjects, "bearer a")), (None, None));
        let apart = Subjects::parse(&format!("{A} alice\n{B} bob")).unwrap();
        assert_eq!(of(&apart, "Bearer b"), Some(key_of_subject("bob")));
        assert_ne!(of(&apart, "Bearer a"), of(&apart, "Bearer b"));
    }

    #[test]
    fn a_bad_line_is_named_by_its_number_and_never_repeated() {
        let short = &A[1..];
        for (text, expected) in [
            ("# x\nBearer secret".to_owned(), SubjectsError::NoHash { line: 2 }),
            (format!("{short} alice"), SubjectsError::NoHash { line: 1 }),
            (format!("+{short} alice"), SubjectsError::NoHash { line: 1 }),
            (format!("\n{A}"), SubjectsError::NoSubject { line: 2 }),
            (format!("{A} # alice"), SubjectsError::NoSubject { line: 1 }),
            (format!("{A} alice\n{B}  -\n"), SubjectsError::NoSubject { line: 2 }),
            (format!("{A}  - alice"), SubjectsError::NoSubject { line: 1 }),
            (format!("{A} *-"), SubjectsError::NoSubject { line: 1 }),
            (format!("{A} *token"), SubjectsError::NoSubject { line: 1 }),
            (format!("{A} \u{a0}\u{3000} "), SubjectsError::NoSubject { line: 1 }),
            (format!("{A} al\0ice"), SubjectsError::Invisible { line: 1 }),
            (format!("{A} alice\u{7f}"), SubjectsError::Invisible { line: 1 }),
            (format!("{A} alice smith"), SubjectsError::TooMuch { line: 1 }),
            (format!("{A} a\n{B} b\n{A} b"), SubjectsError::Twice { line: 3, first: 1 }),
        ] {
            let error = Subjects::parse(&text).unwrap_err();
            assert_eq!(error, expected, "{text}");
            let shown = error.to_string();
            assert!(!shown.contains("secret") && !shown.contains(short), "{shown}");
            let is_form = !matches!(error, SubjectsError::Twice { .. });
            assert_eq!(shown.contains("`<hash> <subject>`"), is_form, "{shown}");
        }
    }

    #[test]
    fn debug_shows_no_hash() {
        let shown = format!("{:?}", Subjects::parse(&format!("{A} alice")).unwrap());
        assert_eq!(shown, "Subjects { credentials: 1, .. }");
    }
}
