//! From an accepted roster to the next epoch: Accepts, the ring, the vote; certificates, the wait
//! for other copies, the outer step (R5, R6, R11, R16–R18, R24, R25, R34).

use std::sync::Arc;

use crate::base::blocks::Blocks;
use crate::base::fault::{CertificateFault, DoneFault, Fault};
use crate::base::id::{Digest, PeerId};
use crate::base::rule::Rule;
use crate::base::sign::{Signature, Verified};
use crate::base::time::Time;
use crate::history::lineage::LocalPeer;
use crate::history::log::Record;
use crate::machine::event::{Event, Progress, Reason};
use crate::machine::output::{Apply, Output, Ring};
use crate::machine::step::{Decision, Extension, Step};
use crate::message::wire;
use crate::message::{
    Accept, Certificate, Commit, Done, Head, Link, MEMBERS_MAX, Message, Receipt, Series, Voted,
    Voter,
};
use crate::ring::Layout;

use super::ballot::{Ballot, RingState, Vote};
use super::conduct::Amends;
use super::series::{Decided, Reply, Stage};
use super::timers::Timer;
use super::{Durability, Facts, State, roster, timers};

impl State {
    /// R16: Dones of a majority of voters for one roster are a certificate.
    pub(super) fn decide(&mut self, step: &Step<'_>) -> bool {
        // While a checkpoint is on its way, nothing else may move the state.
        if self.behind || self.decided().is_some() {
            return false;
        }
        let certified = self.slot.ballots.iter().find(|(_, ballot)| {
            let here = ballot.roster.as_ref().is_some_and(|r| r.series == self.series());
            let enough = 2 * ballot.dones.len() >= self.voters().len();
            let Some(value) = ballot.value() else { return false };
            let served = !self.slot.unserved.contains(&value.r)
                || self.slot.updates.is_flushed(&value.update);
            here && enough
                && served
                && self
                    .validator
                    .quorum
                    .holds(self.voters(), |v| ballot.has_voted(&v.peer, value.r))
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

    fn take_link(&mut self, step: &Step<'_>, link: Link, by_commit: bool) {
        let until = step.now + self.facts(step).done_time();
        let ring_until = match self.slot.series.stage {
            // T_ring is three times what the ring needs, and a majority has ended: the others are
            // close.
            Stage::Open { progress: Progress::Reduce, until, .. } => {
                step.now + until.since(step.now) / 8
            }
            _ => step.now,
        };
        let roster = wire::roster_digest(&self.validator.run, &link.certificate.roster);
        let decided = Decided { link, roster, until, ring_until, since: step.now, by_commit };
        self.slot.series.asking = None;
        self.slot.series.fetch_after = step.now;
        // Others may still need the ring: it ends by itself, or with the next epoch.
        self.slot.series.stage = Stage::Decided(Box::new(decided));
    }

    /// R17, R25: applies what is decided once its bytes are stored here and, if that is possible,
    /// elsewhere. Gives up if no peer serves them.
    pub(super) fn conclude(&mut self, step: &mut Step<'_>) -> bool {
        let Stage::Decided(decided) = &self.slot.series.stage else { return false };
        let update = decided.link.receipt.update;
        if !self.slot.updates.is_stored(&update) {
            // A fetch beside a ring that is about to end would take the bandwidth that the ring
            // needs.
            let ballot = self.slot.ballots.get(&decided.roster);
            if !timers::is_over(self.facts(step), Timer::Ring)
                && ballot.is_some_and(|b| b.ring == RingState::Running)
            {
                return false;
            }
            if step.now.since(decided.since) >= step.table.grace {
                let r = wire::receipt_digest(&self.validator.run, &decided.link.receipt);
                self.slot.unserved.insert(r);
                self.recover(step, Reason::UpdateUnserved);
                return true;
            }
            let voted = decided.link.certificate.dones.iter().map(|(peer, _)| *peer);
            let mut from: Vec<PeerId> = voted.filter(|p| *p != self.me.peer).collect();
            from.sort_by_key(|peer| !step.table.alive(peer, step.now));
            self.fetch(step, update, from);
            return false;
        }
        if !timers::is_over(self.facts(step), Timer::Stage) && !copied(self.facts(step), decided) {
            return false;
        }
        let Stage::Decided(decided) =
            std::mem::replace(&mut self.slot.series.stage, Stage::Idle { patience: None })
        else {
            return false;
        };
        self.apply(step, *decided);
        true
    }

    fn apply(&mut self, step: &mut Step<'_>, decided: Decided) {
        let link = &decided.link;
        let validator = &self.validator;
        let (receipt, roster) = (&link.receipt, &link.certificate.roster);
        let running = self.slot.ballots.iter().filter(|(_, b)| b.ring == RingState::Running);
        running.for_each(|(digest, _)| step.put(Output::Abandon(*digest)));
        step.put(Output::Log(Record::Decided { link: Box::new(link.clone()) }));
        if !decided.by_commit {
            let Done { series, roster, r, update } = validator.done(roster, receipt);
            let dones = link.certificate.dones.clone();
            let short = Commit::Short { series, roster, r, update, dones };
            step.put(Output::Gossip(self.seal(Message::Commit(short))));
        }
        let spent = spent(self.facts(step), receipt);
        step.put(Output::Apply(Arc::new(Apply::of(
            &validator.run,
            &self.slot.head,
            receipt,
            spent,
        ))));
        self.slot.series.stage = Stage::Applying(Box::new(decided));
    }

    /// The outer step is taken: the epoch is committed, and the next one begins.
    pub(super) fn on_applied(&mut self, step: &mut Step<'_>, state: Digest) {
        let stage = std::mem::replace(&mut self.slot.series.stage, Stage::Idle { patience: None });
        let Stage::Applying(decided) = stage else {
            self.slot.series.stage = stage;
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
        let run = self.validator.run;
        let Some(ballot) = self.slot.ballots.get(&digest) else { return };
        let Some(roster) = &ballot.roster else { return };
        let consistent = wire::receipt_digest(&run, &roster.receipt(done.update)) == done.r
            && dones.len() <= self.voters().len();
        let is_new = |peer| self.names_voter(peer) && !ballot.dones.contains_key(peer);
        let new: Vec<_> = dones.iter().filter(|(peer, _)| is_new(peer)).copied().collect();
        let message = Message::Done(done.clone());
        let signed = new.iter().all(|(peer, s)| self.validator.signed(peer, &message, s));
        if !consistent || !signed {
            step.put(Output::Fault(from, Fault::Certificate(CertificateFault::UnsignedVotes)));
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

    /// R16, R24: takes a whole proof of this epoch's result, in our series or another one.
    pub(super) fn on_link(&mut self, step: &mut Step<'_>, from: PeerId, link: Link) {
        let base = Series { regroup: None, ..self.series() };
        if self.behind || self.decided().is_some() || !link.receipt.series.is_beside(&self.series())
        {
            return;
        }
        let (voters, ledger) = (self.slot.base.as_slice(), self.ledger());
        if let Err(fault) = self.validator.check_link(base, voters, ledger, self.weight_max, &link)
        {
            step.put(Output::Fault(from, fault));
            return;
        }
        let ours = |opening| self.slot.chain.contains(&self.validator.opened(opening));
        if !link.openings.iter().all(ours) && self.facts(step).has_majority() {
            return;
        }
        self.abort(step, Reason::DecidedElsewhere);
        self.take_link(step, link, true);
    }

    pub(super) fn fetch(&mut self, step: &mut Step<'_>, update: Digest, from: Vec<PeerId>) {
        if self.slot.series.fetching == Some(update)
            || !timers::is_over(self.facts(step), Timer::Fetch)
            || from.is_empty()
        {
            return;
        }
        self.slot.series.fetching = Some(update);
        step.put(Output::FetchUpdate(update, from));
    }

    pub(super) fn on_update_held(&mut self, update: Digest, durability: Durability) {
        self.slot.updates.insert(update, durability);
        self.slot.series.fetching = self.slot.series.fetching.filter(|other| *other != update);
    }

    pub(super) fn on_update_missing(&mut self, step: &Step<'_>, update: Digest) {
        self.slot.updates.remove(&update);
        self.slot.series.fetching = self.slot.series.fetching.filter(|other| *other != update);
        self.slot.series.fetch_after = step.now + self.facts(step).repeat_interval();
    }

    pub(super) fn on_ring_finished(&mut self, roster: Digest, update: Digest) {
        self.slot.updates.insert(update, Durability::Flushed);
        if let Some(ballot) = self.slot.ballots.get_mut(&roster) {
            ballot.computed = Some(update);
            ballot.ring = RingState::Closed;
        }
    }

    pub(super) fn on_accept(
        &mut self,
        step: &mut Step<'_>,
        message: &Verified<Message>,
        accept: &Accept,
    ) {
        let (from, digest) = (message.author(), accept.roster);
        self.conduct.clear(&from, Amends::Accept);
        let Some(ballot) = self.slot.ballot_voted_on(&self.me.peer, digest) else { return };
        let room = ballot.accepts.len() < MEMBERS_MAX;
        let repeated = room && ballot.accepts.insert(from, message.signature()).is_some();
        let Some(roster) = ballot.roster.clone() else { return };
        if !repeated && self.slot.has_accepted_another(&from, digest) {
            step.put(Output::Fault(from, Fault::Done(DoneFault::AcceptsTwo)));
        }
        let accepted = self.votes.of(self.series()).accepted(roster.attempt);
        let mine = accepted == Some(digest) && roster::stands_by(self.facts(step), &roster);
        if repeated && mine && self.may_reply(step, from, Reply::Accept) {
            step.put(Output::Send(from, self.accept_message(digest)));
        }
    }

    /// R11: takes a vote; one roster has one value.
    pub(super) fn on_done(
        &mut self,
        step: &mut Step<'_>,
        message: &Verified<Message>,
        done: &Done,
    ) {
        let from = message.author();
        let run = self.validator.run;
        self.conduct.clear(&from, Amends::Reply);
        let Some(ballot) = self.slot.ballot_voted_on(&self.me.peer, done.roster) else { return };
        // Every stored vote on a roster that is known has been found to fit it.
        let fits = |vote: &Vote| vote.update == done.update && vote.r == done.r;
        if let Some(roster) = &ballot.roster
            && !ballot.dones.values().any(fits)
        {
            let receipt = roster.receipt(done.update);
            if wire::receipt_digest(&run, &receipt) != done.r || receipt.update != done.update {
                step.put(Output::Fault(from, Fault::Done(DoneFault::OtherValue)));
                return;
            }
        }
        // Two voters that differ prove nothing against either: the value that has the majority
        // stands.
        if ballot.dones.get(&from).is_some_and(|other| other.r != done.r) {
            step.put(Output::Fault(from, Fault::Done(DoneFault::TwoValues)));
            return;
        }
        let vote = Vote { r: done.r, update: done.update, signature: message.signature() };
        let room = ballot.dones.len() < MEMBERS_MAX;
        let repeated = room && ballot.dones.insert(from, vote).is_some();
        let me = self.me.peer;
        let voted = self.slot.ballots.get(&done.roster).is_some_and(|b| b.dones.contains_key(&me));
        if repeated && voted && self.may_reply(step, from, Reply::Done) {
            step.put(Output::Send(from, self.seal(Message::Done(done.clone()))));
        }
    }

    /// Moves the accepted roster on: Accepts complete, update stored, vote due.
    pub(super) fn settle(&mut self, step: &mut Step<'_>) -> bool {
        match self.slot.series.stage {
            Stage::Open { roster, progress, until } => match progress {
                Progress::Accepted => self.settle_accepted(step, roster),
                Progress::Reduce => self.settle_reduce(step, roster, until),
                Progress::Finished => self.vote(step, roster),
            },
            // R17: the members with a position in its ring wait for our vote.
            Stage::Decided(ref decided) => {
                let (digest, update) = (decided.roster, decided.link.receipt.update);
                self.slot.updates.is_flushed(&update)
                    && self.slot.value(self.validator.quorum, digest) == Some(update)
                    && self.vote(step, digest)
            }
            _ => false,
        }
    }

    /// R5: the ring opens when every member with a position has accepted.
    fn settle_accepted(&mut self, step: &mut Step<'_>, digest: Digest) -> bool {
        let Some(roster) = self.slot.roster(&digest).cloned() else { return false };
        let all = self.slot.ballots.get(&digest).is_some_and(|ballot| {
            !roster.is_free() || roster.ring().all(|m| ballot.accepts.contains_key(&m.peer))
        });
        if !all {
            return false;
        }
        let until = step.now + self.facts(step).ring_time(&roster);
        self.slot.series.stage = Stage::Open { roster: digest, progress: Progress::Reduce, until };
        let index = roster.ring().position(|m| m.peer == self.me.peer);
        let layout =
            if roster.is_free() { Layout::of(&roster, self.validator.elements) } else { None };
        if let (Some(layout), Some(index)) = (layout, index) {
            let (members, keep) = (roster.ring().copied().collect(), roster.keep.clone());
            let kept = keep.iter().fold(Blocks::default(), |all, keep| all.and(&keep.blocks()));
            let all = kept.and(layout.redone()) == Blocks::all(self.validator.elements);
            assert!(all && !kept.overlaps(layout.redone()), "D3: each block once");
            let ring = Ring { roster: digest, members, index, layout, keep };
            step.put(Output::Ring(Arc::new(ring)));
            self.ballot(digest).ring = RingState::Running;
        }
        true
    }

    /// R6: a peer that has no ring, or lost it, fetches what others computed.
    fn settle_reduce(&mut self, step: &mut Step<'_>, digest: Digest, until: Time) -> bool {
        let Some(update) = self.slot.value(self.validator.quorum, digest) else { return false };
        if self.slot.updates.is_flushed(&update) {
            // The first to finish waits for peers that still compute or fetch, for as long as they
            // may: a higher attempt would end what they are about to finish.
            let until = until.max(step.now + self.facts(step).done_time());
            self.slot.series.stage =
                Stage::Open { roster: digest, progress: Progress::Finished, until };
            return true;
        }
        let runs = |ballot: &Ballot| ballot.ring == RingState::Running;
        if !self.slot.ballots.get(&digest).is_some_and(runs) {
            let holders = self.slot.holders(self.me.peer, update);
            self.fetch(step, update, holders);
        }
        false
    }

    /// R5: votes when (a) the ground of the vote is here, (b) the update is flushed, (c) nothing
    /// higher is promised.
    fn vote(&mut self, step: &mut Step<'_>, digest: Digest) -> bool {
        let Some(roster) = self.slot.roster(&digest).cloned() else { return false };
        let Some(ballot) = self.slot.ballots.get(&digest) else { return false };
        let (me, bound) = (self.me.peer, self.votes.of(self.series()));
        // R20: a vote from before a restart is sent again.
        let logged = bound.done(roster.attempt).is_some();
        let bound_to_it = bound.accepted(roster.attempt) == Some(digest);
        let free = bound.promised() <= roster.attempt;
        if ballot.dones.contains_key(&me) || !(self.is_voter() && bound_to_it && free) {
            return false;
        }
        let Some(update) = self.slot.value(self.validator.quorum, digest) else { return false };
        if !(logged || self.is_grounded(step, digest, update)) {
            return false;
        }
        let receipt = roster.receipt(update);
        let done = self.validator.done(&roster, &receipt);
        let (r, message) = (done.r, self.seal(Message::Done(done)));
        let vote = Vote { r, update, signature: message.signature() };
        let (series, attempt) = (roster.series, roster.attempt);
        if !logged {
            let Some(ballot) = self.slot.ballots.get(&digest) else { return false };
            let accepts = ballot.ground(self.validator.quorum, self.voters(), update);
            let roster = roster.as_ref().clone();
            let voted = Voted { depth: self.slot.depth(), roster, update, accepts };
            self.slot.grounds.insert(wire::ranked(&self.validator.run, &voted), voted.clone());
            self.log(step, Record::Voted { voted: Box::new(voted) });
        }
        let logged = self.votes.of(series).done(attempt).is_some();
        assert!(logged, "R1: a vote is logged before it counts");
        self.ballot(digest).dones.insert(me, vote);
        step.put(Output::Gossip(message));
        true
    }

    /// R5: whether the ground of a vote for this value is here: a quorum accepted the roster or, if
    /// a third may lie and the roster is free, says that it holds the update. We say so ourselves
    /// first, once.
    fn is_grounded(&mut self, step: &mut Step<'_>, digest: Digest, update: Digest) -> bool {
        let Some(roster) = self.slot.roster(&digest).cloned() else { return false };
        if self.validator.quorum.prepares() && roster.is_free() {
            self.prepare(step, digest, &roster, update);
            let ballot = self.slot.ballots.get(&digest);
            return ballot
                .is_some_and(|b| b.is_prepared(self.validator.quorum, self.voters(), &update));
        }
        let Some(ballot) = self.slot.ballots.get(&digest) else { return false };
        let accepted = |v: &Voter| {
            ballot.accepts.contains_key(&v.peer) && roster.members.iter().any(|m| m.voter() == *v)
        };
        self.validator.quorum.holds(self.voters(), accepted) || !self.keeps(Rule::R5)
    }
}

/// R17: whether every other live voter with a ring position has voted as well. A voter that has
/// committed the epoch has voted, and no longer repeats its vote.
fn copied(facts: Facts<'_>, decided: &Decided) -> bool {
    let roster = &decided.link.certificate.roster;
    let has_place = roster.ring().any(|m| m.peer == facts.me.peer);
    let (epoch, peers) = (facts.series().epoch, &facts.step.table.peers);
    let committed = |p: &PeerId| peers.get(p).is_some_and(|seen| seen.beat.head.epoch >= epoch);
    let Some(ballot) = facts.slot.ballots.get(&decided.roster) else { return true };
    !has_place
        || roster.ring().all(|m| {
            m.peer == facts.me.peer
                || ballot.dones.contains_key(&m.peer)
                || committed(&m.peer)
                || !facts.step.table.alive(&m.peer, facts.step.now)
                || !facts.names_voter(&m.peer)
        })
}

/// R34: the blocks in which a receipt includes our frozen delta.
fn spent(facts: Facts<'_>, receipt: &Receipt) -> Blocks {
    let (validator, LocalPeer { peer: me, incarnation, .. }) = (&facts.validator, &facts.me);
    if facts.keeps(Rule::R34) {
        return receipt.spent(me, *incarnation, validator.elements);
    }
    let formed = receipt.member(me, *incarnation).is_some_and(|m| m.weight > 0);
    if formed { Blocks::all(validator.elements) } else { Blocks::default() }
}
