//! Several token files as one source: weights give the frequency of each.
//!
//! A row draws its file and then its start in it, both from (stream, step, row), so that no
//! position in a file has to be remembered:
//!
//! ```text
//! P(a row is of file k) = w(k) / Σ w(j)
//! ```
//!
//! There are two sets of weights, for runs that train on better texts at the end, while the
//! learning rate falls (Hu et al. 2024, arXiv 2404.06395, §4). The second set applies in every
//! epoch that begins with `anneal_from` or more committed tokens. That count is the same for all
//! peers of an epoch, so all of them draw by the same weights.
//!
//! Every file holds out its own end. The held-out set always takes rows of each file by the first
//! weights, so that its losses are comparable throughout the run.

use std::path::PathBuf;

use super::draw::Draw;
use super::entropy::Entropies;
use super::error::DataError;
use super::files;
use super::steady::Steady;
use super::tokens::{self, Requirements, Tokens};
use crate::config::{Component, Hints};

/// Open files, and the weights of both phases.
#[derive(Debug)]
pub(super) struct Mix {
    /// The open files, in the order of the manifest.
    files: Vec<Tokens>,
    /// The weights before `anneal_from`.
    stable: Shares,
    /// The weights from `anneal_from` on.
    anneal: Shares,
    /// Committed tokens with which an epoch begins by the second weights.
    anneal_from: u64,
}

impl Mix {
    /// Finds, opens and checks the run's files.
    pub(super) fn open(
        named: &[PathBuf],
        hints: &Hints,
        parts: &[Component],
        anneal_from: u64,
        requirements: Requirements,
    ) -> Result<Self, DataError> {
        let mut found: Vec<Option<Tokens>> = parts.iter().map(|_| None).collect();
        // A path that does not exist may be a missing file of the run, or a typing error, which is
        // reported last.
        let (absent, here): (Vec<_>, Vec<_>) =
            named.iter().cloned().partition(|path| files::is_absent(path));
        for candidate in files::all(&here)? {
            let path = candidate.path;
            let none_of = || {
                let (path, count) = (path.clone(), parts.len());
                Err(DataError::NotOfMix { path, count, bytes: candidate.bytes })
            };
            if parts.iter().all(|part| part.file.bytes != candidate.bytes) {
                if candidate.by_itself {
                    return none_of();
                }
                continue;
            }
            // A folder may contain other files of this length.
            let file = match tokens::scan(&path) {
                Err(_) if !candidate.by_itself => continue,
                file => file?,
            };
            match parts.iter().position(|part| part.file == file.fingerprint) {
                Some(index) => found[index] = Some(file.accept(requirements)?),
                None if candidate.by_itself => return none_of(),
                None => {}
            }
        }
        if let Some(index) = found.iter().position(Option::is_none) {
            let lacking = parts.iter().zip(&found).filter(|(_, file)| file.is_none());
            let lacking = lacking.map(|(part, _)| part.file).collect();
            let (count, get) = (parts.len(), hints.remedy());
            let described = hints.described(index, "token", parts[index].file);
            return Err(DataError::MissingOfMix { count, lacking, described, get });
        }
        files::all(&absent)?;
        Ok(Self {
            files: found.into_iter().flatten().collect(),
            stable: Shares::new(parts.iter().map(|part| part.weight)),
            anneal: Shares::new(parts.iter().map(|part| part.anneal_weight)),
            anneal_from,
        })
    }

    /// The file of this number, in the order of the manifest.
    pub(super) fn file(&self, number: usize) -> Option<&Steady> {
        self.files.get(number).map(|tokens| &tokens.scanned.file)
    }

    /// Draws the file of a row, in an epoch that began with `committed` tokens.
    pub(super) fn draw(&self, draw: &mut Draw, committed: u64) -> &Tokens {
        let shares = if committed < self.anneal_from { &self.stable } else { &self.anneal };
        &self.files[shares.at(draw.unit())]
    }

    /// The file of held-out row `row` of `of`, the row's index among the rows of that file, and
    /// their number.
    pub(super) fn held_out(&self, row: u64, of: u64) -> (&Tokens, u64, u64) {
        // Row r is in the middle of its share of the whole, at (r + ½) / of.
        let before = |share: f64| (share * of as f64 - 0.5).ceil().max(0.0) as u64;
        let file = self.stable.at((row as f64 + 0.5) / of as f64);
        let (begin, end) = self.stable.range(file);
        let (begin, end) = (before(begin), before(end));
        (&self.files[file], row.saturating_sub(begin), end.saturating_sub(begin))
    }

    /// How many held-out rows share no judged token, spread over the files by their first weights. The file that has the
    /// fewest for its weight decides.
    pub(super) fn held_out_rows(&self, context: usize) -> u64 {
        let rows = self.files.iter().enumerate().map(|(file, tokens)| {
            let (begin, end) = self.stable.range(file);
            (tokens.split.rows(context) as f64 / (end - begin)) as u64
        });
        rows.min().unwrap_or(1).max(1)
    }

    /// The entropies of predictors that know the file of a row, averaged by the first weights.
    pub(super) fn entropies(&self) -> Entropies {
        let mean = |of: fn(Entropies) -> Option<f64>| {
            let terms = self.files.iter().enumerate().map(|(file, tokens)| {
                let (begin, end) = self.stable.range(file);
                of(tokens.scanned.entropies).map(|entropy| (end - begin) * entropy)
            });
            terms.sum::<Option<f64>>()
        };
        Entropies {
            uniform: mean(|entropies| Some(entropies.uniform)).unwrap_or_default(),
            unigram: mean(|entropies| Some(entropies.unigram)).unwrap_or_default(),
            bigram: mean(|entropies| entropies.bigram),
            floor: None,
        }
    }
}

/// For every file k the sum of the weights w(j) over j ≤ k.
#[derive(Clone, Debug)]
struct Shares(Vec<f64>);

impl Shares {
    /// The cumulative sums of these weights, of which at least one is above 0.
    fn new(weights: impl Iterator<Item = f64>) -> Self {
        let add = |sum: &mut f64, weight| {
            *sum += weight;
            Some(*sum)
        };
        Self(weights.scan(0.0, add).collect())
    }

    /// Σ of all weights, which is above 0.
    fn total(&self) -> f64 {
        self.0.last().copied().unwrap_or_default()
    }

    /// The file that a number from 0 to below 1 selects; never one of weight 0.
    fn at(&self, unit: f64) -> usize {
        let (point, total) = (unit * self.total(), self.total());
        // The product may be rounded up to the total.
        let last = self.0.partition_point(|end| *end < total);
        self.0.partition_point(|end| *end <= point).min(last)
    }

    /// The beginning and the end of a file's share of 0 to 1.
    fn range(&self, file: usize) -> (f64, f64) {
        let begin = file.checked_sub(1).map_or(0.0, |before| self.0[before]);
        (begin / self.total(), self.0[file] / self.total())
    }
}

#[cfg(test)]
mod tests;
