//! The admitted peers of a lineage, counted again from its receipts: S9, S10.
//!
//! It is much less than a ledger: it only says what a receipt may not contain. Each state of the
//! tree has its own copy, since two lineages may admit and revoke different peers.

use std::collections::{BTreeMap, BTreeSet};

use super::{Verdict, require};
use intellect_protocol::base::id::PeerId;
use intellect_protocol::message::{Clause, Member, Notice, Receipt, Ticket};

/// The admissions after some epoch of a run of invited peers.
#[derive(Clone, Debug, Default)]
pub(super) struct Rights {
    /// The peers that take no part any more, until a notice admits them again by name.
    revoked: BTreeSet<PeerId>,
    /// The key of the invite with which each peer joined.
    by: BTreeMap<PeerId, PeerId>,
    /// How many peers joined with each invite.
    uses: BTreeMap<PeerId, u32>,
}

impl Rights {
    /// The rights after one more receipt: no peer that was revoked before is in it (S9), and no
    /// invite is used more often than it allows (S10).
    pub(super) fn after(&self, receipt: &Receipt) -> Result<Self, super::Violation> {
        let mut after = self.clone();
        let trust = receipt.trust.as_deref();
        trust.into_iter().flat_map(|trust| &trust.notices).for_each(|notice| after.update(notice));
        for ticket in trust.into_iter().flat_map(|trust| &trust.tickets) {
            after.admit(ticket)?;
        }
        let members = || receipt.members.iter();
        let parts = receipt.parts.iter().flat_map(|part| &part.members);
        self.allow(&receipt.members)?;
        for member in members().chain(parts).filter(|member| member.weight > 0) {
            s9(&after.revoked, &member.peer)?;
        }
        Ok(after)
    }

    /// S9: no peer that was revoked before is among these members.
    pub(super) fn allow(&self, members: &[Member]) -> Verdict {
        members.iter().try_for_each(|member| s9(&self.revoked, &member.peer))
    }

    /// Whether a peer votes in the next epoch, as far as notices decide that.
    pub(super) fn votes(&self, peer: &PeerId) -> bool {
        !self.revoked.contains(peer)
    }

    /// S10: an invite admits no more peers than it has uses. A ticket that the organiser signed for
    /// a named peer has no invite, and uses none up.
    fn admit(&mut self, ticket: &Ticket) -> Verdict {
        let Some(terms) = ticket.terms() else { return Ok(()) };
        let uses = self.uses.entry(terms.key).or_default();
        *uses += 1;
        require(*uses <= terms.uses, "S10", || {
            format!("{} of {} uses of invite {}", uses, terms.uses, terms.key)
        })?;
        self.by.insert(ticket.peer(), terms.key);
        Ok(())
    }

    /// Applies the organiser's notice to who may take part. To revoke an invite revokes the peers
    /// that came by it only if the notice says so.
    fn update(&mut self, notice: &Notice) {
        for clause in notice.clauses() {
            match clause {
                Clause::RevokePeer(peer) => {
                    self.revoked.insert(*peer);
                }
                Clause::RevokeInvite { key, admitted: true } => {
                    let came = self.by.iter().filter(|(_, by)| *by == key);
                    self.revoked.extend(came.map(|(peer, _)| *peer));
                }
                Clause::Admit(peer) => {
                    self.revoked.remove(peer);
                    self.by.remove(peer);
                }
                Clause::RevokeInvite { admitted: false, .. } => {}
            }
        }
    }
}

/// S9: no revoked peer is a member or a voter of what is committed.
fn s9(revoked: &BTreeSet<PeerId>, peer: &PeerId) -> Verdict {
    require(!revoked.contains(peer), "S9", || format!("{peer} takes part, and was revoked"))
}
