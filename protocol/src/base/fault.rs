//! What a peer can do wrong. A fault closes the connection to its author
//! and is reported in an event.
//!
//! A fault is only what a message proves of its own author: no honest peer commits one, whatever
//! the network loses, repeats or reorders. The text of each says what was wrong; the remedy is
//! always the same, to update or to remove that peer's program.

use thiserror::Error;

/// Requires a property of what is checked; `otherwise` is the error of the check.
pub(crate) fn require<F>(holds: bool, otherwise: F) -> Result<(), F> {
    if holds { Ok(()) } else { Err(otherwise) }
}

/// What a peer did that no honest peer does, whatever the network does to its messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Fault {
    /// A roster breaks a rule that its proposer could check (R4, R8).
    #[error("bad roster: {0}")]
    Roster(RosterFault),
    /// Two different values for one roster, or another value than the roster adopts (R11).
    #[error("bad done: {0}")]
    Done(DoneFault),
    /// A Ready that declares more work than an epoch can hold, or changes what was frozen (R31).
    #[error("bad ready: {0}")]
    Ready(ReadyFault),
    /// A certificate, receipt or Regroup that does not verify.
    #[error("bad certificate: {0}")]
    Certificate(CertificateFault),
    /// A request or an answer that no honest peer sends.
    #[error("bad answer: {0}")]
    Answer(AnswerFault),
    /// A frame that does not belong where it arrived, or whose bytes do not match its header (R31).
    #[error("bad frame: {0}")]
    Frame(FrameFault),
}

/// A roster breaks a rule that its proposer could check. What depends on the peers that only the
/// acceptor has heard is a [`Refusal`](crate::message::Refusal), and no fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[expect(missing_docs, reason = "the text of each says it")]
pub enum RosterFault {
    #[error("keeps chunks at attempt 1, or where it adopts a value")]
    NothingToKeep,
    #[error("keeps too many chunks")]
    ManyChunks,
    #[error("keeps blocks that the fragment does not have")]
    KeptBlocks,
    #[error("keeps a chunk and names no holder of it, or too many")]
    NoHolder,
    #[error("names one earlier ring twice")]
    RingTwice,
    #[error("keeps a chunk twice")]
    ChunkTwice,
    #[error("keeps a chunk that its ring does not have")]
    NoSuchChunk,
    #[error("keeps a block twice")]
    BlockTwice,
    #[error("keeps a chunk without a valid seal of its owner")]
    Unsealed,
    #[error("keeps chunks of a ring that never opened")]
    NeverOpened,
    #[error("the proposer is not its author")]
    NotItsAuthor,
    #[error("the proposer is not a member")]
    NoMember,
    #[error("the attempt is out of range")]
    Attempt,
    #[error("the attempt belongs to another voter")]
    NotItsAttempt,
    #[error("its proposer has signed two rosters of one attempt")]
    TwoOfOneAttempt,
    #[error("names a peer without a vote among the voters heard")]
    HeardNoVoter,
    #[error("names more voters heard than there are")]
    HeardMany,
    #[error("has too many members")]
    ManyMembers,
    #[error("names a member twice")]
    MemberTwice,
    #[error("a member without a vote has weight 0")]
    IdleNoVoter,
    #[error("a weight that nobody declared")]
    Undeclared,
    #[error("no member has a weight above 0")]
    RingOfNobody,
    #[error("the voters heard are no majority")]
    NoMajority,
    #[error("adopts the value of another epoch")]
    OtherEpoch,
    #[error("shows a vote that no voter can have given")]
    ImpossibleVote,
    #[error("shows a Status that its author has not signed")]
    UnsignedStatus,
    #[error("its value is not the one that a Regroup forces")]
    NotForced,
    #[error("its value is not that of the highest vote in it")]
    NotTheHighest,
    #[error("names too many newcomers")]
    ManyNewcomers,
    #[error("its first member is a newcomer")]
    NewcomerFirst,
    #[error(transparent)]
    Value(#[from] ValueFault),
    #[error(transparent)]
    Access(#[from] AccessFault),
}

/// A vote that no honest voter gives (R5, R8, R11, G14).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[expect(missing_docs, reason = "the text of each says it")]
pub enum DoneFault {
    #[error("a vote that no voter can have given")]
    Impossible,
    #[error("a value that its roster cannot have")]
    OtherValue,
    #[error("two values for one roster")]
    TwoValues,
    #[error("votes twice at one attempt")]
    TwoVotes,
    #[error("says that it holds two values of one roster")]
    HoldsTwo,
    #[error("accepts two rosters of one attempt")]
    AcceptsTwo,
    #[error("a Status that hides a vote of its author")]
    Hidden,
    #[error("a vote without the proof that it was allowed")]
    NoGround,
}

/// A Ready that no honest peer sends (R31).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[expect(missing_docs, reason = "the text of each says it")]
pub enum ReadyFault {
    #[error("the weight is 0, or more than an epoch can hold")]
    Weight,
    #[error("it changes a weight that was frozen")]
    Changed,
}

/// A certificate, receipt or Regroup that proves nothing (R12–R15).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[expect(missing_docs, reason = "the text of each says it")]
pub enum CertificateFault {
    #[error("a roster of another series")]
    OtherSeries,
    #[error("a receipt of another epoch")]
    OtherEpoch,
    #[error("a receipt of another roster")]
    OtherRoster,
    #[error("two votes of one voter")]
    TwoVotes,
    #[error("the signatures are no quorum of the voters")]
    NoQuorum,
    #[error("a signature of a vote does not verify")]
    UnsignedVotes,
    #[error("a Regroup in a run whose quorum forbids it")]
    Forbidden,
    #[error("a Regroup without members")]
    RegroupOfNobody,
    #[error("a Regroup with too many members")]
    RegroupOfTooMany,
    #[error("a Regroup that names a member twice")]
    RegroupNamesTwice,
    #[error("founded by fewer peers than the run requires")]
    TooFewFounders,
    #[error("a Regroup that names a peer without a vote")]
    RegroupOfNoVoter,
    #[error("a Regroup that does not list every absent voter")]
    HidesAbsent,
    #[error("a Regroup without a series before it")]
    RegroupOfNoSeries,
    #[error("a Regroup of another series")]
    RegroupOfOtherSeries,
    #[error("not exactly one Join of each member")]
    JoinsMissing,
    #[error("a Regroup that a member has not joined")]
    NotJoined,
    #[error("a vote without the proof that it was allowed")]
    NoGround,
    #[error("a Regroup that names another peer as its proposer")]
    NotItsAuthor,
    #[error("a Join with a vote that no voter can have given")]
    ImpossibleVote,
    #[error("two Joins for one Regroup")]
    TwoJoins,
    #[error("a Join that hides a vote of its author")]
    HidesVote,
    #[error("the sum of its tokens overflows")]
    TooManyTokens,
    #[error("a notice that the organiser has not signed")]
    UnsignedNotice,
    #[error(transparent)]
    Value(#[from] ValueFault),
    #[error(transparent)]
    Access(#[from] AccessFault),
}

/// A value that no epoch can have: its parts, and the sums of its ring and of each part (G11, R31).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[expect(missing_docs, reason = "the text of each says it")]
pub enum ValueFault {
    #[error("more parts than rings have chunks")]
    ManyParts,
    #[error("a part with no members, or too many")]
    PartOfNobody,
    #[error("a part that names a member twice")]
    PartNamesTwice,
    #[error("a part with a member of weight 0")]
    PartWithoutWeight,
    #[error("a part without blocks, or with blocks that the fragment does not have")]
    PartBlocks,
    #[error("two parts share a block")]
    BlockOfTwoParts,
    #[error("its parts leave no block to compute")]
    NothingLeft,
    #[error("a sum of too many members")]
    SumOfTooMany,
    #[error("a sum that names a peer twice")]
    SumNamesTwice,
    #[error("a sum without members")]
    SumOfNobody,
    #[error("a weight that no epoch can hold")]
    TooHeavy,
    #[error("two different weights for one delta")]
    TwoWeights,
    #[error("a sum of weights that overflows")]
    SumTooGreat,
}

/// What no roster, receipt or Regroup may say about admission (T2, T6, T7, T9). None of these
/// depends on a clock: two honest peers may disagree whether a ticket has expired, so that is only
/// refused (T4).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[expect(missing_docs, reason = "the text of each says it")]
pub enum AccessFault {
    #[error("tickets or notices in an open run")]
    OpenToAll,
    #[error("a trust part without tickets and notices")]
    Empty,
    #[error("too many tickets")]
    ManyTickets,
    #[error("too many notices")]
    ManyNotices,
    #[error("a trust part that is too long")]
    TooLong,
    #[error("tickets out of order, or two for one peer")]
    TicketOrder,
    #[error("a ticket of a peer that is admitted already")]
    TicketOfWhoIsIn,
    #[error("a ticket of a peer that is not a member")]
    TicketOfNoMember,
    #[error("a notice that is not the next one, or not signed by the organiser")]
    Notice,
    #[error("a ticket that does not admit its peer")]
    Ticket,
    #[error("a member that is not admitted")]
    NotAdmitted,
    #[error("a receipt that leaves no voter")]
    NoVoterLeft,
    #[error("keeps a contribution of a revoked peer")]
    RevokedShare,
    #[error("notices together with an adopted value")]
    NoticesBesideValue,
    #[error("calls a voter revoked in an open run")]
    RevokesInOpenRun,
    #[error("a Regroup that names a peer which is not admitted")]
    RegroupOfStranger,
    #[error("calls a voter revoked that is not")]
    NotRevoked,
}

/// A request or an answer that no honest peer sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[expect(missing_docs, reason = "the text of each says it")]
pub enum AnswerFault {
    #[error("more chunks than rings have")]
    ManyChunks,
    #[error("a chain out of order")]
    ChainOrder,
    #[error("answers another question")]
    OtherQuestion,
    #[error("its links do not lead to the head that it announced")]
    HeadNotReached,
    #[error("sent bytes whose digest is not the one requested")]
    OtherBytes,
    #[error("sent more bytes than the part requested has")]
    Endless,
    #[error("sent more bytes than the file has")]
    TooMuch,
    #[error("sent a part of the wrong length")]
    Length,
    #[error("sent another piece than the one requested")]
    OtherPiece,
}

/// A frame of a ring that does not belong where it arrived, or does not match its header (R30,
/// R31). The predecessor in the ring is blamed: it sends frames in order, and checks a seal before
/// it passes it on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[expect(missing_docs, reason = "the text of each says it")]
pub enum FrameFault {
    #[error("a seal where a frame is due")]
    SealAsFrame,
    #[error("the payload does not have the length of the frame")]
    Length,
    #[error("a sum of the chunk that starts at this peer")]
    OwnSum,
    #[error("a sum that is not the next of its chunk")]
    SumOrder,
    #[error("a finished frame of the chunk that this peer finishes")]
    OwnChunk,
    #[error("a finished frame that is not the next of its chunk")]
    FinishedOrder,
    #[error("a finished frame whose sum has not passed this peer")]
    TooEarly,
    #[error("a seal of a chunk that the ring does not have")]
    SealOfNoChunk,
    #[error("a seal that is not due")]
    SealNotDue,
    #[error("a seal before the last frame of its chunk")]
    SealTooEarly,
    #[error("a seal that does not match the chunk that came with it")]
    SealOfOtherChunk,
    #[error("a seal that the owner of the chunk did not sign")]
    SealOfOther,
    #[error("a chunk that the ring does not have")]
    NoSuchChunk,
    #[error("a frame that its chunk does not have")]
    NoSuchFrame,
    #[error("a header that is impossible")]
    Header,
    #[error("a payload that its header does not announce")]
    Payload,
    #[error("a seal of the wrong length")]
    SealLength,
    #[error("a frame that does not decode")]
    Undecodable,
}
