//! An update that is assembled from the chunks that a roster keeps of earlier rings, and from the
//! rest, which its own ring computes (R10, R32).
//!
//! Blocks are encoded one by one, so a set of blocks is a set of byte ranges of the
//! update, and the parts can come in any order. Each kept chunk is checked against its
//! digest, whichever peer serves it.

use std::collections::BTreeMap;

use crate::base::blocks::Blocks;
use crate::base::id::Digest;
use crate::message::{Keep, Kept};
use crate::ring::Layout;
use crate::ring::codec::Codec;

/// An update that is being assembled.
#[derive(Clone, Debug)]
pub struct Repair {
    codec: Codec,
    elements: u64,
    update: Vec<u8>,
    /// The blocks that the ring computes; `None` once they are here.
    redone: Option<Blocks>,
    /// Kept chunks that are not here yet, by roster and number.
    missing: BTreeMap<(Digest, u32), Kept>,
}

impl Repair {
    /// Begins an update of `elements` elements. A ring with this layout computes what is not kept.
    #[must_use]
    pub fn new(codec: Codec, elements: u64, layout: &Layout, keep: &[Keep]) -> Self {
        let kept = keep.iter().flat_map(|keep| {
            keep.chunks.iter().map(|kept| ((keep.roster, kept.chunk), kept.clone()))
        });
        let length = usize::try_from(elements).unwrap_or(usize::MAX);
        Self {
            codec,
            elements,
            update: vec![0; codec.encoded_bytes(length)],
            redone: Some(layout.redone().clone()),
            missing: kept.collect(),
        }
    }

    /// The kept chunks that are not here yet, each with the roster that computed it.
    pub fn missing(&self) -> impl Iterator<Item = (Digest, &Kept)> {
        self.missing.iter().map(|((roster, _), kept)| (*roster, kept))
    }

    /// Takes the bytes of a kept chunk; false if their digest is not the one that its owner sealed.
    /// A chunk that is here already, or that is not kept, is ignored and counts as good. After
    /// false another holder may be asked.
    pub fn put(&mut self, roster: Digest, chunk: u32, bytes: &[u8]) -> bool {
        let Some(kept) = self.missing.get(&(roster, chunk)) else { return true };
        let length = self.codec.encoded_bytes(kept.blocks.element_count(self.elements));
        let good = bytes.len() == length && *blake3::hash(bytes).as_bytes() == kept.seal.digest.0;
        if good && let Some(kept) = self.missing.remove(&(roster, chunk)) {
            self.place(&kept.blocks, bytes);
        }
        good
    }

    /// Takes the bytes that the ring computed; false if they do not have the length of the rest.
    pub fn put_ring(&mut self, bytes: &[u8]) -> bool {
        let Some(redone) = &self.redone else { return true };
        let good = bytes.len() == self.codec.encoded_bytes(redone.element_count(self.elements));
        if good && let Some(redone) = self.redone.take() {
            self.place(&redone, bytes);
        }
        good
    }

    /// The update, once every part is here. It can be taken once; later calls give an empty update.
    #[must_use]
    pub fn take(&mut self) -> Option<Vec<u8>> {
        let whole = self.redone.is_none() && self.missing.is_empty();
        whole.then(|| std::mem::take(&mut self.update))
    }

    /// Copies the bytes of these blocks to where they stand in the whole update. The callers have
    /// compared the length, so the early return is never taken with bytes of a peer.
    fn place(&mut self, blocks: &Blocks, bytes: &[u8]) {
        let mut rest = bytes;
        for range in blocks.elements(self.elements) {
            let place = self.codec.place(&range);
            let Some((next, after)) = rest.split_at_checked(place.len()) else { return };
            if let Some(place) = self.update.get_mut(place) {
                place.copy_from_slice(next);
            }
            rest = after;
        }
    }
}

/// The numbers in these blocks, side by side: the input of a ring that computes them.
pub fn gather(numbers: &[f32], blocks: &Blocks) -> Vec<f32> {
    let ranges = blocks.elements(numbers.len() as u64);
    ranges.flat_map(|range| numbers.get(range).unwrap_or_default()).copied().collect()
}

#[cfg(test)]
mod tests {
    use crate::base::blocks::BLOCK;
    use crate::base::id::PeerId;
    use crate::base::sign::Signature;
    use crate::message::Roster;
    use crate::message::seal::Seal;

    use super::*;

    const ELEMENTS: usize = 5 * BLOCK + 9;

    fn encoded(numbers: &[f32]) -> Vec<u8> {
        let mut bytes = vec![0; Codec::Int8.encoded_bytes(numbers.len())];
        Codec::Int8.encode(numbers, &mut bytes).unwrap();
        bytes
    }

    /// Whichever chunks are kept, and in whichever order they come, the update is the same.
    #[test]
    fn r32_parts_make_the_same_update_as_the_whole() {
        let numbers: Vec<f32> = (0..ELEMENTS).map(|i| i as f32 - 100.0).collect();
        let kept_blocks = Blocks::of([1..2, 4..6]);
        let bytes = encoded(&gather(&numbers, &kept_blocks));
        let seal = Seal {
            digest: Digest(*blake3::hash(&bytes).as_bytes()),
            signature: Signature([0; 64]),
        };
        let roster = Digest([7; 32]);
        let kept = Kept { chunk: 3, seal, blocks: kept_blocks.clone(), holders: Vec::new() };
        let keep = vec![Keep { roster, members: Vec::new(), chunks: vec![kept] }];
        let member = crate::message::Member {
            peer: PeerId([1; 32]),
            log: crate::base::id::LogId([1; 16]),
            incarnation: 1,
            weight: 1,
        };
        let head = crate::message::Head { epoch: 0, tokens: 0, state: Digest::ZERO };
        let repaired = Roster {
            series: crate::message::Series::after(&head),
            attempt: 2,
            proposer: member.peer,
            members: vec![member],
            heard: Vec::new(),
            adopt: None,
            trust: None,
            keep: keep.clone(),
        };
        let layout = Layout::of(&repaired, ELEMENTS as u64).unwrap();
        assert_eq!(*layout.redone(), kept_blocks.rest(ELEMENTS as u64));
        let rest = encoded(&gather(&numbers, layout.redone()));
        for ring_first in [false, true] {
            let mut repair = Repair::new(Codec::Int8, ELEMENTS as u64, &layout, &keep);
            assert!(!repair.put(roster, 3, &rest) && !repair.put_ring(&bytes));
            assert_eq!(repair.missing().count(), 1);
            if ring_first {
                assert!(repair.put_ring(&rest) && repair.take().is_none());
                assert!(repair.put(roster, 3, &bytes));
            } else {
                assert!(repair.put(roster, 3, &bytes) && repair.take().is_none());
                assert!(repair.put_ring(&rest));
            }
            assert_eq!(repair.take(), Some(encoded(&numbers)));
        }
    }
}
