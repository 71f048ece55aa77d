//! Commit: certificates, the wait for other copies, the outer step, the next epoch (R16–R18, R24,
//! R25, R34).

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::blocks::Blocks;
use crate::event::Event;
use crate::fault::Fault;
use crate::id::{Digest, PeerId};
use crate::log::Record;
use crate::message::{Certificate, Commit, Done, Head, Link, Message, Receipt, Series, majority};
use crate::roll::Roll;
use crate::sign::Signature;
use crate::time::Time;
use crate::wire;

use super::{Apply, Config, Output, RingState, Rule, Stage, State, Vote};

/// A decided epoch, on its way to be applied.
#[derive(Clone, Debug)]
pub(super) struct Decided {
    pub(super) link: Link,
    /// Digest of the roster of its certificate.
    pub(super) roster: Digest,
    /// Until when the Dones of other holders are awaited (R17).
    pub(super) until: Time,
    /// Until when our own ring may still give the update.
    pub(super) ring_until: Time,
    since: Time,
    by_commit: bool,
}

/// The updates of the open epoch that are here.
#[derive(Clone, Debug, Default)]
pub(super) struct Held {
    flushed: BTreeSet<Digest>,
    /// Those that the disk does not take.
    unflushed: BTreeSet<Digest>,
}

impl Held {
    pub(super) fn insert(&mut self, update: Digest) {
        self.flushed.insert(update);
    }

    pub(super) fn insert_unflushed(&mut self, update: Digest) {
        self.unflushed.insert(update);
    }

    /// Whether it may be voted for (R5).
    pub(super) fn contains(&self, update: &Digest) -> bool {
        self.flushed.contains(update)
    }

    /// Whether it can be applied.
    pub(super) fn is_here(&self, update: &Digest) -> bool {
        self.contains(update) || self.unflushed.contains(update)
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl State {
    /// R16: Dones of a majority of voters for one roster are a certificate.
    pub(super) fn decide(&mut self, now: Time, roll: &Roll) -> bool {
        // While a checkpoint is on its way the state must not move by another one.
        if self.behind || self.decided().is_some() {
            return false;
        }
        let certified = self.ballots.iter().find(|(_, ballot)| {
            let here = ballot.roster.as_ref().is_some_and(|r| r.series == self.series);
            let enough = 2 * ballot.dones.len() >= self.voters.len();
            let Some(value) = ballot.value().filter(|_| enough && here) else { return false };
            let served = !self.unserved.contains(&value.r) || self.held.contains(&value.update);
            served && majority(&self.voters, |v| ballot.has_voted(&v.peer, value.r))
        });
        let Some((digest, ballot)) = certified else { return false };
        let (Some(roster), Some(vote)) = (&ballot.roster, ballot.value()) else { return false };
        let signatures = ballot.dones.iter().filter(|(p, v)| v.r == vote.r && self.names_voter(p));
        let dones = signatures.map(|(peer, vote)| (*peer, vote.signature)).collect();
        let link = Link {
            receipt: roster.receipt(vote.update),
            certificate: Certificate { roster: roster.as_ref().clone(), dones },
            openings: self.openings.clone(),
        };
        let by_commit = self.commit_heard == Some(*digest);
        self.take_link(now, roll, link, by_commit);
        true
    }

    pub(super) fn names_voter(&self, peer: &PeerId) -> bool {
        self.voters.iter().any(|voter| voter.peer == *peer)
    }

    fn take_link(&mut self, now: Time, roll: &Roll, link: Link, by_commit: bool) {
        let attempt = link.certificate.roster.attempt;
        let until = now + self.done_time(now, roll, attempt);
        let ring_until = match self.stage {
            // T_ring is three times what the ring needs, and a majority has ended: the others are close.
            Stage::Reduce { until, .. } => now + until.since(now) / 8,
            _ => now,
        };
        let roster = wire::roster_digest(&self.config.law.run, &link.certificate.roster);
        let decided = Decided { link, roster, until, ring_until, since: now, by_commit };
        self.asking = None;
        self.fetch_after = now;
        // The ring may still be needed by others: it ends by itself, or with the next epoch.
        self.stage = Stage::Decided(Box::new(decided));
    }

    /// R17, R25: applies what is decided once its bytes are held here and, where that can be had,
    /// elsewhere; gives up when nobody serves them.
    pub(super) fn conclude(&mut self, now: Time, roll: &Roll, out: &mut Vec<Output>) -> bool {
        let Stage::Decided(decided) = &self.stage else { return false };
        let update = decided.link.receipt.update;
        if !self.held.is_here(&update) {
            // To fetch beside a ring that is about to end would fill the lines that it needs.
            let ballot = self.ballots.get(&decided.roster);
            if now < decided.ring_until && ballot.is_some_and(|b| b.ring == RingState::Running) {
                return false;
            }
            if now.since(decided.since) >= roll.grace {
                self.unserved
                    .insert(wire::receipt_digest(&self.config.law.run, &decided.link.receipt));
                self.recover(now, "update not served", out);
                return true;
            }
            let voted = decided.link.certificate.dones.iter().map(|(peer, _)| *peer);
            let mut from: Vec<PeerId> = voted.filter(|p| *p != self.config.me).collect();
            from.sort_by_key(|peer| !roll.alive(peer, now));
            self.fetch(now, update, from, out);
            return false;
        }
        if now < decided.until && !self.copied(now, roll, decided) {
            return false;
        }
        let Stage::Decided(decided) =
            std::mem::replace(&mut self.stage, Stage::Idle { patience: None })
        else {
            return false;
        };
        self.apply(*decided, out);
        true
    }

    /// R17: whether every other live voter with a place in the ring has voted as well. Who has
    /// committed the epoch has voted, and repeats its vote no more.
    fn copied(&self, now: Time, roll: &Roll, decided: &Decided) -> bool {
        let roster = &decided.link.certificate.roster;
        let has_place = roster.ring().any(|m| m.peer == self.config.me);
        let committed = |peer: &PeerId| {
            roll.peers.get(peer).is_some_and(|seen| seen.beat.head.epoch >= self.series.epoch)
        };
        let Some(ballot) = self.ballots.get(&decided.roster) else { return true };
        !has_place
            || roster.ring().all(|m| {
                m.peer == self.config.me
                    || ballot.dones.contains_key(&m.peer)
                    || committed(&m.peer)
                    || !roll.alive(&m.peer, now)
                    || !self.names_voter(&m.peer)
            })
    }

    fn apply(&mut self, decided: Decided, out: &mut Vec<Output>) {
        let link = &decided.link;
        let law = &self.config.law;
        let (receipt, roster) = (&link.receipt, &link.certificate.roster);
        let running = self.ballots.iter().filter(|(_, b)| b.ring == RingState::Running);
        out.extend(running.map(|(digest, _)| Output::Abandon(*digest)));
        out.push(Output::Log(Record::Decided { link: Box::new(link.clone()) }));
        if !decided.by_commit {
            let Done { series, roster, r, update } = law.done(roster, receipt);
            let dones = link.certificate.dones.clone();
            let short = Commit::Short { series, roster, r, update, dones };
            out.push(Output::Gossip(self.seal(Message::Commit(short))));
        }
        let spent = self.spent(receipt);
        out.push(Output::Apply(Arc::new(Apply::of(&law.run, &self.head, receipt, spent))));
        self.stage = Stage::Applying(Box::new(decided));
    }

    /// R34: the blocks in which our frozen delta is.
    fn spent(&self, receipt: &Receipt) -> Blocks {
        let Config { me, incarnation, law, .. } = &self.config;
        if self.keeps(Rule::R34) {
            return receipt.spent(me, *incarnation, law.elements);
        }
        let formed = receipt.member(me, *incarnation).is_some_and(|m| m.weight > 0);
        if formed { Blocks::all(law.elements) } else { Blocks::default() }
    }

    /// The outer step is taken: the epoch is committed, the next one begins.
    pub(super) fn on_applied(
        &mut self,
        now: Time,
        roll: &Roll,
        state: Digest,
        out: &mut Vec<Output>,
    ) {
        let stage = std::mem::replace(&mut self.stage, Stage::Idle { patience: None });
        let Stage::Applying(decided) = stage else {
            self.stage = stage;
            return;
        };
        let Decided { link, by_commit, .. } = *decided;
        let receipt = &link.receipt;
        let tokens = self.head.tokens.saturating_add(receipt.tokens());
        let head = Head { epoch: receipt.series.epoch, tokens, state };
        if self.frozen.is_some() && !receipt.spends(&self.config.me, self.config.incarnation) {
            out.push(Output::Event(Event::LeftOut { epoch: head.epoch }));
        }
        let voters =
            if self.keeps(Rule::R18) { receipt.voters() } else { link.certificate.roster.voters() };
        self.limit_weight(receipt.median_weight());
        out.push(Output::Committed { head, link: Box::new(link), by_commit });
        self.enter(now, roll, head, voters, out);
    }

    pub(super) fn on_commit(
        &mut self,
        now: Time,
        roll: &Roll,
        from: PeerId,
        commit: &Commit,
        out: &mut Vec<Output>,
    ) {
        match commit {
            Commit::Whole(link) => self.on_link(now, roll, from, link.as_ref().clone(), out),
            Commit::Short { series, roster, r, update, dones } => {
                let done = Done { series: *series, roster: *roster, r: *r, update: *update };
                self.on_short_commit(from, done, dones, out);
            }
        }
    }

    /// Adds the votes that we lack, each verified.
    fn on_short_commit(
        &mut self,
        from: PeerId,
        done: Done,
        dones: &[(PeerId, Signature)],
        out: &mut Vec<Output>,
    ) {
        if done.series != self.series || self.decided().is_some() {
            return;
        }
        let digest = done.roster;
        let run = self.config.law.run;
        let Some(ballot) = self.ballots.get(&digest) else { return };
        let Some(roster) = &ballot.roster else { return };
        let consistent = wire::receipt_digest(&run, &roster.receipt(done.update)) == done.r
            && dones.len() <= self.voters.len();
        let new: Vec<_> = dones
            .iter()
            .filter(|(peer, _)| self.names_voter(peer) && !ballot.dones.contains_key(peer))
            .copied()
            .collect();
        let law = &self.config.law;
        let signed = new.iter().all(|(p, s)| law.signed(p, Message::Done(done.clone()), s));
        if !consistent || !signed {
            out.push(Output::Fault(from, Fault::Certificate("votes that do not verify")));
            return;
        }
        if new.is_empty() {
            return;
        }
        self.commit_heard = Some(digest);
        let vote = |signature| Vote { r: done.r, update: done.update, signature };
        let votes = new.into_iter().map(|(peer, signature)| (peer, vote(signature)));
        self.ballot(digest).dones.extend(votes);
    }

    /// R16, R24: a whole proof of this epoch's result, in our series or another one.
    pub(super) fn on_link(
        &mut self,
        now: Time,
        roll: &Roll,
        from: PeerId,
        link: Link,
        out: &mut Vec<Output>,
    ) {
        let base = Series { regroup: None, ..self.series };
        if self.behind || self.decided().is_some() || !link.receipt.series.is_beside(&self.series) {
            return;
        }
        if let Err(fault) = self.config.law.check_link(base, &self.base, &link) {
            out.push(Output::Fault(from, fault));
            return;
        }
        let ours = |opening| self.openings.contains(opening);
        if !link.openings.iter().all(ours) && self.majority_present(now, roll) {
            return;
        }
        self.abort("decided elsewhere", out);
        self.take_link(now, roll, link, true);
    }

    /// What was frozen is given back to the trainer when another head is entered.
    pub(super) fn drop_frozen(&mut self, out: &mut Vec<Output>) {
        self.abort("another head", out);
        self.frozen = None;
    }
}
