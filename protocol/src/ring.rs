//! The order of a ring all-reduce: the cut of a fragment into chunks and frames, the hops, and the
//! orders that decide positions and turns.
//!
//! ```text
//! chunk c of n       blocks ⌊cB/n⌋ … ⌊(c+1)B/n⌋ of B = ⌈elements/256⌉
//! reduce, hop s      position i sends chunk (i − s) mod n, s = 0 … n − 2
//! gather, hop s      position i sends chunk (i + 1 − s) mod n
//! owner of chunk c   position (c + n − 1) mod n
//! ```
//!
//! (Patarasuk & Yuan 2009, bandwidth-optimal ring.) In the reduce half, chunk c starts at
//! position c and meets every other position once; the last of them, its owner, finishes
//! it. In the gather half the finished bytes go round from the owner, unchanged. Each peer
//! sends 2(n − 1)/n of the fragment.
//!
//! A chunk travels in frames of 262,144 elements, so that a frame goes on while the next one is still
//! on its way: the ring costs its bytes once and the latency of the hops once.
//!
//! Invariant D3: the chunks partition the fragment, and every position adds to each chunk exactly
//! once. Chunks and frames may be empty of elements, but never cut a block.
//!
//! What this does not do: bytes (`codec`), arithmetic (`codec::reduce`),
//! frame by frame (`exchange`).
//!
//! The members and their order come from a roster, so every position computes the same cut without
//! a message. Nothing here can fail at run time, except where a caller breaks what it owes.

pub mod codec;
pub mod exchange;
pub mod assembly;

use std::ops::Range;

use crate::base::blocks::{BLOCK, Blocks};
use crate::base::id::{Digest, PeerId, RunId};
use crate::message::Roster;

/// Elements of a frame; the last frame of a chunk is shorter.
pub const FRAME: usize = 1024 * BLOCK;

/// Which half of the all-reduce a frame belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Half {
    /// Partial sums travel, and each position adds its share.
    Reduce,
    /// Finished bytes travel unchanged from the chunk's owner.
    Gather,
}

/// How a fragment is cut into one chunk for each position of a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cut {
    elements: usize,
    members: usize,
}

impl Cut {
    /// Cuts `elements` elements for a ring of `members` positions.
    ///
    /// # Panics
    /// If `members` is 0: the caller has counted them (D3).
    #[must_use]
    pub fn new(elements: usize, members: usize) -> Self {
        assert!(members > 0, "D3: a ring has a member");
        Self { elements, members }
    }

    /// Elements of the whole fragment.
    pub fn elements(&self) -> usize {
        self.elements
    }

    /// Positions in the ring, and chunks of the fragment.
    pub fn members(&self) -> usize {
        self.members
    }

    /// The elements of chunk `chunk`, which is below `members`; none if there
    /// are fewer blocks than members.
    pub fn chunk(&self, chunk: usize) -> Range<usize> {
        self.start(chunk)..self.start(chunk.saturating_add(1))
    }

    /// Frames of chunk `chunk`; 0 if it has no elements.
    pub fn frame_count(&self, chunk: usize) -> usize {
        self.chunk(chunk).len().div_ceil(FRAME)
    }

    /// The elements of frame `frame` of chunk `chunk`; none beyond the last frame.
    pub fn frame(&self, chunk: usize, frame: usize) -> Range<usize> {
        let chunk = self.chunk(chunk);
        let start = frame.saturating_mul(FRAME).saturating_add(chunk.start).min(chunk.end);
        start..start.saturating_add(FRAME).min(chunk.end)
    }

    /// The position that finishes chunk `chunk` and seals it.
    pub fn owner(&self, chunk: usize) -> usize {
        (chunk + self.members - 1) % self.members
    }

    /// The first element of chunk `chunk`, which is that of block ⌊cB/n⌋.
    fn start(&self, chunk: usize) -> usize {
        let (blocks, chunk) = (self.elements.div_ceil(BLOCK) as u128, chunk as u128);
        let block = chunk * blocks / self.members as u128;
        // At most the number of blocks as long as chunk ≤ members; the last block is short.
        usize::try_from(block * BLOCK as u128).unwrap_or(usize::MAX).min(self.elements)
    }
}

/// Which part of the fragment a roster's ring computes, and how that is cut. The
/// computed blocks, laid side by side, are the smaller fragment that is cut. Without
/// kept chunks they are all blocks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    redone: Blocks,
    cut: Cut,
}

impl Layout {
    /// The layout of a roster's ring; `None` if no member has a position.
    pub fn of(roster: &Roster, elements: u64) -> Option<Self> {
        let members = roster.ring().count();
        let redone = roster.redone(elements);
        let cut = (members > 0).then(|| Cut::new(redone.element_count(elements), members))?;
        Some(Self { redone, cut })
    }

    /// The blocks that the ring computes, those that the roster does not keep.
    pub fn redone(&self) -> &Blocks {
        &self.redone
    }

    /// How these blocks are cut into chunks and frames.
    pub fn cut(&self) -> Cut {
        self.cut
    }

    /// The blocks of the fragment in chunk `chunk`, which is below the number of members.
    pub fn chunk(&self, chunk: usize) -> Blocks {
        let elements = self.cut.chunk(chunk);
        let block = |element: usize| element.div_ceil(BLOCK) as u64;
        self.redone.part(block(elements.start)..block(elements.end))
    }
}

/// Which decision an order is for; each one has a domain of its own. The parent is hashed along
/// ([`order`]), so nobody can make a key in advance that is first in a later epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Which peer proposes next (R36).
    Turn,
    /// The positions of members in the ring.
    Ring,
    /// Which holder serves a kept chunk first (R32).
    Serve,
}

/// The key of `peer` in the order for attempt (or Regroup) `k` of the epoch after
/// `parent`, compared as bytes. Each attempt and epoch has another order, which every
/// peer computes without a message.
pub fn order(which: Order, run: &RunId, parent: &Digest, k: u64, peer: &PeerId) -> Digest {
    let domain = match which {
        Order::Turn => "intellect-node 1 turn",
        Order::Ring => "intellect-node 1 ring",
        Order::Serve => "intellect-node 1 serve",
    };
    Digest::derive(domain, &[&run.0[..], &parent.0, &k.to_le_bytes(), &peer.0].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_follow_the_formula_of_the_format() {
        // 5 blocks, the last one of 10 elements, for 3 members: blocks 0..1, 1..3, 3..5.
        let cut = Cut::new(4 * BLOCK + 10, 3);
        assert_eq!(cut.chunk(0), 0..256);
        assert_eq!(cut.chunk(1), 256..768);
        assert_eq!(cut.chunk(2), 768..1034);
    }

    #[test]
    fn chunks_may_be_empty_and_then_have_no_frame() {
        let cut = Cut::new(300, 4);
        let lengths: Vec<usize> = (0..4).map(|chunk| cut.chunk(chunk).len()).collect();
        assert_eq!(lengths, [0, 256, 0, 44]);
        assert_eq!(cut.frame_count(0), 0);
        assert_eq!(cut.frame_count(1), 1);
    }

    #[test]
    fn frames_cover_their_chunk_and_end_with_it() {
        let cut = Cut::new(5 * FRAME, 2);
        assert_eq!(cut.frame_count(1), 3);
        assert_eq!(cut.frame(1, 0), 2 * FRAME + 512 * BLOCK..3 * FRAME + 512 * BLOCK);
        assert_eq!(cut.frame(1, 2), 4 * FRAME + 512 * BLOCK..5 * FRAME);
        assert!(cut.frame(1, 3).is_empty());
        assert!(cut.frame(1, usize::MAX).is_empty());
    }

    /// The order is part of the protocol: two peers with other bytes
    /// here would never agree on turns.
    #[test]
    fn orders_are_golden() {
        let key = |which| order(which, &RunId([1; 32]), &Digest([2; 32]), 3, &PeerId([4; 32]));
        let bytes = [[1; 32].as_slice(), &[2; 32], &[3, 0, 0, 0, 0, 0, 0, 0], &[4; 32]].concat();
        assert_eq!(key(Order::Turn), Digest::derive("intellect-node 1 turn", &bytes));
        assert_eq!(key(Order::Ring), Digest::derive("intellect-node 1 ring", &bytes));
        assert_eq!(key(Order::Serve), Digest::derive("intellect-node 1 serve", &bytes));
        assert_eq!(key(Order::Turn).to_string(), "e07b23cd");
    }
}
