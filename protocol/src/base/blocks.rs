//! Sets of blocks: which part of the fragment a ring computes, reuses, or has spent.
//!
//! A fragment of `elements` numbers has B = ⌈elements / 256⌉ blocks, the last one short. A ring
//! that completes an earlier one computes only some of them. Laid side by side they are a smaller
//! fragment with the same blocks, which is cut into chunks like any other (R32). [`Blocks::part`]
//! leads from there back to the whole fragment.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// Elements of a block. They share one scale, and a block is never cut.
pub const BLOCK: usize = 256;

/// Disjoint ranges of blocks in rising order, none touching the next:
/// each set has exactly one form. A set that a peer sent can have any form until [`Self::fits`] has
/// accepted it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Blocks(Vec<(u64, u64)>);

/// The most ranges that a peer may send in a set: as many as a ring of 256 members leaves after a
/// few repairs. A set with more of them is a fault of its sender (D1).
pub const RANGES_MAX: usize = 1_024;

/// The number of blocks of a fragment.
pub fn count(elements: u64) -> u64 {
    elements.div_ceil(BLOCK as u64)
}

impl Blocks {
    /// Every block of a fragment of `elements`.
    #[must_use]
    pub fn all(elements: u64) -> Self {
        Self::of(std::iter::once(0..count(elements)))
    }

    /// The union of any ranges, which may overlap or be empty.
    #[must_use]
    pub fn of(ranges: impl IntoIterator<Item = Range<u64>>) -> Self {
        let mut sorted: Vec<_> = ranges.into_iter().filter(|range| !range.is_empty()).collect();
        sorted.sort_unstable_by_key(|range| range.start);
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for Range { start, end } in sorted {
            match merged.last_mut() {
                Some((_, last)) if start <= *last => *last = end.max(*last),
                _ => merged.push((start, end)),
            }
        }
        Self(merged)
    }

    /// Whether the set lies within a fragment of `elements` and has the one form of an honest peer.
    /// Every set from outside passes this before any other method takes it (D1): the others may
    /// saturate on a set that does not fit, and never fail.
    #[must_use]
    pub fn fits(&self, elements: u64) -> bool {
        let inner = self.0.windows(2).all(|pair| pair[0].1 < pair[1].0);
        self.0.len() <= RANGES_MAX
            && inner
            && self.0.iter().all(|(start, end)| start < end)
            && self.0.last().is_none_or(|(_, end)| *end <= count(elements))
    }

    /// Whether the set has no block.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of blocks; saturates for ranges that [`Self::fits`] refuses.
    pub fn len(&self) -> u64 {
        let lengths = self.0.iter().map(|(start, end)| end.saturating_sub(*start));
        lengths.fold(0, u64::saturating_add)
    }

    /// Whether some block is in both sets.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        let meets = |(a, b): &(u64, u64)| other.0.iter().any(|(c, d)| a < d && c < b);
        self.0.iter().any(meets)
    }

    /// The blocks that are in one of the two sets, or in both.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self::of(self.ranges().chain(other.ranges()))
    }

    /// The blocks of a fragment of `elements` that are not in this set.
    #[must_use]
    pub fn rest(&self, elements: u64) -> Self {
        let ends = self.0.iter().map(|(_, end)| *end);
        let starts = self.0.iter().map(|(start, _)| *start).chain([count(elements)]);
        Self::of([0].into_iter().chain(ends).zip(starts).map(|(end, start)| end..start))
    }

    /// The ranges in rising order, none touching the next.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.0.iter().map(|(start, end)| *start..*end)
    }

    /// The blocks of this set at the positions `range`, counted within the set. Positions beyond
    /// the last block are left out.
    #[must_use]
    pub fn part(&self, range: Range<u64>) -> Self {
        let mut before = 0_u64;
        let mut found = Vec::new();
        for (start, end) in &self.0 {
            let after = before.saturating_add(end.saturating_sub(*start));
            let from = range.start.clamp(before, after) - before;
            let to = range.end.clamp(before, after) - before;
            found.push(start.saturating_add(from)..start.saturating_add(to));
            before = after;
        }
        Self::of(found)
    }

    /// The elements of these blocks in a fragment of `elements`, range by range.
    pub fn elements(&self, elements: u64) -> impl Iterator<Item = Range<usize>> + '_ {
        // A fragment that is held in memory is counted in `usize`.
        let place = move |block: u64| {
            usize::try_from(block.saturating_mul(BLOCK as u64).min(elements)).unwrap_or(usize::MAX)
        };
        self.0.iter().map(move |(start, end)| place(*start)..place(*end))
    }

    /// The number of elements that these blocks have in a fragment of `elements`.
    pub fn element_count(&self, elements: u64) -> usize {
        self.elements(elements).map(|range| range.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ranges: &[(u64, u64)]) -> Blocks {
        Blocks::of(ranges.iter().map(|(start, end)| *start..*end))
    }

    #[test]
    fn a_set_has_one_form() {
        assert_eq!(set(&[(5, 7), (0, 2), (2, 3), (6, 9), (4, 4)]).0, [(0, 3), (5, 9)]);
        assert_eq!(set(&[(5, 9)]).and(&set(&[(0, 3), (3, 5)])), set(&[(0, 9)]));
    }

    #[test]
    fn what_a_peer_sends_must_have_that_form() {
        let elements = 10 * BLOCK as u64 - 1;
        assert!(Blocks(vec![(0, 3), (4, 10)]).fits(elements) && Blocks::default().fits(elements));
        for wrong in [vec![(0, 3), (3, 4)], vec![(4, 5), (0, 3)], vec![(2, 2)], vec![(0, 11)]] {
            assert!(!Blocks(wrong.clone()).fits(elements), "{wrong:?}");
        }
        let absurd = Blocks(vec![(0, u64::MAX), (1, u64::MAX), (9, 3)]);
        assert!(!absurd.fits(elements) && absurd.len() == u64::MAX);
        assert_eq!(absurd.part(3..5).len(), 2);
        assert!(!Blocks((0..2_000).map(|n| (3 * n, 3 * n + 1)).collect()).fits(u64::MAX));
        assert!(
            !Blocks(vec![(5, 2)]).fits(elements) && !Blocks(vec![(0, u64::MAX)]).fits(elements)
        );
    }

    #[test]
    fn the_rest_and_the_set_are_everything_once() {
        let elements = 10 * BLOCK as u64 - 100;
        for ranges in [vec![], vec![(0, 10)], vec![(0, 1), (9, 10)], vec![(3, 5), (6, 7)]] {
            let some = set(&ranges);
            let rest = some.rest(elements);
            assert!(!some.overlaps(&rest), "{some:?} {rest:?}");
            assert_eq!(some.and(&rest), Blocks::all(elements));
            assert_eq!(some.len() + rest.len(), 10);
            let both = some.element_count(elements) + rest.element_count(elements);
            assert_eq!(both as u64, elements);
        }
    }

    #[test]
    fn a_part_is_counted_through_the_set() {
        let some = set(&[(2, 4), (6, 9)]);
        assert_eq!(some.part(0..5), some);
        assert_eq!(some.part(1..3), set(&[(3, 4), (6, 7)]));
        assert_eq!(some.part(4..9), set(&[(8, 9)]));
        assert!(some.part(5..6).is_empty() && some.part(2..2).is_empty());
    }

    #[test]
    fn the_last_block_is_short() {
        let elements = 3 * BLOCK as u64 + 10;
        let ranges: Vec<_> = set(&[(0, 1), (3, 4)]).elements(elements).collect();
        assert_eq!(ranges, [0..256, 768..778]);
    }
}
