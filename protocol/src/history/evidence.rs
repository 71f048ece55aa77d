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
use crate::message::{Heard, Link, Message, Ranked, Roster, Series, Status, Voter, wire};

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

/// What the signatures in two links of one epoch prove, once for each author.
pub(crate) fn between(validator: &Validator, links: [&Link; 2]) -> Vec<(Fault, Evidence)> {
    let rosters = links.map(|link| &link.certificate.roster);
    let rosters: BTreeMap<Digest, &Roster> =
        rosters.into_iter().map(|r| (wire::roster_digest(&validator.run, r), r)).collect();
    let [ours, theirs] = links.map(|link| said(validator, link));
    let found = ours.iter().filter_map(|(author, ours)| {
        let theirs = theirs.get(author)?;
        let mut pairs = ours.iter().flat_map(|one| theirs.iter().map(move |other| (one, other)));
        pairs.find_map(|((one, by), (other, signature))| {
            let fault = contradiction(*author, [one, other], &rosters)?;
            let named = [one, other].into_iter().filter_map(|message| match message {
                Message::Done(done) => rosters.get(&done.roster),
                _ => None,
            });
            let named = named.map(|roster| Arc::new(Roster::clone(roster))).collect();
            let message = validator.verified(*author, other.clone(), *signature)?;
            let evidence = Evidence::new(validator, (one.clone(), *by), &message, named)?;
            Some((fault, evidence))
        })
    });
    found.collect()
}

/// The votes, the Statuses and the Joins in a link, by author. Their signatures are not checked.
fn said(validator: &Validator, link: &Link) -> BTreeMap<PeerId, Vec<(Message, Signature)>> {
    let roster = &link.certificate.roster;
    let done = Message::Done(validator.done(roster, &link.receipt));
    let dones = link.certificate.dones.iter().map(|(peer, by)| (*peer, done.clone(), *by));
    let statuses = roster.heard.iter().map(|heard| {
        (heard.voter.peer, status(roster.series, roster.attempt, heard), heard.signature)
    });
    let joins = link.openings.iter().flat_map(|opening| &opening.joins);
    let joins = joins.map(|(peer, join, by)| (*peer, Message::Join(join.clone()), *by));
    let mut said: BTreeMap<PeerId, Vec<(Message, Signature)>> = BTreeMap::new();
    for (peer, message, by) in dones.chain(statuses).chain(joins) {
        said.entry(peer).or_default().push((message, by));
    }
    said
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::admit::Level;
    use crate::base::id::LogId;
    use crate::base::rule::Rules;
    use crate::base::sign::Keypair;
    use crate::history::lineage::Capacity;
    use crate::message::{Certificate, Join, Member, Opening, QuorumRule, Regroup};

    const RUN: RunId = RunId([1; 32]);
    const SERIES: Series = Series { epoch: 2, parent: Digest([2; 32]), regroup: None };
    const HIDDEN: Fault = Fault::Done(DoneFault::Hidden);

    fn key(name: u8) -> Keypair {
        Keypair::from_seed(&[name; 32])
    }

    fn validator() -> Validator {
        Validator {
            run: RUN,
            key: key(9),
            peers_min: 2,
            quorum: QuorumRule::Available,
            elements: 1,
            capacity: Capacity::Counted(100),
            level: Level::Open,
            organiser: key(9).peer(),
            rules: Rules::ALL,
        }
    }

    fn sign(name: u8, message: Message) -> Signature {
        wire::seal(&key(name), &RUN, message).signature()
    }

    /// A link of the three voters 1, 2 and 3, for which these have voted at that attempt.
    fn link(attempt: u64, heard: Vec<Heard>, voted: &[u8]) -> Link {
        let member = |name| {
            let (peer, log) = (key(name).peer(), LogId([name; 16]));
            Member { peer, log, incarnation: 1, weight: 10 }
        };
        let (members, proposer) = ([1, 2, 3].map(member).to_vec(), key(1).peer());
        let (series, adopt, trust, keep) = (SERIES, None, None, Vec::new());
        let roster = Roster { series, attempt, proposer, members, heard, adopt, trust, keep };
        let receipt = roster.receipt(Digest([7; 32]));
        let done = Message::Done(validator().done(&roster, &receipt));
        let dones = voted.iter().map(|name| (key(*name).peer(), sign(*name, done.clone())));
        let certificate = Certificate { dones: dones.collect(), roster };
        Link { receipt, certificate, openings: Vec::new() }
    }

    /// What voter 3 answers for attempt 2, by this log.
    fn heard(log: u8, done: Option<Ranked>) -> Heard {
        let (peer, log, holds_forced) = (key(3).peer(), LogId([log; 16]), false);
        let status = Status { series: SERIES, log, attempt: 2, done, holds_forced };
        let signature = sign(3, Message::Status(status));
        Heard { voter: Voter { peer, log }, done, holds_forced, signature }
    }

    /// The Join of voter 3 to a Regroup of its own.
    fn join(done: Option<Ranked>) -> Join {
        Join { series: SERIES, regroup: Digest([5; 32]), log: LogId([3; 16]), done }
    }

    /// What two links prove of whom. Each proof is read back from the bytes that are written down.
    fn named(links: [&Link; 2]) -> Vec<(PeerId, Fault)> {
        let bytes = |hex: &String| -> Vec<u8> {
            let digits = |at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap();
            (0..hex.len() / 2).map(digits).collect()
        };
        let read = |(fault, evidence): (Fault, Evidence)| {
            let pieces: Vec<Vec<u8>> = evidence.pieces().unwrap().iter().map(bytes).collect();
            let open = |at: usize| {
                Arc::new(wire::open(&RUN, &pieces[at], wire::DIRECT_BYTES_MAX).unwrap())
            };
            let rosters = pieces[2..].iter().map(|roster| wire::from_canonical(roster).unwrap());
            let rosters = rosters.map(Arc::new).collect();
            let evidence = Evidence { messages: [open(0), open(1)], rosters };
            assert_eq!(evidence.fault(&RUN), Some(fault));
            (evidence.author(), fault)
        };
        between(&validator(), links).into_iter().map(read).collect()
    }

    #[test]
    fn r26_a_status_that_hides_a_vote_names_its_author_and_no_other_voter() {
        let first = link(1, Vec::new(), &[1, 2, 3]);
        let r = wire::receipt_digest(&RUN, &first.receipt);
        let vote = |r| Some(Ranked { depth: 0, attempt: 1, r });
        for (done, lies) in [(None, true), (vote(Digest([8; 32])), true), (vote(r), false)] {
            let second = link(2, vec![heard(3, done)], &[2, 3]);
            let liars = if lies { vec![(key(3).peer(), HIDDEN)] } else { Vec::new() };
            assert_eq!(named([&first, &second]), liars, "{done:?}");
            assert_eq!(named([&second, &first]), liars, "{done:?}");
        }
        // What the peer says by another log, what it has not signed, and a vote that came later.
        let forged = Heard { signature: Signature([7; 64]), ..heard(3, None) };
        for heard in [heard(4, None), forged] {
            assert!(named([&first, &link(2, vec![heard], &[2, 3])]).is_empty());
        }
        let later = link(2, Vec::new(), &[3]);
        assert!(named([&later, &link(2, vec![heard(3, None)], &[])]).is_empty());
    }

    #[test]
    fn r26_two_votes_at_one_attempt_and_a_join_that_hides_one_name_their_author() {
        let first = link(1, Vec::new(), &[1, 3]);
        let other = link(1, vec![heard(3, None)], &[2, 3]);
        let twice = Fault::Done(DoneFault::TwoVotes);
        assert_eq!(named([&first, &other]), [(key(3).peer(), twice)]);
        let r = wire::receipt_digest(&RUN, &first.receipt);
        let hides = Fault::Certificate(CertificateFault::HidesVote);
        let named_by = |done: Option<Ranked>| {
            let (series, number, proposer, trust) = (SERIES, 1, key(3).peer(), None);
            let (members, absent) = (Vec::new(), Vec::new());
            let regroup = Regroup { series, number, proposer, members, absent, trust };
            let joins = vec![(proposer, join(done), sign(3, Message::Join(join(done))))];
            let openings = vec![Opening { regroup, joins, ground: None }];
            named([&first, &Link { openings, ..link(1, Vec::new(), &[]) }])
        };
        assert_eq!(named_by(None), [(key(3).peer(), hides)]);
        for (attempt, r) in [(1, r), (4, Digest([8; 32]))] {
            assert!(named_by(Some(Ranked { depth: 0, attempt, r })).is_empty());
        }
    }
}
