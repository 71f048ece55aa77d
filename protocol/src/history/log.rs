//! The log of a peer: what it must have on disk before it goes on (R1, R13, R16, R19–R21).
//!
//! A machine changes its votes only by a [`Record`] that it also hands out, so votes are a fold over
//! records: whoever folds the records that a disk still has is bound as before (R20). The caller
//! appends each record in the order in which it came out, and flushes it before it applies the first
//! later output that leaves the machine.
//!
//! | record | before |
//! |---|---|
//! | `Promised` | `Query(k)`, `Status(k)` |
//! | `Accepted` | `Accept` |
//! | `Prepared` | `Prepared`; the update's bytes are flushed already |
//! | `Voted` | `Done(r)`; the update's bytes are flushed already |
//! | `Joined` | `Join` |
//! | `Opened` | anything in the series that a Regroup opens |
//! | `Left` | `Leaving`, where it closes the series |
//! | `Decided` | `Commit` |
//! | `Committed`, `Rewound` | a heartbeat with that head, anything of the epoch after it |
//! | `Marked` | nothing |
//!
//! The last four are of the lineage ([`Record::is_of_lineage`]), the others are votes; a log of each
//! kind is whole by itself. What this does not do: files, flushing, torn tails.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Serialize};

use crate::base::id::{Digest, RunId};
use crate::message::wire;
use crate::message::{Head, Link, Opening, Receipt, Regroup, Roster, Series, Voted};

/// What a peer must have on disk before it goes on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Record {
    /// Nothing below this attempt is accepted or voted for any more (R2).
    Promised {
        /// The series.
        series: Series,
        /// The attempt.
        attempt: u64,
    },
    /// The roster accepted at its attempt, which is promised by that (R3).
    Accepted {
        /// Its body.
        roster: Box<Roster>,
    },
    /// A vote on a roster that was accepted, and its ground (R5).
    Voted {
        /// The vote.
        voted: Box<Voted>,
    },
    /// A Regroup joined: its series, and those that this one descends from, are left for ever (R13).
    Joined {
        /// Its body.
        regroup: Regroup,
        /// The highest vote that went along.
        done: Option<Box<Voted>>,
    },
    /// The series of a Regroup is entered; the one before is left for ever, also by who had no vote.
    Opened {
        /// The Regroup with all its Joins.
        opening: Opening,
    },
    /// A goodbye that others may go on without us after: the series is left for ever (R29).
    Left {
        /// The series.
        series: Series,
    },
    /// An epoch is decided: its receipt, certificate and Regroups. The update is on disk.
    Decided {
        /// All that proves it.
        link: Box<Link>,
    },
    /// The epoch that was decided last is committed.
    Committed {
        /// The new head.
        head: Head,
    },
    /// The head was at this epoch at that time: now and then, so that a restart does not forget how old is what
    /// a greater head undoes (G11).
    Marked {
        /// The epoch.
        epoch: u64,
        /// Seconds since 1970.
        unix: u64,
    },
    /// What lies beyond this epoch is given up for a greater head (R23), once its last epoch is
    /// committed: a log that ends before says that nothing was given up.
    Rewound {
        /// The last epoch that stays.
        epoch: u64,
        /// The greater head.
        to: Head,
    },
    /// The value of a free roster that was accepted, of which we have said that we hold it (R5).
    Prepared {
        /// The series.
        series: Series,
        /// The attempt of the roster.
        attempt: u64,
        /// BLAKE3 of the update's bytes.
        update: Digest,
    },
}

impl Record {
    /// Its bytes, at most [`wire::RECORD_BYTES_MAX`].
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        wire::canonical(self)
    }

    /// Reads one; `None` if the bytes are not the canonical form of any.
    #[must_use]
    pub fn open(bytes: &[u8]) -> Option<Self> {
        wire::open_record(bytes)
    }

    /// Whether it is of the lineage, and not a vote.
    #[must_use]
    pub fn is_of_lineage(&self) -> bool {
        match self {
            Self::Decided { .. }
            | Self::Committed { .. }
            | Self::Marked { .. }
            | Self::Rewound { .. } => true,
            Self::Promised { .. }
            | Self::Accepted { .. }
            | Self::Voted { .. }
            | Self::Joined { .. }
            | Self::Opened { .. }
            | Self::Left { .. }
            | Self::Prepared { .. } => false,
        }
    }
}

/// When our head was at an epoch, by the wall clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// The epoch.
    pub epoch: u64,
    /// Seconds since 1970.
    pub unix: u64,
}

/// What a restarted peer still has.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    /// The epochs up to the head of the restored state, from the first one on ([`lineage`]).
    pub lineage: Vec<(Head, Link)>,
    /// When its head was where, the oldest first ([`marks`]).
    pub marks: Vec<Mark>,
    /// Every record of its votes, in order, of epochs beyond that head too.
    pub votes: Vec<Record>,
}

/// The epochs that `records` commit after `genesis`. A record that does not follow on those before
/// it is left out: then the log is damaged, and the rest is fetched from others.
#[must_use]
pub fn lineage(genesis: Head, records: impl IntoIterator<Item = Record>) -> Vec<(Head, Link)> {
    let mut lineage: Vec<(Head, Link)> = Vec::new();
    let mut decided = None;
    // The lineage that is being given up, and for which head.
    let mut leaving: Option<(Vec<(Head, Link)>, Head)> = None;
    for record in records {
        match record {
            Record::Decided { link } => decided = Some(link),
            Record::Committed { head } => {
                let Some(link) = decided.take() else { continue };
                if !follows(genesis, &lineage, &head, &link.receipt)
                    && let Some((stayed_on, _)) = leaving.take()
                {
                    lineage = stayed_on;
                }
                if follows(genesis, &lineage, &head, &link.receipt) {
                    lineage.truncate(place(head.epoch.saturating_sub(1)));
                    lineage.push((head, *link));
                }
                leaving = leaving.filter(|(_, to)| *to != head);
            }
            Record::Rewound { epoch, to } => {
                let before = leaving.take().map_or(lineage, |(stayed_on, _)| stayed_on);
                lineage = before.iter().take(place(epoch)).cloned().collect();
                leaving = Some((before, to));
            }
            Record::Promised { .. }
            | Record::Accepted { .. }
            | Record::Voted { .. }
            | Record::Joined { .. }
            | Record::Opened { .. }
            | Record::Left { .. }
            | Record::Prepared { .. }
            | Record::Marked { .. } => {}
        }
    }
    leaving.map_or(lineage, |(stayed_on, _)| stayed_on)
}

/// The newest marks of a log on the lineage that it ends with, at most [`MARKS_MAX`]. Those beyond an epoch that
/// was gone back to are left out, also where the log does not tell that the other lineage was reached.
#[must_use]
pub fn marks<'a>(records: impl IntoIterator<Item = &'a Record>) -> Vec<Mark> {
    let mut marks: VecDeque<Mark> = VecDeque::new();
    for record in records {
        if let Record::Marked { epoch, unix } = *record {
            marks.push_back(Mark { epoch, unix });
            marks.drain(..marks.len().saturating_sub(MARKS_MAX));
        } else if let Record::Rewound { epoch, .. } = record {
            marks.retain(|mark| mark.epoch <= *epoch);
        }
    }
    marks.into()
}

/// Marks that a log is asked for: those of a day, at the shortest interval between two.
pub const MARKS_MAX: usize = 24 * 60 * 60 / 10;

/// Whether a receipt leads from an epoch of the lineage to `head`.
fn follows(genesis: Head, lineage: &[(Head, Link)], head: &Head, receipt: &Receipt) -> bool {
    let before = match head.epoch.checked_sub(2) {
        Some(index) => lineage.get(place(index)).map(|(head, _)| *head),
        None => Some(genesis),
    };
    let leads = |before: Head| {
        receipt.series.is_beside(&Series::after(&before))
            && head.epoch == receipt.series.epoch
            && head.tokens == before.tokens.saturating_add(receipt.tokens())
    };
    before.is_some_and(leads)
}

fn place(epoch: u64) -> usize {
    usize::try_from(epoch).unwrap_or(usize::MAX)
}

/// R19: the first update that `votes` vote for in an epoch beyond `epoch` and that is not `readable`.
/// Where there is one, the log counts as lost: it is never written again, and its owner creates another.
#[must_use]
pub fn unreadable(votes: &[Record], epoch: u64, readable: &BTreeSet<Digest>) -> Option<Digest> {
    let voted = votes.iter().filter_map(|record| match record {
        Record::Voted { voted } if voted.roster.series.epoch > epoch => Some(voted.update),
        _ => None,
    });
    voted.filter(|update| !readable.contains(update)).min()
}

/// What binds a voter, per series (R1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Votes(BTreeMap<Series, Bound>);

/// What binds a voter in one series.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    promised: u64,
    closed: bool,
    left: bool,
    accepted: BTreeMap<u64, (Digest, Arc<Roster>)>,
    prepared: BTreeMap<u64, Digest>,
    dones: BTreeMap<u64, Voted>,
    joined: Option<Joined>,
    opened: Option<Opening>,
}

/// A Regroup that binds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// Its digest.
    pub digest: Digest,
    /// Its body.
    pub regroup: Regroup,
    /// The highest vote that went along.
    pub done: Option<Voted>,
}

/// What binds in a series of which the log says nothing.
static UNBOUND: LazyLock<Bound> = LazyLock::new(Bound::default);

impl Votes {
    /// The votes that `records` tell of, in order.
    #[must_use]
    pub fn replay<'a>(run: &RunId, records: impl IntoIterator<Item = &'a Record>) -> Self {
        let mut votes = Self::default();
        records.into_iter().for_each(|record| votes.append(run, record));
        votes
    }

    /// What binds in `series`.
    #[must_use]
    pub fn of(&self, series: Series) -> &Bound {
        self.0.get(&series).unwrap_or(&UNBOUND)
    }

    /// Takes one record; those of the lineage bind nobody.
    pub fn append(&mut self, run: &RunId, record: &Record) {
        match record {
            Record::Promised { series, attempt } => {
                let bound = self.of_mut(*series);
                bound.promised = bound.promised.max(*attempt);
            }
            Record::Accepted { roster } => {
                let digest = wire::roster_digest(run, roster);
                let bound = self.of_mut(roster.series);
                bound.promised = bound.promised.max(roster.attempt);
                bound.accepted.insert(roster.attempt, (digest, Arc::new(*roster.clone())));
            }
            Record::Voted { voted } => {
                let Roster { series, attempt, .. } = voted.roster;
                self.of_mut(series).dones.insert(attempt, voted.as_ref().clone());
            }
            Record::Prepared { series, attempt, update } => {
                self.of_mut(*series).prepared.insert(*attempt, *update);
            }
            Record::Joined { regroup, done } => {
                self.close(regroup.series);
                let digest = wire::regroup_digest(run, regroup);
                let joined =
                    Joined { digest, regroup: regroup.clone(), done: done.as_deref().cloned() };
                self.of_mut(regroup.series).joined = Some(joined);
            }
            Record::Opened { opening } => {
                self.close(opening.regroup.series);
                self.of_mut(opening.regroup.series).opened = Some(opening.clone());
            }
            Record::Left { series } => {
                self.close(*series);
                self.of_mut(*series).left = true;
            }
            Record::Decided { .. }
            | Record::Committed { .. }
            | Record::Marked { .. }
            | Record::Rewound { .. } => {}
        }
    }

    /// Forgets what lies up to `epoch`.
    pub fn forget(&mut self, epoch: u64) {
        self.0.retain(|series, _| series.epoch > epoch);
    }

    /// R13: a promise of infinity, in `series` and in those that it descends from.
    fn close(&mut self, series: Series) {
        self.of_mut(series).closed = true;
        // Each series of this epoch and parent that led to another one is left: the one before too.
        let beside = self.0.iter_mut().filter(|(other, _)| other.is_beside(&series));
        beside.filter(|(_, bound)| bound.opened.is_some()).for_each(|(_, b)| b.closed = true);
    }

    fn of_mut(&mut self, series: Series) -> &mut Bound {
        self.0.entry(series).or_default()
    }
}

impl Bound {
    /// Nothing below this attempt is accepted or voted for any more; infinity after a Join.
    #[must_use]
    pub fn promised(&self) -> u64 {
        if self.closed { u64::MAX } else { self.promised }
    }

    /// The highest attempt promised before a Join closed the series.
    #[must_use]
    pub fn attempt(&self) -> u64 {
        self.promised
    }

    /// The roster accepted at an attempt.
    #[must_use]
    pub fn accepted(&self, attempt: u64) -> Option<Digest> {
        self.accepted.get(&attempt).map(|(digest, _)| *digest)
    }

    /// Every roster accepted, by attempt.
    pub fn rosters(&self) -> impl Iterator<Item = (Digest, &Arc<Roster>)> {
        self.accepted.values().map(|(digest, roster)| (*digest, roster))
    }

    /// The update that we have said to hold at an attempt.
    #[must_use]
    pub fn prepared(&self, attempt: u64) -> Option<Digest> {
        self.prepared.get(&attempt).copied()
    }

    /// The vote at an attempt.
    #[must_use]
    pub fn done(&self, attempt: u64) -> Option<&Voted> {
        self.dones.get(&attempt)
    }

    /// Every vote, by attempt.
    pub fn dones(&self) -> impl DoubleEndedIterator<Item = &Voted> {
        self.dones.values()
    }

    /// Whether a goodbye of ours has closed it.
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.left
    }

    /// The last Regroup joined.
    #[must_use]
    pub fn joined(&self) -> Option<&Joined> {
        self.joined.as_ref()
    }

    /// The Regroup whose series was entered from here.
    #[must_use]
    pub fn opened(&self) -> Option<&Opening> {
        self.opened.as_ref()
    }
}

#[cfg(test)]
mod tests;
