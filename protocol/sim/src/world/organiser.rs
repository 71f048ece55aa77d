//! The organiser of a drawn run: now and then it attests a state that some peer has, or revokes a
//! peer. In classes where peers may lose all their data, most peers must have the attested state: a
//! peer that starts without data would otherwise wait for it forever.
//!
//! It is a person outside of the run: it sees the state of every process, signs with its real key,
//! and brings a notice to one host. The peers gossip it from there. Its notices are one chain, each
//! after the one before, whether or not that has reached anybody.

use std::collections::VecDeque;

use super::{Count, Head, Notice, Rng, World, wire};
use crate::script::organiser;
use intellect_protocol::base::id::Digest;
use intellect_protocol::message::{Attestation, Body, Clause};

/// When it attests or revokes, in milliseconds from the start of the run: while faults strike. What
/// is due after the last fault is left out.
const FIRST_MS: u64 = 5_000;
/// The end of that time, in milliseconds from the start of the run.
const LAST_MS: u64 = 90_000;
/// The most states that it attests in one seed, and the most peers that it revokes.
const ACTS_MAX: u64 = 4;

impl World {
    /// In one seed of three the organiser attests up to four states. No other draw depends on this.
    pub(crate) fn draw_attestations(&mut self, seed: u64, by_most: bool) {
        let mut rng = Rng::new(seed ^ 0x0076_6f75_6368);
        self.script.attesting.by_most = by_most;
        if rng.below(3) == 0 {
            self.script.attesting.due = draw_due(&mut rng, self.hosts.len());
        }
    }

    /// Attests a state if that is due. The hosts are asked in turn from the drawn one on, until one
    /// has a state that can be attested. If none has, this attestation is left out.
    pub(crate) fn attest_when_due(&mut self) {
        let due = &mut self.script.attesting.due;
        let Some((_, first)) = due.pop_front_if(|(at_ms, _)| *at_ms <= self.now_ms) else { return };
        let mut hosts = self.honest();
        hosts.sort_by_key(|host| *host < first);
        let found = hosts.into_iter().find_map(|host| self.attestation_of(host));
        let Some((host, notice)) = found else { return };
        self.bring_notice(host, &notice);
        self.report.count(Count::Attestations, 1);
        self.script.attesting.notices.push(notice);
    }

    /// An attestation of the epoch before a host's head, if enough of the others have that state
    /// too. `None` as well where the host does not know the two links, or the epoch is not above
    /// that of the last attestation (G11).
    fn attestation_of(&self, host: usize) -> Option<(usize, Notice)> {
        let peer = self.hosts[host].process.as_ref()?.holdings.peer();
        let epoch = peer.head().epoch.checked_sub(1)?;
        let (link, next) = (peer.link(epoch)?, peer.link(epoch + 1)?);
        let head = Head { epoch, tokens: 0, state: next.receipt.series.parent };
        let has = |other: &usize| {
            self.head(*other).is_some_and(|theirs| self.check.one_lineage(&theirs, &head))
                && self.head(*other).is_some_and(|theirs| theirs.epoch >= epoch)
        };
        let honest = self.honest();
        if self.script.attesting.by_most
            && 2 * honest.iter().filter(|other| has(other)).count() <= honest.len()
        {
            return None;
        }
        let r = wire::receipt_digest(&self.run, &link.receipt);
        let body = Body::Attestation(Attestation { epoch, state: head.state, r });
        let before = self.script.attesting.notices.last();
        let last = before.map_or((0, Digest::ZERO), Notice::place);
        let notice = Notice::after(self.run, last, body, &organiser());
        let rises = before.and_then(Notice::attests).is_none_or(|before| before.epoch < epoch);
        rises.then_some((host, notice))
    }

    /// The organiser revokes one to four of the first `peers` hosts. One may be drawn twice, and
    /// the second notice then changes nothing.
    pub(crate) fn draw_revocations(&mut self, seed: u64, peers: usize) {
        self.script.revoking.due = draw_due(&mut Rng::new(seed ^ 0x7265_766f_6b65), peers);
    }

    /// Revokes a peer if that is due. The notice reaches one host that runs, maybe the revoked one.
    pub(crate) fn revoke_when_due(&mut self) {
        let now_ms = self.now_ms;
        let due = self.script.revoking.due.pop_front_if(|(at_ms, _)| *at_ms <= now_ms);
        let Some((_, host)) = due else { return };
        let last = self.script.revoking.notices.last().map_or((0, Digest::ZERO), Notice::place);
        let clauses = vec![Clause::RevokePeer(self.hosts[host].name)];
        let notice = Notice::after(self.run, last, Body::Membership(clauses), &organiser());
        let running = self.running();
        if let Some(first) = self.rng.pick(&running).copied() {
            self.bring_notice(first, &notice);
        }
        self.script.revoking.notices.push(notice);
        self.script.revoking.revoked.insert(host);
        self.report.count(Count::Revocations, 1);
    }

    /// The organiser says once more what it has said, to all: the first that heard it may be dead.
    pub(crate) fn say_revocations(&mut self) {
        for notice in self.script.revoking.notices.clone() {
            for host in self.running() {
                self.bring_notice(host, &notice);
            }
        }
    }

    /// T5: whether all that the organiser has revoked is in force after this head. Only then is a
    /// run with revocations over.
    pub(crate) fn are_revoked(&self, head: &Head) -> bool {
        let (revoked, lineage) = (&self.script.revoking.revoked, &self.check.lineage);
        revoked.iter().all(|host| lineage.has_revoked(&head.state, &self.hosts[*host].name))
    }
}

/// When the organiser acts, the earliest first, each time with one of the first `hosts` hosts.
fn draw_due(rng: &mut Rng, hosts: usize) -> VecDeque<(u64, usize)> {
    let count = 1 + rng.below(ACTS_MAX);
    let mut draw = || {
        let host = usize::try_from(rng.below(hosts as u64)).unwrap_or(0);
        (FIRST_MS + rng.below(LAST_MS - FIRST_MS), host)
    };
    let mut due: Vec<(u64, usize)> = (0..count).map(|_| draw()).collect();
    due.sort_unstable();
    due.into()
}
