//! Which peers may take part in a run of invited peers (T1–T9): which of them a proposer names, and
//! what a voter demands.
//!
//! The ledger before the open epoch comes from the lineage. In addition each peer knows notices
//! that no receipt has carried yet, and which peers have shown a valid ticket. A peer that is
//! neither in nor holds one is a *stranger*: it counts for nothing, and none of its messages about
//! an epoch is read. A peer that is in, and that a known notice revokes, votes once more without a
//! ring position (T6).
//!
//! In an open run there is no ledger, and nothing here has any effect.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::access::admit::{ADMISSIONS_BYTES_MAX, Judge, TICKETS_MAX};
use crate::access::ledger::Ledger;
use crate::base::fault::AccessFault;
use crate::base::id::{Digest, PeerId};
use crate::base::rule::Rule;
use crate::machine::output::Output;
use crate::machine::step::{Decision, Step};
use crate::message::{
    Admissions, Keep, Member, Message, Receipt, Refusal, Regroup, Roster, Ticket, Voter,
};

use super::facts::{Facts, Process};
use super::known::Admission;
use super::open_epoch::Epoch;

impl Process {
    /// The ledger before the open epoch; `None` in open runs.
    pub(super) fn ledger(&self) -> Option<&Arc<Ledger>> {
        self.admission.as_ref().map(|admission| &admission.ledger)
    }

    /// Whether its owner has shown this very ticket, and its signatures were found to be good.
    pub(super) fn knows_ticket(&self, ticket: &Ticket) -> bool {
        let shown = self.admission.as_ref().and_then(|a| a.shown.get(&ticket.peer()));
        shown.is_some_and(|(known, may)| may.is_ok() && known == ticket)
    }

    /// Whether a peer is neither in nor holds a valid ticket.
    pub(super) fn is_stranger(&self, peer: &PeerId) -> bool {
        let Some(admission) = &self.admission else { return false };
        let holds = || admission.shown.get(peer).is_some_and(|(_, may)| may.is_ok());
        let is_me = *peer == self.me.peer;
        self.keeps(Rule::T2) && !is_me && admission.ledger.admits(peer).is_err() && !holds()
    }

    /// T6: whether a notice that is due revokes a peer that is in.
    pub(super) fn is_revocation_due(&self, peer: &PeerId) -> bool {
        let Some(admission) = &self.admission else { return false };
        admission.due.revokes(peer) && self.keeps(Rule::T6)
    }

    /// Whether the bounds on the number of newcomers hold (G5, G7). The organiser has chosen the
    /// peers that it admits, but where a third may lie it does not know which of them do.
    pub(super) fn bounds_newcomers(&self) -> bool {
        self.admission.is_none() || self.validator.quorum.prepares()
    }

    /// The voters after a receipt (R18, T6), and the ledger then.
    pub(super) fn after(&self, receipt: &Receipt) -> (Vec<Voter>, Option<Arc<Ledger>>) {
        match self.ledger() {
            None => (receipt.voters(), None),
            Some(ledger) => {
                let ledger = ledger.after(receipt);
                (ledger.voters(receipt), Some(ledger))
            }
        }
    }
}

// ---- what a proposer names ---------------------------------------------------------------------

/// T2, T3, T6: those of `members` that a roster may name, and what it must bring along. A
/// roster that adopts a value adds nothing (T7).
pub(super) fn admitted(
    facts: Facts<'_>,
    members: Vec<Member>,
    adopts: Option<&Receipt>,
) -> (Vec<Member>, Option<Box<Admissions>>) {
    if let (Some(admission), Some(_)) = (&facts.admission, adopts) {
        let may =
            |m: &Member| facts.names_voter(&m.peer) || admission.ledger.admits(&m.peer).is_ok();
        return (members.into_iter().filter(may).collect(), None);
    }
    let brought = bring_along(facts, members.iter().map(|member| member.peer));
    let Some((ledger, trust)) = brought else { return (members, None) };
    let may = |m: &Member| {
        let votes = m.weight == 0 && facts.voters().contains(&m.voter());
        ledger.admits(&m.peer).is_ok()
            || (votes && facts.is_revocation_due(&m.peer))
            || !facts.keeps(Rule::T2)
    };
    (members.into_iter().filter(may).collect(), trust)
}

/// T9: those of `members` that a Regroup of ours may name, and what it must bring along.
pub(super) fn gathered(
    facts: Facts<'_>,
    members: Vec<Voter>,
) -> (Vec<Voter>, Option<Box<Admissions>>) {
    let brought = bring_along(facts, members.iter().map(|member| member.peer));
    let Some((ledger, trust)) = brought else { return (members, None) };
    let may = |m: &Voter| ledger.admits(&m.peer).is_ok();
    (members.into_iter().filter(may).collect(), trust)
}

/// G8, T9: whether this Regroup could have named that peer as well: its ticket has uses left
/// after theirs.
pub(super) fn has_room(facts: Facts<'_>, regroup: &Regroup, peer: &PeerId) -> bool {
    let members = || regroup.members.iter().map(|member| member.peer);
    let Some((with, _)) = bring_along(facts, members().chain([*peer])) else { return true };
    with.admits(peer).is_ok() && members().all(|member| with.admits(&member).is_ok())
}

/// The notices that are due, and the tickets of `peers`, in order of peer, as far as each has
/// uses left and there is room; with the ledger after them. `None` in open runs.
fn bring_along(
    facts: Facts<'_>,
    peers: impl Iterator<Item = PeerId>,
) -> Option<(Ledger, Option<Box<Admissions>>)> {
    let admission = facts.admission.as_ref()?;
    let epoch = facts.series().epoch;
    let mut ledger = admission.ledger.as_ref().clone();
    let mut trust = Admissions::default();
    for notice in admission.pending() {
        trust.notices.push(notice.as_ref().clone());
        if trust.bytes() > ADMISSIONS_BYTES_MAX {
            trust.notices.pop();
            break;
        }
        ledger.take(epoch, &notice);
    }
    let mut bytes = trust.bytes();
    for peer in &peers.collect::<BTreeSet<_>>() {
        let shown = admission.shown.get(peer).map(|(ticket, _)| ticket);
        let own = if *peer == facts.me.peer { admission.ticket.as_ref() } else { None };
        let Some(ticket) = own.or(shown) else { continue };
        let longer = bytes + ticket.bytes();
        let room = trust.tickets.len() < TICKETS_MAX && longer <= ADMISSIONS_BYTES_MAX;
        let may = room
            && ledger.admits(peer).is_err()
            && ticket.check_clock(admission.unix(facts.step.now), Judge::Own).is_ok()
            && ledger.check_ticket(epoch, peer, ticket).is_ok();
        if may {
            bytes = longer;
            ledger.admit(epoch, ticket);
            trust.tickets.push(ticket.clone());
        }
    }
    Some((ledger, Some(Box::new(trust)).filter(|trust| !trust.is_empty())))
}

/// T6: a kept chunk with a share of a peer that is being revoked is computed again.
pub(super) fn without_revoked(facts: Facts<'_>, mut keep: Vec<Keep>) -> Vec<Keep> {
    keep.retain(|keep| keep.members.iter().all(|m| !facts.is_revocation_due(&m.peer)));
    keep
}

// ---- what a voter demands ----------------------------------------------------------------------

/// T2, T3, T7: what every proposer can check before it proposes.
pub(super) fn check_admitted(facts: Facts<'_>, roster: &Roster) -> Result<(), AccessFault> {
    if !facts.keeps(Rule::T2) {
        return Ok(());
    }
    let receipt = roster.receipt(Digest::ZERO);
    let known = |ticket: &Ticket| facts.knows_ticket(ticket);
    facts.validator.check_who(facts.ledger(), facts.voters(), roster, &receipt, known)
}

/// T4, T5: what only this voter can know. A proposer that lacks a notice gets it.
pub(super) fn check_trust(epoch: &mut Epoch<'_>, roster: &Roster) -> Result<(), Refusal> {
    let Some(admission) = &epoch.process.admission else { return Ok(()) };
    if !roster.is_free() {
        return Ok(());
    }
    let trust = roster.trust.as_deref();
    let carries =
        |number: u64| trust.is_some_and(|trust| trust.notices.iter().any(|n| n.number == number));
    if let Some(next) = admission.pending().first()
        && !carries(next.number)
        && epoch.validator.keeps(Rule::T5)
    {
        let notice = epoch.validator.seal(Message::Notice(next.as_ref().clone()));
        epoch.step.put(Output::Send(roster.proposer, notice));
        let (number, digest) = next.place();
        return Err(Refusal::Notice(number, digest));
    }
    let unix = admission.unix(epoch.step.now);
    let mut tickets = trust.into_iter().flat_map(|trust| &trust.tickets);
    let expired = tickets.find(|ticket| ticket.check_clock(unix, Judge::Second).is_err());
    expired.map_or(Ok(()), |ticket| Err(Refusal::Expired(ticket.peer())))
}

/// T10: whether the notices that a Regroup brings along revoke a peer.
pub(super) fn is_revoked_by(facts: Facts<'_>, regroup: &Regroup, peer: &PeerId) -> bool {
    let Some(ledger) = facts.ledger() else { return false };
    let mut ledger = ledger.as_ref().clone();
    let brought = regroup.trust.iter().flat_map(|trust| &trust.notices);
    brought.for_each(|notice| ledger.take(regroup.series.epoch, notice));
    ledger.revokes(peer)
}

/// T5: whether a refusal of our roster is justified by the notice that came with it.
pub(super) fn is_justified(facts: Facts<'_>, roster: &Roster, reason: Refusal) -> bool {
    let Refusal::Notice(number, digest) = reason else { return false };
    let mut carried = roster.trust.iter().flat_map(|trust| &trust.notices);
    let is_carried = carried.any(|notice| notice.number == number);
    let mut pending = facts.admission.iter().flat_map(Admission::pending);
    !is_carried && pending.any(|notice| notice.place() == (number, digest))
}

/// Learns the notices that a checked roster or Regroup brings along.
pub(super) fn learn_notices(step: &mut Step<'_>, trust: Option<&Admissions>) {
    let all = trust.into_iter().flat_map(|trust| &trust.notices);
    step.out.extend(all.map(|notice| Decision::Notice(Box::new(notice.clone()))));
}
