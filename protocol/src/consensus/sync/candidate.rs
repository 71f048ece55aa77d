//! Another lineage while it is verified, link by link: whatever its length, little of it is in
//! memory (G11, G12).
//!
//! Each link leaves an [`Entry`], and the last links themselves stay, as many as fit
//! [`LINKS_BYTES_MAX`]. A peer that follows a longer lineage fetches its earlier links again, and
//! knows them by their digests (`path`).

use std::collections::VecDeque;

use crate::base::blocks::Blocks;
use crate::base::fault::{CertificateFault, Fault};
use crate::base::id::Digest;
use crate::base::rule::Rule;
use crate::base::time::Time;
use crate::machine::step::Step;
use crate::message::{Head, Link, Receipt, Series, Voter, wire};

use super::interface::Open;
use super::lineage::{Entry, Lineage, NextEpoch};
use super::requests::Claim;

/// A lineage that is being verified, from a common epoch on.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    /// The claim because of which we asked. An answer may bring a newer head, which replaces it once
    /// the links lead there.
    pub(super) claim: Claim,
    /// The last common epoch. For a lineage that has diverged, it has the state that its author
    /// claims.
    pub(super) base: Head,
    /// Our own state after the base, if another one is claimed to follow from an equal receipt.
    pub(super) diverged: Option<Digest>,
    /// Whether a chain named this base: then the links that follow on it fit it.
    pub(super) by_chain: bool,
    /// One for each verified link. The state after the last one is not known.
    pub(super) entries: VecDeque<Entry>,
    /// The last of its links; older ones are dropped beyond [`LINKS_BYTES_MAX`].
    pub(super) links: VecDeque<Link>,
    /// Receipts that admit a peer or carry a notice; the organiser has signed these.
    pub(super) admitting: Vec<Receipt>,
    /// What the last link says of the epoch after it. `None` if the base's own link has to be
    /// fetched first, since it is no longer in memory.
    pub(super) next: Option<NextEpoch>,
    /// Whether it has a Regroup that ours has not.
    pub(super) is_regrouped: bool,
    /// The blocks in which it has spent what is unspent here.
    pub(super) spent: Blocks,
    /// Bytes of the links in memory.
    pub(super) bytes: usize,
    /// The voters of the common epoch that have signed none of its links yet, and how many have
    /// (G11).
    unsigned: Vec<Voter>,
    signed_count: usize,
    /// Bytes that have arrived in all, counted from `since` on. A lineage that arrives too slowly
    /// is given up ([`RATE_MIN`]).
    came: u64,
    since: Time,
}

/// Bytes of links in memory of another lineage, whatever its length (G12); one link more may be
/// there.
pub const LINKS_BYTES_MAX: usize = 16 << 20;

/// A peer that serves links more slowly than this, in bytes a second, counts as silent (G12).
pub(super) const RATE_MIN: u64 = 8_000;

impl Candidate {
    /// A lineage that follows on an epoch of ours; `None` if we have not reached that.
    pub(super) fn after(step: &Step<'_>, ours: &Lineage, epoch: u64, claim: Claim) -> Option<Self> {
        Some(Self {
            claim,
            base: ours.head_at(epoch)?,
            diverged: None,
            by_chain: false,
            entries: VecDeque::new(),
            links: VecDeque::new(),
            admitting: Vec::new(),
            next: ours.next_after(epoch),
            is_regrouped: false,
            spent: Blocks::default(),
            bytes: 0,
            unsigned: Vec::new(),
            signed_count: 0,
            came: 0,
            since: step.now,
        })
    }

    /// Whether a third of the voters of the common epoch have signed one of its links.
    pub(super) fn is_signed(&self) -> bool {
        self.signed_count > 0 && 2 * self.signed_count >= self.unsigned.len()
    }

    /// The last epoch that is proven.
    pub(super) fn reached(&self) -> u64 {
        self.base.epoch.saturating_add(self.entries.len() as u64)
    }

    /// Tokens committed up to that epoch.
    pub(super) fn tokens(&self) -> u64 {
        self.entries.back().map_or(self.base.tokens, |last| last.tokens)
    }

    /// Whether it arrives so slowly that another peer is asked. The rate is an average from the
    /// first question on; nobody is slow before a grace has passed.
    pub(super) fn is_slow(&self, step: &Step<'_>) -> bool {
        let length = step.now.since(self.since);
        length >= step.table.grace && self.came < length.as_secs().saturating_mul(RATE_MIN)
    }

    /// Links prove receipts, and the state before each; the state after the last one is only
    /// claimed. It is not followed if more of its voters claim another one.
    pub(super) fn is_outvoted(&self, step: &Step<'_>, target: &Head) -> bool {
        let voters = self.next.iter().flat_map(|next| &next.voters);
        let heads = voters.filter_map(|voter| step.table.peers.get(&voter.peer));
        let is_same = |head: &Head| (head.epoch, head.tokens) == (target.epoch, target.tokens);
        let same = heads.map(|seen| seen.beat.head).filter(is_same);
        let (for_it, against): (Vec<_>, Vec<_>) = same.partition(|head| head.state == target.state);
        against.len() > for_it.len()
    }

    /// Sets the state after the last link, which no link proves.
    pub(super) fn end_at(&mut self, state: Digest) {
        if let Some(last) = self.entries.back_mut() {
            last.state = state;
        }
    }

    /// Checks the next link, and adds it. A link that fails leaves the candidate as it was. The
    /// caller gives it up, with the fault of its author.
    pub(super) fn add(&mut self, ours: &Lineage, link: &Link, open: Open<'_>) -> Result<(), Fault> {
        let Some(next) = &self.next else { return Ok(()) };
        let validator = &ours.validator;
        let first = self.entries.is_empty();
        // The voters signed this; the first link is compared with the state of the base.
        let epoch = self.reached().saturating_add(1);
        let parent = if first { self.base.state } else { link.receipt.series.parent };
        let most = validator.capacity.weight_max(next.median);
        let weight_max = if validator.keeps(Rule::G11) { most } else { u64::MAX };
        let series = Series { epoch, parent, regroup: None };
        validator.check_link(series, &next.voters, next.ledger.as_ref(), weight_max, link)?;
        let ledger = next.ledger.as_ref().map(|ledger| ledger.after(&link.receipt));
        let tokens = self.tokens().checked_add(link.receipt.tokens());
        let tokens = tokens.ok_or(Fault::Certificate(CertificateFault::TooManyTokens))?;
        if first {
            self.unsigned.clone_from(&next.voters);
        }
        if !self.is_signed() {
            let unsigned = self.unsigned.len();
            self.unsigned.retain(|voter| !validator.has_signed(voter, link));
            self.signed_count += unsigned - self.unsigned.len();
        }
        let mine = ours.link(epoch).map_or(open.openings, |mine| &mine.openings);
        let known = |opening| mine.iter().any(|o| validator.opened(o) == validator.opened(opening));
        self.is_regrouped |= !link.openings.iter().all(known);
        self.spent = self.spent.and(&ours.spent_by(&link.receipt));
        self.end_at(parent);
        let r = ours.digest(&link.receipt);
        self.entries.push_back(Entry { r, state: Digest::ZERO, tokens });
        self.admitting.extend(link.receipt.trust.is_some().then(|| link.receipt.clone()));
        self.next = Some(NextEpoch::of(&link.receipt, ledger));
        self.keep_link(link, validator.keeps(Rule::G12));
        Ok(())
    }

    /// Adds a link to those in memory. If that is `bounded`, drops the oldest ones beyond the bound.
    fn keep_link(&mut self, link: &Link, bounded: bool) {
        let bytes = wire::length(link);
        self.bytes = self.bytes.saturating_add(bytes);
        self.came = self.came.saturating_add(bytes as u64);
        self.links.push_back(link.clone());
        while self.bytes > LINKS_BYTES_MAX && self.links.len() > 1 && bounded {
            let first = self.links.pop_front();
            let bytes = first.map_or(0, |first| wire::length(&first));
            self.bytes = self.bytes.saturating_sub(bytes);
        }
    }

    /// Drops the epochs that we have taken ourselves since we asked, and counts them.
    pub(super) fn skip_ours(&mut self, ours: &Lineage) -> usize {
        let mut count = 0;
        while let Some(first) = self.entries.front() {
            let epoch = self.base.epoch.saturating_add(1);
            if ours.entry(epoch).is_none_or(|mine| mine.r != first.r) {
                break;
            }
            if self.links.len() == self.entries.len() {
                self.links.pop_front();
            }
            self.base = first.head(epoch);
            self.entries.pop_front();
            count += 1;
        }
        count
    }
}
