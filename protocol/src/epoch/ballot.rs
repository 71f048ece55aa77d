//! One ballot: a roster, and what was said of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::id::{Digest, PeerId};
use crate::message::{Message, Roster};
use crate::sign::{Signature, Verified};

/// A roster, as far as it is known.
#[derive(Clone, Debug, Default)]
pub(super) struct Ballot {
    pub(super) roster: Option<Arc<Roster>>,
    /// The message of its proposer, to pass on.
    pub(super) signed: Option<Arc<Verified<Message>>>,
    /// Who accepts it, with the signature over its `Accept`.
    pub(super) accepts: BTreeMap<PeerId, Signature>,
    /// Which update each voter says to hold, with the signature over its `Prepared`.
    pub(super) prepared: BTreeMap<PeerId, (Digest, Signature)>,
    pub(super) dones: BTreeMap<PeerId, Vote>,
    pub(super) ring: RingState,
    /// The update that our own ring gave.
    pub(super) computed: Option<Digest>,
}

/// A `Done`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vote {
    pub(super) r: Digest,
    pub(super) update: Digest,
    pub(super) signature: Signature,
}

/// Whether our ring of a roster runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RingState {
    #[default]
    Closed,
    Running,
    Lost,
}

impl Ballot {
    /// The attempt of its roster; 0 while that is not known.
    pub(super) fn attempt(&self) -> u64 {
        self.roster.as_ref().map_or(0, |roster| roster.attempt)
    }

    /// The value that most have voted for. One roster has one value (R11): with honest voters, all.
    pub(super) fn value(&self) -> Option<Vote> {
        let first = self.dones.values().next()?;
        let count = |vote: &Vote| self.dones.values().filter(|other| other.r == vote.r).count();
        if count(first) == self.dones.len() {
            return Some(*first);
        }
        self.dones.values().max_by_key(|vote| (count(vote), vote.r)).copied()
    }

    /// The update that most voters say to hold.
    pub(super) fn most_prepared(&self) -> Option<Digest> {
        let updates = || self.prepared.values().map(|(update, _)| *update);
        updates().max_by_key(|update| (updates().filter(|other| other == update).count(), *update))
    }

    /// Whether our ring was lost, and nobody has got its update.
    pub(super) fn is_ring_lost(&self) -> bool {
        self.ring == RingState::Lost && self.dones.is_empty()
    }

    /// Whether `peer` has voted for `r`.
    pub(super) fn has_voted(&self, peer: &PeerId, r: Digest) -> bool {
        self.dones.get(peer).is_some_and(|vote| vote.r == r)
    }

    /// R11: whether nobody has voted for another value than the others.
    pub(super) fn has_one_value(&self) -> bool {
        let mut values = self.dones.values().map(|vote| vote.r);
        let first = values.next();
        values.all(|r| Some(r) == first)
    }
}
