//! The way to a verified head: by its updates, or by its checkpoint (R21, R25, R27, R28).
//!
//! A short extension of our own head is *replayed*: each update is applied like that of a commit,
//! and the next one only if its receipt's parent is the state that came out. So what is reached this
//! way is computed, not believed. A longer way, or another lineage, begins with a checkpoint of the
//! newest head; by the time it has arrived the run has gone further, and the rest is replayed. An
//! update is an eighth of a checkpoint, so whoever can follow the run at all arrives.

use std::collections::VecDeque;

use super::pursuit::Pursuit;
use super::{Arc, Blocks, Digest, Event, Head, Link, PeerId, Record, State, Time};
use crate::output::{Apply, Output};
use crate::step::{Lead, Step};

/// A verified greater head, and how to get there.
#[derive(Clone, Debug)]
pub(super) struct Way {
    /// Who told of it.
    pub(super) from: PeerId,
    pub(super) target: Head,
    /// The last common epoch.
    pub(super) base: u64,
    /// The links after it that are not taken yet.
    pub(super) links: VecDeque<Link>,
}

impl State {
    /// Sets out: by updates if the way extends our head and is short, else by a checkpoint.
    pub(super) fn set_out(&mut self, step: &mut Step<'_>, way: Way) {
        self.catching_up = true;
        step.lead(Lead::Behind(true));
        step.put(Output::Event(Event::Behind {
            from_epoch: self.head.epoch,
            to_epoch: way.target.epoch,
            donors: donors(step, &way),
        }));
        if way.base == self.head.epoch && way.links.len() <= self.config.replay_max {
            self.replay(step, way);
        } else {
            self.load(step, way);
        }
    }

    fn replay(&mut self, step: &mut Step<'_>, way: Way) {
        let update = |link: &Link| (link.receipt.series.epoch, link.receipt.update);
        step.put(Output::Replay {
            updates: way.links.iter().map(update).collect(),
            donors: donors(step, &way),
        });
        self.take_step(step, way);
    }

    /// R28: the next update is applied only to the state that its receipt names.
    fn take_step(&mut self, step: &mut Step<'_>, way: Way) {
        let next = way.links.front().map(|link| &link.receipt);
        let theirs = next.map_or(way.target.state, |receipt| receipt.series.parent);
        if theirs != self.head.state {
            // The receipts up to here are ours too: one of the machines has computed wrongly (R26).
            let (who, mine) = (way.from, self.head.state);
            step.put(Output::Event(Event::Diverged { who, mine, theirs }));
            self.remember(way.target.state);
            self.give_up(way.target.state, Time(u64::MAX));
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
            self.arrive(step);
            step.lead(Lead::Behind(true));
        }
        self.load(step, way);
    }

    fn load(&mut self, step: &mut Step<'_>, mut way: Way) {
        self.shorten(&mut way);
        let Some(last) = way.links.back() else { return };
        let spent = self.spent_on(&way);
        let r = crate::wire::receipt_digest(&self.law.run, &last.receipt);
        let donors = donors(step, &way);
        step.put(Output::Fetch { head: way.target, r, donors, spent });
        self.pursuit = Some(Pursuit::Load(way));
    }

    /// Who may serve the checkpoint that is on its way; `None` while none is. More of them are heard as it
    /// comes in.
    #[must_use]
    pub fn donors(&self, step: &Step<'_>) -> Option<Vec<PeerId>> {
        match &self.pursuit {
            Some(Pursuit::Load(way)) => Some(donors(step, way)),
            _ => None,
        }
    }

    /// R27, R34: in which blocks the links of a way have spent what is unspent here. On an extension of
    /// our own head only the first one can have.
    fn spent_on(&self, way: &Way) -> Blocks {
        let each = way.links.iter().map(|link| self.spent(&link.receipt));
        each.fold(Blocks::default(), |all, spent| all.and(&spent))
    }

    /// Ends the way at the state whose checkpoint has come in part, if that lies on the way, which
    /// the receipts after it prove. It is tried once.
    fn shorten(&mut self, way: &mut Way) {
        let Some(state) = self.partial.take() else { return };
        let after = way.links.iter().position(|link| link.receipt.series.parent == state);
        let Some(count) = after.filter(|count| *count > 0) else { return };
        way.links.truncate(count);
        let base = self.head_at(way.base).map_or(0, |head| head.tokens);
        let tokens = way.links.iter().map(|link| link.receipt.tokens());
        let tokens = tokens.fold(base, u64::saturating_add);
        let epoch = way.base.saturating_add(count as u64);
        way.target = Head { epoch, tokens, state };
    }

    pub(super) fn on_loaded(&mut self, step: &mut Step<'_>, head: Head) {
        let loaded =
            |pursuit: &mut Pursuit| matches!(pursuit, Pursuit::Load(way) if way.target == head);
        let Some(Pursuit::Load(way)) = self.pursuit.take_if(loaded) else { return };
        self.note_spent(&self.spent_on(&way));
        self.rewind(step, way.base, head);
        let mut links = way.links.into_iter().peekable();
        while let Some(link) = links.next() {
            let next = links.peek().map(|next: &Link| next.receipt.series.parent);
            self.extend(step, link, next.unwrap_or(head.state));
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
        let (head, voters, median) = self.tip();
        step.lead(Lead::Enter { head, voters, median });
    }

    /// Gives up what lies beyond the last common epoch, and says so.
    fn rewind(&mut self, step: &mut Step<'_>, base: u64, theirs: Head) {
        let undone = self.head.epoch.saturating_sub(base);
        if undone > 0 {
            let (first_epoch, mine) = (base.saturating_add(1), self.head);
            step.put(Output::Log(Record::Rewound { epoch: base, to: theirs }));
            step.put(Output::Event(Event::Fork { first_epoch, mine, theirs, undone }));
            // Others who still stand where we stood are no other fork.
            self.remember(mine.state);
        }
        let stay = base.saturating_add(1).saturating_sub(self.first_link());
        self.links.truncate(usize::try_from(stay).unwrap_or(usize::MAX));
        self.entries.truncate(usize::try_from(base).unwrap_or(usize::MAX));
        self.forkable.retain(|epoch, _| *epoch <= base);
        self.head = self.head_at(base).unwrap_or(self.head);
    }

    /// R25: nobody serves the checkpoint, so we go on with our own lineage until somebody may.
    pub(super) fn on_load_failed(&mut self, step: &mut Step<'_>, head: Head) {
        if !matches!(&self.pursuit, Some(Pursuit::Load(way)) if way.target == head) {
            return;
        }
        self.pursuit = None;
        self.give_up(head.state, step.now + step.roll.grace);
        step.lead(Lead::Behind(false));
    }

    fn give_up(&mut self, state: Digest, until: Time) {
        self.catching_up = false;
        self.put_aside(state, until);
    }

    /// Tells once that the way is at its end: nobody who answers is further than the next epoch,
    /// which is decided here as any other.
    pub(super) fn note_caught_up(&mut self, step: &mut Step<'_>) {
        let next = self.head.epoch.saturating_add(1);
        let further = step.roll.live(step.now).any(|(peer, seen)| {
            seen.beat.head.epoch > next
                && self.is_ahead(seen, &self.head)
                && !self.is_silent(step, peer)
        });
        if self.catching_up && !further {
            self.catching_up = false;
            step.put(Output::Event(Event::CaughtUp { head: self.head }));
        }
    }
}

/// Who may serve what leads to a head: first who told of it, whatever its last heartbeat said; then
/// the living who are there, or have gone on from there.
fn donors(step: &Step<'_>, way: &Way) -> Vec<PeerId> {
    let beyond = |head: &Head| head.epoch > way.target.epoch && head.exceeds(&way.target);
    let serves =
        |peer: &PeerId, head: &Head| *peer == way.from || *head == way.target || beyond(head);
    let serving = step.roll.live(step.now).filter(|(peer, seen)| serves(peer, &seen.beat.head));
    let mut donors: Vec<(bool, bool, PeerId)> = serving
        .map(|(peer, seen)| (*peer != way.from, seen.beat.head != way.target, *peer))
        .collect();
    donors.sort_unstable();
    donors.into_iter().map(|(.., peer)| peer).collect()
}
