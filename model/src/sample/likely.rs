//! How likely a token is by the scores of all, and which ones are the likeliest.
//!
//! ```text
//! ln q(token) = x[token] − ln Σ exp x
//! ```
//!
//! The sum is over the whole row, as where a model is [measured](crate::eval).

use super::SampleError;

/// A token, and how likely the model finds it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Likely {
    /// The number of the token in the vocabulary.
    pub token: i32,
    /// The natural logarithm of its probability.
    pub log_probability: f64,
}

/// How likely `token` is by these scores, and the `most` likeliest of the first `known` tokens, the
/// likeliest first. Of equally likely ones the first comes first. // scores `[V]`
///
/// # Errors
/// [`SampleError::NotFinite`], also if there is no such token.
pub fn likely(
    scores: &[f32],
    token: i32,
    known: usize,
    most: usize,
) -> Result<(Likely, Vec<Likely>), SampleError> {
    let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if scores.iter().any(|score| !score.is_finite()) {
        return Err(SampleError::NotFinite);
    }
    let above = |score: &f32| f64::from(*score) - f64::from(max);
    let log_sum = scores.iter().map(|score| above(score).exp()).sum::<f64>().ln();
    let of = |token: usize| Likely {
        // The cast is exact, since tokens are below 2^20.
        token: token as i32,
        log_probability: above(&scores[token]) - log_sum,
    };
    let token = usize::try_from(token).ok().filter(|token| *token < scores.len());
    let token = of(token.ok_or(SampleError::NotFinite)?);
    let mut best: Vec<usize> = Vec::with_capacity(most + 1);
    for (at, score) in scores.iter().enumerate().take(known) {
        let place = best.partition_point(|other| scores[*other] >= *score);
        if place < most {
            best.insert(place, at);
            best.truncate(most);
        }
    }
    Ok((token, best.into_iter().map(of).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_likeliest_tokens_come_first_and_their_probabilities_are_those_of_softmax() {
        let scores = [0.1_f32, 0.4, 0.3, 0.1, 0.1].map(f32::ln);
        let (token, best) = likely(&scores, 3, 4, 3).unwrap();
        assert!((token.log_probability - 0.1_f64.ln()).abs() < 1e-6 && token.token == 3);
        assert_eq!(best.iter().map(|one| one.token).collect::<Vec<_>>(), [1, 2, 0]);
        assert!((best[0].log_probability - 0.4_f64.ln()).abs() < 1e-6);
        assert_eq!(likely(&scores, 1, 5, 0).unwrap().1, []);
        assert_eq!(likely(&scores, 1, 5, 9).unwrap().1.len(), 5);
    }

    #[test]
    fn scores_that_are_not_finite_and_unknown_tokens_are_refused() {
        assert!(matches!(likely(&[0.0, f32::NAN], 0, 2, 1), Err(SampleError::NotFinite)));
        assert!(matches!(likely(&[0.0], 1, 1, 1), Err(SampleError::NotFinite)));
        assert!(matches!(likely(&[0.0], -1, 1, 1), Err(SampleError::NotFinite)));
    }
}
