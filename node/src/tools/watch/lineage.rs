//! The lineage of a run as it is proved from outside: each link by the votes of the members that
//! the link before names, from epoch 1 on ([`Validator::check_link`]).
//!
//! The state after an epoch is proved by the next epoch, whose voters name it. Until then it is
//! what a member says.

use std::{collections::VecDeque, sync::Arc};

use intellect_protocol::{
    access::ledger::Ledger,
    base::{fault::Fault, id::Digest, sign::Keypair},
    history::lineage::Validator,
    message::{Link, MEMBERS_MAX, Receipt, Series, Voter, wire},
};

use crate::manifest::Manifest;

/// The epochs that are proved, as far as the next ones need them.
pub(super) struct Proven {
    /// The rules of the protocol. It signs nothing.
    validator: Validator,
    /// The voters of the first epoch.
    founders: Vec<Voter>,
    /// The ledger after the last epoch; `None` in open runs.
    ledger: Option<Arc<Ledger>>,
    /// The receipt of the last epoch; `None` before the first.
    last: Option<Receipt>,
    /// The digests of the last receipts, the newest one last. At most [`RECENT_MAX`], 32 bytes
    /// each.
    recent: VecDeque<Digest>,
    /// The tokens that are committed so far.
    tokens: u64,
}

/// An epoch that is proved to be decided.
#[derive(Clone, Debug)]
pub(super) struct Decided {
    /// Its number; epochs are counted from 1.
    pub(super) number: u64,
    /// The attempt that decided it.
    pub(super) attempt: u64,
    /// The state before it, which its voters have signed.
    pub(super) parent: Digest,
    /// Its receipt, which a quorum of its voters has signed.
    pub(super) receipt: Receipt,
    /// The tokens that are committed after it.
    pub(super) tokens: u64,
}

/// Why a link proves no next epoch.
#[derive(Debug, thiserror::Error)]
pub(super) enum Disproof {
    /// Another receipt has the same epoch: it is of another lineage.
    #[error("it follows another lineage of this run")]
    Other,
    /// It does not go on with the next epoch.
    #[error("its answer leaves out an epoch after epoch {0}")]
    Gap(u64),
    /// More votes than members would cost too many checks of signatures.
    #[error("its proof of epoch {0} has more votes than there can be voters")]
    Crowded(u64),
    /// The rules of the protocol refuse the proof.
    #[error("it does not prove epoch {epoch}: {why}")]
    Unproven { epoch: u64, why: Fault },
}

impl Proven {
    /// Before epoch 1, of which the manifest knows the voters.
    pub(super) fn new(manifest: &Manifest) -> Self {
        // The key is of no matter: nothing is signed here.
        let validator = manifest.validator(Keypair::from_seed(&[0; 32]));
        let founders = manifest.run.members.founders.clone();
        let (ledger, recent) = (validator.ledger(), VecDeque::new());
        Self { validator, founders, ledger, last: None, recent, tokens: 0 }
    }

    /// The last epoch that is proved.
    pub(super) fn reached(&self) -> u64 {
        self.last.as_ref().map_or(0, |last| last.series.epoch)
    }

    /// Takes a link. One that is known proves no epoch.
    ///
    /// # Errors
    /// See [`Disproof`]; nothing is changed.
    pub(super) fn take(&mut self, link: Link) -> Result<Option<Decided>, Disproof> {
        let (number, reached) = (link.receipt.series.epoch, self.reached());
        let r = wire::receipt_digest(&self.validator.run, &link.receipt);
        if number <= reached {
            let back = usize::try_from(reached - number).unwrap_or(usize::MAX);
            let known = self.recent.iter().rev().nth(back);
            return if known == Some(&r) { Ok(None) } else { Err(Disproof::Other) };
        }
        if number != reached + 1 {
            return Err(Disproof::Gap(reached));
        }
        self.check(&link)?;
        let Link { receipt, certificate, .. } = link;
        self.ledger = self.ledger.as_ref().map(|ledger| ledger.after(&receipt));
        self.tokens = self.tokens.saturating_add(receipt.tokens());
        self.last = Some(receipt.clone());
        self.recent.push_back(r);
        if self.recent.len() > RECENT_MAX {
            self.recent.pop_front();
        }
        let (attempt, parent) = (certificate.roster.attempt, receipt.series.parent);
        Ok(Some(Decided { number, attempt, parent, receipt, tokens: self.tokens }))
    }

    /// Checks one link by the rules of the protocol, as the next epoch. The voters are those that
    /// the last receipt names, with the ledger after it in a run of invited peers; for epoch 1 the
    /// founders.
    fn check(&self, link: &Link) -> Result<(), Disproof> {
        let epoch = link.receipt.series.epoch;
        // Each of them costs the check of a signature.
        if link.certificate.dones.len() > MEMBERS_MAX {
            return Err(Disproof::Crowded(epoch));
        }
        let (voters, median) = match (&self.last, &self.ledger) {
            (None, _) => (self.founders.clone(), None),
            (Some(last), Some(ledger)) => (ledger.voters(last), last.median_weight()),
            (Some(last), None) => (last.voters(), last.median_weight()),
        };
        let base = Series { regroup: None, ..link.receipt.series };
        let weight_max = self.validator.capacity.weight_max(median);
        let checked =
            self.validator.check_link(base, &voters, self.ledger.as_ref(), weight_max, link);
        checked.map_err(|why| Disproof::Unproven { epoch, why })
    }
}

/// How far back a receipt is recognised; a member that is further behind counts as one of another
/// lineage.
const RECENT_MAX: usize = 1_024;
