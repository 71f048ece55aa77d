//! Which peers a ring neighbour reported lost (R35).
//!
//! One report proves nothing: the link may be broken, or the reporter itself. So a peer with one
//! report is asked like any other, and its silence is the second opinion; a peer with two reports
//! is not waited for. A peer that is heard after the reports, or answers, is alive.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::id::PeerId;
use crate::base::time::Time;
use crate::machine::step::Step;

/// The peers that were reported lost in the open epoch.
#[derive(Clone, Debug, Default)]
pub(super) struct Losses(BTreeMap<PeerId, Loss>);

#[derive(Clone, Debug)]
struct Loss {
    at: Time,
    by: BTreeSet<PeerId>,
}

/// Peers remembered as lost: as many as the rings of a few attempts can have.
const LOSSES_MAX: usize = 1_024;

impl Losses {
    /// A neighbour of `who` in a ring reports it lost. Reports from before it was last heard no
    /// longer count.
    pub(super) fn report(&mut self, step: &Step<'_>, who: PeerId, by: PeerId) {
        if !self.is_lost(step, &who) {
            self.0.remove(&who);
        }
        self.note(step, who);
        if let Some(loss) = self.0.get_mut(&who) {
            loss.at = step.now;
            loss.by.insert(by);
        }
    }

    /// Another peer says in a Query that `who` was reported lost.
    pub(super) fn note(&mut self, step: &Step<'_>, who: PeerId) {
        if self.0.len() < LOSSES_MAX {
            self.0.entry(who).or_insert_with(|| Loss { at: step.now, by: BTreeSet::new() });
        }
    }

    /// This peer has answered: reports of its loss are forgotten.
    pub(super) fn clear(&mut self, who: &PeerId) {
        self.0.remove(who);
    }

    /// All peers that were reported lost and not heard since.
    pub(super) fn all<'a>(&'a self, step: &'a Step<'_>) -> impl Iterator<Item = &'a PeerId> {
        self.0.keys().filter(|who| self.is_lost(step, who))
    }

    /// Whether it was reported lost and not heard since.
    pub(super) fn is_lost(&self, step: &Step<'_>, who: &PeerId) -> bool {
        let Some(Loss { at, .. }) = self.0.get(who) else { return false };
        step.table.peers.get(who).is_none_or(|seen| seen.heard <= *at)
    }

    /// Whether two neighbours report it, and it was not heard since.
    pub(super) fn is_confirmed(&self, step: &Step<'_>, who: &PeerId) -> bool {
        self.is_lost(step, who) && self.0.get(who).is_some_and(|loss| loss.by.len() > 1)
    }
}
