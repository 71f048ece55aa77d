//! Every control message that peers exchange, and the records that messages are about.
//!
//! `docs/PROTOCOL.md` defines the words, and names each message of Paxos that one of these is. A record that
//! others refer to has a digest: [`Roster`], [`Receipt`], [`Regroup`]. It is made in `wire`, the one file that
//! knows its bytes. Every message names its [`Series`], or the head of its author.
//!
//! All of it comes from peers that may lie. A field is only what its author says: [`wire::open`]
//! proves the author, the machines check the rest. Bounds on lists stand at the constants below,
//! and are checked where the message is read, not when it is decoded; the decoder bounds the bytes
//! alone.

mod kept;
mod proof;
mod record;
mod regroup;
mod request;
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
pub use request::{
    Answer, Ask, CHAIN_MAX, ChainLink, LINKS_MAX, PICTURE_BYTES_MAX, Picture, Request, Row,
};
pub use trust::{Admissions, Attestation, Body, Clause, Invite, Notice, Terms, Ticket};

/// How far a peer is in its epoch. Only `Behind` affects decisions; the others are for people.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Phase {
    /// It fetches a greater head, and takes part in nothing.
    Behind,
    /// It takes inner steps, until the budget is used.
    Train,
    /// Its delta and weight are frozen.
    Ready,
    /// It has accepted a roster, and waits for the other members.
    Accepted,
    /// Its ring runs, or it fetches the update.
    Reduce,
    /// It holds the whole update, and waits for votes.
    Finished,
    /// It waits for a higher attempt, or asks for one.
    Recover,
    /// It has joined a Regroup that has not opened.
    Regrouping,
}

/// "I am alive, and this is my state." It repeats what a lost `Ready` would have said. It carries
/// no vote, so a lost one costs only time, and it may leave before queued votes are on disk.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Rises by one with each heartbeat, from 1 at each start. With the incarnation it orders the
    /// heartbeats of an author, so that a replayed one revives nobody.
    pub count: u64,
    /// What the author committed last. It is a claim, which makes others ask for the links that
    /// prove it (R23).
    pub head: Head,
    /// The open series of the author.
    pub series: Series,
    /// A Regroup of that series which the author has joined and which has not opened.
    pub joined: Option<Digest>,
    /// Whether a goodbye of the author closed this very series, and it has joined no Regroup of it since (R29).
    pub closed: bool,
    /// The log of votes that binds the author (R19).
    pub log: LogId,
    /// The start of the author; rises with each.
    pub incarnation: u64,
    /// How far the author is in its epoch.
    pub phase: Phase,
    /// The attempt of that phase; 0 before the first one.
    pub attempt: u64,
    /// The weight of the author's frozen delta; 0 while it is not Ready.
    pub ready: u64,
    /// Whether a ring can pass through it: anybody can dial it, or it has a direct connection with somebody (R41).
    pub direct: bool,
    /// A bit for each voter of `series`, in their order, the first one in the lowest bit of the first byte. It is
    /// set if that voter is alive and unlinked with the author (R42). Empty if no bit is set. It is ignored if its
    /// length is not that of these voters, or above [`UNLINKED_BYTES_MAX`].
    pub unlinked: Vec<u8>,
    /// Smoothed round trips to peers in milliseconds, at most 16.
    pub round_trips: Vec<(PeerId, u32)>,
    /// Bytes per second that it sent in its last ring; 0 is unknown. Others compute T_ring by the
    /// slowest rate in a ring. No rate counts as less than 8 kB/s, so a lie makes a ring wait
    /// longer, within a bound.
    pub send_rate: u64,
    /// The newest epoch whose checkpoint it serves; 0 is genesis, which needs no source.
    pub serves: u64,
    /// The number of the newest notice that the author knows; 0 is none. A peer that knows a newer one sends it.
    pub notice: u64,
    /// The number of the highest attestation that its head lies on, as the author claims; 0 is none.
    pub attested: u64,
    /// The author's ticket, until the ledger of its head admits it.
    pub ticket: Option<Box<Ticket>>,
}

/// "My delta and its weight are frozen" (R31).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Ready {
    /// The open series of the author.
    pub series: Series,
    /// The start of the author that froze the delta.
    pub incarnation: u64,
    /// The number of tokens that the delta was trained on. It is at least 1, and at most what an
    /// epoch can hold (G11); another weight is the author's fault.
    pub weight: u64,
    /// The norm of the delta, for people only.
    pub norm: f32,
    /// The mean loss of the training behind it, for people only.
    pub loss: Loss,
}

/// A training loss in nats per token, as a peer names it: for people only.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Loss(pub f32);

impl Loss {
    /// Stands for a loss that is not known.
    pub const NONE: Self = Self(f32::NAN);

    /// The number, if it can be a loss: anything else counts as absent.
    #[must_use]
    pub fn plausible(self) -> Option<f32> {
        (0.0..=100.0).contains(&self.0).then_some(self.0)
    }
}

/// Paxos' prepare: asks the voters what they voted for, before an attempt from the second on (R7).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Query {
    /// The series that the attempt is in.
    pub series: Series,
    /// The attempt (ballot number) that the author wants to propose.
    pub attempt: u64,
}

/// Paxos' promise: the answer of a voter to a [`Query`], or the state of a peer without a vote (R2). It is
/// gossiped, so that everybody sees who answers (G9). Rosters show those that they rest on (G14).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// The series that the attempt is in.
    pub series: Series,
    /// The log that binds the author: a peer that lost its log is another voter (R19).
    pub log: LogId,
    /// The attempt that was asked for and is promised now.
    pub attempt: u64,
    /// The highest `Done` of the author in this series.
    pub done: Option<Ranked>,
    /// Whether it holds the bytes of the value that the series is forced to (R13).
    pub holds_forced: bool,
}

/// The payload of Paxos' promise that is too long to gossip: sent with a [`Status`] to the peer that asked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The series that the attempt is in.
    pub series: Series,
    /// The attempt that was asked for.
    pub attempt: u64,
    /// Finished chunks of rings of this epoch that the author holds (R10).
    pub chunks: Vec<Finished>,
    /// Incarnation and weight of the author's `Ready`, if it is Ready.
    pub ready: Option<(u64, u64)>,
    /// The voters that are present to the author.
    pub present: Vec<PeerId>,
}

/// Joining the ballot, in Paxos: "I take part in this roster" (R3).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Accept {
    /// The series that the roster is in.
    pub series: Series,
    /// The digest of the accepted roster.
    pub roster: Digest,
}

/// The reason for which a roster or Regroup was refused. [`Refusal::Lacks`], [`Refusal::Early`] and
/// [`Refusal::Notice`] cost the refuser nothing the first time, where they are true;
/// [`Refusal::Unproven`] costs nothing and is answered with the proof. After [`Refusal::Expired`]
/// the refuser has no position in this epoch, after the others none until it accepts or answers
/// (G4). A peer that refuses a Regroup pays nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Refusal {
    /// A higher attempt was promised, or another roster accepted at this one.
    Promised,
    /// The roster names a weight or incarnation of mine that I did not freeze.
    Weight,
    /// The roster breaks another rule.
    Rule,
    /// The Regroup leaves out this voter, which is present to me, or a peer present at the founding.
    Present(PeerId),
    /// This member of the Regroup is not present to me.
    Absent(PeerId),
    /// The roster leaves out this voter, which is alive to me (G6).
    Lacks(PeerId),
    /// The roster gives too few positions to voters that are Ready (G6).
    Places,
    /// The roster does not wait for everybody alive. My patience lasts this many milliseconds more (G6).
    Early(u32),
    /// The roster lacks the notice that follows on the ledger: its number and digest. The notice is sent too (T5).
    Notice(u64, Digest),
    /// The ticket of this member has expired, by my clock (T4).
    Expired(PeerId),
    /// The highest vote that the roster rests on, or a ring that it keeps chunks of, is not proven to me (R8, R32).
    Unproven,
}

/// A rejection: the answer to a roster, Regroup or question that the author cannot accept.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Refuse {
    /// The series of what is refused.
    pub series: Series,
    /// The digest of the roster or Regroup; zero for a question.
    pub what: Digest,
    /// The promise of the author; `u64::MAX` once it has left the series (R13). The reader takes it
    /// for the attempt that the author has come to (R38).
    pub promised: u64,
    /// What the author committed last.
    pub head: Head,
    /// The reason, which decides what it costs (G4).
    pub reason: Refusal,
}

/// "My ring has stopped before its end" (R35). The reports of its members together show where.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Stalled {
    /// The series that the roster is in.
    pub series: Series,
    /// The digest of the ring's roster.
    pub roster: Digest,
    /// The neighbour whose connection has failed; `None` if nothing has come for too long.
    pub lost: Option<PeerId>,
    /// The hops whose chunk has arrived whole, of 2(n − 1) for n positions. Others subtract the
    /// hops of neighbouring positions: a difference of two or more can put the pair in dispute (R35).
    pub hops: u32,
}

/// Paxos' accepted, a vote: the author holds the whole update (R5). Those of a majority are the certificate.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Done {
    /// The series that the roster is in.
    pub series: Series,
    /// The digest of the roster that is voted on.
    pub roster: Digest,
    /// The digest of the receipt that is voted for.
    pub r: Digest,
    /// The digest of the update, so that a voter without a position knows what to fetch.
    pub update: Digest,
}

/// The proof that a value is decided: `Done`s for one roster of a majority of its series' voters.
/// It proves the value to anybody that knows the voters of the series, whoever sends it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Certificate {
    /// The roster that was voted on. Its series is the receipt's, or descends from that (R14).
    pub roster: Roster,
    /// Each voter, with the signature over its `Done`.
    pub dones: Vec<(PeerId, Signature)>,
}

/// "I leave this series for good, for the one that a Regroup opens" (R13).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Join {
    /// The series that the author leaves.
    pub series: Series,
    /// The digest of the joined Regroup.
    pub regroup: Digest,
    /// The log of votes that binds the author.
    pub log: LogId,
    /// The author's highest `Done` in that series and those that it descends from.
    pub done: Option<Ranked>,
}

/// A Regroup with the Joins of all its members: what opens a series. With another log or vote in
/// one Join it opens another series (R13).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Opening {
    /// The Regroup that all members joined.
    pub regroup: Regroup,
    /// The Join of each member, with its signature, in the order of the members.
    pub joins: Vec<(PeerId, Join, Signature)>,
    /// The highest vote that the Joins name, with its proof.
    pub ground: Option<Box<Voted>>,
}

impl Opening {
    /// The highest vote that the Joins name, if any.
    #[must_use]
    pub fn highest_done(&self) -> Option<Ranked> {
        self.joins.iter().filter_map(|(_, join, _)| join.done).max()
    }
}

/// One committed epoch with everything that proves it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Link {
    /// The result, by which the next voters are known.
    pub receipt: Receipt,
    /// The votes of a majority that decided it.
    pub certificate: Certificate,
    /// The Regroups of this epoch and parent that led to its series, in order. Mostly empty; where
    /// the manifest names no founders, those of epoch 1 begin with the founding.
    pub openings: Vec<Opening>,
}

/// Paxos' learn: "this epoch is decided" (R16). Only a peer that counted the votes itself gossips
/// the short form; the whole one answers a peer that still works on the epoch (R16).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Commit {
    /// The whole link, sent directly to a peer that lacks it.
    Whole(Box<Link>),
    /// Gossiped, for peers that know the roster.
    Short {
        /// The series that the roster is in.
        series: Series,
        /// The digest of the roster that was voted on.
        roster: Digest,
        /// The digest of the decided receipt.
        r: Digest,
        /// The digest of the decided update.
        update: Digest,
        /// Each voter, with the signature over its `Done`.
        dones: Vec<(PeerId, Signature)>,
    },
}

/// "I leave the run", the last message of its author (R29).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Leaving {
    /// What the author committed last.
    pub head: Head,
    /// The start that leaves; the message is void once a higher one is heard.
    pub incarnation: u64,
}

/// Every control message, as it is signed and sent. The position of a variant is its number on the
/// wire. So a new message comes last, and no two change places within one [`wire::VERSION`].
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
    Stalled(Stalled),
    Done(Done),
    Commit(Commit),
    Regroup(Regroup),
    Join(Join),
    Leaving(Leaving),
    Notice(Notice),
    Ground(Ground),
    /// The proof that a ring started, see [`Opened`].
    Opened(Opened),
    /// A voter holds a whole update, see [`Prepared`].
    Prepared(Prepared),
}

impl Message {
    /// The domain under which the message is signed. Peers of one version must agree on it.
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
            Self::Stalled(_) => "stalled",
            Self::Done(_) => "done",
            Self::Commit(_) => "commit",
            Self::Regroup(_) => "regroup",
            Self::Join(_) => "join",
            Self::Leaving(_) => "leaving",
            // The organiser's own signature has the domain "notice".
            Self::Notice(_) => "pass-notice",
        }
    }

    /// The series that the message is about; `None` if it is about a head only, or about no series.
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
            Self::Stalled(m) => Some(m.series),
            Self::Done(m) => Some(m.series),
            Self::Commit(Commit::Whole(link)) => Some(link.certificate.roster.series),
            Self::Commit(Commit::Short { series, .. }) => Some(*series),
            Self::Regroup(m) => Some(m.series),
            Self::Join(m) => Some(m.series),
        }
    }
}

/// Longest [`Heartbeat::unlinked`], in bytes: a bit for each member that a roster may have.
pub const UNLINKED_BYTES_MAX: usize = MEMBERS_MAX.div_ceil(8);

/// Most finished chunks in one `Report`: those of a ring of as many members as a roster may have. A
/// longer list is a fault (D1).
pub const CHUNKS_MAX: usize = MEMBERS_MAX;

/// Most peers that a roster names as holders of one kept chunk.
pub const HOLDERS_MAX: usize = 3;
