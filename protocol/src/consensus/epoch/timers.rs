//! Every moment at which the machine moves without an input: one table.
//!
//! A deadline is kept where what it ends is kept, and so is gone with it; some are no fixed moments, since they
//! depend on who is heard. All are read here only: a rule that waits asks whether its timer is over, and the
//! machine wakes at the first of all timers. So a wait that is in no line of the table cannot end.

use std::time::Duration;

use crate::base::id::PeerId;
use crate::base::time::Time;
use crate::machine::event::Progress;
use crate::message::Phase;
use crate::ring::{Order, order};

use super::attendance::{Place, Question};
use super::series::{SeriesState, Stage};
use super::{Facts, Rule, patience};

/// Turns are at least this long, docs/PROTOCOL.md.
const TURN_MIN: Duration = Duration::from_millis(50);

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timer {
    /// The answers to our question (R7).
    Answers,
    /// The roster of whom we have promised (G2).
    Roster,
    /// Our turn at the first attempt (R36).
    FirstTurn,
    /// The end of what the stage is: an attempt, a Regroup that does not open, our turn at the next attempt,
    /// other copies of what is decided.
    Stage,
    /// Our own ring, once others have decided its epoch.
    Ring,
    /// The Ready of others (R36).
    Grace,
    /// The Ready of newcomers that are not awaited as long (G5).
    Guests,
    /// A donor that did not serve.
    Fetch,
    /// Our turn at a Regroup (R12).
    RegroupTurn,
    /// What is repeated.
    Repeat,
    /// What is open when we leave (R29).
    Leave,
}

impl Timer {
    /// All of them. The last one counts them, so that none is missing.
    const ALL: [Self; Self::Leave as usize + 1] = [
        Self::Answers,
        Self::Roster,
        Self::FirstTurn,
        Self::Stage,
        Self::Ring,
        Self::Grace,
        Self::Guests,
        Self::Fetch,
        Self::RegroupTurn,
        Self::Repeat,
        Self::Leave,
    ];
}

/// Before our turn comes at attempt (or Regroup) `k`: rank · max(2·rtt, 50 ms).
pub(super) fn turn(facts: Facts<'_>, k: u64) -> Duration {
    let key = |peer: &PeerId| order(Order::Turn, &facts.law.run, &facts.series().parent, k, peer);
    let mine = key(&facts.me.peer);
    // Peers that are on their way count as well: just after a Regroup opens, nobody has named
    // its series yet.
    let joined = matches!(facts.slot.series.stage, Stage::Joined { .. });
    // G1: who does not vote has no turn. Where nobody does yet, everyone has.
    let may = |peer: &PeerId| {
        joined || facts.voters().is_empty() || facts.names_voter(peer) || !facts.keeps(Rule::G1)
    };
    let here = facts.step.roll.live(facts.step.now).filter(|(peer, seen)| {
        let counts = |place: Place| {
            place.counts(Question::TakesPart) || (joined && place.counts(Question::MayRegroup))
        };
        seen.beat.phase != Phase::Behind
            && counts(facts.place_of(peer, seen))
            && may(peer)
            && !facts.slot.lost.contains(facts.step, peer)
            && key(peer) < mine
    });
    let turn = (2 * facts.usual_trip()).max(TURN_MIN);
    turn * u32::try_from(here.count()).unwrap_or(u32::MAX)
}

/// The table: when a timer is over; `None` where it does not run.
fn due(facts: Facts<'_>, timer: Timer) -> Option<Time> {
    let series = &facts.state.slot.series;
    match timer {
        Timer::Answers => series.asking.as_ref().map(|asking| asking.until),
        Timer::Roster => series.awaited.map(|awaited| awaited.until),
        Timer::FirstTurn => series.turn_since.map(|since| since + turn(facts, 1)),
        Timer::Stage => stage_due(facts, series),
        Timer::Ring => match &series.stage {
            Stage::Decided(decided) => Some(decided.ring_until),
            Stage::Idle { .. }
            | Stage::Open { .. }
            | Stage::Recover { .. }
            | Stage::Joined { .. }
            | Stage::Applying(_) => None,
        },
        Timer::Grace => patience::grace_until(facts),
        Timer::Guests => patience::guests_until(facts),
        Timer::Fetch => Some(series.fetch_after),
        Timer::RegroupTurn => series.gathering.turn.map(|turn| turn.due),
        Timer::Repeat => Some(series.repeat_at),
        Timer::Leave => facts.leaving,
    }
}

fn stage_due<'a>(facts: Facts<'a>, series: &'a SeriesState) -> Option<Time> {
    match &series.stage {
        Stage::Open { until, .. } | Stage::Joined { until, .. } => Some(*until),
        Stage::Idle { patience } => *patience,
        Stage::Recover { attempt, since } => {
            Some(*since + turn(facts, series.attempt_due(*attempt)))
        }
        Stage::Decided(decided) => Some(decided.until),
        Stage::Applying(_) => None,
    }
}

/// Whether anything happens when that timer is over.
fn is_waiting(facts: Facts<'_>, timer: Timer) -> bool {
    let series = &facts.state.slot.series;
    match timer {
        // The end of a voter's grace is seen at our next heartbeat.
        Timer::Grace | Timer::Guests => {
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
        | Timer::Roster
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

/// When the next timer is over.
pub(super) fn deadline(facts: Facts<'_>) -> Option<Time> {
    let waiting = Timer::ALL.into_iter().filter(|timer| is_waiting(facts, *timer));
    waiting.filter_map(|timer| due(facts, timer)).filter(|due| *due > facts.step.now).min()
}
