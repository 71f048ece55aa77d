//! The mean of several runs at each epoch, and its standard error: SE² = Σ (xᵢ − x̄)² / (n (n − 1))
//! over n runs.
//!
//! Runs of different seeds are independent samples, so the error says how far the mean may be from
//! that of all seeds. Runs are compared by epoch and not by time, since machines differ in speed.

use std::collections::BTreeMap;

use serde::Serialize;

use super::columns::Curves;

/// The mean of runs. An epoch is in it if every run has it, so the mean is over the same runs
/// everywhere.
#[derive(Debug, Default, Serialize)]
pub(super) struct Mean {
    /// The epochs that every run has, rising.
    epoch: Vec<u64>,
    /// Mean seconds since the start, mean committed tokens and mean bytes sent: the possible x
    /// axes.
    t_s: Vec<Option<f64>>,
    tokens: Vec<Option<f64>>,
    sent_bytes: Vec<Option<f64>>,
    /// The mean training loss of the members, in nats per token.
    pub(super) train: Series,
    /// The held-out loss in nats per token, where every run has measured it.
    pub(super) held_out: Series,
    /// Seconds from Ready to the commit.
    sync_s: Series,
}

/// A number in each epoch. It is absent where a run lacks it, and its error with fewer than two
/// runs.
#[derive(Debug, Default, Serialize)]
pub(super) struct Series {
    /// The mean over the runs, one entry for each epoch.
    pub(super) mean: Vec<Option<f64>>,
    /// The standard error of each mean.
    pub(super) error: Vec<Option<f64>>,
}

impl Mean {
    /// The mean over these runs. A run has each epoch once.
    pub(super) fn of<'a>(runs: impl Iterator<Item = &'a Curves>) -> Self {
        let runs: Vec<&Curves> = runs.collect();
        let mut places: BTreeMap<u64, Vec<(&Curves, usize)>> = BTreeMap::new();
        for run in &runs {
            for (at, epoch) in run.epoch.iter().enumerate() {
                places.entry(*epoch).or_default().push((run, at));
            }
        }
        let mut mean = Self::default();
        for (epoch, places) in places.iter().filter(|(_, places)| places.len() == runs.len()) {
            let over = |value: fn(&Curves, usize) -> Option<f64>| -> Option<Vec<f64>> {
                places.iter().map(|(run, at)| value(run, *at)).collect()
            };
            let one = |value| over(value).and_then(|values| mean_of(&values));
            mean.epoch.push(*epoch);
            mean.t_s.push(one(|run, at| run.t_s[at]));
            mean.tokens.push(one(|run, at| Some(run.tokens[at] as f64)));
            mean.sent_bytes.push(one(|run, at| Some(run.sent_bytes[at] as f64)));
            mean.train.push(over(|run, at| run.train[at]));
            mean.held_out.push(over(|run, at| run.held_out[at]));
            mean.sync_s.push(over(|run, at| Some(run.sync_s[at])));
        }
        mean
    }
}

impl Series {
    /// Adds an epoch: the values of all runs, or nothing if one lacks the number.
    fn push(&mut self, values: Option<Vec<f64>>) {
        let values = values.unwrap_or_default();
        let mean = mean_of(&values);
        self.mean.push(mean);
        self.error.push(mean.and_then(|mean| error_of(&values, mean)));
    }
}

/// The mean x̄ of some values; `None` of nothing.
fn mean_of(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The standard error SE of the mean, by the formula above; `None` for one value.
fn error_of(values: &[f64], mean: f64) -> Option<f64> {
    let n = values.len() as f64;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (n > 1.0).then(|| (squares / (n * (n - 1.0))).sqrt())
}
