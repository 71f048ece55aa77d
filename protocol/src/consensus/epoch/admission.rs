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

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::access::admit::{ADMISSIONS_BYTES_MAX, Denied, Judge, NOTICES_MAX, TICKETS_MAX};
use crate::access::ledger::{Ledger, Via};
use crate::access::notices::Notices;
use crate::base::fault::AccessFault;
use crate::base::id::{Digest, PeerId};
use crate::base::rule::Rule;
use crate::base::time::Time;
use crate::machine::event::Event;
use crate::machine::output::Output;
use crate::machine::step::{Decision, Step};
use crate::message::{
    Admissions, Keep, Member, Message, Notice, Receipt, Refusal, Regroup, Roster, Ticket, Voter,
};

use super::facts::{Facts, Process};
use super::interface::Credentials;
use super::open_epoch::Epoch;

/// The most strangers whose refusal is reported to the user.
const REPORTED_MAX: usize = 256;

/// What is known of which peers may take part.
#[derive(Clone, Debug)]
pub(super) struct Admission {
    /// The ledger before the open epoch (T1).
    pub(super) ledger: Arc<Ledger>,
    /// The ledger with the notices that are due: which peers will be in after this epoch, apart
    /// from tickets.
    pub(super) due: Arc<Ledger>,
    /// The notices, as `sync` has them.
    pub(super) notices: Notices,
    pub(super) ticket: Option<Ticket>,
    /// The tickets of peers that are alive and not yet in, each with whether it is valid.
    pub(super) shown: BTreeMap<PeerId, (Ticket, Result<(), Denied>)>,
    /// Refusals already reported to the user, by peer.
    pub(super) reported: BTreeMap<PeerId, Denied>,
    /// Unix seconds at some time (T4).
    clock: (u64, Time),
}

impl Admission {
    /// Before `epoch`. Notices that an earlier start has stored are due.
    pub(super) fn new(
        now: Time,
        epoch: u64,
        ledger: Arc<Ledger>,
        notices: Notices,
        credentials: Credentials,
    ) -> Self {
        let Credentials { ticket, unix } = credentials;
        let due = with_pending(&ledger, &notices, epoch);
        Self {
            due,
            ledger,
            notices,
            ticket,
            shown: BTreeMap::new(),
            reported: BTreeMap::new(),
            clock: (unix, now),
        }
    }

    /// The notices that a roster on this ledger has to carry (T5).
    pub(super) fn pending(&self) -> Vec<Arc<Notice>> {
        self.notices.after(self.ledger.last(), NOTICES_MAX)
    }

    /// Counts a time that our clock lacks.
    pub(super) fn sleep(&mut self, slept: Duration) {
        self.clock.0 = self.clock.0.saturating_add(slept.as_secs());
    }

    pub(super) fn unix(&self, now: Time) -> u64 {
        let (unix, at) = self.clock;
        unix.saturating_add(now.since(at).as_secs())
    }

    /// Checks the ticket of a peer that was heard, in this epoch.
    pub(super) fn learn_ticket(&mut self, step: &mut Step<'_>, epoch: u64, peer: PeerId) {
        let ticket = step.table.peers.get(&peer).and_then(|seen| seen.beat.ticket.as_deref());
        let Err(why) = self.due.admits(&peer) else {
            self.shown.remove(&peer);
            self.reported.remove(&peer);
            return;
        };
        let may = match ticket {
            None => Err(why),
            Some(ticket) if self.shown.get(&peer).is_some_and(|(known, _)| known == ticket) => {
                return;
            }
            Some(ticket) => ticket
                .check_clock(self.unix(step.now), Judge::Own)
                .and_then(|()| self.due.check_ticket(epoch, &peer, ticket)),
        };
        let kind = std::mem::discriminant::<Denied>;
        // The empty ledger of a newcomer does not name the members of the run either.
        if let Err(why) = &may
            && epoch > 1
            && self.reported.get(&peer).map(kind) != Some(kind(why))
            && (self.reported.len() < REPORTED_MAX || self.reported.contains_key(&peer))
        {
            self.reported.insert(peer, why.clone());
            step.put(Output::Event(Event::Refused { who: peer, why: why.clone() }));
        }
        match ticket {
            Some(ticket) => self.shown.insert(peer, (ticket.clone(), may)),
            None => self.shown.remove(&peer),
        };
        step.table.bound(&mut self.shown, |_| false);
    }

    /// Computes which peers will be in after the open epoch, by the notices known so far, and checks
    /// all tickets again.
    pub(super) fn look_ahead(&mut self, step: &mut Step<'_>, epoch: u64) {
        self.due = with_pending(&self.ledger, &self.notices, epoch);
        self.shown.clear();
        let table = step.table;
        self.reported.retain(|peer, _| table.peers.contains_key(peer));
        table.peers.keys().for_each(|peer| self.learn_ticket(step, epoch, *peer));
    }

    /// Takes the ledger before the epoch that opens, and reports what it changes.
    pub(super) fn take_ledger(&mut self, step: &mut Step<'_>, ledger: Arc<Ledger>) {
        if *self.ledger != *ledger {
            report_changes(step, &self.ledger, &ledger, &self.notices);
        }
        self.ledger = ledger;
    }
}

/// A ledger with the notices that a roster of this epoch has to carry.
fn with_pending(ledger: &Arc<Ledger>, notices: &Notices, epoch: u64) -> Arc<Ledger> {
    let mut due = ledger.as_ref().clone();
    let pending = notices.after(ledger.last(), NOTICES_MAX);
    pending.iter().for_each(|notice| due.take(epoch, notice));
    Arc::new(due)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::admit::Level;
    use crate::base::id::RunId;
    use crate::base::sign::Keypair;
    use crate::machine::table::{PEERS_MAX, key, passing};
    use crate::message::{Body, Clause};

    /// Else a proposer would name a revoked peer that its roster no longer admits, after each common restart.
    #[test]
    fn t5_a_notice_that_was_stored_before_the_start_is_due() {
        let (run, organiser) = (RunId([7; 32]), Keypair::from_seed(&[1; 32]));
        let ledger = Arc::new(Ledger::new(run, organiser.peer()));
        let admit = Body::Membership(vec![Clause::Admit(key(5))]);
        let notice = Notice::after(run, ledger.last(), admit, &organiser);
        let notices = Notices::new(run, organiser.peer(), Level::Invited).with([&notice]);
        let known = Admission::new(Time::ZERO, 1, ledger, notices, Credentials::default());
        assert!(known.ledger.admits(&key(5)).is_err() && known.due.admits(&key(5)).is_ok());
    }

    #[test]
    fn t2_tickets_that_strangers_show_under_one_key_after_another_are_bounded() {
        let (run, organiser) = (RunId([7; 32]), Keypair::from_seed(&[1; 32]));
        let ledger = Arc::new(Ledger::new(run, organiser.peer()));
        let notices = Notices::new(run, organiser.peer(), Level::Invited);
        let mut known = Admission::new(Time::ZERO, 1, ledger, notices, Credentials::default());
        let ticket = Ticket::named(run, key(0), 0, &organiser);
        passing(|table, peer| {
            let mut table = table.clone();
            let seen = table.peers.get_mut(&peer).unwrap();
            seen.beat.ticket = Some(Box::new(ticket.clone()));
            let step = &mut Step { now: Time::ZERO, table: &table, out: &mut Vec::new() };
            known.learn_ticket(step, 1, peer);
        });
        assert!(known.shown.len() <= PEERS_MAX, "{}", known.shown.len());
        assert!(known.shown.contains_key(&key(0)), "it is still heard");
    }
}
