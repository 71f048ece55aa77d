//! Which peers a ring neighbour reported lost, and which do not accept (R35, R37).
//!
//! One report proves nothing: the link may be broken, or the reporter itself. So a peer with one
//! report is asked like any other, and its silence is the second opinion; a peer with two reports
//! is not waited for. A peer that is heard after the reports, or answers, is alive.
//!
//! A live peer that leaves a roster waiting for its Accept, or refuses it, has no ring position in
//! later rosters until it accepts or answers, and the second time in the whole epoch (G4). Else one
//! peer that only says that it lives could hold up an epoch without end. What such a peer has learnt
//! is carried to the next epoch.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::id::PeerId;
use crate::base::time::Time;
use crate::machine::step::Step;

/// Reports and missing accepts of the open epoch.
#[derive(Clone, Debug, Default)]
pub(super) struct Conduct {
    lost: BTreeMap<PeerId, Loss>,
    /// How often each peer did not accept a roster that named it, and whether it has answered
    /// since.
    declined: BTreeMap<PeerId, Declined>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Declined {
    count: u32,
    refused: bool,
    answered: bool,
}

#[derive(Clone, Debug)]
struct Loss {
    at: Time,
    by: BTreeSet<PeerId>,
}

/// Rosters of an epoch that a peer may leave waiting before it loses its position for the rest of
/// the epoch. When two rosters cross, each peer leaves one of them.
const DECLINED_MAX: u32 = 2;

/// Peers remembered as lost: as many as the rings of a few attempts can have.
const LOSSES_MAX: usize = 1_024;

impl Conduct {
    /// A neighbour of `who` in a ring reports it lost. Reports from before it was last heard no
    /// longer count.
    pub(super) fn report(&mut self, step: &Step<'_>, who: PeerId, by: PeerId) {
        if !self.is_lost(step, &who) {
            self.lost.remove(&who);
        }
        self.note_loss(step, who);
        if let Some(loss) = self.lost.get_mut(&who) {
            loss.at = step.now;
            loss.by.insert(by);
        }
    }

    /// Another peer says in a Query that `who` was reported lost.
    pub(super) fn note_loss(&mut self, step: &Step<'_>, who: PeerId) {
        if self.lost.len() < LOSSES_MAX {
            self.lost.entry(who).or_insert_with(|| Loss { at: step.now, by: BTreeSet::new() });
        }
    }

    /// This peer did not accept a roster in time.
    pub(super) fn note_late(&mut self, who: PeerId) {
        self.count(who, false);
    }

    /// This peer refused a roster of ours.
    pub(super) fn note_refusal(&mut self, who: PeerId) {
        self.count(who, true);
    }

    /// This peer refused a roster of ours with good reason: that counts, but costs no position yet.
    pub(super) fn excuse(&mut self, who: PeerId) {
        self.note_refusal(who);
        self.note_accept(&who);
    }

    fn count(&mut self, who: PeerId, refused: bool) {
        if self.declined.len() < LOSSES_MAX || self.declined.contains_key(&who) {
            let declined = self.declined.entry(who).or_default();
            let count = declined.count.saturating_add(1);
            *declined = Declined { count, refused, answered: false };
        }
    }

    /// This peer has accepted a roster after all.
    pub(super) fn note_accept(&mut self, who: &PeerId) {
        if let Some(declined) = self.declined.get_mut(who) {
            declined.answered = true;
        }
    }

    /// This peer has answered a Query: after it refused a roster, it may accept another one.
    pub(super) fn note_answer(&mut self, who: &PeerId) {
        self.forget_loss(who);
        if let Some(declined) = self.declined.get_mut(who) {
            declined.answered |= declined.refused;
        }
    }

    /// Whether it has no position: it did not accept a roster of this epoch and has not answered
    /// since, or this happened more often than bad luck explains.
    pub(super) fn has_declined(&self, who: &PeerId) -> bool {
        self.declined.get(who).is_some_and(|d| !d.answered || d.count >= DECLINED_MAX)
    }

    /// All peers that have no position because they do not accept.
    pub(super) fn declined(&self) -> impl Iterator<Item = &PeerId> {
        self.declined.keys().filter(|who| self.has_declined(who))
    }

    /// This peer has answered: reports of its loss are forgotten.
    pub(super) fn forget_loss(&mut self, who: &PeerId) {
        self.lost.remove(who);
    }

    /// All peers that were reported lost and not heard since.
    pub(super) fn all_lost<'a>(&'a self, step: &'a Step<'_>) -> impl Iterator<Item = &'a PeerId> {
        self.lost.keys().filter(|who| self.is_lost(step, who))
    }

    /// Whether it was reported lost and not heard since.
    pub(super) fn is_lost(&self, step: &Step<'_>, who: &PeerId) -> bool {
        let Some(Loss { at, .. }) = self.lost.get(who) else { return false };
        step.table.peers.get(who).is_none_or(|seen| seen.heard <= *at)
    }

    /// Whether two neighbours report it, and it was not heard since.
    pub(super) fn is_confirmed_lost(&self, step: &Step<'_>, who: &PeerId) -> bool {
        self.is_lost(step, who) && self.lost.get(who).is_some_and(|loss| loss.by.len() > 1)
    }
}
