//! Whether every peer that a roster, a receipt or a Regroup names may take part (T2, T6, T7, T9).
//! Any peer that has the ledger before it can decide that.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Validator;
use crate::access::ledger::Ledger;
use crate::base::fault::{AccessFault, require};
use crate::base::id::PeerId;
use crate::message::{Absence, Member, Receipt, Regroup, Roster, Ticket, Voter};

impl Validator {
    /// T2, T6: whether a roster of these voters, whose value has this
    /// receipt, names only admitted peers. The signatures of `known` tickets were checked before.
    ///
    /// # Errors
    /// The fault of its proposer, which could have checked it.
    pub fn check_who(
        &self,
        ledger: Option<&Arc<Ledger>>,
        voters: &[Voter],
        roster: &Roster,
        receipt: &Receipt,
        known: impl Fn(&Ticket) -> bool,
    ) -> Result<(), AccessFault> {
        let Some(before) = ledger else {
            let open = receipt.trust.is_none() && roster.trust.is_none();
            return require(open, AccessFault::OpenToAll);
        };
        let (epoch, trust) = (receipt.series.epoch, receipt.trust.as_deref());
        let members = receipt.members.iter().map(|member| member.peer).collect();
        let after = before.with_known(epoch, &members, trust, known);
        let after = after.map_err(|unlawful| unlawful.fault())?;
        let votes = |member: &Member| voters.contains(&member.voter());
        // T6: a voter that this receipt revokes still votes on this epoch, and on no other.
        let goes = |m: &Member| m.weight == 0 && after.revokes(&m.peer) && !before.revokes(&m.peer);
        let is_in = |m: &Member| after.admits(&m.peer).is_ok();
        require(receipt.members.iter().all(|m| is_in(m) || goes(m)), AccessFault::NotAdmitted)?;
        require(!after.voters(receipt).is_empty(), AccessFault::NoVoterLeft)?;
        let mut parts = receipt.parts.iter().flat_map(|part| &part.members);
        require(parts.all(|m| !after.revokes(&m.peer)), AccessFault::RevokedShare)?;
        // A roster that adopts a value names voters; other peers' work is admitted
        // with the value, not their vote.
        let may = |m: &Member| is_in(m) || votes(m);
        require(roster.is_free() || roster.members.iter().all(may), AccessFault::NotAdmitted)?;
        require(roster.is_free() || roster.trust.is_none(), AccessFault::NoticesBesideValue)
    }

    /// T9, T10: whether a Regroup names only admitted peers, and calls only revoked voters revoked.
    /// The signatures of `known` tickets were checked before.
    ///
    /// # Errors
    /// The fault of its proposer, which could have checked it.
    pub fn check_gathered(
        &self,
        ledger: Option<&Arc<Ledger>>,
        regroup: &Regroup,
        known: impl Fn(&Ticket) -> bool,
    ) -> Result<(), AccessFault> {
        let Regroup { series, members, absent, trust, .. } = regroup;
        let mut revoked = absent.iter().filter(|(_, why)| *why == Absence::Revoked);
        let Some(before) = ledger else {
            require(trust.is_none(), AccessFault::OpenToAll)?;
            return require(revoked.next().is_none(), AccessFault::RevokesInOpenRun);
        };
        let peers: BTreeSet<PeerId> = members.iter().map(|member| member.peer).collect();
        let after = before.with_known(series.epoch, &peers, trust.as_deref(), known);
        let after = after.map_err(|unlawful| unlawful.fault())?;
        let all_in = peers.iter().all(|peer| after.admits(peer).is_ok());
        require(all_in, AccessFault::RegroupOfStranger)?;
        require(revoked.all(|(v, _)| after.revokes(&v.peer)), AccessFault::NotRevoked)
    }
}
