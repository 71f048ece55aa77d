//! Who is let in by this node, in a run of invited peers, and what others say of its own ticket.
//!
//! What a ticket is worth is for the ledger of the lineage, and who takes part for the rosters: this
//! is about connections only. Let in is who is in the ledger, and who has shown a ticket that would
//! bring it there. A node that has just come or come back has an old ledger, and does not know when
//! others came: until its own lineage moves it does not look at when an invite expired.
//!
//! Somebody who says no proves nothing by that. So this node ends only if all who answer, and are let
//! in themselves, refuse it for a while.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use intellect_protocol::access::admit::{Denied, Judge, Level};
use intellect_protocol::access::handshake::{InForce, Outcome, Reception, Visit};
use intellect_protocol::access::ledger::Ledger;
use intellect_protocol::base::id::PeerId;
use intellect_protocol::message::Ticket;

use crate::manifest::Manifest;
use crate::net;

/// Who is let in.
#[derive(Debug)]
pub(crate) struct Admission {
    me: PeerId,
    /// What lets this node in.
    ticket: Option<Ticket>,
    /// Before the open epoch.
    ledger: Arc<Ledger>,
    epoch: u64,
    /// Whether the lineage has moved in this start.
    moved: bool,
    /// Who is not in the ledger, and has shown a ticket that holds.
    shown: BTreeMap<PeerId, Ticket>,
    answers: Answers,
}

/// What others say of our ticket.
#[derive(Debug, Default)]
struct Answers {
    /// Who lets us in, and is connected since.
    welcome: HashSet<PeerId>,
    /// Since when some have refused and nobody lets us in, and what the last one said.
    refused: Option<(Instant, String)>,
}

impl Admission {
    /// Of a node with this ticket, at genesis; `None` in an open run.
    pub(crate) fn new(manifest: &Manifest, me: PeerId, ticket: Option<Ticket>) -> Option<Self> {
        if manifest.run.trust.level == Level::Open {
            return None;
        }
        Some(Self {
            me,
            ticket,
            ledger: Arc::new(Ledger::new(manifest.id, manifest.run.organiser)),
            epoch: 1,
            moved: false,
            shown: BTreeMap::new(),
            answers: Answers::default(),
        })
    }

    /// What lets this node in.
    pub(crate) fn ticket(&self) -> Option<&Ticket> {
        self.ticket.as_ref()
    }

    /// Whether somebody can let this node in, as far as it can know itself.
    pub(crate) fn check(&self) -> Result<(), Denied> {
        let me = self.me;
        let clock = self.ticket.as_ref().map_or(Ok(()), check_clock);
        match self.ledger.admits(&me) {
            Ok(()) => Ok(()),
            Err(_) => self.judge(&me, self.ticket.as_ref()).and(clock),
        }
    }

    /// What this node shows to others.
    pub(crate) fn visit(&self) -> Visit {
        Visit::Enter(self.ticket.clone())
    }

    /// Those who are let in.
    pub(crate) fn let_in(&self) -> HashSet<PeerId> {
        let peers = self.ledger.peers();
        let known = peers.iter().filter(|(_, it)| it.came.is_some() && it.revoked.is_none());
        known.map(|(peer, _)| *peer).chain(self.shown.keys().copied()).collect()
    }

    /// Takes the ledger before the epoch that is open. Returns whether it is another one.
    pub(crate) fn follow(&mut self, ledger: &Arc<Ledger>, epoch: u64) -> bool {
        if Arc::ptr_eq(&self.ledger, ledger) && self.epoch == epoch {
            return false;
        }
        self.moved |= epoch > self.epoch && self.epoch > 0;
        (self.ledger, self.epoch) = (Arc::clone(ledger), epoch);
        let shown = std::mem::take(&mut self.shown);
        for (peer, ticket) in shown {
            if self.ledger.admits(&peer).is_err() && self.judge(&peer, Some(&ticket)).is_ok() {
                self.shown.insert(peer, ticket);
            }
        }
        true
    }

    /// The lineage is that of an earlier start.
    pub(crate) fn resume(&mut self, ledger: &Arc<Ledger>, epoch: u64) {
        self.epoch = 0;
        self.follow(ledger, epoch);
    }

    /// A peer has shown what it has. Returns whether that changes who is let in.
    pub(crate) fn enter(&mut self, peer: PeerId, ticket: Option<Ticket>) -> Result<bool, Denied> {
        if self.ledger.admits(&peer).is_ok() {
            return Ok(false);
        }
        self.judge(&peer, ticket.as_ref())?;
        let Some(ticket) = ticket else { return Ok(false) };
        if self.shown.len() >= SHOWN_MAX && !self.shown.contains_key(&peer) {
            return Err(Denied::Full);
        }
        Ok(self.shown.insert(peer, ticket).is_none())
    }

    fn judge(&self, peer: &PeerId, ticket: Option<&Ticket>) -> Result<(), Denied> {
        let Some(ticket) = ticket else { return self.ledger.admits(peer) };
        if self.moved {
            check_clock(ticket)?;
        }
        self.ledger.check_ticket(self.epoch, peer, ticket)
    }

    /// Answers a visit while this node is not in the run yet: to who takes part it listens later.
    pub(crate) fn receive_early(
        &mut self,
        net: &net::Handle,
        from: PeerId,
        visit: Visit,
    ) -> Reception {
        let outcome = match visit {
            Visit::Enter(ticket) => match self.enter(from, ticket) {
                Ok(new) => {
                    if new {
                        net.let_in(self.let_in());
                    }
                    Outcome::Welcome
                }
                Err(denied) => Outcome::refused(&denied),
            },
            Visit::Hand(_) | Visit::Ask => {
                Outcome::refused(&"this peer is still on its way in: ask another one")
            }
        };
        self.reception(outcome)
    }

    /// What is said with an answer.
    pub(crate) fn reception(&self, outcome: Outcome) -> Reception {
        let (number, digest) = self.ledger.last();
        let since = self.ledger.since().saturating_add(1);
        let notice = (number > 0).then_some(InForce { number, digest, since });
        Reception { outcome, epoch: self.epoch.saturating_sub(1), notice }
    }

    /// A peer has answered to what this node shows. What it says counts if it is let in itself. True where
    /// it is the first one to refuse while nobody lets this node in.
    pub(crate) fn answered(&mut self, now: Instant, peer: &PeerId, reception: Reception) -> bool {
        let counts = self.ledger.admits(peer).is_ok() || self.shown.contains_key(peer);
        match reception.outcome {
            Outcome::Welcome => {
                self.answers.welcome.insert(*peer);
                self.answers.refused = None;
                false
            }
            Outcome::Refused(why) => {
                self.answers.welcome.remove(peer);
                if !counts || !self.answers.welcome.is_empty() {
                    return false;
                }
                let before = self.answers.refused.take();
                let first = before.as_ref().map_or(now, |(first, _)| *first);
                self.answers.refused = Some((first, why));
                before.is_none()
            }
        }
    }

    /// A peer is not connected any more. Whoever revokes us says nothing but that, at first.
    pub(crate) fn unlinked(&mut self, peer: &PeerId) {
        self.answers.welcome.remove(peer);
    }

    /// Why nobody lets this node in, once that is clear.
    pub(crate) fn refused(&self, now: Instant) -> Option<String> {
        if let Err(revoked @ Denied::PeerRevoked { .. }) = self.ledger.admits(&self.me) {
            return Some(revoked.to_string());
        }
        let (first, why) = self.answers.refused.as_ref()?;
        (now.saturating_duration_since(*first) >= REFUSED_FOR).then(|| why.clone())
    }
}

fn check_clock(ticket: &Ticket) -> Result<(), Denied> {
    ticket.check_clock(unix_seconds(), Judge::Own)
}

/// The time, as invites have it.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Tickets that are kept; as many peers as a node is connected to.
const SHOWN_MAX: usize = 1_024;

/// The others get so long to say something else.
pub(crate) const REFUSED_FOR: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests;
