//! Salvaged chunks of a ring that did not end: their owners finished them. Which peers hold them, and what a later
//! roster and its receipt say of them (R10, R30, R32, R34).

use serde::{Deserialize, Serialize};

use crate::base::blocks::Blocks;
use crate::base::id::{Digest, PeerId};
use crate::message::seal::Seal;

use super::record::Member;

/// A finished chunk that a peer holds whole, as its `Report` says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Finished {
    /// The digest of the roster whose ring computed it.
    pub roster: Digest,
    /// The number of the chunk in that ring.
    pub chunk: u32,
    /// The owner's signature over the chunk.
    pub seal: Seal,
}

/// The chunks that a roster keeps of an earlier roster's ring. The proposer chooses them from the
/// Reports of the peers that it heard; each acceptor checks them against the earlier roster itself
/// (R32).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Keep {
    /// The digest of the earlier roster.
    pub roster: Digest,
    /// Its members with a position, in ring order. They are in the sums and in their divisor (R30).
    pub members: Vec<Member>,
    /// The chunks that are kept of it.
    pub chunks: Vec<Kept>,
}

/// One kept chunk of an earlier ring.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Kept {
    /// The number of the chunk in the earlier ring.
    pub chunk: u32,
    /// The owner's signature over the chunk.
    pub seal: Seal,
    /// The blocks of the fragment that it has.
    pub blocks: Blocks,
    /// The peers that serve it, in the order in which they are asked. At least one, at most
    /// [`HOLDERS_MAX`](super::HOLDERS_MAX), in an order by hash. If none of them serves it, the
    /// attempt ends.
    pub holders: Vec<PeerId>,
}

/// The part of an update that an earlier roster computed, and not the one that formed the update.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Part {
    /// The digest of that earlier roster.
    pub roster: Digest,
    /// The members that are in the sum and in the divisor.
    pub members: Vec<Member>,
    /// The blocks of the fragment that it has.
    pub blocks: Blocks,
}

impl Keep {
    /// All blocks that are kept of that ring.
    #[must_use]
    pub fn blocks(&self) -> Blocks {
        Blocks::of(self.chunks.iter().flat_map(|kept| kept.blocks.ranges()))
    }

    /// The owner of a chunk of that ring: position (chunk + n − 1) mod n. `None` if that ring has
    /// no chunk of this number.
    #[must_use]
    pub fn owner(&self, chunk: u32) -> Option<&Member> {
        let chunk = usize::try_from(chunk).ok().filter(|chunk| *chunk < self.members.len())?;
        self.members.get((chunk + self.members.len() - 1) % self.members.len())
    }

    /// The part of the update that the receipt names for it.
    #[must_use]
    pub fn part(&self) -> Part {
        Part { roster: self.roster, members: self.members.clone(), blocks: self.blocks() }
    }
}

/// Whether the members include this start of a peer with a weight.
#[must_use]
pub(super) fn names(members: &[Member], peer: &PeerId, incarnation: u64) -> bool {
    let same = |m: &Member| m.peer == *peer && m.incarnation == incarnation && m.weight > 0;
    members.iter().any(same)
}
