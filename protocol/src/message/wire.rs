//! Every byte of control on the wire, and the one home of bincode.
//!
//! An envelope is `version u8 ‖ author [32] ‖ body ‖ signature [64]`; its length comes with the
//! transport. The body is the bincode 2 `standard()` form of a [`Message`]. On gossip an unsigned
//! `u32` LE stands before the envelope and counts its repeats, so that a repeat has an id of its own.
//!
//! Decoding allocates no more than its limit, takes no trailing bytes and only the one canonical
//! form of a value (D1), so that a digest names one sequence of bytes. Nothing passes [`open`]
//! unverified (D2).

use bincode::config::{Config, standard};
use bincode::enc::write::{SizeWriter, Writer};
use bincode::error::EncodeError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::base::id::{Digest, PeerId, RunId};
use crate::base::sign::{Keypair, Signature, Verified, verify};
use crate::message::{Answer, Message, Opening, Ranked, Receipt, Regroup, Request, Roster, Voted};

/// The major version of the protocol, first byte of every envelope. It rises with every change of
/// the bytes or of their meaning. A peer with another version is no faulty peer: its messages are
/// left unread.
pub const VERSION: u8 = 9;

/// Longest gossiped envelope, in bytes. A proposer leaves kept chunks out until its roster fits.
pub const GOSSIP_BYTES_MAX: usize = 64 << 10;

/// Longest control message sent directly, and longest answer, in bytes.
pub const DIRECT_BYTES_MAX: usize = 1 << 20;

/// Longest request to another peer, in bytes. The longest one, for a chunk, takes at most 47 bytes.
pub const REQUEST_BYTES_MAX: usize = 64;

const HEAD_BYTES: usize = 1 + 32;
const SIGNATURE_BYTES: usize = 64;

/// The reason for which bytes are no message of this run. All but [`OpenError::Version`] are faults of the peer
/// that brought them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum OpenError {
    /// Longer than its kind may be.
    #[error("message of {bytes} bytes, at most {limit} are allowed")]
    Oversize {
        /// The length of the message, in bytes.
        bytes: usize,
        /// The limit for messages of its kind.
        limit: usize,
    },
    /// Too short to hold author and signature.
    #[error("message is cut short")]
    Short,
    /// Another major version; its author needs to update, or we do.
    #[error("message of protocol version {0}, this program speaks {VERSION}")]
    Version(u8),
    /// Not the canonical form of any message.
    #[error("message cannot be decoded")]
    Malformed,
    /// The signature is not its author's, or was made for another run or kind.
    #[error("signature does not match author, run and kind")]
    Signature,
}

/// Signs a message of ours with our key.
#[must_use]
pub fn seal(key: &Keypair, run: &RunId, message: Message) -> Verified<Message> {
    let signature = key.sign_with(message.tag(), run, || canonical(&message));
    Verified::new(key.peer(), signature, message)
}

/// The bytes of a signed message, ours or passed on.
#[must_use]
pub fn envelope(message: &Verified<Message>) -> Vec<u8> {
    let (author, body) = (message.author(), canonical(message.body()));
    [&[VERSION][..], &author.0, &body, &message.signature().0].concat()
}

/// The length of [`envelope`], in bytes.
#[must_use]
pub fn envelope_bytes(message: &Verified<Message>) -> usize {
    HEAD_BYTES + length(message.body()) + SIGNATURE_BYTES
}

/// Reads and verifies an envelope of at most `limit` bytes.
///
/// # Errors
/// [`OpenError`]; nothing was believed.
pub fn open(run: &RunId, envelope: &[u8], limit: usize) -> Result<Verified<Message>, OpenError> {
    if envelope.len() > limit.min(DIRECT_BYTES_MAX) {
        return Err(OpenError::Oversize { bytes: envelope.len(), limit });
    }
    let (&version, rest) = envelope.split_first().ok_or(OpenError::Short)?;
    if version != VERSION {
        return Err(OpenError::Version(version));
    }
    let (author, rest) = rest.split_first_chunk::<32>().ok_or(OpenError::Short)?;
    let (body, signature) = rest.split_last_chunk::<SIGNATURE_BYTES>().ok_or(OpenError::Short)?;
    let (author, signature) = (PeerId(*author), Signature(*signature));
    let message: Message = read(body).ok_or(OpenError::Malformed)?;
    if !verify(&author, message.tag(), run, body, &signature) {
        return Err(OpenError::Signature);
    }
    Ok(Verified::new(author, signature, message))
}

/// The gossiped form: the count of repeats, then the envelope.
#[must_use]
pub fn gossip(repeat: u32, message: &Verified<Message>) -> Vec<u8> {
    [repeat.to_le_bytes().as_slice(), &envelope(message)].concat()
}

/// Reads and verifies a gossiped envelope.
///
/// # Errors
/// [`OpenError`]; nothing was believed.
pub fn open_gossip(run: &RunId, bytes: &[u8]) -> Result<Verified<Message>, OpenError> {
    let (_repeat, envelope) = bytes.split_first_chunk::<4>().ok_or(OpenError::Short)?;
    open(run, envelope, GOSSIP_BYTES_MAX)
}

/// The author that an envelope claims, before anything is verified: to count messages by author.
/// `None` if the bytes are too short to claim one.
#[must_use]
pub fn claimed_author(envelope: &[u8]) -> Option<PeerId> {
    let head = envelope.get(..HEAD_BYTES)?;
    head.last_chunk::<32>().map(|author| PeerId(*author))
}

/// The digest that names a roster.
#[must_use]
pub fn roster_digest(run: &RunId, roster: &Roster) -> Digest {
    digest("intellect-node 1 roster", run, roster)
}

/// The digest `r` of a receipt.
#[must_use]
pub fn receipt_digest(run: &RunId, receipt: &Receipt) -> Digest {
    digest("intellect-node 1 receipt", run, receipt)
}

/// What a vote was for, by digest.
#[must_use]
pub fn ranked(run: &RunId, voted: &Voted) -> Ranked {
    let (depth, attempt) = (voted.depth, voted.roster.attempt);
    Ranked { depth, attempt, r: receipt_digest(run, &voted.receipt()) }
}

/// The digest that names a Regroup.
#[must_use]
pub fn regroup_digest(run: &RunId, regroup: &Regroup) -> Digest {
    digest("intellect-node 1 regroup", run, regroup)
}

/// The digest that names the series which a Regroup opens: of the Regroup, and of each member's log and highest vote, so
/// that two Joins of one author open two series (R13).
#[must_use]
pub fn opening_digest(run: &RunId, opening: &Opening) -> Digest {
    let joins: Vec<_> =
        opening.joins.iter().map(|(peer, join, _)| (peer, join.log, join.done)).collect();
    digest("intellect-node 1 opening", run, &(regroup_digest(run, &opening.regroup), joins))
}

/// The bytes of a request, as they are sent.
#[must_use]
pub fn request(request: &Request) -> Vec<u8> {
    canonical(request)
}

/// Reads a request; `None` if it is not one.
#[must_use]
pub fn open_request(bytes: &[u8]) -> Option<Request> {
    (bytes.len() <= REQUEST_BYTES_MAX).then(|| read(bytes)).flatten()
}

/// An answer's bytes; of a lineage, as many links as fit in [`DIRECT_BYTES_MAX`]. A head and
/// Regroups that are longer by themselves are not cut: then the answer is above the limit, and the
/// peer that asked refuses it.
#[must_use]
pub fn answer(answer: &Answer) -> Vec<u8> {
    let whole = canonical(answer);
    let Answer::Lineage { links, head, openings } = answer else { return whole };
    if whole.len() <= DIRECT_BYTES_MAX || links.is_empty() {
        return whole;
    }
    let links = links.get(..links.len() / 2).unwrap_or_default().to_vec();
    self::answer(&Answer::Lineage { links, head: *head, openings: openings.clone() })
}

/// Reads an answer; `None` if it is not one.
#[must_use]
pub fn open_answer(bytes: &[u8]) -> Option<Answer> {
    (bytes.len() <= DIRECT_BYTES_MAX).then(|| read(bytes)).flatten()
}

/// Longest record of a log, in bytes: a Regroup with the Joins of all that a roster holds, several deep.
pub const RECORD_BYTES_MAX: usize = 16 << 20;

/// Reads what [`canonical`] wrote to our own log; `None` if it is nothing of that kind.
#[must_use]
pub fn open_record<T: DeserializeOwned + Serialize>(bytes: &[u8]) -> Option<T> {
    // A number takes eight bytes of a limit at most, and a short record holds nothing long, whatever a length in
    // it claims.
    if bytes.len() <= GOSSIP_BYTES_MAX {
        return read(bytes);
    }
    read_within(bytes, standard().with_limit::<RECORD_BYTES_MAX>())
}

/// Reads what [`canonical`] wrote of something short, from a person or a stranger: a ticket, a notice, a code,
/// at most [`GOSSIP_BYTES_MAX`] long. `None` if it is nothing of that kind.
#[must_use]
pub fn from_canonical<T: DeserializeOwned + Serialize>(bytes: &[u8]) -> Option<T> {
    read_within(bytes, standard().with_limit::<GOSSIP_BYTES_MAX>())
}

fn digest<T: Serialize>(domain: &str, run: &RunId, value: &T) -> Digest {
    Digest::derive(domain, &[run.as_bytes().as_slice(), &canonical(value)].concat())
}

/// The canonical bytes of a value of ours: what digests and signatures are made over.
#[must_use]
pub fn canonical<T: Serialize>(value: &T) -> Vec<u8> {
    let mut bytes = Bytes(Vec::with_capacity(BYTES_USUAL));
    encode(value, &mut bytes);
    bytes.0
}

/// The length of [`canonical`], in bytes.
#[must_use]
pub fn length<T: Serialize>(value: &T) -> usize {
    let mut size = SizeWriter::default();
    encode(value, &mut size);
    size.bytes_written
}

#[expect(clippy::expect_used, reason = "our types have known lengths, and our writers take any")]
fn encode<T: Serialize>(value: &T, writer: impl Writer) {
    bincode::serde::encode_into_writer(value, writer, standard()).expect("values of ours encode");
}

/// Takes what is encoded. An identifier comes byte by byte, so a single byte is the fast case.
struct Bytes(Vec<u8>);

impl Writer for Bytes {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> Result<(), EncodeError> {
        match bytes {
            [byte] => self.0.push(*byte),
            _ => self.0.extend_from_slice(bytes),
        }
        Ok(())
    }
}

/// What is reserved for a value: most messages fit, a roster grows it a few times.
const BYTES_USUAL: usize = 512;

fn read<T: DeserializeOwned + Serialize>(encoded: &[u8]) -> Option<T> {
    read_within(encoded, standard().with_limit::<DIRECT_BYTES_MAX>())
}

/// Bytes that are not the shortest form of their value are refused: else one value would have two
/// digests.
fn read_within<T: DeserializeOwned + Serialize>(encoded: &[u8], config: impl Config) -> Option<T> {
    let (value, used) = bincode::serde::decode_from_slice::<T, _>(encoded, config).ok()?;
    (used == encoded.len() && canonical(&value) == encoded).then_some(value)
}
