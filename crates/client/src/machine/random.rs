//! Randomness from one seed, so that the same inputs give the same outputs.
use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// Bytes of a token's randomness.
const TOKEN_BYTES: usize = 16;

/// A stream of random numbers.
pub(super) struct Random {
    seed: [u8; 32],
    drawn: u64,
}

impl Random {
    pub(super) fn new(seed: [u8; 32]) -> Self {
        Self { seed, drawn: 0 }
    }

    fn draw(&mut self) -> [u8; 32] {
        self.drawn += 1;
        Sha256::new()
            .chain_update(self.seed)
            .chain_update(self.drawn.to_le_bytes())
            .finalize()
            .into()
    }

    /// A number.
    pub(super) fn number(&mut self) -> u64 {
        let drawn = self.draw();
        drawn.iter().take(size_of::<u64>()).fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    /// A dedup token that nobody can guess, as JSON text.
    pub(super) fn token(&mut self) -> String {
        let mut token = String::from("\"");
        for byte in self.draw().iter().take(TOKEN_BYTES) {
            // Writing to a string cannot fail.
            let _ = write!(token, "{byte:02x}");
        }
        token.push('"');
        token
    }
}
