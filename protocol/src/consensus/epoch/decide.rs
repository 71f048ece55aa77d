//! From an accepted roster to the next epoch: Accepts, the ring, the vote; certificates, the wait
//! for other copies, the outer step (R5, R6, R11, R16, R17, R24, R25, R34).

use std::collections::BTreeMap;
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
use crate::message::wire;
use crate::message::{
    Accept, Certificate, Commit, Done, Head, Link, MEMBERS_MAX, Message, Receipt, Series, Voted,
    Voter,
};
use crate::ring::Layout;

use super::ballot::{Ballot, RingState, Vote};
use super::conduct::Amends;
use super::facts::Facts;
use super::open_epoch::Epoch;
use super::series::{Decided, Reply, Stage};
use super::timers::Timer;
use super::{acceptor, recover, roster, send, timers};

/// R16: Dones of a majority of voters for one roster are a certificate.
pub(super) fn decide(epoch: &mut Epoch<'_>) -> bool {
    // While a checkpoint is on its way, nothing else may move the state.
    if epoch.process.behind || epoch.slot.series.decided().is_some() {
        return false;
    }
    let certified = epoch.slot.ballots.iter().find(|(_, ballot)| {
        let here = ballot.roster.as_ref().is_some_and(|r| r.series == epoch.series());
        let enough = 2 * ballot.dones.len() >= epoch.voters().len();
        let Some(value) = ballot.value() else { return false };
        let served =
            !epoch.slot.unserved.contains(&value.r) || epoch.slot.updates.is_flushed(&value.update);
        here && enough
            && served
            && epoch.validator.quorum.holds(epoch.voters(), |v| ballot.has_voted(&v.peer, value.r))
    });
    let Some((digest, ballot)) = certified else { return false };
    let (Some(roster), Some(vote)) = (&ballot.roster, ballot.value()) else { return false };
    let signatures = ballot.dones.iter().filter(|(p, v)| v.r == vote.r && epoch.names_voter(p));
    let dones = signatures.map(|(peer, vote)| (*peer, vote.signature)).collect();
    let link = Link {
        receipt: roster.receipt(vote.update),
        certificate: Certificate { roster: roster.as_ref().clone(), dones },
        openings: epoch.slot.openings.clone(),
    };
    let by_commit = epoch.slot.commit_heard == Some(*digest);
    take_link(epoch, link, by_commit);
    true
}

fn take_link(epoch: &mut Epoch<'_>, link: Link, by_commit: bool) {
    let until = epoch.step.now + epoch.facts().done_time();
    let ring_until = match epoch.slot.series.stage {
        // T_ring is three times what the ring needs, and a majority has ended: the others are
        // close.
        Stage::Open { progress: Progress::Reduce, until, .. } => {
            epoch.step.now + until.since(epoch.step.now) / 8
        }
        _ => epoch.step.now,
    };
    let roster = wire::roster_digest(&epoch.validator.run, &link.certificate.roster);
    let decided = Decided { link, roster, until, ring_until, since: epoch.step.now, by_commit };
    epoch.slot.series.asking = None;
    epoch.slot.series.fetch_after = epoch.step.now;
    // Others may still need the ring: it ends by itself, or with the next epoch.
    epoch.slot.series.stage = Stage::Decided(Box::new(decided));
}

/// R17, R25: applies what is decided once its bytes are stored here and, if that is possible,
/// elsewhere. Gives up if no peer serves them.
pub(super) fn conclude(epoch: &mut Epoch<'_>) -> bool {
    let Stage::Decided(decided) = &epoch.slot.series.stage else { return false };
    let update = decided.link.receipt.update;
    if !epoch.slot.updates.is_stored(&update) {
        // A fetch beside a ring that is about to end would take the bandwidth that the ring
        // needs.
        let ballot = epoch.slot.ballots.get(&decided.roster);
        if !timers::is_over(epoch.facts(), Timer::Ring)
            && ballot.is_some_and(|b| b.ring == RingState::Running)
        {
            return false;
        }
        if epoch.step.now.since(decided.since) >= epoch.step.table.grace {
            let r = wire::receipt_digest(&epoch.validator.run, &decided.link.receipt);
            epoch.slot.unserved.insert(r);
            recover::recover(epoch, Reason::UpdateUnserved);
            return true;
        }
        let voted = decided.link.certificate.dones.iter().map(|(peer, _)| *peer);
        let mut from: Vec<PeerId> = voted.filter(|p| *p != epoch.me.peer).collect();
        from.sort_by_key(|peer| !epoch.facts().is_alive(peer));
        fetch(epoch, update, from);
        return false;
    }
    if !timers::is_over(epoch.facts(), Timer::Stage) && !copied(epoch.facts(), decided) {
        return false;
    }
    let decided = decided.as_ref().clone();
    apply(epoch, decided);
    true
}

fn apply(epoch: &mut Epoch<'_>, decided: Decided) {
    let link = &decided.link;
    let validator = epoch.validator;
    let (receipt, roster) = (&link.receipt, &link.certificate.roster);
    let running = epoch.slot.ballots.iter().filter(|(_, b)| b.ring == RingState::Running);
    running.for_each(|(digest, _)| epoch.step.put(Output::Abandon(*digest)));
    epoch.step.put(Output::Log(Record::Decided { link: Box::new(link.clone()) }));
    if !decided.by_commit {
        let Done { series, roster, r, update } = validator.done(roster, receipt);
        let dones = link.certificate.dones.clone();
        let short = Commit::Short { series, roster, r, update, dones };
        epoch.step.put(Output::Gossip(epoch.validator.seal(Message::Commit(short))));
    }
    let spent = spent(epoch.facts(), receipt);
    epoch.step.put(Output::Apply(Arc::new(Apply::of(
        &validator.run,
        &epoch.slot.head,
        receipt,
        spent,
    ))));
    epoch.slot.series.stage = Stage::Applying(Box::new(decided));
}

/// The outer step is taken: the epoch is committed. Returns the head, the link that leads to it,
/// and whether a `Commit` decided it.
pub(super) fn commit(epoch: &mut Epoch<'_>, state: Digest) -> Option<(Head, Link, bool)> {
    let Stage::Applying(decided) = &epoch.slot.series.stage else { return None };
    let Decided { link, by_commit, .. } = decided.as_ref().clone();
    let receipt = &link.receipt;
    let parent = receipt.series.parent == epoch.slot.head.state;
    assert!(parent, "S1: what is committed was decided for the state that it is applied to");
    let tokens = epoch.slot.head.tokens.saturating_add(receipt.tokens());
    let head = Head { epoch: receipt.series.epoch, tokens, state };
    if epoch.slot.frozen.is_some() && !receipt.spends(&epoch.me.peer, epoch.me.incarnation) {
        epoch.step.put(Output::Event(Event::LeftOut { epoch: head.epoch }));
    }
    Some((head, link, by_commit))
}

pub(super) fn on_commit(epoch: &mut Epoch<'_>, from: PeerId, commit: &Commit) {
    match commit {
        Commit::Whole(link) => on_link(epoch, from, link.as_ref().clone()),
        Commit::Short { series, roster, r, update, dones } => {
            let done = Done { series: *series, roster: *roster, r: *r, update: *update };
            on_short_commit(epoch, from, done, dones);
        }
    }
}

/// Adds the votes that we lack, each verified.
fn on_short_commit(epoch: &mut Epoch<'_>, from: PeerId, done: Done, dones: &[(PeerId, Signature)]) {
    if done.series != epoch.series() || epoch.slot.series.decided().is_some() {
        return;
    }
    let digest = done.roster;
    let run = epoch.validator.run;
    let Some(ballot) = epoch.slot.ballots.get(&digest) else { return };
    let Some(roster) = &ballot.roster else { return };
    let consistent = wire::receipt_digest(&run, &roster.receipt(done.update)) == done.r
        && dones.len() <= epoch.voters().len();
    let is_new = |peer| epoch.names_voter(peer) && !ballot.dones.contains_key(peer);
    // One vote may be repeated until the message is full.
    let dones = if consistent { dones } else { &[] };
    let new = dones.iter().filter(|(peer, _)| is_new(peer)).copied();
    let new: BTreeMap<PeerId, Signature> = new.collect();
    let message = Message::Done(done.clone());
    let signed = new.iter().all(|(peer, s)| epoch.validator.signed(peer, &message, s));
    if !consistent || !signed {
        let why = CertificateFault::UnsignedVotes;
        return epoch.step.put(Output::Fault(from, Fault::Certificate(why)));
    }
    if new.is_empty() {
        return;
    }
    epoch.slot.commit_heard = Some(digest);
    let vote = |signature| Vote { r: done.r, update: done.update, signature };
    let votes = new.into_iter().map(|(peer, signature)| (peer, vote(signature)));
    epoch.slot.ballot(&epoch.me.peer, digest).dones.extend(votes);
}

/// R16, R24: takes a whole proof of this epoch's result, in our series or another one.
pub(super) fn on_link(epoch: &mut Epoch<'_>, from: PeerId, link: Link) {
    let base = Series { regroup: None, ..epoch.series() };
    if epoch.process.behind
        || epoch.slot.series.decided().is_some()
        || !link.receipt.series.is_beside(&epoch.series())
    {
        return;
    }
    let (voters, ledger) = (epoch.slot.base.as_slice(), epoch.process.ledger());
    if let Err(fault) =
        epoch.validator.check_link(base, voters, ledger, epoch.process.weight_max, &link)
    {
        return epoch.step.put(Output::Fault(from, fault));
    }
    let ours = |opening| epoch.slot.chain.contains(&epoch.validator.opened(opening));
    if !link.openings.iter().all(ours) && epoch.facts().has_majority() {
        return;
    }
    epoch.slot.abort(&mut epoch.step, Reason::DecidedElsewhere);
    take_link(epoch, link, true);
}

pub(super) fn fetch(epoch: &mut Epoch<'_>, update: Digest, from: Vec<PeerId>) {
    if epoch.slot.series.fetching == Some(update)
        || !timers::is_over(epoch.facts(), Timer::Fetch)
        || from.is_empty()
    {
        return;
    }
    epoch.slot.series.fetching = Some(update);
    epoch.step.put(Output::FetchUpdate(update, from));
}

pub(super) fn miss_update(epoch: &mut Epoch<'_>, update: Digest) {
    epoch.slot.updates.remove(&update);
    epoch.slot.series.fetching.take_if(|other| *other == update);
    epoch.slot.series.fetch_after = epoch.step.now + epoch.facts().repeat_interval();
}

pub(super) fn on_accept(epoch: &mut Epoch<'_>, message: &Verified<Message>, accept: &Accept) {
    let (from, digest) = (message.author(), accept.roster);
    epoch.conduct.clear(&from, Amends::Accept);
    let Some(ballot) = epoch.slot.ballot_voted_on(&epoch.me.peer, digest) else { return };
    if !ballot.is_of(&accept.series) {
        return;
    }
    let room = ballot.accepts.len() < MEMBERS_MAX;
    let repeated = room && ballot.accepts.insert(from, message.signature()).is_some();
    let Some(roster) = ballot.roster.clone() else { return };
    if !repeated && epoch.slot.has_accepted_another(&from, digest) {
        epoch.step.put(Output::Fault(from, Fault::Done(DoneFault::AcceptsTwo)));
    }
    let accepted = epoch.bound().accepted(roster.attempt);
    let mine = accepted == Some(digest) && roster::stands_by(epoch.facts(), &roster);
    if repeated && mine && epoch.slot.series.may_reply(epoch.step.now, from, Reply::Accept) {
        epoch.step.put(Output::Send(from, send::accept_message(epoch.facts(), digest)));
    }
}

/// R11: takes a vote; one roster has one value.
pub(super) fn on_done(epoch: &mut Epoch<'_>, message: &Verified<Message>, done: &Done) {
    let from = message.author();
    let run = epoch.validator.run;
    epoch.conduct.clear(&from, Amends::Reply);
    let Some(ballot) = epoch.slot.ballot_voted_on(&epoch.me.peer, done.roster) else { return };
    if !ballot.is_of(&done.series) {
        return;
    }
    // Every stored vote on a roster that is known has been found to fit it.
    let fits = |vote: &Vote| vote.update == done.update && vote.r == done.r;
    if let Some(roster) = &ballot.roster
        && !ballot.dones.values().any(fits)
    {
        let receipt = roster.receipt(done.update);
        if wire::receipt_digest(&run, &receipt) != done.r || receipt.update != done.update {
            return epoch.step.put(Output::Fault(from, Fault::Done(DoneFault::OtherValue)));
        }
    }
    // Two voters that differ prove nothing against either: the value that has the majority
    // stands.
    if ballot.dones.get(&from).is_some_and(|other| other.r != done.r) {
        return epoch.step.put(Output::Fault(from, Fault::Done(DoneFault::TwoValues)));
    }
    let vote = Vote { r: done.r, update: done.update, signature: message.signature() };
    let room = ballot.dones.len() < MEMBERS_MAX;
    let repeated = room && ballot.dones.insert(from, vote).is_some();
    let me = epoch.me.peer;
    let voted = epoch.slot.ballots.get(&done.roster).is_some_and(|b| b.dones.contains_key(&me));
    if repeated && voted && epoch.slot.series.may_reply(epoch.step.now, from, Reply::Done) {
        epoch.step.put(Output::Send(from, epoch.validator.seal(Message::Done(done.clone()))));
    }
}

/// Moves the accepted roster on: Accepts complete, update stored, vote due.
pub(super) fn settle(epoch: &mut Epoch<'_>) -> bool {
    match epoch.slot.series.stage {
        Stage::Open { roster, progress, until } => match progress {
            Progress::Accepted => settle_accepted(epoch, roster),
            Progress::Reduce => settle_reduce(epoch, roster, until),
            Progress::Finished => vote(epoch, roster),
        },
        // R17: the members with a position in its ring wait for our vote.
        Stage::Decided(ref decided) => {
            let (digest, update) = (decided.roster, decided.link.receipt.update);
            epoch.slot.updates.is_flushed(&update)
                && epoch.slot.value(epoch.validator.quorum, digest) == Some(update)
                && vote(epoch, digest)
        }
        _ => false,
    }
}

/// R5: the ring opens when every member with a position has accepted.
fn settle_accepted(epoch: &mut Epoch<'_>, digest: Digest) -> bool {
    let Some(roster) = epoch.slot.roster(&digest).cloned() else { return false };
    let all = epoch.slot.ballots.get(&digest).is_some_and(|ballot| {
        !roster.is_free() || roster.ring().all(|m| ballot.accepts.contains_key(&m.peer))
    });
    if !all {
        return false;
    }
    let until = epoch.step.now + epoch.facts().ring_time(&roster);
    epoch.slot.series.stage = Stage::Open { roster: digest, progress: Progress::Reduce, until };
    let index = roster.ring().position(|m| m.peer == epoch.me.peer);
    let layout =
        if roster.is_free() { Layout::of(&roster, epoch.validator.elements) } else { None };
    if let (Some(layout), Some(index)) = (layout, index) {
        let (members, keep) = (roster.ring().copied().collect(), roster.keep.clone());
        let kept = keep.iter().fold(Blocks::default(), |all, keep| all.and(&keep.blocks()));
        let all = kept.and(layout.redone()) == Blocks::all(epoch.validator.elements);
        assert!(all && !kept.overlaps(layout.redone()), "D3: each block once");
        let ring = Ring { roster: digest, members, index, layout, keep };
        epoch.step.put(Output::Ring(Arc::new(ring)));
        epoch.slot.ballot(&epoch.me.peer, digest).ring = RingState::Running;
    }
    true
}

/// R6: a peer that has no ring, or lost it, fetches what others computed.
fn settle_reduce(epoch: &mut Epoch<'_>, digest: Digest, until: Time) -> bool {
    let Some(update) = epoch.slot.value(epoch.validator.quorum, digest) else { return false };
    if epoch.slot.updates.is_flushed(&update) {
        // The first to finish waits for peers that still compute or fetch, for as long as they
        // may: a higher attempt would end what they are about to finish.
        let until = until.max(epoch.step.now + epoch.facts().done_time());
        epoch.slot.series.stage =
            Stage::Open { roster: digest, progress: Progress::Finished, until };
        return true;
    }
    let runs = |ballot: &Ballot| ballot.ring == RingState::Running;
    if !epoch.slot.ballots.get(&digest).is_some_and(runs) {
        let holders = epoch.slot.holders(epoch.me.peer, update);
        fetch(epoch, update, holders);
    }
    false
}

/// R5: votes when (a) the ground of the vote is here, (b) the update is flushed, (c) nothing
/// higher is promised.
fn vote(epoch: &mut Epoch<'_>, digest: Digest) -> bool {
    let Some(roster) = epoch.slot.roster(&digest).cloned() else { return false };
    let Some(ballot) = epoch.slot.ballots.get(&digest) else { return false };
    let (me, bound) = (epoch.me.peer, epoch.bound());
    // R20: a vote from before a restart is sent again.
    let logged = bound.done(roster.attempt).is_some();
    let bound_to_it = bound.accepted(roster.attempt) == Some(digest);
    let free = bound.promised() <= roster.attempt;
    if ballot.dones.contains_key(&me) || !(epoch.facts().is_voter() && bound_to_it && free) {
        return false;
    }
    let Some(update) = epoch.slot.value(epoch.validator.quorum, digest) else { return false };
    if !(logged || is_grounded(epoch, digest, update)) {
        return false;
    }
    let receipt = roster.receipt(update);
    let done = epoch.validator.done(&roster, &receipt);
    let (r, message) = (done.r, epoch.validator.seal(Message::Done(done)));
    let vote = Vote { r, update, signature: message.signature() };
    let attempt = roster.attempt;
    if !logged {
        let Some(ballot) = epoch.slot.ballots.get(&digest) else { return false };
        let accepts = ballot.ground(epoch.validator.quorum, epoch.voters(), update);
        let roster = roster.as_ref().clone();
        let voted = Voted { depth: epoch.slot.depth(), roster, update, accepts };
        epoch.slot.grounds.insert(wire::ranked(&epoch.validator.run, &voted), voted.clone());
        epoch.log(Record::Voted { voted: Box::new(voted) });
    }
    let logged = epoch.bound().done(attempt).is_some();
    assert!(logged, "R1: a vote is logged before it counts");
    epoch.slot.ballot(&epoch.me.peer, digest).dones.insert(me, vote);
    epoch.step.put(Output::Gossip(message));
    true
}

/// R5: whether the ground of a vote for this value is here: a quorum accepted the roster or, if
/// a third may lie and the roster is free, says that it holds the update. We say so ourselves
/// first, once.
fn is_grounded(epoch: &mut Epoch<'_>, digest: Digest, update: Digest) -> bool {
    let Some(roster) = epoch.slot.roster(&digest).cloned() else { return false };
    if epoch.validator.quorum.prepares() && roster.is_free() {
        acceptor::prepare(epoch, digest, &roster, update);
        let ballot = epoch.slot.ballots.get(&digest);
        return ballot
            .is_some_and(|b| b.is_prepared(epoch.validator.quorum, epoch.voters(), &update));
    }
    let Some(ballot) = epoch.slot.ballots.get(&digest) else { return false };
    let accepted = |v: &Voter| {
        ballot.accepts.contains_key(&v.peer) && roster.members.iter().any(|m| m.voter() == *v)
    };
    epoch.validator.quorum.holds(epoch.voters(), accepted) || !epoch.validator.keeps(Rule::R5)
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
                || !facts.is_alive(&m.peer)
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
