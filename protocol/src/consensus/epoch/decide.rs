//! From a certificate to the next epoch: what is decided, the wait for other copies of it, the outer
//! step (R16, R17, R24, R25, R34). How a roster comes to its votes is in `vote`.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::blocks::Blocks;
use crate::base::fault::{CertificateFault, Fault};
use crate::base::id::{Digest, PeerId};
use crate::base::rule::Rule;
use crate::base::sign::Signature;
use crate::history::lineage::LocalPeer;
use crate::history::log::Record;
use crate::machine::event::{Event, Progress, Reason};
use crate::machine::output::{Apply, Output};
use crate::message::{Certificate, Commit, Done, Head, Link, Message, Receipt, Series, wire};

use super::ballot::{RingState, Vote};
use super::facts::Facts;
use super::open_epoch::Epoch;
use super::series::{Decided, Stage};
use super::timers::Timer;
use super::{recover, timers};

/// R16: Dones of a majority of voters for one roster are a certificate.
pub(super) fn decide(epoch: &mut Epoch<'_>) -> bool {
    // While a checkpoint is on its way, nothing else may move the state.
    if epoch.process.behind || epoch.slot.series.decided().is_some() {
        return false;
    }
    let certified = epoch.slot.ballots.iter().find_map(|(digest, ballot)| {
        let roster = ballot.roster.as_ref().filter(|roster| roster.series == epoch.series())?;
        let vote = ballot.value()?;
        let served =
            !epoch.slot.unserved.contains(&vote.r) || epoch.slot.updates.is_flushed(&vote.update);
        let decided = 2 * ballot.dones.len() >= epoch.voters().len()
            && served
            && epoch.validator.quorum.holds(epoch.voters(), |v| ballot.has_voted(&v.peer, vote.r));
        decided.then_some((*digest, ballot, roster, vote))
    });
    let Some((digest, ballot, roster, vote)) = certified else { return false };
    let signatures = ballot.dones.iter().filter(|(p, v)| v.r == vote.r && epoch.names_voter(p));
    let dones = signatures.map(|(peer, vote)| (*peer, vote.signature)).collect();
    let link = Link {
        receipt: roster.receipt(vote.update),
        certificate: Certificate { roster: roster.as_ref().clone(), dones },
        openings: epoch.slot.openings.clone(),
    };
    let by_commit = epoch.slot.commit_heard == Some(digest);
    enter_decided(epoch, link, by_commit);
    true
}

/// The epoch is decided by this link: attempts end, and only the update is awaited. A ring of ours
/// that runs may still bring it, for an eighth of the time that it has left; then it is fetched.
fn enter_decided(epoch: &mut Epoch<'_>, link: Link, by_commit: bool) {
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
pub(super) fn apply_when_copied(epoch: &mut Epoch<'_>) -> bool {
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
        let voted = decided.link.certificate.dones.iter().map(|(peer, _)| *peer);
        let mut from: Vec<PeerId> = voted.filter(|p| *p != epoch.me.peer).collect();
        // A large update takes longer than a grace to come.
        let comes = epoch.slot.series.fetching.is_some_and(|(fetched, _)| fetched == update)
            && from.iter().any(|peer| epoch.facts().is_alive(peer));
        if !comes && epoch.step.now.since(decided.since) >= epoch.step.table.grace {
            let r = wire::receipt_digest(&epoch.validator.run, &decided.link.receipt);
            epoch.slot.unserved.insert(r);
            recover::recover(epoch, Reason::UpdateUnserved);
            return true;
        }
        from.sort_by_key(|peer| !epoch.facts().is_alive(peer));
        fetch(epoch, update, from);
        return false;
    }
    if !timers::is_over(epoch.facts(), Timer::Stage) && !others_have_voted(epoch.facts(), decided) {
        return false;
    }
    let decided = decided.as_ref().clone();
    apply(epoch, decided);
    true
}

/// Logs the decision, and only then orders the outer step, so that a restart finds the link. Peers
/// that counted the votes gossip them (R16). What the receipt includes of our delta is spent.
fn apply(epoch: &mut Epoch<'_>, decided: Decided) {
    let (link, validator) = (&decided.link, epoch.validator);
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
    let outer_step = Apply::of(&validator.run, &epoch.slot.head, receipt, spent);
    epoch.step.put(Output::Apply(Arc::new(outer_step)));
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

/// R16: a `Commit` proves itself, so it is read of anybody. The short form helps only where the
/// roster is known.
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
    let (digest, run) = (done.roster, epoch.validator.run);
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
    let most = epoch.process.weight_max;
    if let Err(fault) = epoch.validator.check_link(base, voters, ledger, most, &link) {
        return epoch.step.put(Output::Fault(from, fault));
    }
    let ours = |opening| epoch.slot.chain.contains(&epoch.validator.opened(opening));
    if !link.openings.iter().all(ours) && epoch.facts().has_majority() {
        return;
    }
    epoch.slot.abort(&mut epoch.step, Reason::DecidedElsewhere);
    enter_decided(epoch, link, true);
}

/// Fetches an update from the peers that have it. While it comes, more of them may be named: the first to vote is not
/// left to serve all that could not average.
pub(super) fn fetch(epoch: &mut Epoch<'_>, update: Digest, from: Vec<PeerId>) {
    let named = match epoch.slot.series.fetching {
        Some((fetched, named)) if fetched == update => named,
        _ if timers::is_over(epoch.facts(), Timer::Fetch) => 0,
        _ => return,
    };
    if from.len() > named {
        epoch.slot.series.fetching = Some((update, from.len()));
        epoch.step.put(Output::FetchUpdate(update, from));
    }
}

/// An update could not be fetched, or has been lost here. It may be fetched again after one repeat
/// interval.
pub(super) fn miss_update(epoch: &mut Epoch<'_>, update: Digest) {
    epoch.slot.updates.remove(&update);
    epoch.slot.series.fetching.take_if(|(fetched, _)| *fetched == update);
    epoch.slot.series.fetch_after = epoch.step.now + epoch.facts().repeat_interval();
}

/// R17: whether every other live voter with a ring position has voted as well, if we have one too. A
/// voter that has committed the epoch has voted, and no longer repeats its vote.
fn others_have_voted(facts: Facts<'_>, decided: &Decided) -> bool {
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
