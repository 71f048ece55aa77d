//! The way to a verified head: by its updates, or by its checkpoint (R21, R25, R27, R28).
//!
//! A short extension of our own head is *replayed*: each update is applied like that of a commit,
//! and the next one only if its receipt's parent is the state that came out. So what is reached in
//! this way is computed, not believed. A longer way, or another lineage, begins with a checkpoint
//! of the newest head. By the time it has arrived the run has gone further, and the rest is
//! replayed. An update is an eighth of a checkpoint, so a peer that can follow the run at all
//! catches up.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::base::blocks::Blocks;
use crate::base::id::{Digest, PeerId};
use crate::base::rule::Rule;
use crate::base::time::Time;
use crate::history::log::Record;
use crate::machine::event::Event;
use crate::machine::output::{Apply, Output};
use crate::machine::step::{Lead, Step};
use crate::machine::table::PeerRecord;
use crate::message::{Ask, Attestation, Head, Link, Rank, Receipt};

use super::catch_up::CatchUp;
use super::{Entry, REMEMBERED_MAX, State, UPDATES_KEPT};

/// A verified greater head, and how to get there.
#[derive(Clone, Debug)]
pub(super) struct Way {
    /// The peer that claimed it, and when.
    from: PeerId,
    since: Time,
    target: Head,
    /// The rank of the target, as its links prove.
    rank: Rank,
    /// The last epoch that both lineages have.
    base: u64,
    /// The epochs after it that are not taken yet.
    entries: VecDeque<Entry>,
    /// The links of the last of these epochs: of all, except for a very long way.
    links: VecDeque<Link>,
    /// Receipts that admit a peer or carry a notice.
    pub(super) admitting: Vec<Receipt>,
    /// How many of the other links were fetched again, and are in the log.
    copied: usize,
    /// The voters that those links left behind (R14).
    away: BTreeMap<u64, BTreeSet<PeerId>>,
    /// The blocks in which they have spent what is unspent here (R27, R34).
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
        let (since, base, copied, away) = (step.now, base.epoch, 0, BTreeMap::new());
        let admitting = Vec::new();
        Self { from, since, target, rank, base, entries, links, admitting, copied, away, spent }
    }

    /// How many epochs have no link in memory.
    fn without_link(&self) -> usize {
        self.entries.len().saturating_sub(self.links.len())
    }

    /// The head after this many epochs of the way.
    fn head_after(&self, count: usize) -> Option<Head> {
        let Entry { state, tokens, .. } = *self.entries.get(count.checked_sub(1)?)?;
        Some(Head { epoch: self.base.saturating_add(count as u64), tokens, state })
    }
}

/// This many donors may all skip a state when they write checkpoints; guess.
const FEW_DONORS: usize = 3;

impl State {
    /// Begins the way: by updates if it extends our head and is short, else by a checkpoint.
    pub(super) fn begin(&mut self, step: &mut Step<'_>, way: Way) {
        let most = self.catching_up.unwrap_or(self.config.replay_max);
        step.lead(Lead::Behind(true));
        step.put(Output::Event(Event::Behind {
            from_epoch: self.head.epoch,
            to_epoch: way.target.epoch,
            donors: self.serving(step, &way),
        }));
        let short = way.links.len() <= most && way.without_link() == 0;
        if way.base == self.head.epoch && short {
            // The next way must be shorter; if not, the run is faster than its updates arrive here.
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
        self.apply_next(step, way);
    }

    /// R28: the next update is applied only to the state that its receipt names.
    fn apply_next(&mut self, step: &mut Step<'_>, way: Way) {
        let next = way.links.front().map(|link| &link.receipt);
        let theirs = next.map_or(way.target.state, |receipt| receipt.series.parent);
        if theirs != self.head.state {
            // The receipts up to here are ours too, so one of the machines has computed wrongly
            // (R26). Nobody has signed the state after the last of them.
            if next.is_some() || !self.validator.keeps(Rule::G12) {
                self.report_diverged(step, way.from, self.head.state, theirs);
            }
            self.remember(way.target.state);
            self.give_up(&way, Time(u64::MAX));
            return self.enter_head(step);
        }
        let Some(receipt) = next else { return self.enter_head(step) };
        let spent = self.spent(receipt);
        let apply = Apply::of(&self.validator.run, &self.head, receipt, spent);
        step.put(Output::Apply(Arc::new(apply)));
        self.catch_up = Some(CatchUp::Replay(way));
    }

    /// Whether the outer step under way is part of a replay.
    pub(crate) fn is_replaying(&self) -> bool {
        matches!(self.catch_up, Some(CatchUp::Replay(_)))
    }

    /// Whether a replay continues with this update.
    pub(crate) fn needs(&self, update: &Digest) -> bool {
        let Some(CatchUp::Replay(way)) = &self.catch_up else { return false };
        way.links.front().is_some_and(|link| link.receipt.update == *update)
    }

    /// A replayed update gave this state.
    pub(super) fn on_applied(&mut self, step: &mut Step<'_>, state: Digest) {
        let Some(CatchUp::Replay(mut way)) =
            self.catch_up.take_if(|c| matches!(c, CatchUp::Replay(_)))
        else {
            return;
        };
        let Some(link) = way.links.pop_front() else { return };
        way.entries.pop_front();
        self.note_spent(&self.spent(&link.receipt));
        self.extend(step, link, state);
        let (head, to_epoch) = (self.head, way.target.epoch);
        step.put(Output::Event(Event::Replayed { head, to_epoch }));
        self.apply_next(step, way);
    }

    /// R25: no peer serves the next update; its checkpoint may still be served.
    pub(super) fn on_update_missing(&mut self, step: &mut Step<'_>, update: &Digest) {
        if !self.needs(update) {
            return;
        }
        let Some(CatchUp::Replay(mut way)) = self.catch_up.take() else { return };
        if way.base < self.head.epoch {
            way.base = self.head.epoch;
            // What the steps so far have spent is given up already; what is learnt from here on is
            // not (S4).
            let none = Blocks::default();
            way.spent =
                way.links.iter().fold(none, |all, link| all.and(&self.spent(&link.receipt)));
            self.enter_head(step);
            step.lead(Lead::Behind(true));
        }
        self.load(step, way);
    }

    fn load(&mut self, step: &mut Step<'_>, mut way: Way) {
        self.shorten(step, &mut way);
        if way.without_link() > 0 {
            step.put(Output::Log(Record::Rewound { epoch: way.base, to: way.target }));
        }
        self.copy(step, way);
    }

    /// Asks for the next links that are no longer in memory, and then for the checkpoint. Links
    /// that are in the log by then count once the checkpoint is loaded.
    fn copy(&mut self, step: &mut Step<'_>, way: Way) {
        if way.copied < way.without_link() {
            let from =
                self.serving(step, &way).into_iter().find(|peer| !self.failed_lately(step, peer));
            let Some(from) = from else {
                self.give_up(&way, step.now + step.table.grace);
                return step.lead(Lead::Behind(self.awaits_attested()));
            };
            let from_epoch = way.base.saturating_add(way.copied as u64).saturating_add(1);
            step.put(Output::Ask(from, Ask::Lineage { from_epoch }));
            self.catch_up = Some(CatchUp::Copy(from, way));
            return;
        }
        let Some(Entry { r, .. }) = way.entries.back().copied() else { return };
        let (head, donors, spent) = (way.target, self.serving(step, &way), way.spent.clone());
        step.put(Output::Fetch { head, r, donors, spent });
        self.catch_up = Some(CatchUp::Load(way));
    }

    /// Takes links of a verified lineage that were fetched again; their digests identify them.
    pub(super) fn on_copied(
        &mut self,
        step: &mut Step<'_>,
        from: PeerId,
        mut way: Way,
        links: &[Link],
    ) {
        let before = way.copied;
        for link in links.iter().take(way.without_link().saturating_sub(before)) {
            let r = crate::message::wire::receipt_digest(&self.validator.run, &link.receipt);
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
            self.note_failure(step, from);
        }
        self.copy(step, way);
    }

    /// The peers that may serve the checkpoint being fetched; `None` while none is. Their number
    /// can grow while it arrives.
    pub(crate) fn donors(&self, step: &Step<'_>) -> Option<Vec<PeerId>> {
        match &self.catch_up {
            // A new attestation may have made our own lineage the greater one.
            Some(CatchUp::Load(way)) if !self.is_greater(&self.rank_of(way)) => Some(Vec::new()),
            Some(CatchUp::Load(way)) => Some(self.serving(step, way)),
            _ => None,
        }
    }

    /// The rank of the target by the notices that are known now.
    fn rank_of(&self, way: &Way) -> Rank {
        self.rank_within(way, &way.target, way.entries.len())
    }

    /// The rank of a head that lies on the way after this many epochs.
    fn rank_within(&self, way: &Way, target: &Head, count: usize) -> Rank {
        let lies = |_, attestation: &Attestation| {
            let after = attestation.epoch.saturating_sub(way.base);
            if after == 0 {
                return self.is_on_ours(attestation);
            }
            let after = usize::try_from(after).ok().filter(|after| *after <= count);
            let entry = after.and_then(|after| way.entries.get(after - 1));
            entry.is_some_and(|entry| attestation.names(&entry.r, &entry.state))
        };
        target.rank(self.highest(lies))
    }

    /// R28: ends the way earlier: at the state of whose checkpoint a part is stored, which is tried
    /// once. Else at the newest one that a donor has on disk, since a state that is only in memory
    /// may be gone before it is fetched. The shorter way must still lead to a greater head than
    /// ours (S3).
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
        way.links.truncate(count.saturating_sub(way.without_link()));
        way.entries.truncate(count);
        (way.target, way.rank) = (target, rank);
    }

    /// How many epochs of the way lead to the newest checkpoint that a donor has on disk; `None`
    /// among many donors. Of these some write the target itself before it is asked for, while one
    /// alone may skip it.
    fn count_served(&self, step: &Step<'_>, way: &Way) -> Option<usize> {
        let donors = self.serving(step, way);
        if donors.len() > FEW_DONORS {
            return None;
        }
        let serves = |peer| step.table.peers.get(peer).map(|seen| seen.beat.serves);
        let newest = donors.iter().filter_map(serves).max()?.min(way.target.epoch);
        usize::try_from(newest.checked_sub(way.base)?).ok()
    }

    pub(super) fn on_loaded(&mut self, step: &mut Step<'_>, head: Head) {
        let loaded = |c: &mut CatchUp| matches!(c, CatchUp::Load(way) if way.target == head);
        let Some(CatchUp::Load(way)) = self.catch_up.take_if(loaded) else { return };
        self.note_spent(&way.spent);
        self.rewind(step, &way);
        let without_link = way.without_link();
        let Way { entries, links, away, admitting, .. } = way;
        if without_link > 0 {
            // The links in memory must be the last of our lineage.
            self.links.clear();
        }
        self.forkable.extend(away);
        let copied = self.head.epoch.saturating_add(without_link as u64);
        if let Some(ledgers) = &mut self.ledgers {
            let earlier = admitting.iter().filter(|receipt| {
                let epoch = receipt.series.epoch;
                epoch > self.head.epoch && epoch <= copied
            });
            earlier.for_each(|receipt| ledgers.push(receipt));
        }
        entries.iter().take(without_link).for_each(|entry| self.take_entry(*entry));
        for (link, entry) in links.into_iter().zip(entries.into_iter().skip(without_link)) {
            self.extend(step, link, entry.state);
        }
        self.enter_head(step);
    }

    /// Moves our head one epoch on.
    fn extend(&mut self, step: &mut Step<'_>, link: Link, state: Digest) {
        let tokens = self.head.tokens.saturating_add(link.receipt.tokens());
        let epoch = self.head.epoch.saturating_add(1);
        let head = Head { epoch, tokens, state };
        step.put_all(self.marks.start().map(Output::Log));
        step.put(Output::Log(Record::Decided { link: Box::new(link.clone()) }));
        step.put(Output::Log(Record::Committed { head }));
        self.push(Arc::new(link), head);
    }

    /// Lets the epoch machine go on from the head that is reached.
    fn enter_head(&mut self, step: &mut Step<'_>) {
        self.mark(step);
        let (head, voters, median) = self.tip();
        let ledger = self.ledgers.as_ref().map(|ledgers| Arc::clone(ledgers.newest()));
        step.lead(Lead::Enter { head, voters, median, ledger });
        self.wait_for_attested(step);
    }

    /// Gives up what lies beyond the last common epoch, and reports it.
    fn rewind(&mut self, step: &mut Step<'_>, way: &Way) {
        let (base, theirs) = (way.base, way.target);
        let undone = self.head.epoch.saturating_sub(base);
        if undone > 0 {
            if way.copied == 0 {
                step.put(Output::Log(Record::Rewound { epoch: base, to: theirs }));
            }
            self.report_fork(step, base.saturating_add(1), theirs, undone);
        }
        let stay = base.saturating_add(1).saturating_sub(self.first_link());
        self.links.truncate(usize::try_from(stay).unwrap_or(usize::MAX));
        self.entries.truncate(usize::try_from(base).unwrap_or(usize::MAX));
        self.forkable.retain(|epoch, _| *epoch <= base);
        self.marks.rewind(base);
        self.ledgers.iter_mut().for_each(|ledgers| ledgers.truncate(base));
        self.head = self.head_at(base).unwrap_or(self.head);
    }

    /// R25: no peer serves the checkpoint, so we go on with our own lineage until one may.
    pub(super) fn on_load_failed(&mut self, step: &mut Step<'_>, head: Head) {
        let failed = |c: &mut CatchUp| matches!(c, CatchUp::Load(way) if way.target == head);
        let Some(CatchUp::Load(way)) = self.catch_up.take_if(failed) else { return };
        let until = step.now + step.table.grace;
        if let Some(last) = way.entries.back()
            && self.ignored.unserved.len() < REMEMBERED_MAX
        {
            self.ignored.unserved.insert((head.state, last.r), until);
        }
        self.give_up(&way, until);
        step.lead(Lead::Behind(self.awaits_attested()));
    }

    /// The peers that may serve what leads to a head. First comes the peer that claimed it, until a
    /// later heartbeat shows another head; then live peers that are there, or have gone on from
    /// there.
    fn serving(&self, step: &Step<'_>, way: &Way) -> Vec<PeerId> {
        let beyond = |seen: &PeerRecord| {
            seen.beat.head.epoch > way.target.epoch && self.claimed_by(seen) > way.rank
        };
        // Its answer may arrive before its earlier heartbeats.
        let is_news = |seen: &PeerRecord| seen.heard > way.since + step.table.heartbeat;
        let serves = |peer: &PeerId, seen: &PeerRecord| {
            (*peer == way.from && !is_news(seen)) || seen.beat.head == way.target || beyond(seen)
        };
        let serving = step.table.live(step.now).filter(|(peer, seen)| serves(peer, seen));
        let key =
            |(p, seen): (&PeerId, &PeerRecord)| (*p != way.from, seen.beat.head != way.target, *p);
        let mut donors: Vec<(bool, bool, PeerId)> = serving.map(key).collect();
        donors.sort_unstable();
        donors.into_iter().map(|(.., peer)| peer).collect()
    }

    fn give_up(&mut self, way: &Way, until: Time) {
        self.catching_up = None;
        self.ignore(way.from, way.target.state, until);
    }
}
