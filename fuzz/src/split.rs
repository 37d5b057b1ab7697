//! Where a text is cut, as its own bytes say: the same input is always cut in the same places.

/// Numbers that look random and depend on the input alone (splitmix64 over FNV-1a).
#[derive(Clone, Debug)]
pub struct Numbers(u64);

impl Numbers {
    /// The numbers of an input.
    pub fn of(data: &[u8]) -> Self {
        let hash = data.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Self(hash)
    }

    /// The next one, below `end` (0 if there is none below it).
    pub fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) as usize % end.max(1)
    }

    /// Cuts a text into parts of up to `bytes_max` bytes, some of them empty.
    pub fn cut<'a>(&mut self, text: &'a [u8], bytes_max: usize) -> Vec<&'a [u8]> {
        let (mut parts, mut rest) = (Vec::new(), text);
        while !rest.is_empty() {
            let (part, after) = rest.split_at(self.below(bytes_max + 1).min(rest.len()));
            parts.push(part);
            rest = after;
        }
        parts
    }
}
