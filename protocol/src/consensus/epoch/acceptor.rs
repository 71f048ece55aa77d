//! What a voter promises, accepts and answers, bound by its log of votes (R2–R5, R32, G2, G14).

use std::sync::Arc;

use crate::base::fault::{DoneFault, Fault, RosterFault, require};
use crate::base::id::{Digest, PeerId};
use crate::base::rule::Rule;
use crate::base::sign::Verified;
use crate::history::evidence::{self, Evidence};
use crate::history::log::Record;
use crate::machine::event::{Event, Progress, Reason};
use crate::machine::output::Output;
use crate::message::{
    Ground, Heard, MEMBERS_MAX, Message, Opened, Prepared, Query, Refusal, Report, Roster, Status,
    Voter, wire,
};

use super::ballot::{Ballot, Vote};
use super::facts::Facts;
use super::open_epoch::Epoch;
use super::series::{Reply, Stage};
use super::{admission, recover, roster, salvage, send, turns};

/// Promises `attempt` and gives up what lies below it (R2).
pub(super) fn promise(epoch: &mut Epoch<'_>, attempt: u64) {
    if epoch.validator.keeps(Rule::R2) && epoch.bound().promised() < attempt {
        epoch.log(Record::Promised { series: epoch.series(), attempt });
    }
    let under_way = match &epoch.slot.series.stage {
        Stage::Open { roster, .. } => epoch.slot.roster(roster).map(|r| r.attempt),
        _ => None,
    };
    if under_way.is_some_and(|mine| mine < attempt) {
        epoch.slot.abort(&mut epoch.step, Reason::HigherAttempt);
    }
    let until = epoch.step.now + epoch.facts().ask_time() + epoch.facts().accept_time();
    if matches!(epoch.slot.series.stage, Stage::Idle { .. } | Stage::Recover { .. }) {
        let attempt = attempt.max(turns::ours(epoch.facts()));
        epoch.slot.series.stage = Stage::Recover { attempt, until: Some(until) };
    }
    epoch.slot.series.asking.take_if(|asking| asking.attempt < attempt);
}

/// A roster of another peer or our own, which has passed [`roster::check_roster`]. What every peer
/// can see to be wrong is a fault of the proposer. Then a member accepts it, or refuses with a
/// reason that the proposer can act on. A roster that was accepted before is answered again, since
/// the Accept may be lost.
pub(super) fn on_roster(epoch: &mut Epoch<'_>, message: &Arc<Verified<Message>>, roster: &Roster) {
    let proposer = message.author();
    let digest = wire::roster_digest(&epoch.validator.run, roster);
    let is_mine = proposer == epoch.me.peer;
    let other = if is_mine { None } else { epoch.slot.other_proposed(digest, roster) };
    let (twice, other) = (other.is_some(), other.and_then(|ballot| ballot.signed.clone()));
    let checked = roster::check_newcomers(epoch.facts(), roster)
        .and_then(|()| roster::check_heard(epoch.facts(), roster))
        .and_then(|()| require(!twice, RosterFault::TwoOfOneAttempt))
        .and_then(|()| epoch.validator.check_seals(roster));
    if let Err(why) = checked {
        let (fault, run) = (Fault::Roster(why), &epoch.validator.run);
        let both = other.map(|other| [other, Arc::clone(message)]);
        let proof = both.map(|messages| Evidence { messages, rosters: Vec::new() });
        let proof = proof.filter(|proof| proof.fault(run) == Some(fault));
        return epoch.step.put(Output::fault(proposer, fault, proof));
    }
    admission::learn_notices(&mut epoch.step, roster.trust.as_deref());
    let roster = note_roster(epoch, digest, message, roster);
    for heard in &roster.heard {
        epoch.slot.series.note_reached(heard.voter.peer, roster.attempt);
    }
    if epoch.bound().accepted(roster.attempt) == Some(digest) {
        if roster::stands_by(epoch.facts(), &roster)
            && epoch.slot.series.may_reply(epoch.step.now, proposer, Reply::Roster)
        {
            epoch.step.put(Output::Send(proposer, send::accept_message(epoch.facts(), digest)));
        }
        return;
    }
    if epoch.facts().looks_on() {
        return;
    }
    if roster.member(&epoch.me.peer).is_none() {
        return recover::note_left_out(epoch, &roster, None);
    }
    match acceptable(epoch, digest, &roster) {
        Ok(()) => accept(epoch, digest, &roster),
        Err(reason) => {
            recover::note_left_out(epoch, &roster, Some(reason));
            epoch.step.put(send::refusal(epoch.facts(), proposer, digest, reason));
        }
    }
}

/// Remembers a roster. Votes on it that came earlier and do not fit it are dropped.
fn note_roster(
    epoch: &mut Epoch<'_>,
    digest: Digest,
    message: &Arc<Verified<Message>>,
    roster: &Roster,
) -> Arc<Roster> {
    let run = epoch.validator.run;
    let ballot = epoch.slot.ballot(&epoch.me.peer, digest);
    ballot.signed.get_or_insert_with(|| Arc::clone(message));
    if let Some(known) = &ballot.roster {
        return Arc::clone(known);
    }
    let fits = |vote: &Vote| {
        let receipt = roster.receipt(vote.update);
        receipt.update == vote.update && wire::receipt_digest(&run, &receipt) == vote.r
    };
    ballot.dones.retain(|_, vote| fits(vote));
    ballot.accepts.retain(|peer, _| roster.member(peer).is_some());
    let roster = Arc::new(roster.clone());
    ballot.roster = Some(Arc::clone(&roster));
    roster
}

/// R3, R4: what only this voter can know.
fn acceptable(epoch: &mut Epoch<'_>, digest: Digest, roster: &Roster) -> Result<(), Refusal> {
    let accepted = epoch.bound().accepted(roster.attempt);
    let free = accepted.is_none_or(|other| other == digest) || !epoch.validator.keeps(Rule::R3);
    require(free && roster.attempt >= epoch.bound().promised(), Refusal::Promised)?;
    let me = roster.member(&epoch.me.peer).ok_or(Refusal::Rule)?;
    // Only a member itself knows its weight: another member with a wrong one refuses for
    // itself.
    let weight = epoch.slot.frozen.map(|frozen| frozen.weight);
    let mine = me.incarnation == epoch.me.incarnation && Some(me.weight) == weight;
    require(me.log == epoch.me.log && (me.weight == 0 || mine), Refusal::Weight)?;
    salvage::check_kept(epoch.facts(), roster)?;
    require(roster.attempt != 1 || roster.adopt == epoch.slot.forced, Refusal::Rule)?;
    let proven = roster.highest_done().is_none_or(|vote| epoch.slot.grounds.knows(&vote));
    require(proven || !epoch.validator.keeps(Rule::Ground), Refusal::Unproven)?;
    let heard = name_liars(epoch, roster.heard.clone(), roster.attempt);
    require(heard.len() == roster.heard.len(), Refusal::Rule)?;
    admission::check_trust(epoch, roster)?;
    let ours = roster.proposer == epoch.me.peer;
    if ours { Ok(()) } else { roster::check_places(epoch.facts(), roster) }
}

/// R3: joins the ballot. The roster is logged before its Accept counts or leaves, and whatever
/// attempt was under way ends.
pub(super) fn accept(epoch: &mut Epoch<'_>, digest: Digest, roster: &Arc<Roster>) {
    epoch.slot.abort(&mut epoch.step, Reason::HigherAttempt);
    epoch.log(Record::Accepted { roster: Box::new(roster.as_ref().clone()) });
    epoch.slot.series.asking.take_if(|asking| asking.attempt <= roster.attempt);
    epoch.slot.series.turn_since = None;
    let until = epoch.step.now + epoch.facts().accept_time_of(roster);
    epoch.slot.series.stage = Stage::Open { roster: digest, progress: Progress::Accepted, until };
    epoch.slot.series.repeat_at = epoch.step.now + epoch.facts().repeat_interval();
    let logged = epoch.bound().accepted(roster.attempt);
    assert!(logged == Some(digest), "R1: an Accept is logged before it counts");
    let (me, message) = (epoch.me.peer, send::accept_message(epoch.facts(), digest));
    epoch.slot.ballot(&epoch.me.peer, digest).accepts.insert(me, message.signature());
    epoch.step.put(Output::Gossip(message));
    epoch.step.put(Output::Event(Event::Roster {
        epoch: epoch.series().epoch,
        attempt: roster.attempt,
        members: roster.members.iter().map(|m| m.peer).collect(),
        weights: roster.members.iter().map(|m| m.weight).collect(),
        adopt: roster.adopt.as_ref().map(|r| wire::receipt_digest(&epoch.validator.run, r)),
        kept: roster.keep.iter().map(|keep| keep.chunks.len()).sum(),
    }));
}

/// Records that a voter asks for an attempt of its. It gets its answer once we have come to that
/// attempt (G2).
pub(super) fn on_query(epoch: &mut Epoch<'_>, from: PeerId, query: &Query) {
    if query.attempt < 2 || epoch.facts().looks_on() {
        return;
    }
    epoch.slot.series.note_reached(from, query.attempt);
    if epoch.slot.series.queries.len() < MEMBERS_MAX {
        epoch.slot.series.queries.insert(from, query.attempt);
    }
}

/// R2: answers a Query with a promise.
pub(super) fn answer_query(epoch: &mut Epoch<'_>) -> bool {
    let (facts, ours) = (epoch.facts(), turns::ours(epoch.facts()));
    let mut queries = epoch.slot.series.queries.iter().map(|(peer, attempt)| (*peer, *attempt));
    let due = queries.find(|(peer, attempt)| *attempt <= ours || turns::is_free(facts, peer));
    let Some((from, attempt)) = due else { return false };
    epoch.slot.series.queries.remove(&from);
    if attempt < epoch.bound().promised() || !epoch.slot.series.stage.is_undecided() {
        if epoch.slot.series.may_reply(epoch.step.now, from, Reply::Query) {
            epoch.step.put(send::refusal(epoch.facts(), from, Digest::ZERO, Refusal::Promised));
        }
        return true;
    }
    epoch.slot.series.asking.take_if(|asking| asking.attempt <= attempt);
    let again = attempt == epoch.bound().promised();
    if !again {
        promise(epoch, attempt);
    }
    let status = epoch.validator.seal(Message::Status(status(epoch.facts(), attempt)));
    // Gossiped, so that all voters see the answer (G9); a repeated Query may mean that its
    // author has not got the answer.
    if epoch.facts().is_voter() && !again {
        epoch.step.put(Output::Gossip(status));
    } else {
        epoch.step.put(Output::Send(from, status));
    }
    if let Some(vote) = epoch.facts().highest_done() {
        epoch.step.put_all(send::prove(epoch.facts(), from, &vote));
    }
    let message = epoch.validator.seal(Message::Report(report(epoch.facts(), attempt)));
    epoch.step.put(Output::Send(from, message));
    true
}

/// R5: says once that we hold the update of a free roster.
pub(super) fn prepare(epoch: &mut Epoch<'_>, digest: Digest, roster: &Roster, update: Digest) {
    let (series, attempt, me) = (roster.series, roster.attempt, epoch.me.peer);
    let said = epoch.bound().prepared(attempt);
    let again = epoch.slot.ballots.get(&digest).is_some_and(|b| b.prepared.contains_key(&me));
    if again || said.is_some_and(|said| said != update) {
        return;
    }
    if said.is_none() {
        epoch.log(Record::Prepared { series, attempt, update });
    }
    let message =
        epoch.validator.seal(Message::Prepared(Prepared { series, roster: digest, update }));
    epoch.slot.ballot(&epoch.me.peer, digest).prepared.insert(me, (update, message.signature()));
    epoch.step.put(Output::Gossip(message));
}

/// R5: a voter says which update of a roster it holds.
pub(super) fn on_prepared(
    epoch: &mut Epoch<'_>,
    message: &Arc<Verified<Message>>,
    prepared: &Prepared,
) {
    let (from, update) = (message.author(), prepared.update);
    if !epoch.validator.quorum.prepares() {
        return;
    }
    epoch.conduct.note_reply(&from);
    let me = epoch.me.peer;
    let Some(ballot) = epoch.slot.ballot_voted_on(&me, prepared.roster) else { return };
    if !ballot.is_of(&prepared.series) {
        return;
    }
    match ballot.prepared.get(&from).copied() {
        Some((said, signature)) if said != update => {
            let said = Message::Prepared(Prepared { update: said, ..prepared.clone() });
            let proof = Evidence::new(epoch.validator, (said, signature), message, Vec::new());
            epoch.step.put(Output::fault(from, Fault::Done(DoneFault::HoldsTwo), proof));
        }
        Some(_) => {
            let mine = ballot.prepared.get(&me).map(|(update, _)| *update);
            if let Some(update) = mine
                && epoch.slot.series.may_reply(epoch.step.now, from, Reply::Prepared)
            {
                let mine = Prepared { series: epoch.series(), roster: prepared.roster, update };
                epoch.step.put(Output::Send(from, epoch.validator.seal(Message::Prepared(mine))));
            }
        }
        None if ballot.prepared.len() < MEMBERS_MAX => {
            ballot.prepared.insert(from, (update, message.signature()));
        }
        None => {}
    }
}

/// R8: a voter proves a vote, its own or one that it has heard of.
pub(super) fn on_ground(epoch: &mut Epoch<'_>, from: PeerId, ground: &Ground) {
    let vote = wire::ranked(&epoch.validator.run, &ground.voted);
    if epoch.slot.grounds.knows(&vote) {
        return;
    }
    if !epoch.validator.has_ground(&epoch.slot.chain(), &ground.voted) {
        return epoch.step.put(Output::Fault(from, Fault::Done(DoneFault::NoGround)));
    }
    epoch.slot.grounds.insert(vote, ground.voted.clone());
    recheck_rosters(epoch, |roster| roster.highest_done() == Some(vote));
}

/// R32: a voter proves that a ring opened of which its roster keeps chunks.
pub(super) fn on_opened(epoch: &mut Epoch<'_>, from: PeerId, opened: &Opened) {
    let digest = wire::roster_digest(&epoch.validator.run, &opened.roster);
    if salvage::has_opened(epoch.facts(), &digest) {
        return;
    }
    if !epoch.validator.has_opened(&epoch.slot.chain(), opened) {
        return epoch.step.put(Output::Fault(from, Fault::Roster(RosterFault::NeverOpened)));
    }
    let ballot = epoch.slot.ballot(&epoch.me.peer, digest);
    ballot.roster.get_or_insert_with(|| Arc::new(opened.roster.clone()));
    for (peer, signature) in &opened.accepts {
        ballot.accepts.insert(*peer, *signature);
    }
    recheck_rosters(epoch, |roster| roster.keep.iter().any(|keep| keep.roster == digest));
}

/// Checks once more the highest of the rosters that came before what proves them.
fn recheck_rosters(epoch: &mut Epoch<'_>, rests: impl Fn(&Roster) -> bool) {
    let rests = |ballot: &&Ballot| ballot.roster.as_deref().is_some_and(&rests);
    let waiting = epoch.slot.ballots.values().filter(rests);
    let highest = waiting.max_by_key(|ballot| ballot.attempt());
    let message = highest.and_then(|ballot| ballot.signed.clone());
    if let Some(message) = message
        && let Message::Roster(roster) = message.body()
    {
        on_roster(epoch, &message, roster);
    }
}

/// G14: the voters heard that do not contradict themselves; the others get a fault.
pub(super) fn name_liars(epoch: &mut Epoch<'_>, heard: Vec<Heard>, attempt: u64) -> Vec<Heard> {
    let (rest, liars) = roster::without_liars(epoch.facts(), heard, attempt);
    for liar in liars {
        let (who, validator) = (liar.voter.peer, epoch.validator);
        let proof = epoch.slot.denied(&liar, attempt).and_then(|(vote, roster)| {
            let status = evidence::status(roster.series, attempt, &liar);
            let status = validator.verified(who, status, liar.signature)?;
            let done = Message::Done(validator.done(&roster, &roster.receipt(vote.update)));
            Evidence::new(validator, (done, vote.signature), &status, vec![roster])
        });
        epoch.step.put(Output::fault(who, Fault::Done(DoneFault::Hidden), proof));
    }
    rest
}

/// What goes with our Status, to the peer that asked alone: it is too long to gossip.
pub(super) fn report(facts: Facts<'_>, attempt: u64) -> Report {
    let present = |v: &&Voter| facts.present(v);
    Report {
        series: facts.series(),
        attempt,
        chunks: facts.slot.finished(),
        ready: facts.slot.frozen.map(|frozen| (facts.me.incarnation, frozen.weight)),
        present: facts.voters().iter().filter(present).map(|v| v.peer).collect(),
    }
}

/// Our answer to a Query: the highest vote, by digest, and whether we could serve the forced value.
pub(super) fn status(facts: Facts<'_>, attempt: u64) -> Status {
    let forced = facts.slot.forced.as_ref().map(|forced| &forced.update);
    Status {
        series: facts.series(),
        log: facts.me.log,
        attempt,
        done: facts.highest_done(),
        holds_forced: forced.is_some_and(|update| facts.slot.updates.is_flushed(update)),
    }
}
