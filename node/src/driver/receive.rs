//! Whether a message may come in: it is decoded, verified and counted before the state sees it and before
//! gossip passes it on.
//!
//! The way of a message: `net` bounds its length and how much one connection may send.
//! [`Driver::on_message`] decodes it and checks its signature. From then on its author is certain,
//! and a budget for the author applies if another peer has brought it. Then gossip gets its
//! verdict, the search for twins a look, and the state the message.
//!
//! A verdict of *reject* blames the neighbour that passed the message on, so it is only for what no
//! honest peer passes on. *Ignore* blames nobody.

pub(super) mod budget;
mod forward;

use std::sync::Arc;
use std::time::Instant;

use intellect_protocol::base::id::PeerId;
use intellect_protocol::base::sign::Verified;
use intellect_protocol::message::{Message, wire};
use intellect_protocol::peer;

use self::forward::Worth;
use super::Driver;
use super::access::is_first;
use super::twins::Twin;
use crate::net::{Verdict, Via};

impl Driver {
    /// D1, D2: decodes, verifies and counts a message. Its faults are those of `from`, whose connection
    /// brought it: until the signature is verified, the author is only claimed.
    ///
    /// Another version of the protocol is no fault. It is reported once for each peer, and the
    /// message is dropped.
    pub(super) fn on_message(&mut self, from: PeerId, via: Via, bytes: &[u8]) {
        let run = self.manifest.id;
        let opened = match via {
            Via::Gossip(_) => wire::open_gossip(&run, bytes),
            Via::Direct => wire::open(&run, bytes, wire::DIRECT_BYTES_MAX),
        };
        match opened {
            Ok(message) => self.on_opened(from, via, bytes.len(), Arc::new(message)),
            Err(wire::OpenError::Version(version)) => {
                self.verdict(via, Verdict::Ignore);
                self.incompatible(from, version.to_string(), &wire::VERSION.to_string());
            }
            Err(error) => {
                self.verdict(via, Verdict::Reject);
                self.net.fault(from, error.to_string());
            }
        }
    }

    /// Takes a message whose signature is valid. Its author is known now, so a budget of its own
    /// applies where another peer brought it. Gossip gets its verdict before the state has read the
    /// message, so a message that leads to much work is passed on at once.
    fn on_opened(&mut self, from: PeerId, via: Via, bytes: usize, message: Arc<Verified<Message>>) {
        let (author, now) = (message.author(), Instant::now().into());
        if author != from && !self.budgets.is_read(author, bytes, now) {
            return self.verdict(via, Verdict::Ignore);
        }
        if author == from && via == Via::Direct && matches!(message.body(), Message::Heartbeat(_)) {
            self.net.spoke(from);
        }
        // Another peer has repeated a message of ours. Passed on by us, it would count as ours again.
        let ours = author == self.key.peer();
        if matches!(via, Via::Gossip(_)) {
            let passed_on = !ours
                && match forward::worth(self.holdings.peer(), &message) {
                    Worth::Voter => true,
                    Worth::Other => self.budgets.is_passed_on(bytes, now),
                    Worth::Nothing => false,
                };
            self.verdict(via, if passed_on { Verdict::Accept } else { Verdict::Ignore });
        }
        self.meet_twin(from, &message);
        if !ours {
            self.peer_input(peer::Input::Message(message));
        }
    }

    /// Tells gossip whether to pass a message on. A direct message has no verdict, since nobody
    /// passes it on.
    fn verdict(&self, via: Via, verdict: Verdict) {
        if let Via::Gossip(token) = via {
            self.net.verdict(token, verdict);
        }
    }

    /// Reports once that a peer speaks another version of the protocol.
    /// It may come from a message, or from the protocols that libp2p's identify names.
    pub(super) fn incompatible(&mut self, peer: PeerId, version: String, ours: &str) {
        if is_first(&mut self.access.incompatible, peer) {
            self.tell.incompatible(peer, version, ours);
        }
    }

    /// Tells a peer that another program runs with its key. Both programs get the proof, since it
    /// is sent on each connection of that key; if the key is ours, this node ends itself.
    pub(super) fn meet_twin(&mut self, from: PeerId, message: &Arc<Verified<Message>>) {
        match self.twins.note(Instant::now(), from, message) {
            Some(Twin::Ours) => self.tell.twin(message.author()),
            Some(Twin::Theirs { proof, news }) => {
                self.net.send_to_all(message.author(), wire::envelope(&proof));
                if news {
                    self.tell.twin(message.author());
                }
            }
            None => {}
        }
    }
}
