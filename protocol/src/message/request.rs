//! What a peer asks another one for, and what that answers. Nothing here is signed: an answer is believed by
//! what it proves, or by the digest of what was asked for.
//!
//! Bulk answers are raw bytes from `offset` on, at most
//! [`wire::DIRECT_BYTES_MAX`](super::wire::DIRECT_BYTES_MAX) at a time.

use serde::{Deserialize, Serialize};

use crate::base::id::{Digest, PeerId};

use super::{Head, Link, Loss, Opening, Phase};

/// A question about lineages. An answer is believed by what it proves, not by its author. A peer
/// asks one question at a time, and waits [`ASK_TIMEOUT`](crate::peer::ASK_TIMEOUT) for its answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Ask {
    /// Asks for links from an epoch on, and for the Regroups of the open epoch.
    Lineage {
        /// The first epoch that is wanted.
        from_epoch: u64,
    },
    /// Asks for the chain from an epoch on, to find where two lineages part.
    Chain {
        /// The first epoch that is wanted.
        from_epoch: u64,
    },
}

/// Everything that a peer can be asked for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Request {
    /// A question about lineages, which an [`Answer`] answers.
    Ask(Ask),
    /// Bytes of an update from `offset` on, also of the open epoch.
    Update {
        /// BLAKE3 of all bytes of the update.
        update: Digest,
        /// The first byte that is wanted.
        offset: u64,
    },
    /// Bytes of a checkpoint's header and piece table from `offset` on.
    Table {
        /// The digest of the state that is stored.
        state: Digest,
        /// The first byte that is wanted.
        offset: u64,
    },
    /// The bytes of one piece of a checkpoint.
    Piece {
        /// The digest of the state that is stored.
        state: Digest,
        /// The number of the piece, from 0.
        index: u32,
    },
    /// Bytes of a finished chunk from `offset` on (R32).
    Chunk {
        /// The digest of the roster whose ring computed it.
        roster: Digest,
        /// The number of the chunk in that ring.
        chunk: u32,
        /// The first byte that is wanted.
        offset: u64,
    },
    /// Bytes of the run's tokenizer file from `offset` on.
    File {
        /// BLAKE3 of all bytes of the file.
        file: Digest,
        /// The first byte that is wanted.
        offset: u64,
    },
    /// Bytes of the chaining values of a file of the run's data from `offset` on.
    Tree {
        /// BLAKE3 of all bytes of the file.
        file: Digest,
        /// The first byte that is wanted.
        offset: u64,
    },
    /// One piece of a file of the run's data.
    Data {
        /// BLAKE3 of all bytes of the file.
        file: Digest,
        /// The number of the piece, from 0.
        index: u32,
    },
    /// What the peer says of itself and of those that it hears, for people that look from outside.
    Picture,
}

/// One epoch of a chain, which nobody has signed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChainLink {
    /// The number of the epoch, from 1.
    pub epoch: u64,
    /// The digest of the state after it.
    pub state: Digest,
    /// The digest of the epoch's receipt.
    pub r: Digest,
}

/// The answer to an [`Ask`], believed by what it proves.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// At most [`LINKS_MAX`] links, oldest first.
    Lineage {
        /// The links, as many as fit one answer.
        links: Vec<Link>,
        /// The head of the peer that answers.
        head: Head,
        /// The Regroups of its open epoch, in order.
        openings: Vec<Opening>,
    },
    /// At most [`CHAIN_MAX`] entries, oldest first.
    Chain(Vec<ChainLink>),
    /// The answer to [`Request::Picture`], which proves nothing.
    Picture(Picture),
}

/// What a peer says of its run: at most [`PICTURE_BYTES_MAX`].
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Picture {
    /// What that peer committed last.
    pub head: Head,
    /// Itself first, then peers that it hears; at most [`MEMBERS_MAX`](super::MEMBERS_MAX).
    pub rows: Vec<Row>,
}

/// What a picture says of one peer.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The peer that this row is about.
    pub peer: PeerId,
    /// The epoch that it committed last.
    pub epoch: u64,
    /// How far it is in the next one.
    pub phase: Phase,
    /// The weight of its frozen delta; 0 while it is not Ready.
    pub ready: u64,
    /// The loss that it named with its last `Ready`.
    pub loss: Loss,
    /// The smoothed round trip to it in milliseconds; 0 is unknown.
    pub rtt_ms: u32,
    /// Bytes per second that it sent in its last ring; 0 is unknown.
    pub send_rate: u64,
}

/// Most links that one answer may have.
pub const LINKS_MAX: usize = 64;

/// Most chain entries in one answer, of 80 bytes each.
pub const CHAIN_MAX: usize = 4_096;

/// Longest [`Picture`], in bytes: 256 rows have at most 69 each, and there is room for more to be said.
pub const PICTURE_BYTES_MAX: usize = 32 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{MEMBERS_MAX, wire};

    #[test]
    fn a_picture_of_as_many_as_a_roster_holds_fits() {
        let row = Row {
            peer: PeerId([255; 32]),
            epoch: u64::MAX,
            phase: Phase::Regrouping,
            ready: u64::MAX,
            loss: Loss(2.5),
            rtt_ms: u32::MAX,
            send_rate: u64::MAX,
        };
        let head = Head { epoch: u64::MAX, tokens: u64::MAX, state: Digest([255; 32]) };
        let answer = Answer::Picture(Picture { head, rows: vec![row; MEMBERS_MAX] });
        let bytes = wire::answer(&answer);
        assert!(bytes.len() <= PICTURE_BYTES_MAX, "{}", bytes.len());
        assert_eq!(wire::open_answer(&bytes), Some(answer));
    }

    #[test]
    fn a_loss_is_a_number_from_0_to_100_or_absent() {
        for said in [f32::NAN, f32::INFINITY, -0.5, 100.5] {
            assert_eq!(Loss(said).plausible(), None, "{said}");
        }
        assert_eq!(Loss::NONE.plausible(), None);
        assert_eq!(
            [0.0, 2.5, 100.0].map(|said| Loss(said).plausible()),
            [Some(0.0), Some(2.5), Some(100.0)]
        );
    }
}
