//! What chaos cost: how often peers were disturbed, what did not go smoothly, and the goodput.
//!
//! The measure is the last epoch before the chaos, with T tokens in t seconds. With e more epochs and C tokens that were
//! committed in s seconds since,
//!
//! goodput = C / (e · T): the committed share of the tokens that these epochs would have had;
//!
//! pace = (C / s) / (T / t): tokens per second, relative to those before the chaos.

use std::fmt;

use serde::Serialize;

use super::UNDISTURBED_EPOCHS;
use crate::sim::observations::Observations;

/// The costs, by their names in `report.json`.
#[derive(Clone, Debug, Default, Serialize)]
pub(in crate::sim) struct ChaosCost {
    /// How often a peer was killed.
    pub(in crate::sim) kills: u64,
    /// How often a peer was stopped.
    pub(in crate::sim) stops: u64,
    /// How often a peer was cut off.
    pub(in crate::sim) cuts: u64,
    /// How often a killed process was started again.
    pub(in crate::sim) restarts: u64,
    /// Peers that came back too late for the last epoch.
    pub(in crate::sim) late: Vec<usize>,
    /// Attempts that ended without a decision.
    aborted_attempts: usize,
    /// Regroups after the run was founded.
    regroups: usize,
    forks: u64,
    /// Epochs that were committed without a peer's work, summed over peers.
    left_out: u64,
    /// See the module; `None` if there were too few epochs to tell.
    goodput: Option<f64>,
    /// See the module; `None` like the goodput.
    pace: Option<f64>,
}

impl ChaosCost {
    /// Takes the counts from the observations.
    pub(in crate::sim) fn count(&mut self, observations: &Observations) {
        let tally = &observations.tally;
        self.aborted_attempts = tally.aborted.len();
        self.regroups = tally.regroups.len();
        self.forks = tally.forks;
        self.left_out = tally.left_out;
        (self.goodput, self.pace) = goodput(observations).unzip();
    }
}

/// Goodput and pace, if there was an epoch before the chaos and one within.
fn goodput(observations: &Observations) -> Option<(f64, f64)> {
    let epochs = &observations.epochs;
    let (before, calm) = (epochs.get(&(UNDISTURBED_EPOCHS - 1))?, epochs.get(&UNDISTURBED_EPOCHS)?);
    let (last, end) = epochs.last_key_value()?;
    let count = last.checked_sub(UNDISTURBED_EPOCHS).filter(|count| *count > 0)?;
    let committed = epochs.range(UNDISTURBED_EPOCHS + 1..);
    let committed: u64 = committed.map(|(_, epoch)| epoch.tokens).sum();
    let share = committed as f64 / (count as f64 * calm.tokens as f64);
    let calm_ms = calm.first_ms.saturating_sub(before.first_ms) as f64;
    let chaos_ms = end.first_ms.saturating_sub(calm.first_ms) as f64;
    let pace = share * count as f64 * calm_ms / chaos_ms;
    (share.is_finite() && pace.is_finite()).then_some((share, pace))
}

impl fmt::Display for ChaosCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kills, restarts, stops, cuts, regroups, forks, left_out, .. } = self;
        write!(
            f,
            "chaos: {kills} kills · {restarts} restarts · {stops} stops · {cuts} cuts · {} aborted \
             attempts · {regroups} regroups · {forks} forks · {left_out} left out",
            self.aborted_attempts
        )?;
        if !self.late.is_empty() {
            write!(f, " · too late for the end: peers {:?}", self.late)?;
        }
        let (Some(goodput), Some(pace)) = (self.goodput, self.pace) else { return Ok(()) };
        write!(
            f,
            "\ngoodput {:.1} % of the tokens of a calm run, at {:.1} % of its pace",
            100.0 * goodput,
            100.0 * pace
        )
    }
}
