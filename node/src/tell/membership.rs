//! Sentences and events about membership: admissions, revocations, refusals and the organiser's notices.

use std::time::Duration;

use intellect_protocol::base::id::PeerId;
use intellect_protocol::message::{Attestation, Body, Notice};

use super::{Console, events};
use crate::name::PeerName;

impl Console {
    /// A peer is admitted, by the invite with this key or because the organiser named it.
    pub(super) fn admitted(&mut self, who: PeerId, invite: Option<PeerId>, epoch: u64) {
        let (who, invite) = (PeerName::from(who), invite.map(|key| key.hex()));
        let by = if invite.is_some() { "by an invite" } else { "by name" };
        self.say(&format!("peer {} is admitted {by}", who.short()));
        self.emit(Some(epoch), events::Event::Admitted { who, invite });
    }

    /// A peer refuses to admit this node. The node ends unless another peer admits it within `patience`.
    pub(crate) fn turned_away(&self, peer: PeerId, why: &str, patience: Duration) {
        let (peer, patience) = (PeerName::from(peer), patience.as_secs());
        self.say(&format!(
            "peer {} does not admit this node: {why}; asking others for {patience} s",
            peer.short()
        ));
    }

    pub(super) fn revoked(&mut self, who: PeerId, notice: u64, epoch: u64) {
        let who = PeerName::from(who);
        self.say(&format!("peer {} is revoked by notice {notice}", who.short()));
        self.emit(Some(epoch), events::Event::Revoked { who, notice });
    }

    /// A notice is known, or the receipt of this epoch has brought it into force.
    pub(super) fn notice(&mut self, notice: &Notice, in_force: Option<u64>) {
        let (number, digest) = notice.place();
        let event = match (&notice.body, in_force) {
            (Body::Attestation(_), Some(_)) => return,
            (Body::Attestation(Attestation { epoch, .. }), None) => {
                self.say(&format!("the organiser attests epoch {epoch} (notice {number})"));
                return self.emit(Some(*epoch), events::Event::Attested { number });
            }
            (Body::Membership(_), Some(epoch)) => {
                let next = epoch.saturating_add(1);
                self.say(&format!("notice {number} is in force from epoch {next} on"));
                events::Event::Membership { number, digest: digest.into(), in_force: true }
            }
            (Body::Membership(_), None) => {
                self.say(&format!("notice {number} has arrived and waits for the next epoch"));
                events::Event::Membership { number, digest: digest.into(), in_force: false }
            }
        };
        self.emit(in_force, event);
    }
}
