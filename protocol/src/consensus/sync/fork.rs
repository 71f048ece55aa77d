//! Lineages that parted from ours: what of that is reported, and which of them a person has to
//! decide about (R26, G11, G12).
//!
//! What a peer answers about a chain is signed by nobody, so it only says where to look. `fork` and
//! `diverged` are reported once a link of that lineage verifies.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::base::id::{Digest, PeerId};
use crate::base::rule::Rule;
use crate::base::time::Time;
use crate::history::evidence;
use crate::history::log::Mark;
use crate::machine::event::Event;
use crate::machine::output::Output;
use crate::machine::step::Step;
use crate::message::{Head, Link};

use super::candidate::Candidate;
use super::interface::Config;
use super::lineage::{LINKS_KEPT, Lineage, REMEMBERED_MAX};
use super::marks::{DAY, Marks};
use super::requests::Claim;

/// What the user knows of parted lineages, and how much of ours one may undo.
#[derive(Clone, Debug)]
pub(super) struct Forks {
    /// [`Config::undo_max`], [`Config::undo_time`] and [`Config::follow`].
    pub(super) undo_max: u64,
    undo_time: Duration,
    follow: Option<Digest>,
    /// When our head was at which epoch.
    pub(super) marks: Marks,
    /// The heads of lineages that parted from ours, and the states that diverged.
    reported: Remembered,
    /// The first receipts of lineages that a person has to decide about, and the epoch of a head
    /// from which on each is verified again: voters may have signed it meanwhile. The one that was
    /// verified last comes first.
    held: VecDeque<(Digest, u64)>,
    /// Peers that withdrew before they were asked, by the epoch of our head when we reported it.
    withdrew: BTreeMap<PeerId, u64>,
    /// Peers that two links have proven to lie, at most [`REMEMBERED_MAX`].
    named: BTreeSet<PeerId>,
}

/// Digests, each with a number that rises as they are added.
type Remembered = BTreeMap<Digest, u64>;

/// Adds a digest to at most [`REMEMBERED_MAX`], and returns whether it is new. The oldest one makes
/// room: if the smallest did, two heads that stand still would push each other out.
fn remember(digests: &mut Remembered, digest: Digest) -> bool {
    let number = digests.values().max().map_or(0, |newest| newest.saturating_add(1));
    let is_new = !digests.contains_key(&digest);
    if is_new && digests.len() >= REMEMBERED_MAX {
        digests.retain(|_, other| number - *other < REMEMBERED_MAX as u64);
    }
    digests.entry(digest).or_insert(number);
    is_new
}

/// A lineage that is held for a person is verified again once it is a quarter longer, and at least
/// by so many epochs: all these times together cost five times its length at most. A peer that claims
/// more epochs than it serves is at fault. Guess.
const HELD_EPOCHS: u64 = 8;

impl Forks {
    /// The machine starts at `now` and at this epoch, with the marks of earlier starts.
    pub(super) fn new(now: Time, config: &Config, marks: Vec<Mark>, epoch: u64) -> Self {
        Self {
            marks: Marks::new(marks, epoch, (config.unix, now)),
            undo_max: config.undo_max,
            undo_time: config.undo_time,
            follow: config.follow,
            reported: BTreeMap::new(),
            held: VecDeque::new(),
            withdrew: BTreeMap::new(),
            named: BTreeSet::new(),
        }
    }

    /// Logs when this start found its head, before the first epoch that is taken after it.
    pub(super) fn log_start(&mut self, step: &mut Step<'_>) {
        step.put_all(self.marks.start().map(Output::Log));
    }

    /// Notes where our head is, if the last mark is old enough.
    pub(super) fn mark(&mut self, step: &mut Step<'_>, epoch: u64) {
        step.put_all(self.marks.mark(step.now, epoch).map(Output::Log));
    }

    /// Whether the user knows of the lineage with this head.
    pub(super) fn is_reported(&self, state: &Digest) -> bool {
        self.reported.contains_key(state)
    }

    /// Counts the lineage with this head as known to the user, without a report.
    pub(super) fn remember(&mut self, state: Digest) {
        remember(&mut self.reported, state);
    }

    /// Reports that a peer has another state than ours after the same receipt.
    pub(super) fn note_diverged(&mut self, step: &mut Step<'_>, who: PeerId, states: [Digest; 2]) {
        let [mine, theirs] = states;
        if remember(&mut self.reported, theirs) {
            step.put(Output::Event(Event::Diverged { who, mine, theirs }));
        }
    }

    /// R26: reports a lineage that parts from ours from this epoch on: our head and theirs, and how
    /// many of our epochs are undone for it.
    pub(super) fn report(&mut self, step: &mut Step<'_>, from: u64, heads: [Head; 2], undone: u64) {
        let [mine, theirs] = heads;
        let is_new = remember(&mut self.reported, theirs.state);
        if is_new || undone > 0 {
            let event = Event::Fork { first_epoch: from, mine, theirs, undone, held: false };
            step.put(Output::Event(event));
        }
        if undone > 0 {
            // Peers that still stand where we stood are no other fork.
            self.remember(mine.state);
        }
    }

    /// R26: the first link of a lineage that parts from ours, and our own link of that epoch, may
    /// contain two signatures that contradict each other. Each author is named once.
    pub(super) fn name_liars(&mut self, step: &mut Step<'_>, ours: &Lineage, link: &Link) {
        let Some(mine) = ours.link(link.receipt.series.epoch) else { return };
        for (fault, proof) in evidence::between(&ours.validator, [mine.as_ref(), link]) {
            if self.named.len() < REMEMBERED_MAX && self.named.insert(proof.author()) {
                step.put(Output::Proven(fault, proof));
            }
        }
    }

    /// The author of a head follows our lineage again, and only that head shows where it was. The
    /// author has signed it: one that our receipts name is believed, once in a while.
    pub(super) fn note_withdrawn(&mut self, step: &mut Step<'_>, ours: &Lineage, claim: Claim) {
        let Claim { peer, head } = claim;
        let parted = ours.state_after(head.epoch).is_some_and(|state| state != head.state);
        let is_late = |at: &u64| ours.head.epoch < *at + LINKS_KEPT as u64;
        let lately = self.withdrew.get(&peer).is_some_and(is_late);
        let named = ours.named().any(|named| named == peer);
        if parted && (named && !lately || !ours.keeps(Rule::G12)) {
            self.withdrew.retain(|_, at| is_late(at));
            self.withdrew.insert(peer, ours.head.epoch);
            self.report(step, head.epoch, [ours.head, head], 0);
        }
        self.remember(head.state);
    }

    /// Whether a person has decided for this head.
    pub(super) fn follows(&self, state: &Digest) -> bool {
        self.follow == Some(*state)
    }

    /// Whether a person has to decide about the lineage that begins with this receipt, as far as it
    /// leads to this epoch.
    pub(super) fn is_held(&self, r: &Digest, epoch: u64) -> bool {
        self.held.iter().any(|(first, again)| first == r && epoch < *again)
    }

    /// Leaves nothing for a person to decide, until it is looked at again.
    pub(super) fn hold_none(&mut self) {
        self.held.clear();
    }

    /// G11: whether a verified greater lineage undoes so much of ours, or was signed by so few
    /// voters, that a person has to decide. A short split of the network ends soon, and the voters
    /// on its other side have signed what came next. Neither is true if one voter mints an old
    /// lineage.
    pub(super) fn holds(&mut self, step: &mut Step<'_>, ours: &Lineage, other: &Candidate) -> bool {
        let (theirs, base) = (other.claim.head, other.base.epoch);
        let undone = ours.head.epoch.saturating_sub(base);
        // An attestation is the organiser's decision, which counts like that of a person.
        let chosen = self.follows(&theirs.state)
            || ours.proven_by(other).attested > ours.attested()
            || other.entries.iter().any(|entry| self.follows(&entry.state));
        let recent = |time| self.marks.is_recent(step.now, base, time);
        let small = undone <= self.undo_max;
        // Nobody has voted on genesis, so friends that founded apart can meet.
        let signed = if base == 0 { small } else { other.is_signed() && (small || recent(DAY)) };
        if undone == 0 || recent(self.undo_time) || signed || chosen || !ours.keeps(Rule::G11) {
            return false;
        }
        let Some(first) = other.entries.front() else { return true };
        let longer = (theirs.epoch.saturating_sub(base) / 4).max(HELD_EPOCHS);
        if self.hold(first.r, theirs.epoch.saturating_add(longer)) {
            let (mine, first_epoch) = (ours.head, base.saturating_add(1));
            let event = Event::Fork { first_epoch, mine, theirs, undone: 0, held: true };
            step.put(Output::Event(event));
        }
        true
    }

    /// Remembers the first receipt of such a lineage, and returns whether it is new. The lineage
    /// that was verified longest ago makes room: if the smallest digest did, two could push each
    /// other out.
    fn hold(&mut self, r: Digest, again: u64) -> bool {
        let known = self.held.iter().position(|(first, _)| *first == r);
        known.and_then(|at| self.held.remove(at));
        self.held.push_front((r, again));
        self.held.truncate(REMEMBERED_MAX);
        known.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::consensus::sync::lineage::tests::setup;

    #[test]
    fn g11_a_full_memory_of_held_lineages_drops_the_one_verified_longest_ago() {
        let (.., config) = setup();
        let mut forks = Forks::new(Time::ZERO, &config, Vec::new(), 0);
        let digest = |n: u64| {
            let mut digest = [0xff; 32];
            digest[24..].copy_from_slice(&n.to_be_bytes());
            Digest(digest)
        };
        assert!((0..REMEMBERED_MAX as u64).all(|n| forks.hold(digest(n), 10)));
        assert!(!forks.hold(digest(0), 10), "it is known, and now the newest one");
        let two = [Digest([1; 32]), Digest([2; 32])];
        assert!(two.iter().all(|r| forks.hold(*r, 10)));
        assert!(!two.iter().any(|r| forks.hold(*r, 10)));
        assert!(forks.is_held(&digest(0), 9) && !forks.is_held(&digest(0), 10));
        assert!(!forks.is_held(&digest(1), 9) && forks.held.len() == REMEMBERED_MAX);
    }

    #[test]
    fn r26_a_full_memory_of_forks_keeps_the_newest() {
        let mut known = Remembered::new();
        for n in 0..REMEMBERED_MAX as u64 {
            let mut digest = [0xff; 32];
            digest[24..].copy_from_slice(&n.to_be_bytes());
            assert!(remember(&mut known, Digest(digest)));
        }
        // Two heads that stand still: each would push out the other one, and be reported again.
        let two = [Digest([1; 32]), Digest([2; 32])];
        assert!(two.iter().all(|digest| remember(&mut known, *digest)));
        assert!(!two.iter().any(|digest| remember(&mut known, *digest)));
        assert_eq!(known.len(), REMEMBERED_MAX);
    }
}
