//! Admission: what the organiser of a run signs about membership (T2–T4), and the check of it.
//!
//! In a run of invited peers the organiser signs
//!
//! - an [`Invite`]: it admits a number of peers. Together with the seed of its key it is a bearer
//!   [`Code`](code::Code), from which a joiner makes its own [`Ticket`], offline;
//! - a ticket for one named peer;
//! - a [`Notice`](crate::message::Notice): it revokes or admits peers
//!   ([`notices`](crate::access::notices)).
//!
//! Every signature is over canonical bytes, under a domain of its own and for one run. It is
//! ed25519 even where peers' keys are simulated. A check here needs only the object and the
//! organiser's key; what depends on earlier joiners (uses, revocations) is up to the
//! [`ledger`](crate::access::ledger).
//!
//! ```text
//! invite new → Invite::new(run, terms, &organiser)           → Code::Bearer { invite, seed }.to_string()
//! --invite   → code.parse::<Code>()?.ticket(&me)             → Ticket, shown in heartbeats until it is in the ledger
//! ```

pub mod code;
mod denied;

use crate::base::fault::{AccessFault, require};
use crate::base::id::{PeerId, RunId};
use crate::base::sign::{Keypair, Signature, verify};
use crate::message::{Admissions, Invite, Terms, Ticket, wire};

pub use denied::Denied;

/// Longest ticket in canonical bytes. A longer one is refused, so
/// heartbeats that show it stay short.
pub const TICKET_BYTES_MAX: usize = 400;

/// Longest notice in canonical bytes. The organiser splits a longer one into two.
pub const NOTICE_BYTES_MAX: usize = 8 << 10;

/// Longest trust part of a roster, receipt or Regroup, in bytes; a longer one is a fault (D1).
pub const ADMISSIONS_BYTES_MAX: usize = 24 << 10;

/// Most tickets in one trust part. More joiners than that wait for the next epoch. A longer list is
/// a fault (D1).
pub const TICKETS_MAX: usize = 64;
/// Most notices in one trust part. More of them are carried by the epochs that follow.
pub const NOTICES_MAX: usize = 4;

/// Most peers that one invite can admit.
pub const USES_MAX: u32 = 1_000;

/// Longest label of an invite, in bytes.
pub const LABEL_MAX: usize = 32;

/// How long after its expiry an invite still admits, in seconds, since clocks differ (T4). A peer
/// that judges another peer's roster allows twice as long, so that two clocks which differ by
/// less than this never disagree.
pub const EXPIRY_SLACK: u64 = 3_600;

/// Which peers may take part; the numbers are hashed into the run's id and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Every peer that connects: no admission at all.
    Open = 1,
    /// Peers that the organiser has admitted, by an invite or by name (T1–T11).
    Invited = 2,
}

impl Terms {
    /// What `invite new` proposes: one peer, with no limit of epoch or time.
    #[must_use]
    pub fn new(key: PeerId) -> Self {
        Self { key, uses: 1, until_epoch: 0, expires: 0, label: String::new() }
    }

    /// Whether the terms are within their bounds.
    ///
    /// # Errors
    /// [`Denied::Malformed`], with the bound that is broken.
    pub fn check(&self) -> Result<(), Denied> {
        let known = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let check = |holds, why| require(holds, Denied::Malformed { why });
        check((1..=USES_MAX).contains(&self.uses), "it has no uses, or more than 1,000")?;
        check(self.label.len() <= LABEL_MAX, "its label has more than 32 bytes")?;
        check(self.label.bytes().all(known), "its label has other characters than A-Za-z0-9._-")
    }
}

impl Invite {
    /// An invite with these terms, signed by the organiser.
    #[must_use]
    pub fn new(run: RunId, terms: Terms, organiser: &Keypair) -> Self {
        let signature = organiser.sign(INVITE, &run, &wire::canonical(&terms));
        Self { run, terms, signature }
    }

    /// Whether the organiser has signed this invite for `run`.
    ///
    /// # Errors
    /// [`Denied`]; its text names the remedy.
    pub fn verify(&self, organiser: &PeerId, run: &RunId) -> Result<(), Denied> {
        require(self.run == *run, Denied::AnotherRun { run: *run, of: self.run })?;
        self.terms.check()?;
        signed(organiser, INVITE, run, &wire::canonical(&self.terms), &self.signature)
    }
}

impl Ticket {
    /// A ticket for `peer`, signed with the key of `invite`.
    #[must_use]
    pub fn invited(invite: Invite, key: &Keypair, peer: PeerId) -> Self {
        let signature = key.sign(TICKET, &invite.run, peer.as_bytes());
        Self::Invited { invite: Box::new(invite), peer, signature }
    }

    /// A ticket for a named peer, signed by the organiser.
    #[must_use]
    pub fn named(run: RunId, peer: PeerId, until_epoch: u64, organiser: &Keypair) -> Self {
        let signature = organiser.sign(PASS, &run, &wire::canonical(&(peer, until_epoch)));
        Self::Named { run, peer, until_epoch, signature }
    }

    /// The only peer that this ticket admits.
    pub fn peer(&self) -> PeerId {
        match self {
            Self::Invited { peer, .. } | Self::Named { peer, .. } => *peer,
        }
    }

    /// The run for which it was signed.
    pub fn run(&self) -> RunId {
        match self {
            Self::Invited { invite, .. } => invite.run,
            Self::Named { run, .. } => *run,
        }
    }

    /// The terms of the invite it was made from; `None` if the
    /// organiser signed it for a named peer.
    pub fn terms(&self) -> Option<&Terms> {
        match self {
            Self::Invited { invite, .. } => Some(&invite.terms),
            Self::Named { .. } => None,
        }
    }

    /// Its length in canonical bytes, at most [`TICKET_BYTES_MAX`].
    pub fn bytes(&self) -> usize {
        wire::length(self)
    }

    /// Whether it was signed for `run` and `peer`. Uses, epochs and revocations are checked by
    /// [`Ledger::check_ticket`](crate::access::ledger::Ledger::check_ticket).
    ///
    /// # Errors
    /// [`Denied`]; its text names the remedy.
    pub fn verify(&self, organiser: &PeerId, run: &RunId, peer: &PeerId) -> Result<(), Denied> {
        require(self.run() == *run, Denied::AnotherRun { run: *run, of: self.run() })?;
        require(self.peer() == *peer, Denied::AnotherPeer { peer: self.peer() })?;
        require(self.bytes() <= TICKET_BYTES_MAX, Denied::Malformed { why: "it is too long" })?;
        match self {
            Self::Invited { invite, signature, .. } => {
                let key = &invite.terms.key;
                let signed = verify(key, TICKET, run, peer.as_bytes(), signature);
                require(signed, Denied::NotByTheInvite)?;
                invite.verify(organiser, run)
            }
            Self::Named { until_epoch, signature, .. } => {
                let body = wire::canonical(&(*peer, *until_epoch));
                signed(organiser, PASS, run, &body, signature)
            }
        }
    }

    /// T4: whether its invite has not expired at `now`, in Unix seconds. A ticket for a named peer
    /// never expires by the clock.
    ///
    /// # Errors
    /// [`Denied::Expired`].
    pub fn check_clock(&self, now: u64, judge: Judge) -> Result<(), Denied> {
        let expires = self.terms().map_or(0, |terms| terms.expires);
        let slack = match judge {
            Judge::Own => EXPIRY_SLACK,
            Judge::Second => 2 * EXPIRY_SLACK,
        };
        let valid = expires == 0 || now <= expires.saturating_add(slack);
        require(valid, Denied::Expired { expires })
    }
}

/// Which peer's clock decides that an invite has not expired (T4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Judge {
    /// Ours: this peer admits or names the joiner, with one [`EXPIRY_SLACK`].
    Own,
    /// Another peer has named the joiner by its own clock: twice the slack.
    Second,
}

impl Admissions {
    /// Whether it has neither notices nor tickets; an empty one must not be sent.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.notices.is_empty() && self.tickets.is_empty()
    }

    /// Its length in canonical bytes, at most [`ADMISSIONS_BYTES_MAX`].
    pub fn bytes(&self) -> usize {
        wire::length(self)
    }

    /// Whether it is within its bounds, with one ticket a peer in rising order (D1).
    ///
    /// # Errors
    /// The bound that it breaks, a fault of its author.
    pub fn check(&self) -> Result<(), AccessFault> {
        let rising = self.tickets.windows(2).all(|pair| pair[0].peer() < pair[1].peer());
        require(!self.is_empty(), AccessFault::Empty)?;
        require(self.tickets.len() <= TICKETS_MAX, AccessFault::ManyTickets)?;
        require(self.notices.len() <= NOTICES_MAX, AccessFault::ManyNotices)?;
        require(self.bytes() <= ADMISSIONS_BYTES_MAX, AccessFault::TooLong)?;
        require(rising, AccessFault::TicketOrder)
    }
}

/// Requires the organiser's signature under this tag.
fn signed(
    organiser: &PeerId,
    tag: &str,
    run: &RunId,
    body: &[u8],
    signature: &Signature,
) -> Result<(), Denied> {
    let good = verify(organiser, tag, run, body, signature);
    require(good, Denied::Unsigned { organiser: *organiser })
}

/// The domains of the signatures. A change would invalidate every invite and ticket.
const INVITE: &str = "invite";
const TICKET: &str = "ticket";
const PASS: &str = "pass";

#[cfg(test)]
mod tests;
