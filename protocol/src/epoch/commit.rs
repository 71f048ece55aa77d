//! Commit: certificates, the wait for other copies, the outer step, the next epoch (R16–R18, R24,
//! R25, R34).

use std::sync::Arc;

use crate::blocks::Blocks;
use crate::event::Event;
use crate::fault::Fault;
use crate::id::{Digest, PeerId};
use crate::lineage::Me;
use crate::log::Record;
use crate::message::{Certificate, Commit, Done, Head, Link, Message, Receipt, Series};
use crate::output::{Apply, Output};
use crate::sign::Signature;
use crate::step::{Decision, Extension, Step};
use crate::wire;

use super::ballot::{RingState, Vote};
use super::term::{Decided, Progress, Stage};
use super::{Rule, State};

impl State {
    /// R16: Dones of a majority of voters for one roster are a certificate.
    pub(super) fn decide(&mut self, step: &Step<'_>) -> bool {
        // While a checkpoint is on its way the state must not move by another one.
        if self.behind || self.decided().is_some() {
            return false;
        }
        let certified = self.slot.ballots.iter().find(|(_, ballot)| {
            let here = ballot.roster.as_ref().is_some_and(|r| r.series == self.series());
            let enough = 2 * ballot.dones.len() >= self.voters().len();
            let Some(value) = ballot.value().filter(|_| enough && here) else { return false };
            let served =
                !self.slot.unserved.contains(&value.r) || self.slot.held.contains(&value.update);
            served && self.law.quorum.holds(self.voters(), |v| ballot.has_voted(&v.peer, value.r))
        });
        let Some((digest, ballot)) = certified else { return false };
        let (Some(roster), Some(vote)) = (&ballot.roster, ballot.value()) else { return false };
        let signatures = ballot.dones.iter().filter(|(p, v)| v.r == vote.r && self.names_voter(p));
        let dones = signatures.map(|(peer, vote)| (*peer, vote.signature)).collect();
        let link = Link {
            receipt: roster.receipt(vote.update),
            certificate: Certificate { roster: roster.as_ref().clone(), dones },
            openings: self.slot.openings.clone(),
        };
        let by_commit = self.slot.commit_heard == Some(*digest);
        self.take_link(step, link, by_commit);
        true
    }

    pub(super) fn names_voter(&self, peer: &PeerId) -> bool {
        self.voters().iter().any(|voter| voter.peer == *peer)
    }

    fn take_link(&mut self, step: &Step<'_>, link: Link, by_commit: bool) {
        let until = step.now + self.done_time(step);
        let ring_until = match self.slot.term.stage {
            // T_ring is three times what the ring needs, and a majority has ended: the others are close.
            Stage::Open { progress: Progress::Reduce, until, .. } => {
                step.now + until.since(step.now) / 8
            }
            _ => step.now,
        };
        let roster = wire::roster_digest(&self.law.run, &link.certificate.roster);
        let decided = Decided { link, roster, until, ring_until, since: step.now, by_commit };
        self.slot.term.asking = None;
        self.slot.term.fetch_after = step.now;
        // The ring may still be needed by others: it ends by itself, or with the next epoch.
        self.slot.term.stage = Stage::Decided(Box::new(decided));
    }

    /// R17, R25: applies what is decided once its bytes are held here and, where that can be had,
    /// elsewhere; gives up when nobody serves them.
    pub(super) fn conclude(&mut self, step: &mut Step<'_>) -> bool {
        let Stage::Decided(decided) = &self.slot.term.stage else { return false };
        let update = decided.link.receipt.update;
        if !self.slot.held.is_here(&update) {
            // To fetch beside a ring that is about to end would fill the lines that it needs.
            let ballot = self.slot.ballots.get(&decided.roster);
            if step.now < decided.ring_until && ballot.is_some_and(|b| b.ring == RingState::Running)
            {
                return false;
            }
            if step.now.since(decided.since) >= step.roll.grace {
                self.slot
                    .unserved
                    .insert(wire::receipt_digest(&self.law.run, &decided.link.receipt));
                self.recover(step, "update not served");
                return true;
            }
            let voted = decided.link.certificate.dones.iter().map(|(peer, _)| *peer);
            let mut from: Vec<PeerId> = voted.filter(|p| *p != self.me.peer).collect();
            from.sort_by_key(|peer| !step.roll.alive(peer, step.now));
            self.fetch(step, update, from);
            return false;
        }
        if step.now < decided.until && !self.copied(step, decided) {
            return false;
        }
        let Stage::Decided(decided) =
            std::mem::replace(&mut self.slot.term.stage, Stage::Idle { patience: None })
        else {
            return false;
        };
        self.apply(step, *decided);
        true
    }

    /// R17: whether every other live voter with a place in the ring has voted as well. Who has
    /// committed the epoch has voted, and repeats its vote no more.
    fn copied(&self, step: &Step<'_>, decided: &Decided) -> bool {
        let roster = &decided.link.certificate.roster;
        let has_place = roster.ring().any(|m| m.peer == self.me.peer);
        let committed = |peer: &PeerId| {
            step.roll
                .peers
                .get(peer)
                .is_some_and(|seen| seen.beat.head.epoch >= self.series().epoch)
        };
        let Some(ballot) = self.slot.ballots.get(&decided.roster) else { return true };
        !has_place
            || roster.ring().all(|m| {
                m.peer == self.me.peer
                    || ballot.dones.contains_key(&m.peer)
                    || committed(&m.peer)
                    || !step.roll.alive(&m.peer, step.now)
                    || !self.names_voter(&m.peer)
            })
    }

    fn apply(&mut self, step: &mut Step<'_>, decided: Decided) {
        let link = &decided.link;
        let law = &self.law;
        let (receipt, roster) = (&link.receipt, &link.certificate.roster);
        let running = self.slot.ballots.iter().filter(|(_, b)| b.ring == RingState::Running);
        running.for_each(|(digest, _)| step.put(Output::Abandon(*digest)));
        step.put(Output::Log(Record::Decided { link: Box::new(link.clone()) }));
        if !decided.by_commit {
            let Done { series, roster, r, update } = law.done(roster, receipt);
            let dones = link.certificate.dones.clone();
            let short = Commit::Short { series, roster, r, update, dones };
            step.put(Output::Gossip(self.seal(Message::Commit(short))));
        }
        let spent = self.spent(receipt);
        step.put(Output::Apply(Arc::new(Apply::of(&law.run, &self.slot.head, receipt, spent))));
        self.slot.term.stage = Stage::Applying(Box::new(decided));
    }

    /// R34: the blocks in which our frozen delta is.
    fn spent(&self, receipt: &Receipt) -> Blocks {
        let (law, Me { peer: me, incarnation, .. }) = (&self.law, &self.me);
        if self.keeps(Rule::R34) {
            return receipt.spent(me, *incarnation, law.elements);
        }
        let formed = receipt.member(me, *incarnation).is_some_and(|m| m.weight > 0);
        if formed { Blocks::all(law.elements) } else { Blocks::default() }
    }

    /// The outer step is taken: the epoch is committed, the next one begins.
    pub(super) fn on_applied(&mut self, step: &mut Step<'_>, state: Digest) {
        let stage = std::mem::replace(&mut self.slot.term.stage, Stage::Idle { patience: None });
        let Stage::Applying(decided) = stage else {
            self.slot.term.stage = stage;
            return;
        };
        let Decided { link, by_commit, .. } = *decided;
        let receipt = &link.receipt;
        let parent = receipt.series.parent == self.slot.head.state;
        assert!(parent, "S1: what is committed was decided for the state that it is applied to");
        let tokens = self.slot.head.tokens.saturating_add(receipt.tokens());
        let head = Head { epoch: receipt.series.epoch, tokens, state };
        if self.slot.frozen.is_some() && !receipt.spends(&self.me.peer, self.me.incarnation) {
            step.put(Output::Event(Event::LeftOut { epoch: head.epoch }));
        }
        let (voters, ledger) = self.after(receipt);
        let voters = if self.keeps(Rule::R18) { voters } else { link.certificate.roster.voters() };
        self.take_ledger(step, ledger);
        self.limit_weight(receipt.median_weight());
        let link = Box::new(link);
        step.out.push(Decision::Extend(Extension { head, link, by_commit }));
        self.enter(step, head, voters);
    }

    pub(super) fn on_commit(&mut self, step: &mut Step<'_>, from: PeerId, commit: &Commit) {
        match commit {
            Commit::Whole(link) => self.on_link(step, from, link.as_ref().clone()),
            Commit::Short { series, roster, r, update, dones } => {
                let done = Done { series: *series, roster: *roster, r: *r, update: *update };
                self.on_short_commit(step, from, done, dones);
            }
        }
    }

    /// Adds the votes that we lack, each verified.
    fn on_short_commit(
        &mut self,
        step: &mut Step<'_>,
        from: PeerId,
        done: Done,
        dones: &[(PeerId, Signature)],
    ) {
        if done.series != self.series() || self.decided().is_some() {
            return;
        }
        let digest = done.roster;
        let run = self.law.run;
        let Some(ballot) = self.slot.ballots.get(&digest) else { return };
        let Some(roster) = &ballot.roster else { return };
        let consistent = wire::receipt_digest(&run, &roster.receipt(done.update)) == done.r
            && dones.len() <= self.voters().len();
        let new: Vec<_> = dones
            .iter()
            .filter(|(peer, _)| self.names_voter(peer) && !ballot.dones.contains_key(peer))
            .copied()
            .collect();
        let message = Message::Done(done.clone());
        let signed = new.iter().all(|(peer, s)| self.law.signed(peer, &message, s));
        if !consistent || !signed {
            step.put(Output::Fault(from, Fault::Certificate("votes that do not verify")));
            return;
        }
        if new.is_empty() {
            return;
        }
        self.slot.commit_heard = Some(digest);
        let vote = |signature| Vote { r: done.r, update: done.update, signature };
        let votes = new.into_iter().map(|(peer, signature)| (peer, vote(signature)));
        self.ballot(digest).dones.extend(votes);
    }

    /// R16, R24: a whole proof of this epoch's result, in our series or another one.
    pub(super) fn on_link(&mut self, step: &mut Step<'_>, from: PeerId, link: Link) {
        let base = Series { regroup: None, ..self.series() };
        if self.behind || self.decided().is_some() || !link.receipt.series.is_beside(&self.series())
        {
            return;
        }
        let before = (self.slot.base.as_slice(), self.ledger());
        if let Err(fault) = self.law.check_link(base, before, self.weight_max, &link) {
            step.put(Output::Fault(from, fault));
            return;
        }
        let ours = |opening| self.slot.chain.contains(&self.law.opened(opening));
        if !link.openings.iter().all(ours) && self.majority_present(step) {
            return;
        }
        self.abort(step, "decided elsewhere");
        self.take_link(step, link, true);
    }
}
