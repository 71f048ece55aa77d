//! Admission: what the organiser of a run signs about who is in (T2–T4), and whether it has signed that.
//!
//! In a run of invited peers its organiser signs
//!
//! - an [`Invite`]: so many peers may come by it. Together with the seed of its key it is a bearer
//!   [`Code`](code::Code), from which a joiner makes its own [`Ticket`], offline;
//! - a ticket for a named peer;
//! - a [`Notice`](crate::message::Notice): who is revoked, who is in ([`notices`](crate::access::notices)).
//!
//! Every signature is over canonical bytes under a domain of its own, and over the run; it is ed25519 also where peers' keys
//! are simulated. What is checked here needs nothing but the object and the organiser's key; what depends on who came
//! before (uses, revocations) is the [`ledger`](crate::access::ledger)'s.
//!
//! ```text
//! invite new → Invite::new(run, terms, &organiser)           → Code::Bearer { invite, seed }.to_string()
//! --invite   → code.parse::<Code>()?.ticket(&me)             → Ticket, shown in heartbeats until it is in the ledger
//! ```

pub mod code;
mod denied;

use crate::base::fault::AccessFault;
use crate::base::id::{PeerId, RunId};
use crate::base::sign::{Keypair, Signature, verify};
use crate::message::wire;
use crate::message::{Admissions, Invite, Terms, Ticket};

pub use denied::Denied;

/// Longest ticket, in bytes.
pub const TICKET_BYTES_MAX: usize = 400;

/// Longest notice, in bytes.
pub const NOTICE_BYTES_MAX: usize = 8 << 10;

/// Longest trust part of a roster, receipt or Regroup, in bytes.
pub const ADMISSIONS_BYTES_MAX: usize = 24 << 10;

/// Tickets and notices in one trust part.
pub const TICKETS_MAX: usize = 64;
/// See [`TICKETS_MAX`].
pub const NOTICES_MAX: usize = 4;

/// Most uses of an invite.
pub const USES_MAX: u32 = 1_000;

/// Longest label of an invite, in bytes.
pub const LABEL_MAX: usize = 32;

/// How long after its time an invite still admits, in seconds: clocks differ (T4). Whoever judges a roster of
/// somebody else gives twice as long, so that two clocks which differ by less than this never disagree.
pub const EXPIRY_SLACK: u64 = 3_600;

/// Who may take part; the numbers are hashed and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Whoever comes.
    Open = 1,
    /// Whoever the organiser has let in, by an invite or by name (T1–T11).
    Invited = 2,
}

impl Terms {
    /// What `invite new` proposes: one peer, whenever it comes.
    #[must_use]
    pub fn new(key: PeerId) -> Self {
        Self { key, uses: 1, until_epoch: 0, expires: 0, label: String::new() }
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
}

impl Invite {
    /// An invite by the organiser.
    #[must_use]
    pub fn new(run: RunId, terms: Terms, organiser: &Keypair) -> Self {
        let signature = organiser.sign(INVITE, &run, &wire::canonical(&terms));
        Self { run, terms, signature }
    }

    /// Whether the organiser has signed it for `run`.
    ///
    /// # Errors
    /// [`Denied`], with the remedy.
    pub fn verify(&self, organiser: &PeerId, run: &RunId) -> Result<(), Denied> {
        if self.run != *run {
            return Err(Denied::AnotherRun { run: *run, of: self.run });
        }
        self.terms.check()?;
        signed(organiser, INVITE, run, &wire::canonical(&self.terms), &self.signature)
    }
}

impl Ticket {
    /// A ticket for `peer` by the key of `invite`.
    #[must_use]
    pub fn invited(invite: Invite, key: &Keypair, peer: PeerId) -> Self {
        let signature = key.sign(TICKET, &invite.run, peer.as_bytes());
        Self::Invited { invite: Box::new(invite), peer, signature }
    }

    /// A ticket for a named peer, by the organiser.
    #[must_use]
    pub fn named(run: RunId, peer: PeerId, until_epoch: u64, organiser: &Keypair) -> Self {
        let signature = organiser.sign(PASS, &run, &wire::canonical(&(peer, until_epoch)));
        Self::Named { run, peer, until_epoch, signature }
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

    /// The terms of the invite by which it admits, if any.
    #[must_use]
    pub fn terms(&self) -> Option<&Terms> {
        match self {
            Self::Invited { invite, .. } => Some(&invite.terms),
            Self::Named { .. } => None,
        }
    }

    /// Its length, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        wire::canonical(self).len()
    }

    /// Whether it was signed, for `run` and for `peer`. Uses, epochs and revocations are the ledger's
    /// ([`Ledger::check_ticket`](crate::access::ledger::Ledger::check_ticket)).
    ///
    /// # Errors
    /// [`Denied`], with the remedy.
    pub fn verify(&self, organiser: &PeerId, run: &RunId, peer: &PeerId) -> Result<(), Denied> {
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
                if !verify(&invite.terms.key, TICKET, run, peer.as_bytes(), signature) {
                    return Err(Denied::NotByTheInvite);
                }
                invite.verify(organiser, run)
            }
            Self::Named { until_epoch, signature, .. } => {
                let body = wire::canonical(&(*peer, *until_epoch));
                signed(organiser, PASS, run, &body, signature)
            }
        }
    }

    /// T4: whether the clock allows what it comes by, at `now` in Unix seconds.
    ///
    /// # Errors
    /// [`Denied::Expired`].
    pub fn check_clock(&self, now: u64, judge: Judge) -> Result<(), Denied> {
        let expires = self.terms().map_or(0, |terms| terms.expires);
        let slack = match judge {
            Judge::Own => EXPIRY_SLACK,
            Judge::Second => 2 * EXPIRY_SLACK,
        };
        let over = expires > 0 && now > expires.saturating_add(slack);
        if over { Err(Denied::Expired { expires }) } else { Ok(()) }
    }
}

/// Whose decision it is that an invite has not expired (T4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Judge {
    /// Ours: we let in, or name, who comes by it.
    Own,
    /// Somebody else has named who comes by it, by another clock.
    Second,
}

impl Admissions {
    /// Whether it says nothing: then it is left out.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.notices.is_empty() && self.tickets.is_empty()
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
            () if self.notices.len() > NOTICES_MAX => Err(AccessFault::ManyNotices),
            () if self.bytes() > ADMISSIONS_BYTES_MAX => Err(AccessFault::TooLong),
            () if !rising => Err(AccessFault::TicketOrder),
            () => Ok(()),
        }
    }
}

fn signed(
    organiser: &PeerId,
    tag: &str,
    run: &RunId,
    body: &[u8],
    signature: &Signature,
) -> Result<(), Denied> {
    let good = verify(organiser, tag, run, body, signature);
    if good { Ok(()) } else { Err(Denied::Unsigned { organiser: *organiser }) }
}

/// Domain tags.
const INVITE: &str = "invite";
const TICKET: &str = "ticket";
const PASS: &str = "pass";

#[cfg(test)]
mod tests;
