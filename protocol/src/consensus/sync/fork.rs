//! Lineages that parted from ours: where they parted, what of that is proven, and what is reported
//! (R26, G11, G12).
//!
//! What a peer answers about a chain is signed by nobody, so it only says where to look. `fork` and
//! `diverged` are reported once a link of that lineage verifies.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::base::fault::{AnswerFault, Fault};
use crate::base::id::{Digest, PeerId};
use crate::base::rule::Rule;
use crate::base::time::Time;
use crate::machine::event::Event;
use crate::machine::output::Output;
use crate::machine::step::Step;
use crate::message::{CHAIN_MAX, ChainLink, Head, Link};

use super::catch_up::Candidate;
use super::marks::DAY;
use super::{LINKS_KEPT, REMEMBERED_MAX, Reported, State};

impl Reported {
    pub(super) fn contains(&self, state: &Digest) -> bool {
        self.states.contains(state)
    }
}

fn remember(states: &mut BTreeSet<Digest>, state: Digest) -> bool {
    if states.len() >= REMEMBERED_MAX {
        states.pop_first();
    }
    states.insert(state)
}

impl State {
    /// R26: finds the first epoch in which two chains differ.
    pub(super) fn on_chain(
        &mut self,
        step: &mut Step<'_>,
        from: PeerId,
        target: Head,
        from_epoch: u64,
        chain: &[ChainLink],
    ) {
        let in_order = chain.iter().zip(from_epoch..).all(|(link, at)| link.epoch == at);
        if !in_order {
            self.note_misleading(step, from, target.state);
            step.put(Output::Fault(from, Fault::Answer(AnswerFault::ChainOrder)));
            return;
        }
        let ours = |epoch: u64| self.state_after(epoch);
        let parted = chain.iter().find(|link| ours(link.epoch) != Some(link.state));
        let Some(ChainLink { epoch: first_epoch, state, r }) = parted.copied() else {
            return self.on_withdrawn(step, from, target);
        };
        if first_epoch == from_epoch && from_epoch > 1 {
            let earlier = from_epoch.saturating_sub(CHAIN_MAX as u64 / 2).max(1);
            self.ask_chain_from(step, from, target, earlier);
            return;
        }
        let mine = self.entry(first_epoch);
        if let Some(mine) = mine.filter(|mine| mine.r == r) {
            return self.on_diverged(step, from, target, first_epoch, mine.state, state);
        }
        if self.reported.held.contains(&r)
            && self.validator.keeps(Rule::G11)
            && !self.follows(&target.state)
        {
            self.ignore(from, target.state, Time(u64::MAX));
            return self.note_failure(step, from);
        }
        let claimed = self.claimed_on(step, &from, &target, first_epoch, chain);
        let exceeds = self.is_greater(&claimed);
        // If not, its author has changed its lineage since its claim, and its next head will show
        // where.
        let parts = mine.is_some() && ours(target.epoch) != Some(target.state);
        self.note_claim(step, from, [&target, &target], claimed);
        if exceeds || parts {
            self.ask_parted(step, from, target, first_epoch.saturating_sub(1), None);
        }
    }

    /// Its author follows our lineage again, and only its earlier head shows where it was. The
    /// author has signed that head: one that our receipts name is believed, once in a while.
    fn on_withdrawn(&mut self, step: &mut Step<'_>, from: PeerId, target: Head) {
        if self.is_greater(&self.claimed_in(step, &from, &target)) {
            self.note_misleading(step, from, target.state);
        }
        let parted = self.state_after(target.epoch).is_some_and(|state| state != target.state);
        let reported = self.reported.withdrew.get(&from);
        let lately = reported.is_some_and(|at| self.head.epoch < *at + LINKS_KEPT as u64);
        let names = |link: &Arc<Link>| link.receipt.members.iter().any(|m| m.peer == from);
        let named = self.links.iter().any(names);
        if parted && (named && !lately || !self.validator.keeps(Rule::G12)) {
            self.reported.withdrew.retain(|_, at| self.head.epoch < *at + LINKS_KEPT as u64);
            self.reported.withdrew.insert(from, self.head.epoch);
            self.report_fork(step, target.epoch, target, 0);
        }
        self.remember(target.state);
    }

    /// The receipts are equal, and the states after them differ. If links follow on the other
    /// state, the voters that have it signed them. For a last state only its author can speak, if
    /// the receipt names it.
    fn on_diverged(
        &mut self,
        step: &mut Step<'_>,
        from: PeerId,
        target: Head,
        epoch: u64,
        mine: Digest,
        theirs: Digest,
    ) {
        if epoch < target.epoch && self.validator.keeps(Rule::G12) {
            let base = Head { state: theirs, ..self.head_at(epoch).unwrap_or(target) };
            return self.ask_parted(step, from, target, epoch, Some((base, mine)));
        }
        let names = |link: &Arc<Link>| link.receipt.members.iter().any(|m| m.peer == from);
        let named = self.link(epoch).is_some_and(names);
        if named || !self.validator.keeps(Rule::G12) {
            self.report_diverged(step, from, mine, theirs);
        }
        self.remember(target.state);
        self.ignore(from, target.state, Time(u64::MAX));
    }

    pub(super) fn report_diverged(
        &mut self,
        step: &mut Step<'_>,
        who: PeerId,
        mine: Digest,
        theirs: Digest,
    ) {
        if remember(&mut self.reported.states, theirs) {
            step.put(Output::Event(Event::Diverged { who, mine, theirs }));
        }
    }

    /// R26: reports another lineage, and how many of our epochs are undone for it.
    pub(super) fn report_fork(
        &mut self,
        step: &mut Step<'_>,
        first_epoch: u64,
        theirs: Head,
        undone: u64,
    ) {
        let mine = self.head;
        let is_new = remember(&mut self.reported.states, theirs.state);
        if is_new || undone > 0 {
            step.put(Output::Event(Event::Fork { first_epoch, mine, theirs, undone, held: false }));
        }
        if undone > 0 {
            // Peers that still stand where we stood are no other fork.
            self.remember(mine.state);
        }
    }

    pub(super) fn remember(&mut self, state: Digest) {
        remember(&mut self.reported.states, state);
    }

    /// Whether a person has decided for this head.
    fn follows(&self, state: &Digest) -> bool {
        self.config.follow == Some(*state)
    }

    /// G11: whether a verified greater lineage undoes so much of ours, or was signed by so few
    /// voters, that a person has to decide. A short split of the network ends soon, and the voters
    /// on its other side have signed what came next. Neither is true if one voter mints an old
    /// lineage.
    pub(super) fn is_held(
        &mut self,
        step: &mut Step<'_>,
        from: PeerId,
        target: Head,
        candidate: &Candidate,
    ) -> bool {
        let base = candidate.base.epoch;
        let undone = self.head.epoch.saturating_sub(base);
        // An attestation is the organiser's decision, which counts like that of a person.
        let chosen = self.follows(&target.state)
            || self.proven(&target, candidate).attested > self.attested()
            || candidate.entries.iter().any(|entry| self.follows(&entry.state));
        let recent = |time| self.marks.is_recent(step.now, base, time);
        let small = undone <= self.config.undo_max;
        let signed = match base {
            // Nobody has voted on genesis, so friends that founded apart can meet.
            0 => small,
            _ => candidate.is_signed() && (small || recent(DAY)),
        };
        let young = recent(self.config.undo_time);
        if undone == 0 || young || signed || chosen || !self.validator.keeps(Rule::G11) {
            return false;
        }
        let (mine, theirs, first_epoch) = (self.head, target, base.saturating_add(1));
        if let Some(first) = candidate.entries.front()
            && remember(&mut self.reported.held, first.r)
        {
            let event = Event::Fork { first_epoch, mine, theirs, undone: 0, held: true };
            step.put(Output::Event(event));
        }
        self.ignore(from, target.state, Time(u64::MAX));
        self.note_failure(step, from);
        true
    }
}
