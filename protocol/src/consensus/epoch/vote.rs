//! From an accepted roster to our vote: Accepts, the ring, the update, the ground; and the votes of
//! others (R5, R6, R11). What a majority of votes decides is in `decide`.

use std::sync::Arc;

use crate::base::blocks::Blocks;
use crate::base::fault::{DoneFault, Fault};
use crate::base::id::Digest;
use crate::base::rule::Rule;
use crate::base::sign::Verified;
use crate::base::time::Time;
use crate::history::evidence::Evidence;
use crate::history::log::Record;
use crate::machine::event::Progress;
use crate::machine::output::{Output, Ring};
use crate::message::{Accept, Done, MEMBERS_MAX, Message, Voted, Voter, wire};
use crate::ring::Layout;

use super::ballot::{Ballot, RingState, Vote};
use super::open_epoch::Epoch;
use super::series::{Reply, Stage};
use super::{acceptor, decide, roster, send};

/// R5: an Accept, which may come before its roster: then only its digest is known, and few such
/// ballots are stored. Two rosters of one attempt that one start accepts are its fault (R3). A
/// repeated Accept asks for ours.
pub(super) fn on_accept(epoch: &mut Epoch<'_>, message: &Arc<Verified<Message>>, accept: &Accept) {
    let (from, digest) = (message.author(), accept.roster);
    epoch.conduct.note_accept(&from);
    let Some(ballot) = epoch.slot.ballot_voted_on(&epoch.me.peer, digest) else { return };
    if !ballot.is_of(&accept.series) {
        return;
    }
    let room = ballot.accepts.len() < MEMBERS_MAX;
    let repeated = room && ballot.accepts.insert(from, message.signature()).is_some();
    let Some(roster) = ballot.roster.clone() else { return };
    if !repeated && let Some((signature, other)) = epoch.slot.other_accepted(&from, digest) {
        let named = wire::roster_digest(&epoch.validator.run, &other);
        let said = Message::Accept(Accept { series: other.series, roster: named });
        let rosters = vec![other, Arc::clone(&roster)];
        let proof = Evidence::new(epoch.validator, (said, signature), message, rosters);
        epoch.step.put(Output::fault(from, Fault::Done(DoneFault::AcceptsTwo), proof));
    }
    let accepted = epoch.bound().accepted(roster.attempt);
    let mine = accepted == Some(digest) && roster::stands_by(epoch.facts(), &roster);
    if repeated && mine && epoch.slot.series.may_reply(epoch.step.now, from, Reply::Accept) {
        epoch.step.put(Output::Send(from, send::accept_message(epoch.facts(), digest)));
    }
}

/// R11: takes a vote; one roster has one value.
pub(super) fn on_done(epoch: &mut Epoch<'_>, message: &Arc<Verified<Message>>, done: &Done) {
    let (from, me, run) = (message.author(), epoch.me.peer, epoch.validator.run);
    epoch.conduct.note_reply(&from);
    let Some(ballot) = epoch.slot.ballot_voted_on(&me, done.roster) else { return };
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
    if let Some(other) = ballot.dones.get(&from).filter(|other| other.r != done.r) {
        let said = Message::Done(Done { r: other.r, update: other.update, ..done.clone() });
        let proof = Evidence::new(epoch.validator, (said, other.signature), message, Vec::new());
        return epoch.step.put(Output::fault(from, Fault::Done(DoneFault::TwoValues), proof));
    }
    let vote = Vote { r: done.r, update: done.update, signature: message.signature() };
    let room = ballot.dones.len() < MEMBERS_MAX;
    let repeated = room && ballot.dones.insert(from, vote).is_some();
    let voted = epoch.slot.ballots.get(&done.roster).is_some_and(|b| b.dones.contains_key(&me));
    if repeated && voted && epoch.slot.series.may_reply(epoch.step.now, from, Reply::Done) {
        epoch.step.put(Output::Send(from, epoch.validator.seal(Message::Done(done.clone()))));
    }
}

/// Moves the accepted roster on: Accepts complete, update stored, vote due.
pub(super) fn advance_roster(epoch: &mut Epoch<'_>) -> bool {
    match epoch.slot.series.stage {
        Stage::Open { roster, progress, until } => match progress {
            Progress::Accepted => open_ring(epoch, roster),
            Progress::Reduce => await_update(epoch, roster, until),
            Progress::Finished => cast_vote(epoch, roster),
        },
        // R17: the members with a position in its ring wait for our vote.
        Stage::Decided(ref decided) => {
            let (digest, update) = (decided.roster, decided.link.receipt.update);
            epoch.slot.updates.is_flushed(&update)
                && epoch.slot.value(epoch.validator.quorum, digest) == Some(update)
                && cast_vote(epoch, digest)
        }
        _ => false,
    }
}

/// R5: the ring opens when every member with a position has accepted.
fn open_ring(epoch: &mut Epoch<'_>, digest: Digest) -> bool {
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
fn await_update(epoch: &mut Epoch<'_>, roster: Digest, until: Time) -> bool {
    let Some(update) = epoch.slot.value(epoch.validator.quorum, roster) else { return false };
    if epoch.slot.updates.is_flushed(&update) {
        // The first to finish waits for peers that still compute or fetch, for as long as they
        // may: a higher attempt would end what they are about to finish.
        let until = until.max(epoch.step.now + epoch.facts().done_time());
        epoch.slot.series.stage = Stage::Open { roster, progress: Progress::Finished, until };
        return true;
    }
    let runs = |ballot: &Ballot| ballot.ring == RingState::Running;
    if !epoch.slot.ballots.get(&roster).is_some_and(runs) {
        let holders = epoch.slot.holders(epoch.me.peer, update);
        decide::fetch(epoch, update, holders);
    }
    false
}

/// R5: votes when (a) the ground of the vote is here, (b) the update is flushed, (c) nothing
/// higher is promised.
fn cast_vote(epoch: &mut Epoch<'_>, digest: Digest) -> bool {
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
    let done = epoch.validator.done(&roster, &roster.receipt(update));
    let (r, message) = (done.r, epoch.validator.seal(Message::Done(done)));
    let vote = Vote { r, update, signature: message.signature() };
    if !logged {
        let Some(ballot) = epoch.slot.ballots.get(&digest) else { return false };
        let accepts = ballot.ground(epoch.validator.quorum, epoch.voters(), update);
        let roster = roster.as_ref().clone();
        let voted = Voted { depth: epoch.slot.depth(), roster, update, accepts };
        epoch.slot.grounds.insert(wire::ranked(&epoch.validator.run, &voted), voted.clone());
        epoch.log(Record::Voted { voted: Box::new(voted) });
    }
    let logged = epoch.bound().done(roster.attempt).is_some();
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
    let (validator, quorum) = (epoch.validator, epoch.validator.quorum);
    if quorum.prepares() && roster.is_free() && validator.keeps(Rule::Prepared) {
        acceptor::prepare(epoch, digest, &roster, update);
        let ballot = epoch.slot.ballots.get(&digest);
        return ballot.is_some_and(|b| b.is_prepared(quorum, epoch.voters(), &update));
    }
    let Some(ballot) = epoch.slot.ballots.get(&digest) else { return false };
    let accepted = |v: &Voter| {
        ballot.accepts.contains_key(&v.peer) && roster.members.iter().any(|m| m.voter() == *v)
    };
    quorum.holds(epoch.voters(), accepted) || !validator.keeps(Rule::R5)
}
