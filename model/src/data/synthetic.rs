//! A Markov source whose entropy rate is known exactly.
//!
//! Draw a long *cyclic* word over S symbols and count how often each string of k + 1 symbols occurs
//! in it. Call the counts N(c, s), where c is the first k symbols. Since the word is a cycle, as
//! many strings lead into a context as out of it, so with N(c) = Σ_s N(c, s) and M the word's
//! length
//!
//! ```text
//! P(s | c) = N(c, s) / N(c)                       a k-th order Markov chain
//! π(c)     = N(c) / M                             is its stationary distribution, exactly
//! H*       = Σ_c π(c) · Σ_s P(s | c) · ln 1/P(s | c)
//! ```
//!
//! This needs no eigenvector and no rounding: the source *is* a table of integers (Shannon 1948
//! gives the entropy of such a source). The counts of shorter strings give the best unigram and
//! bigram predictors.
//!
//! The word has preferences ("habits") of three depths, so that there is something to learn at
//! each. In fixed shares, a symbol follows the habits of the whole source, of the last symbol, or
//! of the last k symbols. The habits of the whole source make some symbols more frequent than
//! others.

use super::draw::Draw;
use super::entropy::{self, Entropies};

/// The source, represented by its table of counts.
#[derive(Debug)]
pub(super) struct Markov {
    /// The run's seed, from which the held-out stream follows too.
    seed: u64,
    /// S, the size of the alphabet.
    symbols: usize,
    /// k, the number of symbols on which the next one depends.
    order: usize,
    /// N(c, s) at index c · S + s; c is a number of k digits in base S, the oldest symbol first.
    counts: Vec<u32>,
    /// For every context c the sum of N(c') over c' ≤ c.
    ends: Vec<u64>,
}

impl Markov {
    /// Draws the word and counts its strings. `config` has bounded the table.
    pub(super) fn new(seed: u64, symbols: usize, order: usize) -> Self {
        let contexts = symbols.pow(u32::try_from(order).unwrap_or(u32::MAX));
        let word = word(seed, symbols, order, contexts * VISITS);
        let mut counts = vec![0_u32; contexts * symbols];
        for (first, next) in strings(&word, symbols, order) {
            counts[first * symbols + next] += 1;
        }
        let mut end = 0;
        let totals = counts.chunks(symbols).map(|row| {
            end += row.iter().map(|count| u64::from(*count)).sum::<u64>();
            end
        });
        let ends = totals.collect();
        Self { seed, symbols, order, counts, ends }
    }

    /// Draws `length` symbols from the stationary source.
    pub(super) fn walk(&self, draw: &mut Draw, length: usize) -> Vec<i32> {
        let at = draw.below(self.length());
        let mut context = self.ends.partition_point(|end| *end <= at);
        let mut tokens = self.digits(context);
        while tokens.len() < length {
            let row = self.row(context);
            let total: u64 = row.iter().map(|count| u64::from(*count)).sum();
            let mut left = draw.below(total);
            let next = row.iter().position(|&count| {
                let hit = left < u64::from(count);
                left = left.saturating_sub(u64::from(count));
                hit
            });
            // `left` starts below the row's sum, so a symbol is found.
            let next = next.unwrap_or_default();
            tokens.push(next as i32);
            context = (context * self.symbols + next) % self.ends.len();
        }
        tokens.truncate(length);
        tokens
    }

    /// Row `row` of the held-out stream, which no peer trains on.
    pub(super) fn held_out(&self, row: u64, length: usize) -> Vec<i32> {
        let key = blake3::derive_key(HELD_OUT, &self.seed.to_le_bytes());
        self.walk(&mut Draw::new(&key, 0, row), length)
    }

    /// P(s | `history`) for every s, if the history is long enough and its last k symbols can
    /// occur.
    pub(super) fn truth(&self, history: &[i32]) -> Option<Vec<f64>> {
        let start = history.len().checked_sub(self.order)?;
        let mut context = 0;
        for token in &history[start..] {
            let digit = usize::try_from(*token).ok().filter(|digit| *digit < self.symbols)?;
            context = context * self.symbols + digit;
        }
        let row = self.row(context);
        let total: u64 = row.iter().map(|count| u64::from(*count)).sum();
        (total > 0).then(|| row.iter().map(|n| f64::from(*n) / total as f64).collect())
    }

    /// Exact entropies of the stationary source.
    pub(super) fn entropies(&self) -> Entropies {
        let mut pairs = vec![0_u64; self.symbols * self.symbols];
        for (string, count) in self.counts.iter().enumerate() {
            // The last two digits, which for order 1 are the whole string.
            pairs[string % (self.symbols * self.symbols)] += u64::from(*count);
        }
        let counts: Vec<_> = self.counts.iter().map(|count| u64::from(*count)).collect();
        Entropies {
            uniform: (self.symbols as f64).ln(),
            unigram: entropy::of_symbols(&pairs, self.symbols),
            bigram: Some(entropy::of_the_next(&pairs, self.symbols)),
            floor: Some(entropy::of_the_next(&counts, self.symbols)),
        }
    }

    /// N(c, ·), the counts of each symbol after a context.
    fn row(&self, context: usize) -> &[u32] {
        &self.counts[context * self.symbols..(context + 1) * self.symbols]
    }

    /// M, the length of the cyclic word.
    fn length(&self) -> u64 {
        self.ends.last().copied().unwrap_or_default()
    }

    /// The symbols of a context, the oldest first.
    fn digits(&self, mut context: usize) -> Vec<i32> {
        let mut digits = vec![0; self.order];
        for digit in digits.iter_mut().rev() {
            *digit = (context % self.symbols) as i32;
            context /= self.symbols;
        }
        digits
    }
}

/// Draws a cyclic word with habits of three depths.
fn word(seed: u64, symbols: usize, order: usize, length: usize) -> Vec<usize> {
    let key = blake3::derive_key(WORD, &seed.to_le_bytes());
    // The smaller of two draws, so that low symbols are more frequent.
    let common = |draw: &mut Draw| draw.below(symbols as u64).min(draw.below(symbols as u64));
    let habits = |depth, contexts: usize| -> Vec<usize> {
        let mut draw = Draw::new(&key, 1, depth);
        (0..contexts * HABITS).map(|_| common(&mut draw) as usize).collect()
    };
    let contexts = symbols.pow(u32::try_from(order).unwrap_or(u32::MAX));
    let (of_last, of_all) = (habits(1, symbols), habits(2, contexts));

    let mut draw = Draw::new(&key, 0, 0);
    let mut context = 0;
    let mut next = || {
        let share = draw.below(SHARES);
        // Each habit is twice as strong as the next one.
        let habit = (draw.below(1 << HABITS) | 1 << (HABITS - 1)).trailing_zeros() as usize;
        let symbol = match share {
            0..SHARE_OF_LAST => common(&mut draw) as usize,
            SHARE_OF_LAST..SHARE_OF_ALL => of_last[context % symbols * HABITS + habit],
            _ => of_all[context * HABITS + habit],
        };
        context = (context * symbols + symbol) % contexts;
        symbol
    };
    (0..length).map(|_| next()).collect()
}

/// Every string of `order` + 1 symbols of a cyclic word, as the number that its first `order`
/// symbols form, and its last symbol.
fn strings(word: &[usize], symbols: usize, order: usize) -> impl Iterator<Item = (usize, usize)> {
    let contexts = symbols.pow(u32::try_from(order).unwrap_or(u32::MAX));
    let push = move |context: usize, symbol: &usize| (context * symbols + symbol) % contexts;
    let first = word.iter().cycle().take(order).fold(0, push);
    word.iter().cycle().skip(order).take(word.len()).scan(first, move |context, symbol| {
        let string = (*context, *symbol);
        *context = push(*context, symbol);
        Some(string)
    })
}

/// The length of the word over the number of contexts, which is the mean sum of a row.
const VISITS: usize = 64;
/// The number of symbols that a context prefers.
const HABITS: usize = 3;
/// A number below this is drawn for each symbol. Below the first bound the symbol follows the
/// habits of the whole source, below the second those of the last symbol, else those of the last k.
const SHARES: u64 = 16;
/// The first bound: 2 of 16 symbols follow the habits of the whole source.
const SHARE_OF_LAST: u64 = 2;
/// The second bound: 7 of 16 symbols follow the habits of the last symbol, and the other 7 those of
/// the last k.
const SHARE_OF_ALL: u64 = 9;
/// Keeps the draws of the word apart from all others of a seed.
const WORD: &str = "intellect-node 1 synthetic word";
/// Keeps the held-out stream apart from those of peers.
const HELD_OUT: &str = "intellect-node 1 synthetic held-out";

#[cfg(test)]
mod tests {
    use super::*;

    /// Every count of the cyclic word "abaabc", computed by hand.
    #[test]
    fn strings_of_a_cyclic_word_are_counted() {
        let word = [0, 1, 0, 0, 1, 2];
        let pairs: Vec<_> = strings(&word, 3, 1).collect();
        assert_eq!(pairs, [(0, 1), (1, 0), (0, 0), (0, 1), (1, 2), (2, 0)]);
        let triples: Vec<_> = strings(&word, 3, 2).collect();
        // The context "ab" is 0·3 + 1.
        assert_eq!(triples, [(1, 0), (3, 0), (0, 1), (1, 2), (5, 0), (6, 1)]);
    }

    /// As many strings lead into a context as out of it, which is the condition for π to be exact.
    #[test]
    fn the_counts_are_a_circulation() {
        for (symbols, order) in [(2, 1), (5, 2), (4, 3), (32, 2)] {
            let markov = Markov::new(3, symbols, order);
            let contexts = symbols.pow(order as u32);
            let mut into = vec![0_u32; contexts];
            for (string, count) in markov.counts.iter().enumerate() {
                into[string % contexts] += count;
            }
            let out = |context| markov.row(context).iter().sum::<u32>();
            assert!(into.iter().enumerate().all(|(context, count)| *count == out(context)));
            assert_eq!(markov.length(), (contexts * VISITS) as u64);
        }
    }

    /// The walk has the table's frequencies, from its first symbols on.
    #[test]
    fn a_walk_is_stationary_and_follows_the_table() {
        let markov = Markov::new(8, 3, 2);
        let (rows, length) = (40_000, 4);
        let mut seen = vec![vec![0_u32; 27]; length - 2];
        for row in 0..rows {
            let walk = markov.walk(&mut Draw::new(&[1; 32], 0, row), length);
            for (start, seen) in seen.iter_mut().enumerate() {
                let digit = |at: usize| walk[start + at] as usize;
                seen[digit(0) * 9 + digit(1) * 3 + digit(2)] += 1;
            }
        }
        for seen in seen {
            for (seen, count) in seen.iter().zip(&markov.counts) {
                let p = f64::from(*count) / markov.length() as f64;
                let deviation = (rows as f64 * p * (1.0 - p)).sqrt();
                let distance = (f64::from(*seen) - rows as f64 * p).abs();
                assert!(distance <= 5.0 * deviation, "{seen} of {rows} at {p}");
            }
        }
    }

    /// The entropy rate is that of the table, and a walk's own surprise agrees with it.
    #[test]
    fn the_floor_is_the_mean_surprise_of_a_walk() {
        let markov = Markov::new(5, 16, 2);
        let walk = markov.walk(&mut Draw::new(&[2; 32], 0, 0), 200_000);
        let surprise = |at: usize| {
            let truth = markov.truth(&walk[..at]).expect("it occurred");
            -truth[walk[at] as usize].ln()
        };
        let mean = (2..walk.len()).map(surprise).sum::<f64>() / (walk.len() - 2) as f64;
        let floor = markov.entropies().floor.expect("known");
        assert!((mean - floor).abs() < 0.01, "{mean} instead of {floor}");
    }

    #[test]
    fn looking_further_back_pays() {
        for seed in 0..4 {
            let Entropies { uniform, unigram, bigram, floor } =
                Markov::new(seed, 32, 2).entropies();
            let floor = floor.expect("known");
            let bigram = bigram.expect("known");
            assert!(uniform > unigram + 0.1 && unigram > bigram + 0.3 && bigram > floor + 0.3);
            // With order 1 the bigram predictor is the best possible.
            let first = Markov::new(seed, 32, 1).entropies();
            let both = first.bigram.zip(first.floor).expect("known");
            assert!((both.0 - both.1).abs() < 1e-12);
        }
    }

    #[test]
    fn truth_needs_a_history_that_can_occur() {
        let markov = Markov::new(1, 4, 2);
        assert_eq!(markov.truth(&[1]), None);
        assert_eq!(markov.truth(&[0, 4]), None);
        assert_eq!(markov.truth(&[0, -1]), None);
        let walk = markov.walk(&mut Draw::new(&[0; 32], 0, 0), 30);
        let truth = markov.truth(&walk).expect("it occurred");
        assert_eq!(truth, markov.truth(&walk[28..]).expect("only the end counts"));
        assert!((truth.iter().sum::<f64>() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn another_seed_is_another_source() {
        let counts = |seed| Markov::new(seed, 8, 1).counts;
        assert_eq!(counts(1), counts(1));
        assert_ne!(counts(1), counts(2));
    }
}
