//! Proposing: turns, the Query before a higher attempt, the choice of the value, the roster (R7–R9,
//! R35, R36).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::fault::{AnswerFault, DoneFault, Fault};
use crate::base::id::PeerId;
use crate::base::rule::Rule;
use crate::base::sign::Verified;
use crate::machine::output::Output;
use crate::machine::step::Decision;
use crate::message::{
    CHUNKS_MAX, Heard, Keep, MEMBERS_MAX, Message, Query, Ranked, Receipt, Report, Roster, Status,
    Voted, Voter,
};

use super::attendance::Question;
use super::open_epoch::Epoch;
use super::series::{Asking, Stage};
use super::timers::Timer;
use super::{
    acceptor, admission, enter, founders, patience, recover, roster, salvage, send, timers, turns,
};

/// R36: proposes attempt 1, which asks nobody. It waits for all live peers of this series, and
/// for voters that are still on their way into it, at most for the grace.
pub(super) fn propose_first(epoch: &mut Epoch<'_>) -> bool {
    let idle = matches!(epoch.slot.series.stage, Stage::Idle { left_out: None });
    let able =
        !epoch.process.behind && epoch.process.leaving.is_none() && epoch.bound().promised() <= 1;
    let votes = epoch.facts().is_voter() || !epoch.validator.keeps(Rule::G1);
    // The cheapest conditions first: most messages come while peers still train.
    let due = idle
        && able
        && votes
        && !patience::is_too_early(epoch.facts())
        && epoch.facts().has_majority()
        && epoch.facts().hears_majority();
    let due = due && !founders::awaits_news(epoch.facts());
    if !due {
        epoch.slot.series.turn_since = None;
        return false;
    }
    epoch.slot.series.turn_since.get_or_insert(epoch.step.now);
    if !timers::is_over(epoch.facts(), Timer::FirstTurn) {
        return false;
    }
    let adopt = epoch.slot.forced.clone();
    propose(epoch, 1, Vec::new(), adopt, Vec::new())
}

/// R7: asks for `Status(k)` once we have come to an attempt k that is ours, and may begin (R37).
pub(super) fn ask(epoch: &mut Epoch<'_>) -> bool {
    let Stage::Recover { attempt, until: Some(_) } = epoch.slot.series.stage else { return false };
    let asks = epoch.slot.series.asking.is_none() && attempt >= epoch.bound().promised();
    if !asks || !turns::is_ours(epoch.facts(), attempt) || !recover::may_go_on(epoch.facts()) {
        return false;
    }
    let query = Query { series: epoch.series(), attempt };
    let query = epoch.validator.seal(Message::Query(query));
    acceptor::promise(epoch, attempt);
    let (mut statuses, mut reports) = (BTreeMap::new(), BTreeMap::new());
    if epoch.facts().is_voter() {
        let status = acceptor::status(epoch.facts(), attempt);
        let sealed = epoch.validator.seal(Message::Status(status));
        statuses.insert(epoch.me.peer, (status, sealed.signature()));
        reports.insert(epoch.me.peer, acceptor::report(epoch.facts(), attempt));
        epoch.step.put(Output::Gossip(sealed));
    }
    for (peer, _) in epoch.step.table.live_in(epoch.series(), epoch.step.now) {
        epoch.step.put(Output::Send(*peer, Arc::clone(&query)));
    }
    let until = epoch.step.now + epoch.facts().ask_time();
    epoch.slot.series.repeat_at = epoch.step.now + epoch.facts().repeat_interval();
    epoch.slot.series.asking =
        Some(Asking { attempt, until, late: false, statuses, reports, query });
    true
}

/// A Status, gossiped or sent to us. It clears what its author owed, and counts as an answer if it
/// is for the very attempt that we ask for. A vote that its author cannot have given is a fault.
pub(super) fn on_status(epoch: &mut Epoch<'_>, message: &Verified<Message>, status: &Status) {
    let from = message.author();
    let possible = |v: &Ranked| v.depth <= epoch.slot.depth() && v.attempt <= status.attempt;
    if !status.done.as_ref().is_none_or(possible) {
        return epoch.step.put(Output::Fault(from, Fault::Done(DoneFault::Impossible)));
    }
    if epoch.names_voter(&from) {
        let highest = epoch.slot.series.answered.entry(from).or_default();
        *highest = status.attempt.max(*highest);
        epoch.conduct.note_reply(&from);
    }
    epoch.slot.series.note_reached(from, status.attempt);
    epoch.conduct.note_answer(&from);
    let votes = epoch.names_voter(&from);
    if let Some(asking) = &mut epoch.slot.series.asking
        && asking.attempt == status.attempt
        && (votes || asking.statuses.len() < MEMBERS_MAX)
    {
        asking.statuses.insert(from, (*status, message.signature()));
    }
}

/// Stores the Report that goes with the Status of `from`.
pub(super) fn on_report(epoch: &mut Epoch<'_>, from: PeerId, report: &Report) {
    if report.chunks.len() > CHUNKS_MAX {
        return epoch.step.put(Output::Fault(from, Fault::Answer(AnswerFault::ManyChunks)));
    }
    epoch.conduct.note_answer(&from);
    if let Some((incarnation, weight)) = report.ready {
        // As in a heartbeat, a contradiction is no fault here.
        let _ = enter::note_ready(epoch, from, incarnation, weight);
    }
    let votes = epoch.names_voter(&from);
    if let Some(asking) = &mut epoch.slot.series.asking
        && asking.attempt == report.attempt
        && (votes || asking.reports.len() < MEMBERS_MAX)
    {
        // A proposer reads all but who is present, which may be long.
        asking.reports.insert(from, Report { present: Vec::new(), ..report.clone() });
    }
}

/// Proposes once all live peers have answered, or once the time is over and a majority has
/// answered.
pub(super) fn finish_asking(epoch: &mut Epoch<'_>) -> bool {
    let Some(asking) = &epoch.slot.series.asking else { return false };
    let (grounds, attempt, late) = (&epoch.slot.grounds, asking.attempt, asking.late);
    let over = timers::is_over(epoch.facts(), Timer::Answers);
    let known = |p: &PeerId| {
        let answered = asking.status(grounds, p).is_some() && asking.reports.contains_key(p);
        answered || epoch.facts().is_surely_lost(p)
    };
    let answered = epoch.facts().live(Question::Answers).all(|(p, _)| known(p));
    if !answered && !over && !late {
        return false;
    }
    let heard = epoch.voters().iter().filter_map(|voter| asking.heard(grounds, voter)).collect();
    let heard =
        acceptor::name_liars(epoch, roster::without_withholding(epoch.facts(), heard), attempt);
    let names = |v: &Voter| heard.iter().any(|heard| heard.voter == *v);
    let majority = epoch.validator.quorum.holds(epoch.voters(), names);
    let may = majority && !founders::awaits_news(epoch.facts());
    if !may && epoch.validator.keeps(Rule::R7) {
        if !over || (!majority && !late && await_bound(epoch)) {
            return false;
        }
        epoch.slot.series.asking = None;
        recover::end_wait(epoch, attempt);
        return true;
    }
    let Some(asking) = epoch.slot.series.asking.take() else { return false };
    let adopt = choose(epoch, &asking, &heard);
    let keep = match &adopt {
        None => salvage::choose_keep(epoch.facts(), attempt, &asking.reports),
        Some(_) => Vec::new(),
    };
    if !propose(epoch, attempt, heard, adopt, keep) {
        recover::await_attempt(epoch, attempt.saturating_add(1));
    }
    true
}

/// R7: waits longer for answers, if voters may still be bound by the roster that we gave up. Where
/// two rosters crossed, most voters answer only once the time of theirs is over.
fn await_bound(epoch: &mut Epoch<'_>) -> bool {
    let (now, ask_time) = (epoch.step.now, epoch.facts().ask_time());
    let series = &mut epoch.slot.series;
    let (Some(asking), Stage::Recover { until: Some(end), .. }) =
        (&mut series.asking, &mut series.stage)
    else {
        return false;
    };
    let until = series.bound_until + ask_time;
    (asking.until, asking.late) = (until.max(now), true);
    *end = until.max(*end);
    until > now
}

/// R8: the highest Done heard; else the forced value, if its bytes are held; else free.
fn choose(epoch: &mut Epoch<'_>, asking: &Asking, heard: &[Heard]) -> Option<Receipt> {
    let dones = heard.iter().filter_map(|heard| heard.done);
    let highest = if epoch.validator.keeps(Rule::R8) { dones.max() } else { dones.min() };
    let voted = highest.and_then(|vote| epoch.slot.grounds.get(&vote));
    if let Some(receipt) = voted.map(Voted::receipt) {
        let same = |status: &Status| status.done.map(|vote| vote.r) == highest.map(|vote| vote.r);
        let authors = asking.statuses.iter().filter(|(_, (status, _))| same(status));
        if epoch.slot.series.adopted.len() < MEMBERS_MAX {
            let adopted = epoch.slot.series.adopted.entry(receipt.update).or_default();
            adopted.from.extend(authors.map(|(peer, _)| *peer));
        }
        return Some(receipt);
    }
    let holds = heard.iter().any(|heard| heard.holds_forced);
    if holds { epoch.slot.forced.clone() } else { None }
}

/// Makes the roster, gossips it, and accepts it ourselves. Returns false if no member can
/// compute.
fn propose(
    epoch: &mut Epoch<'_>,
    attempt: u64,
    heard: Vec<Heard>,
    adopt: Option<Receipt>,
    keep: Vec<Keep>,
) -> bool {
    let members = roster::compose(epoch.facts(), attempt);
    let (members, trust) = admission::admitted(epoch.facts(), members, adopt.as_ref());
    let keep = admission::without_revoked(epoch.facts(), keep);
    let idle = !members.iter().any(|m| m.weight > 0);
    if (adopt.is_none() && idle) || !members.iter().any(|m| m.peer == epoch.me.peer) {
        return false;
    }
    let proposer = epoch.me.peer;
    let series = epoch.series();
    let mut roster = Roster { series, attempt, proposer, members, heard, adopt, trust, keep };
    salvage::fit(epoch.facts(), &mut roster);
    if roster::check_roster(epoch.facts(), proposer, &roster).is_err() {
        return false;
    }
    let message = epoch.validator.seal(Message::Roster(roster.clone()));
    let said = epoch.step.out.len();
    acceptor::on_roster(epoch, &message, &roster);
    // What we would not accept ourselves is not sent.
    let accepted = matches!(epoch.slot.series.stage, Stage::Open { .. });
    if accepted {
        epoch.step.out.insert(said, Decision::Out(Output::Gossip(message)));
        epoch.step.put_all(send::prove_to_all(epoch.facts(), &roster));
    } else {
        epoch.step.out.truncate(said);
    }
    accepted
}
