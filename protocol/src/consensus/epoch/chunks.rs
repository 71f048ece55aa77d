//! The finished chunks of the rings of the open epoch that are stored here, with their owners'
//! seals (R10).

use std::collections::{BTreeMap, BTreeSet};

use crate::base::id::Digest;
use crate::message::seal::Seal;
use crate::message::{CHUNKS_MAX, Finished};

/// Finished chunks of this epoch that we have, by roster and number.
#[derive(Clone, Debug, Default)]
pub(super) struct FinishedChunks {
    held: BTreeMap<(Digest, u32), Seal>,
    /// Chunks that a roster keeps and that nobody has delivered to us.
    undelivered: BTreeSet<(Digest, u32)>,
}

/// The most finished chunks that are remembered: those of the rings of a few attempts.
const FINISHED_MAX: usize = 4 * CHUNKS_MAX;

impl FinishedChunks {
    /// Notes that a finished chunk is stored here; beyond the bound it is not offered to others.
    pub(super) fn insert(&mut self, finished: Finished) {
        if self.held.len() < FINISHED_MAX {
            self.held.insert((finished.roster, finished.chunk), finished.seal);
        }
    }

    /// The chunks of this ring are gone from here, so a Report must not name them.
    pub(super) fn remove_ring(&mut self, roster: Digest) {
        self.held.retain(|(of, _), _| *of != roster);
    }

    /// Every chunk that is here, by roster and number.
    pub(super) fn all(&self) -> impl Iterator<Item = Finished> + '_ {
        let finished = |(at, seal): (&(Digest, u32), &Seal)| Finished {
            roster: at.0,
            chunk: at.1,
            seal: *seal,
        };
        self.held.iter().map(finished)
    }

    /// None of its holders has delivered this chunk to us.
    pub(super) fn note_undelivered(&mut self, chunk: (Digest, u32)) {
        if self.undelivered.len() < FINISHED_MAX {
            self.undelivered.insert(chunk);
        }
    }

    /// Whether no fetch of this chunk has failed here.
    pub(super) fn is_available(&self, chunk: &(Digest, u32)) -> bool {
        !self.undelivered.contains(chunk)
    }
}
