//! Small changes of good files, for tests of what reads them: a reader finds something in each or
//! says why not, and never panics.

/// Makes changes, the same ones in each run.
pub(crate) struct Mutants {
    /// The state of xorshift, never 0.
    state: u64,
    /// Letters with a meaning in the files that are changed, since random bytes rarely reach behind
    /// the first check.
    pieces: &'static [u8],
}

impl Mutants {
    /// Always the same seed, so that a failure can be repeated.
    pub(crate) fn new(pieces: &'static [u8]) -> Self {
        Self { state: 0x9e37_79b9_7f4a_7c15, pieces }
    }

    /// How many a test tries: `INTELLECT_MUTANTS`, or `usual`.
    pub(crate) fn count(usual: usize) -> usize {
        let count = std::env::var("INTELLECT_MUTANTS").ok().and_then(|count| count.parse().ok());
        count.unwrap_or(usual)
    }

    /// A number below `bound`, by xorshift.
    pub(crate) fn draw(&mut self, bound: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state % bound as u64) as usize
    }

    /// Changes one to five places behind `begin`: bytes replaced, flipped, removed, inserted, swapped
    /// and copied.
    pub(crate) fn change(&mut self, bytes: &mut Vec<u8>, begin: usize) {
        for _ in 0..=self.draw(4) {
            let count = bytes.len() - begin;
            let (at, other) = (begin + self.draw(count), begin + self.draw(count));
            let piece = self.pieces[self.draw(self.pieces.len())];
            match self.draw(6) {
                0 => bytes[at] = piece,
                1 => bytes[at] ^= 1 << self.draw(8),
                2 => drop(bytes.remove(at)),
                3 => bytes.insert(at, piece),
                4 => bytes.swap(at, other),
                _ => {
                    let end = bytes.len().min(at + self.draw(40));
                    let part = bytes[at..end].to_vec();
                    bytes.splice(other..other, part);
                }
            }
        }
    }
}
