//! Which peers are admitted: a fold over the receipts of a lineage, and over nothing else (T1).
//!
//! Before epoch e the ledger is what the receipts up to e − 1 say: which peers were admitted, by
//! which invite and since when, how often each invite was used, what was revoked, and the last
//! notice. No server keeps it and no clock decides: equal lineages have equal ledgers (S8).
//!
//! [`Ledger::after`] folds one more receipt that was checked already. [`Ledger::with`]
//! checks and folds what a roster, a Regroup or a receipt brings along: first its notices in
//! their order, then its tickets by peer. So the uses of an invite are exact although no
//! single peer counts them (T3).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;

use crate::access::admit::Denied;
use crate::access::notices::{NoticeError, Point};
use crate::base::fault::{AccessFault, require};
use crate::base::id::{Digest, PeerId, RunId};
use crate::message::{Admissions, Clause, Notice, Receipt, Terms, Ticket, Voter, wire};

/// Most peers in a ledger, and most invites. As many again may be
/// revoked without ever having joined.
pub const PEERS_MAX: usize = 4_096;

/// Which peers are admitted after some epoch. It is cheap to keep for each epoch: an epoch whose
/// receipt has no trust part shares the ledger before it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Ledger {
    run: RunId,
    organiser: PeerId,
    peers: BTreeMap<PeerId, Admitted>,
    invites: BTreeMap<PeerId, Account>,
    /// Number and digest of the last notice; zeros before the first.
    last: Point,
    /// The epoch whose receipt changed the ledger last.
    epoch: u64,
}

/// What the ledger says about a peer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Admitted {
    /// How it was admitted, and the epoch whose receipt says so; `None` if it never was.
    pub came: Option<(Via, u64)>,
    /// The notice that revoked it, if any; such a peer is not admitted.
    pub revoked: Option<Revocation>,
}

/// The reason for which a peer is admitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum Via {
    /// With a ticket of the invite that has this key.
    Invite(PeerId),
    /// With a ticket that the organiser signed for it.
    Name,
    /// By the notice of this number.
    Notice(u64),
}

/// What the ledger says about an invite.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Account {
    /// The name that the organiser gave it, for lists.
    pub label: String,
    /// How many peers it admits; 0 until one has joined with it.
    pub uses: u32,
    /// How many peers have joined with it, at most `uses`. It does not fall when such a peer is
    /// revoked: the owner of the code could come back with another key.
    pub spent: u32,
    /// The notice that revoked it, if any; it admits no more peers.
    pub revoked: Option<Revocation>,
}

/// The notice that revoked something, and the epoch whose receipt carries it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Revocation {
    /// Number of the notice in the chain.
    pub notice: u64,
    /// The epoch whose receipt carries it.
    pub epoch: u64,
}

/// Why a trust part is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unlawful {
    /// It is out of bounds or out of order.
    Form(AccessFault),
    /// A notice in it is not the next one, or not signed.
    Notice(NoticeError),
    /// The ticket of this peer does not admit it.
    Ticket(PeerId, Denied),
}

impl Unlawful {
    /// The fault of the trust part's author, who could have checked it.
    pub fn fault(&self) -> AccessFault {
        match self {
            Self::Form(fault) => *fault,
            Self::Notice(_) => AccessFault::Notice,
            Self::Ticket(..) => AccessFault::Ticket,
        }
    }
}

impl Ledger {
    /// The ledger before epoch 1: no peer is admitted.
    #[must_use]
    pub fn new(run: RunId, organiser: PeerId) -> Self {
        let (peers, invites) = (BTreeMap::new(), BTreeMap::new());
        Self { run, organiser, peers, invites, last: (0, Digest::ZERO), epoch: 0 }
    }

    /// Every peer that was ever admitted or revoked.
    pub fn peers(&self) -> &BTreeMap<PeerId, Admitted> {
        &self.peers
    }

    /// Every invite that was used or revoked, by its key.
    pub fn invites(&self) -> &BTreeMap<PeerId, Account> {
        &self.invites
    }

    /// Number and digest of the last notice; zeros before the first.
    pub fn last(&self) -> Point {
        self.last
    }

    /// The epoch whose receipt changed the ledger last; 0 before any did.
    pub fn since(&self) -> u64 {
        self.epoch
    }

    /// A digest that equal ledgers share, and no two different ones (S8).
    pub fn digest(&self) -> Digest {
        Digest::derive("intellect-node 1 ledger", &wire::canonical(self))
    }

    /// Whether a peer is admitted, and not revoked.
    ///
    /// # Errors
    /// [`Denied`]; its text names the remedy.
    pub fn admits(&self, peer: &PeerId) -> Result<(), Denied> {
        match self.peers.get(peer) {
            Some(Admitted { revoked: Some(by), .. }) => {
                Err(Denied::PeerRevoked { notice: by.notice, epoch: by.epoch })
            }
            Some(Admitted { came: Some(_), .. }) => Ok(()),
            _ => Err(Denied::Uninvited { organiser: self.organiser }),
        }
    }

    /// Whether a peer is revoked; false for one that is unknown.
    #[must_use]
    pub fn revokes(&self, peer: &PeerId) -> bool {
        self.peers.get(peer).is_some_and(|peer| peer.revoked.is_some())
    }

    /// T3: whether a ticket admits `peer` in `epoch`, if no other ticket is taken before it.
    ///
    /// # Errors
    /// [`Denied`]; its text names the remedy.
    pub fn check_ticket(&self, epoch: u64, peer: &PeerId, ticket: &Ticket) -> Result<(), Denied> {
        // Checks without a signature come first: they cost nothing.
        self.check_terms(epoch, peer, ticket)?;
        ticket.verify(&self.organiser, &self.run, peer)
    }

    /// [`Self::check_ticket`] of a ticket whose signatures were checked before.
    fn check_terms(&self, epoch: u64, peer: &PeerId, ticket: &Ticket) -> Result<(), Denied> {
        if self.revokes(peer) {
            return self.admits(peer);
        }
        let until_epoch = match ticket {
            Ticket::Invited { invite, .. } => invite.terms.until_epoch,
            Ticket::Named { until_epoch, .. } => *until_epoch,
        };
        require(until_epoch == 0 || epoch <= until_epoch, Denied::Over { until_epoch, epoch })?;
        ticket.terms().map_or(Ok(()), |terms| self.check_account(terms))?;
        require(self.peers.len() < PEERS_MAX, Denied::Full)
    }

    /// Whether an invite has uses left and is not revoked.
    fn check_account(&self, terms: &Terms) -> Result<(), Denied> {
        let Some(account) = self.invites.get(&terms.key) else {
            return require(self.invites.len() < PEERS_MAX, Denied::Full);
        };
        if let Some(Revocation { notice, epoch }) = account.revoked {
            return Err(Denied::InviteRevoked { notice, epoch });
        }
        let (spent, uses) = (account.spent, terms.uses);
        require(spent < uses, Denied::Used { spent, uses })
    }

    /// Whether a notice follows directly on the last one and is signed.
    ///
    /// # Errors
    /// [`NoticeError`]; its text names the remedy.
    pub fn check_notice(&self, notice: &Notice) -> Result<(), NoticeError> {
        let (known, digest) = self.last;
        let number = notice.number;
        let follows = (number, notice.before) == (known.saturating_add(1), digest);
        require(follows, NoticeError::Follows { number, known })?;
        notice.verify(&self.organiser, &self.run)
    }

    /// The ledger with the trust part of `epoch`, every part of it checked. `members` take part in
    /// that epoch. The notices come first: one of them may revoke the invite of a ticket that comes
    /// with it, and then that ticket is refused.
    ///
    /// # Errors
    /// The first part that is refused.
    pub fn with(
        self: &Arc<Self>,
        epoch: u64,
        members: &BTreeSet<PeerId>,
        trust: Option<&Admissions>,
    ) -> Result<Arc<Self>, Unlawful> {
        self.with_known(epoch, members, trust, |_| false)
    }

    /// [`Self::with`], where the signatures of `known` tickets were checked before.
    ///
    /// # Errors
    /// The first part that is refused.
    pub fn with_known(
        self: &Arc<Self>,
        epoch: u64,
        members: &BTreeSet<PeerId>,
        trust: Option<&Admissions>,
        known: impl Fn(&Ticket) -> bool,
    ) -> Result<Arc<Self>, Unlawful> {
        let Some(trust) = trust else { return Ok(Arc::clone(self)) };
        trust.check().map_err(Unlawful::Form)?;
        let mut ledger = self.as_ref().clone();
        for notice in &trust.notices {
            ledger.check_notice(notice).map_err(Unlawful::Notice)?;
            ledger.take(epoch, notice);
        }
        for ticket in &trust.tickets {
            let peer = ticket.peer();
            require(ledger.admits(&peer).is_err(), Unlawful::Form(AccessFault::TicketOfWhoIsIn))?;
            require(members.contains(&peer), Unlawful::Form(AccessFault::TicketOfNoMember))?;
            let may = match known(ticket) {
                true => ledger.check_terms(epoch, &peer, ticket),
                false => ledger.check_ticket(epoch, &peer, ticket),
            };
            may.map_err(|denied| Unlawful::Ticket(peer, denied))?;
            ledger.admit(epoch, ticket);
        }
        Ok(Arc::new(ledger))
    }

    /// The ledger after a receipt that was checked.
    #[must_use]
    pub fn after(self: &Arc<Self>, receipt: &Receipt) -> Arc<Self> {
        let Some(trust) = &receipt.trust else { return Arc::clone(self) };
        let mut ledger = self.as_ref().clone();
        trust.notices.iter().for_each(|notice| ledger.take(receipt.series.epoch, notice));
        trust.tickets.iter().for_each(|ticket| ledger.admit(receipt.series.epoch, ticket));
        Arc::new(ledger)
    }

    /// T6: the voters that a receipt names: its members, without those that this
    /// ledger, the one after it, revokes.
    pub fn voters(&self, receipt: &Receipt) -> Vec<Voter> {
        receipt.voters().into_iter().filter(|voter| !self.revokes(&voter.peer)).collect()
    }

    /// Takes a ticket that was checked: admits its peer, and counts a use of the invite.
    pub fn admit(&mut self, epoch: u64, ticket: &Ticket) {
        let via = ticket.terms().map_or(Via::Name, |Terms { key, uses, label, .. }| {
            let account = self.invites.entry(*key).or_default();
            (account.label, account.uses) = (label.clone(), *uses);
            account.spent = account.spent.saturating_add(1);
            Via::Invite(*key)
        });
        let came = Some((via, epoch));
        self.peers.insert(ticket.peer(), Admitted { came, revoked: None });
        self.epoch = epoch;
    }

    /// Takes a notice that was checked, and carries out its clauses in order.
    pub fn take(&mut self, epoch: u64, notice: &Notice) {
        let by = Revocation { notice: notice.number, epoch };
        (self.last, self.epoch) = (notice.place(), epoch);
        for clause in notice.clauses() {
            match clause {
                Clause::RevokePeer(peer) => {
                    self.revoke(*peer, by);
                    // The owner may still hold the code, and could join again with another key.
                    let came = self.peers.get(peer).and_then(|peer| peer.came);
                    if let Some((Via::Invite(key), _)) = came {
                        self.revoke_invite(key, by);
                    }
                }
                Clause::RevokeInvite { key, admitted } => {
                    self.revoke_invite(*key, by);
                    if *admitted {
                        for peer in self.came_by(key) {
                            self.revoke(peer, by);
                        }
                    }
                }
                Clause::Admit(peer) => self.admit_by(*peer, by),
            }
        }
    }

    /// Revokes a peer, also one that was never admitted. The first revocation stands. Twice
    /// [`PEERS_MAX`] bounds the memory; beyond it only known peers can be revoked.
    fn revoke(&mut self, peer: PeerId, by: Revocation) {
        if self.peers.len() < 2 * PEERS_MAX || self.peers.contains_key(&peer) {
            let entry = self.peers.entry(peer).or_insert(Admitted { came: None, revoked: None });
            entry.revoked.get_or_insert(by);
        }
    }

    /// Revokes an invite, within the same bound: no ticket of it admits anyone from now on.
    fn revoke_invite(&mut self, key: PeerId, by: Revocation) {
        if self.invites.len() < 2 * PEERS_MAX || self.invites.contains_key(&key) {
            self.invites.entry(key).or_default().revoked.get_or_insert(by);
        }
    }

    /// The peers that an invite has admitted.
    fn came_by(&self, invite: &PeerId) -> Vec<PeerId> {
        let by =
            |peer: &Admitted| matches!(peer.came, Some((Via::Invite(key), _)) if key == *invite);
        self.peers.iter().filter(|(_, peer)| by(peer)).map(|(peer, _)| *peer).collect()
    }

    /// Lifts a revocation. A peer that is already admitted keeps the way in which it was.
    fn admit_by(&mut self, peer: PeerId, by: Revocation) {
        let room = self.peers.len() < PEERS_MAX || self.peers.contains_key(&peer);
        if room && self.admits(&peer).is_err() {
            let came = Some((Via::Notice(by.notice), by.epoch));
            self.peers.insert(peer, Admitted { came, revoked: None });
        }
    }
}

/// The ledgers of a lineage. Receipts with a trust part are kept, so that the ledger
/// of any epoch can be computed. Only the newest ledger is stored. That of an older epoch is folded
/// anew, which happens only when another lineage is verified or followed.
#[derive(Clone, Debug)]
pub struct Ledgers {
    first: Arc<Ledger>,
    /// The receipts that have a trust part, by epoch.
    parts: BTreeMap<u64, Arc<Receipt>>,
    newest: Arc<Ledger>,
}

impl Ledgers {
    /// The ledgers of a lineage that begins with `first`.
    #[must_use]
    pub fn new(first: Arc<Ledger>) -> Self {
        Self { newest: Arc::clone(&first), parts: BTreeMap::new(), first }
    }

    /// The ledger after the last epoch.
    pub fn newest(&self) -> &Arc<Ledger> {
        &self.newest
    }

    /// The ledger after `epoch`, computed from the first one where that is not the last.
    pub fn at(&self, epoch: u64) -> Arc<Ledger> {
        if self.parts.range(epoch.saturating_add(1)..).next().is_none() {
            return Arc::clone(&self.newest);
        }
        let parts = self.parts.range(..=epoch);
        parts.fold(Arc::clone(&self.first), |ledger, (_, receipt)| ledger.after(receipt))
    }

    /// Takes the receipt of the next epoch, which was checked.
    pub fn push(&mut self, receipt: &Receipt) {
        if receipt.trust.is_some() {
            self.newest = self.newest.after(receipt);
            self.parts.insert(receipt.series.epoch, Arc::new(receipt.clone()));
        }
    }

    /// Drops what the lineage says after `epoch`, when that part is given up.
    pub fn truncate(&mut self, epoch: u64) {
        self.newest = self.at(epoch);
        self.parts.retain(|at, _| *at <= epoch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::sign::Keypair;
    use crate::message::{Body, Invite};

    const RUN: RunId = RunId([9; 32]);

    fn key(seed: u8) -> Keypair {
        Keypair::from_seed(&[seed; 32])
    }

    fn peer(seed: u8) -> PeerId {
        key(seed).peer()
    }

    /// The ticket of a peer by the invite of key 10, which admits five.
    fn ticket(seed: u8) -> Ticket {
        let terms = Terms { uses: 5, ..Terms::new(peer(10)) };
        Ticket::invited(Invite::new(RUN, terms, &key(1)), &key(10), peer(seed))
    }

    /// The ledger after a notice with this clause.
    fn decided(mut ledger: Ledger, clause: Clause) -> Ledger {
        let body = Body::Membership(vec![clause]);
        let notice = Notice::after(RUN, ledger.last(), body, &key(1));
        assert_eq!(ledger.check_notice(&notice), Ok(()));
        ledger.take(9, &notice);
        ledger
    }

    /// The owner of a revoked peer may hold the code by which it joined:
    /// another key cannot join with that.
    #[test]
    fn t6_to_revoke_a_peer_closes_the_invite_by_which_it_came() {
        let mut ledger = Ledger::new(RUN, peer(1));
        [20, 21].iter().for_each(|seed| ledger.admit(3, &ticket(*seed)));
        let ledger = decided(ledger, Clause::RevokePeer(peer(20)));
        let told = ledger.check_ticket(10, &peer(22), &ticket(22)).unwrap_err().to_string();
        assert!(told.contains("this invite was revoked by notice 1"), "{told}");
        assert_eq!(ledger.admits(&peer(21)), Ok(()), "who has come by it as well stays");
        // A name that the organiser lets in again opens no invite.
        let ledger = decided(ledger, Clause::Admit(peer(20)));
        assert_eq!(ledger.admits(&peer(20)), Ok(()));
        assert!(ledger.check_ticket(10, &peer(22), &ticket(22)).is_err());
    }

    #[test]
    fn t6_who_came_by_an_invite_is_out_with_it_unless_the_organiser_has_named_it_since() {
        let mut ledger = Ledger::new(RUN, peer(1));
        [20, 21, 22].iter().for_each(|seed| ledger.admit(3, &ticket(*seed)));
        let ledger = decided(ledger, Clause::RevokePeer(peer(22)));
        let ledger = decided(ledger, Clause::Admit(peer(22)));
        let ledger = decided(ledger, Clause::RevokeInvite { key: peer(10), admitted: true });
        assert_eq!(
            [20, 21, 22].map(|seed| ledger.admits(&peer(seed)).is_ok()),
            [false, false, true]
        );
    }
}
