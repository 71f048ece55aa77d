//! The headers on a ring's stream. Fixed sizes, little-endian, no bincode: a header is read
//! before anything is allocated.
//!
//! ```text
//! stream    preamble, then items
//! preamble  run [32] ‖ roster digest [32] ‖ index u32 ‖ count u32
//! item      length u32 ‖ roster digest [32] ‖ kind u8 ‖ chunk u32 ‖ frame u32 ‖ BLAKE3 of the payload [32]
//!           ‖ payload of `length` bytes
//! kind      0 reduce, 1 gather: payload is an encoded frame
//!           2 seal: payload is chunk digest [32] ‖ the owner's signature [64], frame is 0
//! ```

use thiserror::Error;

use crate::base::fault::require;
use crate::base::id::{Digest, RunId, array};
use crate::ring::Half;

/// Bytes of a [`Preamble`], the same on every stream.
pub const PREAMBLE_BYTES: usize = 32 + 32 + 4 + 4;

/// Bytes of a [`Label`], the same for every item.
pub const LABEL_BYTES: usize = 4 + 32 + 1 + 4 + 4 + 32;

/// Longest payload: a frame of `f32`, and room for a codec that needs more than it saves. A label
/// that announces more is a fault (D1).
pub const PAYLOAD_BYTES_MAX: usize = (1 << 20) + (4 << 10);

/// The first bytes of a stream, from a member to its successor in a ring. The receiver knows the
/// sender by its connection, so the preamble proves nothing; it only says for which ring the stream
/// is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Preamble {
    /// The run that the ring belongs to.
    pub run: RunId,
    /// Digest of the roster whose ring it is.
    pub roster: Digest,
    /// The sender's position, below `count`.
    pub index: u32,
    /// Number of positions in the ring.
    pub count: u32,
}

impl Preamble {
    /// The bytes as they are sent, in the order above.
    pub fn to_bytes(&self) -> [u8; PREAMBLE_BYTES] {
        let mut bytes = [0; PREAMBLE_BYTES];
        bytes[..32].copy_from_slice(self.run.as_bytes());
        bytes[32..64].copy_from_slice(self.roster.as_bytes());
        bytes[64..68].copy_from_slice(&self.index.to_le_bytes());
        bytes[68..].copy_from_slice(&self.count.to_le_bytes());
        bytes
    }

    /// Reads a preamble. The caller compares it with an accepted roster.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; PREAMBLE_BYTES]) -> Self {
        Self {
            run: RunId(array(bytes, 0)),
            roster: Digest(array(bytes, 32)),
            index: u32::from_le_bytes(array(bytes, 64)),
            count: u32::from_le_bytes(array(bytes, 68)),
        }
    }
}

/// What the payload of an item is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// An encoded frame, of one half of the all-reduce.
    Frame(Half),
    /// The signature of a chunk's owner over the finished chunk.
    Seal,
}

/// The header of an item, before its payload. It comes over an authenticated connection, and only
/// its seal is signed: a wrong payload is the predecessor's fault, whoever computed it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Label {
    /// Bytes of the payload, at most [`PAYLOAD_BYTES_MAX`].
    pub length: u32,
    /// Digest of the roster whose ring it belongs to.
    pub roster: Digest,
    /// What the payload of this item is.
    pub kind: Kind,
    /// Number of the chunk, below the number of members.
    pub chunk: u32,
    /// Number of the frame within the chunk; 0 for a seal.
    pub frame: u32,
    /// BLAKE3 of the payload, which the receiver compares.
    pub payload: Digest,
}

/// Why bytes are not a label: a fault of the sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum LabelError {
    /// It announces more bytes than any payload has.
    #[error("a payload of {0} bytes, at most {PAYLOAD_BYTES_MAX} are allowed")]
    Length(u32),
    /// The kind is neither a frame nor a seal.
    #[error("an item of kind {0}")]
    Kind(u8),
}

impl Label {
    /// The bytes as they are sent, in the order above.
    pub fn to_bytes(&self) -> [u8; LABEL_BYTES] {
        let mut bytes = [0; LABEL_BYTES];
        bytes[..4].copy_from_slice(&self.length.to_le_bytes());
        bytes[4..36].copy_from_slice(self.roster.as_bytes());
        bytes[36] = match self.kind {
            Kind::Frame(Half::Reduce) => 0,
            Kind::Frame(Half::Gather) => 1,
            Kind::Seal => 2,
        };
        bytes[37..41].copy_from_slice(&self.chunk.to_le_bytes());
        bytes[41..45].copy_from_slice(&self.frame.to_le_bytes());
        bytes[45..].copy_from_slice(self.payload.as_bytes());
        bytes
    }

    /// Reads a label. Its length is safe to allocate (D1).
    ///
    /// # Errors
    /// A label that no honest member sends.
    pub fn from_bytes(bytes: &[u8; LABEL_BYTES]) -> Result<Self, LabelError> {
        let length = u32::from_le_bytes(array(bytes, 0));
        let fits = usize::try_from(length).is_ok_and(|length| length <= PAYLOAD_BYTES_MAX);
        require(fits, LabelError::Length(length))?;
        let kind = match bytes[36] {
            0 => Kind::Frame(Half::Reduce),
            1 => Kind::Frame(Half::Gather),
            2 => Kind::Seal,
            other => return Err(LabelError::Kind(other)),
        };
        Ok(Self {
            length,
            roster: Digest(array(bytes, 4)),
            kind,
            chunk: u32::from_le_bytes(array(bytes, 37)),
            frame: u32::from_le_bytes(array(bytes, 41)),
            payload: Digest(array(bytes, 45)),
        })
    }

    /// Whether `payload` has the announced length and digest.
    #[must_use]
    pub fn announces(&self, payload: &[u8]) -> bool {
        u32::try_from(payload.len()).is_ok_and(|length| length == self.length)
            && blake3::hash(payload) == blake3::Hash::from_bytes(self.payload.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The bytes that other programs must write as well.
    #[test]
    fn labels_are_golden() {
        let label = Label {
            length: 0x0004_1000,
            roster: Digest([0xaa; 32]),
            kind: Kind::Frame(Half::Gather),
            chunk: 3,
            frame: 0x0102,
            payload: Digest([0xbb; 32]),
        };
        let golden =
            format!("00100400{}01{}{}{}", "aa".repeat(32), "03000000", "02010000", "bb".repeat(32));
        assert_eq!(hex(&label.to_bytes()), golden);
        assert_eq!(Label::from_bytes(&label.to_bytes()), Ok(label));
        for (kind, code) in [(Kind::Frame(Half::Reduce), 0), (Kind::Seal, 2)] {
            let label = Label { kind, ..label };
            assert_eq!(label.to_bytes()[36], code);
            assert_eq!(Label::from_bytes(&label.to_bytes()), Ok(label));
        }
        let (run, roster) = (RunId([1; 32]), Digest([2; 32]));
        let preamble = Preamble { run, roster, index: 3, count: 4 };
        let golden = format!("{}{}0300000004000000", "01".repeat(32), "02".repeat(32));
        assert_eq!(hex(&preamble.to_bytes()), golden);
        assert_eq!(Preamble::from_bytes(&preamble.to_bytes()), preamble);
    }

    /// No length from a peer is used before it is compared with a constant.
    #[test]
    fn d1_oversize_and_unknown_labels_are_refused() {
        let mut bytes = [0; LABEL_BYTES];
        let largest = u32::try_from(PAYLOAD_BYTES_MAX).unwrap();
        bytes[..4].copy_from_slice(&largest.to_le_bytes());
        assert!(Label::from_bytes(&bytes).is_ok());
        for length in [largest + 1, u32::MAX] {
            bytes[..4].copy_from_slice(&length.to_le_bytes());
            assert_eq!(Label::from_bytes(&bytes), Err(LabelError::Length(length)));
        }
        let mut bytes = [0; LABEL_BYTES];
        for kind in 3..=255 {
            bytes[36] = kind;
            assert_eq!(Label::from_bytes(&bytes), Err(LabelError::Kind(kind)));
        }
    }

    #[test]
    fn a_label_announces_one_payload() {
        let payload = b"payload";
        let label = Label {
            length: 7,
            roster: Digest::ZERO,
            kind: Kind::Seal,
            chunk: 0,
            frame: 0,
            payload: Digest(*blake3::hash(payload).as_bytes()),
        };
        assert!(label.announces(payload));
        assert!(!label.announces(b"payloae"));
        assert!(!Label { length: 8, ..label }.announces(payload));
    }
}
