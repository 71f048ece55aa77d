//! Which updates of the open epoch are here (R5).

use std::collections::BTreeSet;

use crate::id::Digest;

/// The updates of the open epoch that are here.
#[derive(Clone, Debug, Default)]
pub(super) struct Held {
    flushed: BTreeSet<Digest>,
    /// Those that the disk does not take.
    unflushed: BTreeSet<Digest>,
}

impl Held {
    pub(super) fn insert(&mut self, update: Digest) {
        self.flushed.insert(update);
    }

    pub(super) fn insert_unflushed(&mut self, update: Digest) {
        self.unflushed.insert(update);
    }

    pub(super) fn remove(&mut self, update: &Digest) {
        self.flushed.remove(update);
        self.unflushed.remove(update);
    }

    /// Whether it may be voted for (R5).
    pub(super) fn contains(&self, update: &Digest) -> bool {
        self.flushed.contains(update)
    }

    /// Whether it can be applied.
    pub(super) fn is_here(&self, update: &Digest) -> bool {
        self.contains(update) || self.unflushed.contains(update)
    }
}
