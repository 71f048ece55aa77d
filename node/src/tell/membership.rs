//! Sentences and events about membership: admissions, revocations, refusals and the organiser's notices.
//!
//! They occur only where the organiser decides who takes part, or attests states. A notice is
//! reported twice: when it arrives, and when the receipt of an epoch brings it into force for all
//! members at the same epoch. An attestation is reported only when it arrives.

use std::time::Duration;

use intellect_protocol::access::ledger::{Ledger, Revocation, Via};
use intellect_protocol::base::id::PeerId;
use intellect_protocol::message::{Attestation, Body, Notice};

use super::{Console, events};
use crate::name::PeerName;

impl Console {
    /// A peer is admitted, by the invite with this key or because the organiser named it. The ledger has its label.
    pub(super) fn admitted(
        &mut self,
        who: PeerId,
        invite: Option<PeerId>,
        epoch: u64,
        ledger: Option<&Ledger>,
    ) {
        let account = invite.and_then(|key| ledger?.invites().get(&key));
        let label = account.map(|account| account.label.as_str()).filter(|label| !label.is_empty());
        let by = match (invite, label) {
            (None, _) => "by name".to_owned(),
            (Some(_), None) => "by an invite".to_owned(),
            (Some(_), Some(label)) => format!("by invite {label}"),
        };
        let (who, invite) = (PeerName::from(who), invite.map(|key| key.hex()));
        self.say(&format!("{} is admitted {by}", self.named(&who)));
        self.emit(Some(epoch), events::Event::Admitted { who, invite });
    }

    /// How a sentence names a peer, which may be this node.
    fn named(&self, who: &PeerName) -> String {
        let is_own = self.sink().is_of(who);
        if is_own { "this node".to_owned() } else { format!("peer {}", who.short()) }
    }

    /// A peer refuses to admit this node. The node ends unless another peer admits it within
    /// `patience`. It is a sentence only, since another peer may admit it a moment later.
    pub(crate) fn turned_away(&self, peer: PeerId, why: &str, patience: Duration) {
        let (peer, patience) = (PeerName::from(peer), patience.as_secs());
        self.say(&format!(
            "peer {} does not admit this node: {why}; asking others for {patience} s",
            peer.short()
        ));
    }

    /// A peer, which may be this node, is revoked by the notice of this number.
    pub(super) fn revoked(&mut self, who: PeerId, notice: u64, epoch: u64) {
        let who = PeerName::from(who);
        self.say(&format!("{} is revoked by notice {notice}", self.named(&who)));
        self.emit(Some(epoch), events::Event::Revoked { who, notice });
    }

    /// In a run of invited peers: what its organiser can do about a peer that misbehaves.
    pub(crate) fn suggest_revoking(&self, peer: PeerId) {
        let peer = PeerName::from(peer);
        self.say(&format!(
            "only the organiser can put it out of the run: intellect-node invite revoke --peer {peer} \
             --key KEY --manifest MANIFEST --bootstrap MULTIADDR"
        ));
    }

    /// A notice is known, or is in force by the receipts up to this epoch. The ledger shows which of them
    /// has brought it into force.
    pub(super) fn notice(
        &mut self,
        notice: &Notice,
        in_force: Option<u64>,
        ledger: Option<&Ledger>,
    ) {
        let (number, digest) = notice.place();
        let since = in_force.and_then(|_| carried(ledger?, number));
        let event = match (&notice.body, in_force) {
            (Body::Attestation(_), Some(_)) => return,
            (Body::Attestation(Attestation { epoch, .. }), None) => {
                self.forks.hold_none();
                self.say(&format!("the organiser attests epoch {epoch} (notice {number})"));
                return self.emit(Some(*epoch), events::Event::Attested { number });
            }
            (Body::Membership(_), Some(_)) => {
                let from = since.map(|epoch| format!(" from epoch {} on", epoch.saturating_add(1)));
                self.say(&format!("notice {number} is in force{}", from.unwrap_or_default()));
                events::Event::Membership { number, digest: digest.into(), in_force: true }
            }
            (Body::Membership(_), None) => {
                self.say(&format!("notice {number} has arrived and waits for the next epoch"));
                events::Event::Membership { number, digest: digest.into(), in_force: false }
            }
        };
        self.emit(since, event);
    }
}

/// The epoch whose receipt carries a notice, by what it did; `None` if nothing of that stands.
fn carried(ledger: &Ledger, number: u64) -> Option<u64> {
    let peers = || ledger.peers().values();
    let admitted = peers().filter_map(|peer| match peer.came {
        Some((Via::Notice(notice), epoch)) => Some(Revocation { notice, epoch }),
        _ => None,
    });
    let revoked = peers().filter_map(|peer| peer.revoked);
    let closed = ledger.invites().values().filter_map(|invite| invite.revoked);
    let mut all = admitted.chain(revoked).chain(closed);
    all.find(|by| by.notice == number).map(|by| by.epoch)
}

#[cfg(test)]
mod tests {
    use intellect_protocol::base::id::RunId;
    use intellect_protocol::base::sign::Keypair;
    use intellect_protocol::message::Clause;

    use super::*;

    /// A node that was away learns several notices at once.
    #[test]
    fn each_notice_is_in_force_since_the_epoch_that_carried_it() {
        let (run, organiser) = (RunId([7; 32]), Keypair::from_seed(&[1; 32]));
        let mut ledger = Ledger::new(run, organiser.peer());
        let peer = |seed| PeerId([seed; 32]);
        for (epoch, clauses) in [
            (4, vec![Clause::Admit(peer(2))]),
            (6, vec![Clause::RevokePeer(peer(3))]),
            (9, vec![Clause::RevokePeer(peer(3))]),
        ] {
            let body = Body::Membership(clauses);
            ledger.take(epoch, &Notice::after(run, ledger.last(), body, &organiser));
        }
        let epochs = [1, 2, 3].map(|number| carried(&ledger, number));
        assert_eq!(epochs, [Some(4), Some(6), None], "the last one did nothing");
    }
}
