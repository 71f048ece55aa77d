//! Admission: who may sign what about who is in (T2–T4, T13), and whether it was signed.
//!
//! A run of invited peers has *authorities*, at first its organiser. `trust.threshold` of them sign
//!
//! - an [`Invite`]: so many peers may come by it. Together with the seed of its key it is a bearer
//!   [`Code`](code::Code), from which a joiner makes its own [`Ticket`], offline;
//! - a ticket for a named peer;
//! - a [`Decree`]: who is revoked, who is in, who signs from now on.
//!
//! Every signature is over canonical bytes under a domain of its own, and over the run. What is checked here
//! needs nothing but the object and [`Authorities`]; what depends on who came before (uses, revocations, numbers
//! of decrees) is the [`ledger`](crate::ledger)'s.
//!
//! ```text
//! invite new → Invite::new(run, terms).signed(&organiser)    → Code::Bearer { invite, seed }.to_string()
//! --invite   → code.parse::<Code>()?.ticket(&me)             → Ticket, shown in heartbeats until it is in the ledger
//! revoke     → Decree::after(run, last, clauses).signed(&organiser)
//! ```

pub mod code;
mod denied;

use std::collections::BTreeSet;

use serde::Serialize;

use crate::fault::AccessFault;
use crate::id::{Digest, PeerId, RunId};
use crate::message::{Admissions, Branch, Clause, Decree, Invite, Signed, Terms, Ticket};
use crate::sign::{Keypair, Signature};
use crate::wire;

pub use denied::{DecreeError, Denied};

/// Most authorities of a run.
pub const AUTHORITIES_MAX: usize = 8;

/// Longest ticket, in bytes. One that a single authority has signed has at most 400; what eight have signed, with
/// an invite under it, fits.
pub const TICKET_BYTES_MAX: usize = 1_200;

/// Longest decree, in bytes.
pub const DECREE_BYTES_MAX: usize = 8 << 10;

/// Longest trust part of a roster, receipt or Regroup, in bytes.
pub const ADMISSIONS_BYTES_MAX: usize = 24 << 10;

/// Tickets and decrees in one trust part.
pub const TICKETS_MAX: usize = 64;
/// See [`TICKETS_MAX`].
pub const DECREES_MAX: usize = 4;

/// Most uses of an invite.
pub const USES_MAX: u32 = 1_000;

/// Longest label of an invite, in bytes.
pub const LABEL_MAX: usize = 32;

/// How long after its time an invite is still accepted, in seconds: clocks differ (T4).
pub const EXPIRY_SLACK: u64 = 3_600;

/// Who signs for a run: `trust.authorities` and `trust.threshold` of its manifest, until a decree says others.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Authorities {
    /// Their keys, 1–8, each once.
    pub keys: Vec<PeerId>,
    /// How many must sign, 1 to all.
    pub threshold: usize,
}

impl Authorities {
    /// Whether there can be such: 1–8 different keys, and a threshold that they can reach.
    ///
    /// # Errors
    /// What is wrong, and the remedy.
    pub fn check(&self) -> Result<(), &'static str> {
        let different: BTreeSet<&PeerId> = self.keys.iter().collect();
        match () {
            () if !(1..=AUTHORITIES_MAX).contains(&self.keys.len()) => {
                Err("names no authorities, or more than 8: name 1 to 8")
            }
            () if different.len() < self.keys.len() => {
                Err("names an authority twice: name it once")
            }
            () if !(1..=self.keys.len()).contains(&self.threshold) => {
                Err("asks for signatures of none, or of more than there are: take 1 to all of them")
            }
            () => Ok(()),
        }
    }

    /// How many authorities have signed `body` as `tag`; each counts once. `key` names the signature scheme.
    fn signers(&self, key: &Keypair, tag: &str, run: &RunId, body: &[u8], by: &[Signed]) -> usize {
        let known = by.iter().take(AUTHORITIES_MAX).filter(|(who, _)| self.keys.contains(who));
        let good = known.filter(|(who, signature)| key.check(who, tag, run, body, signature));
        good.map(|(who, _)| who).collect::<BTreeSet<_>>().len()
    }

    fn have_signed(
        &self,
        key: &Keypair,
        tag: &str,
        run: &RunId,
        body: &[u8],
        by: &[Signed],
    ) -> Result<(), (usize, usize)> {
        let found = self.signers(key, tag, run, body, by);
        if found < self.threshold { Err((found, self.threshold)) } else { Ok(()) }
    }
}

impl Terms {
    /// What `invite new` proposes: one peer, whenever it comes.
    #[must_use]
    pub fn new(key: PeerId) -> Self {
        Self { key, uses: 1, until_epoch: 0, expires: 0, may_invite: false, label: String::new() }
    }

    /// Whether there can be such terms.
    ///
    /// # Errors
    /// [`Denied::Malformed`].
    pub fn check(&self) -> Result<(), Denied> {
        let known = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let why = match () {
            () if !(1..=USES_MAX).contains(&self.uses) => "it has no uses, or more than 1,000",
            () if self.label.len() > LABEL_MAX => "its label has more than 32 bytes",
            () if !self.label.bytes().all(known) => "its label has more than A-Za-z0-9._-",
            () => return Ok(()),
        };
        Err(Denied::Malformed { why })
    }

    /// T4: whether the clock still allows it, at `now` in Unix seconds.
    ///
    /// # Errors
    /// [`Denied::Expired`].
    pub fn check_clock(&self, now: u64) -> Result<(), Denied> {
        let expires = self.expires;
        let over = expires > 0 && now > expires.saturating_add(EXPIRY_SLACK);
        if over { Err(Denied::Expired { expires }) } else { Ok(()) }
    }
}

impl Invite {
    /// An invite that nobody has signed.
    #[must_use]
    pub fn new(run: RunId, terms: Terms) -> Self {
        Self { run, terms, signatures: Vec::new(), branch: None }
    }

    /// The same with one more authority's signature.
    #[must_use]
    pub fn signed(mut self, authority: &Keypair) -> Self {
        let signature = authority.sign(INVITE, &self.run, &wire::canonical(&self.terms));
        put(&mut self.signatures, authority.peer(), signature);
        self
    }

    /// An invite under this one, by its key (T13).
    ///
    /// # Errors
    /// [`Denied::Malformed`] where this one allows none, or no such one.
    pub fn branched(&self, key: &Keypair, terms: Terms) -> Result<Self, Denied> {
        let signature = key.sign(BRANCH, &self.run, &wire::canonical(&(self.terms.key, &terms)));
        let branch = Some(Branch { terms, signature });
        let invite = Self { branch, ..self.clone() };
        invite.check_branch(key)?;
        Ok(invite)
    }

    /// The terms by which a joiner comes: those of the branch, if there is one.
    #[must_use]
    pub fn innermost(&self) -> &Terms {
        self.branch.as_ref().map_or(&self.terms, |branch| &branch.terms)
    }

    /// The terms of the invite, then those of its branch.
    pub fn all_terms(&self) -> impl Iterator<Item = &Terms> {
        [Some(&self.terms), self.branch.as_ref().map(|branch| &branch.terms)].into_iter().flatten()
    }

    /// Whether the authorities have signed it for `run`, and its own key what is under it. `key` names the
    /// signature scheme.
    ///
    /// # Errors
    /// [`Denied`], with the remedy.
    pub fn verify(&self, key: &Keypair, run: &RunId, by: &Authorities) -> Result<(), Denied> {
        if self.run != *run {
            return Err(Denied::AnotherRun { run: *run, of: self.run });
        }
        self.terms.check()?;
        self.check_branch(key)?;
        by.have_signed(key, INVITE, run, &wire::canonical(&self.terms), &self.signatures)
            .map_err(|(found, needed)| Denied::Unsigned { found, needed })
    }

    fn check_branch(&self, key: &Keypair) -> Result<(), Denied> {
        let Some(Branch { terms, signature }) = &self.branch else { return Ok(()) };
        terms.check()?;
        let why = match () {
            () if !self.terms.may_invite => "it is under one that may not invite",
            () if terms.may_invite => "an invite under another one may not invite",
            () if terms.key == self.terms.key => "it is under itself",
            () => {
                let body = wire::canonical(&(self.terms.key, terms));
                let good = key.check(&self.terms.key, BRANCH, &self.run, &body, signature);
                return if good { Ok(()) } else { Err(Denied::NotByTheInvite) };
            }
        };
        Err(Denied::Malformed { why })
    }
}

impl Ticket {
    /// A ticket for `peer` by the innermost key of `invite`.
    #[must_use]
    pub fn invited(invite: Invite, key: &Keypair, peer: PeerId) -> Self {
        let signature = key.sign(TICKET, &invite.run, peer.as_bytes());
        Self::Invited { invite: Box::new(invite), peer, signature }
    }

    /// A ticket for a named peer that nobody has signed.
    #[must_use]
    pub fn named(run: RunId, peer: PeerId, until_epoch: u64) -> Self {
        Self::Named { run, peer, until_epoch, signatures: Vec::new() }
    }

    /// A ticket for a named peer with one more authority's signature; one by an invite is as it was.
    #[must_use]
    pub fn signed(mut self, authority: &Keypair) -> Self {
        if let Self::Named { run, peer, until_epoch, signatures } = &mut self {
            let signature = authority.sign(PASS, run, &wire::canonical(&(*peer, *until_epoch)));
            put(signatures, authority.peer(), signature);
        }
        self
    }

    /// Whom it admits.
    #[must_use]
    pub fn peer(&self) -> PeerId {
        match self {
            Self::Invited { peer, .. } | Self::Named { peer, .. } => *peer,
        }
    }

    /// The run that it is for.
    #[must_use]
    pub fn run(&self) -> RunId {
        match self {
            Self::Invited { invite, .. } => invite.run,
            Self::Named { run, .. } => *run,
        }
    }

    /// The invite by which it admits, if any.
    #[must_use]
    pub fn invite(&self) -> Option<&Invite> {
        match self {
            Self::Invited { invite, .. } => Some(invite),
            Self::Named { .. } => None,
        }
    }

    /// Its length, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        wire::canonical(self).len()
    }

    /// Whether it was signed, for `run` and for `peer`. `key` names the signature scheme. Uses, epochs and
    /// revocations are the ledger's ([`Ledger::check_ticket`](crate::ledger::Ledger::check_ticket)).
    ///
    /// # Errors
    /// [`Denied`], with the remedy.
    pub fn verify(
        &self,
        key: &Keypair,
        run: &RunId,
        by: &Authorities,
        peer: &PeerId,
    ) -> Result<(), Denied> {
        if self.run() != *run {
            return Err(Denied::AnotherRun { run: *run, of: self.run() });
        }
        if self.peer() != *peer {
            return Err(Denied::AnotherPeer { peer: self.peer() });
        }
        if self.bytes() > TICKET_BYTES_MAX {
            return Err(Denied::Malformed { why: "it is too long" });
        }
        match self {
            Self::Invited { invite, signature, .. } => {
                let inviter = &invite.innermost().key;
                if !key.check(inviter, TICKET, run, peer.as_bytes(), signature) {
                    return Err(Denied::NotByTheInvite);
                }
                invite.verify(key, run, by)
            }
            Self::Named { until_epoch, signatures, .. } => {
                let body = wire::canonical(&(*peer, *until_epoch));
                by.have_signed(key, PASS, run, &body, signatures)
                    .map_err(|(found, needed)| Denied::Unsigned { found, needed })
            }
        }
    }

    /// T4: whether the clock allows what it comes by, at `now` in Unix seconds.
    ///
    /// # Errors
    /// [`Denied::Expired`].
    pub fn check_clock(&self, now: u64) -> Result<(), Denied> {
        self.invite().into_iter().flat_map(Invite::all_terms).try_for_each(|t| t.check_clock(now))
    }
}

impl Decree {
    /// The decree after `last` (number and digest; zeros before the first), which nobody has signed.
    #[must_use]
    pub fn after(run: RunId, (number, before): (u64, Digest), clauses: Vec<Clause>) -> Self {
        Self { run, number: number.saturating_add(1), before, clauses, signatures: Vec::new() }
    }

    /// The same with one more authority's signature.
    #[must_use]
    pub fn signed(mut self, authority: &Keypair) -> Self {
        let signature = authority.sign(DECREE, &self.run, &self.body());
        put(&mut self.signatures, authority.peer(), signature);
        self
    }

    /// What names it: who has signed it is no part of that, so that more may.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::derive(
            "intellect-node 1 decree",
            &[self.run.as_bytes().as_slice(), &self.body()].concat(),
        )
    }

    /// Who has signed it, for `decree-conflict` (T8).
    pub fn signers(&self) -> impl Iterator<Item = PeerId> {
        self.signatures.iter().map(|(who, _)| *who)
    }

    /// Whether it can be, and the authorities have signed it; its place in the chain is the ledger's. `key` names
    /// the signature scheme.
    ///
    /// # Errors
    /// [`DecreeError`], with the remedy.
    pub fn verify(&self, key: &Keypair, run: &RunId, by: &Authorities) -> Result<(), DecreeError> {
        let number = self.number;
        if self.run != *run {
            return Err(DecreeError::AnotherRun { run: *run, of: self.run });
        }
        let bytes = wire::canonical(self).len();
        if bytes > DECREE_BYTES_MAX {
            return Err(DecreeError::TooLong { bytes });
        }
        let failed = |why| DecreeError::Clause { number, why };
        if self.clauses.is_empty() || number == 0 {
            return Err(failed("decides nothing: give it a clause"));
        }
        for clause in &self.clauses {
            match clause {
                Clause::Authorities { keys, threshold } => {
                    let threshold = usize::from(*threshold);
                    Authorities { keys: keys.clone(), threshold }.check().map_err(failed)?;
                }
                Clause::Rescue { voters, .. } => {
                    let different: BTreeSet<&PeerId> = voters.iter().collect();
                    if voters.is_empty() || different.len() < voters.len() {
                        return Err(failed("rescues with no voters, or names one twice"));
                    }
                }
                Clause::RevokePeer(_)
                | Clause::RevokeInvite { .. }
                | Clause::Admit(_)
                | Clause::Lift(_)
                | Clause::Forget(_) => {}
            }
        }
        by.have_signed(key, DECREE, run, &self.body(), &self.signatures)
            .map_err(|(found, needed)| DecreeError::Unsigned { number, found, needed })
    }

    /// What is signed, and what names it.
    fn body(&self) -> Vec<u8> {
        wire::canonical(&(self.number, self.before, &self.clauses))
    }
}

impl Admissions {
    /// Whether it says nothing: then it is left out.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.decrees.is_empty() && self.tickets.is_empty()
    }

    /// Its length, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        wire::canonical(self).len()
    }

    /// Whether it is within its bounds, with its tickets in order (D1).
    ///
    /// # Errors
    /// What whoever made it should have seen.
    pub fn check(&self) -> Result<(), AccessFault> {
        let rising = self.tickets.windows(2).all(|pair| pair[0].peer() < pair[1].peer());
        match () {
            () if self.is_empty() => Err(AccessFault::Empty),
            () if self.tickets.len() > TICKETS_MAX => Err(AccessFault::ManyTickets),
            () if self.decrees.len() > DECREES_MAX => Err(AccessFault::ManyDecrees),
            () if self.bytes() > ADMISSIONS_BYTES_MAX => Err(AccessFault::TooLong),
            () if !rising => Err(AccessFault::TicketOrder),
            () => Ok(()),
        }
    }
}

/// Adds a signature, or puts it in the place of an earlier one of the same key.
fn put(signatures: &mut Vec<Signed>, who: PeerId, signature: Signature) {
    signatures.retain(|(other, _)| *other != who);
    signatures.push((who, signature));
    signatures.sort_unstable_by_key(|(who, _)| *who);
}

/// Domain tags.
const INVITE: &str = "invite";
const BRANCH: &str = "branch";
const TICKET: &str = "ticket";
const PASS: &str = "pass";
const DECREE: &str = "decree";

#[cfg(test)]
mod tests;
