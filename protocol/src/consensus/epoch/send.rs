//! What is sent to one peer: an answer, a proof, or again a message that is not answered yet.

use std::sync::Arc;

use crate::base::id::{Digest, PeerId};
use crate::base::sign::Verified;
use crate::machine::event::Progress;
use crate::machine::output::Output;
use crate::message::{
    Accept, Ground, Message, Opened, Prepared, Ranked, Ready, Refusal, Refuse, Roster,
};

use super::facts::Facts;
use super::series::Stage;
use super::slot::Frozen;

/// Proves to a peer a vote that is proven to us.
pub(super) fn prove(facts: Facts<'_>, to: PeerId, vote: &Ranked) -> Option<Output> {
    let voted = facts.slot.grounds.get(vote)?.clone();
    let ground = Message::Ground(Ground { series: facts.series(), voted });
    Some(Output::Send(to, facts.validator.seal(ground)))
}

/// Proves to a peer the vote whose value a roster adopts.
pub(super) fn prove_adopted(facts: Facts<'_>, to: PeerId, roster: &Roster) -> Option<Output> {
    prove(facts, to, &roster.highest_done()?)
}

/// Proves the adopted vote to all members of our roster, which else would not accept it.
pub(super) fn prove_to_all(facts: Facts<'_>, roster: &Roster) -> Vec<Output> {
    let others = roster.members.iter().filter(|m| m.peer != facts.me.peer);
    others.filter_map(|member| prove_adopted(facts, member.peer, roster)).collect()
}

/// R32: proves to a peer that the rings opened of which a roster keeps chunks.
pub(super) fn prove_kept(facts: Facts<'_>, to: PeerId, roster: &Roster) -> Vec<Output> {
    let opened = |digest: &Digest| {
        let ballot = facts.slot.ballots.get(digest)?;
        let kept = ballot.roster.as_ref()?;
        let (series, roster) = (facts.series(), kept.as_ref().clone());
        let opened = Opened { series, roster, accepts: ballot.acceptors(kept).collect() };
        Some(Output::Send(to, facts.validator.seal(Message::Opened(opened))))
    };
    roster.keep.iter().filter_map(|keep| opened(&keep.roster)).collect()
}

/// Our `Accept` of a roster, sealed. The same words get the same signature, so a repeat adds
/// nothing to what we have said.
pub(super) fn accept_message(facts: Facts<'_>, digest: Digest) -> Arc<Verified<Message>> {
    facts.validator.seal(Message::Accept(Accept { series: facts.series(), roster: digest }))
}

/// Our `Refuse` of a roster or question, with our promise and our head, by which its reader goes
/// on.
pub(super) fn refusal(facts: Facts<'_>, to: PeerId, what: Digest, reason: Refusal) -> Output {
    let (series, head, promised) = (facts.series(), facts.slot.head, facts.bound().promised());
    let refuse = Refuse { series, what, promised, head, reason };
    Output::Send(to, facts.validator.seal(Message::Refuse(refuse)))
}

/// Our Ready, once a delta is frozen.
fn ready_message(facts: Facts<'_>) -> Option<Arc<Verified<Message>>> {
    let (frozen, series, incarnation) = (facts.slot.frozen?, facts.series(), facts.me.incarnation);
    let Frozen { weight, norm, loss, .. } = frozen;
    let ready = Ready { series, incarnation, weight, norm, loss };
    Some(facts.validator.seal(Message::Ready(ready)))
}

/// Announces our Ready, unless we leave.
pub(super) fn ready(facts: Facts<'_>) -> Option<Output> {
    if facts.leaving.is_some() { None } else { ready_message(facts).map(Output::Gossip) }
}

/// Repeats the current message to the peers whose answer is missing.
pub(super) fn repeats(facts: Facts<'_>) -> Vec<Output> {
    let mut out = Vec::new();
    if let Some(asking) = &facts.slot.series.asking {
        let silent =
            facts.step.table.live_in(facts.series(), facts.step.now).filter(|(peer, _)| {
                !asking.statuses.contains_key(peer) || !asking.reports.contains_key(peer)
            });
        out.extend(silent.map(|(peer, _)| Output::Send(*peer, Arc::clone(&asking.query))));
    }
    match facts.slot.series.stage {
        Stage::Open { roster, progress: Progress::Accepted, .. } => {
            out.extend(repeat_accept(facts, roster));
        }
        Stage::Open { roster, progress: Progress::Finished, .. } => {
            // A roster that adopts needs no ring, so nothing has waited for the Accepts; a vote
            // does.
            let ballot = facts.slot.ballots.get(&roster);
            if !ballot.is_some_and(|ballot| ballot.dones.contains_key(&facts.me.peer)) {
                out.extend(repeat_accept(facts, roster));
            }
            out.extend(repeat_done(facts, roster).into_iter().flatten());
        }
        Stage::Joined { regroup, .. } => out.extend(repeat_join(facts, regroup)),
        Stage::Open { progress: Progress::Reduce, .. }
        | Stage::Idle { .. }
        | Stage::Recover { .. }
        | Stage::Decided(_)
        | Stage::Applying(_) => {}
    }
    out
}

/// Sends the roster, as its proposer signed it, and our Accept to the members whose Accept is
/// missing.
fn repeat_accept(facts: Facts<'_>, digest: Digest) -> Vec<Output> {
    let Some(ballot) = facts.slot.ballots.get(&digest) else { return Vec::new() };
    let (Some(roster), Some(signed)) = (&ballot.roster, &ballot.signed) else { return Vec::new() };
    let accept = accept_message(facts, digest);
    let missing = |peer: &PeerId| *peer != facts.me.peer && !ballot.accepts.contains_key(peer);
    let missing = roster.members.iter().map(|m| m.peer).filter(missing);
    let again = |to: PeerId| {
        let messages = [signed, &accept].map(|message| Output::Send(to, Arc::clone(message)));
        prove_adopted(facts, to, roster).into_iter().chain(messages)
    };
    missing.flat_map(again).collect()
}

/// Sends our own Done to voters whose Done is missing; a peer that has committed answers with
/// `Commit`.
fn repeat_done(facts: Facts<'_>, digest: Digest) -> Option<impl Iterator<Item = Output>> {
    let ballot = facts.slot.ballots.get(&digest)?;
    let message = latest_message(facts, digest)?;
    let others = facts.voters().iter().map(|voter| voter.peer);
    let missing =
        others.filter(move |peer| *peer != facts.me.peer && !ballot.dones.contains_key(peer));
    Some(missing.map(move |peer| Output::Send(peer, Arc::clone(&message))))
}

/// Our newest message about a finished roster: our Done, the update that we hold, or the Ready
/// of a peer without a vote.
fn latest_message(facts: Facts<'_>, digest: Digest) -> Option<Arc<Verified<Message>>> {
    let roster = facts.slot.roster(&digest)?;
    let bound = facts.bound();
    if let Some(voted) = bound.done(roster.attempt) {
        let done = facts.validator.done(roster, &voted.receipt());
        return Some(facts.validator.seal(Message::Done(done)));
    }
    if let Some(update) = bound.prepared(roster.attempt) {
        let prepared = Prepared { series: facts.series(), roster: digest, update };
        return Some(facts.validator.seal(Message::Prepared(prepared)));
    }
    ready_message(facts)
}

/// Sends the Regroup, as its proposer signed it, and our Join to the members whose Join is
/// missing.
fn repeat_join(facts: Facts<'_>, digest: Digest) -> Vec<Output> {
    let Some(known) = facts.slot.series.gathering.known.get(&digest) else { return Vec::new() };
    let Some(regroup) = &known.regroup else { return Vec::new() };
    let Some((join, _)) = known.joins.get(&facts.me.peer) else { return Vec::new() };
    let message = facts.validator.seal(Message::Join(join.clone()));
    let again = |to: PeerId| {
        // After a restart the Regroup is known, but no longer as its proposer signed it.
        let messages = known.signed.iter().chain([&message]);
        let messages = messages.map(move |message| Output::Send(to, Arc::clone(message)));
        messages.chain(join.done.iter().filter_map(move |vote| prove(facts, to, vote)))
    };
    let missing = regroup.members.iter().filter(|m| !known.joins.contains_key(&m.peer));
    missing.flat_map(|member| again(member.peer)).collect()
}
