//! `--chaos`: peers are disturbed at random, and well again a moment later.
//!
//! A rule is such as `kill every 5s for 5m, stop every 20s for 2m` or `kill each epoch`. It chooses, from a seed, one
//! running peer that is well, and kills it (as kill -9), stops it, or takes its link down. 1 to 3 seconds later the
//! peer is started, continued, or linked again. At least two peers are well before one is hurt, so the run never
//! loses its last peer.
//!
//! Chaos begins after the second commit, which shows how long an undisturbed epoch takes. It ends three epochs before
//! the last, so that every peer is there for that one. It leaves alone the peers that a scenario file deals with.

pub(super) mod cost;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    str::FromStr,
    time::Duration,
};

use intellect_protocol::base::rng::Rng;
use serde_json::json;

use super::{
    links::{AccessLink, Change},
    scenario::{Action, PeerAction},
};
use crate::cli::number::with_unit;

/// The rules of `--chaos`, in the order in which they were typed. Two rules may be due at once; a
/// peer that one of them has hurt is not hurt by the other before it is well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChaosRules(Vec<Rule>);

/// What happens, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rule {
    harm: Harm,
    rhythm: Rhythm,
}

/// What can be done to a peer. Each has a cure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Harm {
    /// Its process is killed, and started again later.
    Kill,
    /// Its process is stopped, and continued later.
    Stop,
    /// Its link is taken down, and brought up later.
    Cut,
}

/// How often a rule hurts a peer, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rhythm {
    /// Every `gap`, for `length` from the beginning.
    Every { gap: Duration, length: Duration },
    /// Once in each epoch, at a random instant of its first four fifths.
    EachEpoch,
}

/// The argument of `--chaos` makes no sense. Nothing has been started.
#[derive(Debug, thiserror::Error)]
#[error(
    "--chaos {text}: write rules such as \"kill every 5s for 5m\" or \"kill each epoch\", with \
     commas between them; kill, stop or cut, and times in ms, s, m or h"
)]
pub(crate) struct ChaosError {
    /// The rule that is not understood.
    text: String,
}

impl FromStr for ChaosRules {
    type Err = ChaosError;

    fn from_str(text: &str) -> Result<Self, ChaosError> {
        text.split(',').map(|rule| parse_rule(rule.trim())).collect::<Result<_, _>>().map(Self)
    }
}

/// One rule, in words that are separated by spaces.
fn parse_rule(text: &str) -> Result<Rule, ChaosError> {
    let wrong = || ChaosError { text: text.to_owned() };
    let words: Vec<&str> = text.split_whitespace().collect();
    let (harm, rhythm) = match words[..] {
        [harm, "each", "epoch"] => (harm, Rhythm::EachEpoch),
        [harm, "every", gap, "for", length] => {
            let time = |text| parse_time(text).ok_or_else(wrong);
            (harm, Rhythm::Every { gap: time(gap)?, length: time(length)? })
        }
        _ => return Err(wrong()),
    };
    let harm = Harm::ALL.into_iter().find(|known| known.word() == harm).ok_or_else(wrong)?;
    Ok(Rule { harm, rhythm })
}

/// A number with its unit; zero is no time.
fn parse_time(text: &str) -> Option<Duration> {
    let (number, unit) = with_unit(text, MILLIS)?;
    let millis = number.checked_mul(unit)?;
    (millis > 0).then_some(Duration::from_millis(millis))
}

impl fmt::Display for ChaosRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Rule { harm, rhythm }) in self.0.iter().enumerate() {
            f.write_str(if index > 0 { ", " } else { "" })?;
            write!(f, "{}", harm.word())?;
            match rhythm {
                Rhythm::Every { gap, length } => write!(f, " every {gap:?} for {length:?}")?,
                Rhythm::EachEpoch => f.write_str(" each epoch")?,
            }
        }
        Ok(())
    }
}

impl ChaosRules {
    /// The rules as data, with times in milliseconds.
    pub(super) fn told(&self) -> serde_json::Value {
        let rules = self.0.iter().map(|Rule { harm, rhythm }| match rhythm {
            Rhythm::Every { gap, length } => {
                let (every_ms, for_ms) = (gap.as_millis() as u64, length.as_millis() as u64);
                json!({ "do": harm.word(), "every_ms": every_ms, "for_ms": for_ms })
            }
            Rhythm::EachEpoch => json!({ "do": harm.word(), "each": "epoch" }),
        });
        rules.collect()
    }

    /// Whether any rule takes links down. Then the simulation needs links that can be bad.
    pub(crate) fn has_links(&self) -> bool {
        self.0.iter().any(|rule| rule.harm == Harm::Cut)
    }
}

impl Harm {
    const ALL: [Self; 3] = [Self::Kill, Self::Stop, Self::Cut];

    /// The word of the rule, also in the report.
    fn word(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Stop => "stop",
            Self::Cut => "cut",
        }
    }

    /// The action that begins the harm to this peer.
    fn hurt(self, peer: usize) -> Action {
        match self {
            Self::Kill => Action::Peer(PeerAction::Kill, peer),
            Self::Stop => Action::Peer(PeerAction::Stop, peer),
            Self::Cut => up(peer, false),
        }
    }

    /// The action that ends it: the peer starts from its folder, goes on, or has its link again.
    fn cure(self, peer: usize) -> Action {
        match self {
            Self::Kill => Action::Peer(PeerAction::Start, peer),
            Self::Stop => Action::Peer(PeerAction::Continue, peer),
            Self::Cut => up(peer, true),
        }
    }
}

/// Takes the link of a peer up or down, and changes nothing else of it.
fn up(peer: usize, up: bool) -> Action {
    let link = AccessLink { up: Some(up), ..AccessLink::default() };
    Action::Links(Change::Access { peer, link })
}

/// The state of chaos, before, during and after its time. It decides what happens; the process
/// group does it. All times are since the start of the simulation.
#[derive(Debug)]
pub(super) struct Chaos {
    /// What the user wants to happen.
    rules: ChaosRules,
    /// Chooses peers and times, from the seed of the simulation.
    rng: Rng,
    /// The last epoch of the run; the chaos ends before it.
    epochs: u64,
    /// For each rule, when it hurts a peer next.
    due: Vec<Option<Duration>>,
    /// The peers that are hurt, how, and until when.
    hurt: BTreeMap<usize, (Harm, Duration)>,
    /// When chaos began; `None` before the second commit.
    began: Option<Duration>,
    /// The greatest epoch so far, and when it was committed.
    epoch: (u64, Duration),
    /// How long the epoch before took, by which [`EPOCH_SHARE`] is measured.
    epoch_length: Duration,
    /// How often each harm was done.
    counts: BTreeMap<Harm, u64>,
    /// All peers that were ever hurt.
    touched: BTreeSet<usize>,
}

impl Chaos {
    /// Chaos by these rules in a run of so many epochs.
    pub(super) fn new(rules: ChaosRules, seed: u64, epochs: u64) -> Self {
        Self {
            due: vec![None; rules.0.len()],
            rules,
            rng: Rng::new(seed),
            epochs,
            hurt: BTreeMap::new(),
            began: None,
            epoch: (0, Duration::ZERO),
            epoch_length: Duration::ZERO,
            counts: BTreeMap::new(),
            touched: BTreeSet::new(),
        }
    }

    /// What happens `now`, so long after the start, with so many epochs `committed`. `running` are the peers with a
    /// process, which may be stopped; those of them in `spared` are never hurt.
    ///
    /// Cures come first. When the time of chaos is over all peers are cured at once, so that the
    /// calm epochs have everybody. A rule that finds nobody to hurt stays due.
    pub(super) fn take_due(
        &mut self,
        now: Duration,
        committed: u64,
        running: &BTreeSet<usize>,
        spared: &BTreeSet<usize>,
    ) -> Vec<Action> {
        self.follow(committed, now);
        let over = self.is_over();
        let mut actions = Vec::new();
        self.hurt.retain(|peer, (harm, until)| {
            let well = over || *until <= now;
            if well {
                actions.push(harm.cure(*peer));
            }
            !well
        });
        if self.began.is_none() || over {
            return actions;
        }
        for index in 0..self.due.len() {
            let Some(rule) = self.rules.0.get(index).copied() else { continue };
            if self.due[index].is_none_or(|due| now < due) {
                continue;
            }
            let Some(peer) = self.victim(running, spared) else { continue };
            let until = now + WELL_AFTER_MIN + WELL_AFTER_RANGE.mul_f64(self.rng.unit());
            self.hurt.insert(peer, (rule.harm, until));
            self.touched.insert(peer);
            *self.counts.entry(rule.harm).or_default() += 1;
            actions.push(rule.harm.hurt(peer));
            self.due[index] = match rule.rhythm {
                Rhythm::Every { gap, length } => {
                    let end = self.began.unwrap_or_default() + length;
                    let next = now + gap;
                    (next < end).then_some(next)
                }
                Rhythm::EachEpoch => None,
            };
        }
        actions
    }

    /// Whether `peer` was ever hurt. Only such a peer is excused for coming too late to the last
    /// epoch.
    pub(super) fn has_hurt(&self, peer: usize) -> bool {
        self.touched.contains(&peer)
    }

    /// How often peers were killed, stopped and cut off.
    pub(super) fn counts(&self) -> [u64; 3] {
        Harm::ALL.map(|harm| self.counts.get(&harm).copied().unwrap_or(0))
    }

    /// Whether no peer is hurt any more from now on.
    fn is_over(&self) -> bool {
        self.epoch.0 + CALM_EPOCHS >= self.epochs
    }

    /// Notes the progress of the run, and sets when each rule is due next. A call without a new
    /// epoch changes nothing.
    fn follow(&mut self, committed: u64, now: Duration) {
        let (epoch, since) = self.epoch;
        if committed <= epoch {
            return;
        }
        self.epoch_length = now.saturating_sub(since);
        self.epoch = (committed, now);
        if committed < UNDISTURBED_EPOCHS {
            return;
        }
        let first = self.began.is_none();
        self.began.get_or_insert(now);
        for (due, rule) in self.due.iter_mut().zip(&self.rules.0) {
            match rule.rhythm {
                Rhythm::Every { gap, .. } if first => *due = Some(now + gap),
                Rhythm::Every { .. } => {}
                // A rule that is still due was meant for the epoch before, and is due at once.
                Rhythm::EachEpoch if due.is_some() => *due = Some(now),
                Rhythm::EachEpoch => {
                    let share = EPOCH_SHARE * self.rng.unit();
                    *due = Some(now + self.epoch_length.mul_f64(share));
                }
            }
        }
    }

    /// A random peer that may be hurt, if another one stays well. Peers that are spared count among
    /// those that are well.
    fn victim(&mut self, running: &BTreeSet<usize>, spared: &BTreeSet<usize>) -> Option<usize> {
        let well: Vec<usize> =
            running.iter().copied().filter(|peer| !self.hurt.contains_key(peer)).collect();
        let open: Vec<usize> = well.iter().copied().filter(|peer| !spared.contains(peer)).collect();
        if well.len() < 2 { None } else { self.rng.pick(&open).copied() }
    }
}

/// The units of time, in milliseconds.
const MILLIS: &[(&str, u64)] = &[("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];
/// Commits before chaos begins. The last of these epochs is the measure of an undisturbed one.
const UNDISTURBED_EPOCHS: u64 = 2;
/// The harm of an epoch comes within this share of the length of the epoch before, as this one may be shorter.
const EPOCH_SHARE: f64 = 0.8;
/// Epochs at the end without harm: a peer that has just come back needs two of them to take part.
const CALM_EPOCHS: u64 = 3;
/// A peer is well again after 1 to 3 s, which may be longer than the silence after which the built-in manifest counts
/// a peer as gone, but is shorter than its `minority_grace`.
const WELL_AFTER_MIN: Duration = Duration::from_secs(1);
const WELL_AFTER_RANGE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests;
