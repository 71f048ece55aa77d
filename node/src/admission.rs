//! Who is let in by this node, in a run of invited peers, and what others say of its own ticket.
//!
//! What a ticket is worth is for the ledger of the lineage, and who takes part for the rosters: this
//! is about connections only. Let in is who has a place in the ledger, and who has shown a ticket that
//! would get one.
//!
//! Somebody who says no proves nothing by that. So this node ends only if all who answer, and have
//! shown a good ticket themselves, refuse it for a while.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use intellect_protocol::admit::{Authorities, Denied};
use intellect_protocol::id::{PeerId, RunId};
use intellect_protocol::lobby::{Outcome, Reception, Visit};
use intellect_protocol::manifest::Level;
use intellect_protocol::message::Ticket;
use intellect_protocol::sign::Keypair;

use crate::manifest::Manifest;
use crate::net;

/// Who is let in.
#[derive(Debug)]
pub(crate) struct Admission {
    run: RunId,
    organiser: PeerId,
    key: Keypair,
    authorities: Authorities,
    /// What lets this node in.
    ticket: Option<Ticket>,
    /// Who has shown a ticket that holds.
    shown: BTreeMap<PeerId, Ticket>,
    answers: Answers,
}

/// What others say of our ticket.
#[derive(Debug, Default)]
struct Answers {
    welcome: bool,
    /// The first refusal since, and what the last one said.
    refused: Option<(Instant, String)>,
}

impl Admission {
    /// Of a node with this ticket; `None` in an open run.
    pub(crate) fn new(manifest: &Manifest, key: Keypair, ticket: Option<Ticket>) -> Option<Self> {
        let Level::Invited(authorities) = &manifest.run.trust.level else { return None };
        Some(Self {
            run: manifest.id,
            organiser: manifest.run.organiser,
            key,
            authorities: authorities.clone(),
            ticket,
            shown: BTreeMap::new(),
            answers: Answers::default(),
        })
    }

    /// Whether this node can be let in by anybody, as far as it can know.
    pub(crate) fn check(&self) -> Result<(), Denied> {
        self.judge(&self.key.peer(), self.ticket.as_ref())
    }

    /// What this node shows to others.
    pub(crate) fn visit(&self) -> Visit {
        Visit::Enter(self.ticket.clone())
    }

    /// Those who are let in.
    pub(crate) fn let_in(&self) -> HashSet<PeerId> {
        self.shown.keys().copied().collect()
    }

    /// A peer has shown what it has. Returns whether that changes who is let in.
    pub(crate) fn enter(&mut self, peer: PeerId, ticket: Option<Ticket>) -> Result<bool, Denied> {
        self.judge(&peer, ticket.as_ref())?;
        let Some(ticket) = ticket else { return Ok(false) };
        if self.shown.len() >= SHOWN_MAX && !self.shown.contains_key(&peer) {
            return Err(Denied::Full);
        }
        Ok(self.shown.insert(peer, ticket).is_none())
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
        Reception { outcome, epoch: 0, decree: None }
    }

    fn judge(&self, peer: &PeerId, ticket: Option<&Ticket>) -> Result<(), Denied> {
        let organiser = self.organiser;
        let ticket = ticket.ok_or(Denied::Uninvited { organiser })?;
        ticket.verify(&self.key, &self.run, &self.authorities, peer)?;
        ticket.check_clock(unix_seconds())
    }

    /// A peer has answered to what this node shows. What it says counts if it is let in itself.
    pub(crate) fn answered(&mut self, now: Instant, peer: &PeerId, reception: Reception) {
        match reception.outcome {
            Outcome::Welcome => self.answers.welcome = true,
            Outcome::Refused(why) if self.shown.contains_key(peer) => {
                let first = self.answers.refused.as_ref().map_or(now, |(first, _)| *first);
                self.answers.refused = Some((first, why));
            }
            Outcome::Refused(_) => {}
        }
    }

    /// Why nobody lets this node in, once that is clear.
    pub(crate) fn refused(&self, now: Instant) -> Option<&str> {
        let (first, why) = self.answers.refused.as_ref().filter(|_| !self.answers.welcome)?;
        (now.saturating_duration_since(*first) >= REFUSED_FOR).then_some(why)
    }
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Tickets that are kept; as many peers as a node is connected to.
const SHOWN_MAX: usize = 1_024;

/// The others get so long to say something else.
const REFUSED_FOR: Duration = Duration::from_secs(15);
