//! What other peers have cost us: one account of each, in the open epoch and in past ones.
//!
//! Others note what a peer did or left out, and what it sent after all (`note_…`). In
//! return they learn whether it may have a ring position, whether it is waited for, and whether it
//! counts as absent. `docs/PROTOCOL.md` (Positions) has the table. Each peer keeps its own account,
//! and no rule of agreement rests on it: a peer without a position carries what it learnt, and
//! votes.

mod backoff;
mod declines;
mod disputes;
mod missed_replies;
mod offences;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::base::id::{Digest, PeerId};
use crate::base::rule::Rule;
use crate::base::time::Time;
use crate::history::lineage::Validator;
use crate::machine::step::Step;

pub(super) use declines::Decline;
pub(super) use disputes::{Halt, Pair};

use super::slot::Slot;
use backoff::Waits;
use declines::Declines;
use disputes::{Disputes, StoppedRing};
use missed_replies::MissedReplies;
use offences::Offences;

/// The account of all other peers, as we saw them ourselves.
#[derive(Clone, Debug, Default)]
pub(super) struct Conduct {
    /// Which peers a ring neighbour reported lost, when, and which neighbours did.
    losses: BTreeMap<PeerId, Loss>,
    declines: Declines,
    missed: MissedReplies,
    disputes: Disputes,
    /// Offences in past epochs (G13).
    offences: Offences,
    /// Peers for which the first attempt does not wait (G5).
    waits: Waits,
}

/// Reports that a peer is lost, and when the newest came.
#[derive(Clone, Debug)]
struct Loss {
    at: Time,
    by: BTreeSet<PeerId>,
}

/// Peers remembered as lost: as many as the rings of a few attempts can have.
const LOSSES_MAX: usize = 1_024;

impl Conduct {
    /// Notes that a peer did not accept a roster that names it.
    pub(super) fn note_decline(&mut self, who: PeerId, how: Decline) {
        self.declines.note(who, how);
    }

    /// Notes that a roster of `proposer` names a start or a weight that a peer has not declared to us.
    pub(super) fn note_misnamed(&mut self, who: PeerId, proposer: PeerId) {
        self.declines.note_misnamed(who, proposer);
    }

    /// Notes that a deadline has passed at which this voter had not replied (G9).
    pub(super) fn note_unanswered(&mut self, who: PeerId, now: Time) {
        self.missed.note(who, now);
    }

    /// Notes that a neighbour `by` in a ring reports a peer lost. Reports from before it was last
    /// heard no longer count.
    pub(super) fn note_loss(&mut self, step: &Step<'_>, who: PeerId, by: PeerId) {
        if self.reporters(step, &who) == 0 {
            self.losses.remove(&who);
        }
        if self.losses.len() < LOSSES_MAX || self.losses.contains_key(&who) {
            let loss = self.losses.entry(who).or_insert(Loss { at: step.now, by: BTreeSet::new() });
            loss.at = step.now;
            loss.by.insert(by);
        }
    }

    /// R40: notes what a member says of its ring, which stopped before its end.
    /// `is_ordered` says whether it matters who speaks first.
    pub(super) fn note_halt(
        &mut self,
        ring: (Digest, Vec<PeerId>),
        from: PeerId,
        halt: Halt,
        is_ordered: bool,
    ) {
        self.disputes.note(ring, from, halt, is_ordered);
    }

    /// A peer has answered our Query, so it is not lost.
    pub(super) fn note_answer(&mut self, who: &PeerId) {
        self.losses.remove(who);
        self.declines.note_answer(who);
    }

    /// A peer has accepted a roster: our own clock or its disk may have been slow.
    pub(super) fn note_accept(&mut self, who: &PeerId) {
        self.declines.note_accept(who);
        self.missed.clear(who);
    }

    /// A peer has sent the reply that a voter owes, or a message that costs it as much (G9).
    pub(super) fn note_reply(&mut self, who: &PeerId) {
        self.missed.clear(who);
    }

    /// A peer says that something else binds it, so it counts as mute only three T_ring later (G9).
    pub(super) fn note_bound(&mut self, who: &PeerId) {
        self.missed.note_bound(who);
    }

    /// Closes the account of an epoch. From the second on, waits in vain are `apart` epochs apart.
    pub(super) fn next_epoch(&mut self, validator: &Validator, slot: &Slot, apart: u32) {
        self.waits.count_epoch(slot, apart);
        let offenders = self.declines.all().chain(self.outcasts(validator, slot)).collect();
        self.offences.count_epoch(&offenders, &slot.members_seen());
        let Self { offences, waits, .. } = std::mem::take(self);
        *self = Self { offences, waits, ..Self::default() };
    }

    /// G4, G13, R40: whether nothing on its account denies a peer a ring position.
    pub(super) fn may_compute(&self, validator: &Validator, slot: &Slot, peer: &PeerId) -> bool {
        !((self.has_declined(peer) && validator.keeps(Rule::G4))
            || (validator.keeps(Rule::R40) && self.is_outcast(validator, slot, peer))
            || (self.offences.is_excluded(peer) && validator.keeps(Rule::G13)))
    }

    /// Whether it declined rosters, and has not come back since.
    pub(super) fn has_declined(&self, peer: &PeerId) -> bool {
        self.declines.has(peer)
    }

    /// G13: its offences in past epochs, weighed.
    pub(super) fn offences(&self, peer: &PeerId) -> u32 {
        self.offences.count(peer)
    }

    /// G5, G13: whether the first attempt does not wait for a peer: a voter or newcomers were
    /// last awaited in vain, or offences exclude the newcomer.
    pub(super) fn is_awaited_in_vain(&self, epoch: u64, peer: &PeerId, is_voter: bool) -> bool {
        self.waits.skip(epoch, peer, is_voter) || (!is_voter && self.offences.is_excluded(peer))
    }

    /// Whether a peer was Ready at the end of the last epoch.
    pub(super) fn was_ready(&self, peer: &PeerId) -> bool {
        self.waits.was_ready(peer)
    }

    /// R35: how many neighbours have reported a peer lost that was not heard since.
    pub(super) fn reporters(&self, step: &Step<'_>, peer: &PeerId) -> usize {
        let heard = |at| step.table.peers.get(peer).is_some_and(|seen| seen.heard > at);
        self.losses.get(peer).filter(|loss| !heard(loss.at)).map_or(0, |loss| loss.by.len())
    }

    /// G9: whether a voter has missed replies for so long that it counts as absent; a voter that is
    /// bound elsewhere has as long as a `ring` in addition.
    pub(super) fn is_unresponsive(
        &self,
        step: &Step<'_>,
        peer: &PeerId,
        ring: impl FnOnce() -> Duration,
    ) -> bool {
        self.missed.is_unresponsive(peer, step.now, step.table.grace, ring)
    }

    /// Whether a member has said that this ring of its stopped.
    pub(super) fn has_stopped(&self, ring: &Digest, peer: &PeerId) -> bool {
        self.disputes.has_stopped(ring, peer)
    }

    /// R35: the pairs that have no neighbouring positions any more in this epoch.
    pub(super) fn parted(&self, validator: &Validator, slot: &Slot) -> BTreeSet<Pair> {
        self.stopped(validator, slot).flat_map(StoppedRing::pairs).collect()
    }

    /// R40: whether a peer has no position any more in this epoch, because of its disputes.
    pub(super) fn is_outcast(&self, validator: &Validator, slot: &Slot, peer: &PeerId) -> bool {
        self.outcasts(validator, slot).contains(peer)
    }

    fn outcasts(&self, validator: &Validator, slot: &Slot) -> BTreeSet<PeerId> {
        disputes::outcasts(self.stopped(validator, slot), |peer| slot.series.names_voter(peer))
    }

    /// The stopped rings of which no update is known.
    fn stopped(&self, validator: &Validator, slot: &Slot) -> impl Iterator<Item = &StoppedRing> {
        let rings = self.disputes.rings();
        rings.filter(|(ring, _)| !slot.has_update(validator.quorum, ring)).map(|(_, ring)| ring)
    }
}
