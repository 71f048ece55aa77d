//! How fast a run goes, over the last epochs: tokens a second, and the usual length of an epoch.
//!
//! It counts what the whole run committed, not what this node trained. A mirror shows the two
//! results; the commits behind them stay with the node.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::shorten;

/// How fast the run goes, over the last epochs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Pace {
    /// Committed tokens a second between the oldest and the newest commit that are kept. `None`
    /// before the second commit.
    pub(crate) tokens_per_s: Option<f64>,
    /// The median time from a commit to the next, in milliseconds. A mean would let one long stop
    /// spoil the forecast of the next commit.
    pub(crate) epoch_ms: Option<u64>,
    /// The time in Unix milliseconds and the run's tokens of each commit, the oldest first.
    #[serde(skip)]
    commits: VecDeque<(u64, u64)>,
}

impl Pace {
    /// Notes a commit at `t_ms`, after which the run has `tokens`. It must be called once per
    /// epoch.
    pub(super) fn note(&mut self, t_ms: u64, tokens: u64) {
        // Tokens fall if a lineage is undone, and time falls if a clock was set back. No pace
        // crosses that.
        if self.commits.back().is_some_and(|(t, n)| *t > t_ms || *n > tokens) {
            self.commits.clear();
        }
        self.commits.push_back((t_ms, tokens));
        shorten(&mut self.commits, PACE_EPOCHS + 1);
        let (Some(first), Some(last)) = (self.commits.front(), self.commits.back()) else { return };
        let seconds = (last.0 - first.0) as f64 / 1_000.0;
        self.tokens_per_s = (seconds > 0.0).then(|| (last.1 - first.1) as f64 / seconds);
        let pairs = self.commits.iter().zip(self.commits.iter().skip(1));
        let mut spans: Vec<u64> = pairs.map(|(a, b)| b.0 - a.0).collect();
        spans.sort_unstable();
        self.epoch_ms = spans.get(spans.len() / 2).copied();
    }
}

/// Epochs over which the pace is measured.
const PACE_EPOCHS: usize = 16;
