//! What peers say to each other: every control message, and the records that messages are about.
//!
//! Words as in `docs/PROTOCOL.md`. A record that others refer to has a digest, made in `wire`, the
//! one place that knows its bytes: [`Roster`], [`Receipt`], [`Regroup`]. Every message names its
//! [`Series`], or the head of its author.

mod kept;
mod proof;
mod record;
mod regroup;
mod trust;
pub mod seal;
pub mod wire;

use serde::{Deserialize, Serialize};

use crate::base::id::{Digest, LogId, PeerId};
use crate::base::sign::Signature;

pub use kept::{Finished, Keep, Kept, Part};
pub use proof::{Ground, Opened, Prepared};
pub use record::{
    Head, Heard, MEMBERS_MAX, Member, QuorumRule, Rank, Ranked, Receipt, Roster, Series, Voted,
    Voter, majority,
};
pub use regroup::{Absence, Regroup};
pub use trust::{Admissions, Attestation, Body, Clause, Invite, Notice, Terms, Ticket};

/// Where a peer stands in its epoch, for people and for the ready count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Phase {
    /// A greater head is being fetched.
    Behind,
    /// Inner steps.
    Train,
    /// Delta and weight are frozen.
    Ready,
    /// A roster was accepted.
    Accepted,
    /// The ring runs.
    Reduce,
    /// The whole update is held.
    Finished,
    /// Waits for, or asks for, a higher attempt.
    Recover,
    /// Joined a Regroup that has not opened.
    Regrouping,
}

/// "I live, and this is where I stand." Repeats what a lost Ready would have said.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Rises by one with each, from 1 at each start.
    pub count: u64,
    /// The author's head.
    pub head: Head,
    /// The series that the author is in.
    pub series: Series,
    /// A Regroup of that series which the author has joined and which has not opened.
    pub joined: Option<Digest>,
    /// Whether a goodbye of the author has closed this very series for it, and it has joined no Regroup of it since
    /// (R29).
    pub closed: bool,
    /// The log that binds it.
    pub log: LogId,
    /// Which start of the author this is.
    pub incarnation: u64,
    /// Phase of its epoch.
    pub phase: Phase,
    /// Attempt of that phase; 0 before the first.
    pub attempt: u64,
    /// Weight of its frozen delta; 0 is not Ready.
    pub ready: u64,
    /// Whether a ring can lead through it: anybody can dial it, or a direct connection joins it with somebody (R41).
    pub direct: bool,
    /// A bit for each voter of `series`, in their order, the first one in the lowest bit of the first byte: set
    /// where that voter is alive and no direct connection joins it with the author. Of another length than these
    /// voters need, or longer than [`UNLINKED_BYTES_MAX`], it says nothing.
    pub unlinked: Vec<u8>,
    /// Smoothed round-trip times in milliseconds, at most 16.
    pub round_trips: Vec<(PeerId, u32)>,
    /// Bytes per second of its last ring; 0 is unknown.
    pub send_rate: u64,
    /// The newest epoch whose checkpoint it serves; 0 is genesis, which needs no donor.
    pub serves: u64,
    /// The number of the newest notice that the author knows; 0 is none. Who knows a newer one tells it.
    pub notice: u64,
    /// The number of the highest attestation that its head lies on, as it says; 0 is none.
    pub attested: u64,
    /// Why the author may take part, until the ledger of its head says so.
    pub ticket: Option<Box<Ticket>>,
}

/// Delta and weight are frozen (R31).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Ready {
    /// The series that the author is in.
    pub series: Series,
    /// Which start of the author froze it.
    pub incarnation: u64,
    /// Tokens behind the delta.
    pub weight: u64,
    /// Norm of the delta, for people.
    pub norm: f32,
}

/// Asks a majority of voters before an attempt from the second on (R7).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Query {
    /// The series.
    pub series: Series,
    /// The attempt that the author wants to propose.
    pub attempt: u64,
    /// Peers reported lost.
    pub lost: Vec<PeerId>,
}

/// The promise of a voter, or where a peer without a vote stands (R2). It is gossiped, so that everybody
/// sees who answers (G9), and rosters show those that they rest on (G14).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// The series.
    pub series: Series,
    /// The log that binds the author: a peer that lost its log is another voter (R19).
    pub log: LogId,
    /// The attempt that was asked for, and now is promised.
    pub attempt: u64,
    /// Its highest Done in this series.
    pub done: Option<Ranked>,
    /// Whether it holds the bytes of the series' forced value.
    pub holds_forced: bool,
}

/// What goes with a [`Status`] to whoever asked: what is too long to be gossiped.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The series.
    pub series: Series,
    /// The attempt that was asked for.
    pub attempt: u64,
    /// Finished chunks of rings of this epoch that it holds (R10).
    pub chunks: Vec<Finished>,
    /// Its own Ready, if any: incarnation and weight.
    pub ready: Option<(u64, u64)>,
    /// Voters present to it.
    pub present: Vec<PeerId>,
}

/// "I take part in this roster" (R3).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Accept {
    /// The series.
    pub series: Series,
    /// Digest of the roster.
    pub roster: Digest,
}

/// Why a roster or Regroup was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Refusal {
    /// A higher attempt was promised, or another roster accepted at this one.
    Promised,
    /// The roster names another weight or incarnation of mine than I froze.
    Weight,
    /// The roster breaks another rule.
    Rule,
    /// The Regroup leaves out a voter that is present to me, or somebody present at the founding.
    Present(PeerId),
    /// A member of the Regroup is not present to me.
    Absent(PeerId),
    /// The roster leaves out a voter that is alive to me (G6).
    Lacks(PeerId),
    /// The roster gives too few of those a place whose work is frozen (G6).
    Places,
    /// The roster does not wait for everybody alive, and my patience lasts so many milliseconds still
    /// (G6).
    Early(u32),
    /// The roster lacks a notice that follows on the ledger (T5): its number and digest. The notice itself goes
    /// with this.
    Notice(u64, Digest),
    /// The ticket of that member has expired, by my clock (T4).
    Expired(PeerId),
    /// The highest vote that the roster rests on is not proven to me: its ground has not come.
    Unproven,
}

/// The answer to a roster or Regroup that cannot be accepted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Refuse {
    /// The series.
    pub series: Series,
    /// Digest of the roster or Regroup.
    pub what: Digest,
    /// The attempt promised.
    pub promised: u64,
    /// The author's head.
    pub head: Head,
    /// Why.
    pub reason: Refusal,
}

/// A ring neighbour was lost.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Lost {
    /// The series.
    pub series: Series,
    /// Digest of the roster.
    pub roster: Digest,
    /// The neighbour.
    pub who: PeerId,
}

/// A vote: the author holds the whole update (R5). A majority of them is the certificate.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Done {
    /// The series.
    pub series: Series,
    /// Digest of the roster.
    pub roster: Digest,
    /// Digest of the receipt.
    pub r: Digest,
    /// Digest of the update, so that a voter without a place knows what to fetch.
    pub update: Digest,
}

/// Who decided a value: Dones for one roster from a majority of the voters of its series.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Certificate {
    /// The roster that was voted on; its series is the receipt's or descends from it (R14).
    pub roster: Roster,
    /// Who voted, with the signature over its `Done`.
    pub dones: Vec<(PeerId, Signature)>,
}

/// "I leave the series for ever" (R13).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Join {
    /// The series that is left.
    pub series: Series,
    /// Digest of the Regroup.
    pub regroup: Digest,
    /// The log that binds the author.
    pub log: LogId,
    /// Its highest Done in that series and those that it descends from.
    pub done: Option<Ranked>,
}

/// A Regroup with all its members' Joins: the root of a series.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Opening {
    /// The Regroup.
    pub regroup: Regroup,
    /// Each member's Join, with its signature.
    pub joins: Vec<(PeerId, Join, Signature)>,
    /// The highest vote that they name, with what proves it.
    pub ground: Option<Box<Voted>>,
}

impl Opening {
    /// The highest vote that the Joins name.
    #[must_use]
    pub fn highest_done(&self) -> Option<Ranked> {
        self.joins.iter().filter_map(|(_, join, _)| join.done).max()
    }
}

/// One committed epoch with all that proves it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Link {
    /// The result.
    pub receipt: Receipt,
    /// Who decided it.
    pub certificate: Certificate,
    /// The Regroups of this epoch and parent that it came through, in order.
    pub openings: Vec<Opening>,
}

/// "This epoch is decided" (R16).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Commit {
    /// The whole link: sent directly to a peer that lacks it.
    Whole(Box<Link>),
    /// For peers that hold roster and update: gossiped.
    Short {
        /// The series of the roster.
        series: Series,
        /// Digest of the roster.
        roster: Digest,
        /// Digest of the receipt.
        r: Digest,
        /// Digest of the update.
        update: Digest,
        /// Who voted, with the signature over its `Done`.
        dones: Vec<(PeerId, Signature)>,
    },
}

/// The author's last message (R29).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Leaving {
    /// The author's head.
    pub head: Head,
    /// Void once the author is heard with a higher one.
    pub incarnation: u64,
}

/// Every control message.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each variant is documented at its struct")]
pub enum Message {
    Heartbeat(Heartbeat),
    Ready(Ready),
    Query(Query),
    Status(Status),
    Report(Report),
    Roster(Roster),
    Accept(Accept),
    Refuse(Refuse),
    Lost(Lost),
    Done(Done),
    Commit(Commit),
    Regroup(Regroup),
    Join(Join),
    Leaving(Leaving),
    Notice(Notice),
    Ground(Ground),
    /// See [`Opened`].
    Opened(Opened),
    /// See [`Prepared`].
    Prepared(Prepared),
}

impl Message {
    /// The domain tag under which it is signed.
    #[must_use]
    pub fn tag(&self) -> &'static str {
        match self {
            Self::Heartbeat(_) => "heartbeat",
            Self::Ready(_) => "ready",
            Self::Query(_) => "query",
            Self::Status(_) => "status",
            Self::Report(_) => "report",
            Self::Ground(_) => "ground",
            Self::Opened(_) => "opened",
            Self::Prepared(_) => "prepared",
            Self::Roster(_) => "roster",
            Self::Accept(_) => "accept",
            Self::Refuse(_) => "refuse",
            Self::Lost(_) => "lost",
            Self::Done(_) => "done",
            Self::Commit(_) => "commit",
            Self::Regroup(_) => "regroup",
            Self::Join(_) => "join",
            Self::Leaving(_) => "leaving",
            // What the organiser signs is "notice".
            Self::Notice(_) => "pass-notice",
        }
    }

    /// The series that it speaks about; `None` where it speaks about its author's head only, or about none.
    #[must_use]
    pub fn series(&self) -> Option<Series> {
        match self {
            Self::Heartbeat(_) | Self::Leaving(_) | Self::Notice(_) => None,
            Self::Ready(m) => Some(m.series),
            Self::Query(m) => Some(m.series),
            Self::Status(m) => Some(m.series),
            Self::Report(m) => Some(m.series),
            Self::Ground(m) => Some(m.series),
            Self::Opened(m) => Some(m.series),
            Self::Prepared(m) => Some(m.series),
            Self::Roster(m) => Some(m.series),
            Self::Accept(m) => Some(m.series),
            Self::Refuse(m) => Some(m.series),
            Self::Lost(m) => Some(m.series),
            Self::Done(m) => Some(m.series),
            Self::Commit(Commit::Whole(link)) => Some(link.certificate.roster.series),
            Self::Commit(Commit::Short { series, .. }) => Some(*series),
            Self::Regroup(m) => Some(m.series),
            Self::Join(m) => Some(m.series),
        }
    }
}

/// What one peer asks another about lineages; believed by what its answer proves, not by who says it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Ask {
    /// Links from this epoch on, and the open epoch's Regroups.
    Lineage {
        /// The first epoch wanted.
        from_epoch: u64,
    },
    /// The chain from this epoch on, to find where two lineages part.
    Chain {
        /// The first epoch wanted.
        from_epoch: u64,
    },
}

/// Everything that is fetched from a peer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Answered with an [`Answer`].
    Ask(Ask),
    /// Bytes of an update from `offset` on, also of the open epoch.
    Update {
        /// BLAKE3 of the whole.
        update: Digest,
        /// The first byte wanted.
        offset: u64,
    },
    /// Bytes of a checkpoint's header and piece table from `offset` on.
    Table {
        /// State digest.
        state: Digest,
        /// The first byte wanted.
        offset: u64,
    },
    /// One piece of a checkpoint.
    Piece {
        /// State digest.
        state: Digest,
        /// Which piece.
        index: u32,
    },
    /// Bytes of a finished chunk from `offset` on (R32).
    Chunk {
        /// The roster whose ring computed it.
        roster: Digest,
        /// Its number there.
        chunk: u32,
        /// The first byte wanted.
        offset: u64,
    },
    /// Bytes of the file of the run's tokenizer from `offset` on.
    File {
        /// BLAKE3 of the whole.
        file: Digest,
        /// The first byte wanted.
        offset: u64,
    },
    /// Bytes of the chaining values of a file of the run's data from `offset` on.
    Tree {
        /// BLAKE3 of the whole file.
        file: Digest,
        /// The first byte wanted.
        offset: u64,
    },
    /// One piece of a file of the run's data.
    Data {
        /// BLAKE3 of the whole file.
        file: Digest,
        /// Which piece.
        index: u32,
    },
}

/// One epoch of a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChainLink {
    /// The epoch.
    pub epoch: u64,
    /// State digest after it.
    pub state: Digest,
    /// Digest of its receipt.
    pub r: Digest,
}

/// The answer to an [`Ask`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// At most [`LINKS_MAX`] links, oldest first.
    Lineage {
        /// The links.
        links: Vec<Link>,
        /// The answering peer's head.
        head: Head,
        /// Regroups of its open epoch, in order.
        openings: Vec<Opening>,
    },
    /// At most [`CHAIN_MAX`] entries, oldest first.
    Chain(Vec<ChainLink>),
}

/// Bytes of [`Heartbeat::unlinked`]: a bit for each member that a roster may have.
pub const UNLINKED_BYTES_MAX: usize = MEMBERS_MAX.div_ceil(8);

/// Finished chunks in one `Report`: those of a ring of as many members as a roster may have.
pub const CHUNKS_MAX: usize = MEMBERS_MAX;

/// Peers named as holders of one kept chunk.
pub const HOLDERS_MAX: usize = 3;

/// Links in one answer.
pub const LINKS_MAX: usize = 64;

/// Chain entries in one answer: 80 bytes each.
pub const CHAIN_MAX: usize = 4_096;
