//! Who is in: a fold over the receipts of a lineage, and over nothing else (T1).
//!
//! Before epoch e the ledger is what the receipts up to e − 1 say: who was admitted, by which invite and since
//! when, how often each invite was used, who and what was revoked, who signs, and the last decree. No server
//! keeps it and no clock decides: equal lineages have equal ledgers (S8).
//!
//! [`Ledger::after`] folds one more receipt, which somebody has checked; [`Ledger::with`] checks, and folds, what a
//! roster, a Regroup or a receipt brings along: its decrees in their order, then its tickets by peer. So uses are
//! exact although nobody counts centrally (T3).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;

use crate::admit::{Authorities, DecreeError, Denied};
use crate::fault::AccessFault;
use crate::id::{Digest, PeerId, RunId};
use crate::message::{Admissions, Clause, Decree, Receipt, Terms, Ticket, Voter};
use crate::sign::Keypair;
use crate::wire;

/// Peers in a ledger, and invites. As many again may be revoked without ever having come.
pub const PEERS_MAX: usize = 4_096;

/// Digests of decrees in a ledger, back from the last.
pub const CHAIN_KEPT: usize = 64;

/// Who is in after some epoch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Ledger {
    authorities: Authorities,
    peers: BTreeMap<PeerId, Admitted>,
    invites: BTreeMap<PeerId, Account>,
    /// Number of the last decree.
    last: u64,
    /// Digests of the last decrees, the oldest first.
    chain: Vec<Digest>,
    /// The epoch whose receipt it is the ledger after, of those that say something.
    epoch: u64,
}

/// What the ledger has of a peer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Admitted {
    /// By what it came, and the epoch whose receipt says so; `None` if it never came.
    pub came: Option<(Via, u64)>,
    /// What revoked it.
    pub revoked: Option<Revocation>,
}

/// By what a peer came.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum Via {
    /// The invite of this key.
    Invite(PeerId),
    /// A ticket made out to it.
    Name,
    /// The decree of this number.
    Decree(u64),
}

/// What the ledger has of an invite.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Account {
    /// What its authors called it.
    pub label: String,
    /// How many it may admit; 0 while nobody has come by it.
    pub uses: u32,
    /// How many have come by it.
    pub spent: u32,
    /// The invite that it is under.
    pub under: Option<PeerId>,
    /// What revoked it.
    pub revoked: Option<Revocation>,
}

/// By which decree something was revoked, and the epoch whose receipt carries that.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Revocation {
    /// Its number.
    pub decree: u64,
    /// The epoch.
    pub epoch: u64,
}

/// Why what a roster, a Regroup or a receipt says about who is in does not hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unlawful {
    /// Out of bounds or out of order.
    Form(AccessFault),
    /// A decree.
    Decree(DecreeError),
    /// The ticket of a peer.
    Ticket(PeerId, Denied),
}

impl Unlawful {
    /// What its author should have seen.
    #[must_use]
    pub fn fault(&self) -> AccessFault {
        match self {
            Self::Form(fault) => *fault,
            Self::Decree(_) => AccessFault::Decree,
            Self::Ticket(..) => AccessFault::Ticket,
        }
    }
}

impl Ledger {
    /// Before epoch 1: nobody is in.
    #[must_use]
    pub fn new(authorities: Authorities) -> Self {
        let (peers, invites) = (BTreeMap::new(), BTreeMap::new());
        Self { authorities, peers, invites, last: 0, chain: Vec::new(), epoch: 0 }
    }

    /// Who signs.
    #[must_use]
    pub fn authorities(&self) -> &Authorities {
        &self.authorities
    }

    /// Everybody who came or was revoked.
    #[must_use]
    pub fn peers(&self) -> &BTreeMap<PeerId, Admitted> {
        &self.peers
    }

    /// Every invite by which somebody came, or that was revoked, by its key.
    #[must_use]
    pub fn invites(&self) -> &BTreeMap<PeerId, Account> {
        &self.invites
    }

    /// Number and digest of the last decree; zeros before the first.
    #[must_use]
    pub fn last(&self) -> (u64, Digest) {
        (self.last, self.chain.last().copied().unwrap_or(Digest::ZERO))
    }

    /// Digest of the decree of this number, if it is one of the last ones.
    #[must_use]
    pub fn decreed(&self, number: u64) -> Option<Digest> {
        let back = usize::try_from(self.last.checked_sub(number)?).ok()?;
        self.chain.iter().nth_back(back).copied().filter(|_| number > 0)
    }

    /// The epoch whose receipt changed it last; 0 before any.
    #[must_use]
    pub fn since(&self) -> u64 {
        self.epoch
    }

    /// What names it: equal ledgers have equal digests.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::derive("intellect-node 1 ledger", &wire::canonical(self))
    }

    /// Whether a peer is in.
    ///
    /// # Errors
    /// Why not, with the remedy.
    pub fn admits(&self, peer: &PeerId) -> Result<(), Denied> {
        match self.peers.get(peer) {
            Some(Admitted { revoked: Some(by), .. }) => {
                Err(Denied::PeerRevoked { decree: by.decree, epoch: by.epoch })
            }
            Some(Admitted { came: Some(_), .. }) => Ok(()),
            _ => {
                let organiser = self.authorities.keys.first().copied().unwrap_or(*peer);
                Err(Denied::Uninvited { organiser })
            }
        }
    }

    /// Whether a peer is revoked.
    #[must_use]
    pub fn revokes(&self, peer: &PeerId) -> bool {
        self.peers.get(peer).is_some_and(|peer| peer.revoked.is_some())
    }

    /// T3: whether a ticket admits `peer` in `epoch`, if nobody comes before it. `key` names the signature scheme.
    ///
    /// # Errors
    /// Why not, with the remedy.
    pub fn check_ticket(
        &self,
        key: &Keypair,
        run: &RunId,
        epoch: u64,
        (peer, ticket): (&PeerId, &Ticket),
    ) -> Result<(), Denied> {
        if self.revokes(peer) {
            return self.admits(peer);
        }
        let until = |until_epoch: u64| {
            let over = until_epoch > 0 && epoch > until_epoch;
            if over { Err(Denied::Over { until_epoch, epoch }) } else { Ok(()) }
        };
        // What costs nothing comes first.
        match ticket {
            Ticket::Invited { invite, .. } => {
                invite.all_terms().try_for_each(|terms| {
                    until(terms.until_epoch)?;
                    self.check_account(terms)
                })?;
            }
            Ticket::Named { until_epoch, .. } => until(*until_epoch)?,
        }
        if self.peers.len() >= PEERS_MAX {
            return Err(Denied::Full);
        }
        ticket.verify(key, run, &self.authorities, peer)
    }

    /// Whether an invite has uses left, and was not revoked.
    fn check_account(&self, terms: &Terms) -> Result<(), Denied> {
        let Some(account) = self.invites.get(&terms.key) else {
            let full = self.invites.len() >= PEERS_MAX;
            return if full { Err(Denied::Full) } else { Ok(()) };
        };
        match account.revoked {
            Some(Revocation { decree, epoch }) => Err(Denied::InviteRevoked { decree, epoch }),
            None if account.spent >= terms.uses => {
                Err(Denied::Used { spent: account.spent, uses: terms.uses })
            }
            None => Ok(()),
        }
    }

    /// Whether a decree is the next one. `key` names the signature scheme.
    ///
    /// # Errors
    /// Why not, with the remedy.
    pub fn check_decree(
        &self,
        key: &Keypair,
        run: &RunId,
        decree: &Decree,
    ) -> Result<(), DecreeError> {
        let (last, digest) = self.last();
        let (found, next) = (decree.number, last.saturating_add(1));
        if decree.run != *run {
            return Err(DecreeError::AnotherRun { run: *run, of: decree.run });
        }
        if found != next {
            return Err(DecreeError::Number { found, next });
        }
        if decree.before != digest {
            return Err(DecreeError::Before { number: found });
        }
        decree.verify(key, run, &self.authorities)
    }

    /// The ledger with what is brought along to `epoch`, each part checked. `members` take part in that epoch, and
    /// are not forgotten.
    ///
    /// # Errors
    /// The first part that does not hold.
    pub fn with(
        self: &Arc<Self>,
        (key, run): (&Keypair, &RunId),
        epoch: u64,
        members: &BTreeSet<PeerId>,
        trust: Option<&Admissions>,
    ) -> Result<Arc<Self>, Unlawful> {
        let Some(trust) = trust else { return Ok(Arc::clone(self)) };
        trust.check().map_err(Unlawful::Form)?;
        let mut ledger = self.as_ref().clone();
        for decree in &trust.decrees {
            ledger.check_decree(key, run, decree).map_err(Unlawful::Decree)?;
            ledger.take(epoch, members, decree);
        }
        for ticket in &trust.tickets {
            let peer = ticket.peer();
            if ledger.admits(&peer).is_ok() {
                return Err(Unlawful::Form(AccessFault::TicketOfWhoIsIn));
            }
            if !members.contains(&peer) {
                return Err(Unlawful::Form(AccessFault::TicketOfNoMember));
            }
            ledger
                .check_ticket(key, run, epoch, (&peer, ticket))
                .map_err(|denied| Unlawful::Ticket(peer, denied))?;
            ledger.admit(epoch, ticket);
        }
        Ok(Arc::new(ledger))
    }

    /// The ledger after a receipt that was checked.
    #[must_use]
    pub fn after(self: &Arc<Self>, receipt: &Receipt) -> Arc<Self> {
        let Some(trust) = &receipt.trust else { return Arc::clone(self) };
        let members = receipt.members.iter().map(|member| member.peer).collect();
        let mut ledger = self.as_ref().clone();
        trust.decrees.iter().for_each(|d| ledger.take(receipt.series.epoch, &members, d));
        trust.tickets.iter().for_each(|ticket| ledger.admit(receipt.series.epoch, ticket));
        Arc::new(ledger)
    }

    /// T6: the voters that a receipt names: its members, without those whom this ledger, the one after it, revokes.
    #[must_use]
    pub fn voters(&self, receipt: &Receipt) -> Vec<Voter> {
        receipt.voters().into_iter().filter(|voter| !self.revokes(&voter.peer)).collect()
    }

    /// Takes a ticket that was checked: its peer is in, and a use of each invite that it comes by is spent.
    pub fn admit(&mut self, epoch: u64, ticket: &Ticket) {
        let via = match ticket {
            Ticket::Invited { invite, .. } => {
                let mut under = None;
                for Terms { key, uses, label, .. } in invite.all_terms() {
                    let account = self.invites.entry(*key).or_default();
                    let spent = account.spent.saturating_add(1);
                    let revoked = account.revoked;
                    *account = Account { label: label.clone(), uses: *uses, spent, under, revoked };
                    under = Some(*key);
                }
                Via::Invite(invite.innermost().key)
            }
            Ticket::Named { .. } => Via::Name,
        };
        let came = Some((via, epoch));
        self.peers.insert(ticket.peer(), Admitted { came, revoked: None });
        self.epoch = epoch;
    }

    /// Takes a decree that was checked.
    pub fn take(&mut self, epoch: u64, members: &BTreeSet<PeerId>, decree: &Decree) {
        let by = Revocation { decree: decree.number, epoch };
        (self.last, self.epoch) = (decree.number, epoch);
        self.chain.push(decree.digest());
        if self.chain.len() > CHAIN_KEPT {
            self.chain.remove(0);
        }
        for clause in &decree.clauses {
            match clause {
                Clause::RevokePeer(peer) => self.revoke(*peer, by),
                Clause::RevokeInvite { key, admitted } => self.revoke_invite(*key, *admitted, by),
                Clause::Admit(peer) => self.admit_by(*peer, by),
                Clause::Lift(key) => self.lift(key),
                Clause::Authorities { keys, threshold } => {
                    let threshold = usize::from(*threshold);
                    self.authorities = Authorities { keys: keys.clone(), threshold };
                }
                // It names the voters after a state. Nobody comes in or goes by it.
                Clause::Rescue { .. } => {}
                Clause::Forget(peer) => {
                    if !members.contains(peer) && !self.revokes(peer) {
                        self.peers.remove(peer);
                    }
                }
            }
        }
    }

    fn revoke(&mut self, peer: PeerId, by: Revocation) {
        if self.peers.len() < 2 * PEERS_MAX || self.peers.contains_key(&peer) {
            let entry = self.peers.entry(peer).or_insert(Admitted { came: None, revoked: None });
            entry.revoked.get_or_insert(by);
        }
    }

    fn revoke_invite(&mut self, key: PeerId, admitted: bool, by: Revocation) {
        if self.invites.len() < 2 * PEERS_MAX || self.invites.contains_key(&key) {
            self.invites.entry(key).or_default().revoked.get_or_insert(by);
        }
        if !admitted {
            return;
        }
        let is_of = |via: &Via| {
            let Via::Invite(invite) = via else { return false };
            let under = self.invites.get(invite).and_then(|account| account.under);
            *invite == key || under == Some(key)
        };
        let came = self.peers.iter().filter(|(_, peer)| peer.came.is_some_and(|(v, _)| is_of(&v)));
        let came: Vec<PeerId> = came.map(|(peer, _)| *peer).collect();
        came.into_iter().for_each(|peer| self.revoke(peer, by));
    }

    fn admit_by(&mut self, peer: PeerId, by: Revocation) {
        let room = self.peers.len() < PEERS_MAX || self.peers.contains_key(&peer);
        if room && self.admits(&peer).is_err() {
            let revoked = self.peers.get(&peer).and_then(|peer| peer.revoked);
            let came = Some((Via::Decree(by.decree), by.epoch));
            self.peers.insert(peer, Admitted { came, revoked });
        }
    }

    fn lift(&mut self, key: &PeerId) {
        if let Some(peer) = self.peers.get_mut(key) {
            peer.revoked = None;
            if peer.came.is_none() {
                self.peers.remove(key);
            }
        }
        if let Some(invite) = self.invites.get_mut(key) {
            invite.revoked = None;
            if invite.spent == 0 {
                self.invites.remove(key);
            }
        }
    }
}

/// The ledgers of a lineage: what its receipts brought along, so that the one of any epoch can be had.
#[derive(Clone, Debug)]
pub struct Ledgers {
    first: Arc<Ledger>,
    /// The receipts that say something, by epoch.
    parts: BTreeMap<u64, Arc<Receipt>>,
    newest: Arc<Ledger>,
}

impl Ledgers {
    /// Those of a lineage that begins with `first`.
    #[must_use]
    pub fn new(first: Arc<Ledger>) -> Self {
        Self { newest: Arc::clone(&first), parts: BTreeMap::new(), first }
    }

    /// The ledger after the last epoch.
    #[must_use]
    pub fn newest(&self) -> &Arc<Ledger> {
        &self.newest
    }

    /// The ledger after an epoch.
    #[must_use]
    pub fn at(&self, epoch: u64) -> Arc<Ledger> {
        if self.parts.range(epoch.saturating_add(1)..).next().is_none() {
            return Arc::clone(&self.newest);
        }
        let parts = self.parts.range(..=epoch);
        parts.fold(Arc::clone(&self.first), |ledger, (_, receipt)| ledger.after(receipt))
    }

    /// Takes the receipt of the next epoch.
    pub fn push(&mut self, receipt: &Receipt) {
        if receipt.trust.is_some() {
            self.newest = self.newest.after(receipt);
            self.parts.insert(receipt.series.epoch, Arc::new(receipt.clone()));
        }
    }

    /// Gives up what lies beyond an epoch.
    pub fn truncate(&mut self, epoch: u64) {
        self.newest = self.at(epoch);
        self.parts.retain(|at, _| *at <= epoch);
    }
}
