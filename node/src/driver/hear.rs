//! A message on its way in: counted, decoded, verified, and only then believed.

use std::sync::Arc;
use std::time::Instant;

use intellect_protocol::id::PeerId;
use intellect_protocol::message::Message;
use intellect_protocol::peer;
use intellect_protocol::sign::Verified;
use intellect_protocol::wire;

use super::Driver;
use super::budget::Ruling;
use super::twins::Twin;
use crate::net::{Verdict, Via};

/// Peers of another version that are named; more of them say nothing new.
const INCOMPATIBLE_MAX: usize = 256;

impl Driver {
    /// D1, D2: counts, decodes, verifies, then believes. What is wrong with a message is blamed on
    /// `from`, whose connection brought it: before the signature holds, its author is hearsay.
    pub(super) fn on_message(&mut self, from: PeerId, via: Via, bytes: &[u8]) {
        let gossip = matches!(via, Via::Gossip(_));
        let envelope = if gossip { bytes.get(4..).unwrap_or_default() } else { bytes };
        let author = wire::claimed_author(envelope).unwrap_or(from);
        match self.budgets.take(author, from, Instant::now().into()) {
            Ruling::Read => {}
            Ruling::Ignore => return self.verdict(via, Verdict::Ignore),
            Ruling::Fault => {
                self.net.fault(from, "more messages than anybody needs to send");
                return self.verdict(via, Verdict::Ignore);
            }
        }
        let run = self.manifest.id;
        let opened = if gossip {
            wire::open_gossip(&run, bytes)
        } else {
            wire::open(&run, bytes, wire::DIRECT_BYTES_MAX)
        };
        match opened {
            // A repeat of ours that somebody else made: passed on by us, it would count as ours.
            Ok(message) => {
                let (ours, message) = (message.author() == self.key.peer(), Arc::new(message));
                self.verdict(via, if ours { Verdict::Ignore } else { Verdict::Accept });
                self.meet_twin(from, &message);
                if !ours {
                    self.hear(peer::Input::Message(message));
                }
            }
            Err(wire::OpenError::Version(version)) => {
                self.verdict(via, Verdict::Ignore);
                self.incompatible(from, version.to_string());
            }
            Err(error) => {
                self.verdict(via, Verdict::Reject);
                self.net.fault(from, error.to_string());
            }
        }
    }

    fn verdict(&self, via: Via, verdict: Verdict) {
        if let Via::Gossip(token) = via {
            self.net.verdict(token, verdict);
        }
    }

    pub(super) fn incompatible(&mut self, peer: PeerId, version: String) {
        if self.incompatible.len() < INCOMPATIBLE_MAX && self.incompatible.insert(peer) {
            self.tell.incompatible(peer, version);
        }
    }

    /// Tells whoever runs with a key that another program has, as far as it is not this one.
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
