//! Evidence: two messages of one author that no honest peer signs both, for everybody to verify.
//!
//! A voter in both certificates of one epoch may be honest: votes for two values at two attempts are
//! lawful (R8). So only two signatures of one key in one series are compared, and only where the log
//! of an honest voter forbids the second one (`contradiction`).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::fault::{CertificateFault, DoneFault, Fault, RosterFault};
use crate::base::id::{Digest, PeerId, RunId, hex};
use crate::base::sign::{Signature, Verified};
use crate::history::lineage::Validator;
use crate::message::{Heard, Message, Ranked, Roster, Series, Status, Voter, wire};

/// Two messages of one author that contradict each other.
#[derive(Clone, Debug)]
pub struct Evidence {
    /// The messages, as their author signed them.
    pub messages: [Arc<Verified<Message>>; 2],
    /// The rosters that they name by digest, where it matters at which attempt that was.
    pub rosters: Vec<Arc<Roster>>,
}

/// The longest evidence that is written down, in bytes: in hex it still fits into a line of events.
const BYTES_MAX: usize = 120 << 10;

impl Evidence {
    /// `message`, and another one of its author of which body and signature are kept. `None` if the
    /// signature is not valid, or if the two prove nothing.
    pub(crate) fn new(
        validator: &Validator,
        (other, signature): (Message, Signature),
        message: &Arc<Verified<Message>>,
        rosters: Vec<Arc<Roster>>,
    ) -> Option<Self> {
        let other = validator.verified(message.author(), other, signature)?;
        let evidence = Self { messages: [other, Arc::clone(message)], rosters };
        evidence.fault(&validator.run).is_some().then_some(evidence)
    }

    /// The peer that signed both messages.
    #[must_use]
    pub fn author(&self) -> PeerId {
        self.messages[0].author()
    }

    /// What it proves against its author; `None` if that is nothing.
    #[must_use]
    pub fn fault(&self, run: &RunId) -> Option<Fault> {
        let [one, other] = &self.messages;
        if one.author() != other.author() {
            return None;
        }
        let rosters: BTreeMap<Digest, &Roster> =
            self.rosters.iter().map(|r| (wire::roster_digest(run, r), &**r)).collect();
        contradiction(one.author(), [one.body(), other.body()], &rosters)
    }

    /// What others need to verify it, in hex: the envelope of each message, then the canonical bytes
    /// of each roster. `None` if it is too long.
    #[must_use]
    pub fn pieces(&self) -> Option<Vec<String>> {
        let envelopes = self.messages.iter().map(|message| wire::envelope(message));
        let rosters = self.rosters.iter().map(|roster| wire::canonical::<Roster>(roster));
        let pieces: Vec<Vec<u8>> = envelopes.chain(rosters).collect();
        let bytes: usize = pieces.iter().map(Vec::len).sum();
        (bytes <= BYTES_MAX).then(|| pieces.iter().map(|piece| hex(piece)).collect())
    }
}

/// The Status that a roster of this series and attempt shows, as its author signed it (G14).
pub(crate) fn status(series: Series, attempt: u64, heard: &Heard) -> Message {
    let Heard { voter, done, holds_forced, .. } = *heard;
    Message::Status(Status { series, log: voter.log, attempt, done, holds_forced })
}

/// The series and the attempt of a roster, and the log and the start by which it names a peer.
pub(crate) fn start_of(roster: &Roster, peer: &PeerId) -> Option<(Series, u64, Voter, u64)> {
    let member = roster.member(peer)?;
    Some((roster.series, roster.attempt, member.voter(), member.incarnation))
}

/// What two messages of one author prove against it; `None` if an honest peer can have signed both.
///
/// An honest voter signs nothing before its log has it, and the log binds it after every restart
/// (R1, R20). So it does not matter which messages are lost, or in which order they arrive. The log
/// allows one roster, one value and one vote at each attempt (R3, R5, R11). After a Status it allows
/// no vote at a lower attempt, and after a Join none in the series that was left (R2, R13). So a
/// Status names the last vote of its author below its attempt, and a Join the last one in its
/// series. Votes at two attempts contradict nothing. A peer that lost its log is another voter
/// (R19): where a message names no log, the roster does, and nobody accepts a roster that names
/// another log for it. Two Accepts, or two votes, must be of one start too (R2).
fn contradiction(
    author: PeerId,
    [one, other]: [&Message; 2],
    rosters: &BTreeMap<Digest, &Roster>,
) -> Option<Fault> {
    if one == other || one.series() != other.series() {
        return None;
    }
    let started = |digest: &Digest| start_of(rosters.get(digest)?, &author);
    let one_start = |a: &Digest, b: &Digest| started(a).is_some() && started(a) == started(b);
    let denies = |said: Option<Ranked>, attempt: u64, r: Digest| {
        said.is_none_or(|vote| vote.attempt < attempt || vote.attempt == attempt && vote.r != r)
    };
    match (one, other) {
        (Message::Roster(a), Message::Roster(b)) => {
            let proposes = a.proposer == author && b.proposer == author;
            let [one, other] = [a, b].map(|roster| start_of(roster, &author));
            let twice = proposes && one.is_some() && one == other;
            twice.then_some(Fault::Roster(RosterFault::TwoOfOneAttempt))
        }
        (Message::Accept(a), Message::Accept(b)) => {
            one_start(&a.roster, &b.roster).then_some(Fault::Done(DoneFault::AcceptsTwo))
        }
        (Message::Prepared(a), Message::Prepared(b)) => {
            (a.roster == b.roster).then_some(Fault::Done(DoneFault::HoldsTwo))
        }
        (Message::Done(a), Message::Done(b)) if a.roster == b.roster => {
            Some(Fault::Done(DoneFault::TwoValues))
        }
        (Message::Done(a), Message::Done(b)) => {
            one_start(&a.roster, &b.roster).then_some(Fault::Done(DoneFault::TwoVotes))
        }
        (Message::Done(done), Message::Status(status))
        | (Message::Status(status), Message::Done(done)) => {
            let (_, attempt, voter, _) = started(&done.roster)?;
            let later = status.log == voter.log && attempt < status.attempt;
            let hides = later && denies(status.done, attempt, done.r);
            hides.then_some(Fault::Done(DoneFault::Hidden))
        }
        (Message::Done(done), Message::Join(join)) | (Message::Join(join), Message::Done(done)) => {
            let (_, attempt, voter, _) = started(&done.roster)?;
            let hides = join.log == voter.log && denies(join.done, attempt, done.r);
            hides.then_some(Fault::Certificate(CertificateFault::HidesVote))
        }
        (Message::Join(a), Message::Join(b)) => ((a.regroup, a.log) == (b.regroup, b.log))
            .then_some(Fault::Certificate(CertificateFault::TwoJoins)),
        _ => None,
    }
}
