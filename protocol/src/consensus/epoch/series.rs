//! The state that lives as long as one series of an epoch: a Regroup that opens creates it anew.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::base::id::{Digest, PeerId};
use crate::base::sign::{Signature, Verified};
use crate::base::time::Time;
use crate::machine::event::Progress;
use crate::machine::table::PeerRecord;
use crate::machine::wait::Obstacle;
use crate::message::{Heard, Link, Message, Report, Series, Status, Voter};

use super::gathering::Gathering;
use super::ground::Grounds;

/// What is known of the open series.
#[derive(Clone, Debug)]
pub(super) struct SeriesState {
    /// The name of the series, which every message of it carries.
    pub(super) name: Series,
    /// The voters of this series. The first one decides a tie.
    pub(super) voters: Vec<Voter>,
    /// When we entered it. Silence counts from here, so that a series begins with a whole grace. It
    /// is set anew when the process was suspended.
    pub(super) entered: Time,
    /// How far its attempts, the Regroup that we joined, or its decision are.
    pub(super) stage: Stage,
    /// The voters in the order in which attempts belong to them (R38).
    pub(super) turns: OnceLock<Vec<PeerId>>,
    /// The highest attempt, from the second on, that each voter has named in this series (R38).
    pub(super) reached: BTreeMap<PeerId, u64>,
    /// The attempts for which voters have asked, and got no answer from us yet.
    pub(super) queries: BTreeMap<PeerId, u64>,
    /// Our Query for the next attempt, while its answers are awaited.
    pub(super) asking: Option<Asking>,
    /// Until when voters may wait for the Accepts of the roster that we gave up last. They come to
    /// the next attempt only then.
    pub(super) bound_until: Time,
    /// The highest attempt for which each voter gave a Status.
    pub(super) answered: BTreeMap<PeerId, u64>,
    /// The Regroups of this series that we know.
    pub(super) gathering: Gathering,
    /// When every awaited peer was Ready, or the grace had passed; turns count from here.
    pub(super) turn_since: Option<Time>,
    /// The values that we have adopted, by update, with the peers that voted for them (R8).
    pub(super) adopted: BTreeMap<Digest, Adopted>,
    /// The peers that refuse everything in this series, since they have joined a Regroup of it
    /// (R13).
    pub(super) closed: BTreeSet<PeerId>,
    /// When each peer's message of each kind was last answered.
    pub(super) replied: BTreeMap<(PeerId, Reply), Time>,
    /// The update that is being fetched, and how many peers were named that have it.
    pub(super) fetching: Option<(Digest, usize)>,
    /// No other update is fetched before this: a fetch that failed waits for one repeat interval.
    pub(super) fetch_after: Time,
    /// When messages that may be lost are sent again to the peers whose answer is missing.
    pub(super) repeat_at: Time,
    /// Whether the event `stuck` was raised in this series: once is enough (R39).
    pub(super) stuck_reported: bool,
}

/// A message is repeated, and a repeated one is answered, at most this often.
pub(super) const REPEAT_MIN: Duration = Duration::from_millis(300);

/// The kinds of message that we answer when they are repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reply {
    Query,
    Roster,
    Accept,
    Prepared,
    Done,
    Join,
}

/// How far the series is. Each variant holds the data that exists in that stage.
#[derive(Clone, Debug)]
pub(super) enum Stage {
    /// No roster is accepted yet. Once rosters were seen that leave us out, or that we refuse,
    /// `left_out` has when to ask, and why the last one does.
    Idle { left_out: Option<(Time, Obstacle)> },
    /// An attempt is under way: its roster is accepted. `until` ends its present progress.
    Open { roster: Digest, progress: Progress, until: Time },
    /// We have come to an attempt, and wait until `until` for its roster; for other voters to come
    /// to it, without a limit (R37).
    Recover { attempt: u64, until: Option<Time> },
    /// Bound to a Regroup that has not opened.
    Joined { regroup: Digest, until: Time },
    /// A certificate is in hand, and the update may still be on its way.
    Decided(Box<Decided>),
    /// The caller takes the outer step.
    Applying(Box<Decided>),
}

/// Our Query to the voters before an attempt (R7), with the answers so far.
#[derive(Clone, Debug)]
pub(super) struct Asking {
    /// The attempt that we own and ask for.
    pub(super) attempt: u64,
    /// When we go on with the answers that have come by then.
    pub(super) until: Time,
    /// Whether this is after T_ask, since too few have answered: then a majority is enough.
    pub(super) late: bool,
    /// What each peer has answered, with its signature. Those of peers without a vote come in only
    /// while there is room: at most as many as a roster has members.
    pub(super) statuses: BTreeMap<PeerId, (Status, Signature)>,
    /// The Reports that go with the Statuses.
    pub(super) reports: BTreeMap<PeerId, Report>,
    /// The Query as it was sent, to be repeated to peers that are silent.
    pub(super) query: Arc<Verified<Message>>,
}

/// A value that we have chosen to adopt.
#[derive(Clone, Debug, Default)]
pub(super) struct Adopted {
    /// The peers that said in a Status that they voted for it.
    pub(super) from: BTreeSet<PeerId>,
    /// Whether a roster that adopts it ended without its bytes.
    pub(super) missed: bool,
}

/// A decided epoch, before and while its outer step is taken.
#[derive(Clone, Debug)]
pub(super) struct Decided {
    /// What the next epoch is proven by: receipt, certificate and Regroups.
    pub(super) link: Link,
    /// Digest of the roster in its certificate.
    pub(super) roster: Digest,
    /// Until when the Dones of other holders are awaited (R17).
    pub(super) until: Time,
    /// Until when our own ring may still give the update.
    pub(super) ring_until: Time,
    /// Since when it is decided here. Without the bytes, and without a fetch from a live voter, it
    /// is given up after one grace (R25).
    pub(super) since: Time,
    /// Whether another peer's `Commit` or link decided it. Only a peer that counted the votes
    /// itself gossips a `Commit` (R16).
    pub(super) by_commit: bool,
}

impl Stage {
    /// Whether attempts go on: nothing is decided, and no Regroup is joined.
    pub(super) fn is_undecided(&self) -> bool {
        matches!(self, Self::Idle { .. } | Self::Open { .. } | Self::Recover { .. })
    }
}

impl Asking {
    /// The Status of a peer, once the vote that it names is proven to us (R8).
    pub(super) fn status(&self, grounds: &Grounds, peer: &PeerId) -> Option<&Status> {
        let (status, _) = self.statuses.get(peer)?;
        status.done.is_none_or(|vote| grounds.knows(&vote)).then_some(status)
    }

    /// What a roster shows of a voter's Status (G14).
    pub(super) fn heard(&self, grounds: &Grounds, voter: &Voter) -> Option<Heard> {
        let Status { log, done, holds_forced, .. } = *self.status(grounds, &voter.peer)?;
        let (_, signature) = *self.statuses.get(&voter.peer)?;
        (log == voter.log).then_some(Heard { voter: *voter, done, holds_forced, signature })
    }
}

impl SeriesState {
    /// A series that is entered at this moment: nothing of an earlier one is carried over.
    pub(super) fn new(now: Time, series: Series, voters: Vec<Voter>) -> Self {
        Self {
            name: series,
            voters,
            entered: now,
            stage: Stage::Idle { left_out: None },
            turns: OnceLock::new(),
            reached: BTreeMap::new(),
            queries: BTreeMap::new(),
            asking: None,
            bound_until: now,
            answered: BTreeMap::new(),
            gathering: Gathering::default(),
            turn_since: None,
            adopted: BTreeMap::new(),
            closed: BTreeSet::new(),
            replied: BTreeMap::new(),
            fetching: None,
            fetch_after: now,
            repeat_at: now,
            stuck_reported: false,
        }
    }

    /// Whether the attempt of `roster` is under way, and has made exactly this progress.
    pub(super) fn is_at(&self, roster: Digest, progress: Progress) -> bool {
        matches!(self.stage, Stage::Open { roster: open, progress: at, .. } if (open, at) == (roster, progress))
    }

    /// The epoch's decision, once there is one.
    pub(super) fn decided(&self) -> Option<&Link> {
        let (Stage::Decided(decided) | Stage::Applying(decided)) = &self.stage else { return None };
        Some(&decided.link)
    }

    /// R38: a voter has come to this attempt, by a message of its own.
    pub(super) fn note_reached(&mut self, voter: PeerId, attempt: u64) {
        if attempt > 1 && self.names_voter(&voter) {
            let reached = self.reached.entry(voter).or_default();
            *reached = attempt.max(*reached);
        }
    }

    /// Whether a repeated message may be answered to `peer` now: once per [`REPEAT_MIN`], so that
    /// two peers that answer each other do so slowly.
    pub(super) fn may_reply(&mut self, now: Time, peer: PeerId, to: Reply) -> bool {
        let due = self.replied.get(&(peer, to)).is_none_or(|last| now >= *last + REPEAT_MIN);
        if due {
            self.replied.insert((peer, to), now);
        }
        due
    }

    /// Whether a voter of the series has this key, with whatever log.
    pub(super) fn names_voter(&self, peer: &PeerId) -> bool {
        self.voters.iter().any(|voter| voter.peer == *peer)
    }

    /// Whether a peer has left this series for good (R13, R29): its heartbeat says so, or it
    /// refused something with the highest promise there is.
    pub(super) fn has_closed(&self, seen: &PeerRecord, who: &Voter) -> bool {
        seen.beat.joined.is_some() || seen.beat.closed || self.closed.contains(&who.peer)
    }
}
