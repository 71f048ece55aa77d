//! Runs of invited peers: who signs, who has a ticket, and what is decreed. The keys are made of names; their
//! signatures hold, as all do here, so what is tested is who has signed, and for what.

use super::{Happening, Head, Input, Liar, PeerId, World, peer};
use crate::script::Invited;
use intellect_protocol::admit::Authorities;
use intellect_protocol::id::Digest;
use intellect_protocol::ledger::Ledger;
use intellect_protocol::message::{Clause, Decree, Invite, Terms, Ticket};
use intellect_protocol::sign::Keypair;
use std::sync::Arc;

/// The key of an authority, or of an invite, by its name.
#[must_use]
pub fn key(name: u8) -> Keypair {
    Keypair::simulated(PeerId([name; 32]))
}

impl World {
    /// From now on the run is one of invited peers, of these authorities; its clocks begin at `unix`.
    pub fn invite(&mut self, authorities: &[u8], threshold: usize, unix: u64) {
        let keys = authorities.iter().map(|name| key(*name).peer()).collect();
        let authorities = Authorities { keys, threshold };
        let (tickets, forged, off) = Default::default();
        self.script.invited = Some(Invited { authorities, tickets, unix, forged, off });
    }

    /// From now on the run is one of invited peers, and the first hosts have tickets.
    pub(crate) fn invite_first(&mut self, peers: usize) {
        const ORGANISER: u8 = 0xa0;
        self.invite(&[ORGANISER], 1, 1_000_000_000);
        let uses = u32::try_from(peers).unwrap_or(u32::MAX);
        let invite = self.new_invite(0xf0, &[ORGANISER], |terms| terms.uses = uses);
        self.hand_all(&(0..peers).collect::<Vec<_>>(), &invite);
    }

    /// The next processes of a host believe other authorities than all others do, one of whom must sign.
    pub fn betray(&mut self, host: usize, authorities: &[u8]) {
        self.corrupt(host, Liar::silent());
        let keys = authorities.iter().map(|name| key(*name).peer()).collect();
        if let Some(invited) = &mut self.script.invited {
            invited.forged.insert(host, Authorities { keys, threshold: 1 });
        }
    }

    /// Who signs, as the processes of a host believe.
    pub(super) fn authorities(&self, host: usize) -> Option<Authorities> {
        let invited = self.script.invited.as_ref()?;
        Some(invited.forged.get(&host).unwrap_or(&invited.authorities).clone())
    }

    /// An invite of the key `name`, signed by some authorities.
    #[must_use]
    pub fn new_invite(&self, name: u8, by: &[u8], change: impl FnOnce(&mut Terms)) -> Invite {
        let mut terms = Terms::new(key(name).peer());
        change(&mut terms);
        by.iter().fold(Invite::new(self.run, terms), |invite, by| invite.signed(&key(*by)))
    }

    /// Gives a host a ticket, for its next start.
    pub fn hand(&mut self, host: usize, ticket: Ticket) {
        if let Some(invited) = &mut self.script.invited {
            invited.tickets.insert(host, ticket);
        }
    }

    /// Gives hosts tickets by an invite.
    pub fn hand_all(&mut self, hosts: &[usize], invite: &Invite) {
        for host in hosts {
            let inviter = Keypair::simulated(invite.innermost().key);
            self.hand(*host, Ticket::invited(invite.clone(), &inviter, self.name(*host)));
        }
    }

    /// The clock of a host is off by so many seconds, from its next start.
    pub fn set_clock(&mut self, host: usize, off: i64) {
        if let Some(invited) = &mut self.script.invited {
            invited.off.insert(host, off);
        }
    }

    /// A decree of authorities, after one of this number and digest.
    #[must_use]
    pub fn decree(&self, last: (u64, Digest), by: &[u8], clauses: Vec<Clause>) -> Decree {
        let decree = Decree::after(self.run, last, clauses);
        by.iter().fold(decree, |decree, by| decree.signed(&key(*by)))
    }

    /// Somebody brings hosts a decree.
    pub fn hand_decree(&mut self, hosts: &[usize], decree: &Decree) {
        for host in hosts {
            let input = peer::Input::Decree(Box::new(decree.clone()));
            self.push(0, *host, Happening::Input(Input::Peer(input)));
        }
    }

    /// S8: a host that commits a head has the ledger of everybody who has it.
    pub(super) fn judge_ledger(&mut self, host: usize, head: Head) {
        let Some(process) = &self.hosts[host].process else { return };
        let peer = process.holdings.peer();
        let (Some(ledger), true) = (peer.ledger(), peer.head() == head) else { return };
        let digest = ledger.digest();
        let verdict = self.check.has_ledger(self.hosts[host].name, head.state, digest);
        self.judge(verdict);
    }

    /// Who is in, as a host has it before its open epoch.
    #[must_use]
    pub fn ledger(&self, host: usize) -> Option<&Arc<Ledger>> {
        self.hosts[host].process.as_ref()?.holdings.peer().ledger()
    }
}
