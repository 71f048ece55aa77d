//! What the actor does about access: it follows the allow list, and sends and times admit requests.

use intellect_protocol::base::id::RunId;
use libp2p::PeerId;
use tokio::time::Instant;

use super::super::run::Run;
use super::Actor;

impl Actor {
    /// The allow list has changed. Peers that are no longer on it are disconnected, and begin anew
    /// as any other peer.
    pub(super) fn on_allow_list(&mut self, now: Instant) {
        let list = self.allowed.borrow_and_update().clone();
        self.swarm.set_allow_list(list.clone());
        let is_entry = |peer: &PeerId| self.entries.contains(peer);
        for peer in self.pending.set_allow_list(list, &self.members.peers, is_entry, now) {
            self.swarm.disconnect(peer);
        }
    }

    /// Sets what this node shows to be admitted: a ticket, a notice, or a mere question. Peers that
    /// have answered an earlier request get the new one too.
    pub(super) fn set_admit_request(&mut self, request: Vec<u8>, now: Instant) {
        self.pending.set_request(request);
        self.send_due_requests(now);
    }

    /// Looks for the peers of a run without becoming one: nothing is announced, subscribed or
    /// served. A node that has joined a run, or looks for one already, goes on with that.
    pub(super) fn seek(&mut self, id: RunId, most: usize, now: Instant) {
        if self.run.is_none() {
            let run = self.run.insert(Run::sought(id, most, now));
            self.swarm.find(run, now);
        }
    }

    /// Closes pending connections whose time is over, and sends the requests that are due. Every
    /// tick calls this, so a peer that neither asks nor is allowed occupies a slot for seconds
    /// only.
    pub(super) fn tend_pending(&mut self, now: Instant) {
        for connection in self.pending.over(now) {
            self.swarm.close(connection);
        }
        self.send_due_requests(now);
    }

    /// Sends the requests that are due, a few at a time; the next tick sends more.
    fn send_due_requests(&mut self, now: Instant) {
        for due in self.pending.take_due(&self.members.peers, now) {
            self.swarm.send_admit_request(due);
        }
    }
}
