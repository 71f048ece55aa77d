//! The k entries of a stream that are largest in magnitude, without keeping or sorting it.
//!
//! The magnitude of an f32 is ordered like its 31 lower bits. A first pass counts the upper 13 of
//! them, a second pass the lower 18 of those entries that share them with the k-th largest: then
//! its magnitude is known, and how many entries of just this magnitude are among the k. These are
//! the ones that come first, since models in 16 bits have many equal entries.
//!
//! Counters are 32 bits, so a stream has fewer than 2³² entries. They take at most 1 MiB, however
//! long it is.

/// The magnitude of a number as an integer of the same order.
pub(super) fn magnitude(number: f32) -> u32 {
    number.to_bits() & 0x7fff_ffff
}

/// Counts entries by the upper bits of their magnitude: the first pass.
pub(super) struct Coarse {
    /// Entries by their upper bits. // `[2^13]`
    counts: Vec<u32>,
}

impl Coarse {
    /// Counters of zero, one for each value of the upper bits.
    pub(super) fn new() -> Self {
        Self { counts: vec![0; 1 << COARSE_BITS] }
    }

    /// Counts the next entries of the stream.
    pub(super) fn add(&mut self, entries: &[f32]) {
        for entry in entries {
            self.counts[(magnitude(*entry) >> FINE_BITS) as usize] += 1;
        }
    }

    /// What the second pass has to count for the k-th largest entry, where k is from 1 to the
    /// number of entries.
    pub(super) fn refine(&self, k: usize) -> Fine {
        let (bucket, above) = descend(&self.counts, k);
        Fine { bucket: bucket as u32, k: k - above, counts: vec![0; 1 << FINE_BITS] }
    }
}

/// Counts the entries of one upper half by the lower bits: the second pass.
pub(super) struct Fine {
    /// The upper bits of the k-th largest.
    bucket: u32,
    /// Its rank among the entries with these upper bits.
    k: usize,
    /// Entries of the bucket by their lower bits. // `[2^18]`
    counts: Vec<u32>,
}

impl Fine {
    /// Counts the next entries of the stream, which is the same as in the first pass.
    pub(super) fn add(&mut self, entries: &[f32]) {
        for entry in entries {
            let magnitude = magnitude(*entry);
            if magnitude >> FINE_BITS == self.bucket {
                self.counts[(magnitude & FINE_MASK) as usize] += 1;
            }
        }
    }

    /// The border, once all entries have been counted.
    pub(super) fn threshold(&self) -> Threshold {
        let (low, above) = descend(&self.counts, self.k);
        let bits = self.bucket << FINE_BITS | low as u32;
        Threshold { bits, ties: self.k - above, equal: self.counts[low] as usize }
    }
}

/// The index that the k-th entry from the end has, and the number of entries behind this index.
fn descend(counts: &[u32], k: usize) -> (usize, usize) {
    let mut above = 0;
    for (index, count) in counts.iter().enumerate().rev() {
        let count = *count as usize;
        if above + count >= k {
            return (index, above);
        }
        above += count;
    }
    (0, above)
}

/// The border between the k largest entries and the others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Threshold {
    /// The magnitude of the k-th largest.
    bits: u32,
    /// How many entries of this magnitude are among the k.
    ties: usize,
    /// How many entries of this magnitude there are.
    equal: usize,
}

impl Threshold {
    /// The border above every entry.
    pub(super) const NONE: Self = Self { bits: u32::MAX, ties: 0, equal: 0 };

    /// Marks the entries among the k largest with all bits, the others with none. The blocks of a
    /// stream come in order; `seen` counts its entries at the border.
    #[inline(always)]
    pub(super) fn mark(&self, entries: &[f32], seen: &mut usize, marks: &mut [u32]) {
        let mark = |marks: &mut [u32], least: u32| {
            for (mark, entry) in marks.iter_mut().zip(entries) {
                *mark = if magnitude(*entry) >= least { u32::MAX } else { 0 };
            }
        };
        if self.ties == self.equal {
            return mark(marks, self.bits);
        }
        let equal =
            entries.iter().map(|entry| u32::from(magnitude(*entry) == self.bits)).sum::<u32>();
        let before = *seen;
        *seen += equal as usize;
        if *seen <= self.ties {
            return mark(marks, self.bits);
        }
        mark(marks, self.bits + 1);
        let at_border =
            entries.iter().zip(marks).filter(|(entry, _)| magnitude(**entry) == self.bits);
        at_border.take(self.ties.saturating_sub(before)).for_each(|(_, mark)| *mark = u32::MAX);
    }
}

/// Upper and lower bits together are the 31 of a magnitude.
const COARSE_BITS: u32 = 13;
/// The number of lower bits, whose counters take a megabyte.
const FINE_BITS: u32 = 18;
/// The lower bits of a magnitude.
const FINE_MASK: u32 = (1 << FINE_BITS) - 1;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The marks of a stream in blocks.
    fn marks(entries: &[f32], k: usize, block: usize) -> Vec<bool> {
        let mut coarse = Coarse::new();
        entries.chunks(block).for_each(|block| coarse.add(block));
        let mut fine = coarse.refine(k);
        entries.chunks(block).for_each(|block| fine.add(block));
        let (threshold, mut seen, mut marks) = (fine.threshold(), 0, vec![0; entries.len()]);
        for (entries, marks) in entries.chunks(block).zip(marks.chunks_mut(block)) {
            threshold.mark(entries, &mut seen, marks);
        }
        marks.into_iter().map(|mark| mark != 0).collect()
    }

    proptest! {
        /// With few distinct values there are ties at the border, which go to the first.
        #[test]
        fn the_marks_are_those_of_a_stable_sort(
            entries in prop::collection::vec(prop_oneof![-3i8..3, -120i8..120], 1..300),
            share in 0.0..1.0f64, scale in prop_oneof![Just(1.0f32), Just(1e-40), Just(3e38 / 128.0)],
            block in 1usize..80,
        ) {
            let entries: Vec<f32> = entries.into_iter().map(|x| f32::from(x) * scale).collect();
            let k = 1 + (share * (entries.len() - 1) as f64) as usize;
            let mut order: Vec<_> = (0..entries.len()).collect();
            order.sort_by(|a, b| entries[*b].abs().total_cmp(&entries[*a].abs()));
            let mut expected = vec![false; entries.len()];
            order[..k].iter().for_each(|index| expected[*index] = true);
            prop_assert_eq!(marks(&entries, k, block), expected);
        }
    }
}
