//! Who was reported lost by a neighbour in a ring, and who does not accept (R35, R37).
//!
//! One report proves nothing: the link may be broken, or the reporter itself. So who has one report is
//! asked like everybody else, and its silence is the second opinion; who has two is not waited for.
//! Whoever is heard after the reports, or answers, lives.
//!
//! Who lives and leaves a roster waiting for its Accept, or refuses it, has no place in those that follow
//! (G4), until it accepts or answers after all, and the second time for the whole epoch: else one peer that
//! only says that it lives could hold up an epoch for ever. So has whoever alone reports a second loss in
//! an epoch. What it learnt is carried.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::id::{Digest, PeerId};
use crate::base::time::Time;
use crate::machine::step::Step;

/// Reports of the open epoch.
#[derive(Clone, Debug, Default)]
pub(super) struct Losses {
    lost: BTreeMap<PeerId, Loss>,
    /// How often each did not accept what named it, and whether it has said something since.
    late: BTreeMap<PeerId, Late>,
    /// The rings that reports ended: who reported whom.
    rings: BTreeMap<Digest, Spoilt>,
    /// Who has reported each, in the whole epoch.
    accused: BTreeMap<PeerId, BTreeSet<PeerId>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Late {
    count: u32,
    refused: bool,
    spoke: bool,
}

/// A ring that did not end, by those who said so and those whom they lost.
#[derive(Clone, Debug, Default)]
struct Spoilt {
    by: BTreeSet<PeerId>,
    who: BTreeSet<PeerId>,
}

#[derive(Clone, Debug)]
struct Loss {
    at: Time,
    by: BTreeSet<PeerId>,
}

/// Rosters of an epoch that a peer may leave waiting before it has no place in the rest of it: one of
/// two that cross is always left.
const LATE_MAX: u32 = 2;

/// Losses that a peer may report in an epoch: after the first, the ring keeps it apart from whom it has
/// reported.
const REPORTS_MAX: usize = 3;

/// Rings that are remembered as lost: as many as an epoch can have before its waits are long.
const RINGS_MAX: usize = 64;

/// Peers remembered as lost: as many as rings of a few attempts can have.
const LOSSES_MAX: usize = 1_024;

impl Losses {
    /// A neighbour of `who` in that ring reports it; reports from before it was heard last count no more.
    pub(super) fn report(&mut self, step: &Step<'_>, ring: Digest, who: PeerId, by: PeerId) {
        if self.rings.len() < RINGS_MAX || self.rings.contains_key(&ring) {
            let spoilt = self.rings.entry(ring).or_default();
            spoilt.by.insert(by);
            spoilt.who.insert(who);
        }
        if self.accused.len() < LOSSES_MAX || self.accused.contains_key(&who) {
            self.accused.entry(who).or_default().insert(by);
        }
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
        self.count(who, false);
    }

    /// This peer refused a roster.
    pub(super) fn refuse(&mut self, who: PeerId) {
        self.count(who, true);
    }

    fn count(&mut self, who: PeerId, refused: bool) {
        if self.late.len() < LOSSES_MAX || self.late.contains_key(&who) {
            let late = self.late.entry(who).or_default();
            *late = Late { count: late.count.saturating_add(1), refused, spoke: false };
        }
    }

    /// This peer has accepted a roster after all.
    pub(super) fn accepts(&mut self, who: &PeerId) {
        if let Some(late) = self.late.get_mut(who) {
            late.spoke = true;
        }
    }

    /// This peer has answered a question: who refused a roster may accept another one.
    pub(super) fn answers(&mut self, who: &PeerId) {
        self.forget(who);
        if let Some(late) = self.late.get_mut(who) {
            late.spoke |= late.refused;
        }
    }

    /// Whether it has no place: it did not accept a roster of this epoch, and has not spoken since, or did
    /// so more often than can be bad luck.
    pub(super) fn is_late(&self, who: &PeerId) -> bool {
        self.late.get(who).is_some_and(|late| !late.spoke || late.count >= LATE_MAX)
    }

    /// Whether it alone has reported losses more often than broken links explain. Where somebody is silent,
    /// others miss their frames too and say so.
    fn cries(&self, who: &PeerId) -> bool {
        self.cries_alone(who) >= REPORTS_MAX
    }

    fn cries_alone(&self, who: &PeerId) -> usize {
        self.rings.values().filter(|ring| ring.by.len() == 1 && ring.by.contains(who)).count()
    }

    /// The rings that were lost although all who were reported live, but for those that one alone has cried
    /// about too often.
    pub(super) fn spoilt(&self, step: &Step<'_>) -> usize {
        let lives = |who: &PeerId| !self.contains(step, who);
        let cried = |ring: &Spoilt| ring.by.len() == 1 && ring.by.iter().all(|by| self.cries(by));
        self.rings.values().filter(|ring| ring.who.iter().all(lives) && !cried(ring)).count()
    }

    /// Whether two neighbours have lost it in this epoch, whatever was heard of it since.
    pub(super) fn is_accused(&self, who: &PeerId) -> bool {
        self.accused.get(who).is_some_and(|by| by.len() > 1)
    }

    /// Everybody whom two neighbours have lost in this epoch.
    pub(super) fn accused(&self) -> impl Iterator<Item = &PeerId> {
        self.accused.keys().filter(|who| self.is_accused(who))
    }

    /// Whether it has cost this epoch an attempt too often.
    pub(super) fn is_trouble(&self, who: &PeerId) -> bool {
        self.is_late(who) || self.cries(who)
    }

    /// Everybody who has cost this epoch something.
    pub(super) fn troubled(&self) -> BTreeSet<PeerId> {
        let all = self.late.keys().chain(self.rings.values().flat_map(|ring| &ring.by));
        all.filter(|who| self.is_trouble(who)).copied().collect()
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
