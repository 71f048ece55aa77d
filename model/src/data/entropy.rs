//! Entropies of counted strings, in nats per symbol, with which losses are compared.
//!
//! For every context, `counts` has a row of how often each of `symbols` symbols followed it:
//!
//! ```text
//! H(next | context) = Σ N(c, s)/M · ln(N(c)/N(c, s))        M = Σ N(c, s)
//! ```
//!
//! It is the loss of the best predictor that looks only at that context.

/// The references for a loss, in nats per token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entropies {
    /// The loss of a predictor that knows only how many different tokens there are.
    pub uniform: f64,
    /// The loss of the best predictor that looks at no token, but knows the file of a mix.
    pub unigram: f64,
    /// The loss of the best predictor that looks at the last token; `None` where there are too
    /// many different tokens to count pairs.
    pub bigram: Option<f64>,
    /// The entropy rate H*, which no predictor beats; known only for a synthetic source.
    pub floor: Option<f64>,
}

/// Entropy of the symbol after a context; `counts` has a row of `symbols` numbers for each context.
/// 0 without any count.
pub(super) fn of_the_next(counts: &[u64], symbols: usize) -> f64 {
    let all: u64 = counts.iter().sum();
    let surprise = |row: &[u64]| {
        let total = row.iter().sum::<u64>() as f64;
        let term = |&count: &u64| if count == 0 { 0.0 } else { log_share(count, total) };
        row.iter().map(term).sum::<f64>()
    };
    counts.chunks(symbols).map(surprise).sum::<f64>() / (all.max(1) as f64)
}

/// Entropy of a symbol with no context, from the counts of pairs.
pub(super) fn of_symbols(pairs: &[u64], symbols: usize) -> f64 {
    let mut counts = vec![0; symbols];
    for row in pairs.chunks(symbols) {
        for (count, pair) in counts.iter_mut().zip(row) {
            *count += pair;
        }
    }
    of_the_next(&counts, symbols)
}

/// One term, N(c, s) · ln(N(c)/N(c, s)).
fn log_share(count: u64, total: f64) -> f64 {
    count as f64 * (total / count as f64).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each symbol begins 4 of 8 pairs: one row is even, the other certain.
    #[test]
    fn by_hand() {
        let pairs = [2, 2, 0, 4];
        let half = 2_f64.ln() / 2.0;
        assert!((of_the_next(&pairs, 2) - half).abs() < 1e-15);
        // The second symbol is 0 in 2 of 8.
        let single = -(0.25 * 0.25_f64.ln() + 0.75 * 0.75_f64.ln());
        assert!((of_symbols(&pairs, 2) - single).abs() < 1e-15);
        assert_eq!(of_the_next(&[0; 4], 2), 0.0);
    }
}
