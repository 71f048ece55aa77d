//! How an epoch begins: its series, anew or as the log of votes left them, and which peers are Ready
//! in it (R13, R20, R31, R36).

use std::sync::Arc;
use std::time::Duration;

use crate::base::fault::{Fault, ReadyFault, require};
use crate::base::id::{Digest, PeerId};
use crate::machine::event::Progress;
use crate::machine::output::Output;
use crate::message::{Loss, Message, Ready, Roster, Voted, wire};

use super::ballot::{Ballot, RingState, Vote};
use super::facts::Facts;
use super::open_epoch::Epoch;
use super::series::Stage;
use super::slot::Frozen;
use super::{reconfigure, send};

/// R20: returns to the series that the log entered last, and to where it stood there.
pub(super) fn resume(epoch: &mut Epoch<'_>) {
    loop {
        let ballots = resumed_ballots(epoch.facts());
        epoch.slot.ballots.extend(ballots);
        let bound = epoch.bound();
        let (dones, opening) = (bound.dones().cloned(), bound.opened().cloned());
        for voted in dones.collect::<Vec<Voted>>() {
            epoch.slot.grounds.insert(wire::ranked(&epoch.validator.run, &voted), voted);
        }
        let Some(opening) = opening else { break };
        reconfigure::enter_opened(epoch, opening);
    }
    let facts = epoch.facts();
    let bound = facts.bound();
    let (attempt, joined, now) = (bound.attempt(), bound.joined().cloned(), facts.step.now);
    let accepted = bound.accepted(attempt);
    if let Some(joined) = joined {
        let until = now + facts.join_time();
        epoch.slot.series.stage = Stage::Joined { regroup: joined.digest, until };
        reconfigure::note_joined(epoch, joined);
    } else if let Some(roster) = accepted {
        epoch.slot.series.stage = match facts.slot.roster(&roster) {
            // We voted on it, or may do so once its update is stored. A ring that lacks our delta
            // has ended before, or never will.
            Some(body) => {
                let computes = body.ring().any(|member| member.peer == facts.me.peer);
                let ring = if computes { Duration::ZERO } else { facts.ring_time(body) };
                let until = now + ring + facts.done_time();
                Stage::Open { roster, progress: Progress::Reduce, until }
            }
            None => Stage::Idle { left_out: None },
        };
    } else if attempt > 0 {
        let until = Some(now + facts.ask_time() + facts.accept_time());
        epoch.slot.series.stage = Stage::Recover { attempt: attempt.saturating_add(1), until };
    }
}

/// The rosters that we accepted in this series, with our own Accept and vote on each. The log does
/// not say whether the last vote was sent, so it is sent again, like a new one.
fn resumed_ballots(facts: Facts<'_>) -> Vec<(Digest, Ballot)> {
    let (me, bound) = (facts.me.peer, facts.bound());
    let said = |roster: &Roster| {
        if roster.attempt >= bound.attempt() {
            return None;
        }
        let voted = bound.done(roster.attempt)?;
        let done = facts.validator.done(roster, &voted.receipt());
        let (r, update) = (done.r, done.update);
        let signature = facts.validator.seal(Message::Done(done)).signature();
        Some(Vote { r, update, signature })
    };
    let ballot = |(digest, roster): (Digest, &Arc<Roster>)| {
        let mut ballot = Ballot { roster: Some(Arc::clone(roster)), ..Ballot::default() };
        // The ring needs the delta, which ended with the earlier process.
        ballot.ring = RingState::Lost;
        ballot.accepts.insert(me, send::accept_message(facts, digest).signature());
        ballot.computed = bound.done(roster.attempt).map(|voted| voted.update);
        ballot.dones.extend(said(roster).map(|vote| (me, vote)));
        (digest, ballot)
    };
    bound.rosters().map(ballot).collect()
}

/// R31: our training is over, with so many tokens. The weight is cut to what an epoch can hold,
/// since a greater one would be our fault. It is declared, unless we leave, and never changes in
/// this epoch.
pub(super) fn freeze(epoch: &mut Epoch<'_>, tokens: u64, norm: f32, loss: Loss) {
    let weight = tokens.min(epoch.process.weight_max);
    epoch.slot.frozen = Some(Frozen { weight, norm, loss, at: epoch.step.now });
    epoch.step.put_all(send::ready(epoch.facts()));
}

/// A signed Ready. One that contradicts an earlier one of the same start is its fault (R31).
pub(super) fn on_ready(epoch: &mut Epoch<'_>, from: PeerId, ready: &Ready) {
    if let Err(why) = note_ready(epoch, from, ready.incarnation, ready.weight) {
        epoch.step.put(Output::Fault(from, Fault::Ready(why)));
    }
}

/// Learns a Ready from a heartbeat, which repeats what a lost `Ready` would have said.
pub(super) fn learn_ready(epoch: &mut Epoch<'_>, peer: PeerId) {
    let Some(seen) = epoch.step.table.peers.get(&peer) else { return };
    let beat = &seen.beat;
    if beat.ready > 0 && beat.series.is_beside(&epoch.series()) {
        // A contradiction is a fault only if its author signed it as a Ready.
        let _ = note_ready(epoch, peer, beat.incarnation, beat.ready);
    }
}

/// Notes that a peer is Ready, from a message of any kind. A later start replaces an earlier one,
/// whose delta is lost with it. A weight that no epoch can hold is ignored; of a signed Ready the
/// gate has reported it.
///
/// # Errors
///
/// [`ReadyFault::Changed`] if the same start has declared another weight; nothing is noted then.
pub(super) fn note_ready(
    epoch: &mut Epoch<'_>,
    peer: PeerId,
    incarnation: u64,
    weight: u64,
) -> Result<(), ReadyFault> {
    if !epoch.process.can_weigh(weight) {
        return Ok(());
    }
    let known = epoch.slot.ready.get(&peer).map(|known| (known.incarnation, known.weight));
    let same = known.is_none_or(|(start, said)| start != incarnation || said == weight);
    require(same, ReadyFault::Changed)?;
    if known.is_none_or(|(start, _)| start < incarnation) {
        epoch.slot.declare(&epoch.step, peer, incarnation, weight);
    }
    Ok(())
}
