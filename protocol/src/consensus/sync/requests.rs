//! What questions to other peers have led to: whom to leave alone for a while, and which claimed
//! heads and states are not believed (R25, G12).

use std::collections::BTreeMap;
use std::time::Duration;

use crate::base::id::{Digest, PeerId};
use crate::base::rule::{Rule, Rules};
use crate::base::time::Time;
use crate::machine::step::Step;
use crate::message::Head;

use super::lineage::REMEMBERED_MAX;

/// A head, and the peer that claims it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    /// The peer whose heartbeat or answer named the head.
    pub(super) peer: PeerId,
    /// The head that it says it has; only its links prove that (R23).
    pub(super) head: Head,
}

/// What we remember of our questions to a peer.
#[derive(Clone, Copy, Debug)]
struct Request {
    /// The time until which it is not asked again.
    until: Time,
    /// Whether it did not answer, or did not show the head that it had claimed.
    failed: bool,
    /// How often that happened since its last useful answer.
    failures: u32,
}

/// Our questions, and what is ignored because of their answers.
#[derive(Clone, Debug, Default)]
pub(super) struct Requests {
    rules: Rules,
    asked: BTreeMap<PeerId, Request>,
    /// Heads that a peer has claimed and that are not followed, and until when.
    ignored: BTreeMap<(PeerId, Digest), Time>,
    /// States after a receipt that nobody serves (R25), and until when.
    unserved: BTreeMap<(Digest, Digest), Time>,
}

/// The shortest interval between questions to one peer.
pub(super) const ASK_INTERVAL: Duration = Duration::from_secs(1);

impl Requests {
    pub(super) fn new(rules: Rules) -> Self {
        Self { rules, ..Self::default() }
    }

    /// Notes that a peer is asked now.
    pub(super) fn note(&mut self, step: &Step<'_>, peer: PeerId) {
        let (until, failures) = (step.now + ASK_INTERVAL, self.failures(&peer));
        self.asked.insert(peer, Request { until, failed: false, failures });
    }

    /// Notes that a question to a peer led nowhere: it is left alone for a while, and asked after
    /// others.
    pub(super) fn note_failure(&mut self, step: &Step<'_>, peer: PeerId) {
        let until = step.now + step.table.grace;
        let failures = self.failures(&peer).saturating_add(1);
        self.asked.insert(peer, Request { until, failed: true, failures });
    }

    /// R25: notes that an answer does not lead to the head that its author claimed, which is ignored
    /// for a while.
    pub(super) fn note_misleading(&mut self, step: &Step<'_>, claim: Claim) {
        self.note_failure(step, claim.peer);
        self.ignore(claim, step.now + step.table.grace);
    }

    /// Ignores a head for good, after a question that led to it.
    pub(super) fn refuse(&mut self, step: &Step<'_>, claim: Claim) {
        self.note_failure(step, claim.peer);
        self.ignore(claim, Time(u64::MAX));
    }

    /// Notes that an answer of this peer was useful.
    pub(super) fn note_useful(&mut self, peer: &PeerId) {
        self.asked.entry(*peer).and_modify(|request| request.failures = 0);
    }

    /// Whether it was asked within [`ASK_INTERVAL`], or led nowhere within the last grace.
    pub(super) fn asked_lately(&self, step: &Step<'_>, peer: &PeerId) -> bool {
        self.asked.get(peer).is_some_and(|request| step.now < request.until)
    }

    /// Whether a question to this peer led nowhere lately.
    pub(super) fn failed_lately(&self, step: &Step<'_>, peer: &PeerId) -> bool {
        self.asked.get(peer).is_some_and(|request| request.failed && step.now < request.until)
    }

    /// How many questions this peer has wasted since it was last useful.
    pub(super) fn failures(&self, peer: &PeerId) -> u32 {
        self.asked.get(peer).map_or(0, |request| request.failures)
    }

    /// Forgets what is over. Failures of a peer are remembered as long as it is alive.
    pub(super) fn forget(&mut self, step: &Step<'_>) {
        let stays = |peer: &PeerId, request: &mut Request| {
            step.now < request.until || (request.failures > 0 && step.table.alive(peer, step.now))
        };
        self.asked.retain(stays);
        let pairs = self.rules.keeps(Rule::G12);
        let stays = |peer: &PeerId| !pairs || step.table.alive(peer, step.now);
        self.ignored.retain(|(peer, _), until| *until > step.now && stays(peer));
        self.unserved.retain(|_, until| *until > step.now);
    }

    /// G12: what one peer says of a head is no reason not to believe another one.
    pub(super) fn ignore(&mut self, claim: Claim, until: Time) {
        if self.ignored.len() < REMEMBERED_MAX {
            self.ignored.insert(self.pair(claim), until);
        }
    }

    /// Until when a claimed head is ignored, if it is.
    pub(super) fn ignored(&self, claim: Claim) -> Option<Time> {
        self.ignored.get(&self.pair(claim)).copied()
    }

    /// Under which name a claimed head is ignored: for its peer alone.
    fn pair(&self, Claim { peer, head }: Claim) -> (PeerId, Digest) {
        (if self.rules.keeps(Rule::G12) { peer } else { PeerId([0; 32]) }, head.state)
    }

    /// When the next of the heads is ignored no more.
    pub(super) fn deadline(&self, step: &Step<'_>) -> Option<Time> {
        self.ignored.values().filter(|until| **until > step.now).min().copied()
    }

    /// Looks again at all heads that were ignored.
    pub(super) fn ignore_none(&mut self) {
        self.ignored.clear();
    }

    /// Notes that nobody serves the state after a receipt.
    pub(super) fn note_unserved(&mut self, state: Digest, r: Digest, until: Time) {
        if self.unserved.len() < REMEMBERED_MAX {
            self.unserved.insert((state, r), until);
        }
    }

    /// Whether nobody served the state after this receipt lately.
    pub(super) fn is_unserved(&self, state: Digest, r: Digest) -> bool {
        self.unserved.contains_key(&(state, r))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::table::PeerTable;

    fn claim(peer: u8) -> Claim {
        let head = Head { epoch: 3, tokens: 9, state: Digest([7; 32]) };
        Claim { peer: PeerId([peer; 32]), head }
    }

    #[test]
    fn g12_a_false_claim_counts_against_its_author_only() {
        let table = PeerTable::new(Duration::from_secs(1), Duration::from_secs(8));
        let at = |s: u64| Time::ZERO + Duration::from_secs(s);
        let misled = |rules: Rules| {
            let mut requests = Requests::new(rules);
            let step = Step { now: at(0), table: &table, out: &mut Vec::new() };
            requests.note_misleading(&step, claim(1));
            requests
        };
        let mut requests = misled(Rules::ALL);
        assert!(requests.ignored(claim(1)) == Some(at(8)) && requests.ignored(claim(2)).is_none());
        assert!(misled(Rules::without(Some(Rule::G12))).ignored(claim(2)).is_some());
        let (one, two) = (claim(1).peer, claim(2).peer);
        assert_eq!([one, two].map(|peer| requests.failures(&peer)), [1, 0]);
        // Nobody in the table is alive, so nothing is remembered longer than it is in force.
        requests.forget(&Step { now: at(8), table: &table, out: &mut Vec::new() });
        assert!(requests.ignored(claim(1)).is_none() && requests.failures(&one) == 0);
    }
}
