//! What a voter promises, accepts and answers, bound by its log of votes (R2–R5, R32, G2, G14).

use std::sync::Arc;

use crate::base::fault::{DoneFault, Fault, RosterFault};
use crate::base::id::{Digest, PeerId};
use crate::base::rule::Rule;
use crate::base::sign::Verified;
use crate::history::log::Record;
use crate::machine::event::{Event, Progress, Reason};
use crate::machine::output::Output;
use crate::message::wire;
use crate::message::{
    Ground, Heard, MEMBERS_MAX, Message, Opened, Prepared, Query, Refusal, Report, Roster, Status,
    Voter,
};

use super::ballot::{Ballot, Vote};
use super::conduct::{Amends, Offence};
use super::facts::Facts;
use super::open::Epoch;
use super::series::{Reply, Stage};
use super::{admission, recover, roster, salvage, send, turns};

/// Promises `attempt` and gives up what lies below it (R2).
pub(super) fn promise(open: &mut Epoch<'_>, attempt: u64) {
    if open.validator.keeps(Rule::R2) && open.bound().promised() < attempt {
        open.log(Record::Promised { series: open.series(), attempt });
    }
    let under_way = match &open.slot.series.stage {
        Stage::Open { roster, .. } => open.slot.roster(roster).map(|r| r.attempt),
        _ => None,
    };
    if under_way.is_some_and(|mine| mine < attempt) {
        open.slot.abort(&mut open.step, Reason::HigherAttempt);
    }
    let until = open.step.now + open.facts().ask_time() + open.facts().accept_time();
    if matches!(open.slot.series.stage, Stage::Idle { .. } | Stage::Recover { .. }) {
        let attempt = attempt.max(turns::ours(open.facts()));
        open.slot.series.stage = Stage::Recover { attempt, until: Some(until) };
    }
    open.slot.series.asking.take_if(|asking| asking.attempt < attempt);
}

pub(super) fn on_roster(open: &mut Epoch<'_>, message: &Arc<Verified<Message>>, roster: &Roster) {
    let proposer = message.author();
    let checked = roster::check_newcomers(open.facts(), roster)
        .and_then(|()| roster::check_heard(open.facts(), roster));
    if let Err(why) = checked {
        return open.step.put(Output::Fault(proposer, Fault::Roster(why)));
    }
    let digest = wire::roster_digest(&open.validator.run, roster);
    let mine = proposer == open.me.peer;
    if !mine && let Some(other) = open.slot.other_of_its_proposer(digest, roster) {
        if other.series == roster.series {
            open.step.put(Output::Fault(proposer, Fault::Roster(RosterFault::TwoOfOneAttempt)));
        }
        return;
    }
    if let Err(why) = open.validator.check_seals(roster) {
        return open.step.put(Output::Fault(proposer, Fault::Roster(why)));
    }
    admission::learn_notices(&mut open.step, roster.trust.as_deref());
    let roster = note_roster(open, digest, message, roster);
    for heard in &roster.heard {
        open.slot.series.note_reached(heard.voter.peer, roster.attempt);
    }
    if open.bound().accepted(roster.attempt) == Some(digest) {
        if roster::stands_by(open.facts(), &roster)
            && open.slot.series.may_reply(open.step.now, proposer, Reply::Roster)
        {
            open.step.put(Output::Send(proposer, send::accept_message(open.facts(), digest)));
        }
        return;
    }
    if open.facts().looks_on() {
        return;
    }
    if roster.member(&open.me.peer).is_none() {
        return recover::be_patient(open);
    }
    match acceptable(open, digest, &roster) {
        Ok(()) => accept(open, digest, &roster),
        Err(reason) => {
            recover::be_patient(open);
            open.step.put(send::refusal(open.facts(), proposer, digest, reason));
        }
    }
}

/// Remembers a roster. Votes on it that came earlier and do not fit it are dropped.
fn note_roster(
    open: &mut Epoch<'_>,
    digest: Digest,
    message: &Arc<Verified<Message>>,
    roster: &Roster,
) -> Arc<Roster> {
    let run = open.validator.run;
    let ballot = open.slot.ballot(&open.me.peer, digest);
    ballot.signed.get_or_insert_with(|| Arc::clone(message));
    if let Some(known) = &ballot.roster {
        return Arc::clone(known);
    }
    let fits = |vote: &Vote| {
        let receipt = roster.receipt(vote.update);
        receipt.update == vote.update && wire::receipt_digest(&run, &receipt) == vote.r
    };
    ballot.dones.retain(|_, vote| fits(vote));
    let roster = Arc::new(roster.clone());
    ballot.roster = Some(Arc::clone(&roster));
    roster
}

/// R3, R4: what only this voter can know.
fn acceptable(open: &mut Epoch<'_>, digest: Digest, roster: &Roster) -> Result<(), Refusal> {
    let accepted = open.bound().accepted(roster.attempt);
    let rival = accepted.is_some_and(|other| other != digest);
    if roster.attempt < open.bound().promised() || (rival && open.validator.keeps(Rule::R3)) {
        return Err(Refusal::Promised);
    }
    let Some(me) = roster.member(&open.me.peer) else { return Err(Refusal::Rule) };
    // Only a member itself knows its weight: another member with a wrong one refuses for
    // itself.
    let weight = open.slot.frozen.map(|frozen| frozen.weight);
    let mine = me.incarnation == open.me.incarnation && Some(me.weight) == weight;
    if me.log != open.me.log || (me.weight > 0 && !mine) {
        return Err(Refusal::Weight);
    }
    salvage::check_kept(open.facts(), roster)?;
    if roster.attempt == 1 && roster.adopt != open.slot.forced {
        return Err(Refusal::Rule);
    }
    if roster.highest_done().is_some_and(|vote| !open.slot.grounds.knows(&vote)) {
        return Err(Refusal::Unproven);
    }
    let heard = name_liars(open, roster.heard.clone(), roster.attempt);
    if heard.len() < roster.heard.len() {
        return Err(Refusal::Rule);
    }
    admission::check_trust(open, roster)?;
    if roster.proposer == open.me.peer {
        Ok(())
    } else {
        roster::check_places(open.facts(), roster)
    }
}

pub(super) fn accept(open: &mut Epoch<'_>, digest: Digest, roster: &Arc<Roster>) {
    open.slot.abort(&mut open.step, Reason::HigherAttempt);
    open.log(Record::Accepted { roster: Box::new(roster.as_ref().clone()) });
    open.slot.series.asking.take_if(|asking| asking.attempt <= roster.attempt);
    open.slot.series.turn_since = None;
    let until = open.step.now + open.facts().accept_time_of(roster);
    open.slot.series.stage = Stage::Open { roster: digest, progress: Progress::Accepted, until };
    open.slot.series.repeat_at = open.step.now + open.facts().repeat_interval();
    let logged = open.bound().accepted(roster.attempt);
    assert!(logged == Some(digest), "R1: an Accept is logged before it counts");
    let (me, message) = (open.me.peer, send::accept_message(open.facts(), digest));
    open.slot.ballot(&open.me.peer, digest).accepts.insert(me, message.signature());
    open.step.put(Output::Gossip(message));
    open.step.put(Output::Event(Event::Roster {
        epoch: open.series().epoch,
        attempt: roster.attempt,
        members: roster.members.iter().map(|m| m.peer).collect(),
        adopt: roster.adopt.as_ref().map(|r| wire::receipt_digest(&open.validator.run, r)),
        kept: roster.keep.iter().map(|keep| keep.chunks.len()).sum(),
    }));
}

/// Records that a voter asks for an attempt of its. It gets its answer once we have come to that
/// attempt (G2).
pub(super) fn on_query(open: &mut Epoch<'_>, from: PeerId, query: &Query) {
    if query.attempt < 2 || open.facts().looks_on() {
        return;
    }
    for peer in query.lost.iter().filter(|peer| open.step.table.peers.contains_key(peer)) {
        open.conduct.note(&open.step, *peer, Offence::Lost { by: None });
    }
    open.slot.series.note_reached(from, query.attempt);
    if open.slot.series.queries.len() < MEMBERS_MAX {
        open.slot.series.queries.insert(from, query.attempt);
    }
}

/// R2: answers a Query with a promise.
pub(super) fn answer_query(open: &mut Epoch<'_>) -> bool {
    let (facts, ours) = (open.facts(), turns::ours(open.facts()));
    let mut queries = open.slot.series.queries.iter().map(|(peer, attempt)| (*peer, *attempt));
    let due = queries.find(|(peer, attempt)| *attempt <= ours || turns::is_free(facts, peer));
    let Some((from, attempt)) = due else { return false };
    open.slot.series.queries.remove(&from);
    if attempt < open.bound().promised() || !open.slot.series.stage.is_undecided() {
        if open.slot.series.may_reply(open.step.now, from, Reply::Query) {
            open.step.put(send::refusal(open.facts(), from, Digest::ZERO, Refusal::Promised));
        }
        return true;
    }
    open.slot.series.asking.take_if(|asking| asking.attempt <= attempt);
    let again = attempt == open.bound().promised();
    if !again {
        promise(open, attempt);
    }
    let status = open.validator.seal(Message::Status(status(open.facts(), attempt)));
    // Gossiped, so that all voters see the answer (G9); a repeated Query may mean that its
    // author has not got the answer.
    if open.facts().is_voter() && !again {
        open.step.put(Output::Gossip(status));
    } else {
        open.step.put(Output::Send(from, status));
    }
    if let Some(vote) = open.facts().highest_done() {
        open.step.put_all(send::prove(open.facts(), from, &vote));
    }
    open.step.put(Output::Send(
        from,
        open.validator.seal(Message::Report(report(open.facts(), attempt))),
    ));
    true
}

/// R5: says once that we hold the update of a free roster.
pub(super) fn prepare(open: &mut Epoch<'_>, digest: Digest, roster: &Roster, update: Digest) {
    let (series, attempt, me) = (roster.series, roster.attempt, open.me.peer);
    let said = open.bound().prepared(attempt);
    let again = open.slot.ballots.get(&digest).is_some_and(|b| b.prepared.contains_key(&me));
    if again || said.is_some_and(|said| said != update) {
        return;
    }
    if said.is_none() {
        open.log(Record::Prepared { series, attempt, update });
    }
    let message =
        open.validator.seal(Message::Prepared(Prepared { series, roster: digest, update }));
    open.slot.ballot(&open.me.peer, digest).prepared.insert(me, (update, message.signature()));
    open.step.put(Output::Gossip(message));
}

/// R5: a voter says which update of a roster it holds.
pub(super) fn on_prepared(open: &mut Epoch<'_>, message: &Verified<Message>, prepared: &Prepared) {
    let (from, update) = (message.author(), prepared.update);
    if !open.validator.quorum.prepares() {
        return;
    }
    open.conduct.clear(&from, Amends::Reply);
    let me = open.me.peer;
    let Some(ballot) = open.slot.ballot_voted_on(&me, prepared.roster) else { return };
    match ballot.prepared.get(&from).map(|(said, _)| *said) {
        Some(said) if said != update => {
            open.step.put(Output::Fault(from, Fault::Done(DoneFault::HoldsTwo)));
        }
        Some(_) => {
            let mine = ballot.prepared.get(&me).map(|(update, _)| *update);
            if let Some(update) = mine
                && open.slot.series.may_reply(open.step.now, from, Reply::Prepared)
            {
                let (series, roster) = (open.series(), prepared.roster);
                let mine = Prepared { series, roster, update };
                open.step.put(Output::Send(from, open.validator.seal(Message::Prepared(mine))));
            }
        }
        None if ballot.prepared.len() < MEMBERS_MAX => {
            ballot.prepared.insert(from, (update, message.signature()));
        }
        None => {}
    }
}

/// R8: a voter proves a vote, its own or one that it has heard of.
pub(super) fn on_ground(open: &mut Epoch<'_>, from: PeerId, ground: &Ground) {
    let vote = wire::ranked(&open.validator.run, &ground.voted);
    if open.slot.grounds.knows(&vote) {
        return;
    }
    if !open.validator.has_ground(&open.slot.chain(), &ground.voted) {
        return open.step.put(Output::Fault(from, Fault::Done(DoneFault::NoGround)));
    }
    open.slot.grounds.insert(vote, ground.voted.clone());
    recheck_rosters(open, |roster| roster.highest_done() == Some(vote));
}

/// R32: a voter proves that a ring opened of which its roster keeps chunks.
pub(super) fn on_opened(open: &mut Epoch<'_>, from: PeerId, opened: &Opened) {
    let digest = wire::roster_digest(&open.validator.run, &opened.roster);
    if salvage::has_opened(open.facts(), &digest) {
        return;
    }
    if !open.validator.has_opened(&open.slot.chain(), opened) {
        return open.step.put(Output::Fault(from, Fault::Roster(RosterFault::NeverOpened)));
    }
    let ballot = open.slot.ballot(&open.me.peer, digest);
    ballot.roster.get_or_insert_with(|| Arc::new(opened.roster.clone()));
    for (peer, signature) in &opened.accepts {
        ballot.accepts.entry(*peer).or_insert(*signature);
    }
    recheck_rosters(open, |roster| roster.keep.iter().any(|keep| keep.roster == digest));
}

/// Checks once more the highest of the rosters that came before what proves them.
fn recheck_rosters(open: &mut Epoch<'_>, rests: impl Fn(&Roster) -> bool) {
    let rests = |ballot: &&Ballot| ballot.roster.as_deref().is_some_and(&rests);
    let waiting = open.slot.ballots.values().filter(rests);
    let highest = waiting.max_by_key(|ballot| ballot.attempt());
    let message = highest.and_then(|ballot| ballot.signed.clone());
    if let Some(message) = message
        && let Message::Roster(roster) = message.body()
    {
        on_roster(open, &message, roster);
    }
}

/// G14: the voters heard that do not contradict themselves; the others get a fault.
pub(super) fn name_liars(open: &mut Epoch<'_>, heard: Vec<Heard>, attempt: u64) -> Vec<Heard> {
    let (rest, liars) = roster::without_liars(open.facts(), heard, attempt);
    for liar in liars {
        open.step.put(Output::Fault(liar.voter.peer, Fault::Done(DoneFault::Hidden)));
    }
    rest
}

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
