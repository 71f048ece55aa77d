//! Who was reported lost by a neighbour in a ring, and who does not accept (R35, R37).
//!
//! One report proves nothing: the link may be broken, or the reporter itself. So who has one report is
//! asked like everybody else, and its silence is the second opinion; who has two is not waited for.
//! Whoever is heard after the reports, or answers, lives.
//!
//! Who lives and leaves a roster waiting for its Accept has no place in those that follow: else one peer
//! that only says that it lives could hold up an epoch for ever. What it learnt is carried.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::PeerId;
use crate::step::Step;
use crate::time::Time;

/// Reports of the open epoch.
#[derive(Clone, Debug, Default)]
pub(super) struct Losses {
    lost: BTreeMap<PeerId, Loss>,
    late: BTreeSet<PeerId>,
}

#[derive(Clone, Debug)]
struct Loss {
    at: Time,
    by: BTreeSet<PeerId>,
}

/// Peers remembered as lost: as many as rings of a few attempts can have.
const LOSSES_MAX: usize = 1_024;

impl Losses {
    /// A neighbour of `who` reports it; reports from before it was heard last count no more.
    pub(super) fn report(&mut self, step: &Step<'_>, who: PeerId, by: PeerId) {
        if !self.contains(step, &who) {
            self.lost.remove(&who);
        }
        self.hear_of(step, who);
        if let Some(loss) = self.lost.get_mut(&who) {
            loss.at = step.now;
            loss.by.insert(by);
        }
    }

    /// Somebody has heard that `who` was reported lost.
    pub(super) fn hear_of(&mut self, step: &Step<'_>, who: PeerId) {
        if self.lost.len() < LOSSES_MAX {
            self.lost.entry(who).or_insert_with(|| Loss { at: step.now, by: BTreeSet::new() });
        }
    }

    /// This peer did not accept a roster in time.
    pub(super) fn be_late(&mut self, who: PeerId) {
        if self.late.len() < LOSSES_MAX {
            self.late.insert(who);
        }
    }

    /// This peer has accepted a roster after all.
    pub(super) fn accepts(&mut self, who: &PeerId) {
        self.late.remove(who);
    }

    /// Whether it did not accept a roster of this epoch in time.
    pub(super) fn is_late(&self, who: &PeerId) -> bool {
        self.late.contains(who)
    }

    /// This peer has answered: what was reported of it is forgotten.
    pub(super) fn forget(&mut self, who: &PeerId) {
        self.lost.remove(who);
    }

    /// Everybody who was reported lost and not heard since.
    pub(super) fn all<'a>(&'a self, step: &'a Step<'_>) -> impl Iterator<Item = &'a PeerId> {
        self.lost.keys().filter(|who| self.contains(step, who))
    }

    /// Whether it was reported lost and not heard since.
    pub(super) fn contains(&self, step: &Step<'_>, who: &PeerId) -> bool {
        let Some(Loss { at, .. }) = self.lost.get(who) else { return false };
        step.roll.peers.get(who).is_none_or(|seen| seen.heard <= *at)
    }

    /// Whether two neighbours say so.
    pub(super) fn confirms(&self, step: &Step<'_>, who: &PeerId) -> bool {
        self.contains(step, who) && self.lost.get(who).is_some_and(|loss| loss.by.len() > 1)
    }
}
