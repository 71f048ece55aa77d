//! The `int8` codec: symmetric quantisation with one scale for each block.
//!
//! ```text
//! encode   a = max |xᵢ|,  s = a / 127,  qᵢ = clamp(round(xᵢ · (1 / s)), −127, 127)   (a < 10⁻³⁰: s = 0, qᵢ = 0)
//! decode   xᵢ = qᵢ · s
//! bytes    s as f32 LE ‖ qᵢ as i8
//! ```
//!
//! Rounding is to the nearest, ties to even, by adding 1.5 · 2²³: the sum has no bits left for a
//! fraction, so the adder itself rounds, and the low byte of the sum's bits is q in two's complement.
//!
//! The error of an element is at most s/2. For a block of Gaussian numbers, whose largest of 256 is
//! near 2.9 σ, that is (2.9/127)/√12 ≈ 0.66 % of the norm.
//!
//! The bounds of a scale: at the lower end a ≥ 10⁻³⁰ keeps s normal and 1/s finite; at the upper end
//! 127 · s does not overflow. A decoder refuses everything outside.

use super::{BLOCK, DecodeError, EncodeError, first_non_finite, non_finite_mark};

pub(super) const SCALE_BYTES: usize = 4;

const BLOCK_BYTES: usize = SCALE_BYTES + BLOCK;

/// The largest |q|: −128 is not used, so the range is symmetric.
const Q_MAX: f32 = 127.0;

/// A block with a smaller maximum counts as zero (docs/FORMATS.md: keeps 1/s finite). Such a block
/// decodes to plus zero.
const ABSMAX_MIN: f32 = 1e-30;

/// 1.5 · 2²³: numbers of this size have units as their last place.
const ROUND: f32 = 12_582_912.0;

/// The largest scale that an encoder writes: the greatest `f32` whose product with 127 is finite,
/// one step below `f32::MAX / 127`.
const SCALE_MAX: f32 = f32::from_bits((f32::MAX / Q_MAX).to_bits() - 1);
const _: () = assert!((SCALE_MAX * Q_MAX).is_finite());

/// Numbers compared side by side; a maximum is the same in any order.
const LANES: usize = 16;

/// Stops in the first block that has a value which is not finite; the bytes of the blocks before it
/// are written by then.
pub(super) fn encode(values: &[f32], bytes: &mut [u8]) -> Result<(), EncodeError> {
    for (block, (values, bytes)) in
        values.chunks(BLOCK).zip(bytes.chunks_mut(BLOCK_BYTES)).enumerate()
    {
        let (absmax, marks) = survey(values);
        if let Some(index) = first_non_finite(values, marks) {
            return Err(EncodeError { index: block * BLOCK + index });
        }
        let (scale, inverse) = scale_of(absmax);
        let Some((scale_bytes, bytes)) = bytes.split_first_chunk_mut() else { break };
        *scale_bytes = scale.to_le_bytes();
        for (value, byte) in values.iter().zip(bytes) {
            *byte = quantise(*value, inverse);
        }
    }
    Ok(())
}

/// `values[i] = merge(values[i], qᵢ · s)`. The caller has checked the lengths.
#[inline(always)]
pub(super) fn decode(
    bytes: &[u8],
    values: &mut [f32],
    merge: impl Fn(f32, f32) -> f32,
) -> Result<(), DecodeError> {
    for (block, (values, bytes)) in
        values.chunks_mut(BLOCK).zip(bytes.chunks(BLOCK_BYTES)).enumerate()
    {
        let Some((scale, bytes)) = bytes.split_first_chunk() else { break };
        let scale = f32::from_le_bytes(*scale);
        if !is_scale(scale) {
            return Err(DecodeError::Scale { block });
        }
        let mut forbidden = 0;
        for (value, byte) in values.iter_mut().zip(bytes) {
            forbidden |= u8::from(*byte == i8::MIN.cast_unsigned());
            *value = merge(*value, f32::from(byte.cast_signed()) * scale);
        }
        if forbidden != 0 {
            return Err(DecodeError::Byte { block });
        }
    }
    Ok(())
}

/// The largest magnitude of a block, and the `or` of the marks of values that are not finite.
fn survey(values: &[f32]) -> (f32, u32) {
    let mut absmax = [0.0; LANES];
    let mut marks = [0; LANES];
    let (groups, rest) = values.as_chunks::<LANES>();
    for group in groups {
        for lane in 0..LANES {
            absmax[lane] = greater(absmax[lane], group[lane].abs());
            marks[lane] |= non_finite_mark(group[lane]);
        }
    }
    let mut total = (0.0, 0);
    for value in rest {
        total = (greater(total.0, value.abs()), total.1 | non_finite_mark(*value));
    }
    for lane in 0..LANES {
        total = (greater(total.0, absmax[lane]), total.1 | marks[lane]);
    }
    total
}

/// s and 1/s for a block whose largest magnitude is `absmax`.
fn scale_of(absmax: f32) -> (f32, f32) {
    if absmax < ABSMAX_MIN {
        return (0.0, 0.0);
    }
    let scale = (absmax / Q_MAX).min(SCALE_MAX);
    (scale, 1.0 / scale)
}

/// Whether an encoder writes this scale: plus zero, or positive, normal and not too large.
fn is_scale(scale: f32) -> bool {
    scale.to_bits() == 0 || (f32::MIN_POSITIVE..=SCALE_MAX).contains(&scale)
}

/// The byte that stands for a value: adding [`ROUND`] leaves the rounded integer in the lowest bits.
/// Both ends clamp, so that no value wraps to the other sign.
#[inline(always)]
fn quantise(value: f32, inverse: f32) -> u8 {
    let rounded = value * inverse + ROUND;
    let clamped = lesser(greater(rounded, ROUND - Q_MAX), ROUND + Q_MAX);
    clamped.to_bits().to_le_bytes()[0]
}

/// The greater of two numbers in one instruction: it need not order NaN as `f32::max` does.
#[inline(always)]
fn greater(left: f32, right: f32) -> f32 {
    if left > right { left } else { right }
}

/// The lesser of two numbers, in one instruction.
#[inline(always)]
fn lesser(left: f32, right: f32) -> f32 {
    if left < right { left } else { right }
}
