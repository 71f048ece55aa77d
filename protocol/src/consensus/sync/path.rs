//! A verified greater head, and what lies between it and ours (R25, R28).
//!
//! It lives until the head is reached or given up. A short path is replayed, update after update.
//! For another one the links that no longer fit in memory are fetched again (`copy`), and then the
//! checkpoint.

use std::collections::VecDeque;

use crate::base::blocks::Blocks;
use crate::base::id::{Digest, PeerId};
use crate::base::time::Time;
use crate::history::log::Record;
use crate::machine::output::{Output, Replayed};
use crate::machine::step::Step;
use crate::machine::table::PeerRecord;
use crate::message::{Link, Rank, Receipt, wire};

use super::candidate::{Candidate, RATE_MIN};
use super::forkable::Forkable;
use super::lineage::{Entry, Lineage};
use super::requests::Claim;

/// The path to a head whose links are all verified.
#[derive(Clone, Debug)]
pub(super) struct Path {
    /// The head, and the peer that claimed it, and when.
    pub(super) claim: Claim,
    claimed: Time,
    /// The rank of the head, as its links prove.
    rank: Rank,
    /// The last epoch that both lineages have.
    pub(super) base: u64,
    /// The epochs after it that are not taken yet.
    pub(super) entries: VecDeque<Entry>,
    /// The links of the last of these epochs: of all, except for a very long path.
    pub(super) links: VecDeque<Link>,
    /// Receipts that admit a peer or carry a notice.
    pub(super) admitting: Vec<Receipt>,
    /// How many of the other links were fetched again, and are in the log.
    pub(super) copied: usize,
    /// Bytes of these links, counted since the claim.
    came: u64,
    /// The voters that those links left behind (R14).
    pub(super) away: Forkable,
    /// The blocks in which they have spent what is unspent here (R27, R34).
    pub(super) spent: Blocks,
}

/// Graces for which the links that are fetched again may come slowly; guess: a few donors in a row
/// can be silent, and the whole lineage would have to be verified anew.
const SLOW_GRACES: u32 = 4;

/// This many donors may all skip a state when they write checkpoints; guess.
const FEW_DONORS: usize = 3;

impl Path {
    /// The path of a candidate to the claimed head, which has this rank.
    pub(super) fn new(step: &Step<'_>, candidate: Candidate, rank: Rank) -> Self {
        let Candidate { claim, base, entries, links, admitting, spent, .. } = candidate;
        let (claimed, base, away) = (step.now, base.epoch, Forkable::default());
        let (copied, came) = (0, 0);
        Self { claim, claimed, rank, base, entries, links, admitting, copied, came, away, spent }
    }

    /// How many epochs have no link in memory.
    pub(super) fn without_link(&self) -> usize {
        self.entries.len().saturating_sub(self.links.len())
    }

    /// Whether a replay continues with this update.
    pub(super) fn needs(&self, update: &Digest) -> bool {
        self.links.front().is_some_and(|link| link.receipt.update == *update)
    }

    /// Whether it leads to a head that is greater than our head by the notices that are known now.
    pub(super) fn leads_on(&self, ours: &Lineage) -> bool {
        ours.is_greater(&ours.proven(self.base, &self.entries, &self.claim.head))
    }

    /// Begins the path at our head, which an earlier part of it has led to. What that part has spent
    /// is given up already; what is learnt from here on is not (S4).
    pub(super) fn begin_at_head(&mut self, ours: &Lineage) {
        self.base = ours.head.epoch;
        let spent = self.links.iter().map(|link| ours.spent_by(&link.receipt));
        self.spent = spent.fold(Blocks::default(), |all, spent| all.and(&spent));
    }

    /// R28: ends the path earlier: at the state of whose checkpoint a part is stored. Else at the
    /// newest one that a donor has on disk, since a state that is only in memory may be gone before
    /// it is fetched. The shorter path must still lead to a greater head than ours (S3).
    pub(super) fn shorten(&mut self, step: &Step<'_>, ours: &Lineage, partial: Option<Digest>) {
        let end = |state| Some(self.entries.iter().position(|entry| entry.state == state)? + 1);
        // The last link names the next voters, so it must be in memory.
        let has_link = |count: &usize| *count > self.without_link();
        let count = partial.and_then(end).filter(has_link);
        let count = count.or_else(|| self.count_served(step, ours)).filter(has_link);
        let last = |count: usize| Some((count, self.entries.get(count.checked_sub(1)?)?));
        let Some((count, entry)) = count.and_then(last) else { return };
        let head = entry.head(self.base.saturating_add(count as u64));
        let rank = ours.proven(self.base, &self.entries, &head);
        if ours.is_greater(&rank) {
            self.links.truncate(count.saturating_sub(self.without_link()));
            self.entries.truncate(count);
            (self.claim.head, self.rank) = (head, rank);
        }
    }

    /// How many epochs of the path lead to the newest checkpoint that a donor has on disk; `None`
    /// among many donors. Of these some write the target itself before it is asked for, while one
    /// alone may skip it.
    fn count_served(&self, step: &Step<'_>, ours: &Lineage) -> Option<usize> {
        let donors = self.serving(step, ours);
        if donors.len() > FEW_DONORS {
            return None;
        }
        let serves = |peer| step.table.peers.get(peer).map(|seen| seen.beat.serves);
        let newest = donors.iter().filter_map(serves).max()?.min(self.claim.head.epoch);
        usize::try_from(newest.checked_sub(self.base)?).ok()
    }

    /// The epoch of the next link that is no longer in memory and has to be fetched again; `None`
    /// if there is none.
    pub(super) fn next_to_copy(&self) -> Option<u64> {
        let next = self.base.saturating_add(self.copied as u64).saturating_add(1);
        (self.copied < self.without_link()).then_some(next)
    }

    /// Whether its links are fetched again so slowly that it is given up (G12).
    pub(super) fn is_slow(&self, step: &Step<'_>) -> bool {
        let length = step.now.since(self.claimed);
        let slow = self.came < length.as_secs().saturating_mul(RATE_MIN);
        slow && length >= SLOW_GRACES * step.table.grace
    }

    /// Logs links that were fetched again; their digests identify them. Returns whether any fits.
    pub(super) fn copy(&mut self, step: &mut Step<'_>, ours: &Lineage, links: &[Link]) -> bool {
        let before = self.copied;
        for link in links {
            let Some(epoch) = self.next_to_copy() else { break };
            let r = ours.digest(&link.receipt);
            let next = self.entries.get(self.copied).filter(|entry| entry.r == r);
            let Some(entry) = next else { break };
            step.put(Output::Log(Record::Decided { link: Box::new(link.clone()) }));
            step.put(Output::Log(Record::Committed { head: entry.head(epoch) }));
            self.away.note(ours, link);
            self.copied += 1;
            self.came = self.came.saturating_add(wire::length(link) as u64);
        }
        self.copied > before
    }

    /// The updates that lead to the head. Of the peers that may serve one, those of its ring come
    /// first: the others may have loaded a state that contains it, and each that does not have it
    /// costs a request.
    pub(super) fn updates(&self, step: &Step<'_>, ours: &Lineage) -> Vec<Replayed> {
        let serving = self.serving(step, ours);
        let update = |link: &Link| {
            let (receipt, mut donors) = (&link.receipt, serving.clone());
            donors.sort_by_key(|donor| !receipt.members.iter().any(|m| m.peer == *donor));
            Replayed { epoch: receipt.series.epoch, update: receipt.update, donors }
        };
        self.links.iter().map(update).collect()
    }

    /// The peers that may serve what leads to the head. First comes the peer that claimed it, until
    /// a later heartbeat shows another head; then live peers that are there, or have gone on from
    /// there. The order is that in which they are asked.
    pub(super) fn serving(&self, step: &Step<'_>, ours: &Lineage) -> Vec<PeerId> {
        let Claim { peer: from, head } = self.claim;
        let beyond = |seen: &PeerRecord| {
            seen.beat.head.epoch > head.epoch && ours.claimed_by(seen) > self.rank
        };
        // Its answer may arrive before its earlier heartbeats.
        let is_news = |seen: &PeerRecord| seen.heard > self.claimed + step.table.heartbeat;
        let serves = |peer: &PeerId, seen: &PeerRecord| {
            (*peer == from && !is_news(seen)) || seen.beat.head == head || beyond(seen)
        };
        let serving = step.table.live(step.now).filter(|(peer, seen)| serves(peer, seen));
        let key = |(p, seen): (&PeerId, &PeerRecord)| (*p != from, seen.beat.head != head, *p);
        let mut donors: Vec<(bool, bool, PeerId)> = serving.map(key).collect();
        donors.sort_unstable();
        donors.into_iter().map(|(.., peer)| peer).collect()
    }
}
