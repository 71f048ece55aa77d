//! One epoch: a slot of the replicated log, decided by ballots among its voters.
//!
//! A roster is a Paxos ballot (Lamport 1998) whose value a ring computes; a voter that holds the
//! value votes with `Done`, and Dones from a majority decide. Who has no majority left signs a
//! Regroup and goes on as the voters of a new series. The rules are R1–R18, R22, R29–R31 and
//! R34–R39 of `docs/PROTOCOL.md`; a comment names the rule where it is kept.
//!
//! ```text
//! Idle (Train, Ready) → Accepted → Reduce → Finished → Decided → Applying → Idle of the next epoch
//!        └──────── any of the first four ────────┘ → Recover → Accepted …      (a higher attempt)
//!                                                   → Joined → Idle            (a Regroup)
//! ```
//!
//! The machine is level-triggered: an input only records what it says, then `advance` takes every
//! step whose condition now holds. So no order of messages can leave a state without a way on, and
//! a repeated message does what the first one would have done.
//!
//! Invariants S1, S2, S5, S7 (`docs/PROTOCOL.md`). What this does not do: bytes of updates, heads
//! and forks (`sync`), who is alive (`view`).

mod interface;
mod gate;
mod enter;
mod ready;
mod standing;
mod vote;
mod propose;
mod recover;
mod regroup;
mod commit;
mod keep;
mod leave;
mod loss;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::id::{Digest, PeerId};
use crate::lineage::Law;
use crate::log::Votes;
use crate::message::{Head, Message, Opening, Roster, Series, Status, Voted, Voter};
use crate::roll::Roll;
use crate::sign::{Signature, Verified};
use crate::time::Time;
use crate::wire;

pub use crate::rule::Rule;
pub use interface::{Apply, Config, Input, Kept, Output, Ring};

use commit::{Decided, Held};
use keep::Remains;
use loss::Losses;
use propose::Adopted;
use ready::Frozen;
use regroup::Gathering;

/// Rosters remembered of one epoch: honest peers make one per attempt and proposer.
const BALLOTS_MAX: usize = 512;

/// Rosters that are known only from votes on them.
const UNKNOWN_MAX: usize = 128;

/// Messages kept for a series that we have not entered yet: of all authors, of each, and the bytes of
/// one, as many as can be gossiped.
const EARLY_MAX: usize = 1_024;
const EARLY_OF_ONE_MAX: usize = 16;
const EARLY_BYTES_MAX: usize = 64 << 10;

#[derive(Clone, Debug)]
enum Stage {
    /// No roster yet. `patience`: when to ask, after rosters were seen that leave us out.
    Idle { patience: Option<Time> },
    /// A roster is accepted; the other Accepts are awaited.
    Accepted { roster: Digest, until: Time },
    /// The update is being computed or fetched.
    Reduce { roster: Digest, until: Time },
    /// The update is held, the certificate awaited.
    Finished { roster: Digest, until: Time },
    /// The next attempt is due, by whose turn comes first after `since`.
    Recover { attempt: u32, since: Time },
    /// Bound to a Regroup that has not opened.
    Joined { regroup: Digest, until: Time },
    /// A certificate is in hand.
    Decided(Box<Decided>),
    /// The outer step runs.
    Applying(Box<Decided>),
}

/// A roster, as far as it is known.
#[derive(Clone, Debug, Default)]
struct Ballot {
    roster: Option<Arc<Roster>>,
    /// As its proposer signed it, to pass on.
    signed: Option<Arc<Verified<Message>>>,
    accepts: BTreeSet<PeerId>,
    dones: BTreeMap<PeerId, Vote>,
    ring: RingState,
    /// The update that our own ring gave.
    computed: Option<Digest>,
}

#[derive(Clone, Copy, Debug)]
struct Vote {
    r: Digest,
    update: Digest,
    signature: Signature,
}

impl Ballot {
    /// The value that most have voted for. One roster has one value (R11): with honest voters, all.
    fn value(&self) -> Option<Vote> {
        let first = self.dones.values().next()?;
        let count = |vote: &Vote| self.dones.values().filter(|other| other.r == vote.r).count();
        if count(first) == self.dones.len() {
            return Some(*first);
        }
        self.dones.values().max_by_key(|vote| (count(vote), vote.r)).copied()
    }

    /// Whether `peer` has voted for `r`.
    fn has_voted(&self, peer: &PeerId, r: Digest) -> bool {
        self.dones.get(peer).is_some_and(|vote| vote.r == r)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum RingState {
    #[default]
    Closed,
    Running,
    Lost,
}

/// A question to the voters before an attempt (R7).
#[derive(Clone, Debug)]
struct Asking {
    attempt: u32,
    until: Time,
    statuses: BTreeMap<PeerId, Status>,
    query: Arc<Verified<Message>>,
}

/// The machine.
#[derive(Clone, Debug)]
pub struct State {
    config: Config,
    head: Head,
    /// The voters that the last receipt names.
    base: Vec<Voter>,
    series: Series,
    voters: Vec<Voter>,
    openings: Vec<Opening>,
    /// The series of this epoch that we have been in, ours last.
    chain: Vec<Series>,
    forced: Option<Voted>,
    /// When this series was entered, and when the epoch was.
    entered: Time,
    began: Time,
    /// When the last input came.
    awake: Time,

    stage: Stage,
    frozen: Option<Frozen>,
    votes: Votes,
    ballots: BTreeMap<Digest, Ballot>,
    /// Highest attempt seen from anyone.
    attempt_seen: u32,
    asking: Option<Asking>,
    gathering: Gathering,
    /// When everyone was Ready, or the grace had passed: turns count from here.
    turn_since: Option<Time>,

    /// Who is Ready, with which incarnation and weight (R31).
    ready: BTreeMap<PeerId, (u64, u64)>,
    ready_after: Vec<Duration>,
    ready_median: Option<Duration>,
    /// The greatest weight that a Ready may declare.
    weight_max: u64,
    /// Ring neighbours reported lost.
    lost: Losses,
    /// Pairs whose link is broken although both live (R35).
    broken: BTreeSet<(PeerId, PeerId)>,
    /// Rings of this epoch that did not end in time although nobody was lost (R40).
    stalled: u32,
    /// The values that we have adopted, by update, and whose votes they were (R8).
    adopted: BTreeMap<Digest, Adopted>,
    /// Who refuses for ever, having joined a Regroup of this series (R13).
    closed: BTreeSet<PeerId>,
    /// Decided values whose bytes nobody serves (R25).
    unserved: BTreeSet<Digest>,
    /// The roster that somebody else's `Commit` decided for us.
    commit_heard: Option<Digest>,

    held: Held,
    remains: Remains,
    fetching: Option<Digest>,
    fetch_after: Time,
    repeat_at: Time,
    replied: BTreeMap<(PeerId, u8), Time>,
    early: VecDeque<Arc<Verified<Message>>>,
    behind: bool,
    /// Somebody has a greater head, and may lead us there: no time for a Regroup (R12).
    ahead: bool,
    leaving: Option<Time>,
    left: bool,
    stuck_told: bool,
}

impl State {
    /// At `head`, whose next epoch `voters` decide.
    #[must_use]
    pub fn new(now: Time, config: Config, head: Head, voters: Vec<Voter>) -> Self {
        Self {
            weight_max: config.weight_max,
            config,
            head,
            series: Series::after(&head),
            base: voters.clone(),
            voters,
            openings: Vec::new(),
            chain: vec![Series::after(&head)],
            forced: None,
            entered: now,
            began: now,
            awake: now,
            stage: Stage::Idle { patience: None },
            frozen: None,
            votes: Votes::default(),
            ballots: BTreeMap::new(),
            attempt_seen: 0,
            asking: None,
            gathering: Gathering::default(),
            turn_since: None,
            ready: BTreeMap::new(),
            ready_after: Vec::new(),
            ready_median: None,
            lost: Losses::default(),
            broken: BTreeSet::new(),
            stalled: 0,
            adopted: BTreeMap::new(),
            closed: BTreeSet::new(),
            unserved: BTreeSet::new(),
            commit_heard: None,
            held: Held::default(),
            remains: Remains::default(),
            fetching: None,
            fetch_after: now,
            repeat_at: now,
            replied: BTreeMap::new(),
            early: VecDeque::new(),
            behind: false,
            ahead: false,
            leaving: None,
            left: false,
            stuck_told: false,
        }
    }

    /// Takes one input, then every step whose condition holds.
    pub fn handle(&mut self, now: Time, roll: &Roll, input: Input, out: &mut Vec<Output>) {
        if self.left {
            return;
        }
        self.wake(now, roll);
        match input {
            Input::Tick => {}
            Input::Heard(peer) => self.learn_ready(now, roll, peer),
            Input::Message(message) => self.on_message(now, roll, &message, out),
            Input::Trained { tokens, norm } => self.on_trained(now, tokens, norm, out),
            Input::RingFinished { roster, update } => self.on_ring_finished(roster, update),
            Input::RingLost { roster, neighbour } => {
                self.on_ring_lost(now, roll, roster, neighbour, out);
            }
            Input::ChunkHeld(finished) => self.remains.hold(finished),
            Input::ChunkMissing(ring, chunk) => self.on_chunk_missing(now, ring, chunk, out),
            Input::ChunksGone(roster) => self.remains.lose(roster),
            Input::UpdateHeld(update, kept) => self.on_update_held(update, kept),
            Input::UpdateMissing(update) => self.on_update_missing(now, roll, update),
            Input::Applied(state) => self.on_applied(now, roll, state, out),
            Input::Link(from, link) => self.on_link(now, roll, from, *link, out),
            Input::Openings(from, openings) => self.on_openings(now, roll, from, &openings, out),
            Input::Behind(behind) => {
                self.behind = behind;
                // The state must not move by two ways at once, also where it was to move already.
                if behind && (self.under_way() || matches!(self.stage, Stage::Decided(_))) {
                    self.recover(now, "behind", out);
                }
            }
            Input::Ahead(ahead) => self.ahead = ahead,
            Input::Enter { head, voters, median } => {
                self.limit_weight(median);
                // Not before: between the old epoch and the new head nothing may move.
                self.behind = false;
                self.drop_frozen(out);
                self.enter(now, roll, head, voters, out);
            }
            Input::Leave => self.on_leave(now),
        }
        self.advance(now, roll, out);
    }

    /// R12: who was stopped for a while has heard nobody, and has learnt nothing from that.
    fn wake(&mut self, now: Time, roll: &Roll) {
        if now.since(self.awake) > 4 * roll.heartbeat {
            self.entered = now;
        }
        self.awake = now;
    }

    /// When a condition can change without an input.
    #[must_use]
    pub fn deadline(&self, now: Time, roll: &Roll) -> Option<Time> {
        self.timers(now, roll).into_iter().flatten().filter(|at| *at > now).min()
    }

    fn advance(&mut self, now: Time, roll: &Roll, out: &mut Vec<Output>) {
        // Each step leaves its condition false; the bound is many times the longest chain of them.
        for _ in 0..64 {
            let moved = self.leave(now, out)
                || self.settle(now, roll, out)
                || self.decide(now, roll)
                || self.conclude(now, roll, out)
                || self.time_out(now, out)
                || self.finish_asking(now, roll, out)
                || self.ask(now, roll, out)
                || self.propose_first(now, roll, out)
                || self.regroup(now, roll, out)
                || self.open_joined(now, roll, out);
            if !moved {
                break;
            }
        }
        self.repeat(now, roll, out);
    }

    fn on_message(
        &mut self,
        now: Time,
        roll: &Roll,
        message: &Arc<Verified<Message>>,
        out: &mut Vec<Output>,
    ) {
        let Some(series) = message.body().series() else { return };
        let commit = matches!(message.body(), Message::Commit(_) | Message::Ready(_));
        if series != self.series && !(commit && series.is_beside(&self.series)) {
            self.keep_early(series, message);
            return;
        }
        let from = message.author();
        if !self.is_possible(message.body(), from, out)
            || !self.has_say(roll, &from, message.body())
        {
            return;
        }
        match message.body() {
            Message::Ready(ready) => self.on_ready(now, from, ready, out),
            Message::Query(query) => self.on_query(now, roll, from, query, out),
            Message::Status(status) => self.on_status(from, status, out),
            Message::Roster(roster) => self.on_roster(now, roll, message, roster, out),
            Message::Accept(accept) => self.on_accept(now, from, accept, out),
            Message::Refuse(refuse) => self.on_refuse(now, from, refuse, out),
            Message::Lost(lost) => self.on_lost(now, roll, from, lost, out),
            Message::Done(done) => self.on_done(now, message, done, out),
            Message::Commit(commit) => self.on_commit(now, roll, from, commit, out),
            Message::Regroup(regroup) => self.on_regroup(now, roll, message, regroup, out),
            Message::Join(join) => self.on_join(now, message, join, out),
            Message::Heartbeat(_) | Message::Leaving(_) => {}
        }
    }

    /// Keeps what belongs to a series that we may enter soon.
    fn keep_early(&mut self, series: Series, message: &Arc<Verified<Message>>) {
        let next = series.epoch == self.series.epoch.saturating_add(1);
        let beside = series.is_beside(&self.series) && series.regroup.is_some();
        let same = |m: &&Arc<Verified<Message>>| m.author() == message.author();
        if (next || beside)
            && self.early.len() < EARLY_MAX
            && self.early.iter().filter(same).count() < EARLY_OF_ONE_MAX
            && wire::envelope(message).len() <= EARLY_BYTES_MAX
        {
            self.early.push_back(Arc::clone(message));
        }
    }

    fn roster(&self, digest: &Digest) -> Option<&Arc<Roster>> {
        self.ballots.get(digest).and_then(|ballot| ballot.roster.as_ref())
    }

    /// The ballot of a roster. Where there is no room, one of the lowest attempt gives way that binds
    /// nobody here.
    fn ballot(&mut self, digest: Digest) -> &mut Ballot {
        if self.ballots.len() >= BALLOTS_MAX && !self.ballots.contains_key(&digest) {
            let me = self.config.me;
            let binds = |b: &Ballot| b.accepts.contains(&me) || b.dones.contains_key(&me);
            let attempt = |b: &Ballot| b.roster.as_ref().map_or(0, |roster| roster.attempt);
            let free = self.ballots.iter().filter(|(_, ballot)| !binds(ballot));
            let lowest = free.min_by_key(|(_, ballot)| attempt(ballot)).map(|(digest, _)| *digest);
            lowest.and_then(|lowest| self.ballots.remove(&lowest));
        }
        self.ballots.entry(digest).or_default()
    }

    /// The ballot that somebody votes on, if its roster is known, or there is room to wait for it.
    fn ballot_voted_on(&mut self, digest: Digest) -> Option<&mut Ballot> {
        let unknown = |ballot: &&Ballot| ballot.roster.is_none();
        let room = || self.ballots.values().filter(unknown).count() < UNKNOWN_MAX;
        (self.ballots.contains_key(&digest) || room()).then(|| self.ballot(digest))
    }

    fn is_voter(&self) -> bool {
        self.voters.contains(&self.as_voter())
    }

    fn as_voter(&self) -> Voter {
        Voter { peer: self.config.me, log: self.config.log }
    }

    fn keeps(&self, rule: Rule) -> bool {
        self.config.without != Some(rule)
    }

    fn seal(&self, message: Message) -> Arc<Verified<Message>> {
        let Law { key, run, .. } = &self.config.law;
        Arc::new(wire::seal(key, run, message))
    }

    /// Whether `kind` may be answered to `peer` now: once per repeat interval, so that two peers
    /// that answer each other do so slowly.
    fn may_reply(&mut self, now: Time, peer: PeerId, kind: u8) -> bool {
        let due = self.replied.get(&(peer, kind)).is_none_or(|last| now >= *last + REPEAT_MIN);
        if due {
            self.replied.insert((peer, kind), now);
        }
        due
    }
}

/// The shortest interval between repeats.
const REPEAT_MIN: Duration = Duration::from_millis(300);
