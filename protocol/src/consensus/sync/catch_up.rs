//! Catching up: the one open question about a greater head, and what its answer leads to.
//!
//! One question is open at a time, and its answer decides the next one. [`Candidate`] checks the
//! links and [`Path`] holds what is verified; what is fetched and applied is in `apply`.

use std::time::Duration;

use crate::base::fault::{AnswerFault, Fault};
use crate::base::id::{Digest, PeerId};
use crate::base::rule::Rule;
use crate::base::time::Time;
use crate::machine::output::Output;
use crate::machine::step::{Lead, Step};
use crate::message::{Answer, Ask, CHAIN_MAX, ChainLink, Link, Opening, Rank};

use super::State;
use super::candidate::Candidate;
use super::interface::Open;
use super::lineage::{Entry, NextEpoch};
use super::path::Path;
use super::requests::{ASK_INTERVAL, Claim};

/// What is being asked or fetched about a lineage.
#[derive(Clone, Debug)]
pub(super) enum CatchUp {
    /// The links from a common epoch to a claimed head.
    Lineage(Box<Candidate>),
    /// The chain that shows where a lineage parts from ours, from this epoch on.
    Chain(Claim, u64),
    /// The links of a verified lineage that are no longer in memory, from the peer that was asked
    /// for them.
    Copy(PeerId, Path),
    /// The updates that lead to a verified head.
    Replay(Path),
    /// The checkpoint of a verified head.
    Load(Path),
}

/// A proof that led to no commit for this long is followed by its checkpoint; guess.
const LINK_WAIT: Duration = Duration::from_secs(6);

/// Answers that one question may take: a million links. A lineage that never fits ends here.
const ROUNDS_MAX: u32 = 16_384;

/// What came with an answer, and what the open epoch shows.
struct Reply<'a> {
    /// The head that its author has now.
    now: Claim,
    /// What it answered, which is not verified yet.
    links: &'a [Link],
    openings: &'a [Opening],
    /// What the epoch machine shows of our open epoch.
    open: Open<'a>,
    /// Whether a majority of its voters is present (R24).
    majority: bool,
}

impl State {
    /// Asks for the links of a lineage that follows on an epoch of ours.
    pub(super) fn ask_lineage(&mut self, step: &mut Step<'_>, epoch: u64, claim: Claim) {
        if let Some(candidate) = Candidate::after(step, &self.ours, epoch, claim) {
            self.ask_candidate(step, candidate);
        }
    }

    /// Asks the peer of a new candidate, and notes when.
    fn ask_candidate(&mut self, step: &mut Step<'_>, candidate: Candidate) {
        self.requests.note(step, candidate.claim.peer);
        self.ask_links(step, candidate);
    }

    /// Asks for the links after those that are verified.
    fn ask_links(&mut self, step: &mut Step<'_>, candidate: Candidate) {
        let from_epoch = candidate.reached().saturating_add(u64::from(candidate.next.is_some()));
        step.put(Output::Ask(candidate.claim.peer, Ask::Lineage { from_epoch }));
        self.catch_up = Some(CatchUp::Lineage(Box::new(candidate)));
    }

    /// Asks for the chain of a lineage whose links do not fit on ours, to find where it parts.
    pub(super) fn ask_chain(&mut self, step: &mut Step<'_>, claim: Claim) {
        self.ask_chain_before(step, claim, self.ours.head.epoch.min(claim.head.epoch));
    }

    /// Asks for the chain from half of its length before an epoch on.
    fn ask_chain_before(&mut self, step: &mut Step<'_>, claim: Claim, epoch: u64) {
        let from_epoch = epoch.saturating_sub(CHAIN_MAX as u64 / 2).max(1);
        self.requests.note(step, claim.peer);
        self.catch_up = Some(CatchUp::Chain(claim, from_epoch));
        step.put(Output::Ask(claim.peer, Ask::Chain { from_epoch }));
    }

    /// Takes an answer to the open question; any other answer is ignored. `None` is a peer that did
    /// not answer in time.
    pub(super) fn on_answer(
        &mut self,
        step: &mut Step<'_>,
        open: Open<'_>,
        from: PeerId,
        answer: Option<&Answer>,
        majority: bool,
    ) {
        let asked = match &self.catch_up {
            Some(CatchUp::Lineage(candidate)) => Some(candidate.claim.peer),
            Some(CatchUp::Chain(Claim { peer, .. }, _) | CatchUp::Copy(peer, _)) => Some(*peer),
            Some(CatchUp::Replay(_) | CatchUp::Load(_)) | None => None,
        };
        if asked != Some(from) {
            return;
        }
        self.rounds += 1;
        let answer = if self.rounds <= ROUNDS_MAX { answer } else { None };
        match (self.catch_up.take(), answer) {
            (
                Some(CatchUp::Lineage(candidate)),
                Some(Answer::Lineage { links, head, openings }),
            ) => {
                let now = Claim { peer: from, head: *head };
                let greater = |claim| self.ours.is_greater(&self.ours.claimed_in(step, claim));
                if greater(candidate.claim) && !greater(now) {
                    // It has claimed a head that it does not have.
                    self.requests.note_failure(step, from);
                }
                self.on_lineage(step, &Reply { now, links, openings, open, majority }, *candidate);
            }
            (Some(CatchUp::Chain(claim, from_epoch)), Some(Answer::Chain(chain))) => {
                self.on_chain(step, claim, from_epoch, chain);
            }
            (Some(CatchUp::Copy(_, mut path)), answer) => {
                let links = match answer {
                    Some(Answer::Lineage { links, .. }) => links.as_slice(),
                    _ => &[],
                };
                if !path.copy(step, &self.ours, links) {
                    self.requests.note_failure(step, from);
                }
                self.copy(step, path);
            }
            (_, Some(_)) => {
                self.requests.note_failure(step, from);
                step.put(Output::Fault(from, Fault::Answer(AnswerFault::OtherQuestion)));
            }
            // R25: its head may be a lie, or it has died; others may have the head too.
            (_, None) => self.requests.note_failure(step, from),
        }
    }

    /// Takes links. The first answer may only bring the link of the base, or show that the lineage
    /// parts before it; else each link is checked and added.
    fn on_lineage(&mut self, step: &mut Step<'_>, reply: &Reply<'_>, mut candidate: Candidate) {
        let Reply { now, links, .. } = *reply;
        let (claim, base) = (candidate.claim, candidate.base);
        if candidate.next.is_none() {
            let is_base = |link: &&Link| link.receipt.series.epoch == base.epoch;
            match links.first().filter(is_base) {
                Some(link) if self.ours.has(&link.receipt) => {
                    let ledger = self.ours.ledger_at(base.epoch);
                    candidate.next = Some(NextEpoch::of(&link.receipt, ledger));
                    self.ask_links(step, candidate);
                }
                Some(_) => self.on_other_lineage(step, now, candidate.by_chain),
                None => self.requests.note_failure(step, claim.peer),
            }
            return;
        }
        let fits = |link: &Link| link.receipt.series.parent == base.state;
        if links.first().is_some_and(|link| candidate.entries.is_empty() && !fits(link)) {
            return self.on_other_lineage(step, now, candidate.by_chain);
        }
        // Between two answers their author may have withdrawn from that lineage (R23), which is no fault of it.
        let goes_on = !candidate.entries.is_empty();
        for (at, link) in links.iter().enumerate() {
            if let Err(fault) = candidate.add(&self.ours, link, reply.open) {
                self.requests.note_misleading(step, claim);
                if !goes_on || at > 0 {
                    step.put(Output::Fault(claim.peer, fault));
                }
                return;
            }
            if at == 0 && !goes_on {
                self.forks.name_liars(step, &self.ours, link);
            }
            if self.is_proof(step, now, &candidate) {
                return;
            }
        }
        if !candidate.entries.is_empty() {
            self.on_verified(step, reply, candidate, goes_on);
        } else if now.head == self.ours.head {
            step.lead(Lead::Openings(claim.peer, reply.openings.to_vec()));
        } else if now.head.epoch <= base.epoch && !candidate.by_chain {
            self.ask_chain(step, now);
        } else {
            self.requests.note_misleading(step, claim);
        }
    }

    /// Links do not fit on ours. The chain shows where the lineages part; links that contradict the chain
    /// of their own author are a failure, or it could go round between the two questions.
    fn on_other_lineage(&mut self, step: &mut Step<'_>, now: Claim, by_chain: bool) {
        match by_chain {
            true => self.requests.note_failure(step, now.peer),
            false => self.ask_chain(step, now),
        }
    }

    /// Whether a lineage is verified only to prove that it exists, which its first link does; if
    /// so, reports it.
    fn is_proof(&mut self, step: &mut Step<'_>, now: Claim, candidate: &Candidate) -> bool {
        let Some(Entry { r, .. }) = candidate.entries.front().copied() else { return false };
        let claim = candidate.claim;
        if let Some(mine) = candidate.diverged {
            self.forks.note_diverged(step, claim.peer, [mine, candidate.base.state]);
            self.forks.remember(claim.head.state);
            self.requests.refuse(step, claim);
            return true;
        }
        let claimed = self.ours.claimed_with(step, now, candidate);
        if self.ours.is_greater(&claimed) {
            return false;
        }
        self.note_claims(step, [claim, now], claimed);
        let first_epoch = candidate.base.epoch.saturating_add(1);
        let parted = self.ours.entry(first_epoch).is_some_and(|mine| mine.r != r);
        // Both heads may have moved since the claim.
        if parted && self.ours.state_after(now.head.epoch) != Some(now.head.state) {
            self.forks.report(step, first_epoch, [self.ours.head, now.head], 0);
        }
        self.forks.remember(claim.head.state);
        true
    }

    /// The tokens of the head come first: a lineage that does not lead there is not fetched to its
    /// end (G12). If it goes on from an earlier answer, the head may have moved since.
    fn on_verified(
        &mut self,
        step: &mut Step<'_>,
        reply: &Reply<'_>,
        mut candidate: Candidate,
        goes_on: bool,
    ) {
        let (claim, target) = (candidate.claim, reply.now.head);
        let (reached, tokens) = (candidate.reached(), candidate.tokens());
        let leads = (reached < target.epoch && tokens <= target.tokens && !reply.links.is_empty())
            || (reached, tokens) == (target.epoch, target.tokens);
        if !leads {
            self.requests.note_misleading(step, claim);
            if !goes_on {
                step.put(Output::Fault(claim.peer, Fault::Answer(AnswerFault::HeadNotReached)));
            }
        } else if reached == target.epoch {
            candidate.end_at(target.state);
            self.follow(step, reply, candidate);
        } else if candidate.is_slow(step) && self.ours.keeps(Rule::G12) {
            self.requests.note_failure(step, claim.peer);
        } else {
            self.ask_links(step, candidate);
        }
    }

    /// R16, R23, R24: follows a verified greater head. It waits if the open epoch is about to give
    /// the same head, and leaves a head that a person has to decide about.
    fn follow(&mut self, step: &mut Step<'_>, reply: &Reply<'_>, mut candidate: Candidate) {
        let Reply { now, open, .. } = *reply;
        let Claim { peer, head: target } = now;
        let wanted = std::mem::replace(&mut candidate.claim, now);
        let one_longer = target.epoch == self.ours.head.epoch.saturating_add(1);
        let proven = self.ours.proven_by(&candidate);
        if !self.ours.is_greater(&proven) {
            return self.note_claims(step, [wanted, now], proven);
        }
        // A peer that is two epochs behind does not wait for the update of the first one alone.
        if open.applying || (open.decided && one_longer) {
            return;
        }
        let is_attested = proven.attested > self.ours.attested();
        let skipped = candidate.skip_ours(&self.ours);
        let Some(last) = candidate.entries.back().copied() else { return };
        if one_longer && candidate.is_regrouped && reply.majority && !is_attested {
            return self.requests.ignore(now, step.now + ASK_INTERVAL);
        }
        if candidate.is_outvoted(step, &target) {
            return self.requests.ignore(now, step.now + step.table.grace);
        }
        if self.requests.is_unserved(target.state, last.r) {
            return self.requests.note_failure(step, peer);
        }
        let undone = self.ours.head.epoch.saturating_sub(candidate.base.epoch);
        if skipped > 0 && undone > self.forks.undo_max {
            // We do not know which voters signed the first link beyond ours, so the lineage is
            // asked for anew.
            return;
        }
        if self.forks.holds(step, &self.ours, &candidate) {
            return self.requests.refuse(step, now);
        }
        self.requests.note_useful(&peer);
        let on_ours = candidate.base.epoch == self.ours.head.epoch;
        let waited = self.ahead_since.is_some_and(|since| step.now >= since + LINK_WAIT);
        match candidate.links.front() {
            Some(link) if candidate.entries.len() == 1 && on_ours && !waited => {
                step.lead(Lead::Link(peer, Box::new(link.clone())));
            }
            _ => self.begin(step, Path::new(step, candidate, proven)),
        }
    }

    /// Refuses a peer's heads if it has claimed an attestation that they do not lie on.
    fn note_claims(&mut self, step: &Step<'_>, claims: [Claim; 2], proven: Rank) {
        let claimed = |claim| self.ours.claimed_in(step, claim).attested;
        if claims.iter().any(|claim| claimed(*claim) > proven.attested) {
            self.requests.ignore(claims[0], Time(u64::MAX));
            self.requests.refuse(step, claims[1]);
        }
    }

    /// R26: finds the first epoch in which two chains differ.
    fn on_chain(&mut self, step: &mut Step<'_>, claim: Claim, from: u64, chain: &[ChainLink]) {
        let Claim { peer, head } = claim;
        let in_order = chain.iter().zip(from..).all(|(link, at)| link.epoch == at);
        if !in_order {
            self.requests.note_misleading(step, claim);
            return step.put(Output::Fault(peer, Fault::Answer(AnswerFault::ChainOrder)));
        }
        let parted = chain.iter().find(|l| self.ours.state_after(l.epoch) != Some(l.state));
        let Some(ChainLink { epoch: first_epoch, state, r }) = parted.copied() else {
            // Its author follows our lineage again.
            if self.ours.is_greater(&self.ours.claimed_in(step, claim)) {
                self.requests.note_misleading(step, claim);
            }
            return self.forks.note_withdrawn(step, &self.ours, claim);
        };
        if first_epoch == from && from > 1 {
            return self.ask_chain_before(step, claim, from);
        }
        let mine = self.ours.entry(first_epoch);
        if let Some(mine) = mine.filter(|mine| mine.r == r) {
            return self.on_diverged(step, claim, first_epoch, [mine.state, state]);
        }
        let held = self.forks.is_held(&r, head.epoch) && self.ours.keeps(Rule::G11);
        if held && !self.forks.follows(&head.state) {
            return self.requests.refuse(step, claim);
        }
        let claimed = self.ours.claimed_on(step, claim, first_epoch, chain);
        let exceeds = self.ours.is_greater(&claimed);
        // If not, its author has changed its lineage since its claim, and its next head will show
        // where.
        let parts = mine.is_some() && self.ours.state_after(head.epoch) != Some(head.state);
        self.note_claims(step, [claim, claim], claimed);
        let base = first_epoch.saturating_sub(1);
        if (exceeds || parts)
            && let Some(mut candidate) = Candidate::after(step, &self.ours, base, claim)
        {
            candidate.by_chain = true;
            self.ask_candidate(step, candidate);
        }
    }

    /// The receipts are equal, and the states after them differ. If links follow on the other
    /// state, the voters that have it signed them. For a last state only its author can speak, if
    /// the receipt names it.
    fn on_diverged(&mut self, step: &mut Step<'_>, claim: Claim, epoch: u64, states: [Digest; 2]) {
        let pairs = self.ours.keeps(Rule::G12);
        if epoch < claim.head.epoch && pairs {
            let Some(mut candidate) = Candidate::after(step, &self.ours, epoch, claim) else {
                return;
            };
            (candidate.by_chain, candidate.diverged) = (true, Some(states[0]));
            candidate.base.state = states[1];
            return self.ask_candidate(step, candidate);
        }
        let is_last = (epoch, states[1]) == (claim.head.epoch, claim.head.state);
        if (is_last && self.ours.names(epoch, &claim.peer)) || !pairs {
            self.forks.note_diverged(step, claim.peer, states);
        }
        self.forks.remember(claim.head.state);
        self.requests.ignore(claim, Time(u64::MAX));
    }
}
