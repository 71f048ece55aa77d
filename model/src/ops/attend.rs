//! Attention of the newest tokens to a cache of keys and values, for continuing a text.

use burn_backend::TensorMetadata;
use burn_backend::tensor::FloatTensor;
use burn_flex::FlexTensor;
use burn_tensor::{Bool, Tensor};
use pulp::Simd;
use rayon::prelude::*;

use super::attention::Heads;
use super::buf::{floats, make};
use super::clock;
use super::lanes::{dot_lanes, exp_lanes, fma, max_lanes, simd};
use super::operator::{FusedOps, Untracked, primitive, tensor};
use super::project::matmul;
use super::reduce;

/// Causal attention of q, k and v for the newest S of the `heads.tokens` positions of each
/// sequence. // q, y [B·S, H·K]; k, v [B·T, G·K]
#[derive(Clone, Copy, Debug)]
pub struct Attend {
    /// The shape, with the T tokens of the cache.
    pub heads: Heads,
}

impl Untracked<3, 1> for Attend {
    fn plain<B: FusedOps>(&self, [q, k, v]: [FloatTensor<B>; 3]) -> [FloatTensor<B>; 1] {
        let Heads { sequences, tokens, query, kv, size } = self.heads;
        let q = tensor::<B, 2>(q);
        let [rows, width] = q.dims();
        let new = rows / sequences;
        let q = q.reshape([sequences, new, query, size]).swap_dims(1, 2); // [B, H, S, K]
        let [k, v] = [k, v]
            .map(|x| self.heads.shared(tensor::<B, 2>(x).reshape([sequences, tokens, kv, size])));
        let scores = matmul(q, k.swap_dims(2, 3)) * self.heads.scale(); // [B, H, S, T]
        let past = (tokens - new) as i64;
        let later = Tensor::<B, 2, Bool>::tril_mask([new, tokens], past, &scores.device());
        let weights =
            reduce::softmax(scores.mask_fill(later.unsqueeze::<4>(), f32::NEG_INFINITY), 3);
        [primitive(matmul(weights, v).swap_dims(1, 2).reshape([rows, width]))]
    }

    /// Processes one query of one head at a time.
    fn forward(&self, inputs: [FlexTensor; 3]) -> [FlexTensor; 1] {
        let _timer = clock::start("attention");
        let heads @ Heads { sequences, tokens, query, kv, size } = self.heads;
        let [q, k, v] = inputs.each_ref().map(floats);
        let (new, step) = (q.len() / (sequences * query * size), kv * size);
        let y = make(inputs[0].shape(), |y| {
            let outputs = y.par_chunks_mut(size).zip(q.par_chunks(size)).enumerate();
            outputs.for_each_init(
                || vec![0.0; tokens],
                |scores, (index, (y, q))| {
                    let (row, head) = (index / query, index % query);
                    // The newest token sees all T, the one before it all but one.
                    let seen = tokens - new + row % new + 1;
                    let first = row / new * tokens * step + head / heads.group() * size;
                    let kv = [&k[first..], &v[first..]];
                    attend_one(q, kv, step, heads.scale(), &mut scores[..seen], y);
                },
            );
        });
        [y]
    }
}

/// y += c·x
#[inline(always)]
fn add_scaled<S: Simd>(c: f32, x: &[f32], y: &mut [f32]) {
    for i in 0..y.len() {
        y[i] = fma::<S>(c, x[i], y[i]);
    }
}

simd! {
    /// o = softmax(scale·k·q)·v, for as many keys and values as there are scores, one row every
    /// `step` elements.
    /// // `q, o [K]`
    fn attend_one<S>(
        q: &[f32], kv: [&[f32]; 2], step: usize, scale: f32, scores: &mut [f32], o: &mut [f32],
    ) {
        let [k, v] = kv;
        for (score, k) in scores.iter_mut().zip(k.chunks(step)) {
            *score = dot_lanes::<S>(q, &k[..q.len()]);
        }
        let shift = scale * max_lanes(scores);
        let sum = exp_lanes::<S>(scores, scale, shift);
        o.fill(0.0);
        for (weight, v) in scores.iter().zip(v.chunks(step)) {
            add_scaled::<S>(weight / sum, &v[..q.len()], o);
        }
    }
}

#[cfg(test)]
mod tests {
    use burn_backend::ops::FloatTensorOps;
    use burn_flex::Flex;
    use burn_tensor::TensorData;

    use super::super::FusedOps;
    use super::super::buf::contiguous;
    use super::super::tests::{BOUND, distance, heads, random};
    use super::*;

    /// With one new token and several, and with heads that share keys.
    #[test]
    fn attention_from_a_cache_is_the_plain_form() {
        for ([sequences, tokens, query, kv, size], new) in [
            ([1, 1, 1, 1, 2], 1),
            ([2, 9, 4, 2, 6], 1),
            ([3, 70, 6, 2, 33], 7),
            ([1, 5, 2, 2, 64], 5),
        ] {
            let op = Attend { heads: heads([sequences, tokens, query, kv, size]) };
            let tensor = |rows: usize, width: usize, seed| {
                let data = TensorData::new(random(rows * width, 2.0, seed), [rows, width]);
                Flex::float_from_data(data, &Default::default())
            };
            let q = tensor(sequences * new, query * size, 1);
            let [k, v] = [2, 3].map(|seed| tensor(sequences * tokens, kv * size, seed));
            let [fused] = Flex::untracked(op, [q.clone(), k.clone(), v.clone()]);
            let [plain] = op.plain::<Flex>([q, k, v]);
            let [fused, plain] = [fused, plain].map(|y| floats(&contiguous(y)).to_vec());
            assert!(distance(&fused, &plain) < BOUND, "{op:?}, {new} new");
        }
    }
}
