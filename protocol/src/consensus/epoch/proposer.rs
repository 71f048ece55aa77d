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
use super::conduct::Amends;
use super::open::Epoch;
use super::series::{Asking, Stage};
use super::timers::Timer;
use super::{
    acceptor, admission, enter, founders, patience, recover, roster, salvage, send, timers, turns,
};

/// R36: proposes attempt 1, which asks nobody. It waits for all live peers of this series, and
/// for voters that are still on their way into it, at most for the grace.
pub(super) fn propose_first(open: &mut Epoch<'_>) -> bool {
    let idle = matches!(open.slot.series.stage, Stage::Idle { patience: None });
    let able =
        !open.process.behind && open.process.leaving.is_none() && open.bound().promised() <= 1;
    let votes = open.facts().is_voter() || !open.validator.keeps(Rule::G1);
    // The cheapest conditions first: most messages come while peers still train.
    let due = idle
        && able
        && votes
        && !patience::is_too_early(open.facts())
        && open.facts().has_majority();
    let due = due && !founders::awaits_news(open.facts());
    if !due {
        open.slot.series.turn_since = None;
        return false;
    }
    open.slot.series.turn_since.get_or_insert(open.step.now);
    if !timers::is_over(open.facts(), Timer::FirstTurn) {
        return false;
    }
    let adopt = open.slot.forced.clone();
    propose(open, 1, Vec::new(), adopt, Vec::new())
}

/// R7: asks for `Status(k)` once we have come to an attempt k that is ours, and may begin (R37).
pub(super) fn ask(open: &mut Epoch<'_>) -> bool {
    let Stage::Recover { attempt, until: Some(_) } = open.slot.series.stage else { return false };
    let asks = open.slot.series.asking.is_none() && attempt >= open.bound().promised();
    if !asks || !turns::is_ours(open.facts(), attempt) || !recover::may_go_on(open.facts()) {
        return false;
    }
    let lost = open.conduct.lost(&open.step).take(MEMBERS_MAX).copied();
    let query = Query { series: open.series(), attempt, lost: lost.collect() };
    let query = open.validator.seal(Message::Query(query));
    acceptor::promise(open, attempt);
    let (mut statuses, mut reports) = (BTreeMap::new(), BTreeMap::new());
    if open.facts().is_voter() {
        let status = acceptor::status(open.facts(), attempt);
        let sealed = open.validator.seal(Message::Status(status));
        statuses.insert(open.me.peer, (status, sealed.signature()));
        reports.insert(open.me.peer, acceptor::report(open.facts(), attempt));
        open.step.put(Output::Gossip(sealed));
    }
    for (peer, _) in open.step.table.live_in(open.series(), open.step.now) {
        open.step.put(Output::Send(*peer, Arc::clone(&query)));
    }
    let until = open.step.now + open.facts().ask_time();
    open.slot.series.repeat_at = open.step.now + open.facts().repeat_interval();
    open.slot.series.asking = Some(Asking { attempt, until, statuses, reports, query });
    true
}

pub(super) fn on_status(open: &mut Epoch<'_>, message: &Verified<Message>, status: &Status) {
    let from = message.author();
    let possible = |v: &Ranked| v.depth <= open.slot.depth() && v.attempt <= status.attempt;
    if !status.done.as_ref().is_none_or(possible) {
        return open.step.put(Output::Fault(from, Fault::Done(DoneFault::Impossible)));
    }
    if open.names_voter(&from) {
        let highest = open.slot.series.answered.entry(from).or_default();
        *highest = status.attempt.max(*highest);
        open.conduct.clear(&from, Amends::Reply);
    }
    open.slot.series.note_reached(from, status.attempt);
    open.conduct.clear(&from, Amends::Query);
    if let Some(asking) = &mut open.slot.series.asking
        && asking.attempt == status.attempt
        && asking.statuses.len() < MEMBERS_MAX
    {
        asking.statuses.insert(from, (*status, message.signature()));
    }
}

/// Stores the Report that goes with the Status of `from`.
pub(super) fn on_report(open: &mut Epoch<'_>, from: PeerId, report: &Report) {
    if report.chunks.len() > CHUNKS_MAX {
        return open.step.put(Output::Fault(from, Fault::Answer(AnswerFault::ManyChunks)));
    }
    open.conduct.clear(&from, Amends::Query);
    if let Some((incarnation, weight)) = report.ready {
        // As in a heartbeat, a contradiction is no fault here.
        let _ = enter::note_ready(open, from, incarnation, weight);
    }
    if let Some(asking) = &mut open.slot.series.asking
        && asking.attempt == report.attempt
        && asking.reports.len() < MEMBERS_MAX
    {
        asking.reports.insert(from, report.clone());
    }
}

/// Proposes once all live peers have answered, or once the time is over and a majority has
/// answered.
pub(super) fn finish_asking(open: &mut Epoch<'_>) -> bool {
    let Some(asking) = &open.slot.series.asking else { return false };
    let (grounds, attempt) = (&open.slot.grounds, asking.attempt);
    let over = timers::is_over(open.facts(), Timer::Answers);
    let known = |p: &PeerId| {
        let answered = asking.status(grounds, p).is_some() && asking.reports.contains_key(p);
        answered || open.conduct.is_confirmed_lost(&open.step, p)
    };
    let answered = open.facts().live(Question::Answers).all(|(p, _)| known(p));
    if !answered && !over {
        return false;
    }
    let heard = open.voters().iter().filter_map(|voter| asking.heard(grounds, voter)).collect();
    let heard =
        acceptor::name_liars(open, roster::without_withholding(open.facts(), heard), attempt);
    let names = |v: &Voter| heard.iter().any(|heard| heard.voter == *v);
    if !open.validator.quorum.holds(open.voters(), names) && open.validator.keeps(Rule::R7) {
        if answered && !over {
            return false;
        }
        open.slot.series.asking = None;
        recover::end_wait(open, attempt);
        return true;
    }
    let Some(asking) = open.slot.series.asking.take() else { return false };
    let adopt = choose(open, &asking, &heard);
    let keep = match &adopt {
        None => salvage::choose_keep(open.facts(), attempt, &asking.reports),
        Some(_) => Vec::new(),
    };
    if !propose(open, attempt, heard, adopt, keep) {
        recover::await_attempt(open, attempt.saturating_add(1));
    }
    true
}

/// R8: the highest Done heard; else the forced value, if its bytes are held; else free.
fn choose(open: &mut Epoch<'_>, asking: &Asking, heard: &[Heard]) -> Option<Receipt> {
    let dones = heard.iter().filter_map(|heard| heard.done);
    let highest = if open.validator.keeps(Rule::R8) { dones.max() } else { dones.min() };
    let voted = highest.and_then(|vote| open.slot.grounds.get(&vote));
    if let Some(receipt) = voted.map(Voted::receipt) {
        let same = |status: &Status| status.done.map(|vote| vote.r) == highest.map(|vote| vote.r);
        let authors = asking.statuses.iter().filter(|(_, (status, _))| same(status));
        if open.slot.series.adopted.len() < MEMBERS_MAX {
            let adopted = open.slot.series.adopted.entry(receipt.update).or_default();
            adopted.from.extend(authors.map(|(peer, _)| *peer));
        }
        return Some(receipt);
    }
    let holds = heard.iter().any(|heard| heard.holds_forced);
    if holds { open.slot.forced.clone() } else { None }
}

/// Makes the roster, gossips it, and accepts it ourselves. Returns false if no member can
/// compute.
fn propose(
    open: &mut Epoch<'_>,
    attempt: u64,
    heard: Vec<Heard>,
    adopt: Option<Receipt>,
    keep: Vec<Keep>,
) -> bool {
    let members = roster::compose(open.facts(), attempt);
    let (members, trust) = admission::admitted(open.facts(), members, adopt.as_ref());
    let keep = admission::without_revoked(open.facts(), keep);
    let idle = !members.iter().any(|m| m.weight > 0);
    if (adopt.is_none() && idle) || !members.iter().any(|m| m.peer == open.me.peer) {
        return false;
    }
    let proposer = open.me.peer;
    let series = open.series();
    let mut roster = Roster { series, attempt, proposer, members, heard, adopt, trust, keep };
    salvage::fit(open.facts(), &mut roster);
    if roster::check_roster(open.facts(), proposer, &roster).is_err() {
        return false;
    }
    let message = open.validator.seal(Message::Roster(roster.clone()));
    let said = open.step.out.len();
    acceptor::on_roster(open, &message, &roster);
    // What we would not accept ourselves is not sent.
    let accepted = matches!(open.slot.series.stage, Stage::Open { .. });
    if accepted {
        open.step.out.insert(said, Decision::Out(Output::Gossip(message)));
        open.step.put_all(send::prove_to_all(open.facts(), &roster));
    } else {
        open.step.out.truncate(said);
    }
    accepted
}
