//! The `f32` codec: each element as it is, little-endian. A copy that refuses what is not finite.
//!
//! It is the reference to which `int8` is compared, and what a checkpoint stores: there every bit
//! counts.

use super::{BLOCK, DecodeError, EncodeError, first_non_finite, non_finite_mark};

pub(super) const ELEMENT_BYTES: usize = 4;

/// Stops in the first block that has a value which is not finite; the bytes of the blocks before it
/// are written by then.
pub(super) fn encode(values: &[f32], bytes: &mut [u8]) -> Result<(), EncodeError> {
    for (block, (values, bytes)) in
        values.chunks(BLOCK).zip(bytes.chunks_mut(BLOCK * ELEMENT_BYTES)).enumerate()
    {
        let mut marks = 0;
        for (value, bytes) in values.iter().zip(bytes.as_chunks_mut().0) {
            marks |= non_finite_mark(*value);
            *bytes = value.to_le_bytes();
        }
        if let Some(index) = first_non_finite(values, marks) {
            return Err(EncodeError { index: block * BLOCK + index });
        }
    }
    Ok(())
}

/// `values[i] = merge(values[i], decoded[i])`. The caller has checked the lengths.
#[inline(always)]
pub(super) fn decode(
    bytes: &[u8],
    values: &mut [f32],
    merge: impl Fn(f32, f32) -> f32,
) -> Result<(), DecodeError> {
    for (block, (values, bytes)) in
        values.chunks_mut(BLOCK).zip(bytes.chunks(BLOCK * ELEMENT_BYTES)).enumerate()
    {
        let mut marks = 0;
        for (value, bytes) in values.iter_mut().zip(bytes.as_chunks().0) {
            let decoded = f32::from_le_bytes(*bytes);
            marks |= non_finite_mark(decoded);
            *value = merge(*value, decoded);
        }
        if marks >> 31 != 0 {
            let decoded = |bytes: &[u8; ELEMENT_BYTES]| f32::from_le_bytes(*bytes);
            let index = bytes.as_chunks().0.iter().position(|bytes| !decoded(bytes).is_finite());
            return Err(DecodeError::NonFinite { index: block * BLOCK + index.unwrap_or(0) });
        }
    }
    Ok(())
}
