//! Every moment at which the machine moves without an input, in one table.
//!
//! A deadline is stored next to the state that it ends, and so is dropped with it; some deadlines
//! are not fixed moments, since they depend on which peers are heard. All are read only here: a
//! rule that waits asks whether its timer is over, and the machine wakes at the first of all
//! timers. So a wait that is in no line of the table could not end.

use std::time::Duration;

use crate::base::id::PeerId;
use crate::base::rule::Rule;
use crate::base::time::Time;
use crate::machine::event::Progress;
use crate::message::Phase;
use crate::ring::Order;

use super::attendance::{PeerStatus, Question};
use super::facts::Facts;
use super::patience;
use super::series::{SeriesState, Stage};

/// Turns are at least this long (docs/PROTOCOL.md).
const TURN_MIN: Duration = Duration::from_millis(50);

/// What the machine waits for, with one deadline each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timer {
    /// The answers to our Query (R7).
    Answers,
    /// Our turn at the first attempt (R36).
    FirstTurn,
    /// The end of the present stage: of an attempt, of a Regroup that does not open, of the wait
    /// for the roster of the next attempt, or of the wait for other copies of what is decided.
    Stage,
    /// Our own ring, once others have decided its epoch.
    Ring,
    /// The Ready of the other voters and peers (R36).
    Grace,
    /// The Ready of newcomers that are not awaited as long as voters (G5).
    Newcomers,
    /// The next try after a donor did not serve an update.
    Fetch,
    /// Our turn at a Regroup (R12).
    RegroupTurn,
    /// The next repeat of a message that is not answered yet.
    Repeat,
    /// The end of what is open when we leave (R29).
    Leave,
}

impl Timer {
    /// All timers. The last variant gives their number, so that none is missing.
    const ALL: [Self; Self::Leave as usize + 1] = [
        Self::Answers,
        Self::FirstTurn,
        Self::Stage,
        Self::Ring,
        Self::Grace,
        Self::Newcomers,
        Self::Fetch,
        Self::RegroupTurn,
        Self::Repeat,
        Self::Leave,
    ];
}

/// The wait before our turn at attempt (or Regroup) `k`: rank · max(2·rtt, 50 ms).
pub(super) fn turn(facts: Facts<'_>, k: u64) -> Duration {
    let key = |peer: &PeerId| facts.order(Order::Turn, k, peer);
    let mine = key(&facts.me.peer);
    // Peers that are on their way count as well: just after a Regroup opens, no peer has named its
    // series yet.
    let joined = matches!(facts.slot.series.stage, Stage::Joined { .. });
    // G1: a peer that does not vote has no turn. Before there are voters, every peer has one.
    let may = |peer: &PeerId| {
        joined || facts.voters().is_empty() || facts.names_voter(peer) || !facts.keeps(Rule::G1)
    };
    let here = facts.step.table.live(facts.step.now).filter(|(peer, seen)| {
        let counts = |status: PeerStatus| {
            status.counts(Question::TakesPart) || (joined && status.counts(Question::MayRegroup))
        };
        seen.beat.phase != Phase::Behind
            && counts(facts.peer_status_of(peer, seen))
            && may(peer)
            && !facts.is_lost(peer)
            && key(peer) < mine
    });
    let turn = (2 * facts.usual_trip()).max(TURN_MIN);
    turn * u32::try_from(here.count()).unwrap_or(u32::MAX)
}

/// The table: when a timer is over; `None` if it does not run.
fn due(facts: Facts<'_>, timer: Timer) -> Option<Time> {
    let series = &facts.slot.series;
    match timer {
        Timer::Answers => series.asking.as_ref().map(|asking| asking.until),
        Timer::FirstTurn => series.turn_since.map(|since| since + turn(facts, 1)),
        Timer::Stage => stage_due(series),
        Timer::Ring => {
            let Stage::Decided(decided) = &series.stage else { return None };
            Some(decided.ring_until)
        }
        Timer::Grace => patience::grace_until(facts),
        Timer::Newcomers => patience::newcomers_until(facts),
        Timer::Fetch => Some(series.fetch_after),
        Timer::RegroupTurn => series.gathering.turn.map(|turn| turn.due),
        Timer::Repeat => Some(series.repeat_at),
        Timer::Leave => facts.leaving,
    }
}

fn stage_due(series: &SeriesState) -> Option<Time> {
    match &series.stage {
        Stage::Open { until, .. } | Stage::Joined { until, .. } => Some(*until),
        Stage::Recover { until, .. } => *until,
        Stage::Idle { left_out } => left_out.map(|(until, _)| until),
        Stage::Decided(decided) => Some(decided.until),
        Stage::Applying(_) => None,
    }
}

/// Whether anything happens when that timer is over.
fn is_waiting(facts: Facts<'_>, timer: Timer) -> bool {
    let series = &facts.slot.series;
    match timer {
        // The end of a voter's grace is seen at our next heartbeat.
        Timer::Grace | Timer::Newcomers => {
            matches!(series.stage, Stage::Idle { .. } | Stage::Recover { .. })
        }
        Timer::Repeat => {
            let repeats = match series.stage {
                Stage::Open { progress, .. } => progress != Progress::Reduce,
                Stage::Joined { .. } => true,
                Stage::Idle { .. }
                | Stage::Recover { .. }
                | Stage::Decided(_)
                | Stage::Applying(_) => false,
            };
            repeats || series.asking.is_some()
        }
        Timer::Answers
        | Timer::FirstTurn
        | Timer::Stage
        | Timer::Ring
        | Timer::Fetch
        | Timer::RegroupTurn
        | Timer::Leave => true,
    }
}

/// Whether a timer has run, and is over.
pub(super) fn is_over(facts: Facts<'_>, timer: Timer) -> bool {
    due(facts, timer).is_some_and(|due| facts.step.now >= due)
}

/// When the next timer is over, for the caller to wake us.
pub(super) fn deadline(facts: Facts<'_>) -> Option<Time> {
    let waiting = Timer::ALL.into_iter().filter(|timer| is_waiting(facts, *timer));
    waiting.filter_map(|timer| due(facts, timer)).filter(|due| *due > facts.step.now).min()
}
