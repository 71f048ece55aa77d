//! Regroup: the founding, and what the survivors of a lost majority sign (R12–R15). Also the
//! goodbye of a peer that leaves, which closes the series for it (R29). Which peers may sign a
//! Regroup, and when, is in `founders`.

use std::sync::Arc;
use std::time::Duration;

use crate::base::fault::{CertificateFault, Fault};
use crate::base::id::{Digest, PeerId};
use crate::base::rule::Rule;
use crate::base::sign::Verified;
use crate::history::evidence::Evidence;
use crate::history::lineage::can_have_voted;
use crate::history::log::{Joined, Record};
use crate::machine::event::{Event, Reason};
use crate::machine::output::Output;
use crate::machine::step::Ahead;
use crate::message::wire;
use crate::message::{
    Join, Leaving, MEMBERS_MAX, Message, Opening, Refuse, Regroup, Series, Ticket, Voted, Voter,
};

use super::facts::Facts;
use super::gathering::Turn;
use super::open_epoch::Epoch;
use super::series::{Reply, Stage};
use super::timers::Timer;
use super::{admission, founders, send, timers};

/// Regroups of one series that a peer can have missed; a number further ahead is not read.
const NUMBERS_MISSED_MAX: u64 = 1 << 10;

/// Heartbeats for which newcomers delay a founding at most; later ones join the next epoch.
const FOUNDING_HEARTBEATS_MAX: u32 = 30;

/// Graces for which a lineage that verifies as it arrives delays the Regroups of a series in all. A
/// long one takes a while to arrive, but two keys can make one up, so the delay ends; guess.
const PROVEN_GRACES: u32 = 16;

/// R12: proposes a Regroup when no majority of voters is present and it is our turn.
pub(super) fn regroup(epoch: &mut Epoch<'_>) -> bool {
    if !regroups_now(epoch) {
        epoch.slot.series.gathering.turn = None;
        return false;
    }
    let number = epoch.slot.series.gathering.number_seen.saturating_add(1);
    wait_for_founders(epoch);
    match epoch.slot.series.gathering.turn.filter(|turn| turn.number == number) {
        Some(_) if !timers::is_over(epoch.facts(), Timer::RegroupTurn) => return false,
        Some(_) if founders::awaits_links(epoch.facts()) => return false,
        Some(_) => {}
        None => {
            let due = epoch.step.now
                + founders::founding_wait(epoch.facts())
                + timers::turn(epoch.facts(), number);
            epoch.slot.series.gathering.turn = Some(Turn { number, due });
            return false;
        }
    }
    let Some(regroup) = founders::compose_regroup(epoch.facts()) else { return false };
    // What we would not join ourselves is not sent; one ticket may have brought more founders than it has uses.
    let known = |ticket: &Ticket| epoch.process.knows_ticket(ticket);
    let (voters, ledger) = (epoch.voters(), epoch.process.ledger());
    if epoch.validator.check_regroup(voters, ledger, &regroup, known).is_err()
        || founders::check_regroup(epoch.facts(), &regroup).is_err()
    {
        return false;
    }
    let message = epoch.validator.seal(Message::Regroup(regroup.clone()));
    epoch.step.put(Output::Gossip(Arc::clone(&message)));
    epoch.slot.series.gathering.turn = None;
    on_regroup(epoch, &message, &regroup);
    true
}

/// A founding waits until no new peer has come for a while, up to a limit: newcomers cost
/// nothing, so later they no longer move a turn (G8). A Regroup of survivors waits for nobody.
fn wait_for_founders(epoch: &mut Epoch<'_>) {
    if !epoch.voters().is_empty() {
        return;
    }
    let candidates = founders::candidates_beside(epoch.facts()).map(|(p, _)| *p).collect();
    let gathering = &mut epoch.slot.series.gathering;
    let since = *gathering.founding_since.get_or_insert(epoch.step.now);
    let early = epoch.step.now < since + epoch.step.table.heartbeat * FOUNDING_HEARTBEATS_MAX;
    if gathering.candidates != candidates {
        gathering.candidates = candidates;
        if (early && gathering.number_seen == 0) || !epoch.validator.keeps(Rule::G8) {
            epoch.slot.series.gathering.turn = None;
        }
    }
}

/// R12: whether we may propose a Regroup, and no greater head of another peer delays it any
/// more. Heads that are only claimed delay the Regroups of a series by one grace in all,
/// however many keys claim them.
fn regroups_now(epoch: &mut Epoch<'_>) -> bool {
    let may = founders::may_regroup(epoch.facts());
    let most = match epoch.process.ahead {
        Ahead::Nobody => Duration::ZERO,
        Ahead::Claimed => epoch.step.table.grace,
        Ahead::Proven => PROVEN_GRACES * epoch.step.table.grace,
        Ahead::PassedOver => Duration::MAX,
    };
    let gathering = &mut epoch.slot.series.gathering;
    let since = gathering.held_since.unwrap_or(epoch.step.now);
    gathering.held = gathering.held.saturating_add(epoch.step.now.since(since));
    gathering.held_since = (may && most > Duration::ZERO).then_some(epoch.step.now);
    may && gathering.held >= most
}

/// R12, R13: a Regroup of another peer or our own. One that breaks a rule which its proposer could
/// check is its fault, and one with a number far beyond all others is not read. A member joins it
/// if its number is above that of the last one joined and nothing speaks against it; else it
/// refuses with the reason.
pub(super) fn on_regroup(
    epoch: &mut Epoch<'_>,
    message: &Arc<Verified<Message>>,
    regroup: &Regroup,
) {
    let proposer = message.author();
    if regroup.proposer != proposer {
        let why = CertificateFault::NotItsAuthor;
        return epoch.step.put(Output::Fault(proposer, Fault::Certificate(why)));
    }
    let known = |ticket: &Ticket| epoch.process.knows_ticket(ticket);
    let (voters, ledger) = (epoch.voters(), epoch.process.ledger());
    if let Err(fault) = epoch.validator.check_regroup(voters, ledger, regroup, known) {
        return epoch.step.put(Output::Fault(proposer, fault));
    }
    // Numbers rise one by one; a jump would use them up.
    let most = epoch.slot.series.gathering.number_seen.saturating_add(NUMBERS_MISSED_MAX);
    if regroup.number > most || regroup.number == u64::MAX {
        return;
    }
    admission::learn_notices(&mut epoch.step, regroup.trust.as_deref());
    let digest = wire::regroup_digest(&epoch.validator.run, regroup);
    let known = epoch.slot.series.gathering.known(&epoch.me.peer, digest);
    known.signed.get_or_insert_with(|| Arc::clone(message));
    known.regroup.get_or_insert_with(|| Arc::new(regroup.clone()));
    epoch.slot.series.gathering.number_seen =
        epoch.slot.series.gathering.number_seen.max(regroup.number);
    let joined = epoch.bound().joined().map_or(0, |j| j.regroup.number);
    if regroup.number <= joined || !regroup.members.contains(&epoch.me.voter()) {
        return;
    }
    if epoch.facts().looks_on() {
        return;
    }
    match founders::check_regroup(epoch.facts(), regroup) {
        Ok(()) => join(epoch, digest, regroup),
        Err(reason) if proposer != epoch.me.peer => {
            let (series, head) = (epoch.series(), epoch.slot.head);
            let refuse = Refuse { series, what: digest, promised: 0, head, reason };
            epoch.step.put(Output::Send(proposer, epoch.validator.seal(Message::Refuse(refuse))));
        }
        Err(_) => {}
    }
}

/// R13: leaves the series, and those that it descends from, for good.
fn join(epoch: &mut Epoch<'_>, digest: Digest, regroup: &Regroup) {
    epoch.slot.abort(&mut epoch.step, Reason::Regroup);
    epoch.slot.series.asking = None;
    let done =
        epoch.validator.keeps(Rule::R13).then(|| highest_done_of_chain(epoch.facts())).flatten();
    let (regroup, logged) = (regroup.clone(), done.clone().map(Box::new));
    epoch.log(Record::Joined { regroup: regroup.clone(), done: logged });
    let members = regroup.members.clone();
    let joined = Joined { digest, regroup, done };
    epoch.slot.series.gathering.joined_at.get_or_insert(epoch.step.now);
    let proven = joined.done.as_ref().map(|done| wire::ranked(&epoch.validator.run, done));
    let message = note_joined(epoch, joined);
    let until = epoch.step.now + epoch.facts().join_time();
    epoch.slot.series.stage = Stage::Joined { regroup: digest, until };
    epoch.slot.series.repeat_at = epoch.step.now + epoch.facts().repeat_interval();
    epoch.step.put(Output::Gossip(message));
    for member in members.iter().filter(|m| m.peer != epoch.me.peer) {
        let proof = proven.and_then(|vote| send::prove(epoch.facts(), member.peer, &vote));
        epoch.step.put_all(proof);
    }
}

/// R13: a Join of a member. It may come before its Regroup. Two different Joins of one author for
/// one Regroup are its fault, and we never open that Regroup: others may have seen only one of
/// them. A repeated Join is answered with ours.
pub(super) fn on_join(epoch: &mut Epoch<'_>, message: &Arc<Verified<Message>>, join: &Join) {
    let (from, digest, me) = (message.author(), join.regroup, epoch.me.peer);
    let impossible = join.done.is_some() && epoch.voters().is_empty();
    if impossible || !can_have_voted(join, epoch.slot.depth()) {
        let why = CertificateFault::ImpossibleVote;
        return epoch.step.put(Output::Fault(from, Fault::Certificate(why)));
    }
    let Some(known) = epoch.slot.series.gathering.joined(&me, digest) else { return };
    let who = Voter { peer: from, log: join.log };
    if known.regroup.as_ref().is_some_and(|regroup| !regroup.members.contains(&who)) {
        return;
    }
    let said = known.joins.get(&from).filter(|(said, _)| said != join).cloned();
    if let Some((said, signature)) = said {
        known.is_torn = true;
        let said = (Message::Join(said), signature);
        let proof = Evidence::new(epoch.validator, said, message, Vec::new());
        let fault = Fault::Certificate(CertificateFault::TwoJoins);
        return epoch.step.put(Output::fault(from, fault, proof));
    }
    let room = known.joins.len() < MEMBERS_MAX;
    let repeated = room && known.joins.insert(from, (join.clone(), message.signature())).is_some();
    let mine = known.joins.get(&me).map(|(join, _)| join.clone());
    // A Regroup that we joined before another one must not open with us: we would not follow
    // it.
    let last = last_joined(epoch.facts());
    if let (true, Some(join)) = (repeated, mine)
        && last == Some(digest)
        && epoch.slot.series.may_reply(epoch.step.now, from, Reply::Join)
    {
        let proven = join.done;
        epoch.step.put(Output::Send(from, epoch.validator.seal(Message::Join(join))));
        epoch.step.put_all(proven.and_then(|vote| send::prove(epoch.facts(), from, &vote)));
    }
}

/// R13: opens the new series when every member has joined. Only the last Regroup joined is ever
/// entered.
pub(super) fn open_joined(epoch: &mut Epoch<'_>) -> bool {
    let Stage::Joined { regroup: digest, .. } = epoch.slot.series.stage else { return false };
    let known = epoch.slot.series.gathering.known.get(&digest);
    let Some(known) = known.filter(|known| !known.is_torn) else { return false };
    let Some(regroup) = &known.regroup else { return false };
    let join = |m: &Voter| {
        let (join, signature) = known.joins.get(&m.peer)?;
        (join.log == m.log).then(|| (m.peer, join.clone(), *signature))
    };
    let joins: Option<Vec<_>> = regroup.members.iter().map(join).collect();
    let Some(joins) = joins else { return false };
    let mut opening = Opening { regroup: regroup.as_ref().clone(), joins, ground: None };
    // A member whose vote is not proven has not joined.
    if let Some(highest) = opening.highest_done() {
        let Some(voted) = epoch.slot.grounds.get(&highest) else { return false };
        opening.ground = Some(Box::new(voted.clone()));
    }
    enter(epoch, opening);
    true
}

/// Enters the series that a Regroup opened: logs the opening, reports it, and declares our Ready
/// again, which no member of the new series has seen.
fn enter(epoch: &mut Epoch<'_>, opening: Opening) {
    epoch.log(Record::Opened { opening: opening.clone() });
    let Regroup { number, proposer, members, absent, .. } = &opening.regroup;
    epoch.step.put(Output::Event(Event::Regroup {
        epoch: epoch.series().epoch,
        number: *number,
        proposer: *proposer,
        members: members.iter().map(|v| v.peer).collect(),
        absent: absent.iter().map(|(v, why)| (v.peer, *why)).collect(),
    }));
    enter_opened(epoch, opening);
    epoch.step.put_all(send::ready(epoch.facts()));
}

/// Enters the series that a Regroup opens, with what its Joins force there.
pub(super) fn enter_opened(epoch: &mut Epoch<'_>, opening: Opening) {
    let series = epoch.validator.opened(&opening);
    epoch.slot.enter(epoch.step.now, opening, series);
}

/// Remembers a Regroup that we have joined, now or before a restart (R20). Returns our Join.
pub(super) fn note_joined(epoch: &mut Epoch<'_>, joined: Joined) -> Arc<Verified<Message>> {
    let Joined { digest, regroup, done } = joined;
    let (series, log, me) = (epoch.series(), epoch.me.log, epoch.me.peer);
    let done = done.map(|done| {
        let vote = wire::ranked(&epoch.validator.run, &done);
        epoch.slot.grounds.insert(vote, done);
        vote
    });
    let join = Join { series, regroup: digest, log, done };
    let message = epoch.validator.seal(Message::Join(join.clone()));
    let gathering = &mut epoch.slot.series.gathering;
    gathering.number_seen = gathering.number_seen.max(regroup.number);
    let known = gathering.known(&me, digest);
    known.regroup.get_or_insert_with(|| Arc::new(regroup));
    known.joins.insert(me, (join, message.signature()));
    message
}

/// Checks Regroups that another peer served. Returns those that follow on ours.
pub(super) fn follow_on<'a>(
    epoch: &mut Epoch<'_>,
    from: PeerId,
    openings: &'a [Opening],
) -> &'a [Opening] {
    let ours = epoch.slot.openings.len();
    let theirs = openings.iter().map(|opening| epoch.validator.opened(opening));
    // What proves a vote can differ: two openings are the same if they open the same series.
    let extend = theirs.take(ours).eq(epoch.slot.chain.iter().skip(1).copied());
    let base = Series { regroup: None, ..epoch.series() };
    let beside = || openings.iter().all(|o| o.regroup.series.is_beside(&base));
    if openings.len() <= ours || !extend || epoch.slot.series.decided().is_some() || !beside() {
        return &[];
    }
    let ledger = epoch.process.ledger();
    if let Err(fault) = epoch.validator.follow(base, &epoch.slot.base, ledger, openings) {
        epoch.step.put(Output::Fault(from, fault));
        return &[];
    }
    &openings[ours..]
}

/// Follows a Regroup that another peer served. A member enters through its own Join. Any other
/// peer may go along without a vote, and thereby leaves its own series for good (R13): only if
/// that series has no majority present, or no vote of ours.
pub(super) fn follow(epoch: &mut Epoch<'_>, opening: &Opening) -> bool {
    let facts = epoch.facts();
    let joined = || {
        let digest = wire::regroup_digest(&facts.validator.run, &opening.regroup);
        last_joined(facts) == Some(digest)
    };
    let bound = facts.is_voter() && facts.has_majority() && !founders::awaits_news(facts);
    let free = !opening.regroup.members.contains(&facts.me.voter()) && !bound;
    let follows = free || joined();
    if follows {
        epoch.slot.abort(&mut epoch.step, Reason::Regroup);
        enter(epoch, opening.clone());
    }
    follows
}

/// R29: says goodbye once nothing is open, or the wait is over. Returns whether it has.
pub(super) fn leave(epoch: &mut Epoch<'_>) -> bool {
    if epoch.process.leaving.is_none() {
        return false;
    }
    let under_way = match &epoch.slot.series.stage {
        Stage::Open { .. } | Stage::Decided(_) | Stage::Applying(_) => true,
        Stage::Idle { .. } | Stage::Recover { .. } | Stage::Joined { .. } => false,
    };
    if under_way && !timers::is_over(epoch.facts(), Timer::Leave) {
        return false;
    }
    // R29: the peers that are here may go on without us, and those that were here may have
    // decided what is open. So we must not decide it again after our return. The last peer to
    // leave, with nothing open, has left nobody behind; and where no Regroup is lawful, nothing
    // could open the series again.
    let others = under_way || epoch.step.table.live(epoch.step.now).next().is_some();
    if others && epoch.facts().is_voter() && epoch.validator.quorum.regroups() {
        epoch.log(Record::Left { series: epoch.series() });
    }
    let leaving = Leaving { head: epoch.slot.head, incarnation: epoch.me.incarnation };
    epoch.step.put(Output::Gossip(epoch.validator.seal(Message::Leaving(leaving))));
    epoch.step.put(Output::Left);
    true
}

/// The digest of the last Regroup of this series that we have joined.
fn last_joined(facts: Facts<'_>) -> Option<Digest> {
    facts.bound().joined().map(|joined| joined.digest)
}

/// Our highest vote in this epoch, in the open series or one that it descends from.
fn highest_done_of_chain(facts: Facts<'_>) -> Option<Voted> {
    let dones = facts.slot.chain.iter().filter_map(|s| facts.votes.of(*s).dones().next_back());
    dones.max_by_key(|done| (done.depth, done.roster.attempt)).cloned()
}
