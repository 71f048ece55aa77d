//! Our lineage: what we keep of each epoch, and what its receipts say of the next one (R14, R16).
//!
//! For each epoch the digests stay in memory; its proof stays there only for the last
//! [`LINKS_KEPT`] epochs. Older links are in the log, from which the caller reads them for peers
//! that verify them. A peer that needs an older link itself fetches it from others, and knows it by
//! its digest. What the lineage lies on is in `attested`.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::access::ledger::{Ledger, Ledgers};
use crate::access::notices::Notices;
use crate::base::blocks::Blocks;
use crate::base::id::{Digest, PeerId};
use crate::base::rule::Rule;
use crate::history::lineage::{LocalPeer, Validator};
use crate::message::{
    Answer, Ask, CHAIN_MAX, ChainLink, Head, LINKS_MAX, Link, Opening, Receipt, Voter, wire,
};

use super::interface::Config;

/// What stays in memory of an epoch of our lineage: 72 bytes, so a year of one-minute epochs is 38
/// MB.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// Digest of its receipt, by which a fetched link is known.
    pub(super) r: Digest,
    /// Digest of the state after it.
    pub(super) state: Digest,
    /// Tokens committed on the lineage up to this epoch.
    pub(super) tokens: u64,
}

impl Entry {
    /// The head after it, if this is its epoch.
    pub(super) fn head(self, epoch: u64) -> Head {
        Head { epoch, tokens: self.tokens, state: self.state }
    }
}

/// What a receipt says of the epoch after it.
#[derive(Clone, Debug)]
pub(super) struct NextEpoch {
    /// The voters that decide the next epoch.
    pub(super) voters: Vec<Voter>,
    /// The median weight of the receipt, which bounds the next weights (G11).
    pub(super) median: Option<u64>,
    /// The ledger then; `None` in open runs.
    pub(super) ledger: Option<Arc<Ledger>>,
}

impl NextEpoch {
    /// The epoch after `receipt`, with the ledger after it.
    pub(super) fn of(receipt: &Receipt, ledger: Option<Arc<Ledger>>) -> Self {
        let voters = match &ledger {
            Some(ledger) => ledger.voters(receipt),
            None => receipt.voters(),
        };
        Self { voters, median: receipt.median_weight(), ledger }
    }
}

/// Our lineage, and what every other one is compared with.
#[derive(Clone, Debug)]
pub(crate) struct Lineage {
    pub(super) validator: Validator,
    pub(super) me: LocalPeer,
    /// Where it ends: the state that this peer has, epoch 0 at genesis.
    pub(super) head: Head,
    /// The organiser's notices that are known.
    pub(crate) notices: Notices,
    /// The state that every lineage of the run begins with.
    genesis: Digest,
    /// The voters of epoch 1, before any Regroup.
    founders: Vec<Voter>,
    /// One for each epoch e, at index e − 1.
    entries: Vec<Entry>,
    /// The proofs of the last of them.
    links: VecDeque<Arc<Link>>,
    /// The ledger after each epoch; `None` in open runs.
    ledgers: Option<Ledgers>,
    /// The heads after which we froze the work that is still unspent here. A receipt of another
    /// lineage that follows one of them and names us has spent it (R27).
    frozen_after: Vec<Digest>,
}

/// Links of our lineage in memory, back from the head; guess: peers that were away for an hour are
/// answered without the disk.
pub const LINKS_KEPT: usize = 64;

/// The most heads that are remembered for one reason, as ignored or as reported.
pub(super) const REMEMBERED_MAX: usize = 1_024;

impl Lineage {
    /// The lineage that has only genesis.
    pub(super) fn new(validator: Validator, me: LocalPeer, config: Config) -> Self {
        let notices = Notices::new(validator.run, validator.organiser, validator.level);
        Self {
            me,
            head: Head { epoch: 0, tokens: 0, state: config.genesis },
            notices: notices.with(&config.notices),
            genesis: config.genesis,
            founders: config.founders,
            entries: Vec::new(),
            links: VecDeque::new(),
            ledgers: validator.ledger().map(Ledgers::new),
            frozen_after: Vec::new(),
            validator,
        }
    }

    /// Whether this rule is in force.
    pub(super) fn keeps(&self, rule: Rule) -> bool {
        self.validator.keeps(rule)
    }

    /// The head, its voters, and the median weight in its receipt.
    pub(crate) fn tip(&self) -> (Head, Vec<Voter>, Option<u64>) {
        let next = self.next_after(self.head.epoch).unwrap_or_else(|| self.founding());
        (self.head, next.voters, next.median)
    }

    /// The ledger after the head; `None` in open runs.
    pub(crate) fn ledger(&self) -> Option<&Arc<Ledger>> {
        self.ledgers.as_ref().map(Ledgers::newest)
    }

    /// The ledger after an epoch; `None` in open runs.
    pub(super) fn ledger_at(&self, epoch: u64) -> Option<Arc<Ledger>> {
        self.ledgers.as_ref().map(|ledgers| ledgers.at(epoch))
    }

    /// The epoch after genesis, of which no receipt speaks.
    fn founding(&self) -> NextEpoch {
        let (voters, ledger) = (self.founders.clone(), self.validator.ledger());
        NextEpoch { voters, median: None, ledger }
    }

    /// What the receipt of this epoch says of the next one; `None` if its link is not in memory.
    pub(super) fn next_after(&self, epoch: u64) -> Option<NextEpoch> {
        if epoch == 0 {
            return Some(self.founding());
        }
        self.link(epoch).map(|link| NextEpoch::of(&link.receipt, self.ledger_at(epoch)))
    }

    /// Whether the first Regroup of a link founds the run.
    pub(super) fn founds(&self, link: &Link) -> bool {
        link.receipt.series.epoch == 1 && self.founders.is_empty()
    }

    /// The link of an epoch that was committed lately ([`LINKS_KEPT`]).
    pub(crate) fn link(&self, epoch: u64) -> Option<&Arc<Link>> {
        let at = epoch.checked_sub(self.first_link())?;
        self.links.get(usize::try_from(at).ok()?)
    }

    /// The first epoch whose link is in memory; the one after the head if there is none.
    fn first_link(&self) -> u64 {
        (self.entries.len() - self.links.len()) as u64 + 1
    }

    /// The peers that the receipts of the last [`LINKS_KEPT`] epochs name.
    pub(crate) fn named(&self) -> impl Iterator<Item = PeerId> {
        self.links.iter().flat_map(|link| link.receipt.members.iter().map(|member| member.peer))
    }

    /// Whether the receipt of this epoch is in memory and names a peer.
    pub(super) fn names(&self, epoch: u64, peer: &PeerId) -> bool {
        let names = |link: &Arc<Link>| link.receipt.members.iter().any(|m| m.peer == *peer);
        self.link(epoch).is_some_and(names)
    }

    /// What stays of an epoch; `None` for genesis, and for an epoch that we have not reached.
    pub(super) fn entry(&self, epoch: u64) -> Option<Entry> {
        self.entries.get(usize::try_from(epoch.checked_sub(1)?).ok()?).copied()
    }

    /// Our head after an epoch; `None` if we have not reached it.
    pub(super) fn head_at(&self, epoch: u64) -> Option<Head> {
        if epoch == 0 {
            return Some(Head { epoch, tokens: 0, state: self.genesis });
        }
        self.entry(epoch).map(|entry| entry.head(epoch))
    }

    /// State digest after an epoch.
    pub(super) fn state_after(&self, epoch: u64) -> Option<Digest> {
        self.head_at(epoch).map(|head| head.state)
    }

    /// Digest of a receipt in this run.
    pub(super) fn digest(&self, receipt: &Receipt) -> Digest {
        wire::receipt_digest(&self.validator.run, receipt)
    }

    /// Whether a receipt is of our lineage.
    pub(super) fn has(&self, receipt: &Receipt) -> bool {
        self.entry(receipt.series.epoch).is_some_and(|entry| entry.r == self.digest(receipt))
    }

    /// Our answer about our lineage, and the links that the caller still has to put before its own
    /// from our log: their epochs, and the digests of their receipts.
    pub(crate) fn answer(&self, ask: &Ask, openings: &[Opening]) -> (Answer, Vec<(u64, Digest)>) {
        let from = |epoch: u64| epoch.max(1)..=self.head.epoch;
        match ask {
            Ask::Lineage { from_epoch } => {
                let logged = from(*from_epoch).take_while(|epoch| *epoch < self.first_link());
                let logged = logged.map_while(|epoch| Some((epoch, self.entry(epoch)?.r)));
                let logged: Vec<_> = logged.take(LINKS_MAX).collect();
                let links = from(self.first_link().max(*from_epoch));
                let links = links.map_while(|epoch| self.link(epoch)).map(|l| l.as_ref().clone());
                let links = links.take(LINKS_MAX - logged.len()).collect();
                let (head, openings) = (self.head, openings.to_vec());
                (Answer::Lineage { links, head, openings }, logged)
            }
            Ask::Chain { from_epoch } => {
                let link = |epoch| {
                    self.entry(epoch).map(|Entry { r, state, .. }| ChainLink { epoch, state, r })
                };
                let links = from(*from_epoch).map_while(link).take(CHAIN_MAX);
                (Answer::Chain(links.collect()), Vec::new())
            }
        }
    }

    /// Our delta for the epoch after the head is frozen.
    pub(super) fn note_frozen(&mut self) {
        if self.frozen_after.len() >= REMEMBERED_MAX {
            self.frozen_after.remove(0);
        }
        if self.frozen_after.last() != Some(&self.head.state) {
            self.frozen_after.push(self.head.state);
        }
    }

    /// Once receipts have included us in every block, nothing is left unspent.
    pub(super) fn note_spent(&mut self, spent: &Blocks) {
        if *spent == Blocks::all(self.validator.elements) {
            self.frozen_after.clear();
        }
    }

    /// The blocks in which a receipt has included what is unspent here.
    pub(super) fn spent_by(&self, receipt: &Receipt) -> Blocks {
        if !self.frozen_after.contains(&receipt.series.parent) {
            return Blocks::default();
        }
        receipt.spent(&self.me.peer, self.me.incarnation, self.validator.elements)
    }

    /// Moves the head one epoch on. The notices learn where the lineage is.
    pub(super) fn push(&mut self, link: Arc<Link>, head: Head) {
        assert!(head.epoch == self.head.epoch + 1, "S3: a head is only extended");
        let r = self.digest(&link.receipt);
        if let Some(ledgers) = &mut self.ledgers {
            ledgers.push(&link.receipt);
            self.notices.settle(ledgers.newest().last());
        }
        self.links.push_back(link);
        if self.links.len() > LINKS_KEPT {
            self.links.pop_front();
        }
        self.push_entry(Entry { r, state: head.state, tokens: head.tokens });
    }

    /// Moves the head on by epochs whose links are in the log only. Of `admitting`, the receipts
    /// that have a trust part, those of these epochs count.
    pub(super) fn push_logged(&mut self, entries: Vec<Entry>, admitting: &[Receipt]) {
        if entries.is_empty() {
            return;
        }
        // The links in memory must be the last of our lineage.
        self.links.clear();
        let last = self.head.epoch.saturating_add(entries.len() as u64);
        if let Some(ledgers) = &mut self.ledgers {
            let new = self.head.epoch.saturating_add(1)..=last;
            for receipt in admitting.iter().filter(|r| new.contains(&r.series.epoch)) {
                ledgers.push(receipt);
            }
        }
        for entry in entries {
            self.push_entry(entry);
        }
    }

    /// Moves the head one epoch on, without a link.
    fn push_entry(&mut self, entry: Entry) {
        self.head = entry.head(self.head.epoch.saturating_add(1));
        self.entries.push(entry);
    }

    /// Gives up what lies beyond an epoch.
    pub(super) fn rewind(&mut self, epoch: u64) {
        let stay = epoch.saturating_add(1).saturating_sub(self.first_link());
        self.links.truncate(usize::try_from(stay).unwrap_or(usize::MAX));
        self.entries.truncate(usize::try_from(epoch).unwrap_or(usize::MAX));
        if let Some(ledgers) = &mut self.ledgers {
            ledgers.truncate(epoch);
        }
        self.head = self.head_at(epoch).unwrap_or(self.head);
    }
}

#[cfg(test)]
pub(super) mod tests;
