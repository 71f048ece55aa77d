//! The log of a peer: what must be on disk before it goes on (R1, R13, R16, R19–R21).
//!
//! A machine changes its votes only by a [`Record`] that it also hands out, so votes are a fold
//! over records: a peer that folds the records on its disk is bound as before (R20). The caller
//! appends each record in the order in which it came out, and flushes it before it carries out the
//! first later output that leaves the machine.
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
//! The last four are of the lineage ([`Record::is_of_lineage`]), the others are votes; a log of
//! each kind is complete by itself. What this does not do: files, flushing, torn tails.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Serialize};

use crate::base::id::{Digest, RunId};
use crate::message::{Head, Link, Opening, Receipt, Regroup, Roster, Series, Voted, wire};

/// What must be on disk before the peer goes on. The position of a variant is its number in the
/// log, so a new one comes last.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Record {
    /// A promise: nothing below this attempt is accepted or voted for any more (R2).
    Promised {
        /// The series in which it binds.
        series: Series,
        /// The lowest attempt that is still allowed.
        attempt: u64,
    },
    /// The roster accepted at its attempt, which also promises that attempt (R3).
    Accepted {
        /// The roster, with its series and attempt.
        roster: Box<Roster>,
    },
    /// A vote on a roster that was accepted, and its ground (R5).
    Voted {
        /// The vote, with what proves that it was allowed.
        voted: Box<Voted>,
    },
    /// A Regroup that was joined: its series, and those that this one
    /// descends from, are closed (R13).
    Joined {
        /// The Regroup, with its members and absent voters.
        regroup: Regroup,
        /// The highest vote in the series left, which the Join carries.
        done: Option<Box<Voted>>,
    },
    /// The series of a Regroup is entered; the one before is closed,
    /// even for a peer without a vote.
    Opened {
        /// The Regroup with all its Joins.
        opening: Opening,
    },
    /// A goodbye after which others may go on without us: the series is closed (R29).
    Left {
        /// The series that the goodbye closes.
        series: Series,
    },
    /// An epoch is decided: its receipt, certificate and Regroups. The update is on disk.
    Decided {
        /// Receipt, certificate and Regroups.
        link: Box<Link>,
    },
    /// The outer step of the epoch decided last was taken.
    Committed {
        /// The head after the epoch that was applied.
        head: Head,
    },
    /// The head was at this epoch at that time. Written now and then, so that a restart still knows
    /// how old the epochs are that a greater head undoes (G11).
    Marked {
        /// The epoch of the head when this was written.
        epoch: u64,
        /// The time, in seconds since 1970.
        unix: u64,
    },
    /// The epochs after this one are given up for a greater head (R23). It takes effect once the
    /// greater head's last epoch is committed: a log that ends before gives up nothing.
    Rewound {
        /// The last epoch that stays in the lineage.
        epoch: u64,
        /// The head whose commit completes it.
        to: Head,
    },
    /// The value of a free roster that was accepted, and which we have said to hold (R5).
    Prepared {
        /// The series in which it was accepted.
        series: Series,
        /// The attempt at which it was accepted.
        attempt: u64,
        /// BLAKE3 of the update's bytes.
        update: Digest,
    },
}

impl Record {
    /// The canonical bytes, at most [`wire::RECORD_BYTES_MAX`].
    pub fn bytes(&self) -> Vec<u8> {
        wire::canonical(self)
    }

    /// Reads a record; `None` if the bytes are not the canonical form of one.
    pub fn open(bytes: &[u8]) -> Option<Self> {
        wire::open_record(bytes)
    }

    /// Whether it belongs to the lineage; if not, it is a vote.
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
    /// The epoch of our head when this was written.
    pub epoch: u64,
    /// The time, in seconds since 1970.
    pub unix: u64,
}

/// What a restarted peer still has on its disk. The node reads it from its two logs;
/// `holdings::restore` decides how much of it still holds.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    /// The epochs from the first one up to the head of the restored state ([`lineage`]).
    pub lineage: Vec<(Head, Link)>,
    /// When its head was at which epoch, the oldest mark first ([`marks`]).
    pub marks: Vec<Mark>,
    /// Every record of its votes, in order, including those of epochs after that head.
    pub votes: Vec<Record>,
    /// The log of votes no longer has those of epochs up to this one.
    pub forgotten: u64,
}

/// The epochs that `records` commit after `genesis`. A record that does not follow on those before
/// it is left out: then the log is damaged, and the rest is fetched from other peers. A log has
/// more than one lineage in it after each fork. A new one replaces the old one when its last epoch
/// is committed, so a crash on the way leaves the old one.
pub fn lineage(genesis: Head, records: impl IntoIterator<Item = Record>) -> Vec<(Head, Link)> {
    let mut lineage: Vec<(Head, Link)> = Vec::new();
    let mut decided = None;
    // The lineage that is being given up, and the head that replaces it.
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

/// The newest marks of a log, at most [`MARKS_MAX`], on the lineage that it ends with.
/// Marks of epochs that were given up are left out, even if the log does not show that
/// the other lineage was reached.
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

/// The most marks that are used: those of a day, at the shortest interval between two.
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

/// R19: the first update that `votes` vote for in an epoch after `epoch` and that is
/// not `readable`. If there is one, the log counts as lost: it is never written again,
/// and its owner creates another.
#[must_use]
pub fn unreadable(votes: &[Record], epoch: u64, readable: &BTreeSet<Digest>) -> Option<Digest> {
    let updates = voted_beyond(votes, epoch).map(|voted| voted.update);
    updates.filter(|update| !readable.contains(update)).min()
}

/// The votes on an epoch after `epoch`, whose updates must still be readable (R19).
pub(crate) fn voted_beyond(votes: &[Record], epoch: u64) -> impl Iterator<Item = &Voted> {
    votes.iter().filter_map(move |record| match record {
        Record::Voted { voted } if voted.roster.series.epoch > epoch => Some(voted.as_ref()),
        _ => None,
    })
}

/// What binds a voter, per series (R1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Votes(BTreeMap<Series, Bound>);

/// What binds a voter in one series. The default forbids nothing, so a series that no record names
/// needs no entry.
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

/// A Regroup that was joined, and binds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// Digest of the Regroup, which the Join names.
    pub digest: Digest,
    /// The Regroup, with its members and absent voters.
    pub regroup: Regroup,
    /// The highest vote that the Join carries.
    pub done: Option<Voted>,
}

/// The bound of a series without any record: nothing.
static UNBOUND: LazyLock<Bound> = LazyLock::new(Bound::default);

impl Votes {
    /// The votes that `records` contain, taken in order.
    #[must_use]
    pub fn replay<'a>(run: &RunId, records: impl IntoIterator<Item = &'a Record>) -> Self {
        let mut votes = Self::default();
        for record in records {
            votes.append(run, record);
        }
        votes
    }

    /// What binds in `series`; nothing if no record names it.
    pub fn of(&self, series: Series) -> &Bound {
        self.0.get(&series).unwrap_or(&UNBOUND)
    }

    /// The series that some record names.
    pub fn series(&self) -> impl Iterator<Item = Series> {
        self.0.keys().copied()
    }

    /// The updates that some vote names; they must stay readable (R19).
    pub(crate) fn updates(&self) -> impl Iterator<Item = Digest> {
        self.0.values().flat_map(Bound::dones).map(|voted| voted.update)
    }

    /// Takes one record. Records of the lineage bind nothing. It checks nothing: what is lawful was
    /// checked before the record came out, and a log is read as it was written.
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

    /// Drops the votes of all epochs up to `epoch`, which are decided. Without it the votes of a
    /// long run would grow without a bound.
    pub fn forget(&mut self, epoch: u64) {
        self.0.retain(|series, _| series.epoch > epoch);
    }

    /// R13: a promise of infinity, in `series` and in those that it descends from.
    fn close(&mut self, series: Series) {
        self.of_mut(series).closed = true;
        // Each series of this epoch and parent that led to another one
        // is closed, the one before too.
        let beside = self.0.iter_mut().filter(|(other, _)| other.is_beside(&series));
        beside.filter(|(_, bound)| bound.opened.is_some()).for_each(|(_, b)| b.closed = true);
    }

    /// The bound of a series; a new one forbids nothing.
    fn of_mut(&mut self, series: Series) -> &mut Bound {
        self.0.entry(series).or_default()
    }
}

impl Bound {
    /// Nothing below this attempt is accepted or voted for any more; infinity after a Join.
    pub fn promised(&self) -> u64 {
        if self.closed { u64::MAX } else { self.promised }
    }

    /// The highest attempt promised, even if a Join has closed the series.
    pub fn attempt(&self) -> u64 {
        self.promised
    }

    /// Digest of the roster accepted at an attempt.
    pub fn accepted(&self, attempt: u64) -> Option<Digest> {
        self.accepted.get(&attempt).map(|(digest, _)| *digest)
    }

    /// Every accepted roster, by rising attempt.
    pub fn rosters(&self) -> impl Iterator<Item = (Digest, &Arc<Roster>)> {
        self.accepted.values().map(|(digest, roster)| (*digest, roster))
    }

    /// The update that we have said to hold at an attempt.
    pub fn prepared(&self, attempt: u64) -> Option<Digest> {
        self.prepared.get(&attempt).copied()
    }

    /// The vote given at an attempt.
    pub fn done(&self, attempt: u64) -> Option<&Voted> {
        self.dones.get(&attempt)
    }

    /// Every vote, by rising attempt.
    pub fn dones(&self) -> impl DoubleEndedIterator<Item = &Voted> {
        self.dones.values()
    }

    /// R29: whether a goodbye of ours has closed the series, and we have joined no Regroup of it
    /// since.
    pub(crate) fn said_goodbye(&self) -> bool {
        self.left && self.joined.is_none()
    }

    /// The last Regroup joined in this series.
    pub fn joined(&self) -> Option<&Joined> {
        self.joined.as_ref()
    }

    /// The Regroup whose series was entered from here.
    pub fn opened(&self) -> Option<&Opening> {
        self.opened.as_ref()
    }
}

#[cfg(test)]
mod tests;
