//! How likely the logits find the token that came, position by position.
//!
//! ```text
//! y = x[target] − lse(x)        lse(x) = ln Σ exp x
//! ```
//!
//! It is the cross entropy of one position with its sign changed. A measurement needs it for each
//! position alone, without a gradient, and whether a reader that always takes the likeliest token
//! would have taken this one: the first of the largest logits.

use burn_backend::tensor::FloatTensor;
use burn_tensor::{Int, Tensor, TensorData};
use rayon::prelude::*;

use super::lanes::{exp_lanes, max_lanes, simd};
use super::loss::first_max;
use super::operator::{FusedOps, primitive, tensor};
use super::reduce;
use super::rows::ROWS;

/// What a model expected of the token that came.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judged {
    /// ln q(token); NaN if the scores are not finite.
    pub log_probability: f64,
    /// Whether no token is likelier, and none before it is as likely.
    pub is_likeliest: bool,
}

/// Judges the target of each row of logits, which are lost. // logits [N, V], targets `[N]`
///
/// # Panics
/// If a target is not below V.
pub(crate) fn judge(logits: &mut [f32], targets: &[i32]) -> Vec<Judged> {
    let vocabulary = logits.len() / targets.len().max(1);
    let chunks = logits.par_chunks_mut(ROWS * vocabulary.max(1)).zip(targets.par_chunks(ROWS));
    let judged = chunks.map(|(logits, targets)| {
        let rows = logits.chunks_exact_mut(vocabulary).zip(targets);
        rows.map(|(x, target)| judge_row(x, *target as usize)).collect::<Vec<_>>()
    });
    judged.collect::<Vec<_>>().concat()
}

/// The same on the device of the logits. In each row are ln q and 1 for the likeliest, else 0.
/// // logits [N, V]; result [N, 2]
pub(crate) fn judge_there<B: FusedOps>(logits: FloatTensor<B>, targets: &[i32]) -> FloatTensor<B> {
    let logits = tensor::<B, 2>(logits);
    let targets = TensorData::new(targets.to_vec(), [targets.len(), 1]);
    let targets = Tensor::<B, 2, Int>::from_data(targets, &logits.device());
    let likeliest = reduce::argmax(logits.clone(), 1).equal(targets.clone()).float();
    let log = reduce::log_softmax(logits, 1).gather(1, targets);
    primitive(Tensor::cat(vec![log, likeliest], 1))
}

impl Judged {
    /// Reads what [`judge_there`] computed.
    pub(crate) fn read(values: &[f32]) -> Vec<Self> {
        let (rows, _) = values.as_chunks::<2>();
        let row = |&[log, likeliest]: &[f32; 2]| Self {
            log_probability: f64::from(log),
            is_likeliest: likeliest != 0.0,
        };
        rows.iter().map(row).collect()
    }
}

/// Judges one row; the logarithm is taken in f64, as in the loss.
fn judge_row(x: &mut [f32], target: usize) -> Judged {
    let score = f64::from(x[target]);
    let is_likeliest = first_max(x) == target;
    let (max, sum) = partition(x);
    let lse = libm::log(f64::from(sum)) + f64::from(max);
    Judged { log_probability: score - lse, is_likeliest }
}

simd! {
    /// The maximum of a row and Σ exp(x − max). The row is lost.
    fn partition<S>(x: &mut [f32]) -> (f32, f32) {
        let max = max_lanes(x);
        (max, exp_lanes::<S>(x, 1.0, max))
    }
}

#[cfg(test)]
mod tests {
    use burn_backend::TensorData as Data;
    use burn_flex::Flex;

    use super::*;
    use crate::params;

    /// Scores of `rows` rows of `vocabulary` that are neither sorted nor all different.
    fn scores(rows: usize, vocabulary: usize) -> Vec<f32> {
        (0..rows * vocabulary).map(|i| ((i * 7919 % 613) as f32 - 300.0) * 0.03).collect()
    }

    #[test]
    fn the_two_forms_and_the_definition_agree() {
        for (rows, vocabulary) in [(1, 2), (3, 7), (130, 64), (65, 1025)] {
            let scores = scores(rows, vocabulary);
            let targets: Vec<i32> = (0..rows).map(|i| (i * 31 % vocabulary) as i32).collect();
            let judged = judge(&mut scores.clone(), &targets);
            let there = <Flex as burn_backend::ops::FloatTensorOps<Flex>>::float_from_data(
                Data::new(scores.clone(), [rows, vocabulary]),
                &Default::default(),
            );
            let there = params::read::<Flex>(judge_there::<Flex>(there, &targets)).unwrap();
            let there = Judged::read(there.as_slice().unwrap());
            for (row, target) in targets.iter().enumerate() {
                let x = &scores[row * vocabulary..][..vocabulary];
                let lse = x.iter().map(|x| f64::from(*x).exp()).sum::<f64>().ln();
                let expected = f64::from(x[*target as usize]) - lse;
                for found in [judged[row], there[row]] {
                    assert!(
                        (found.log_probability - expected).abs() < 2e-5,
                        "{found:?} {expected}"
                    );
                    assert_eq!(found.is_likeliest, first_max(x) == *target as usize);
                }
            }
        }
    }

    #[test]
    fn equal_scores_have_one_likeliest_token() {
        let judged = judge(&mut [1.0; 8], &[0, 1]);
        assert_eq!([true, false], [judged[0].is_likeliest, judged[1].is_likeliest]);
        let quarter = (0.25_f64).ln();
        assert!(judged.iter().all(|one| (one.log_probability - quarter).abs() < 1e-6));
    }

    #[test]
    fn a_score_that_is_not_finite_spoils_its_row_alone() {
        for bad in [f32::NAN, f32::INFINITY] {
            let judged = judge(&mut [0.0, bad, 0.0, 0.0, 0.0, 0.0], &[0, 1]);
            assert!(judged[0].log_probability.is_nan(), "{judged:?}");
            assert!(judged[1].log_probability.is_finite());
        }
    }
}
