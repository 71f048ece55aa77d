//! The one open question: what was asked, and what its answer leads to.

use super::arrive::Way;
use super::{
    Answer, Ask, Asked, CHAIN_MAX, ChainLink, Digest, Event, Fault, Head, LINK_WAIT, Link, Open,
    Opening, PeerId, REMEMBERED_MAX, Series, State, Time, Voter,
};
use crate::output::Output;
use crate::step::{Lead, Step};

/// What is being found out.
#[derive(Clone, Debug)]
pub(super) enum Pursuit {
    /// The links from a common epoch to a head; it was asked for because of the one that is sought.
    Lineage { from: PeerId, sought: Head, base: Base, links: Vec<Link> },
    /// Where a lineage parts from ours.
    Chain { from: PeerId, target: Head, from_epoch: u64 },
    /// A verified head's updates.
    Replay(Way),
    /// A verified head's checkpoint.
    Load(Way),
}

/// A common epoch.
#[derive(Clone, Debug)]
pub(super) struct Base {
    epoch: u64,
    /// Who votes after it. Where its own link is in memory no more, that is served first, and they are
    /// whom it names.
    voters: Option<Vec<Voter>>,
}

impl State {
    pub(super) fn ask_lineage(
        &mut self,
        step: &mut Step<'_>,
        (from, sought): (PeerId, Head),
        base: u64,
    ) {
        self.asked.insert(from, Asked::now(step));
        let base = Base { epoch: base, voters: self.voters_at(base) };
        self.ask_links(step, (from, sought), base, Vec::new());
    }

    /// Asks for the links after those that are here.
    fn ask_links(
        &mut self,
        step: &mut Step<'_>,
        (from, sought): (PeerId, Head),
        base: Base,
        links: Vec<Link>,
    ) {
        let known = links.last().map_or(base.epoch, |last| last.receipt.series.epoch);
        let from_epoch = known.saturating_add(u64::from(base.voters.is_some()));
        self.pursuit = Some(Pursuit::Lineage { from, sought, base, links });
        step.put(Output::Ask(from, Ask::Lineage { from_epoch }));
    }

    pub(super) fn ask_chain(&mut self, step: &mut Step<'_>, from: PeerId, target: Head) {
        let shared = self.head.epoch.min(target.epoch);
        let from_epoch = shared.saturating_sub(CHAIN_MAX as u64 / 2).max(1);
        self.ask_chain_from(step, from, target, from_epoch);
    }

    fn ask_chain_from(&mut self, step: &mut Step<'_>, from: PeerId, target: Head, from_epoch: u64) {
        self.asked.insert(from, Asked::now(step));
        self.pursuit = Some(Pursuit::Chain { from, target, from_epoch });
        step.put(Output::Ask(from, Ask::Chain { from_epoch }));
    }

    pub(super) fn on_answer(
        &mut self,
        step: &mut Step<'_>,
        open: Open<'_>,
        from: PeerId,
        answer: Option<&Answer>,
        majority: bool,
    ) {
        let expected = match &self.pursuit {
            Some(Pursuit::Lineage { from, .. } | Pursuit::Chain { from, .. }) => Some(*from),
            _ => None,
        };
        if expected != Some(from) {
            return;
        }
        self.rounds += 1;
        let answer = answer.filter(|_| self.rounds <= super::ROUNDS_MAX);
        match (self.pursuit.take(), answer) {
            (
                Some(Pursuit::Lineage { sought, base, links, .. }),
                Some(Answer::Lineage { links: more, head, openings }),
            ) => {
                if sought.exceeds(&self.head) && !head.exceeds(&self.head) {
                    // It has told of a head that it does not have.
                    self.asked.insert(from, Asked::in_vain(step));
                }
                let told = Reply { from, head: *head, sought, openings, open, majority };
                self.on_lineage(step, &told, base, links, more);
            }
            (Some(Pursuit::Chain { target, from_epoch, .. }), Some(Answer::Chain(chain))) => {
                self.on_chain(step, from, target, from_epoch, chain);
            }
            (_, Some(_)) => {
                step.put(Output::Fault(from, Fault::Answer("answers another question")));
            }
            // R25: its head may be a lie, or it has died; others may have it too.
            (_, None) => drop(self.asked.insert(from, Asked::in_vain(step))),
        }
    }

    fn on_lineage(
        &mut self,
        step: &mut Step<'_>,
        told: &Reply<'_>,
        Base { epoch: base, voters }: Base,
        mut links: Vec<Link>,
        more: &[Link],
    ) {
        let Reply { from, head: target, sought, .. } = *told;
        let Some(common) = self.head_at(base) else { return };
        let Some(voters) = voters else {
            let is_base = |link: &&Link| link.receipt.series.epoch == base;
            match more.first().filter(is_base) {
                Some(link) if self.has(&link.receipt) => {
                    let base = Base { epoch: base, voters: Some(link.receipt.voters()) };
                    self.ask_links(step, (from, sought), base, links);
                }
                Some(_) => self.ask_chain(step, from, target),
                None => {}
            }
            return;
        };
        if links.is_empty() && more.first().is_some_and(|l| l.receipt.series.parent != common.state)
        {
            self.ask_chain(step, from, target);
            return;
        }
        for link in more {
            match self.check_next((common, &voters), links.last(), link) {
                Ok(()) => links.push(link.clone()),
                Err(fault) => {
                    step.put(Output::Fault(from, fault));
                    return;
                }
            }
        }
        let Some(last) = links.last() else {
            if target == self.head {
                step.lead(Lead::Openings(from, told.openings.to_vec()));
            } else if target.epoch <= base {
                self.ask_chain(step, from, target);
            }
            return;
        };
        let reached = last.receipt.series.epoch;
        if reached < target.epoch && !more.is_empty() {
            let base = Base { epoch: base, voters: Some(voters) };
            self.ask_links(step, (from, sought), base, links);
            return;
        }
        let tokens =
            links.iter().fold(common.tokens, |sum, link| sum.saturating_add(link.receipt.tokens()));
        if reached != target.epoch || tokens != target.tokens {
            step.put(Output::Fault(from, Fault::Answer("a head that its links do not reach")));
            return;
        }
        self.follow(step, told, base, links);
    }

    /// Whether `link` follows on `before`, or on the common head and its voters where there is none.
    fn check_next(
        &self,
        (common, voters): (Head, &[Voter]),
        before: Option<&Link>,
        link: &Link,
    ) -> Result<(), Fault> {
        let Some(before) = before.map(|before| &before.receipt) else {
            return self.law.check_link(Series::after(&common), voters, link);
        };
        let epoch = before.series.epoch.saturating_add(1);
        // What its voters signed; the first link is held against our own state.
        let base = Series { epoch, parent: link.receipt.series.parent, regroup: None };
        self.law.check_link(base, &before.voters(), link)
    }

    /// A verified greater head: R23, R24, R16.
    fn follow(&mut self, step: &mut Step<'_>, told: &Reply<'_>, base: u64, links: Vec<Link>) {
        let Reply { from, head: target, open, .. } = *told;
        let one_longer = target.epoch == self.head.epoch.saturating_add(1);
        // Whoever is two epochs behind does not wait for the update of the first one alone.
        let Open { decided, applying, .. } = open;
        if !target.exceeds(&self.head) || applying || (decided && one_longer) {
            return;
        }
        let (base, links) = self.beyond_ours(base, links);
        let regrouped = links.iter().any(|link| {
            let mine = self.link(link.receipt.series.epoch);
            let ours = mine.map_or(open.openings, |mine| &mine.openings);
            !link.openings.iter().all(|opening| ours.contains(opening))
        });
        let on_ours = base == self.head.epoch;
        if one_longer && regrouped && told.majority {
            self.put_aside(target.state, step.now + super::ASK_INTERVAL);
            return;
        }
        if self.is_outvoted(step, &target, &links) {
            self.put_aside(target.state, step.now + step.roll.grace);
            return;
        }
        let waited = self.ahead_since.is_some_and(|since| step.now >= since + LINK_WAIT);
        if let ([link], true, false) = (links.as_slice(), on_ours, waited) {
            step.lead(Lead::Link(from, Box::new(link.clone())));
            return;
        }
        let links = links.into();
        self.set_out(step, Way { from, target, base, links });
    }

    /// Without the links that we have taken ourselves since we asked.
    fn beyond_ours(&self, base: u64, links: Vec<Link>) -> (u64, Vec<Link>) {
        let ours = links.iter().take_while(|link| self.has(&link.receipt)).count();
        (base.saturating_add(ours as u64), links.into_iter().skip(ours).collect())
    }

    /// Links prove receipts, and the state before each; the state after the last one is only said. Where
    /// more of its voters say another one than this, it is not followed.
    fn is_outvoted(&self, step: &Step<'_>, target: &Head, links: &[Link]) -> bool {
        let voters = links.last().map(|last| last.receipt.voters()).unwrap_or_default();
        let heads = voters.iter().filter_map(|voter| step.roll.peers.get(&voter.peer));
        let same = heads
            .map(|seen| seen.beat.head)
            .filter(|head| (head.epoch, head.tokens) == (target.epoch, target.tokens));
        let (for_it, against): (Vec<_>, Vec<_>) = same.partition(|head| head.state == target.state);
        against.len() > for_it.len()
    }

    /// R26: the first epoch in which two chains differ.
    fn on_chain(
        &mut self,
        step: &mut Step<'_>,
        from: PeerId,
        target: Head,
        from_epoch: u64,
        chain: &[ChainLink],
    ) {
        let in_order = chain.iter().zip(from_epoch..).all(|(link, at)| link.epoch == at);
        if !in_order {
            step.put(Output::Fault(from, Fault::Answer("a chain out of order")));
            return;
        }
        let ours = |epoch: u64| self.state_after(epoch);
        let parted = chain.iter().find(|link| ours(link.epoch) != Some(link.state));
        let Some(ChainLink { epoch: first_epoch, state, r }) = parted.copied() else {
            // It has followed us since, and its head is all that tells of where it was.
            if ours(target.epoch).is_some_and(|state| state != target.state) {
                self.tell_fork(step, target.epoch, target);
            }
            self.remember(target.state);
            return;
        };
        if first_epoch == from_epoch && from_epoch > 1 {
            let earlier = from_epoch.saturating_sub(CHAIN_MAX as u64 / 2).max(1);
            self.ask_chain_from(step, from, target, earlier);
            return;
        }
        let mine = self.entry(first_epoch);
        if let Some(mine) = mine.filter(|mine| mine.r == r) {
            let (mine, theirs) = (mine.state, state);
            step.put(Output::Event(Event::Diverged { who: from, mine, theirs }));
            self.remember(target.state);
            self.put_aside(target.state, Time(u64::MAX));
            return;
        }
        if target.exceeds(&self.head) {
            self.ask_lineage(step, (from, target), first_epoch.saturating_sub(1));
        } else if mine.is_some() && ours(target.epoch) != Some(target.state) {
            // Else it has parted since it told of its head, and the next one will show where.
            self.tell_fork(step, first_epoch, target);
        }
    }

    /// R26: another lineage exists, and ours stays.
    fn tell_fork(&mut self, step: &mut Step<'_>, first_epoch: u64, theirs: Head) {
        if !self.told.contains(&theirs.state) {
            self.remember(theirs.state);
            let mine = self.head;
            step.put(Output::Event(Event::Fork { first_epoch, mine, theirs, undone: 0 }));
        }
    }

    pub(super) fn remember(&mut self, state: Digest) {
        if self.told.len() >= REMEMBERED_MAX {
            self.told.pop_first();
        }
        self.told.insert(state);
    }
}

/// What came with an answer.
struct Reply<'a> {
    from: PeerId,
    head: Head,
    sought: Head,
    openings: &'a [Opening],
    /// Our open epoch.
    open: Open<'a>,
    /// Whether a majority of its voters is present (R24).
    majority: bool,
}
