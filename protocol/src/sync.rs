//! Heads, forks, and catching up: which lineage to follow, and what proves it (R14, R16, R23–R28).
//!
//! Heads are ordered by committed tokens, then by the smaller digest; the greatest whose links
//! verify is followed. One question is open at a time: first the links after the last common
//! epoch, and if they do not fit on ours, the chain, to find where the two part (`work`). Updates or
//! a checkpoint are asked for only once every link to them is verified (`arrive`).
//!
//! What this does not do: votes (`epoch`), bytes of checkpoints and updates.

mod work;
mod arrive;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::blocks::Blocks;
use crate::event::Event;
use crate::fault::Fault;
use crate::id::{Digest, PeerId};
use crate::lineage::Law;
use crate::log::Record;
use crate::message::{
    Absence, Answer, Ask, CHAIN_MAX, ChainLink, Head, Heartbeat, LINKS_MAX, Link, Opening, Phase,
    Receipt, Series, Voter,
};
use crate::roll::{Roll, Seen};
use crate::time::Time;
use crate::wire;

use work::{Open, Work};

/// What the machine must know.
#[derive(Clone, Debug)]
pub struct Config {
    /// What is lawful in the run.
    pub law: Law,
    /// Us.
    pub me: PeerId,
    /// Which start of ours this is.
    pub incarnation: u64,
    /// Epoch 0.
    pub genesis: Head,
    /// The voters of epoch 1, before any Regroup.
    pub founders: Vec<Voter>,
    /// A way of more updates than this is left to a checkpoint.
    pub replay_max: usize,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Input<'a> {
    /// Time has passed, or the roll has changed.
    Tick(Standing),
    /// The answer to a question of ours.
    Answer {
        /// Who was asked.
        from: PeerId,
        /// `None` when there was none.
        answer: Option<&'a Answer>,
        /// Where the open epoch stands.
        standing: Standing,
        /// Whether a majority of its voters is present (R24).
        majority: bool,
        /// Its Regroups.
        openings: &'a [Opening],
    },
    /// Our delta for the epoch after our head is frozen, and may be spent there.
    Frozen,
    /// The epoch machine committed.
    Committed(Head, Box<Link>),
    /// A replayed update gave this state.
    Applied(Digest),
    /// Nobody delivered an update that is replayed.
    UpdateMissing(Digest),
    /// Some of the checkpoint of this state is here.
    Partial(Digest),
    /// A checkpoint is loaded.
    Loaded(Head),
    /// Nobody delivered the checkpoint.
    LoadFailed(Head),
}

/// Where the open epoch stands.
#[derive(Clone, Copy, Debug)]
pub struct Standing {
    /// Its series.
    pub series: Series,
    /// Whether it is decided already: our head is about to go one epoch on.
    pub decided: bool,
    /// Whether its outer step is under way.
    pub applying: bool,
}

/// What to do.
#[derive(Clone, Debug)]
pub enum Output {
    /// Have this on disk before any later output leaves the machine.
    Log(Record),
    /// Ask a peer.
    Ask(PeerId, Ask),
    /// Whether a greater head is being fetched; `Enter` ends it as well.
    Behind(bool),
    /// Fetch and load a checkpoint.
    Fetch {
        /// Its head.
        head: Head,
        /// Digest of the last receipt.
        r: Digest,
        /// Who serves it.
        donors: Vec<PeerId>,
        /// In which blocks a link on the way has spent some of what is unspent here (R27, R34).
        spent: Blocks,
    },
    /// Fetch these updates, the first one first.
    Replay {
        /// Epoch and digest of each.
        updates: Vec<(u64, Digest)>,
        /// Who serves them.
        donors: Vec<PeerId>,
    },
    /// Take the outer step of an update that is replayed.
    Apply {
        /// The head that it is taken on.
        before: Head,
        /// Its receipt.
        receipt: Box<Receipt>,
        /// In which blocks what is unspent here is in it (R34).
        spent: Blocks,
    },
    /// A proof of our open epoch's result.
    Link(PeerId, Box<Link>),
    /// Regroups of our open epoch.
    Openings(PeerId, Vec<Opening>),
    /// Go on from this head.
    Enter {
        /// The head.
        head: Head,
        /// Its voters.
        voters: Vec<Voter>,
        /// The median weight in its receipt.
        median: Option<u64>,
    },
    /// A peer broke a rule.
    Fault(PeerId, Fault),
    /// Something to see.
    Event(Event),
}

/// One epoch of our lineage.
#[derive(Clone, Debug)]
struct Entry {
    link: Arc<Link>,
    r: Digest,
    head: Head,
}

/// The machine.
#[derive(Clone, Debug)]
pub struct State {
    config: Config,
    head: Head,
    /// Epoch e at index e − 1.
    entries: Vec<Entry>,
    work: Option<Work>,
    /// Until when a peer is not asked again.
    asked: BTreeMap<PeerId, Time>,
    /// Answers to the open question and to those that followed from it.
    rounds: u32,
    /// Heads that nobody serves, and until when they are left alone (R25).
    set_aside: BTreeMap<Digest, Time>,
    ahead_since: Option<Time>,
    /// A state of whose checkpoint some is here.
    partial: Option<Digest>,
    /// Whether we follow a greater head, and have not told yet that we are there.
    catching_up: bool,
    /// The heads after which we froze what is still unspent here: a receipt of another lineage that
    /// follows one of them and names us has spent it.
    frozen_after: Vec<Digest>,
    /// Parted lineages already told of, by head.
    told: BTreeSet<Digest>,
    /// By epoch of a Regroup: voters left out who may still hold another lineage (R14).
    forkable: BTreeMap<u64, BTreeSet<PeerId>>,
}

/// A head one epoch ahead is given this long to reach us as votes or a `Commit`; guess.
const USUAL_WAIT: Duration = Duration::from_millis(600);

/// A proof that led to no commit for so long is followed by its checkpoint; guess.
const LINK_WAIT: Duration = Duration::from_secs(6);

/// The shortest interval between questions to one peer.
const ASK_INTERVAL: Duration = Duration::from_secs(1);

/// Answers of one peer that a question may take: 65,536 links. A lineage that never fits ends here.
const ROUNDS_MAX: u32 = 1_024;

/// Heads remembered as set aside or told.
const REMEMBERED_MAX: usize = 1_024;

impl State {
    /// At the end of `lineage`, which starts at genesis.
    #[must_use]
    pub fn new(config: Config, lineage: Vec<(Head, Link)>) -> Self {
        let head = config.genesis;
        let mut state = Self {
            config,
            head,
            entries: Vec::new(),
            work: None,
            asked: BTreeMap::new(),
            rounds: 0,
            set_aside: BTreeMap::new(),
            ahead_since: None,
            partial: None,
            catching_up: false,
            frozen_after: Vec::new(),
            told: BTreeSet::new(),
            forkable: BTreeMap::new(),
        };
        lineage.into_iter().for_each(|(head, link)| state.push(Arc::new(link), head));
        state
    }

    /// The head, its voters, and the median weight in its receipt.
    #[must_use]
    pub fn tip(&self) -> (Head, Vec<Voter>, Option<u64>) {
        let Head { epoch, .. } = self.head;
        let median = self.link(epoch).and_then(|link| link.receipt.median_weight());
        (self.head, self.voters_at(epoch), median)
    }

    /// Takes one input.
    pub fn handle(&mut self, now: Time, roll: &Roll, input: Input<'_>, out: &mut Vec<Output>) {
        match input {
            Input::Tick(standing) => self.on_tick(now, roll, standing, out),
            Input::Answer { from, answer, standing, majority, openings } => {
                let open = Open { standing, majority, openings };
                self.on_answer(now, roll, from, answer, open, out);
            }
            Input::Frozen => self.note_frozen(),
            Input::Committed(head, link) => {
                self.note_spent(&self.spent(&link.receipt));
                out.push(Output::Log(Record::Committed { head }));
                self.push(Arc::from(link), head);
            }
            Input::Applied(state) => self.on_applied(state, out),
            Input::UpdateMissing(update) => self.on_update_missing(now, roll, &update, out),
            Input::Partial(state) => self.partial = Some(state),
            Input::Loaded(head) => self.on_loaded(head, out),
            Input::LoadFailed(head) => self.on_load_failed(now, roll, head, out),
        }
        self.note_returned(roll, out);
    }

    /// When to look again without an input.
    #[must_use]
    pub fn deadline(&self, now: Time) -> Option<Time> {
        let waits = self.ahead_since.map(|since| since + USUAL_WAIT).filter(|at| *at > now);
        let aside = self.set_aside.values().filter(|until| **until > now).min();
        waits.into_iter().chain(aside.copied()).min()
    }

    /// Since when another lineage may exist (R14).
    #[must_use]
    pub fn forkable_since(&self) -> Option<u64> {
        self.forkable.keys().next().copied()
    }

    /// The link of a committed epoch.
    #[must_use]
    pub fn link(&self, epoch: u64) -> Option<&Arc<Link>> {
        self.entry(epoch).map(|entry| &entry.link)
    }

    /// State digest after an epoch of our lineage.
    #[must_use]
    pub fn state_after(&self, epoch: u64) -> Option<Digest> {
        self.head_at(epoch).map(|head| head.state)
    }

    /// What we tell another peer about our lineage.
    #[must_use]
    pub fn answer(&self, ask: &Ask, openings: &[Opening]) -> Answer {
        let from = |epoch: u64| usize::try_from(epoch.max(1) - 1).unwrap_or(usize::MAX);
        match ask {
            Ask::Lineage { from_epoch } => {
                let entries = self.entries.get(from(*from_epoch)..).unwrap_or_default();
                let links = entries.iter().take(LINKS_MAX).map(|e| e.link.as_ref().clone());
                Answer::Lineage {
                    links: links.collect(),
                    head: self.head,
                    openings: openings.to_vec(),
                }
            }
            Ask::Chain { from_epoch } => {
                let entries = self.entries.get(from(*from_epoch)..).unwrap_or_default();
                let link =
                    |e: &Entry| ChainLink { epoch: e.head.epoch, state: e.head.state, r: e.r };
                Answer::Chain(entries.iter().take(CHAIN_MAX).map(link).collect())
            }
        }
    }

    fn note_frozen(&mut self) {
        if self.frozen_after.len() >= REMEMBERED_MAX {
            self.frozen_after.remove(0);
        }
        if self.frozen_after.last() != Some(&self.head.state) {
            self.frozen_after.push(self.head.state);
        }
    }

    /// After receipts that named us in every block nothing is left to spend.
    fn note_spent(&mut self, spent: &Blocks) {
        if *spent == Blocks::all(self.config.law.elements) {
            self.frozen_after.clear();
        }
    }

    /// In which blocks a receipt has spent what is unspent here.
    fn spent(&self, receipt: &Receipt) -> Blocks {
        let Config { me, incarnation, law, .. } = &self.config;
        if !self.frozen_after.contains(&receipt.series.parent) {
            return Blocks::default();
        }
        receipt.spent(me, *incarnation, law.elements)
    }

    fn entry(&self, epoch: u64) -> Option<&Entry> {
        self.entries.get(usize::try_from(epoch.checked_sub(1)?).ok()?)
    }

    fn head_at(&self, epoch: u64) -> Option<Head> {
        if epoch == 0 { Some(self.config.genesis) } else { self.entry(epoch).map(|e| e.head) }
    }

    fn voters_at(&self, epoch: u64) -> Vec<Voter> {
        match self.entry(epoch) {
            Some(entry) => entry.link.receipt.voters(),
            None => self.config.founders.clone(),
        }
    }

    fn push(&mut self, link: Arc<Link>, head: Head) {
        let base = self.voters_at(head.epoch.saturating_sub(1));
        // A founding leaves nobody behind.
        let regroups = link.openings.iter().skip(usize::from(base.is_empty()));
        let absent = regroups.flat_map(|opening| &opening.regroup.absent);
        let may_live = absent
            .filter(|(_, why)| matches!(why, Absence::Silent | Absence::Elsewhere | Absence::Mute));
        let away: BTreeSet<PeerId> = may_live.map(|(voter, _)| voter.peer).collect();
        if !away.is_empty() {
            self.forkable.insert(head.epoch, away);
        }
        let r = wire::receipt_digest(&self.config.law.run, &link.receipt);
        self.entries.push(Entry { link, r, head });
        self.head = head;
        self.ahead_since = None;
    }

    /// R14: a voter that was left out and is seen on this lineage holds no other one.
    fn note_returned(&mut self, roll: &Roll, out: &mut Vec<Output>) {
        let Some(first_epoch) = self.forkable_since() else { return };
        let entries = &self.entries;
        let ours = |head: &Head, since: u64| {
            let at = usize::try_from(head.epoch.saturating_sub(1)).ok();
            let entry = at.and_then(|at| entries.get(at));
            head.epoch >= since && entry.is_some_and(|entry| entry.head == *head)
        };
        for (since, away) in &mut self.forkable {
            away.retain(|peer| {
                let back = |seen: &Seen| seen.has_left() || ours(&seen.beat.head, *since);
                !roll.peers.get(peer).is_some_and(back)
            });
        }
        self.forkable.retain(|_, away| !away.is_empty());
        if self.forkable.is_empty() {
            out.push(Output::Event(Event::ForkExcluded { first_epoch }));
        }
    }

    fn on_tick(&mut self, now: Time, roll: &Roll, standing: Standing, out: &mut Vec<Output>) {
        self.set_aside.retain(|_, until| *until > now);
        self.asked.retain(|_, until| now < *until);
        if self.work.is_some() || standing.applying {
            return;
        }
        self.rounds = 0;
        self.note_caught_up(now, roll, out);
        let Some((peer, head)) = self.greatest(now, roll) else {
            if !roll.live(now).any(|(_, seen)| self.is_ahead(seen, &self.head)) {
                self.ahead_since = None;
            }
            self.look_beside(now, roll, standing, out);
            return;
        };
        let since = *self.ahead_since.get_or_insert(now);
        let next = head.epoch == self.head.epoch.saturating_add(1);
        if next && (standing.decided || now < since + USUAL_WAIT) {
            return;
        }
        self.ask_lineage(now, (peer, head), self.head.epoch, out);
    }

    /// R23: the greatest head among the living that exceeds ours.
    fn greatest(&self, now: Time, roll: &Roll) -> Option<(PeerId, Head)> {
        let mut best: Option<(PeerId, Head)> = None;
        for (peer, seen) in roll.live(now) {
            let least = best.map_or(self.head, |(_, head)| head);
            if !self.asked.contains_key(peer) && self.is_ahead(seen, &least) {
                best = Some((*peer, seen.beat.head));
            }
        }
        best
    }

    /// Whether somebody alive has a greater head, and has not been silent when asked for it.
    #[must_use]
    pub fn sees_ahead(&self, now: Time, roll: &Roll) -> bool {
        let mut ahead = roll.live(now).filter(|(_, seen)| self.is_ahead(seen, &self.head));
        ahead.any(|(peer, _)| !self.is_mute(now, peer))
    }

    /// Whether a question to this peer was not answered lately.
    fn is_mute(&self, now: Time, peer: &PeerId) -> bool {
        self.asked.get(peer).is_some_and(|at| *at > now + ASK_INTERVAL)
    }

    fn is_ahead(&self, seen: &Seen, than: &Head) -> bool {
        let Heartbeat { phase, head, .. } = &seen.beat;
        *phase != Phase::Behind && !self.set_aside.contains_key(&head.state) && head.exceeds(than)
    }

    /// Nobody is ahead: look for Regroups that we missed, and for lineages that parted from ours.
    fn look_beside(&mut self, now: Time, roll: &Roll, standing: Standing, out: &mut Vec<Output>) {
        for (peer, seen) in roll.live(now) {
            let beat = &seen.beat;
            if self.asked.contains_key(peer) {
                continue;
            }
            let regrouped = beat.phase != Phase::Behind
                && beat.series.is_beside(&standing.series)
                && beat.series != standing.series
                && beat.series.regroup.is_some();
            let parted = self.state_after(beat.head.epoch).is_some_and(|s| s != beat.head.state);
            if regrouped && beat.head == self.head {
                self.ask_lineage(now, (*peer, beat.head), self.head.epoch, out);
                return;
            }
            if parted && !self.told.contains(&beat.head.state) {
                self.ask_chain(now, *peer, beat.head, out);
                return;
            }
        }
    }

    fn put_aside(&mut self, state: Digest, until: Time) {
        if self.set_aside.len() < REMEMBERED_MAX {
            self.set_aside.insert(state, until);
        }
    }
}
