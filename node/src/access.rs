//! Which peers this node admits in a run of invited peers, and what they reply to its own ticket.
//!
//! This decides about connections only: the ledger of the lineage judges tickets, and rosters
//! decide who takes part. Admitted are peers that are in the ledger, and peers whose ticket would
//! bring them there. A node that has just started has an old ledger and does not know when others
//! came, so it ignores the expiry of invites until its own lineage moves.
//!
//! A refusal by one peer proves nothing. So this node ends only if all admitted peers that reply
//! refuse it for a while.
//!
//! The driver owns an [`Admission`] and has it follow the ledger of each epoch that it opens. An
//! admit request comes from the network as an event, [`Admission::enter`] judges it, and the peers
//! of [`Admission::allowed`] go back to the network as the list of those that it lets in. Open runs
//! have no `Admission` at all.

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

/// What this node knows of admission: the ledger, tickets that came, and how other peers answer its
/// own.
#[derive(Debug)]
pub(crate) struct Admission {
    /// Our own peer, which must be admitted too.
    me: PeerId,
    /// What admits this node, as far as it has a ticket; a notice may admit it as well.
    ticket: Option<Ticket>,
    /// The ledger before the open epoch.
    ledger: Arc<Ledger>,
    /// The open epoch, for which tickets are judged. 0 for a moment in [`Self::resume`].
    epoch: u64,
    /// Whether the lineage has moved since this start. Until then the ledger may be older than an
    /// invite that has expired meanwhile, so the clock refuses nobody.
    moved: bool,
    /// Peers that are not in the ledger, with their valid tickets. At most [`TICKETS_MAX`]. A
    /// ticket leaves once the ledger has its peer, or once the ledger refuses it.
    tickets: BTreeMap<PeerId, Ticket>,
    /// What other peers say of our ticket.
    answers: Answers,
}

/// The replies of other peers to our ticket.
#[derive(Debug, Default)]
struct Answers {
    /// Peers that admit us, also some that are not admitted themselves as far as we know: a peer
    /// may answer before it has shown its ticket. A peer leaves it with its connection. Beyond
    /// [`TICKETS_MAX`] only peers stay whose word counts.
    welcome: HashSet<PeerId>,
    /// Since when peers have refused and none admits us, and the last reason.
    refused: Option<(Instant, String)>,
    /// Connected peers that refuse us, also those whose word does not count.
    denied: HashSet<PeerId>,
}

impl Admission {
    /// For a node with this ticket, at genesis; `None` in an open run. A node that has a lineage
    /// already calls [`Self::resume`] next, before any peer is judged.
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
            tickets: BTreeMap::new(),
            answers: Answers::default(),
        })
    }

    /// The ticket of this node, which the network shows to every peer.
    pub(crate) fn ticket(&self) -> Option<&Ticket> {
        self.ticket.as_ref()
    }

    /// Whether other peers can admit this node, as far as it can judge. It is asked at the start,
    /// so that a node with an invite that has expired ends with that sentence instead of a search
    /// for peers.
    pub(crate) fn check(&self) -> Result<(), Denied> {
        let judge = |_| {
            self.judge(&self.me, self.ticket())?;
            self.ticket().map_or(Ok(()), check_clock)
        };
        self.ledger.admits(&self.me).or_else(judge)
    }

    /// When the ticket of this node has expired by its own clock, in Unix seconds; `None` while it is
    /// good, or is not needed. At the start it was good ([`Self::check`]), and a wait may be long.
    pub(crate) fn expired(&self) -> Option<u64> {
        if self.ledger.admits(&self.me).is_ok() {
            return None;
        }
        let Err(Denied::Expired { expires }) = check_clock(self.ticket()?) else { return None };
        Some(expires)
    }

    /// The admit request of this node.
    pub(crate) fn request(&self) -> Visit {
        Visit::Enter(self.ticket.clone())
    }

    /// The peers that are admitted.
    pub(crate) fn allowed(&self) -> HashSet<PeerId> {
        let peers = self.ledger.peers();
        let known = peers.iter().filter(|(_, it)| it.came.is_some() && it.revoked.is_none());
        known.map(|(peer, _)| *peer).chain(self.tickets.keys().copied()).collect()
    }

    /// Takes the ledger before the open epoch. Returns whether it is another one. Tickets that were
    /// stored are judged again: the ledger may have taken their peer, or a notice may have revoked
    /// their invite.
    pub(crate) fn follow(&mut self, ledger: &Arc<Ledger>, epoch: u64) -> bool {
        if Arc::ptr_eq(&self.ledger, ledger) && self.epoch == epoch {
            return false;
        }
        self.moved |= epoch > self.epoch && self.epoch > 0;
        (self.ledger, self.epoch) = (Arc::clone(ledger), epoch);
        let mut tickets = std::mem::take(&mut self.tickets);
        tickets.retain(|peer, ticket| {
            self.ledger.admits(peer).is_err() && self.judge(peer, Some(ticket)).is_ok()
        });
        self.tickets = tickets;
        true
    }

    /// Takes the ledger of an earlier start. It is no move of the lineage, so the expiry of invites
    /// stays ignored.
    pub(crate) fn resume(&mut self, ledger: &Arc<Ledger>, epoch: u64) {
        self.epoch = 0;
        self.follow(ledger, epoch);
    }

    /// Judges the admit request of a peer. Returns whether it changes the admitted peers. The
    /// caller then hands them to the network. A peer that is in the ledger needs no ticket, and one
    /// that it brings is not stored.
    ///
    /// # Errors
    /// The reason in words for the peer: its ticket is refused, it has none, or this node stores
    /// [`TICKETS_MAX`] of others ([`Denied::Full`]), which ends when the next epoch takes some of
    /// them.
    pub(crate) fn enter(&mut self, peer: PeerId, ticket: Option<Ticket>) -> Result<bool, Denied> {
        if self.ledger.admits(&peer).is_ok() {
            return Ok(false);
        }
        self.judge(&peer, ticket.as_ref())?;
        let Some(ticket) = ticket else { return Ok(false) };
        if self.tickets.len() >= TICKETS_MAX && !self.tickets.contains_key(&peer) {
            return Err(Denied::Full);
        }
        Ok(self.tickets.insert(peer, ticket).is_none())
    }

    /// Whether a peer would come into the ledger with this ticket. Without one it must be there
    /// already, or be admitted by a notice. The expiry counts only once our own lineage has moved.
    fn judge(&self, peer: &PeerId, ticket: Option<&Ticket>) -> Result<(), Denied> {
        let Some(ticket) = ticket else { return self.ledger.admits(peer) };
        if self.moved {
            check_clock(ticket)?;
        }
        self.ledger.check_ticket(self.epoch, peer, ticket)
    }

    /// Answers a request before this node has joined the run, when it cannot take notices yet.
    pub(crate) fn receive_early(
        &mut self,
        net: &net::Handle,
        from: PeerId,
        request: Visit,
    ) -> Reception {
        let outcome = match request {
            Visit::Enter(ticket) => match self.enter(from, ticket) {
                Ok(false) => Outcome::Welcome,
                Ok(true) => {
                    net.allow(self.allowed());
                    Outcome::Welcome
                }
                Err(denied) => Outcome::refused(&denied),
            },
            Visit::Hand(_) | Visit::Ask => {
                Outcome::refused(&"this peer is still on its way in: ask another one")
            }
        };
        self.reply(outcome)
    }

    /// The reply with this outcome. It says at which epoch this node is and which notice is in
    /// force here, so one reply answers `Visit::Ask` as well.
    pub(crate) fn reply(&self, outcome: Outcome) -> Reception {
        let (number, digest) = self.ledger.last();
        let since = self.ledger.since().saturating_add(1);
        let notice = (number > 0).then_some(InForce { number, digest, since });
        Reception { outcome, epoch: self.epoch.saturating_sub(1), notice }
    }

    /// Takes a reply to our admit request, which counts if its sender is admitted. True where it is
    /// the first refusal while no peer admits this node.
    pub(crate) fn answered(&mut self, now: Instant, peer: &PeerId, reply: Reception) -> bool {
        match reply.outcome {
            Outcome::Welcome => {
                let mut welcome = std::mem::take(&mut self.answers.welcome);
                if welcome.len() >= TICKETS_MAX && !welcome.contains(peer) {
                    // Strangers, whose word may count once their tickets come, make room for newer
                    // ones.
                    welcome.retain(|peer| self.counts(peer));
                }
                welcome.insert(*peer);
                self.answers.welcome = welcome;
                self.answers.denied.remove(peer);
                false
            }
            Outcome::Refused(why) => {
                if self.answers.denied.len() < TICKETS_MAX {
                    self.answers.denied.insert(*peer);
                }
                self.answers.welcome.remove(peer);
                if !self.counts(peer) || self.is_welcome() {
                    return false;
                }
                let since = self.answers.refused.as_ref().map(|(since, _)| *since);
                self.answers.refused = Some((since.unwrap_or(now), why));
                since.is_none()
            }
        }
    }

    /// Whether the word of a peer counts: it is admitted itself, as far as this node knows.
    fn counts(&self, peer: &PeerId) -> bool {
        self.ledger.admits(peer).is_ok() || self.tickets.contains_key(peer)
    }

    /// Whether an admitted peer admits us. Anybody else could keep a node that all members refuse.
    fn is_welcome(&self) -> bool {
        self.answers.welcome.iter().any(|peer| self.counts(peer))
    }

    /// Whether connected peers refuse this node and none that is connected admits it, members or not: what
    /// people read of it may rest on the word of anybody.
    pub(crate) fn is_turned_away(&self) -> bool {
        !self.answers.denied.is_empty() && self.answers.welcome.is_empty()
    }

    /// A peer has disconnected, which is also the first sign that it no longer admits us. A refusal
    /// that is known stays: only a welcome ends it.
    pub(crate) fn unlinked(&mut self, peer: &PeerId) {
        self.answers.welcome.remove(peer);
        self.answers.denied.remove(peer);
    }

    /// Why no peer admits this node, once that is clear. If it is `named`, a notice that is not in
    /// force yet lets it in. The driver asks again and again; a text ends the node. A revocation in
    /// our own ledger is clear at once. Everything else has to hold for [`REFUSED_FOR`] without a
    /// welcome of a peer that counts.
    pub(crate) fn refused(&mut self, now: Instant, named: bool) -> Option<String> {
        if let Err(revoked @ Denied::PeerRevoked { .. }) = self.ledger.admits(&self.me)
            && !named
        {
            return Some(revoked.to_string());
        }
        if self.is_welcome() {
            self.answers.refused = None;
        }
        let (first, why) = self.answers.refused.as_ref()?;
        (now.saturating_duration_since(*first) >= REFUSED_FOR).then(|| why.clone())
    }
}

/// Refuses a ticket that has expired by our own clock.
fn check_clock(ticket: &Ticket) -> Result<(), Denied> {
    ticket.check_clock(unix_seconds(), Judge::Own)
}

/// The time in the unit of invites.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Tickets that are stored, and words of peers without one: one for each peer that a node can be
/// connected to.
const TICKETS_MAX: usize = 1_024;

/// Time for other peers to reply differently. It is longer than a connection takes, so that one
/// liar or one peer with an old ledger among the first does not end the node; and short enough for
/// a person who waits at the terminal.
pub(crate) const REFUSED_FOR: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests;
