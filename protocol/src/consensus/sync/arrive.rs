//! The way to a verified head: by its updates, or by its checkpoint (R21, R25, R27, R28).
//!
//! A short extension of our own head is *replayed*: each update is applied like that of a commit,
//! and the next one only if its receipt's parent is the state that came out. So what is reached this
//! way is computed, not believed. A longer way, or another lineage, begins with a checkpoint of the
//! newest head; by the time it has arrived the run has gone further, and the rest is replayed. An
//! update is an eighth of a checkpoint, so whoever can follow the run at all arrives.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::pursuit::Pursuit;
use super::{
    Arc, Ask, Attestation, Blocks, Digest, Entry, Event, Head, Link, PeerId, REMEMBERED_MAX, Rank,
    Receipt, Record, Seen, State, Time, UPDATES_KEPT,
};
use crate::base::rule::Rule;
use crate::machine::output::{Apply, Output};
use crate::machine::step::{Lead, Step};

/// A verified greater head, and how to get there.
#[derive(Clone, Debug)]
pub(super) struct Way {
    /// Who told of it, and when.
    from: PeerId,
    told: Time,
    target: Head,
    /// Where the target stands, as its links prove.
    rank: Rank,
    /// The last common epoch.
    base: u64,
    /// The epochs after it that are not taken yet.
    entries: VecDeque<Entry>,
    /// What proves the last of them: all, but of a very long way.
    links: VecDeque<Link>,
    /// The receipts among them that admit somebody or carry a notice.
    pub(super) admitting: Vec<Receipt>,
    /// How many of the others were served again, and are in the log.
    copied: usize,
    /// Whom those left behind (R14).
    away: BTreeMap<u64, BTreeSet<PeerId>>,
    /// In which blocks they have spent what is unspent here (R27, R34).
    spent: Blocks,
}

impl Way {
    pub(super) fn new(
        step: &Step<'_>,
        (from, target, rank): (PeerId, Head, Rank),
        base: Head,
        (entries, links): (VecDeque<Entry>, VecDeque<Link>),
        spent: Blocks,
    ) -> Self {
        let (told, base, copied, away) = (step.now, base.epoch, 0, BTreeMap::new());
        let admitting = Vec::new();
        Self { from, told, target, rank, base, entries, links, admitting, copied, away, spent }
    }

    /// How many epochs have no link in memory.
    fn bare(&self) -> usize {
        self.entries.len().saturating_sub(self.links.len())
    }

    /// The head after so many epochs of it.
    fn head_after(&self, count: usize) -> Option<Head> {
        let Entry { state, tokens, .. } = *self.entries.get(count.checked_sub(1)?)?;
        Some(Head { epoch: self.base.saturating_add(count as u64), tokens, state })
    }
}

/// So many donors may all skip a state when they write checkpoints; guess.
const FEW_DONORS: usize = 3;

impl State {
    /// Sets out: by updates if the way extends our head and is short, else by a checkpoint.
    pub(super) fn set_out(&mut self, step: &mut Step<'_>, way: Way) {
        let most = self.catching_up.unwrap_or(self.config.replay_max);
        step.lead(Lead::Behind(true));
        step.put(Output::Event(Event::Behind {
            from_epoch: self.head.epoch,
            to_epoch: way.target.epoch,
            donors: self.serving(step, &way),
        }));
        let short = way.links.len() <= most && way.bare() == 0;
        if way.base == self.head.epoch && short {
            // The next way must be shorter, or the run is faster than its updates come here.
            let fewer = way.links.len().saturating_sub(1);
            self.catching_up = Some(fewer.max(self.config.replay_max));
            self.replay(step, way);
        } else {
            // After another checkpoint the run would be as far away again.
            self.catching_up = Some(UPDATES_KEPT);
            self.load(step, way);
        }
    }

    fn replay(&mut self, step: &mut Step<'_>, way: Way) {
        let update = |link: &Link| (link.receipt.series.epoch, link.receipt.update);
        step.put(Output::Replay {
            updates: way.links.iter().map(update).collect(),
            donors: self.serving(step, &way),
        });
        self.take_step(step, way);
    }

    /// R28: the next update is applied only to the state that its receipt names.
    fn take_step(&mut self, step: &mut Step<'_>, way: Way) {
        let next = way.links.front().map(|link| &link.receipt);
        let theirs = next.map_or(way.target.state, |receipt| receipt.series.parent);
        if theirs != self.head.state {
            // The receipts up to here are ours too: one of the machines has computed wrongly (R26). What
            // comes after the last of them, nobody has signed.
            if next.is_some() || !self.law.keeps(Rule::G12) {
                self.tell_diverged(step, way.from, self.head.state, theirs);
            }
            self.remember(way.target.state);
            self.give_up(&way, Time(u64::MAX));
            return self.arrive(step);
        }
        let Some(receipt) = next else { return self.arrive(step) };
        let spent = self.spent(receipt);
        let apply = Apply::of(&self.law.run, &self.head, receipt, spent);
        step.put(Output::Apply(Arc::new(apply)));
        self.pursuit = Some(Pursuit::Replay(way));
    }

    /// Whether the outer step under way is one of ours.
    #[must_use]
    pub fn is_replaying(&self) -> bool {
        matches!(self.pursuit, Some(Pursuit::Replay(_)))
    }

    /// Whether a replay goes on with this update.
    #[must_use]
    pub fn needs(&self, update: &Digest) -> bool {
        let Some(Pursuit::Replay(way)) = &self.pursuit else { return false };
        way.links.front().is_some_and(|link| link.receipt.update == *update)
    }

    /// A replayed update gave this state.
    pub(super) fn on_applied(&mut self, step: &mut Step<'_>, state: Digest) {
        let Some(Pursuit::Replay(mut way)) =
            self.pursuit.take_if(|pursuit| matches!(pursuit, Pursuit::Replay(_)))
        else {
            return;
        };
        let Some(link) = way.links.pop_front() else { return };
        way.entries.pop_front();
        self.note_spent(&self.spent(&link.receipt));
        self.extend(step, link, state);
        let (head, to_epoch) = (self.head, way.target.epoch);
        step.put(Output::Event(Event::Replayed { head, to_epoch }));
        self.take_step(step, way);
    }

    /// R25: nobody serves the next update; its checkpoint may still be had.
    pub(super) fn on_update_missing(&mut self, step: &mut Step<'_>, update: &Digest) {
        if !self.needs(update) {
            return;
        }
        let Some(Pursuit::Replay(mut way)) = self.pursuit.take() else { return };
        if way.base < self.head.epoch {
            way.base = self.head.epoch;
            // What the steps so far have spent is given up already; what is learnt from here on is not (S4).
            let none = Blocks::default();
            way.spent =
                way.links.iter().fold(none, |all, link| all.and(&self.spent(&link.receipt)));
            self.arrive(step);
            step.lead(Lead::Behind(true));
        }
        self.load(step, way);
    }

    fn load(&mut self, step: &mut Step<'_>, mut way: Way) {
        self.shorten(step, &mut way);
        if way.bare() > 0 {
            step.put(Output::Log(Record::Rewound { epoch: way.base, to: way.target }));
        }
        self.copy(step, way);
    }

    /// Asks for the next links that are in memory no more; then for the checkpoint. What is in the log by then
    /// counts once the checkpoint is here.
    fn copy(&mut self, step: &mut Step<'_>, way: Way) {
        if way.copied < way.bare() {
            let from =
                self.serving(step, &way).into_iter().find(|peer| !self.is_silent(step, peer));
            let Some(from) = from else {
                self.give_up(&way, step.now + step.roll.grace);
                return step.lead(Lead::Behind(self.awaits_attested()));
            };
            let from_epoch = way.base.saturating_add(way.copied as u64).saturating_add(1);
            step.put(Output::Ask(from, Ask::Lineage { from_epoch }));
            self.pursuit = Some(Pursuit::Copy(from, way));
            return;
        }
        let Some(Entry { r, .. }) = way.entries.back().copied() else { return };
        let (head, donors, spent) = (way.target, self.serving(step, &way), way.spent.clone());
        step.put(Output::Fetch { head, r, donors, spent });
        self.pursuit = Some(Pursuit::Load(way));
    }

    /// Links of a lineage that is judged already have come again: their digests tell them.
    pub(super) fn on_copied(
        &mut self,
        step: &mut Step<'_>,
        from: PeerId,
        mut way: Way,
        links: &[Link],
    ) {
        let before = way.copied;
        for link in links.iter().take(way.bare().saturating_sub(before)) {
            let r = crate::message::wire::receipt_digest(&self.law.run, &link.receipt);
            let Some(entry) = way.entries.get(way.copied).filter(|entry| entry.r == r) else {
                break;
            };
            let epoch = way.base.saturating_add(way.copied as u64).saturating_add(1);
            let head = Head { epoch, tokens: entry.tokens, state: entry.state };
            step.put(Output::Log(Record::Decided { link: Box::new(link.clone()) }));
            step.put(Output::Log(Record::Committed { head }));
            let away = self.away(link);
            if !away.is_empty() && way.away.len() < REMEMBERED_MAX {
                way.away.insert(epoch, away);
            }
            way.copied += 1;
        }
        if way.copied == before {
            self.note_in_vain(step, from);
        }
        self.copy(step, way);
    }

    /// Who may serve the checkpoint that is on its way; `None` while none is. More of them are heard as it
    /// comes in.
    #[must_use]
    pub fn donors(&self, step: &Step<'_>) -> Option<Vec<PeerId>> {
        match &self.pursuit {
            // An attestation that has come since may have made our own lineage the greater one.
            Some(Pursuit::Load(way)) if !self.is_greater(&self.rank_of(way)) => Some(Vec::new()),
            Some(Pursuit::Load(way)) => Some(self.serving(step, way)),
            _ => None,
        }
    }

    /// Where the target stands by the notices that are known by now.
    fn rank_of(&self, way: &Way) -> Rank {
        self.rank_within(way, &way.target, way.entries.len())
    }

    /// Where a head stands that lies on the way after so many epochs.
    fn rank_within(&self, way: &Way, target: &Head, count: usize) -> Rank {
        let Way { base, entries, .. } = way;
        let lies = |_, attestation: &Attestation| match attestation
            .epoch
            .checked_sub(*base)
            .map(usize::try_from)
        {
            None | Some(Ok(0)) => self.is_on_ours(attestation),
            Some(after) => after
                .ok()
                .filter(|after| *after <= count)
                .and_then(|after| entries.get(after - 1))
                .is_some_and(|entry| attestation.names(&entry.r, &entry.state)),
        };
        target.rank(self.highest(lies))
    }

    /// R28: ends the way earlier: at the state whose checkpoint has come in part, which is tried once; else at
    /// the newest one that a donor has on disk, since a state that is only in memory may be gone before it is
    /// fetched. What is left of the way must still lead to a greater head than ours (S3).
    fn shorten(&mut self, step: &Step<'_>, way: &mut Way) {
        let count = match self.partial.take() {
            Some(state) => {
                way.entries.iter().position(|entry| entry.state == state).map(|at| at + 1)
            }
            None => self.count_served(step, way),
        };
        let Some(count) = count else { return };
        let Some(target) = way.head_after(count) else { return };
        let rank = self.rank_within(way, &target, count);
        if !self.is_greater(&rank) {
            return;
        }
        way.links.truncate(count.saturating_sub(way.bare()));
        way.entries.truncate(count);
        (way.target, way.rank) = (target, rank);
    }

    /// How many epochs of the way lead to the newest checkpoint that a donor has on disk. Of many donors some
    /// have written the target itself by the time it is asked for, while one alone may skip it.
    fn count_served(&self, step: &Step<'_>, way: &Way) -> Option<usize> {
        let donors = self.serving(step, way);
        if donors.len() > FEW_DONORS {
            return None;
        }
        let serves = |peer| step.roll.peers.get(peer).map(|seen| seen.beat.serves);
        let newest = donors.iter().filter_map(serves).max()?.min(way.target.epoch);
        usize::try_from(newest.checked_sub(way.base)?).ok()
    }

    pub(super) fn on_loaded(&mut self, step: &mut Step<'_>, head: Head) {
        let loaded =
            |pursuit: &mut Pursuit| matches!(pursuit, Pursuit::Load(way) if way.target == head);
        let Some(Pursuit::Load(way)) = self.pursuit.take_if(loaded) else { return };
        self.note_spent(&way.spent);
        self.rewind(step, &way);
        let bare = way.bare();
        let Way { entries, links, away, admitting, .. } = way;
        if bare > 0 {
            // Those in memory are the last of our lineage.
            self.links.clear();
        }
        self.forkable.extend(away);
        let copied = self.head.epoch.saturating_add(bare as u64);
        if let Some(ledgers) = &mut self.ledgers {
            let bare = admitting.iter().filter(|receipt| {
                let epoch = receipt.series.epoch;
                epoch > self.head.epoch && epoch <= copied
            });
            bare.for_each(|receipt| ledgers.push(receipt));
        }
        entries.iter().take(bare).for_each(|entry| self.take_entry(*entry));
        for (link, entry) in links.into_iter().zip(entries.into_iter().skip(bare)) {
            self.extend(step, link, entry.state);
        }
        self.arrive(step);
    }

    /// Goes one epoch on.
    fn extend(&mut self, step: &mut Step<'_>, link: Link, state: Digest) {
        let tokens = self.head.tokens.saturating_add(link.receipt.tokens());
        let epoch = self.head.epoch.saturating_add(1);
        let head = Head { epoch, tokens, state };
        step.put(Output::Log(Record::Decided { link: Box::new(link.clone()) }));
        step.put(Output::Log(Record::Committed { head }));
        self.push(Arc::new(link), head);
    }

    /// Goes on from the head that is reached.
    fn arrive(&mut self, step: &mut Step<'_>) {
        self.mark(step);
        let (head, voters, median) = self.tip();
        let ledger = self.ledgers.as_ref().map(|ledgers| Arc::clone(ledgers.newest()));
        step.lead(Lead::Enter { head, voters, median, ledger });
        self.wait_for_attested(step);
    }

    /// Gives up what lies beyond the last common epoch, and says so.
    fn rewind(&mut self, step: &mut Step<'_>, way: &Way) {
        let (base, theirs) = (way.base, way.target);
        let undone = self.head.epoch.saturating_sub(base);
        if undone > 0 {
            if way.copied == 0 {
                step.put(Output::Log(Record::Rewound { epoch: base, to: theirs }));
            }
            self.tell_fork(step, base.saturating_add(1), theirs, undone);
        }
        let stay = base.saturating_add(1).saturating_sub(self.first_link());
        self.links.truncate(usize::try_from(stay).unwrap_or(usize::MAX));
        self.entries.truncate(usize::try_from(base).unwrap_or(usize::MAX));
        self.forkable.retain(|epoch, _| *epoch <= base);
        self.marks.rewind(base);
        self.ledgers.iter_mut().for_each(|ledgers| ledgers.truncate(base));
        self.head = self.head_at(base).unwrap_or(self.head);
    }

    /// R25: nobody serves the checkpoint, so we go on with our own lineage until somebody may.
    pub(super) fn on_load_failed(&mut self, step: &mut Step<'_>, head: Head) {
        let failed =
            |pursuit: &mut Pursuit| matches!(pursuit, Pursuit::Load(way) if way.target == head);
        let Some(Pursuit::Load(way)) = self.pursuit.take_if(failed) else { return };
        let until = step.now + step.roll.grace;
        if let Some(last) =
            way.entries.back().filter(|_| self.aside.unserved.len() < REMEMBERED_MAX)
        {
            self.aside.unserved.insert((head.state, last.r), until);
        }
        self.give_up(&way, until);
        step.lead(Lead::Behind(self.awaits_attested()));
    }

    /// Who may serve what leads to a head: first who told of it, until a later heartbeat of it shows another
    /// one; then the living who are there, or have gone on from there.
    fn serving(&self, step: &Step<'_>, way: &Way) -> Vec<PeerId> {
        let beyond = |seen: &Seen| {
            seen.beat.head.epoch > way.target.epoch && self.claimed_by(seen) > way.rank
        };
        // Its answer may overtake the heartbeats before it.
        let is_news = |seen: &Seen| seen.heard > way.told + step.roll.heartbeat;
        let serves = |peer: &PeerId, seen: &Seen| {
            (*peer == way.from && !is_news(seen)) || seen.beat.head == way.target || beyond(seen)
        };
        let serving = step.roll.live(step.now).filter(|(peer, seen)| serves(peer, seen));
        let mut donors: Vec<(bool, bool, PeerId)> = serving
            .map(|(peer, seen)| (*peer != way.from, seen.beat.head != way.target, *peer))
            .collect();
        donors.sort_unstable();
        donors.into_iter().map(|(.., peer)| peer).collect()
    }

    fn give_up(&mut self, way: &Way, until: Time) {
        self.catching_up = None;
        self.put_aside(way.from, way.target.state, until);
    }
}
