//! What is known of direct connections: ours, as our caller reports them, and those of other peers,
//! as their heartbeats say (R41, R42).
//!
//! A peer that nobody can dial can still have ring neighbours: those that it is connected with, in
//! whichever direction the connection was dialled. So a heartbeat names the voters that are alive
//! and *unlinked* with its author, and a proposer makes no two unlinked members neighbours. A false
//! claim costs only its author a ring position.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::base::id::PeerId;
use crate::base::time::Time;
use crate::machine::step::Step;
use crate::machine::table::{PeerRecord, PeerTable};
use crate::message::{Heartbeat, Series, Voter};

/// Heartbeats without a connection after which a peer counts as unlinked; until then the connection
/// may be replaced.
const PATIENCE_HEARTBEATS: u32 = 2;

/// The most peers that are joined with us: four times the members of a roster.
const LINKED_MAX: usize = 1_024;

/// Which peers are joined by direct connections, as far as it is known.
#[derive(Clone, Debug, Default)]
pub(super) struct Reach {
    /// What our caller reports; until it reports anything, all peers count as joined with us.
    own: Option<Own>,
    /// The series whose voters give the bits in heartbeats their meaning.
    series: Option<Series>,
    voters: Arc<[PeerId]>,
    /// What each peer last said of the voters of a series that we were in too.
    claims: BTreeMap<PeerId, Claim>,
}

/// What our caller has reported about our own connections.
#[derive(Clone, Debug, Default)]
struct Own {
    dialable: bool,
    /// The peers that are joined with us; at most [`LINKED_MAX`].
    linked: BTreeSet<PeerId>,
    /// Since when peers in the peer table are no longer joined with us.
    parted: BTreeMap<PeerId, Time>,
}

/// What a peer says of the voters of a series: one bit for each, in the order that they had.
#[derive(Clone, Debug)]
struct Claim {
    voters: Arc<[PeerId]>,
    bits: Vec<u8>,
}

impl Claim {
    /// The voters that the peer calls unlinked with it (R42).
    fn unlinked(&self) -> impl Iterator<Item = PeerId> {
        let bit = |at: usize| self.bits.get(at / 8).is_some_and(|b| b >> (at % 8) & 1 == 1);
        (0..).zip(self.voters.iter()).filter(move |(index, _)| bit(*index)).map(|(_, peer)| *peer)
    }
}

impl Own {
    /// Whether a live peer has not been joined with us for a while.
    fn is_unlinked(&self, table: &PeerTable, peer: &PeerId, seen: &PeerRecord, now: Time) -> bool {
        let since = || self.parted.get(peer).map_or(seen.since, |at| seen.since.max(*at));
        !self.linked.contains(peer) && now.since(since()) >= table.heartbeat * PATIENCE_HEARTBEATS
    }
}

impl Reach {
    /// Notes whether any peer can dial us.
    pub(super) fn set_dialable(&mut self, dialable: bool) {
        self.own.get_or_insert_default().dialable = dialable;
    }

    /// Notes whether a direct connection joins a peer with us.
    pub(super) fn set_linked(&mut self, step: &Step<'_>, peer: PeerId, linked: bool) {
        // A connection that closes says nothing of the others.
        if !linked && self.own.is_none() {
            return;
        }
        let own = self.own.get_or_insert_default();
        if !linked && own.linked.remove(&peer) {
            own.parted.retain(|peer, _| step.table.peers.contains_key(peer));
            own.parted.insert(peer, step.now);
        }
        if linked && own.linked.len() < LINKED_MAX {
            own.parted.remove(&peer);
            own.linked.insert(peer);
        }
    }

    /// Reads heartbeats by the voters of this series from now on.
    pub(super) fn follow(&mut self, table: &PeerTable, series: Series, voters: &[Voter]) {
        if self.series == Some(series) {
            return;
        }
        self.series = Some(series);
        self.voters = voters.iter().map(|voter| voter.peer).collect();
        self.claims.retain(|peer, _| table.peers.contains_key(peer));
        table.peers.iter().for_each(|(peer, seen)| self.hear(table, *peer, &seen.beat));
    }

    /// Reads what a heartbeat says of its author's connections.
    pub(super) fn hear(&mut self, table: &PeerTable, peer: PeerId, beat: &Heartbeat) {
        if self.series != Some(beat.series) {
            return;
        }
        self.claims.remove(&peer);
        if !beat.unlinked.is_empty() && beat.unlinked.len() == self.voters.len().div_ceil(8) {
            let (voters, bits) = (Arc::clone(&self.voters), beat.unlinked.clone());
            self.claims.insert(peer, Claim { voters, bits });
            table.bound(&mut self.claims, |_| false);
        }
    }

    /// Whether any peer can dial us, or a live peer is joined with us, or was a moment ago.
    pub(super) fn is_direct(&self, step: &Step<'_>) -> bool {
        let Some(own) = &self.own else { return true };
        let patience = step.table.heartbeat * PATIENCE_HEARTBEATS;
        let lately =
            |p: &PeerId| own.parted.get(p).is_some_and(|at| step.now.since(*at) < patience);
        let joined = |(peer, _): (&PeerId, &PeerRecord)| own.linked.contains(peer) || lately(peer);
        own.dialable || step.table.live(step.now).any(joined)
    }

    /// Whether a direct connection joins a peer with us, as far as our caller reports.
    pub(super) fn is_linked(&self, peer: &PeerId) -> bool {
        self.own.as_ref().is_none_or(|own| own.linked.contains(peer))
    }

    /// Whether a peer is heard and has been unlinked with us for a while.
    pub(super) fn is_unlinked(&self, step: &Step<'_>, peer: &PeerId) -> bool {
        let own = self.own.as_ref().zip(step.table.peers.get(peer));
        own.is_some_and(|(own, seen)| own.is_unlinked(step.table, peer, seen, step.now))
    }

    /// The peers that this peer last named as unlinked.
    pub(super) fn named_by(&self, peer: &PeerId) -> impl Iterator<Item = PeerId> {
        self.claims.get(peer).into_iter().flat_map(Claim::unlinked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::LogId;
    use crate::machine::table::{PEERS_MAX, beat, key, passing};

    #[test]
    fn r42_what_strangers_claim_under_one_key_after_another_is_bounded() {
        let mut reach = Reach::default();
        let voter = Voter { peer: PeerId([1; 32]), log: LogId([1; 16]) };
        let says = Heartbeat { unlinked: vec![1], ..beat() };
        passing(|table, peer| {
            reach.follow(table, says.series, &[voter]);
            reach.hear(table, peer, &says);
        });
        assert!(reach.claims.len() <= PEERS_MAX, "{}", reach.claims.len());
        assert!(reach.named_by(&key(0)).eq([voter.peer]), "it is still heard");
    }
}
