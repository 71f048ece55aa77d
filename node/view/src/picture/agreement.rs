//! Whether peers that committed the same epochs have the same states.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::shorten;
use crate::record::Text;

/// Whether equal epochs have equal states.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Agreement {
    /// States of other writers that were compared with this node's.
    pub(crate) compared: u64,
    /// States that differed, and those that the node itself called diverged.
    pub(crate) differing: u64,
    #[serde(skip)]
    states: VecDeque<(u64, Text)>,
    #[serde(skip)]
    pending: VecDeque<(u64, Text)>,
}

impl Agreement {
    pub(super) fn note_own(&mut self, epoch: u64, state: &Text) {
        self.states.push_back((epoch, state.clone()));
        shorten(&mut self.states, STATES_MAX);
        for (epoch, state) in std::mem::take(&mut self.pending) {
            self.note_other(epoch, &state);
        }
    }

    /// Compares a state of another writer, at once or when this node has reached its epoch.
    pub(super) fn note_other(&mut self, epoch: u64, state: &Text) {
        if let Some((_, mine)) = self.states.iter().rev().find(|(own, _)| *own == epoch) {
            self.compared += 1;
            self.differing += u64::from(mine != state);
        } else if self.states.back().is_none_or(|(own, _)| *own < epoch) {
            self.pending.push_back((epoch, state.clone()));
            shorten(&mut self.pending, PENDING_MAX);
        }
    }
}

const STATES_MAX: usize = 64;
const PENDING_MAX: usize = 1_024;
