//! How numbers become bytes: the codecs of a ring, as functions on slices.
//!
//! A fragment is cut into *blocks* of 256 elements, the last one short. Blocks are encoded one by
//! one and independently, so the encoding of a concatenation of whole blocks is the concatenation
//! of their encodings: chunks, frames and ranges of an update are slices of one byte string.
//!
//! * `f32`: the element, little-endian. Loses nothing; the reference.
//! * `int8` (see `int8.rs`): a scale and one signed byte for each element, 260 bytes a block.
//!
//! Every peer must compute the same bits from the same bytes. So there is only + − × ÷ on `f32`, in
//! written order: no fused multiply-add, no function of a mathematics library. The loops are written
//! for vectorisation by the compiler: fixed lengths, no early exit, faults gathered by `or`.
//!
//! Nothing is allocated here. A value that is not finite is never encoded and never comes out of a
//! decoder. What this does not do: know a ring ([`crate::ring`]) or weights ([`reduce`]).

mod float;
mod int8;
pub mod reduce;

use std::ops::Range;

use thiserror::Error;

use crate::base::blocks::BLOCK;

/// How the elements of a delta are encoded: a setting of the run. The numbers are hashed
/// into its id and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Codec {
    /// Little-endian `f32`, four bytes an element; exact.
    F32 = 1,
    /// A scale for each block of 256 and one signed byte an element, a quarter of the bytes.
    Int8 = 2,
}

/// Why values cannot be encoded: one of them is infinite or NaN, the fault of the peer that
/// computed it. The output is then unspecified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("element {index} is not finite")]
pub struct EncodeError {
    /// Index of the first such element in the encoded slice.
    pub index: usize,
}

/// Why bytes cannot be decoded: the fault of the peer that encoded them.
/// The output is then unspecified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// There are more or fewer bytes than the elements need.
    #[error("{found} encoded bytes where {expected} are needed")]
    Length {
        /// Bytes that the elements need.
        expected: usize,
        /// Bytes that the caller has given.
        found: usize,
    },
    /// A scale that is negative, subnormal, infinite, NaN, or so large that 127 times it overflows.
    #[error("block {block} has a scale that no encoder writes")]
    Scale {
        /// Index of the block in the decoded slice.
        block: usize,
    },
    /// The byte −128, which would make the range asymmetric.
    #[error("block {block} holds the byte -128")]
    Byte {
        /// Index of the block in the decoded slice.
        block: usize,
    },
    /// An `f32` that is infinite or NaN.
    #[error("element {index} is not finite")]
    NonFinite {
        /// Index of the element in the decoded slice.
        index: usize,
    },
}

impl Codec {
    /// Bytes of `elements` consecutive elements, the first of which starts a block. With `int8` a
    /// short last block still has a whole scale.
    pub const fn encoded_bytes(self, elements: usize) -> usize {
        match self {
            Self::F32 => elements * float::ELEMENT_BYTES,
            Self::Int8 => elements + elements.div_ceil(BLOCK) * int8::SCALE_BYTES,
        }
    }

    /// The bytes of a range of elements within the encoding of all of them. The range starts at a
    /// block, and ends at a block or with the last element.
    pub fn place(self, elements: &Range<usize>) -> Range<usize> {
        self.encoded_bytes(elements.start)..self.encoded_bytes(elements.end)
    }

    /// Encodes `values`, the first of which starts a block, into `bytes`.
    ///
    /// # Errors
    /// A value that is not finite; `bytes` is then unspecified.
    ///
    /// # Panics
    /// If `bytes` is not [`Self::encoded_bytes`] long.
    pub fn encode(self, values: &[f32], bytes: &mut [u8]) -> Result<(), EncodeError> {
        assert_eq!(bytes.len(), self.encoded_bytes(values.len()), "length of the encoding");
        match self {
            Self::F32 => float::encode(values, bytes),
            Self::Int8 => int8::encode(values, bytes),
        }
    }

    /// Decodes `bytes` into `values`, the first of which starts a block.
    ///
    /// # Errors
    /// Bytes that no encoder writes, or more or fewer of them than `values` needs.
    pub fn decode(self, bytes: &[u8], values: &mut [f32]) -> Result<(), DecodeError> {
        self.decode_with(bytes, values, |_, decoded| decoded)
    }

    /// Adds what `bytes` decode to onto `values`: `values[i] + decoded[i]`.
    ///
    /// # Errors
    /// The same as [`Self::decode`] has.
    pub fn decode_add(self, bytes: &[u8], values: &mut [f32]) -> Result<(), DecodeError> {
        self.decode_with(bytes, values, |value, decoded| value + decoded)
    }

    /// `values[i] = merge(values[i], decoded[i])`.
    #[inline(always)]
    fn decode_with(
        self,
        bytes: &[u8],
        values: &mut [f32],
        merge: impl Fn(f32, f32) -> f32,
    ) -> Result<(), DecodeError> {
        self.check_length(bytes, values.len())?;
        match self {
            Self::F32 => float::decode(bytes, values, merge),
            Self::Int8 => int8::decode(bytes, values, merge),
        }
    }

    /// Whether `bytes` decode to `elements` elements. The values are thrown away.
    ///
    /// # Errors
    /// The same as [`Self::decode`] has.
    pub fn validate(self, bytes: &[u8], elements: usize) -> Result<(), DecodeError> {
        self.check_length(bytes, elements)?;
        let mut scratch = [0.0; SCRATCH];
        for (index, bytes) in bytes.chunks(self.encoded_bytes(SCRATCH)).enumerate() {
            let start = index * SCRATCH;
            let scratch = &mut scratch[..(elements - start).min(SCRATCH)];
            self.decode(bytes, scratch).map_err(|error| error.after(start))?;
        }
        Ok(())
    }

    /// Requires exactly as many bytes as this number of elements takes.
    fn check_length(self, bytes: &[u8], elements: usize) -> Result<(), DecodeError> {
        let (expected, found) = (self.encoded_bytes(elements), bytes.len());
        if found == expected { Ok(()) } else { Err(DecodeError::Length { expected, found }) }
    }
}

/// Elements decoded at once when the values are thrown away: 16 KiB.
const SCRATCH: usize = 16 * BLOCK;

impl EncodeError {
    /// The same error in a longer slice, in which `elements` elements come before.
    #[must_use]
    pub fn after(self, elements: usize) -> Self {
        Self { index: self.index + elements }
    }
}

impl DecodeError {
    /// The same error in a longer slice, in which `elements` elements, whole blocks, come before.
    pub(crate) fn after(self, elements: usize) -> Self {
        match self {
            Self::Length { .. } => self,
            Self::Scale { block } => Self::Scale { block: block + elements / BLOCK },
            Self::Byte { block } => Self::Byte { block: block + elements / BLOCK },
            Self::NonFinite { index } => Self::NonFinite { index: index + elements },
        }
    }
}

/// Sets the sign bit for an infinity or NaN, and for no other value.
///
/// The exponent of a number that is not finite is all ones, so one more carries into the sign.
#[inline(always)]
const fn non_finite_mark(value: f32) -> u32 {
    (value.to_bits() & 0x7fff_ffff).wrapping_add(0x0080_0000)
}

/// Index of the first value that is not finite; `marks` is the `or` of all marks.
fn first_non_finite(values: &[f32], marks: u32) -> Option<usize> {
    if marks >> 31 == 0 {
        return None;
    }
    values.iter().position(|value| !value.is_finite())
}

#[cfg(test)]
mod tests;
