//! What a peer knows about admission in addition to its lineage: the tickets that others have
//! shown, and the organiser's notices (T5, T8).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::access::admit::{Denied, Judge, NOTICES_MAX};
use crate::access::ledger::{Ledger, Via};
use crate::access::notices::Notices;
use crate::base::id::PeerId;
use crate::base::time::Time;
use crate::machine::event::Event;
use crate::machine::output::Output;
use crate::machine::step::Step;
use crate::message::{Notice, Ticket};

use super::interface::Credentials;

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
        if let Err(why) = &may
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
