//! Which updates of the open epoch are stored here, and how safely (R5); and those of later epochs that votes name.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::id::Digest;

use super::interface::Durability;

/// The updates by digest. In memory only they can be applied, but not voted for.
#[derive(Clone, Debug, Default)]
pub(super) struct StoredUpdates(BTreeMap<Digest, Durability>);

impl StoredUpdates {
    /// Notes that an update is stored; one that was flushed stays flushed.
    pub(super) fn insert(&mut self, update: Digest, durability: Durability) {
        let known = self.0.entry(update).or_insert(durability);
        *known = durability.max(*known);
    }

    /// Forgets an update that is not stored any more, or never came.
    pub(super) fn remove(&mut self, update: &Digest) {
        self.0.remove(update);
    }

    /// Forgets all others than these, at the end of an epoch.
    pub(super) fn keep(&mut self, named: &BTreeSet<Digest>) {
        self.0.retain(|update, _| named.contains(update));
    }

    /// Whether it is flushed, so that it may be voted for (R5).
    pub(super) fn is_flushed(&self, update: &Digest) -> bool {
        self.0.get(update) == Some(&Durability::Flushed)
    }

    /// Whether it is stored at all, so that it can be applied.
    pub(super) fn is_stored(&self, update: &Digest) -> bool {
        self.0.contains_key(update)
    }
}
