//! Catching up: the one open question about a greater head, and what its answer leads to.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::access::ledger::Ledger;
use crate::base::blocks::Blocks;
use crate::base::fault::{AnswerFault, Fault};
use crate::base::id::{Digest, PeerId};
use crate::base::rule::Rule;
use crate::base::time::Time;
use crate::machine::output::Output;
use crate::machine::step::{Lead, Step};
use crate::message::{Answer, Ask, CHAIN_MAX, Head, Link, Opening, Receipt, Voter};

use super::apply::Way;
use super::{Entry, LINK_WAIT, Open, State};

/// What is being asked or fetched about a lineage.
#[derive(Clone, Debug)]
pub(super) enum CatchUp {
    /// The links from a common epoch to a head. `wanted` is the head because of which we asked; the
    /// answer may bring a newer one.
    Lineage { from: PeerId, wanted: Head, candidate: Box<Candidate> },
    /// The chain that shows where a lineage parts from ours.
    Chain { from: PeerId, target: Head, from_epoch: u64 },
    /// The links of a verified lineage that are no longer in memory, from the peer that was asked
    /// for them.
    Copy(PeerId, Way),
    /// The updates that lead to a verified head.
    Replay(Way),
    /// The checkpoint of a verified head.
    Load(Way),
}

/// A peer that serves links more slowly than this, in bytes a second, counts as silent (G12).
const RATE_MIN: u64 = 8_000;

/// What a receipt says of the epoch after it.
#[derive(Clone, Debug)]
pub(super) struct NextEpoch {
    /// The voters that decide the next epoch.
    pub(super) voters: Vec<Voter>,
    /// The median weight of the receipt, which bounds the next weights (G11).
    pub(super) median: Option<u64>,
    /// The ledger then; `None` in open runs.
    pub(super) ledger: Option<Arc<Ledger>>,
}

impl NextEpoch {
    /// The epoch after genesis, of which no receipt speaks.
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

/// A lineage that is being verified, from a common epoch on.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    /// The last common epoch. For a lineage that has diverged, it has the state that its author
    /// claims.
    pub(super) base: Head,
    /// Our own state after the base, if another one is claimed to follow from an equal receipt.
    pub(super) diverged: Option<Digest>,
    /// Whether a chain named this base: then the links that follow on it fit it.
    pub(super) by_chain: bool,
    /// One for each verified link. The state after the last one is not known.
    pub(super) entries: VecDeque<Entry>,
    /// The last of its links; older ones are dropped beyond [`super::LINKS_BYTES_MAX`].
    pub(super) links: VecDeque<Link>,
    /// Receipts that admit a peer or carry a notice; the organiser has signed these.
    pub(super) admitting: Vec<Receipt>,
    /// What the last link says of the epoch after it. `None` if the base's own link has to be
    /// fetched first, since it is no longer in memory.
    pub(super) next: Option<NextEpoch>,
    /// The voters of the common epoch that have signed none of its links yet, and how many have
    /// (G11).
    pub(super) unsigned: Vec<Voter>,
    pub(super) signed_count: usize,
    /// Whether it has a Regroup that ours has not.
    pub(super) is_regrouped: bool,
    /// The blocks in which it has spent what is unspent here.
    pub(super) spent: Blocks,
    /// Bytes of the links in memory.
    pub(super) bytes: usize,
    /// Bytes that have arrived in all, counted from `since` on.
    pub(super) came: u64,
    since: Time,
}

impl Candidate {
    pub(super) fn new(step: &Step<'_>, base: Head, next: Option<NextEpoch>) -> Self {
        Self {
            base,
            diverged: None,
            by_chain: false,
            entries: VecDeque::new(),
            links: VecDeque::new(),
            admitting: Vec::new(),
            next,
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

    /// Tokens committed up to that epoch.
    pub(super) fn tokens(&self) -> u64 {
        self.entries.back().map_or(self.base.tokens, |last| last.tokens)
    }

    /// Whether it arrives so slowly that another peer is asked.
    pub(super) fn is_slow(&self, step: &Step<'_>) -> bool {
        let length = step.now.since(self.since);
        length >= step.table.grace && self.came < length.as_secs().saturating_mul(RATE_MIN)
    }

    /// Sets the state after the last link, which no link proves.
    pub(super) fn end_at(&mut self, state: Digest) {
        if let Some(last) = self.entries.back_mut() {
            last.state = state;
        }
    }
}

impl State {
    pub(super) fn ask_lineage(
        &mut self,
        step: &mut Step<'_>,
        from: PeerId,
        wanted: Head,
        base: u64,
    ) {
        let Some(head) = self.head_at(base) else { return };
        let candidate = Candidate::new(step, head, self.next_after(base));
        self.note_request(step, from);
        self.ask_links(step, from, wanted, candidate);
    }

    /// Asks for what follows on the epoch at which a lineage parts from ours, according to a chain;
    /// or on a state that is claimed to follow from an equal receipt, beside ours.
    pub(super) fn ask_parted(
        &mut self,
        step: &mut Step<'_>,
        from: PeerId,
        wanted: Head,
        base: u64,
        diverged: Option<(Head, Digest)>,
    ) {
        let Some(head) = self.head_at(base) else { return };
        let (said, mine) = diverged.unzip();
        let mut candidate = Candidate::new(step, said.unwrap_or(head), self.next_after(base));
        (candidate.by_chain, candidate.diverged) = (true, mine);
        self.note_request(step, from);
        self.ask_links(step, from, wanted, candidate);
    }

    /// Asks for the links after those that are verified.
    fn ask_links(&mut self, step: &mut Step<'_>, from: PeerId, wanted: Head, candidate: Candidate) {
        let from_epoch = candidate.reached().saturating_add(u64::from(candidate.next.is_some()));
        let candidate = Box::new(candidate);
        self.catch_up = Some(CatchUp::Lineage { from, wanted, candidate });
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
        self.note_request(step, from);
        self.catch_up = Some(CatchUp::Chain { from, target, from_epoch });
        step.put(Output::Ask(from, Ask::Chain { from_epoch }));
    }

    /// Whether links of the lineage that we ask for have arrived and verify.
    pub(super) fn has_verified(&self) -> bool {
        matches!(&self.catch_up, Some(CatchUp::Lineage { candidate, .. }) if !candidate.entries.is_empty())
    }

    pub(super) fn on_answer(
        &mut self,
        step: &mut Step<'_>,
        open: Open<'_>,
        from: PeerId,
        answer: Option<&Answer>,
        majority: bool,
    ) {
        let expected = match &self.catch_up {
            Some(CatchUp::Lineage { from, .. } | CatchUp::Chain { from, .. }) => Some(*from),
            Some(CatchUp::Copy(from, _)) => Some(*from),
            Some(CatchUp::Replay(_) | CatchUp::Load(_)) | None => None,
        };
        if expected != Some(from) {
            return;
        }
        self.rounds += 1;
        let answer = if self.rounds <= super::ROUNDS_MAX { answer } else { None };
        match (self.catch_up.take(), answer) {
            (
                Some(CatchUp::Lineage { wanted, candidate, .. }),
                Some(Answer::Lineage { links: more, head, openings }),
            ) => {
                let greater = |head| self.is_greater(&self.claimed_in(step, &from, head));
                if greater(&wanted) && !greater(head) {
                    // It has claimed a head that it does not have.
                    self.note_failure(step, from);
                }
                let reply = Reply { from, head: *head, wanted, openings, open, majority };
                self.on_lineage(step, &reply, *candidate, more);
            }
            (Some(CatchUp::Chain { target, from_epoch, .. }), Some(Answer::Chain(chain))) => {
                self.on_chain(step, from, target, from_epoch, chain);
            }
            (Some(CatchUp::Copy(_, way)), Some(Answer::Lineage { links, .. })) => {
                self.on_copied(step, from, way, links);
            }
            (Some(CatchUp::Copy(_, way)), _) => self.on_copied(step, from, way, &[]),
            (_, Some(_)) => {
                self.note_failure(step, from);
                step.put(Output::Fault(from, Fault::Answer(AnswerFault::OtherQuestion)));
            }
            // R25: its head may be a lie, or it has died; others may have the head too.
            (_, None) => self.note_failure(step, from),
        }
    }

    fn on_lineage(
        &mut self,
        step: &mut Step<'_>,
        reply: &Reply<'_>,
        mut candidate: Candidate,
        more: &[Link],
    ) {
        let Reply { from, head: target, wanted, .. } = *reply;
        let base = candidate.base;
        if candidate.next.is_none() {
            let is_base = |link: &&Link| link.receipt.series.epoch == base.epoch;
            match more.first().filter(is_base) {
                Some(link) if self.has(&link.receipt) => {
                    let ledger = self.ledgers.as_ref().map(|ledgers| ledgers.at(base.epoch));
                    candidate.next = Some(NextEpoch::of(&link.receipt, ledger));
                    self.ask_links(step, from, wanted, candidate);
                }
                Some(_) => self.ask_chain(step, from, target),
                None => self.note_failure(step, from),
            }
            return;
        }
        let fits = |link: &Link| link.receipt.series.parent == base.state;
        if candidate.entries.is_empty() && more.first().is_some_and(|link| !fits(link)) {
            match candidate.by_chain {
                // Its links contradict its chain.
                true => self.note_failure(step, from),
                false => self.ask_chain(step, from, target),
            }
            return;
        }
        for link in more {
            if let Err(fault) = self.verify_link(&mut candidate, link, reply.open.openings) {
                self.note_misleading(step, from, wanted.state);
                step.put(Output::Fault(from, fault));
                return;
            }
            if self.is_proof(step, reply, &candidate) {
                return;
            }
        }
        if candidate.entries.is_empty() {
            if target == self.head {
                step.lead(Lead::Openings(from, reply.openings.to_vec()));
            } else if target.epoch <= base.epoch && !candidate.by_chain {
                self.ask_chain(step, from, target);
            } else {
                self.note_misleading(step, from, wanted.state);
            }
            return;
        }
        self.on_verified(step, reply, candidate, more.is_empty());
    }

    /// Whether a lineage is verified only to prove that it exists, which its first link does; if
    /// so, reports it.
    fn is_proof(&mut self, step: &mut Step<'_>, reply: &Reply<'_>, candidate: &Candidate) -> bool {
        let Some(Entry { r, .. }) = candidate.entries.front().copied() else { return false };
        let Reply { from, wanted, head: target, .. } = *reply;
        let first_epoch = candidate.base.epoch.saturating_add(1);
        if let Some(mine) = candidate.diverged {
            self.report_diverged(step, from, mine, candidate.base.state);
            self.remember(wanted.state);
            self.ignore(from, wanted.state, Time(u64::MAX));
            self.note_failure(step, from);
            return true;
        }
        let claimed = self.claimed_after(step, &from, &target, candidate);
        if self.is_greater(&claimed) {
            return false;
        }
        self.note_claim(step, from, [&wanted, &target], claimed);
        let parted = self.entry(first_epoch).is_some_and(|mine| mine.r != r);
        // Both heads may have moved since the claim.
        if parted && self.state_after(target.epoch) != Some(target.state) {
            self.report_fork(step, first_epoch, target, 0);
        }
        self.remember(wanted.state);
        true
    }

    /// The tokens of the head come first: a lineage that does not lead there is not fetched to its
    /// end (G12).
    fn on_verified(
        &mut self,
        step: &mut Step<'_>,
        reply: &Reply<'_>,
        mut candidate: Candidate,
        is_end: bool,
    ) {
        let Reply { from, head: target, wanted, .. } = *reply;
        let (reached, tokens) = (candidate.reached(), candidate.tokens());
        let leads = (reached < target.epoch && tokens <= target.tokens && !is_end)
            || (reached, tokens) == (target.epoch, target.tokens);
        if !leads {
            self.note_misleading(step, from, wanted.state);
            step.put(Output::Fault(from, Fault::Answer(AnswerFault::HeadNotReached)));
            return;
        }
        if reached == target.epoch {
            candidate.end_at(target.state);
            return self.follow(step, reply, candidate);
        }
        if candidate.is_slow(step) && self.validator.keeps(Rule::G12) {
            return self.note_failure(step, from);
        }
        self.ask_links(step, from, wanted, candidate);
    }

    /// R16, R23, R24: follows a verified greater head.
    fn follow(&mut self, step: &mut Step<'_>, reply: &Reply<'_>, mut candidate: Candidate) {
        let Reply { from, head: target, open, .. } = *reply;
        let one_longer = target.epoch == self.head.epoch.saturating_add(1);
        // A peer that is two epochs behind does not wait for the update of the first one alone.
        let Open { decided, applying, .. } = open;
        let proven = self.proven(&target, &candidate);
        if !self.is_greater(&proven) {
            return self.note_claim(step, from, [&reply.wanted, &target], proven);
        }
        if applying || (decided && one_longer) {
            return;
        }
        let is_attested = proven.attested > self.attested();
        let skipped = self.skip_ours(&mut candidate);
        let Some(last) = candidate.entries.back().copied() else { return };
        if one_longer && candidate.is_regrouped && reply.majority && !is_attested {
            self.ignore(from, target.state, step.now + super::ASK_INTERVAL);
            return;
        }
        if self.is_outvoted(step, &target, &candidate) {
            self.ignore(from, target.state, step.now + step.table.grace);
            return;
        }
        if self.ignored.unserved.contains_key(&(target.state, last.r)) {
            return self.note_failure(step, from);
        }
        let undone = self.head.epoch.saturating_sub(candidate.base.epoch);
        if skipped > 0 && undone > self.config.undo_max {
            // We do not know which voters signed the first link beyond ours, so the lineage is
            // asked for anew.
            return;
        }
        if self.is_held(step, from, target, &candidate) {
            return;
        }
        self.note_useful(&from);
        let Candidate { base, entries, links, spent, admitting, .. } = candidate;
        let on_ours = base.epoch == self.head.epoch;
        let waited = self.ahead_since.is_some_and(|since| step.now >= since + LINK_WAIT);
        if let (1, Some(link), true, false) = (entries.len(), links.front(), on_ours, waited) {
            step.lead(Lead::Link(from, Box::new(link.clone())));
            return;
        }
        let mut way = Way::new(step, (from, target, proven), base, (entries, links), spent);
        way.admitting = admitting;
        self.begin(step, way);
    }

    /// Links prove receipts, and the state before each; the state after the last one is only
    /// claimed. It is not followed if more of its voters claim another one.
    fn is_outvoted(&self, step: &Step<'_>, target: &Head, candidate: &Candidate) -> bool {
        let voters = candidate.next.iter().flat_map(|next| &next.voters);
        let heads = voters.filter_map(|voter| step.table.peers.get(&voter.peer));
        let is_same = |head: &Head| (head.epoch, head.tokens) == (target.epoch, target.tokens);
        let same = heads.map(|seen| seen.beat.head).filter(is_same);
        let (for_it, against): (Vec<_>, Vec<_>) = same.partition(|head| head.state == target.state);
        against.len() > for_it.len()
    }
}

/// What came with an answer, and what the open epoch shows.
struct Reply<'a> {
    from: PeerId,
    head: Head,
    wanted: Head,
    openings: &'a [Opening],
    /// What the epoch machine shows of our open epoch.
    open: Open<'a>,
    /// Whether a majority of its voters is present (R24).
    majority: bool,
}
