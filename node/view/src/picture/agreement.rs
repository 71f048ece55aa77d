//! Whether peers that committed the same epochs have the same states.
//!
//! Equal receipts give equal states, bit for bit. A file of a simulation has the commits of all
//! peers, so a reader can check that without trusting any node. States after different updates are
//! not compared, since two lineages have different states. Writers run at different speeds, so a
//! state of an epoch that this node has not reached waits in `pending`.
//!
//! A node alone sees it too: the members of a ring name the state from which they have begun, and a node
//! commits an epoch only after the state that its receipt names.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::shorten;
use crate::record::{Commit, Text};

/// How many states were compared, and how many differed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Agreement {
    /// States of other writers that were compared with this node's.
    pub(crate) compared: u64,
    /// States that differed, and those that the node itself called diverged.
    pub(crate) differing: u64,
    /// The newest epochs of this node, at most `EPOCHS_MAX`, and whether another peer has the same state after
    /// each; `None` while nothing says so.
    #[serde(default)]
    pub(crate) epochs: VecDeque<(u64, Option<bool>)>,
    /// This node's newest states with their epochs, at most `STATES_MAX`. A peer that is further
    /// behind is not compared.
    #[serde(skip)]
    states: VecDeque<(u64, Outcome)>,
    /// States of epochs that this node has not committed yet, at most `PENDING_MAX`.
    #[serde(skip)]
    pending: VecDeque<(u64, Outcome)>,
}

/// The digest of an update, and that of the state after it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Outcome {
    /// The digest of the update, which is another one on another lineage.
    update: Text,
    /// The digest of the state that it led to.
    state: Text,
}

impl Agreement {
    /// Notes this node's own state after an epoch, and compares what has waited for it. `together` is whether
    /// another peer had work in the epoch, and so has begun from the same state.
    pub(super) fn note_own(&mut self, epoch: u64, commit: &Commit, together: bool) {
        // A lineage that is taken back is not shown beside the one that counts.
        self.epochs.retain(|(known, _)| *known < epoch);
        if together {
            self.judge(epoch.saturating_sub(1), true);
        }
        self.epochs.push_back((epoch, None));
        shorten(&mut self.epochs, EPOCHS_MAX);
        self.states.push_back((epoch, Outcome::of(commit)));
        shorten(&mut self.states, STATES_MAX);
        for (epoch, outcome) in std::mem::take(&mut self.pending) {
            self.compare(epoch, outcome);
        }
    }

    /// Compares a state of another writer, at once or when this node has reached its epoch. A state
    /// of an epoch that is not kept any more is passed over.
    pub(super) fn note_other(&mut self, epoch: u64, commit: &Commit) {
        self.compare(epoch, Outcome::of(commit));
    }

    /// Another peer has another state than this one of the node, by the node's own word.
    pub(super) fn note_diverged(&mut self, mine: Option<&Text>) {
        self.differing += 1;
        let known = self.states.iter().rev().find(|(_, outcome)| Some(&outcome.state) == mine);
        if let Some(epoch) = known.map(|(epoch, _)| *epoch) {
            self.judge(epoch, false);
        }
    }

    /// Notes whether another peer has the same state after an epoch. A difference stays.
    fn judge(&mut self, epoch: u64, agrees: bool) {
        for (_, seen) in self.epochs.iter_mut().filter(|(known, _)| *known == epoch) {
            *seen = Some(agrees && *seen != Some(false));
        }
    }

    fn compare(&mut self, epoch: u64, outcome: Outcome) {
        if let Some((_, mine)) = self.states.iter().rev().find(|(own, _)| *own == epoch) {
            if mine.update == outcome.update {
                let agrees = mine.state == outcome.state;
                self.compared += 1;
                self.differing += u64::from(!agrees);
                self.judge(epoch, agrees);
            }
        } else if self.states.back().is_none_or(|(own, _)| *own < epoch) {
            self.pending.push_back((epoch, outcome));
            shorten(&mut self.pending, PENDING_MAX);
        }
    }
}

impl Outcome {
    fn of(commit: &Commit) -> Self {
        Self { update: commit.update.clone(), state: commit.state.clone() }
    }
}

/// Epochs of the strip that the page draws.
const EPOCHS_MAX: usize = 50;
/// Own states that are kept. A state of another writer that is older than all of them is not
/// compared.
const STATES_MAX: usize = 64;
/// States of other writers that may wait for this node. Beyond it the oldest is dropped,
/// uncompared.
const PENDING_MAX: usize = 1_024;
