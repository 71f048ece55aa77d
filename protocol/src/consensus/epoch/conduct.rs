//! Which peers a ring neighbour reported lost, and which do not accept (R35, R37).
//!
//! One report proves nothing: the link may be broken, or the reporter itself. So a peer with one
//! report is asked like any other, and its silence is the second opinion; a peer with two reports
//! is not waited for. A peer that is heard after the reports, or answers, is alive.
//!
//! A live peer that leaves a roster waiting for its Accept, or refuses it, has no ring position in
//! later rosters until it accepts or answers, and the second time in the whole epoch (G4). Else one
//! peer that only says that it lives could hold up an epoch without end. The same holds for a peer
//! that alone reports a third loss in an epoch. What such a peer has learnt is carried to the next
//! epoch.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::id::{Digest, PeerId};
use crate::base::time::Time;
use crate::machine::step::Step;

/// Reports and missing accepts of the open epoch.
#[derive(Clone, Debug, Default)]
pub(super) struct Conduct {
    lost: BTreeMap<PeerId, Loss>,
    /// How often each peer did not accept a roster that named it, and whether it has answered
    /// since.
    declined: BTreeMap<PeerId, Declined>,
    /// The rings that reports ended, with their reports.
    rings: BTreeMap<Digest, FailedRing>,
    /// The peers that have reported each peer, in the whole epoch.
    accused: BTreeMap<PeerId, BTreeSet<PeerId>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Declined {
    count: u32,
    refused: bool,
    answered: bool,
}

/// A ring that did not end: the peers that reported it, and the peers that these lost.
#[derive(Clone, Debug, Default)]
struct FailedRing {
    by: BTreeSet<PeerId>,
    who: BTreeSet<PeerId>,
}

#[derive(Clone, Debug)]
struct Loss {
    at: Time,
    by: BTreeSet<PeerId>,
}

/// Rosters of an epoch that a peer may leave waiting before it loses its position for the rest of
/// the epoch. When two rosters cross, each peer leaves one of them.
const DECLINED_MAX: u32 = 2;

/// Losses that a peer may report alone in an epoch. After the first, the ring keeps it apart from
/// the peer that it reported.
const REPORTS_MAX: usize = 3;

/// Lost rings that are remembered: as many as an epoch can have before its waits are long.
const RINGS_MAX: usize = 64;

/// Peers remembered as lost: as many as the rings of a few attempts can have.
const LOSSES_MAX: usize = 1_024;

impl Conduct {
    /// A neighbour of `who` in that ring reports it lost. Reports from before it was last heard no
    /// longer count.
    pub(super) fn report(&mut self, step: &Step<'_>, ring: Digest, who: PeerId, by: PeerId) {
        if self.rings.len() < RINGS_MAX || self.rings.contains_key(&ring) {
            let failed = self.rings.entry(ring).or_default();
            failed.by.insert(by);
            failed.who.insert(who);
        }
        if self.accused.len() < LOSSES_MAX || self.accused.contains_key(&who) {
            self.accused.entry(who).or_default().insert(by);
        }
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

    /// Whether it alone has reported losses more often than broken links explain. If a peer is
    /// really silent, other members miss their frames too and report it.
    fn reports_falsely(&self, who: &PeerId) -> bool {
        self.lone_reports(who) >= REPORTS_MAX
    }

    fn lone_reports(&self, who: &PeerId) -> usize {
        self.rings.values().filter(|ring| ring.by.len() == 1 && ring.by.contains(who)).count()
    }

    /// The rings that were lost although all reported peers are alive. A ring that one peer alone
    /// reported does not count, once that peer has reported too often.
    pub(super) fn failed_rings(&self, step: &Step<'_>) -> usize {
        let lives = |who: &PeerId| !self.is_lost(step, who);
        let lying = |by: &BTreeSet<_>| by.len() == 1 && by.iter().all(|p| self.reports_falsely(p));
        let failed = |ring: &&FailedRing| ring.who.iter().all(lives) && !lying(&ring.by);
        self.rings.values().filter(failed).count()
    }

    /// Whether two neighbours have lost it in this epoch, whatever was heard of it since.
    pub(super) fn is_accused(&self, who: &PeerId) -> bool {
        self.accused.get(who).is_some_and(|by| by.len() > 1)
    }

    /// All peers that two neighbours have lost in this epoch.
    pub(super) fn accused(&self) -> impl Iterator<Item = &PeerId> {
        self.accused.keys().filter(|who| self.is_accused(who))
    }

    /// Whether it has cost this epoch an attempt too often.
    pub(super) fn is_offender(&self, who: &PeerId) -> bool {
        self.has_declined(who) || self.reports_falsely(who)
    }

    /// All peers that have cost this epoch an attempt too often.
    pub(super) fn offenders(&self) -> BTreeSet<PeerId> {
        let all = self.declined.keys().chain(self.rings.values().flat_map(|ring| &ring.by));
        all.filter(|who| self.is_offender(who)).copied().collect()
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
