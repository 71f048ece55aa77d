//! The voters that a Regroup left out and that may still hold another lineage (R14).

use std::collections::{BTreeMap, BTreeSet};

use crate::base::id::PeerId;
use crate::machine::event::Event;
use crate::machine::output::Output;
use crate::machine::step::Step;
use crate::machine::table::PeerRecord;
use crate::message::{Absence, Head, Link};

use super::lineage::{Lineage, REMEMBERED_MAX};

/// These voters, by the epoch of the Regroup. At most [`REMEMBERED_MAX`] epochs. A later one that
/// finds no room is not remembered.
#[derive(Clone, Debug, Default)]
pub(super) struct Forkable(BTreeMap<u64, BTreeSet<PeerId>>);

impl Forkable {
    /// The epoch since which another lineage may exist; `None` if none may.
    pub(super) fn since(&self) -> Option<u64> {
        self.0.keys().next().copied()
    }

    /// Adds the voters that a link of our lineage leaves out and that may hold another one.
    pub(super) fn note(&mut self, ours: &Lineage, link: &Link) {
        // A founding leaves nobody behind.
        let regroups = link.openings.iter().skip(usize::from(ours.founds(link)));
        let absent = regroups.flat_map(|opening| &opening.regroup.absent);
        let may_live = absent
            .filter(|(_, why)| matches!(why, Absence::Silent | Absence::Elsewhere | Absence::Mute));
        let away: BTreeSet<PeerId> = may_live.map(|(voter, _)| voter.peer).collect();
        if !away.is_empty() && self.0.len() < REMEMBERED_MAX {
            self.0.insert(link.receipt.series.epoch, away);
        }
    }

    /// A voter that was left out and is seen on our lineage holds no other one.
    pub(super) fn note_returned(&mut self, step: &mut Step<'_>, ours: &Lineage) {
        let Some(first_epoch) = self.since() else { return };
        for (since, away) in &mut self.0 {
            let is_ours = |h: Head| h.epoch >= *since && ours.head_at(h.epoch) == Some(h);
            let is_back = |seen: &PeerRecord| seen.has_left() || is_ours(seen.beat.head);
            away.retain(|peer| !step.table.peers.get(peer).is_some_and(is_back));
        }
        self.0.retain(|_, away| !away.is_empty());
        if self.0.is_empty() {
            step.put(Output::Event(Event::ForkExcluded { first_epoch }));
        }
    }

    /// Adds those of the epochs that another lineage brings along.
    pub(super) fn extend(&mut self, other: Self) {
        let room = REMEMBERED_MAX.saturating_sub(self.0.len());
        self.0.extend(other.0.into_iter().take(room));
    }

    /// Drops those of the epochs after `base`, which are given up.
    pub(super) fn rewind(&mut self, base: u64) {
        self.0.retain(|epoch, _| *epoch <= base);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r14_the_epochs_that_another_lineage_brings_are_bounded() {
        let from = |first: u64| {
            let epochs = first..first + REMEMBERED_MAX as u64;
            Forkable(epochs.map(|epoch| (epoch, BTreeSet::new())).collect())
        };
        let mut forkable = from(1);
        forkable.extend(from(10_000));
        assert_eq!((forkable.0.len(), forkable.since()), (REMEMBERED_MAX, Some(1)));
    }
}
