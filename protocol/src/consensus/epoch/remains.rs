//! What is left here of the rings of the open epoch: finished chunks, with their owners' words (R10).

use std::collections::{BTreeMap, BTreeSet};

use crate::base::id::Digest;
use crate::message::seal::Seal;
use crate::message::{CHUNKS_MAX, Finished};

/// Finished chunks of this epoch that we hold, by roster and number.
#[derive(Clone, Debug, Default)]
pub(super) struct Remains {
    held: BTreeMap<(Digest, u32), Seal>,
    /// Kept chunks that nobody has delivered to us.
    undelivered: BTreeSet<(Digest, u32)>,
}

/// The most finished chunks that are remembered: those of the rings of a few attempts.
const REMAINS_MAX: usize = 4 * CHUNKS_MAX;

impl Remains {
    pub(super) fn hold(&mut self, finished: Finished) {
        if self.held.len() < REMAINS_MAX {
            self.held.insert((finished.roster, finished.chunk), finished.seal);
        }
    }

    pub(super) fn lose(&mut self, roster: Digest) {
        self.held.retain(|(of, _), _| *of != roster);
    }

    pub(super) fn all(&self) -> impl Iterator<Item = Finished> + '_ {
        let finished = |(at, seal): (&(Digest, u32), &Seal)| Finished {
            roster: at.0,
            chunk: at.1,
            seal: *seal,
        };
        self.held.iter().map(finished)
    }

    /// None of its holders has delivered this chunk to us.
    pub(super) fn miss(&mut self, chunk: (Digest, u32)) {
        if self.undelivered.len() < REMAINS_MAX {
            self.undelivered.insert(chunk);
        }
    }

    /// Whether nobody has tried in vain to fetch a chunk here.
    pub(super) fn may_be_had(&self, chunk: &(Digest, u32)) -> bool {
        !self.undelivered.contains(chunk)
    }
}
