//! What the actor checks at every turn: that this process may have slept, and that peers are
//! silent.

use tokio::time::Instant;

use super::super::name;
use super::Actor;

impl Actor {
    /// Does one thing. What has piled up during a sleep is nobody's fault. The loop turns at each
    /// tick at least, so a pause of more than two seconds is a sleep and no busy turn
    /// (`crate::wake`).
    pub(super) fn turn(&mut self, act: impl FnOnce(&mut Self, Instant)) {
        let now = Instant::now();
        if self.turns.turn().is_some() {
            self.members.woke(now);
        }
        act(self, now);
    }

    /// Makes gossip skip silent peers that a direct message can reach; the driver sends its
    /// heartbeats to these directly. Gossip alone may reach the other silent ones, so they still
    /// get it. Each tick calls this again, since connections come and go.
    pub(super) fn hush(&mut self) {
        let silent = self.silent.borrow_and_update();
        let silent = silent.iter().map(|peer| name::to_libp2p(*peer));
        let peers = &self.members.peers;
        let direct = silent.filter(|peer| peers.control(peer).is_some()).collect();
        self.swarm.hush(direct);
    }
}
