//! What is told of who is in: who came, who was revoked or refused, and what the authorities decreed.

use std::time::Duration;

use intellect_protocol::id::PeerId;
use intellect_protocol::message::Decree;

use super::{Teller, events, names};
use crate::name::PeerName;

impl Teller {
    /// A peer is in, by the invite of this key or because the authorities named it.
    pub(super) fn admitted(&mut self, who: PeerId, invite: Option<PeerId>, epoch: u64) {
        let (who, invite) = (PeerName::from(who), invite.map(|key| key.hex()));
        let by = if invite.is_some() { "by an invite" } else { "by name" };
        self.say(&format!("peer {} is admitted {by}", who.short()));
        self.emit(Some(epoch), events::Event::Admitted { who, invite });
    }

    /// A peer does not let this node in, and nobody else does: it ends then, unless another one does.
    pub(crate) fn turned_away(&self, peer: PeerId, why: &str, patience: Duration) {
        let (peer, patience) = (PeerName::from(peer), patience.as_secs());
        self.say(&format!(
            "peer {} does not let this node in: {why}; asking others for {patience} s",
            peer.short()
        ));
    }

    /// A peer is out.
    pub(super) fn revoked(&mut self, who: PeerId, decree: u64, epoch: u64) {
        let who = PeerName::from(who);
        self.say(&format!("peer {} is revoked by decree {decree}", who.short()));
        self.emit(Some(epoch), events::Event::Revoked { who, decree });
    }

    /// A decree is known, or the receipt of this epoch has brought it into force.
    pub(super) fn decree(&mut self, decree: &Decree, in_force: Option<u64>) {
        let (number, digest) = (decree.number, decree.digest().into());
        match in_force {
            Some(epoch) => {
                let next = epoch.saturating_add(1);
                self.say(&format!("decree {number} is in force from epoch {next} on"));
            }
            None => self.say(&format!("decree {number} has come, and waits for the next epoch")),
        }
        let is_in_force = in_force.is_some();
        let event = events::Event::Decree { number, digest, in_force: is_in_force };
        self.emit(in_force, event);
    }

    /// The authorities have signed two decrees of one number.
    pub(super) fn conflict(&mut self, number: u64, signers: Vec<PeerId>) {
        let signers = names(signers);
        let who: Vec<&str> = signers.iter().map(PeerName::short).collect();
        let who = who.join(", ");
        self.say(&format!("two decrees have number {number}, signed by {who}: one of them counts"));
        self.emit(None, events::Event::DecreeConflict { number, signers });
    }

    /// Decrees count for nothing, since another lineage was followed.
    pub(super) fn void(&mut self, numbers: Vec<u64>) {
        let told: Vec<String> = numbers.iter().map(u64::to_string).collect();
        let told = told.join(", ");
        self.say(&format!("decrees {told} do not fit this lineage: their authors must sign anew"));
        self.emit(None, events::Event::DecreeVoid { numbers });
    }
}
