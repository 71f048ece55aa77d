//! Who can be whose neighbour in a ring (R41, R42), and how long a founding waits for that (R43).
//!
//! A peer that nobody can dial has neighbours all the same: those that it is connected with, whoever dialled. So a
//! heartbeat names the voters that are alive and *unlinked* with its author, and a proposer makes no two unlinked
//! members neighbours. What is said of somebody costs nobody else a place.

use crate::id::PeerId;
use crate::message::Voter;
use crate::step::Step;

use super::State;

impl State {
    /// R41: whether a ring can lead through us.
    #[must_use]
    pub fn is_direct(&self, step: &Step<'_>) -> bool {
        self.reach.is_direct(step)
    }

    /// R42: a bit for each voter of the open series that is alive and unlinked with us; nothing where there is none.
    #[must_use]
    pub fn unlinked(&self, step: &Step<'_>) -> Vec<u8> {
        let (voters, mut bits) = (self.voters(), Vec::new());
        for (index, Voter { peer, .. }) in voters.iter().enumerate() {
            // Asked at each input, and mostly everybody is linked.
            let linked = self.reach.is_linked(peer);
            if !linked && self.reach.is_unlinked(step, peer) && step.roll.alive(peer, step.now) {
                bits.resize(voters.len().div_ceil(8), 0);
                bits[index / 8] |= 1 << (index % 8);
            }
        }
        bits
    }

    /// Reads heartbeats by the voters of the open series, if that is another one now.
    pub(super) fn follow_series(&mut self, step: &Step<'_>) {
        let (series, voters) = (self.slot.series.name, &self.slot.series.voters);
        self.reach.follow(step.roll, series, voters);
    }

    /// Reads what a heartbeat says of connections.
    pub(super) fn learn_links(&mut self, step: &Step<'_>, peer: PeerId) {
        if let Some(seen) = step.roll.peers.get(&peer) {
            self.reach.hear(peer, &seen.beat);
        }
    }
}
