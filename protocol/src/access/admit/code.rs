//! The text with which a peer joins: `ii1`, then base 58 of the content and a checksum.
//!
//! ```text
//! "ii1" ‖ base58( bincode(Code) ‖ first 4 bytes of BLAKE3::derive_key("intellect-node 1 code", bincode(Code)) )
//! ```
//!
//! A bearer code is a secret: anyone who has it can take the remaining uses of its invite. A code
//! for a named peer is no secret.
//!
//! The text is short enough to paste into a chat, and names its run. No list of codes is kept: the
//! organiser's signature in it is the proof.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::Denied;
use crate::base::fault::require;
use crate::base::id::{Digest, PeerId, RunId};
use crate::base::sign::Keypair;
use crate::message::{Invite, Ticket, wire};

/// What an organiser hands out to people that are to join.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Code {
    /// Admits any peer whose owner has the text.
    Bearer {
        /// The invite that the organiser has signed.
        invite: Box<Invite>,
        /// Seed of the invite's key, which signs tickets. This is the secret.
        seed: [u8; 32],
    },
    /// A ticket that admits one named peer.
    Named(Ticket),
}

/// Why a text is not an invite code; each text says what to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum CodeError {
    /// The text does not begin with [`PREFIX`], or is not an invite code at all.
    #[error("an invite code begins with {PREFIX}: paste the whole code")]
    Prefix,
    /// A character that base 58 does not have, or more of them than a code has.
    #[error("the invite code has characters that no code has: paste it again, without spaces")]
    Digits,
    /// The checksum is wrong: a character is missing or was mistyped.
    #[error("a character of the invite code is missing or wrong: paste it again")]
    Check,
    /// The checksum is right, but this program does not know the content.
    #[error(
        "the invite code was made by another version: update intellect-node, or ask for a new one"
    )]
    Unknown,
    /// The seed does not belong to the key of the invite.
    #[error("the key of the invite code is not that of its invite: ask for a new code")]
    Key,
}

impl Code {
    /// The run that this code joins.
    pub fn run(&self) -> RunId {
        match self {
            Self::Bearer { invite, .. } => invite.run,
            Self::Named(ticket) => ticket.run(),
        }
    }

    /// The ticket that this code gives to `peer`. That of a bearer code is signed here, so no
    /// server and no organiser has to be online.
    ///
    /// # Errors
    /// [`Denied::AnotherPeer`] if the code names another peer.
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

/// A bearer code is a secret, which no log may show.
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
        require(*found == check(code), CodeError::Check)?;
        let code = wire::from_canonical::<Self>(code).ok_or(CodeError::Unknown)?;
        if let Self::Bearer { invite, seed } = &code
            && Keypair::from_seed(seed).peer() != invite.terms.key
        {
            return Err(CodeError::Key);
        }
        Ok(code)
    }
}

/// The checksum of a code, which finds a mistyped character.
fn check(code: &[u8]) -> [u8; 4] {
    let Digest([a, b, c, d, ..]) = Digest::derive("intellect-node 1 code", code);
    [a, b, c, d]
}

/// The first characters of every code.
pub const PREFIX: &str = "ii1";

/// Longest code in bytes, before base 58. A longer text is not decoded.
const BYTES_MAX: usize = super::TICKET_BYTES_MAX + 64;
