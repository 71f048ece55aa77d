//! The states of an epoch, and which lineage each of them is of.
//!
//! Mostly every process reports one state. After a cut there may be several, and each goes on until one meets a
//! greater one. A researcher needs all of them, and needs to know which one the run kept.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    name::{Hex, PeerName},
    tell::events::Times,
};

use super::Epoch;

/// What was reported of one state of an epoch.
#[derive(Clone, Debug, Default)]
pub(in crate::sim) struct Branch {
    /// The peers that have the state, with those that fetched it.
    pub(in crate::sim) by: BTreeSet<usize>,
    /// What the peers that committed it reported of themselves.
    pub(in crate::sim) shares: BTreeMap<usize, Share>,
    /// Unix milliseconds of the first commit; 0 if nobody here committed it.
    pub(in crate::sim) first_ms: u64,
    /// Members of the roster that formed its receipt.
    pub(in crate::sim) members: Vec<PeerName>,
    /// The tokens of each member that its receipt counts.
    pub(in crate::sim) weights: Vec<u64>,
    /// The highest attempt that decided it.
    pub(in crate::sim) attempt: u64,
    /// The state before it, as a peer that committed both reported it.
    pub(super) parent: Option<Hex>,
}

/// What one peer reported of an epoch that it committed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::sim) struct Share {
    /// Its own training loss, in nats per token.
    pub(in crate::sim) loss: Option<f64>,
    /// From its Ready to its commit.
    pub(in crate::sim) sync_ms: u64,
    /// Bulk bytes that it sent for the epoch.
    pub(in crate::sim) sent_bytes: u64,
    /// Bulk bytes that it received for it.
    pub(in crate::sim) received_bytes: u64,
    /// Where its time of the epoch went.
    pub(in crate::sim) times: Times,
}

impl Branch {
    /// Peer `index` has committed the state at `t_ms`, by a receipt with these members and weights.
    pub(super) fn commit(
        &mut self,
        index: usize,
        share: Share,
        attempt: u64,
        t_ms: u64,
        members: &[PeerName],
        weights: &[u64],
    ) {
        self.by.insert(index);
        self.shares.insert(index, share);
        self.attempt = self.attempt.max(attempt);
        if self.members.is_empty() {
            self.first_ms = t_ms;
            (self.members, self.weights) = (members.to_vec(), weights.to_vec());
        }
        self.first_ms = self.first_ms.min(t_ms);
    }

    /// Notes the state that a peer had before, if it is known and none is noted.
    pub(super) fn follow(&mut self, parent: Option<(u64, Hex)>) {
        let before = self.parent.take();
        self.parent = before.or_else(|| parent.map(|(_, state)| state));
    }

    /// Tokens that its receipt counts; 0 if nobody here has committed it.
    pub(in crate::sim) fn tokens(&self) -> u64 {
        self.weights.iter().fold(0, |sum, weight| sum.saturating_add(*weight))
    }

    /// Mean of the training losses that its members reported, each with the same weight.
    pub(in crate::sim) fn loss(&self) -> Option<f64> {
        let losses: Vec<f64> = self.shares.values().filter_map(|share| share.loss).collect();
        (!losses.is_empty()).then(|| losses.iter().sum::<f64>() / losses.len() as f64)
    }

    /// The longest time from a member's Ready to its commit.
    pub(in crate::sim) fn sync_ms(&self) -> u64 {
        self.shares.values().map(|share| share.sync_ms).max().unwrap_or(0)
    }
}

/// Every state that was reported, by epoch and lineage.
///
/// Lineage 0 ends in the last state that most peers have: it is the one that the run kept. The others are counted
/// from the last epoch back, and each begins where it left another one.
pub(in crate::sim) fn lineages(
    epochs: &BTreeMap<u64, Epoch>,
) -> BTreeMap<(u64, usize), (&Hex, &Branch)> {
    let mut numbers: BTreeMap<(u64, &Hex), usize> = BTreeMap::new();
    let mut count = 0;
    for (epoch, entry) in epochs.iter().rev() {
        let mut states: Vec<(&Hex, &Branch)> = entry.branches.iter().collect();
        states.sort_by_key(|(_, branch)| std::cmp::Reverse(branch.by.len()));
        for (state, _) in states {
            let mut next = Some((*epoch, state));
            let begun = !numbers.contains_key(&(*epoch, state));
            while let Some((epoch, state)) = next.filter(|at| !numbers.contains_key(at)) {
                numbers.insert((epoch, state), count);
                next = parent(epochs, epoch, state, count);
            }
            count += usize::from(begun);
        }
    }
    let place = |((epoch, state), lineage): ((u64, &Hex), usize)| {
        let (state, branch) = epochs.get(&epoch)?.branches.get_key_value(state)?;
        Some(((epoch, lineage), (state, branch)))
    };
    numbers.into_iter().filter_map(place).collect()
}

/// The state before this one. If no peer committed both, the run's own lineage takes the one that most peers have.
fn parent<'a>(
    epochs: &'a BTreeMap<u64, Epoch>,
    epoch: u64,
    state: &Hex,
    lineage: usize,
) -> Option<(u64, &'a Hex)> {
    let before = epoch.checked_sub(1)?;
    let earlier = epochs.get(&before)?;
    let known = epochs.get(&epoch)?.branches.get(state)?.parent.as_ref();
    let known = known.and_then(|known| earlier.branches.get_key_value(known));
    let usual = || (lineage == 0).then(|| earlier.state()).flatten().map(|(state, _)| state);
    known.map(|(state, _)| state).or_else(usual).map(|state| (before, state))
}
