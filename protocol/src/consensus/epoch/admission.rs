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

use crate::access::admit::{ADMISSIONS_BYTES_MAX, Denied, Judge, TICKETS_MAX};
use crate::access::ledger::{Ledger, Via};
use crate::access::notices::Notices;
use crate::base::fault::AccessFault;
use crate::base::id::PeerId;
use crate::base::rule::Rule;
use crate::machine::event::Event;
use crate::machine::output::Output;
use crate::machine::step::{Decision, Step};
use crate::message::{
    Admissions, Keep, Member, Message, Notice, Receipt, Refusal, Regroup, Roster, Ticket, Voter,
};

use super::State;
use super::known::Admission;

/// The most strangers whose refusal is reported to the user.
const REPORTED_MAX: usize = 256;

impl State {
    /// The ledger before the open epoch; `None` in open runs.
    #[must_use]
    pub fn ledger(&self) -> Option<&Arc<Ledger>> {
        self.admission.as_ref().map(|admission| &admission.ledger)
    }

    /// The ticket that our heartbeats show: ours, until the ledger of our head admits us.
    #[must_use]
    pub fn ticket(&self) -> Option<&Ticket> {
        let admission = self.admission.as_ref()?;
        let is_in = admission.ledger.admits(&self.me.peer).is_ok();
        if is_in { None } else { admission.ticket.as_ref() }
    }

    /// The notices that are known and in no receipt of our lineage, in order, at most as many as a
    /// roster carries.
    fn pending(&self) -> Vec<Arc<Notice>> {
        self.admission.as_ref().map_or_else(Vec::new, Admission::pending)
    }

    // ---- what others show ----------------------------------------------------------------------

    /// Checks the ticket of a peer that was heard.
    pub(super) fn learn_ticket(&mut self, step: &mut Step<'_>, peer: PeerId) {
        let Some(admission) = &self.admission else { return };
        let ticket = step.table.peers.get(&peer).and_then(|seen| seen.beat.ticket.as_deref());
        let is_in = admission.due.admits(&peer);
        if is_in.is_ok() {
            self.forget_shown(&peer);
            return;
        }
        let epoch = self.series().epoch;
        let denied = match ticket {
            None => Err(is_in.err().unwrap_or(Denied::Full)),
            Some(ticket) => {
                if admission.shown.get(&peer).is_some_and(|(known, _)| known == ticket) {
                    return;
                }
                ticket
                    .check_clock(admission.unix(step.now), Judge::Own)
                    .and_then(|()| admission.due.check_ticket(epoch, &peer, ticket))
            }
        };
        self.note_shown(step, peer, ticket.cloned(), denied);
    }

    fn forget_shown(&mut self, peer: &PeerId) {
        if let Some(admission) = &mut self.admission {
            admission.shown.remove(peer);
            admission.reported.remove(peer);
        }
    }

    fn note_shown(
        &mut self,
        step: &mut Step<'_>,
        peer: PeerId,
        ticket: Option<Ticket>,
        may: Result<(), Denied>,
    ) {
        let Some(admission) = &mut self.admission else { return };
        let kind = std::mem::discriminant::<Denied>;
        if let Err(why) = &may
            && admission.reported.get(&peer).map(kind) != Some(kind(why))
            && (admission.reported.len() < REPORTED_MAX || admission.reported.contains_key(&peer))
        {
            admission.reported.insert(peer, why.clone());
            step.put(Output::Event(Event::Refused { who: peer, why: why.clone() }));
        }
        match ticket {
            Some(ticket) => admission.shown.insert(peer, (ticket, may)),
            None => admission.shown.remove(&peer),
        };
    }

    /// Checks all tickets again, since the ledger or the notices have changed.
    fn learn_tickets(&mut self, step: &mut Step<'_>) {
        let Some(admission) = &mut self.admission else { return };
        admission.shown.clear();
        let table = step.table;
        admission.reported.retain(|peer, _| table.peers.contains_key(peer));
        table.peers.keys().for_each(|peer| self.learn_ticket(step, *peer));
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

    // ---- what a proposer names -----------------------------------------------------------------

    /// T2, T3, T6: those of `members` that a roster may name, and what it must bring along. A
    /// roster that adopts a value adds nothing (T7).
    pub(super) fn admitted(
        &self,
        step: &Step<'_>,
        members: Vec<Member>,
        adopts: Option<&Receipt>,
    ) -> (Vec<Member>, Option<Box<Admissions>>) {
        let Some(admission) = &self.admission else { return (members, None) };
        if adopts.is_some() {
            let may =
                |m: &Member| self.names_voter(&m.peer) || admission.ledger.admits(&m.peer).is_ok();
            return (members.into_iter().filter(may).collect(), None);
        }
        let peers: BTreeSet<PeerId> = members.iter().map(|member| member.peer).collect();
        let (ledger, trust) = self.bring_along(step, &peers);
        let may = |m: &Member| {
            let votes = m.weight == 0 && self.voters().contains(&m.voter());
            ledger.admits(&m.peer).is_ok()
                || (votes && self.is_revocation_due(&m.peer))
                || !self.keeps(Rule::T2)
        };
        (members.into_iter().filter(may).collect(), trust)
    }

    /// T9: those of `members` that a Regroup of ours may name, and what it must bring along.
    pub(super) fn gathered(
        &self,
        step: &Step<'_>,
        members: Vec<Voter>,
    ) -> (Vec<Voter>, Option<Box<Admissions>>) {
        if self.admission.is_none() {
            return (members, None);
        }
        let peers: BTreeSet<PeerId> = members.iter().map(|member| member.peer).collect();
        let (ledger, trust) = self.bring_along(step, &peers);
        let may = |m: &Voter| ledger.admits(&m.peer).is_ok();
        (members.into_iter().filter(may).collect(), trust)
    }

    /// G8, T9: whether this Regroup could have named that peer as well: its ticket has uses left
    /// after theirs.
    pub(super) fn has_room(&self, step: &Step<'_>, regroup: &Regroup, peer: &PeerId) -> bool {
        if self.admission.is_none() {
            return true;
        }
        let members = || regroup.members.iter().map(|member| member.peer);
        let (with, _) = self.bring_along(step, &members().chain([*peer]).collect());
        with.admits(peer).is_ok() && members().all(|member| with.admits(&member).is_ok())
    }

    /// The notices that are due, and the tickets of `peers`, in order of peer, as far as each has
    /// uses left and there is room; with the ledger after them.
    fn bring_along(
        &self,
        step: &Step<'_>,
        peers: &BTreeSet<PeerId>,
    ) -> (Arc<Ledger>, Option<Box<Admissions>>) {
        let Some(admission) = &self.admission else { unreachable!("of runs of invited peers") };
        let epoch = self.series().epoch;
        let mut ledger = admission.ledger.as_ref().clone();
        let mut trust = Admissions::default();
        for notice in admission.pending() {
            ledger.take(epoch, &notice);
            trust.notices.push(notice.as_ref().clone());
            if trust.bytes() > ADMISSIONS_BYTES_MAX {
                trust.notices.pop();
                break;
            }
        }
        let mut bytes = trust.bytes();
        for peer in peers {
            let shown = admission.shown.get(peer).map(|(ticket, _)| ticket);
            let own = if *peer == self.me.peer { admission.ticket.as_ref() } else { None };
            let Some(ticket) = own.or(shown) else { continue };
            bytes += ticket.bytes();
            let room = trust.tickets.len() < TICKETS_MAX && bytes <= ADMISSIONS_BYTES_MAX;
            let may = room
                && ledger.admits(peer).is_err()
                && ticket.check_clock(admission.unix(step.now), Judge::Own).is_ok()
                && ledger.check_ticket(epoch, peer, ticket).is_ok();
            if may {
                ledger.admit(epoch, ticket);
                trust.tickets.push(ticket.clone());
            } else {
                bytes -= ticket.bytes();
            }
        }
        (Arc::new(ledger), Some(Box::new(trust)).filter(|trust| !trust.is_empty()))
    }

    /// T6: a kept chunk with a share of a peer that is being revoked is computed again.
    pub(super) fn without_revoked(&self, mut keep: Vec<Keep>) -> Vec<Keep> {
        keep.retain(|keep| keep.members.iter().all(|m| !self.is_revocation_due(&m.peer)));
        keep
    }

    // ---- what a voter demands ------------------------------------------------------------------

    /// T2, T3, T7: what every proposer can check before it proposes.
    pub(super) fn check_admitted(&self, roster: &Roster) -> Result<(), AccessFault> {
        if !self.keeps(Rule::T2) {
            return Ok(());
        }
        let receipt = roster.receipt(crate::base::id::Digest::ZERO);
        self.validator.check_who(self.ledger(), self.voters(), roster, &receipt)
    }

    /// T4, T5: what only this voter can know.
    pub(super) fn check_trust(&self, step: &mut Step<'_>, roster: &Roster) -> Result<(), Refusal> {
        let Some(admission) = &self.admission else { return Ok(()) };
        if !roster.is_free() {
            return Ok(());
        }
        let trust = roster.trust.as_deref();
        let carries = |number: u64| {
            trust.is_some_and(|trust| trust.notices.iter().any(|n| n.number == number))
        };
        if let Some(next) = self.pending().first()
            && !carries(next.number)
            && self.keeps(Rule::T5)
        {
            let notice = self.seal(Message::Notice(next.as_ref().clone()));
            step.put(Output::Send(roster.proposer, notice));
            let (number, digest) = next.place();
            return Err(Refusal::Notice(number, digest));
        }
        let unix = admission.unix(step.now);
        let mut tickets = trust.into_iter().flat_map(|trust| &trust.tickets);
        match tickets.find(|ticket| ticket.check_clock(unix, Judge::Second).is_err()) {
            Some(ticket) => Err(Refusal::Expired(ticket.peer())),
            None => Ok(()),
        }
    }

    /// T5: whether a refusal of our roster is justified by the notice that came with it.
    pub(super) fn is_justified(&self, roster: &Roster, reason: Refusal) -> bool {
        let Refusal::Notice(number, digest) = reason else { return false };
        let mut carried = roster.trust.iter().flat_map(|trust| &trust.notices);
        let is_carried = carried.any(|notice| notice.number == number);
        !is_carried && self.pending().iter().any(|notice| notice.place() == (number, digest))
    }

    /// Learns the notices that a checked roster or Regroup brings along.
    pub(super) fn learn_notices(step: &mut Step<'_>, trust: Option<&Admissions>) {
        let all = trust.into_iter().flat_map(|trust| &trust.notices);
        step.out.extend(all.map(|notice| Decision::Notice(Box::new(notice.clone()))));
    }

    /// T5: takes over the notices that `sync` knows now.
    pub(super) fn take_notices(&mut self, step: &mut Step<'_>, notices: Notices) {
        if let Some(admission) = &mut self.admission {
            admission.notices = notices;
            self.look_ahead(step);
        }
    }

    /// Computes which peers will be in after the open epoch, by the notices known so far.
    fn look_ahead(&mut self, step: &mut Step<'_>) {
        let epoch = self.series().epoch;
        let Some(admission) = &mut self.admission else { return };
        let mut ledger = admission.ledger.as_ref().clone();
        admission.pending().iter().for_each(|notice| ledger.take(epoch, notice));
        admission.due = Arc::new(ledger);
        self.learn_tickets(step);
    }

    // ---- the ledger moves ----------------------------------------------------------------------

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

    /// Takes the ledger before the epoch that opens, and reports what it changes.
    pub(super) fn take_ledger(&mut self, step: &mut Step<'_>, ledger: Option<Arc<Ledger>>) {
        let Some((admission, ledger)) = self.admission.as_mut().zip(ledger) else { return };
        if *admission.ledger != *ledger {
            report_changes(step, &admission.ledger, &ledger, &admission.notices);
        }
        admission.ledger = ledger;
    }

    /// Recomputes what is due in a new series, from the new ledger.
    pub(super) fn resume_admission(&mut self, step: &mut Step<'_>) {
        if self.admission.is_some() {
            self.look_ahead(step);
        }
    }
}

/// Reports to the user which peers were admitted or revoked, and which notices are in force.
fn report_changes(step: &mut Step<'_>, before: &Ledger, after: &Ledger, notices: &Notices) {
    for (who, peer) in after.peers() {
        let old = before.peers().get(who);
        if let Some((via, epoch)) = peer.came
            && old.is_none_or(|old| old.came.is_none())
        {
            let invite = match via {
                Via::Invite(key) => Some(key),
                Via::Name | Via::Notice(_) => None,
            };
            step.put(Output::Event(Event::Admitted { who: *who, invite, epoch }));
        }
        if let Some(by) = peer.revoked
            && old.is_none_or(|old| old.revoked.is_none())
        {
            let (notice, epoch) = (by.notice, by.epoch);
            step.put(Output::Event(Event::Revoked { who: *who, notice, epoch }));
        }
    }
    for notice in notices.between(before.last(), after.last()) {
        let in_force = Some(after.since());
        step.put(Output::Event(Event::Notice { notice, in_force }));
    }
}
