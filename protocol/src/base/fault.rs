//! What a peer can do wrong. A fault costs the peer its connection, and is named in an event.

use thiserror::Error;

/// A peer's misbehaviour: only what no honest peer does, whatever the network does to its messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Fault {
    /// A roster breaks a rule that its proposer could check (R4, R8).
    #[error("bad roster: {0}")]
    Roster(RosterFault),
    /// Two different values voted for on one roster, or another value than the roster adopts (R11).
    #[error("bad done: {0}")]
    Done(DoneFault),
    /// A Ready that declares more work than an epoch can hold, or changes what was frozen (R31).
    #[error("bad ready: {0}")]
    Ready(ReadyFault),
    /// A certificate, receipt or Regroup that does not verify.
    #[error("bad certificate: {0}")]
    Certificate(CertificateFault),
    /// A request or answer that makes no sense.
    #[error("bad answer: {0}")]
    Answer(AnswerFault),
    /// A frame that does not belong where it arrived, or whose bytes are not what its header says.
    #[error("bad frame: {0}")]
    Frame(FrameFault),
}

/// A roster breaks a rule that its proposer could check.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[expect(missing_docs, reason = "the text of each says it")]
pub enum RosterFault {
    #[error("nothing to keep")]
    NothingToKeep,
    #[error("keeps too many chunks")]
    ManyChunks,
    #[error("keeps no such blocks")]
    KeptBlocks,
    #[error("keeps a chunk that nobody holds")]
    NoHolder,
    #[error("names a ring twice")]
    RingTwice,
    #[error("keeps a chunk twice")]
    ChunkTwice,
    #[error("keeps no such chunk")]
    NoSuchChunk,
    #[error("keeps a block twice")]
    BlockTwice,
    #[error("keeps a chunk that its owner has not sealed")]
    Unsealed,
    #[error("keeps chunks of a ring that never opened")]
    NeverOpened,
    #[error("proposer is not its author")]
    NotItsAuthor,
    #[error("proposer is no member")]
    NoMember,
    #[error("attempt out of range")]
    Attempt,
    #[error("heard who has no vote")]
    HeardNoVoter,
    #[error("heard more than have a vote")]
    HeardMany,
    #[error("too many members")]
    ManyMembers,
    #[error("a member twice")]
    MemberTwice,
    #[error("weight 0 for no voter")]
    IdleNoVoter,
    #[error("a weight that nobody declared")]
    Undeclared,
    #[error("a ring of nobody")]
    RingOfNobody,
    #[error("heard no majority")]
    NoMajority,
    #[error("adopts the value of another epoch")]
    OtherEpoch,
    #[error("a vote that nobody can have given")]
    ImpossibleVote,
    #[error("a Status that its author has not signed")]
    UnsignedStatus,
    #[error("another value than what it heard leaves")]
    NotForced,
    #[error("another value than the highest vote that it heard")]
    NotTheHighest,
    #[error("too many newcomers")]
    ManyNewcomers,
    #[error("a newcomer first")]
    NewcomerFirst,
    #[error(transparent)]
    Value(#[from] ValueFault),
    #[error(transparent)]
    Access(#[from] AccessFault),
}

/// A vote that no honest voter gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[expect(missing_docs, reason = "the text of each says it")]
pub enum DoneFault {
    #[error("a vote that nobody can have given")]
    Impossible,
    #[error("a value that its roster cannot have")]
    OtherValue,
    #[error("two values of one roster")]
    TwoValues,
    #[error("holds two values of one roster")]
    HoldsTwo,
    #[error("a Status that hides a vote")]
    Hidden,
    #[error("a vote without its ground")]
    NoGround,
}

/// A Ready that no honest peer says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[expect(missing_docs, reason = "the text of each says it")]
pub enum ReadyFault {
    #[error("weight of zero, or more than an epoch can hold")]
    Weight,
    #[error("changed a frozen weight")]
    Changed,
}

/// A certificate, receipt or Regroup that proves nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[expect(missing_docs, reason = "the text of each says it")]
pub enum CertificateFault {
    #[error("roster of another series")]
    OtherSeries,
    #[error("receipt of another epoch")]
    OtherEpoch,
    #[error("receipt of another roster")]
    OtherRoster,
    #[error("two votes of one voter")]
    TwoVotes,
    #[error("no quorum of the voters signed")]
    NoQuorum,
    #[error("votes that do not verify")]
    UnsignedVotes,
    #[error("a Regroup, which the quorum of this run forbids")]
    Forbidden,
    #[error("Regroup of nobody")]
    RegroupOfNobody,
    #[error("Regroup of too many")]
    RegroupOfTooMany,
    #[error("Regroup that names a member twice")]
    RegroupNamesTwice,
    #[error("founded by too few")]
    TooFewFounders,
    #[error("Regroup of a peer without a vote")]
    RegroupOfNoVoter,
    #[error("Regroup that hides who is absent")]
    HidesAbsent,
    #[error("a Regroup of no series")]
    RegroupOfNoSeries,
    #[error("Regroup of another series")]
    RegroupOfOtherSeries,
    #[error("not one Join of each member")]
    JoinsMissing,
    #[error("Regroup that a member has not joined")]
    NotJoined,
    #[error("a vote without its ground")]
    NoGround,
    #[error("a Regroup of somebody else")]
    NotItsAuthor,
    #[error("a Join with an impossible vote")]
    ImpossibleVote,
    #[error("two Joins for one Regroup")]
    TwoJoins,
    #[error("tokens beyond all numbers")]
    TooManyTokens,
    #[error("a notice that the organiser has not signed")]
    UnsignedNotice,
    #[error(transparent)]
    Value(#[from] ValueFault),
    #[error(transparent)]
    Access(#[from] AccessFault),
}

/// What no value of an epoch can be: its parts, and the sums of its ring and of each part (G11, R31).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[expect(missing_docs, reason = "the text of each says it")]
pub enum ValueFault {
    #[error("more parts than rings have chunks")]
    ManyParts,
    #[error("a part that nobody computed")]
    PartOfNobody,
    #[error("a part that names a member twice")]
    PartNamesTwice,
    #[error("a part with a member of no weight")]
    PartWithoutWeight,
    #[error("a part of no such blocks")]
    PartBlocks,
    #[error("a block of two parts")]
    BlockOfTwoParts,
    #[error("parts that leave nothing")]
    NothingLeft,
    #[error("a sum of too many")]
    SumOfTooMany,
    #[error("a sum that names a peer twice")]
    SumNamesTwice,
    #[error("a sum of nobody")]
    SumOfNobody,
    #[error("a weight that no epoch can hold")]
    TooHeavy,
    #[error("two weights of one delta")]
    TwoWeights,
    #[error("a sum beyond all numbers")]
    SumTooGreat,
}

/// What no roster, receipt or Regroup can say of who is in (T2, T6, T7, T9).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[expect(missing_docs, reason = "the text of each says it")]
pub enum AccessFault {
    #[error("tickets or notices in a run that is open to all")]
    OpenToAll,
    #[error("a trust part that says nothing")]
    Empty,
    #[error("too many tickets")]
    ManyTickets,
    #[error("too many notices")]
    ManyNotices,
    #[error("a trust part that is too long")]
    TooLong,
    #[error("tickets out of order")]
    TicketOrder,
    #[error("a ticket of a peer that is in")]
    TicketOfWhoIsIn,
    #[error("a ticket of no member")]
    TicketOfNoMember,
    #[error("a notice that is none of the organiser's, or not the next")]
    Notice,
    #[error("a ticket that admits nobody")]
    Ticket,
    #[error("a member that nobody admitted")]
    NotAdmitted,
    #[error("a receipt that leaves no voter")]
    NoVoterLeft,
    #[error("keeps a share of a revoked peer")]
    RevokedShare,
    #[error("notices beside an adopted value")]
    NoticesBesideValue,
    #[error("revokes in a run that is open to all")]
    RevokesInOpenRun,
    #[error("a Regroup of somebody whom nobody admitted")]
    RegroupOfStranger,
    #[error("calls a voter revoked that is not")]
    NotRevoked,
}

/// A request, or an answer, that makes no sense.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[expect(missing_docs, reason = "the text of each says it")]
pub enum AnswerFault {
    #[error("more chunks than rings have")]
    ManyChunks,
    #[error("a chain out of order")]
    ChainOrder,
    #[error("answers another question")]
    OtherQuestion,
    #[error("a head that its links do not reach")]
    HeadNotReached,
    #[error("sent other bytes than those of the digest that it was asked for")]
    OtherBytes,
    #[error("sent an endless part of what it was asked for")]
    Endless,
    #[error("sent more than a file has")]
    TooMuch,
    #[error("sent a part of a wrong length")]
    Length,
    #[error("sent another piece than it was asked for")]
    OtherPiece,
}

/// A frame of a ring that does not belong where it arrived, or is not what its header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[expect(missing_docs, reason = "the text of each says it")]
pub enum FrameFault {
    #[error("a seal is no frame")]
    SealAsFrame,
    #[error("the payload's length is not that of the frame")]
    Length,
    #[error("a sum of the chunk that begins here")]
    OwnSum,
    #[error("a sum that is not the next of its chunk")]
    SumOrder,
    #[error("a finished frame of the chunk that is finished here")]
    OwnChunk,
    #[error("a finished frame that is not the next of its chunk")]
    FinishedOrder,
    #[error("a finished frame whose sum has not passed here")]
    TooEarly,
    #[error("a seal of a chunk that the ring has not")]
    SealOfNoChunk,
    #[error("a seal that is not due")]
    SealNotDue,
    #[error("a seal before the last frame of its chunk")]
    SealTooEarly,
    #[error("a seal that is not over the chunk that came with it")]
    SealOfOtherChunk,
    #[error("a seal that is not its owner's")]
    SealOfOther,
    #[error("a chunk that the ring has not")]
    NoSuchChunk,
    #[error("a frame that its chunk has not")]
    NoSuchFrame,
    #[error("a header that makes no sense")]
    Header,
    #[error("a payload that its header does not announce")]
    Payload,
    #[error("a seal of another length")]
    SealLength,
    #[error("a frame that does not decode")]
    Undecodable,
}
