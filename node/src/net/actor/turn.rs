//! What the actor minds at every turn: that this process may have slept, and that others are silent.

use tokio::time::Instant;

use super::super::name;
use super::Actor;

impl Actor {
    /// Does one thing. After a sleep, what comes has piled up, which is nobody's fault.
    pub(super) fn turn(&mut self, act: impl FnOnce(&mut Self, Instant)) {
        let now = Instant::now();
        if self.turns.turn().is_some() {
            self.members.woke(now);
        }
        act(self, now);
    }

    /// Nothing goes by gossip to those who are silent and can be told otherwise that we live.
    pub(super) fn hush(&mut self) {
        let silent = self.silent.borrow_and_update();
        let silent = silent.iter().map(|peer| name::to_libp2p(*peer));
        let peers = &self.members.peers;
        let direct = silent.filter(|peer| peers.control(peer).is_some()).collect();
        self.carrier.hush(direct);
    }
}
