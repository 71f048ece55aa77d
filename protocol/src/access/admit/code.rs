//! The text by which somebody joins: `ii1` and base 58 of what is in it, with a check.
//!
//! ```text
//! "ii1" ‖ base58( bincode(Code) ‖ first 4 bytes of BLAKE3::derive_key("intellect-node 1 code", bincode(Code)) )
//! ```
//!
//! A bearer code is a secret: who has it has the uses of its invite that are left. A code for a named peer is
//! none.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::Denied;
use crate::base::id::{Digest, PeerId, RunId};
use crate::base::sign::Keypair;
use crate::message::wire;
use crate::message::{Invite, Ticket};

/// What an organiser hands out.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Code {
    /// Good for whoever has it.
    Bearer {
        /// The invite.
        invite: Box<Invite>,
        /// Seed of the invite's key.
        seed: [u8; 32],
    },
    /// Good for the peer that it names.
    Named(Ticket),
}

/// Why a text is no code.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum CodeError {
    /// Something else.
    #[error("an invite code begins with {PREFIX}: paste the whole code")]
    Prefix,
    /// A digit that base 58 does not have, or too many.
    #[error("the invite code has characters that none has: paste it again, without spaces")]
    Digits,
    /// A digit is missing or wrong.
    #[error("a character of the invite code is missing or wrong: paste it again")]
    Check,
    /// A whole one that this program cannot read.
    #[error(
        "the invite code was made by another version: update intellect-node, or ask for a new one"
    )]
    Unknown,
    /// The seed is not that of the invite's key.
    #[error("the invite code has another key than its invite: ask for a new one")]
    Key,
}

impl Code {
    /// The run that it is for.
    #[must_use]
    pub fn run(&self) -> RunId {
        match self {
            Self::Bearer { invite, .. } => invite.run,
            Self::Named(ticket) => ticket.run(),
        }
    }

    /// The ticket of `peer`.
    ///
    /// # Errors
    /// [`Denied::AnotherPeer`] where it names somebody else.
    pub fn ticket(&self, peer: &PeerId) -> Result<Ticket, Denied> {
        match self {
            Self::Bearer { invite, seed } => {
                Ok(Ticket::invited(invite.as_ref().clone(), &Keypair::from_seed(seed), *peer))
            }
            Self::Named(ticket) if ticket.peer() == *peer => Ok(ticket.clone()),
            Self::Named(ticket) => Err(Denied::AnotherPeer { peer: ticket.peer() }),
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = wire::canonical(self);
        bytes.extend(check(&bytes));
        write!(f, "{PREFIX}{}", bs58::encode(bytes).into_string())
    }
}

/// A code is a secret, which no log may show.
impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Code(for run {})", self.run())
    }
}

impl FromStr for Code {
    type Err = CodeError;

    fn from_str(text: &str) -> Result<Self, CodeError> {
        let digits = text.trim().strip_prefix(PREFIX).ok_or(CodeError::Prefix)?;
        let mut bytes = [0; BYTES_MAX];
        let length = bs58::decode(digits).onto(&mut bytes[..]).map_err(|_| CodeError::Digits)?;
        let (code, found) = bytes[..length].split_last_chunk::<4>().ok_or(CodeError::Check)?;
        if *found != check(code) {
            return Err(CodeError::Check);
        }
        let code = wire::from_canonical::<Self>(code).ok_or(CodeError::Unknown)?;
        if let Self::Bearer { invite, seed } = &code
            && Keypair::from_seed(seed).peer() != invite.terms.key
        {
            return Err(CodeError::Key);
        }
        Ok(code)
    }
}

fn check(code: &[u8]) -> [u8; 4] {
    let Digest([a, b, c, d, ..]) = Digest::derive("intellect-node 1 code", code);
    [a, b, c, d]
}

/// What every code begins with.
pub const PREFIX: &str = "ii1";

/// Longest code, in bytes before base 58.
const BYTES_MAX: usize = super::TICKET_BYTES_MAX + 64;
