//! What is left of a ring that did not end: chunks that their owners finished, who holds them, and
//! what a later roster and its receipt say of them (R10, R30, R32, R34).

use serde::{Deserialize, Serialize};

use crate::base::blocks::Blocks;
use crate::base::id::{Digest, PeerId};
use crate::message::seal::Seal;

use super::record::Member;

/// A finished chunk that somebody holds whole, as its `Status` tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Finished {
    /// The roster whose ring computed it.
    pub roster: Digest,
    /// Its number there.
    pub chunk: u32,
    /// What its owner says.
    pub seal: Seal,
}

/// What a roster keeps of the ring of an earlier one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Keep {
    /// The earlier roster.
    pub roster: Digest,
    /// Its members with a place, in ring order: who is in the sums, and in their divisor (R30).
    pub members: Vec<Member>,
    /// The chunks.
    pub chunks: Vec<Kept>,
}

/// One chunk that is kept.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Kept {
    /// Its number in the earlier roster.
    pub chunk: u32,
    /// What its owner says.
    pub seal: Seal,
    /// Its blocks in the fragment.
    pub blocks: Blocks,
    /// Who serves it, the first one first.
    pub holders: Vec<PeerId>,
}

/// The part of an update that another roster computed than the one that formed it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Part {
    /// That roster.
    pub roster: Digest,
    /// Who is in the sum, and in the divisor.
    pub members: Vec<Member>,
    /// Which blocks of the fragment.
    pub blocks: Blocks,
}

impl Keep {
    /// All blocks that are kept of that ring.
    #[must_use]
    pub fn blocks(&self) -> Blocks {
        Blocks::of(self.chunks.iter().flat_map(|kept| kept.blocks.ranges()))
    }

    /// The owner of a chunk of that ring: position (chunk + n − 1) mod n.
    #[must_use]
    pub fn owner(&self, chunk: u32) -> Option<&Member> {
        let chunk = usize::try_from(chunk).ok().filter(|chunk| *chunk < self.members.len())?;
        self.members.get((chunk + self.members.len() - 1) % self.members.len())
    }

    /// What the receipt says of it.
    #[must_use]
    pub fn part(&self) -> Part {
        Part { roster: self.roster, members: self.members.clone(), blocks: self.blocks() }
    }
}

/// Whether some members name this start of a peer, with work of its own.
#[must_use]
pub(super) fn names(members: &[Member], peer: &PeerId, incarnation: u64) -> bool {
    let same = |m: &Member| m.peer == *peer && m.incarnation == incarnation && m.weight > 0;
    members.iter().any(same)
}
