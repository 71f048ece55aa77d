//! Runs of invited peers: the hosts' tickets, and what the organiser says. The signatures of
//! organisers and invites are real ed25519, since every peer checks them.
//!
//! Organisers and invites have names of one byte, from which their keys follow. The run's own
//! organiser has the name `ORGANISER`; a scene that signs by another one makes what no honest peer
//! accepts.

use super::{Head, Liar, PeerId, World, peer};
use crate::script::{Invited, ORGANISER};
use intellect_protocol::access::admit::Level;
use intellect_protocol::access::ledger::Ledger;
use intellect_protocol::access::notices::Point;
use intellect_protocol::base::sign::Keypair;
use intellect_protocol::message::{Body, Clause, Invite, Notice, Terms, Ticket};
use std::sync::Arc;

/// When drawn runs of invited peers begin, in Unix seconds.
const UNIX: u64 = 1_000_000_000;

/// The key of an organiser or an invite, by its name. Any test can sign in any organiser's name:
/// the key is no secret here.
#[must_use]
pub fn key(name: u8) -> Keypair {
    Keypair::from_seed(&[name; 32])
}

impl World {
    /// Makes the run one of invited peers; its clocks begin at `unix` seconds. It must be called
    /// before a process starts, because all of them need the same trust level.
    pub fn invite(&mut self, unix: u64) {
        self.script.invited = Some(Invited { unix, ..Invited::default() });
    }

    /// Makes the run one of invited peers, and gives the first hosts tickets. They share one
    /// invite, with as many uses as there are peers.
    pub(crate) fn invite_first(&mut self, peers: usize) {
        const INVITE: u8 = 0xf0;
        self.invite(UNIX);
        let uses = u32::try_from(peers).unwrap_or(u32::MAX);
        let invite = self.new_invite(INVITE, ORGANISER, |terms| terms.uses = uses);
        self.hand_all(&(0..peers).collect::<Vec<_>>(), INVITE, &invite);
    }

    /// The same, with an invite for each host: to revoke a peer closes the invite by which it came.
    pub(crate) fn invite_each(&mut self, hosts: usize) {
        self.invite(UNIX);
        for host in 0..hosts {
            let name = u8::try_from(host).map_or(0, |host| u8::MAX - host);
            let invite = self.new_invite(name, ORGANISER, |_| {});
            self.hand_all(&[host], name, &invite);
        }
    }

    /// The next processes of a host believe in another organiser than all others do. It counts as a
    /// liar, since it refuses what all others accept.
    pub fn forge_manifest(&mut self, host: usize, organiser: u8) {
        self.corrupt(host, Liar::silent());
        if let Some(invited) = &mut self.script.invited {
            invited.forged.insert(host, organiser);
        }
    }

    /// The level and the organiser, as the processes of a host believe. An open run has an
    /// organiser too, whose attestations count (G11).
    pub(super) fn trust(&self, host: usize) -> (Level, PeerId) {
        let invited = self.script.invited.as_ref();
        let level = if invited.is_some() { Level::Invited } else { Level::Open };
        let forged = invited.and_then(|invited| invited.forged.get(&host)).copied();
        (level, key(forged.unwrap_or(ORGANISER)).peer())
    }

    /// An invite with the key `name`, signed by the organiser `by`. `change` sets its terms, which
    /// begin with the defaults of [`Terms::new`].
    #[must_use]
    pub fn new_invite(&self, name: u8, by: u8, change: impl FnOnce(&mut Terms)) -> Invite {
        let mut terms = Terms::new(key(name).peer());
        change(&mut terms);
        Invite::new(self.run, terms, &key(by))
    }

    /// Gives a host a ticket, for its next start. Without effect in an open run.
    pub fn hand(&mut self, host: usize, ticket: Ticket) {
        if let Some(invited) = &mut self.script.invited {
            invited.tickets.insert(host, ticket);
        }
    }

    /// Gives hosts tickets by an invite with the key `name`. Nobody counts its uses here: whether
    /// there are enough is for the ledger to say (T3).
    pub fn hand_all(&mut self, hosts: &[usize], name: u8, invite: &Invite) {
        for host in hosts {
            self.hand(*host, Ticket::invited(invite.clone(), &key(name), self.name(*host)));
        }
    }

    /// Sets the clock of a host off by this many seconds, from its next start. It concerns the date
    /// only, by which tickets expire (T4), and no timer.
    pub fn set_clock(&mut self, host: usize, off: i64) {
        if let Some(invited) = &mut self.script.invited {
            invited.off.insert(host, off);
        }
    }

    /// A membership update by the organiser `by`, after the notice at `last`.
    #[must_use]
    pub fn update(&self, last: Point, by: u8, clauses: Vec<Clause>) -> Notice {
        Notice::after(self.run, last, Body::Membership(clauses), &key(by))
    }

    /// Brings a notice to these hosts at once, as a message from outside: none of them stores it
    /// beside its manifest before its machine says so.
    pub fn hand_notice(&mut self, hosts: &[usize], notice: &Notice) {
        for host in hosts {
            let input = peer::Input::Notice(Box::new(notice.clone()));
            self.push_peer(0, *host, input);
        }
    }

    /// S8: a host that commits a head has the same ledger as every other host that has it.
    pub(super) fn judge_ledger(&mut self, host: usize, head: Head) {
        let Some(process) = &self.hosts[host].process else { return };
        let peer = process.holdings.peer();
        let (Some(ledger), true) = (peer.ledger(), peer.head() == head) else { return };
        let digest = ledger.digest();
        let verdict = self.check.has_ledger(self.hosts[host].name, head.state, digest);
        self.judge(verdict);
    }

    /// The ledger that a host has before its open epoch.
    #[must_use]
    pub fn ledger(&self, host: usize) -> Option<&Arc<Ledger>> {
        self.hosts[host].process.as_ref()?.holdings.peer().ledger()
    }
}
