//! Which updates of the open epoch are here (R5).

use std::collections::BTreeMap;

use crate::base::id::Digest;

use super::interface::Durability;

/// The updates of the open epoch that are here.
#[derive(Clone, Debug, Default)]
pub(super) struct Held(BTreeMap<Digest, Durability>);

impl Held {
    /// An update is here; one that was flushed stays so.
    pub(super) fn insert(&mut self, update: Digest, durability: Durability) {
        let known = self.0.entry(update).or_insert(durability);
        *known = durability.max(*known);
    }

    pub(super) fn remove(&mut self, update: &Digest) {
        self.0.remove(update);
    }

    /// Whether it may be voted for (R5).
    pub(super) fn contains(&self, update: &Digest) -> bool {
        self.0.get(update) == Some(&Durability::Flushed)
    }

    /// Whether it can be applied.
    pub(super) fn is_here(&self, update: &Digest) -> bool {
        self.0.contains_key(update)
    }
}
