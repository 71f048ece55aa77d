//! The arithmetic of a ring: what one member does to one frame, from bytes to bytes.
//!
//! ```text
//! start    e(w₁·Δ₁)                           where a chunk starts
//! add      e(d(bytes) + wᵢ·Δᵢ)                at each position on its way
//! finish   e((d(bytes) + wₙ·Δₙ) / Σw)         at its owner: these are the bytes of the update
//! alone    e(Δ)                               a ring of one: w·Δ/w is Δ
//! ```
//!
//! e and d encode and decode; w is `tokens as f32`; Σw is summed in `u64`, where it is exact, and then
//! rounded once. The additions happen in ring order, whatever arrives first, so the bits depend on the
//! roster alone (invariant S4: the divisor is exactly the weights that are in the sum).

use thiserror::Error;

use super::{BLOCK, Codec, DecodeError, EncodeError};

/// What one member adds to a frame.
#[derive(Clone, Copy, Debug)]
pub struct Share<'a> {
    /// The codec of the run, which encodes and decodes the frame.
    pub codec: Codec,
    /// Tokens on which the delta was trained, above 0.
    pub weight: u64,
    /// The frame's slice of the frozen delta; it starts at a block.
    pub delta: &'a [f32],
}

/// Why a frame cannot be reduced, and which peer caused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ReduceError {
    /// The predecessor's bytes are wrong, which is its fault.
    #[error("the predecessor's frame cannot be decoded: {0}")]
    Decode(#[from] DecodeError),
    /// This member's delta, or a sum, is too large for `f32`: the attempt fails.
    #[error("the sum cannot be encoded: {0}")]
    Encode(#[from] EncodeError),
}

impl Share<'_> {
    /// The first member of a chunk: `out` becomes e(w·Δ).
    ///
    /// # Errors
    /// A product that is not finite.
    ///
    /// # Panics
    /// If `out` does not have the encoded length of the delta; the same holds below.
    pub fn start(&self, out: &mut [u8]) -> Result<(), ReduceError> {
        self.tiles(None, out, |sum| sum)
    }

    /// A member in the middle: `out` becomes e(d(payload) + w·Δ).
    ///
    /// # Errors
    /// A payload that no encoder writes, or a sum that is not finite.
    pub fn add(&self, payload: &[u8], out: &mut [u8]) -> Result<(), ReduceError> {
        self.tiles(Some(payload), out, |sum| sum)
    }

    /// The owner: `out` becomes e((d(payload) + w·Δ) / Σw), where `total` is Σw over the ring.
    ///
    /// # Errors
    /// The same as [`Self::add`] has.
    pub fn finish(&self, payload: &[u8], total: u64, out: &mut [u8]) -> Result<(), ReduceError> {
        let total = total as f32;
        self.tiles(Some(payload), out, |sum| sum / total)
    }

    /// A ring of one: `out` becomes e(Δ).
    ///
    /// # Errors
    /// A delta with a value that is not finite.
    pub fn alone(&self, out: &mut [u8]) -> Result<(), ReduceError> {
        Ok(self.codec.encode(self.delta, out)?)
    }

    /// Encodes `after(d(payload) + w·Δ)` tile by tile, so that the sum never leaves the cache.
    #[inline(always)]
    fn tiles(
        &self,
        payload: Option<&[u8]>,
        out: &mut [u8],
        after: impl Fn(f32) -> f32,
    ) -> Result<(), ReduceError> {
        let (codec, weight) = (self.codec, self.weight as f32);
        let encoded_bytes = codec.encoded_bytes(self.delta.len());
        assert_eq!(out.len(), encoded_bytes, "length of the encoding");
        if let Some(payload) = payload {
            codec.check_length(payload, self.delta.len())?;
        }
        let tile_bytes = codec.encoded_bytes(TILE);
        let mut sum = [0.0; TILE];
        for (tile, (delta, out)) in
            self.delta.chunks(TILE).zip(out.chunks_mut(tile_bytes)).enumerate()
        {
            let sum = &mut sum[..delta.len()];
            for (sum, delta) in sum.iter_mut().zip(delta) {
                *sum = weight * *delta;
            }
            if let Some(payload) = payload {
                let start = tile * tile_bytes;
                let payload = &payload[start..start + out.len()];
                codec.decode_add(payload, sum).map_err(|error| error.after(tile * TILE))?;
            }
            for sum in sum.iter_mut() {
                *sum = after(*sum);
            }
            codec.encode(sum, out).map_err(|error| error.after(tile * TILE))?;
        }
        Ok(())
    }
}

/// Elements processed at once: 16 KiB, half of a small first-level cache.
const TILE: usize = 16 * BLOCK;

#[cfg(test)]
mod tests {
    use super::*;

    fn run(codec: Codec, deltas: &[&[f32]], weights: &[u64]) -> Vec<u8> {
        let elements = deltas[0].len();
        let total = weights.iter().sum();
        let (mut bytes, mut out) = (vec![0; codec.encoded_bytes(elements)], vec![]);
        for (index, (delta, weight)) in deltas.iter().zip(weights).enumerate() {
            let share = Share { codec, weight: *weight, delta };
            out.resize(bytes.len(), 0);
            match index {
                0 => share.start(&mut out),
                _ if index == deltas.len() - 1 => share.finish(&bytes, total, &mut out),
                _ => share.add(&bytes, &mut out),
            }
            .unwrap();
            std::mem::swap(&mut bytes, &mut out);
        }
        bytes
    }

    #[test]
    fn s4_divisor_equals_the_weights_in_the_sum() {
        let deltas: [&[f32]; 3] = [&[1.0, 8.0], &[2.0, 0.0], &[4.0, -2.0]];
        let bytes = run(Codec::F32, &deltas, &[5, 1, 2]);
        let mut mean = [0.0; 2];
        Codec::F32.decode(&bytes, &mut mean).unwrap();
        assert_eq!(mean, [15.0 / 8.0, 36.0 / 8.0]);
    }

    /// The delta is longer than a tile, so that slices of tiles must fit together.
    #[test]
    fn tiles_fit_together() {
        let delta: Vec<f32> = (0..2 * TILE + 300).map(|i| (i % 1000) as f32).collect();
        for codec in [Codec::F32, Codec::Int8] {
            let bytes = run(codec, &[&delta, &delta, &delta], &[1, 2, 4]);
            let mut mean = vec![0.0; delta.len()];
            codec.decode(&bytes, &mut mean).unwrap();
            let worst = mean.iter().zip(&delta).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max);
            assert!(worst <= if codec == Codec::F32 { 1e-3 } else { 12.0 }, "{codec:?} {worst}");
        }
    }

    #[test]
    fn errors_name_the_place_in_the_frame() {
        let mut delta = vec![1.0; TILE + 600];
        delta[TILE + 300] = f32::NAN;
        let share = Share { codec: Codec::Int8, weight: 1, delta: &delta };
        let mut out = vec![0; Codec::Int8.encoded_bytes(delta.len())];
        let index = TILE + 300;
        assert_eq!(share.start(&mut out), Err(EncodeError { index }.into()));
        let mut payload = vec![0; out.len()];
        payload[260 * 17 + 4] = 0x80;
        let add = share.add(&payload, &mut out);
        assert_eq!(add, Err(DecodeError::Byte { block: 17 }.into()));
        let short = share.add(&payload[1..], &mut out);
        assert!(matches!(short, Err(ReduceError::Decode(DecodeError::Length { .. }))));
    }

    #[test]
    fn a_ring_of_one_is_the_delta_itself() {
        let delta = [0.1, 0.2, -0.3];
        let share = Share { codec: Codec::F32, weight: 3, delta: &delta };
        let mut out = [0; 12];
        share.alone(&mut out).unwrap();
        assert_eq!(out[..4], 0.1_f32.to_le_bytes());
        assert_eq!(out[8..], (-0.3_f32).to_le_bytes());
    }
}
