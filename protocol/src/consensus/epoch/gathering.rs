//! The known Regroups of the open series, and when it is our turn to propose one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::base::id::{Digest, PeerId};
use crate::base::sign::{Signature, Verified};
use crate::base::time::Time;
use crate::message::{Join, Message, Regroup};

/// What is known of the Regroups of the open series.
#[derive(Clone, Debug, Default)]
pub(super) struct Gathering {
    /// The Regroups by digest. Beyond [`KNOWN_MAX`] the one with the lowest number that we have not
    /// joined gives way.
    pub(super) known: BTreeMap<Digest, Known>,
    /// The highest number of a Regroup that was read; ours takes the next one.
    pub(super) number_seen: u64,
    /// The other peers that would take part in a founding, in order.
    pub(super) candidates: Vec<PeerId>,
    /// When a founding was first possible.
    pub(super) founding_since: Option<Time>,
    /// When it is our turn to propose a Regroup, and with which number.
    pub(super) turn: Option<Turn>,
    /// For how long claims of a greater head have delayed our Regroups, and since when one does so
    /// now (R12).
    pub(super) held: Duration,
    pub(super) held_since: Option<Time>,
    /// When we first joined a Regroup of this series.
    pub(super) joined_at: Option<Time>,
}

/// Our turn to propose a Regroup. It is void once a Regroup with that number is seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) number: u64,
    pub(super) due: Time,
}

/// A Regroup, as far as it is known: the Regroup itself, the message of its proposer to pass on,
/// and the Joins so far. A Join may come first.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pub(super) regroup: Option<Arc<Regroup>>,
    pub(super) signed: Option<Arc<Verified<Message>>>,
    pub(super) joins: BTreeMap<PeerId, (Join, Signature)>,
    /// Whether a member has signed two Joins: others may then open another series than we would.
    pub(super) is_torn: bool,
}

/// The most Regroups that are remembered of one series, and the most of them of which only a Join
/// is known.
const KNOWN_MAX: usize = 128;
const UNKNOWN_MAX: usize = 32;

impl Gathering {
    /// How many of the Regroups that `me` has joined are no smaller than the smallest before them.
    /// A smaller one has left out a peer that does not join: that is progress, and not counted.
    pub(super) fn stalled_count(&self, me: &PeerId) -> u32 {
        let mine = self.known.values().filter(|known| known.joins.contains_key(me));
        let sizes = mine.filter_map(|known| known.regroup.as_ref());
        let mut sizes: Vec<_> = sizes.map(|r| (r.number, r.members.len())).collect();
        sizes.sort_unstable();
        let mut smallest = usize::MAX;
        let stalled = sizes.iter().filter(|(_, size)| {
            let is_smaller = *size < smallest;
            smallest = smallest.min(*size);
            !is_smaller
        });
        u32::try_from(stalled.count()).unwrap_or(u32::MAX)
    }

    /// The peers that have joined the newest Regroup that `me` has joined.
    pub(super) fn joined_last(&self, me: &PeerId) -> Option<BTreeSet<PeerId>> {
        let number = |known: &&Known| known.regroup.as_ref().map_or(0, |r| r.number);
        let mine = self.known.values().filter(|known| known.joins.contains_key(me));
        mine.max_by_key(number).map(|known| known.joins.keys().copied().collect())
    }

    /// The peers that have joined any Regroup; one that has joined several comes several times.
    pub(super) fn joined_ever(&self) -> impl Iterator<Item = PeerId> {
        self.known.values().flat_map(|known| known.joins.keys().copied())
    }

    /// What is known of a Regroup. A full table drops the one of the lowest number that does not
    /// bind `me`.
    pub(super) fn known(&mut self, me: &PeerId, digest: Digest) -> &mut Known {
        let known = &mut self.known;
        if known.len() >= KNOWN_MAX && !known.contains_key(&digest) {
            let number = |known: &Known| known.regroup.as_ref().map_or(0, |r| r.number);
            let free = known.iter().filter(|(_, known)| !known.joins.contains_key(me));
            let lowest = free.min_by_key(|(_, known)| number(known)).map(|(digest, _)| *digest);
            lowest.and_then(|lowest| known.remove(&lowest));
        }
        known.entry(digest).or_default()
    }

    /// As [`Self::known`], if the Regroup is known or there is room for one of which only a Join is
    /// known.
    pub(super) fn joined(&mut self, me: &PeerId, digest: Digest) -> Option<&mut Known> {
        let unknown = self.known.values().filter(|known| known.regroup.is_none()).count();
        let room = self.known.contains_key(&digest) || unknown < UNKNOWN_MAX;
        room.then(|| self.known(me, digest))
    }

    /// How many Regroups that named a peer, and that `me` has joined, the peer has not joined.
    pub(super) fn missed_count(&self, me: &PeerId, peer: &PeerId) -> usize {
        let names = |r: &Arc<Regroup>| r.members.iter().any(|m| m.peer == *peer);
        let mine = self.known.values().filter(|known| known.joins.contains_key(me));
        let passed = mine.filter(|known| !known.joins.contains_key(peer));
        passed.filter(|known| known.regroup.as_ref().is_some_and(names)).count()
    }
}
