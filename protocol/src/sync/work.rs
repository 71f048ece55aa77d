//! The one open question: what was asked, and what its answer leads to.

use super::arrive::Way;
use super::{
    Answer, Ask, CHAIN_MAX, Digest, Event, Fault, Head, LINK_WAIT, Link, Opening, Output, PeerId,
    REMEMBERED_MAX, Roll, Series, Standing, State, Time, Voter, wire,
};

/// What is being found out.
#[derive(Clone, Debug)]
pub(super) enum Work {
    /// The links from a common epoch to a head; it was asked for because of the one that is sought.
    Lineage { from: PeerId, sought: Head, base: u64, links: Vec<Link> },
    /// Where a lineage parts from ours.
    Chain { from: PeerId, target: Head, from_epoch: u64 },
    /// A verified head's updates.
    Replay(Way),
    /// A verified head's checkpoint.
    Load(Way),
}

impl State {
    pub(super) fn ask_lineage(
        &mut self,
        now: Time,
        (from, sought): (PeerId, Head),
        base: u64,
        out: &mut Vec<Output>,
    ) {
        self.asked.insert(from, now + super::ASK_INTERVAL);
        self.work = Some(Work::Lineage { from, sought, base, links: Vec::new() });
        out.push(Output::Ask(from, Ask::Lineage { from_epoch: base.saturating_add(1) }));
    }

    pub(super) fn ask_chain(
        &mut self,
        now: Time,
        from: PeerId,
        target: Head,
        out: &mut Vec<Output>,
    ) {
        let shared = self.head.epoch.min(target.epoch);
        let from_epoch = shared.saturating_sub(CHAIN_MAX as u64 / 2).max(1);
        self.ask_chain_from(now, from, target, from_epoch, out);
    }

    fn ask_chain_from(
        &mut self,
        now: Time,
        from: PeerId,
        target: Head,
        from_epoch: u64,
        out: &mut Vec<Output>,
    ) {
        self.asked.insert(from, now + super::ASK_INTERVAL);
        self.work = Some(Work::Chain { from, target, from_epoch });
        out.push(Output::Ask(from, Ask::Chain { from_epoch }));
    }

    pub(super) fn on_answer(
        &mut self,
        now: Time,
        roll: &Roll,
        from: PeerId,
        answer: Option<&Answer>,
        open: Open<'_>,
        out: &mut Vec<Output>,
    ) {
        let expected = match &self.work {
            Some(Work::Lineage { from, .. } | Work::Chain { from, .. }) => Some(*from),
            _ => None,
        };
        if expected != Some(from) {
            return;
        }
        self.rounds += 1;
        let answer = answer.filter(|_| self.rounds <= super::ROUNDS_MAX);
        match (self.work.take(), answer) {
            (
                Some(Work::Lineage { sought, base, links, .. }),
                Some(Answer::Lineage { links: more, head, openings }),
            ) => {
                if sought.exceeds(&self.head) && !head.exceeds(&self.head) {
                    // It has told of a head that it does not have.
                    self.asked.insert(from, now + roll.grace);
                }
                let told = Told { from, head: *head, sought, openings, open };
                self.on_lineage(now, roll, &told, base, links, more, out);
            }
            (Some(Work::Chain { target, from_epoch, .. }), Some(Answer::Chain(chain))) => {
                let chain: Vec<_> =
                    chain.iter().map(|link| (link.epoch, link.state, link.r)).collect();
                self.on_chain(now, from, target, from_epoch, &chain, out);
            }
            (_, Some(_)) => {
                out.push(Output::Fault(from, Fault::Answer("answers another question")));
            }
            // R25: its head may be a lie, or it has died; others may have it too.
            (_, None) => drop(self.asked.insert(from, now + roll.grace)),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the open question and its answer, one of each")]
    fn on_lineage(
        &mut self,
        now: Time,
        roll: &Roll,
        told: &Told<'_>,
        base: u64,
        mut links: Vec<Link>,
        more: &[Link],
        out: &mut Vec<Output>,
    ) {
        let Told { from, head: target, sought, .. } = *told;
        let Some(common) = self.head_at(base) else { return };
        if links.is_empty() && more.first().is_some_and(|l| l.receipt.series.parent != common.state)
        {
            self.ask_chain(now, from, target, out);
            return;
        }
        for link in more {
            match self.check_next(common, links.last(), link) {
                Ok(()) => links.push(link.clone()),
                Err(fault) => {
                    out.push(Output::Fault(from, fault));
                    return;
                }
            }
        }
        let Some(last) = links.last() else {
            if target == self.head {
                out.push(Output::Openings(from, told.openings.to_vec()));
            } else if target.epoch <= base {
                self.ask_chain(now, from, target, out);
            }
            return;
        };
        let reached = last.receipt.series.epoch;
        if reached < target.epoch && !more.is_empty() {
            self.work = Some(Work::Lineage { from, sought, base, links });
            let from_epoch = reached.saturating_add(1);
            out.push(Output::Ask(from, Ask::Lineage { from_epoch }));
            return;
        }
        let tokens =
            links.iter().fold(common.tokens, |sum, link| sum.saturating_add(link.receipt.tokens()));
        if reached != target.epoch || tokens != target.tokens {
            out.push(Output::Fault(from, Fault::Answer("a head that its links do not reach")));
            return;
        }
        self.follow(now, roll, told, base, links, out);
    }

    /// Whether `link` follows on `before`, or on the common head where there is none.
    fn check_next(&self, common: Head, before: Option<&Link>, link: &Link) -> Result<(), Fault> {
        let (epoch, voters): (u64, Vec<Voter>) = match before {
            Some(before) => (before.receipt.series.epoch, before.receipt.voters()),
            None => (common.epoch, self.voters_at(common.epoch)),
        };
        let parent = match before {
            // What its voters signed; the first link is held against our own state.
            Some(_) => link.receipt.series.parent,
            None => common.state,
        };
        let base = Series { epoch: epoch.saturating_add(1), parent, regroup: None };
        self.config.law.check_link(base, &voters, link)
    }

    /// A verified greater head: R23, R24, R16.
    fn follow(
        &mut self,
        now: Time,
        roll: &Roll,
        told: &Told<'_>,
        base: u64,
        links: Vec<Link>,
        out: &mut Vec<Output>,
    ) {
        let Told { from, head: target, open, .. } = *told;
        let one_longer = target.epoch == self.head.epoch.saturating_add(1);
        // Whoever is two epochs behind does not wait for the update of the first one alone.
        let Standing { decided, applying, .. } = open.standing;
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
        if one_longer && regrouped && open.majority {
            self.put_aside(target.state, now + super::ASK_INTERVAL);
            return;
        }
        if self.is_outvoted(roll, &target, &links) {
            self.put_aside(target.state, now + roll.grace);
            return;
        }
        let waited = self.ahead_since.is_some_and(|since| now >= since + LINK_WAIT);
        if let ([link], true, false) = (links.as_slice(), on_ours, waited) {
            out.push(Output::Link(from, Box::new(link.clone())));
            return;
        }
        let links = links.into();
        self.set_out(now, roll, Way { from, target, base, links }, out);
    }

    /// Without the links that we have taken ourselves since we asked.
    fn beyond_ours(&self, base: u64, links: Vec<Link>) -> (u64, Vec<Link>) {
        let ours = links.iter().zip(base.saturating_add(1)..).take_while(|(link, epoch)| {
            let r = || wire::receipt_digest(&self.config.law.run, &link.receipt);
            self.entry(*epoch).is_some_and(|entry| entry.r == r())
        });
        let ours = ours.count();
        (base.saturating_add(ours as u64), links.into_iter().skip(ours).collect())
    }

    /// Links prove receipts, and the state before each; the state after the last one is only said. Where
    /// more of its voters say another one than this, it is not followed.
    fn is_outvoted(&self, roll: &Roll, target: &Head, links: &[Link]) -> bool {
        let voters = links.last().map(|last| last.receipt.voters()).unwrap_or_default();
        let heads = voters.iter().filter_map(|voter| roll.peers.get(&voter.peer));
        let same = heads
            .map(|seen| seen.beat.head)
            .filter(|head| (head.epoch, head.tokens) == (target.epoch, target.tokens));
        let (for_it, against): (Vec<_>, Vec<_>) = same.partition(|head| head.state == target.state);
        against.len() > for_it.len()
    }

    /// R26: the first epoch in which two chains differ.
    fn on_chain(
        &mut self,
        now: Time,
        from: PeerId,
        target: Head,
        from_epoch: u64,
        chain: &[(u64, Digest, Digest)],
        out: &mut Vec<Output>,
    ) {
        let in_order = chain.iter().zip(from_epoch..).all(|((epoch, ..), at)| *epoch == at);
        if !in_order {
            out.push(Output::Fault(from, Fault::Answer("a chain out of order")));
            return;
        }
        let ours = |epoch: u64| self.state_after(epoch);
        let parted = chain.iter().find(|(epoch, state, _)| ours(*epoch) != Some(*state));
        let Some((first_epoch, state, r)) = parted.copied() else {
            // It has followed us since, and its head is all that tells of where it was.
            if ours(target.epoch).is_some_and(|state| state != target.state) {
                self.tell_fork(target.epoch, target, out);
            }
            self.remember(target.state);
            return;
        };
        if first_epoch == from_epoch && from_epoch > 1 {
            let earlier = from_epoch.saturating_sub(CHAIN_MAX as u64 / 2).max(1);
            self.ask_chain_from(now, from, target, earlier, out);
            return;
        }
        let mine = self.entry(first_epoch);
        if let Some(mine) = mine.filter(|mine| mine.r == r) {
            let (mine, theirs) = (mine.head.state, state);
            out.push(Output::Event(Event::Diverged { who: from, mine, theirs }));
            self.remember(target.state);
            self.put_aside(target.state, Time(u64::MAX));
            return;
        }
        if target.exceeds(&self.head) {
            self.ask_lineage(now, (from, target), first_epoch.saturating_sub(1), out);
        } else if mine.is_some() && ours(target.epoch) != Some(target.state) {
            // Else it has parted since it told of its head, and the next one will show where.
            self.tell_fork(first_epoch, target, out);
        }
    }

    /// R26: another lineage exists, and ours stays.
    fn tell_fork(&mut self, first_epoch: u64, theirs: Head, out: &mut Vec<Output>) {
        if !self.told.contains(&theirs.state) {
            self.remember(theirs.state);
            let mine = self.head;
            out.push(Output::Event(Event::Fork { first_epoch, mine, theirs, undone: 0 }));
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
struct Told<'a> {
    from: PeerId,
    head: Head,
    sought: Head,
    openings: &'a [Opening],
    open: Open<'a>,
}

/// Our open epoch, when an answer comes.
#[derive(Clone, Copy)]
pub(super) struct Open<'a> {
    pub(super) standing: Standing,
    /// Whether a majority of its voters is present (R24).
    pub(super) majority: bool,
    pub(super) openings: &'a [Opening],
}
