//! A stranger says that it is Ready, so rosters name it. It refuses each, or queries for ever
//! higher attempts. The epochs go on, and no honest peer is blamed.

use std::time::{Duration, Instant};

use intellect_protocol::{
    base::id::LogId,
    message::{Heartbeat, Message, Phase, Query, Refusal, Refuse, Roster, wire},
};

use super::{Honest, Stranger, WEIGHT, about, name, states};

/// How long the stranger is there, at least; alone two nodes commit about thirty epochs in that time.
const ATTACK: Duration = Duration::from_secs(20);

/// The stranger leaves only after the nodes have committed so many epochs beside it.
const EPOCHS_MIN: u64 = 4;

/// By when they have. Where a stranger can stop them, they never do.
const PATIENCE: Duration = Duration::from_secs(150);

/// The stranger that claims to be Ready.
struct Claimant {
    stranger: Stranger,
    read: usize,
    count: u64,
    beat_at: Instant,
    /// The newest heartbeat of an honest node.
    newest: Option<Heartbeat>,
}

impl Claimant {
    fn enter(seed: u8, honest: &mut Honest) -> Self {
        let mut stranger = Stranger::enter(seed, &mut honest.one);
        stranger.dial(&mut honest.two);
        Self { stranger, read: 0, count: 0, beat_at: Instant::now(), newest: None }
    }

    /// Lives for a moment, as a peer that is Ready; returns the rosters that it hears.
    fn live(&mut self) -> Vec<Roster> {
        self.stranger.live(Duration::from_millis(5));
        let run = self.stranger.run;
        let new = self.stranger.side.heard.iter().skip(self.read);
        let opened = new.filter_map(|heard| wire::open_gossip(&run, &heard.bytes).ok());
        let mut rosters = Vec::new();
        for message in opened {
            match message.body() {
                Message::Heartbeat(beat) => {
                    let known = self.newest.as_ref().map(|known| known.head.epoch);
                    if known.is_none_or(|epoch| beat.head.epoch >= epoch) {
                        self.newest = Some(beat.clone());
                    }
                }
                Message::Roster(roster) => rosters.push(roster.clone()),
                _ => {}
            }
        }
        self.read = self.stranger.side.heard.len();
        if Instant::now() >= self.beat_at {
            self.beat();
        }
        rosters
    }

    fn beat(&mut self) {
        let Some(newest) = self.newest.clone() else { return };
        self.beat_at = Instant::now() + Duration::from_millis(150);
        self.count += 1;
        let beat = Heartbeat {
            count: self.count,
            ready: WEIGHT,
            serves: 0,
            direct: true,
            log: LogId([9; 16]),
            incarnation: 1,
            joined: None,
            closed: false,
            phase: Phase::Train,
            attempt: 0,
            unlinked: Vec::new(),
            round_trips: Vec::new(),
            ..newest
        };
        self.say(0, Message::Heartbeat(beat));
    }

    fn say(&mut self, repeat: u32, message: Message) {
        let beat = matches!(message, Message::Heartbeat(_));
        let bytes = wire::gossip(repeat, &self.stranger.seal(message));
        self.stranger.gossip(beat, bytes);
    }

    /// Refuses a roster that names it.
    fn refuse(&mut self, roster: &Roster) {
        let Some(newest) = self.newest.as_ref() else { return };
        if roster.member(&self.stranger.key.peer()).is_some() {
            let what = wire::roster_digest(&self.stranger.run, roster);
            let (series, head, reason) = (roster.series, newest.head, Refusal::Promised);
            self.say(0, Message::Refuse(Refuse { series, what, promised: 0, head, reason }));
        }
    }
}

/// Whether the stranger has not been there for long enough.
fn goes_on(honest: &Honest, before: u64, start: Instant) -> bool {
    let there = start.elapsed();
    there < ATTACK || (there < PATIENCE && newest_epoch(honest) < before + EPOCHS_MIN)
}

fn newest_epoch(honest: &Honest) -> u64 {
    states(&honest.one).keys().max().copied().unwrap_or_default()
}

fn expect_progress(honest: Honest, before: u64, start: Instant) {
    let after = newest_epoch(&honest);
    println!("epoch {before} before, {after} after {:?}", start.elapsed());
    assert!(after >= before + EPOCHS_MIN, "epoch {before} before, {after} after");
    let names = [name(&honest.one), name(&honest.two)];
    for node in [&honest.one, &honest.two] {
        let blamed: Vec<_> = names.iter().flat_map(|who| about(node, "fault", who)).collect();
        assert!(blamed.is_empty(), "{blamed:?}");
    }
    honest.expect_no_harm();
}

/// G4: a Refuse of one member must not end every attempt.
#[test]
fn a_stranger_that_refuses_each_roster_stops_nobody() {
    let mut honest = Honest::train();
    let mut claimant = Claimant::enter(190, &mut honest);
    let (before, start) = (newest_epoch(&honest), Instant::now());
    while goes_on(&honest, before, start) {
        for roster in claimant.live() {
            claimant.refuse(&roster);
        }
    }
    drop(claimant);
    expect_progress(honest, before, start);
}

/// G1, G2: the stranger holds the epoch open and counts up as fast as it is
/// heard; the numbers must last.
#[test]
fn a_stranger_does_not_use_up_the_attempts() {
    let mut honest = Honest::train();
    let mut claimant = Claimant::enter(191, &mut honest);
    let (before, start) = (newest_epoch(&honest), Instant::now());
    let (mut attempt, mut sent, mut series, mut due) = (0, 0, None, start);
    while goes_on(&honest, before, start) {
        for roster in claimant.live() {
            attempt = roster.attempt.max(attempt);
            claimant.refuse(&roster);
        }
        let Some(open) = claimant.newest.as_ref().map(|newest| newest.series) else { continue };
        if series != Some(open) {
            (series, attempt) = (Some(open), 0);
        }
        if start.elapsed() > Duration::from_secs(3) && Instant::now() >= due {
            due = Instant::now() + Duration::from_millis(20);
            attempt = attempt.saturating_add(65_000);
            sent += 1;
            claimant.say(sent, Message::Query(Query { series: open, attempt }));
        }
    }
    drop(claimant);
    expect_progress(honest, before, start);
}
