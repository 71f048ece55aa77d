//! From an accepted roster to the next epoch: Accepts, the ring, the vote; certificates, the wait
//! for other copies, the outer step (R5, R6, R11, R16, R17, R24, R25, R34).

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
use super::open::Epoch;
use super::series::{Decided, Reply, Stage};
use super::timers::Timer;
use super::{acceptor, recover, roster, send, timers};

/// R16: Dones of a majority of voters for one roster are a certificate.
pub(super) fn decide(open: &mut Epoch<'_>) -> bool {
    // While a checkpoint is on its way, nothing else may move the state.
    if open.process.behind || open.slot.series.decided().is_some() {
        return false;
    }
    let certified = open.slot.ballots.iter().find(|(_, ballot)| {
        let here = ballot.roster.as_ref().is_some_and(|r| r.series == open.series());
        let enough = 2 * ballot.dones.len() >= open.voters().len();
        let Some(value) = ballot.value() else { return false };
        let served =
            !open.slot.unserved.contains(&value.r) || open.slot.updates.is_flushed(&value.update);
        here && enough
            && served
            && open.validator.quorum.holds(open.voters(), |v| ballot.has_voted(&v.peer, value.r))
    });
    let Some((digest, ballot)) = certified else { return false };
    let (Some(roster), Some(vote)) = (&ballot.roster, ballot.value()) else { return false };
    let signatures = ballot.dones.iter().filter(|(p, v)| v.r == vote.r && open.names_voter(p));
    let dones = signatures.map(|(peer, vote)| (*peer, vote.signature)).collect();
    let link = Link {
        receipt: roster.receipt(vote.update),
        certificate: Certificate { roster: roster.as_ref().clone(), dones },
        openings: open.slot.openings.clone(),
    };
    let by_commit = open.slot.commit_heard == Some(*digest);
    take_link(open, link, by_commit);
    true
}

fn take_link(open: &mut Epoch<'_>, link: Link, by_commit: bool) {
    let until = open.step.now + open.facts().done_time();
    let ring_until = match open.slot.series.stage {
        // T_ring is three times what the ring needs, and a majority has ended: the others are
        // close.
        Stage::Open { progress: Progress::Reduce, until, .. } => {
            open.step.now + until.since(open.step.now) / 8
        }
        _ => open.step.now,
    };
    let roster = wire::roster_digest(&open.validator.run, &link.certificate.roster);
    let decided = Decided { link, roster, until, ring_until, since: open.step.now, by_commit };
    open.slot.series.asking = None;
    open.slot.series.fetch_after = open.step.now;
    // Others may still need the ring: it ends by itself, or with the next epoch.
    open.slot.series.stage = Stage::Decided(Box::new(decided));
}

/// R17, R25: applies what is decided once its bytes are stored here and, if that is possible,
/// elsewhere. Gives up if no peer serves them.
pub(super) fn conclude(open: &mut Epoch<'_>) -> bool {
    let Stage::Decided(decided) = &open.slot.series.stage else { return false };
    let update = decided.link.receipt.update;
    if !open.slot.updates.is_stored(&update) {
        // A fetch beside a ring that is about to end would take the bandwidth that the ring
        // needs.
        let ballot = open.slot.ballots.get(&decided.roster);
        if !timers::is_over(open.facts(), Timer::Ring)
            && ballot.is_some_and(|b| b.ring == RingState::Running)
        {
            return false;
        }
        if open.step.now.since(decided.since) >= open.step.table.grace {
            let r = wire::receipt_digest(&open.validator.run, &decided.link.receipt);
            open.slot.unserved.insert(r);
            recover::recover(open, Reason::UpdateUnserved);
            return true;
        }
        let voted = decided.link.certificate.dones.iter().map(|(peer, _)| *peer);
        let mut from: Vec<PeerId> = voted.filter(|p| *p != open.me.peer).collect();
        from.sort_by_key(|peer| !open.facts().is_alive(peer));
        fetch(open, update, from);
        return false;
    }
    if !timers::is_over(open.facts(), Timer::Stage) && !copied(open.facts(), decided) {
        return false;
    }
    let decided = decided.as_ref().clone();
    apply(open, decided);
    true
}

fn apply(open: &mut Epoch<'_>, decided: Decided) {
    let link = &decided.link;
    let validator = open.validator;
    let (receipt, roster) = (&link.receipt, &link.certificate.roster);
    let running = open.slot.ballots.iter().filter(|(_, b)| b.ring == RingState::Running);
    running.for_each(|(digest, _)| open.step.put(Output::Abandon(*digest)));
    open.step.put(Output::Log(Record::Decided { link: Box::new(link.clone()) }));
    if !decided.by_commit {
        let Done { series, roster, r, update } = validator.done(roster, receipt);
        let dones = link.certificate.dones.clone();
        let short = Commit::Short { series, roster, r, update, dones };
        open.step.put(Output::Gossip(open.validator.seal(Message::Commit(short))));
    }
    let spent = spent(open.facts(), receipt);
    open.step.put(Output::Apply(Arc::new(Apply::of(
        &validator.run,
        &open.slot.head,
        receipt,
        spent,
    ))));
    open.slot.series.stage = Stage::Applying(Box::new(decided));
}

/// The outer step is taken: the epoch is committed. Returns the head, the link that leads to it,
/// and whether a `Commit` decided it.
pub(super) fn commit(open: &mut Epoch<'_>, state: Digest) -> Option<(Head, Link, bool)> {
    let Stage::Applying(decided) = &open.slot.series.stage else { return None };
    let Decided { link, by_commit, .. } = decided.as_ref().clone();
    let receipt = &link.receipt;
    let parent = receipt.series.parent == open.slot.head.state;
    assert!(parent, "S1: what is committed was decided for the state that it is applied to");
    let tokens = open.slot.head.tokens.saturating_add(receipt.tokens());
    let head = Head { epoch: receipt.series.epoch, tokens, state };
    if open.slot.frozen.is_some() && !receipt.spends(&open.me.peer, open.me.incarnation) {
        open.step.put(Output::Event(Event::LeftOut { epoch: head.epoch }));
    }
    Some((head, link, by_commit))
}

pub(super) fn on_commit(open: &mut Epoch<'_>, from: PeerId, commit: &Commit) {
    match commit {
        Commit::Whole(link) => on_link(open, from, link.as_ref().clone()),
        Commit::Short { series, roster, r, update, dones } => {
            let done = Done { series: *series, roster: *roster, r: *r, update: *update };
            on_short_commit(open, from, done, dones);
        }
    }
}

/// Adds the votes that we lack, each verified.
fn on_short_commit(open: &mut Epoch<'_>, from: PeerId, done: Done, dones: &[(PeerId, Signature)]) {
    if done.series != open.series() || open.slot.series.decided().is_some() {
        return;
    }
    let digest = done.roster;
    let run = open.validator.run;
    let Some(ballot) = open.slot.ballots.get(&digest) else { return };
    let Some(roster) = &ballot.roster else { return };
    let consistent = wire::receipt_digest(&run, &roster.receipt(done.update)) == done.r
        && dones.len() <= open.voters().len();
    let is_new = |peer| open.names_voter(peer) && !ballot.dones.contains_key(peer);
    let new: Vec<_> = dones.iter().filter(|(peer, _)| is_new(peer)).copied().collect();
    let message = Message::Done(done.clone());
    let signed = new.iter().all(|(peer, s)| open.validator.signed(peer, &message, s));
    if !consistent || !signed {
        let why = CertificateFault::UnsignedVotes;
        return open.step.put(Output::Fault(from, Fault::Certificate(why)));
    }
    if new.is_empty() {
        return;
    }
    open.slot.commit_heard = Some(digest);
    let vote = |signature| Vote { r: done.r, update: done.update, signature };
    let votes = new.into_iter().map(|(peer, signature)| (peer, vote(signature)));
    open.slot.ballot(&open.me.peer, digest).dones.extend(votes);
}

/// R16, R24: takes a whole proof of this epoch's result, in our series or another one.
pub(super) fn on_link(open: &mut Epoch<'_>, from: PeerId, link: Link) {
    let base = Series { regroup: None, ..open.series() };
    if open.process.behind
        || open.slot.series.decided().is_some()
        || !link.receipt.series.is_beside(&open.series())
    {
        return;
    }
    let (voters, ledger) = (open.slot.base.as_slice(), open.process.ledger());
    if let Err(fault) =
        open.validator.check_link(base, voters, ledger, open.process.weight_max, &link)
    {
        return open.step.put(Output::Fault(from, fault));
    }
    let ours = |opening| open.slot.chain.contains(&open.validator.opened(opening));
    if !link.openings.iter().all(ours) && open.facts().has_majority() {
        return;
    }
    open.slot.abort(&mut open.step, Reason::DecidedElsewhere);
    take_link(open, link, true);
}

pub(super) fn fetch(open: &mut Epoch<'_>, update: Digest, from: Vec<PeerId>) {
    if open.slot.series.fetching == Some(update)
        || !timers::is_over(open.facts(), Timer::Fetch)
        || from.is_empty()
    {
        return;
    }
    open.slot.series.fetching = Some(update);
    open.step.put(Output::FetchUpdate(update, from));
}

pub(super) fn miss_update(open: &mut Epoch<'_>, update: Digest) {
    open.slot.updates.remove(&update);
    open.slot.series.fetching.take_if(|other| *other == update);
    open.slot.series.fetch_after = open.step.now + open.facts().repeat_interval();
}

pub(super) fn on_accept(open: &mut Epoch<'_>, message: &Verified<Message>, accept: &Accept) {
    let (from, digest) = (message.author(), accept.roster);
    open.conduct.clear(&from, Amends::Accept);
    let Some(ballot) = open.slot.ballot_voted_on(&open.me.peer, digest) else { return };
    let room = ballot.accepts.len() < MEMBERS_MAX;
    let repeated = room && ballot.accepts.insert(from, message.signature()).is_some();
    let Some(roster) = ballot.roster.clone() else { return };
    if !repeated && open.slot.has_accepted_another(&from, digest) {
        open.step.put(Output::Fault(from, Fault::Done(DoneFault::AcceptsTwo)));
    }
    let accepted = open.bound().accepted(roster.attempt);
    let mine = accepted == Some(digest) && roster::stands_by(open.facts(), &roster);
    if repeated && mine && open.slot.series.may_reply(open.step.now, from, Reply::Accept) {
        open.step.put(Output::Send(from, send::accept_message(open.facts(), digest)));
    }
}

/// R11: takes a vote; one roster has one value.
pub(super) fn on_done(open: &mut Epoch<'_>, message: &Verified<Message>, done: &Done) {
    let from = message.author();
    let run = open.validator.run;
    open.conduct.clear(&from, Amends::Reply);
    let Some(ballot) = open.slot.ballot_voted_on(&open.me.peer, done.roster) else { return };
    // Every stored vote on a roster that is known has been found to fit it.
    let fits = |vote: &Vote| vote.update == done.update && vote.r == done.r;
    if let Some(roster) = &ballot.roster
        && !ballot.dones.values().any(fits)
    {
        let receipt = roster.receipt(done.update);
        if wire::receipt_digest(&run, &receipt) != done.r || receipt.update != done.update {
            return open.step.put(Output::Fault(from, Fault::Done(DoneFault::OtherValue)));
        }
    }
    // Two voters that differ prove nothing against either: the value that has the majority
    // stands.
    if ballot.dones.get(&from).is_some_and(|other| other.r != done.r) {
        return open.step.put(Output::Fault(from, Fault::Done(DoneFault::TwoValues)));
    }
    let vote = Vote { r: done.r, update: done.update, signature: message.signature() };
    let room = ballot.dones.len() < MEMBERS_MAX;
    let repeated = room && ballot.dones.insert(from, vote).is_some();
    let me = open.me.peer;
    let voted = open.slot.ballots.get(&done.roster).is_some_and(|b| b.dones.contains_key(&me));
    if repeated && voted && open.slot.series.may_reply(open.step.now, from, Reply::Done) {
        open.step.put(Output::Send(from, open.validator.seal(Message::Done(done.clone()))));
    }
}

/// Moves the accepted roster on: Accepts complete, update stored, vote due.
pub(super) fn settle(open: &mut Epoch<'_>) -> bool {
    match open.slot.series.stage {
        Stage::Open { roster, progress, until } => match progress {
            Progress::Accepted => settle_accepted(open, roster),
            Progress::Reduce => settle_reduce(open, roster, until),
            Progress::Finished => vote(open, roster),
        },
        // R17: the members with a position in its ring wait for our vote.
        Stage::Decided(ref decided) => {
            let (digest, update) = (decided.roster, decided.link.receipt.update);
            open.slot.updates.is_flushed(&update)
                && open.slot.value(open.validator.quorum, digest) == Some(update)
                && vote(open, digest)
        }
        _ => false,
    }
}

/// R5: the ring opens when every member with a position has accepted.
fn settle_accepted(open: &mut Epoch<'_>, digest: Digest) -> bool {
    let Some(roster) = open.slot.roster(&digest).cloned() else { return false };
    let all = open.slot.ballots.get(&digest).is_some_and(|ballot| {
        !roster.is_free() || roster.ring().all(|m| ballot.accepts.contains_key(&m.peer))
    });
    if !all {
        return false;
    }
    let until = open.step.now + open.facts().ring_time(&roster);
    open.slot.series.stage = Stage::Open { roster: digest, progress: Progress::Reduce, until };
    let index = roster.ring().position(|m| m.peer == open.me.peer);
    let layout = if roster.is_free() { Layout::of(&roster, open.validator.elements) } else { None };
    if let (Some(layout), Some(index)) = (layout, index) {
        let (members, keep) = (roster.ring().copied().collect(), roster.keep.clone());
        let kept = keep.iter().fold(Blocks::default(), |all, keep| all.and(&keep.blocks()));
        let all = kept.and(layout.redone()) == Blocks::all(open.validator.elements);
        assert!(all && !kept.overlaps(layout.redone()), "D3: each block once");
        let ring = Ring { roster: digest, members, index, layout, keep };
        open.step.put(Output::Ring(Arc::new(ring)));
        open.slot.ballot(&open.me.peer, digest).ring = RingState::Running;
    }
    true
}

/// R6: a peer that has no ring, or lost it, fetches what others computed.
fn settle_reduce(open: &mut Epoch<'_>, digest: Digest, until: Time) -> bool {
    let Some(update) = open.slot.value(open.validator.quorum, digest) else { return false };
    if open.slot.updates.is_flushed(&update) {
        // The first to finish waits for peers that still compute or fetch, for as long as they
        // may: a higher attempt would end what they are about to finish.
        let until = until.max(open.step.now + open.facts().done_time());
        open.slot.series.stage =
            Stage::Open { roster: digest, progress: Progress::Finished, until };
        return true;
    }
    let runs = |ballot: &Ballot| ballot.ring == RingState::Running;
    if !open.slot.ballots.get(&digest).is_some_and(runs) {
        let holders = open.slot.holders(open.me.peer, update);
        fetch(open, update, holders);
    }
    false
}

/// R5: votes when (a) the ground of the vote is here, (b) the update is flushed, (c) nothing
/// higher is promised.
fn vote(open: &mut Epoch<'_>, digest: Digest) -> bool {
    let Some(roster) = open.slot.roster(&digest).cloned() else { return false };
    let Some(ballot) = open.slot.ballots.get(&digest) else { return false };
    let (me, bound) = (open.me.peer, open.bound());
    // R20: a vote from before a restart is sent again.
    let logged = bound.done(roster.attempt).is_some();
    let bound_to_it = bound.accepted(roster.attempt) == Some(digest);
    let free = bound.promised() <= roster.attempt;
    if ballot.dones.contains_key(&me) || !(open.facts().is_voter() && bound_to_it && free) {
        return false;
    }
    let Some(update) = open.slot.value(open.validator.quorum, digest) else { return false };
    if !(logged || is_grounded(open, digest, update)) {
        return false;
    }
    let receipt = roster.receipt(update);
    let done = open.validator.done(&roster, &receipt);
    let (r, message) = (done.r, open.validator.seal(Message::Done(done)));
    let vote = Vote { r, update, signature: message.signature() };
    let attempt = roster.attempt;
    if !logged {
        let Some(ballot) = open.slot.ballots.get(&digest) else { return false };
        let accepts = ballot.ground(open.validator.quorum, open.voters(), update);
        let roster = roster.as_ref().clone();
        let voted = Voted { depth: open.slot.depth(), roster, update, accepts };
        open.slot.grounds.insert(wire::ranked(&open.validator.run, &voted), voted.clone());
        open.log(Record::Voted { voted: Box::new(voted) });
    }
    let logged = open.bound().done(attempt).is_some();
    assert!(logged, "R1: a vote is logged before it counts");
    open.slot.ballot(&open.me.peer, digest).dones.insert(me, vote);
    open.step.put(Output::Gossip(message));
    true
}

/// R5: whether the ground of a vote for this value is here: a quorum accepted the roster or, if
/// a third may lie and the roster is free, says that it holds the update. We say so ourselves
/// first, once.
fn is_grounded(open: &mut Epoch<'_>, digest: Digest, update: Digest) -> bool {
    let Some(roster) = open.slot.roster(&digest).cloned() else { return false };
    if open.validator.quorum.prepares() && roster.is_free() {
        acceptor::prepare(open, digest, &roster, update);
        let ballot = open.slot.ballots.get(&digest);
        return ballot
            .is_some_and(|b| b.is_prepared(open.validator.quorum, open.voters(), &update));
    }
    let Some(ballot) = open.slot.ballots.get(&digest) else { return false };
    let accepted = |v: &Voter| {
        ballot.accepts.contains_key(&v.peer) && roster.members.iter().any(|m| m.voter() == *v)
    };
    open.validator.quorum.holds(open.voters(), accepted) || !open.validator.keeps(Rule::R5)
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
