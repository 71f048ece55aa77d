//! What the outcomes of a task amount to, with standard errors.
//!
//! ```text
//! acc, acc_norm       share of right choices; the likeliest one, or the likeliest per character
//! perplexity          exp(−Σ ln q / items), with acc the share that is greedy
//! word_perplexity     exp(−Σ ln q / Σ words), and the same of bytes
//! bits_per_byte       −Σ ln q / (ln 2 · Σ bytes)
//! ```
//!
//! The error of a mean of n numbers is √(Σ (xᵢ − x̄)² / (n (n − 1))). That of a ratio Σ x / Σ y is
//! √(n/(n − 1) · Σ (xᵢ − yᵢ · r)²) / Σ y, and that of exp r is exp r times it.

use super::measure::Outcome;

/// A number that says how good a model is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metric {
    /// The name that it has in lm-eval.
    pub name: &'static str,
    /// The value over all items that count.
    pub value: f64,
    /// Its standard error, from two items on.
    pub error: Option<f64>,
}

/// The metrics of these outcomes: those of each kind of item that is there. Items whose right answer
/// is not known count in none.
#[must_use]
pub fn metrics(outcomes: &[&Outcome]) -> Vec<Metric> {
    let mut metrics = Vec::new();
    let right = |pick: fn(usize, usize) -> usize| {
        let right = outcomes.iter().filter_map(|outcome| match outcome {
            Outcome::Choice { chosen, chosen_norm, gold: Some(gold), .. } => {
                Some(pick(*chosen, *chosen_norm) == *gold)
            }
            Outcome::Choice { gold: None, .. }
            | Outcome::Continuation { .. }
            | Outcome::Text { .. } => None,
        });
        right.map(|right| Pair { x: f64::from(u8::from(right)), y: 1.0 }).collect::<Vec<_>>()
    };
    metrics.extend(ratio("acc", &right(|chosen, _| chosen)));
    metrics.extend(ratio("acc_norm", &right(|_, chosen_norm| chosen_norm)));
    let continuations = || {
        outcomes.iter().filter_map(|outcome| match outcome {
            Outcome::Continuation { log_likelihood, is_greedy } => {
                Some((*log_likelihood, *is_greedy))
            }
            Outcome::Choice { .. } | Outcome::Text { .. } => None,
        })
    };
    let greedy = continuations().map(|(_, greedy)| Pair { x: f64::from(u8::from(greedy)), y: 1.0 });
    metrics.extend(ratio("acc", &greedy.collect::<Vec<_>>()));
    let surprise = continuations().map(|(log, _)| Pair { x: -log, y: 1.0 });
    metrics.extend(ratio("perplexity", &surprise.collect::<Vec<_>>()).map(Metric::exp));
    let texts = |per: fn(usize, usize) -> f64| {
        let pair = outcomes.iter().filter_map(|outcome| match outcome {
            Outcome::Text { log_likelihood, words, bytes } => {
                Some(Pair { x: -log_likelihood, y: per(*words, *bytes) })
            }
            Outcome::Choice { .. } | Outcome::Continuation { .. } => None,
        });
        pair.collect::<Vec<_>>()
    };
    let (words, bytes) = (texts(|words, _| words as f64), texts(|_, bytes| bytes as f64));
    metrics.extend(ratio("word_perplexity", &words).map(Metric::exp));
    metrics.extend(ratio("byte_perplexity", &bytes).map(Metric::exp));
    let bits = texts(|_, bytes| bytes as f64 * std::f64::consts::LN_2);
    metrics.extend(ratio("bits_per_byte", &bits));
    metrics
}

/// A term of the two sums of a ratio.
#[derive(Clone, Copy)]
struct Pair {
    /// What is summed above the line.
    x: f64,
    /// What is summed below the line; 1 of a mean.
    y: f64,
}

/// Σ x / Σ y with its error; `None` without any term.
fn ratio(name: &'static str, pairs: &[Pair]) -> Option<Metric> {
    let (n, all) = (pairs.len() as f64, pairs.iter().map(|pair| pair.y).sum::<f64>());
    let value = pairs.iter().map(|pair| pair.x).sum::<f64>() / all;
    let squares: f64 = pairs.iter().map(|pair| (pair.x - pair.y * value).powi(2)).sum();
    let error = (pairs.len() > 1).then(|| (n / (n - 1.0) * squares).sqrt() / all);
    (!pairs.is_empty()).then_some(Metric { name, value, error })
}

impl Metric {
    /// exp of the value, and its error by the slope there.
    fn exp(self) -> Self {
        let value = self.value.exp();
        Self { value, error: self.error.map(|error| value * error), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(outcomes: &[Outcome]) -> Vec<Metric> {
        metrics(&outcomes.iter().collect::<Vec<_>>())
    }

    /// Right in 3 of 4: the sample's variance is 4/3 · 3/16, over 4 items.
    #[test]
    fn accuracy_by_hand() {
        let choice = |chosen: usize, gold: Option<usize>| Outcome::Choice {
            log_likelihoods: vec![-1.0, -2.0],
            chosen,
            chosen_norm: 1,
            gold,
        };
        let golds = [Some(0), Some(0), Some(0), Some(1), None];
        let found = found(&golds.map(|gold| choice(0, gold)));
        let error = (0.25_f64 / 4.0).sqrt();
        assert_eq!(found[0], Metric { name: "acc", value: 0.75, error: Some(error) });
        assert_eq!(found[1], Metric { name: "acc_norm", value: 0.25, error: Some(error) });
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn perplexities_by_hand() {
        let ln = std::f64::consts::LN_2;
        let text =
            |bits: f64, words, bytes| Outcome::Text { log_likelihood: -bits * ln, words, bytes };
        let metrics = found(&[text(6.0, 2, 8), text(2.0, 2, 8)]);
        let values: Vec<_> = metrics.iter().map(|metric| (metric.name, metric.value)).collect();
        let expected =
            [("word_perplexity", 4.0), ("byte_perplexity", 2.0_f64.sqrt()), ("bits_per_byte", 0.5)];
        for (found, expected) in values.iter().zip(expected) {
            assert!(found.0 == expected.0 && (found.1 - expected.1).abs() < 1e-12, "{found:?}");
        }
        // Terms 6 and 2 around 4: √(2 · (4 + 4)) bits over 16 bytes.
        assert!((metrics[2].error.unwrap() - 0.25).abs() < 1e-12);
        let greedy = |is_greedy| Outcome::Continuation { log_likelihood: -ln, is_greedy };
        let metrics = found(&[greedy(true), greedy(false)]);
        assert_eq!((metrics[0].name, metrics[0].value), ("acc", 0.5));
        assert!((metrics[1].value - 2.0).abs() < 1e-12 && metrics[1].error == Some(0.0));
        assert_eq!(found(&[]), []);
    }
}
