//! Random numbers for genesis and data, a pure function of a key and two numbers.
//!
//! They are the output of BLAKE3, keyed with 32 bytes, over the two numbers in its counter mode:
//! there is no state to save, any row can be drawn directly, and all machines agree.

/// An endless stream of uniform numbers.
pub(crate) struct Draw {
    /// The output of BLAKE3 in its mode of any length, which is the stream's bytes.
    stream: blake3::OutputReader,
}

impl Draw {
    /// The stream of `key` that `major` and `minor` select.
    pub(crate) fn new(key: &[u8; 32], major: u64, minor: u64) -> Self {
        let mut hasher = blake3::Hasher::new_keyed(key);
        hasher.update(&major.to_le_bytes()).update(&minor.to_le_bytes());
        Self { stream: hasher.finalize_xof() }
    }

    /// The stream that `key` alone selects.
    pub(crate) fn keyed(key: &[u8; 32]) -> Self {
        Self { stream: blake3::Hasher::new_keyed(key).finalize_xof() }
    }

    /// A whole number below `bound`, which is not 0. The probabilities differ by less than
    /// `bound` / 2^64.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        let product = u128::from(self.word()) * u128::from(bound);
        // The upper half of a product of two words is one word.
        (product >> 64) as u64
    }

    /// A number of 53 random bits from 0 to below 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.word() >> 11) as f64 * UNIT
    }

    /// The next 64 bits of the stream, little endian.
    fn word(&mut self) -> u64 {
        let mut word = [0; 8];
        self.stream.fill(&mut word);
        u64::from_le_bytes(word)
    }
}

/// 2^−53: the distance of neighbouring uniform numbers.
pub(crate) const UNIT: f64 = 1.0 / (1_u64 << 53) as f64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_of_the_key_selects_another_stream() {
        let first = |key, major, minor| Draw::new(&[key; 32], major, minor).word();
        let words = [first(1, 2, 3), first(1, 2, 4), first(1, 3, 3), first(2, 2, 3)];
        for (i, word) in words.iter().enumerate() {
            assert!(!words[..i].contains(word));
        }
        assert_eq!(first(1, 2, 3), words[0]);
    }

    #[test]
    fn numbers_are_below_the_bound_and_even() {
        let mut draw = Draw::new(&[0; 32], 0, 0);
        let mut counts = [0_u32; 7];
        for _ in 0..70_000 {
            counts[draw.below(7) as usize] += 1;
        }
        // Five standard deviations of a binomial of 70,000 and 1/7 are 463.
        assert!(counts.iter().all(|count| count.abs_diff(10_000) < 463), "{counts:?}");
        let mean = (0..10_000).map(|_| draw.unit()).sum::<f64>() / 10_000.0;
        assert!((mean - 0.5).abs() < 0.015, "{mean}");
    }
}
