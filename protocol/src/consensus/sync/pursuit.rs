//! The one open question: what was asked, and what its answer leads to.

use std::collections::VecDeque;

use super::arrive::Way;
use super::{
    Answer, Arc, Ask, Blocks, CHAIN_MAX, Digest, Entry, Head, LINK_WAIT, Link, Open, Opening,
    PeerId, Receipt, State, Time, Voter,
};
use crate::access::ledger::Ledger;
use crate::base::fault::{AnswerFault, Fault};
use crate::base::rule::Rule;
use crate::machine::output::Output;
use crate::machine::step::{Lead, Step};

/// What is being found out.
#[derive(Clone, Debug)]
pub(super) enum Pursuit {
    /// The links from a common epoch to a head; it was asked for because of the one that is sought.
    Lineage { from: PeerId, sought: Head, judged: Box<Judged> },
    /// Where a lineage parts from ours.
    Chain { from: PeerId, target: Head, from_epoch: u64 },
    /// The links of a verified lineage that are in memory no more, from the one who is asked for them.
    Copy(PeerId, Way),
    /// A verified head's updates.
    Replay(Way),
    /// A verified head's checkpoint.
    Load(Way),
}

/// Whoever serves links more slowly than this, in bytes a second, counts as silent (G12).
const RATE_MIN: u64 = 8_000;

/// What a receipt says of the epoch after it.
#[derive(Clone, Debug)]
pub(super) struct Before {
    /// Who votes.
    pub(super) voters: Vec<Voter>,
    /// The median weight, which bounds the weights.
    pub(super) median: Option<u64>,
    /// Who is in; `None` in open runs.
    pub(super) ledger: Option<Arc<Ledger>>,
}

impl Before {
    /// The epoch after genesis.
    pub(super) fn founding(founders: &[Voter], ledger: Option<Arc<Ledger>>) -> Self {
        Self { voters: founders.to_vec(), median: None, ledger }
    }

    /// The epoch after `receipt`, with the ledger after it.
    pub(super) fn of(receipt: &Receipt, ledger: Option<Arc<Ledger>>) -> Self {
        let voters = match &ledger {
            Some(ledger) => ledger.voters(receipt),
            None => receipt.voters(),
        };
        Self { voters, median: receipt.median_weight(), ledger }
    }
}

/// A lineage that is being judged, from a common epoch on.
#[derive(Clone, Debug)]
pub(super) struct Judged {
    /// The last common epoch; of a lineage that has diverged, with the state that is said of it.
    pub(super) base: Head,
    /// Our own state after the base, where another one is said to follow from an equal receipt.
    pub(super) diverged: Option<Digest>,
    /// Whether a chain told of this base: then the links that follow on it fit it.
    pub(super) by_chain: bool,
    /// Of each link; the state after the last one is not known.
    pub(super) entries: VecDeque<Entry>,
    /// The last of them.
    pub(super) links: VecDeque<Link>,
    /// The receipts among them that admit somebody or carry a notice, which the organiser has signed.
    pub(super) admitting: Vec<Receipt>,
    /// What the last link says of the epoch after it; `None` where the base's own link is to be served
    /// first, since it is in memory no more.
    pub(super) before: Option<Before>,
    /// The voters of the common epoch that have signed none of its links yet, and how many have (G11).
    pub(super) unsigned: Vec<Voter>,
    pub(super) signed_count: usize,
    /// Whether it has a Regroup that ours has not.
    pub(super) is_regrouped: bool,
    /// In which blocks it has spent what is unspent here.
    pub(super) spent: Blocks,
    /// Bytes of the links in memory.
    pub(super) bytes: usize,
    /// Bytes that have come, since when.
    pub(super) came: u64,
    since: Time,
}

impl Judged {
    pub(super) fn new(step: &Step<'_>, base: Head, before: Option<Before>) -> Self {
        Self {
            base,
            diverged: None,
            by_chain: false,
            entries: VecDeque::new(),
            links: VecDeque::new(),
            admitting: Vec::new(),
            before,
            unsigned: Vec::new(),
            signed_count: 0,
            is_regrouped: false,
            spent: Blocks::default(),
            bytes: 0,
            came: 0,
            since: step.now,
        }
    }

    /// Whether a third of the voters of the common epoch have signed one of its links.
    pub(super) fn is_signed(&self) -> bool {
        self.signed_count > 0 && 2 * self.signed_count >= self.unsigned.len()
    }

    /// The last epoch that is proven.
    pub(super) fn reached(&self) -> u64 {
        self.base.epoch.saturating_add(self.entries.len() as u64)
    }

    /// Tokens committed by then.
    pub(super) fn tokens(&self) -> u64 {
        self.entries.back().map_or(self.base.tokens, |last| last.tokens)
    }

    /// Whether it comes so slowly that somebody else is asked.
    pub(super) fn is_slow(&self, step: &Step<'_>) -> bool {
        let length = step.now.since(self.since);
        length >= step.roll.grace && self.came < length.as_secs().saturating_mul(RATE_MIN)
    }

    /// The state after the last link is only said.
    pub(super) fn end_at(&mut self, state: Digest) {
        self.entries.iter_mut().next_back().into_iter().for_each(|last| last.state = state);
    }
}

impl State {
    pub(super) fn ask_lineage(
        &mut self,
        step: &mut Step<'_>,
        (from, sought): (PeerId, Head),
        base: u64,
    ) {
        let Some(head) = self.head_at(base) else { return };
        let judged = Judged::new(step, head, self.before(base));
        self.note_asked(step, from);
        self.ask_links(step, (from, sought), judged);
    }

    /// Asks for what follows on the epoch at which a lineage parts from ours, as a chain has told; or on a
    /// state that is said to follow from an equal receipt, beside ours.
    pub(super) fn ask_parted(
        &mut self,
        step: &mut Step<'_>,
        (from, sought): (PeerId, Head),
        base: u64,
        diverged: Option<(Head, Digest)>,
    ) {
        let Some(head) = self.head_at(base) else { return };
        let (said, mine) = diverged.unzip();
        let mut judged = Judged::new(step, said.unwrap_or(head), self.before(base));
        (judged.by_chain, judged.diverged) = (true, mine);
        self.note_asked(step, from);
        self.ask_links(step, (from, sought), judged);
    }

    /// Asks for the links after those that are judged.
    fn ask_links(&mut self, step: &mut Step<'_>, (from, sought): (PeerId, Head), judged: Judged) {
        let from_epoch = judged.reached().saturating_add(u64::from(judged.before.is_some()));
        let judged = Box::new(judged);
        self.pursuit = Some(Pursuit::Lineage { from, sought, judged });
        step.put(Output::Ask(from, Ask::Lineage { from_epoch }));
    }

    pub(super) fn ask_chain(&mut self, step: &mut Step<'_>, from: PeerId, target: Head) {
        let shared = self.head.epoch.min(target.epoch);
        let from_epoch = shared.saturating_sub(CHAIN_MAX as u64 / 2).max(1);
        self.ask_chain_from(step, from, target, from_epoch);
    }

    pub(super) fn ask_chain_from(
        &mut self,
        step: &mut Step<'_>,
        from: PeerId,
        target: Head,
        from_epoch: u64,
    ) {
        self.note_asked(step, from);
        self.pursuit = Some(Pursuit::Chain { from, target, from_epoch });
        step.put(Output::Ask(from, Ask::Chain { from_epoch }));
    }

    /// Whether links of the lineage that is asked for have come and verify.
    pub(super) fn has_verified(&self) -> bool {
        matches!(&self.pursuit, Some(Pursuit::Lineage { judged, .. }) if !judged.entries.is_empty())
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
            Some(Pursuit::Copy(from, _)) => Some(*from),
            Some(Pursuit::Replay(_) | Pursuit::Load(_)) | None => None,
        };
        if expected != Some(from) {
            return;
        }
        self.rounds += 1;
        let answer = answer.filter(|_| self.rounds <= super::ROUNDS_MAX);
        match (self.pursuit.take(), answer) {
            (
                Some(Pursuit::Lineage { sought, judged, .. }),
                Some(Answer::Lineage { links: more, head, openings }),
            ) => {
                let greater = |head| self.is_greater(&self.claimed_in(step, &from, head));
                if greater(&sought) && !greater(head) {
                    // It has told of a head that it does not have.
                    self.note_in_vain(step, from);
                }
                let told = Reply { from, head: *head, sought, openings, open, majority };
                self.on_lineage(step, &told, *judged, more);
            }
            (Some(Pursuit::Chain { target, from_epoch, .. }), Some(Answer::Chain(chain))) => {
                self.on_chain(step, (from, target), from_epoch, chain);
            }
            (Some(Pursuit::Copy(_, way)), Some(Answer::Lineage { links, .. })) => {
                self.on_copied(step, from, way, links);
            }
            (Some(Pursuit::Copy(_, way)), _) => self.on_copied(step, from, way, &[]),
            (_, Some(_)) => {
                self.note_in_vain(step, from);
                step.put(Output::Fault(from, Fault::Answer(AnswerFault::OtherQuestion)));
            }
            // R25: its head may be a lie, or it has died; others may have it too.
            (_, None) => self.note_in_vain(step, from),
        }
    }

    fn on_lineage(
        &mut self,
        step: &mut Step<'_>,
        told: &Reply<'_>,
        mut judged: Judged,
        more: &[Link],
    ) {
        let Reply { from, head: target, sought, .. } = *told;
        let base = judged.base;
        if judged.before.is_none() {
            let is_base = |link: &&Link| link.receipt.series.epoch == base.epoch;
            match more.first().filter(is_base) {
                Some(link) if self.has(&link.receipt) => {
                    let ledger = self.ledgers.as_ref().map(|ledgers| ledgers.at(base.epoch));
                    judged.before = Some(Before::of(&link.receipt, ledger));
                    self.ask_links(step, (from, sought), judged);
                }
                Some(_) => self.ask_chain(step, from, target),
                None => self.note_in_vain(step, from),
            }
            return;
        }
        let fits = |link: &Link| link.receipt.series.parent == base.state;
        if judged.entries.is_empty() && more.first().is_some_and(|link| !fits(link)) {
            match judged.by_chain {
                // What it says now is not what it said of its chain.
                true => self.note_in_vain(step, from),
                false => self.ask_chain(step, from, target),
            }
            return;
        }
        for link in more {
            if let Err(fault) = self.judge(&mut judged, link, told.open.openings) {
                self.note_nowhere(step, from, sought.state);
                step.put(Output::Fault(from, fault));
                return;
            }
            if self.is_proof(step, told, &judged) {
                return;
            }
        }
        if judged.entries.is_empty() {
            if target == self.head {
                step.lead(Lead::Openings(from, told.openings.to_vec()));
            } else if target.epoch <= base.epoch && !judged.by_chain {
                self.ask_chain(step, from, target);
            } else {
                self.note_nowhere(step, from, sought.state);
            }
            return;
        }
        self.on_judged(step, told, judged, more.is_empty());
    }

    /// Whether a lineage is looked at only to prove that it exists, which its first link does; tells of it.
    fn is_proof(&mut self, step: &mut Step<'_>, told: &Reply<'_>, judged: &Judged) -> bool {
        let Some(Entry { r, .. }) = judged.entries.front().copied() else { return false };
        let Reply { from, sought, head: target, .. } = *told;
        let first_epoch = judged.base.epoch.saturating_add(1);
        if let Some(mine) = judged.diverged {
            self.tell_diverged(step, from, mine, judged.base.state);
            self.remember(sought.state);
            self.put_aside(from, sought.state, Time(u64::MAX));
            self.note_in_vain(step, from);
            return true;
        }
        let claimed = self.claimed_after(step, (&from, &target), judged);
        if self.is_greater(&claimed) {
            return false;
        }
        self.note_claim(step, from, [&sought, &target], claimed);
        let parted = self.entry(first_epoch).is_some_and(|mine| mine.r != r);
        // Its head may have moved since it told of the other one, and so may ours.
        if parted && self.state_after(target.epoch) != Some(target.state) {
            self.tell_fork(step, first_epoch, target, 0);
        }
        self.remember(sought.state);
        true
    }

    /// The head's tokens come first: a lineage that does not lead there is not fetched to its end (G12).
    fn on_judged(
        &mut self,
        step: &mut Step<'_>,
        told: &Reply<'_>,
        mut judged: Judged,
        is_end: bool,
    ) {
        let Reply { from, head: target, sought, .. } = *told;
        let (reached, tokens) = (judged.reached(), judged.tokens());
        let leads = (reached < target.epoch && tokens <= target.tokens && !is_end)
            || (reached, tokens) == (target.epoch, target.tokens);
        if !leads {
            self.note_nowhere(step, from, sought.state);
            step.put(Output::Fault(from, Fault::Answer(AnswerFault::HeadNotReached)));
            return;
        }
        if reached == target.epoch {
            judged.end_at(target.state);
            return self.follow(step, told, judged);
        }
        if judged.is_slow(step) && self.law.keeps(Rule::G12) {
            return self.note_in_vain(step, from);
        }
        self.ask_links(step, (from, sought), judged);
    }

    /// A verified greater head: R23, R24, R16.
    fn follow(&mut self, step: &mut Step<'_>, told: &Reply<'_>, mut judged: Judged) {
        let Reply { from, head: target, open, .. } = *told;
        let one_longer = target.epoch == self.head.epoch.saturating_add(1);
        // Whoever is two epochs behind does not wait for the update of the first one alone.
        let Open { decided, applying, .. } = open;
        let proven = self.proven(&target, &judged);
        if !self.is_greater(&proven) {
            return self.note_claim(step, from, [&told.sought, &target], proven);
        }
        if applying || (decided && one_longer) {
            return;
        }
        let is_attested = proven.attested > self.attested();
        let skipped = self.skip_ours(&mut judged);
        let Some(last) = judged.entries.back().copied() else { return };
        if one_longer && judged.is_regrouped && told.majority && !is_attested {
            self.put_aside(from, target.state, step.now + super::ASK_INTERVAL);
            return;
        }
        if self.is_outvoted(step, &target, &judged) {
            self.put_aside(from, target.state, step.now + step.roll.grace);
            return;
        }
        if self.aside.unserved.contains_key(&(target.state, last.r)) {
            return self.note_in_vain(step, from);
        }
        let undone = self.head.epoch.saturating_sub(judged.base.epoch);
        if skipped > 0 && undone > self.config.undo_max {
            // Who signed the first link beyond ours is not known: it is asked for anew.
            return;
        }
        if self.is_held(step, (from, target), &judged) {
            return;
        }
        self.note_useful(&from);
        let Judged { base, entries, links, spent, admitting, .. } = judged;
        let on_ours = base.epoch == self.head.epoch;
        let waited = self.ahead_since.is_some_and(|since| step.now >= since + LINK_WAIT);
        if let (1, Some(link), true, false) = (entries.len(), links.front(), on_ours, waited) {
            step.lead(Lead::Link(from, Box::new(link.clone())));
            return;
        }
        let mut way = Way::new(step, (from, target, proven), base, (entries, links), spent);
        way.admitting = admitting;
        self.set_out(step, way);
    }

    /// Links prove receipts, and the state before each; the state after the last one is only said. Where
    /// more of its voters say another one than this, it is not followed.
    fn is_outvoted(&self, step: &Step<'_>, target: &Head, judged: &Judged) -> bool {
        let voters = judged.before.iter().flat_map(|before| &before.voters);
        let heads = voters.filter_map(|voter| step.roll.peers.get(&voter.peer));
        let same = heads
            .map(|seen| seen.beat.head)
            .filter(|head| (head.epoch, head.tokens) == (target.epoch, target.tokens));
        let (for_it, against): (Vec<_>, Vec<_>) = same.partition(|head| head.state == target.state);
        against.len() > for_it.len()
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
