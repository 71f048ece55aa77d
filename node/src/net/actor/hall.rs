//! The actor at the door: who is let in, what this node shows elsewhere, and the visits that it gets.

use intellect_protocol::base::id::RunId;
use libp2p::PeerId;
use tokio::time::Instant;

use super::super::run::Run;
use super::Actor;

impl Actor {
    /// Who is let in has changed. Whoever no longer is has to begin anew, as any stranger.
    pub(super) fn on_door(&mut self, now: Instant) {
        let door = self.door.borrow_and_update().clone();
        self.carrier.swarm.behaviour_mut().gossip.set_door(door.clone());
        let is_entry = |peer: &PeerId| self.entries.contains(peer);
        let out = self.lobby.set_door(door, &self.members.peers, is_entry, now);
        for peer in out {
            // Fails only for a peer that is gone already.
            let _ = self.carrier.swarm.disconnect_peer_id(peer);
        }
    }

    /// From now on this is shown to whoever is connected.
    pub(super) fn show(&mut self, visit: Vec<u8>, now: Instant) {
        self.lobby.show(visit);
        self.pay_visits(now);
    }

    /// Looks for the peers of a run without being one.
    pub(super) fn seek(&mut self, id: RunId, now: Instant) {
        if self.run.is_none() {
            let run = self.run.insert(Run::sought(id, now));
            self.carrier.find(run, now);
        }
    }

    /// Closes the connections whose time in the lobby is over, and pays the visits that are due.
    pub(super) fn attend(&mut self, now: Instant) {
        for connection in self.lobby.over(now) {
            self.carrier.swarm.close_connection(connection);
        }
        self.pay_visits(now);
    }

    fn pay_visits(&mut self, now: Instant) {
        for due in self.lobby.take_due(&self.members.peers, now) {
            self.carrier.visit(due);
        }
    }
}
