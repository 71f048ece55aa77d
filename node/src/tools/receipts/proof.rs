//! Whether a row of receipts proves what a peer has done, by the rules that every peer of the run
//! goes by.
//!
//! The votes for a receipt count if they come from a quorum of the voters that the receipt before
//! it names, or through Regroups from there ([`Validator::check_link`]). In a run of invited peers
//! the ledger is folded as well. So the row has every receipt that changes it, and the organiser's
//! signatures in these are checked.
//!
//! A row may begin at any epoch: the first receipt that is no link only names voters, and nothing
//! proves it by itself. That is why a file alone shows that *some* voters signed, and only a chain
//! that its reader trusts shows that they are the run's. Every later link rests on the receipt
//! before it, so a gap between two links is allowed where the receipt before the second one is
//! there.
//!
//! It checks signatures and sums of numbers, and cannot see the training itself.

use std::{collections::BTreeSet, sync::Arc};

use intellect_protocol::{
    access::ledger::Ledger,
    base::{
        id::{Digest, PeerId},
        sign::Keypair,
    },
    history::lineage::{self, Validator},
    message::{Attestation, Link, MEMBERS_MAX, Notice, Receipt, Series, Voter, wire},
};

use super::{chain::Chain, file::Item, wrong::Wrong};
use crate::{
    figures::{count, number_of},
    manifest::Manifest,
};

/// What receipts say of a peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Deeds {
    /// The epochs whose receipts name it.
    pub(super) epochs: BTreeSet<u64>,
    /// How many of these have its work in their sum.
    pub(super) worked: u64,
    /// The tokens that this work is counted with.
    pub(super) tokens: u64,
    /// The number of a notice of the organiser, and what it attests.
    pub(super) attested: Option<(u64, Attestation)>,
    /// Whether the chain has what the organiser attests.
    pub(super) is_anchored: bool,
}

impl Deeds {
    /// Counts a receipt if it names the peer; says whether it does.
    pub(super) fn add(&mut self, receipt: &Receipt, peer: &PeerId) -> bool {
        if !named(receipt).any(|named| named == *peer) {
            return false;
        }
        let work = receipt.contributors().into_iter().filter(|((of, _), _)| of == peer);
        let tokens = work.map(|(_, weight)| weight).fold(0, u64::saturating_add);
        self.epochs.insert(receipt.series.epoch);
        self.worked += u64::from(tokens > 0);
        self.tokens = self.tokens.saturating_add(tokens);
        true
    }

    /// How many receipts there are and of which epochs, as the beginning of a sentence.
    pub(super) fn span(&self) -> String {
        let [first, last] =
            [self.epochs.first(), self.epochs.last()].map(|at| at.map_or(0, |at| *at));
        let verb = if self.epochs.len() == 1 { "names" } else { "name" };
        let receipts = number_of(self.epochs.len() as u64, "receipt");
        format!("{receipts} from epoch {first} to epoch {last} {verb}")
    }

    /// What was trained, as the end of a sentence.
    pub(super) fn work(&self) -> String {
        let voted = (self.epochs.len() as u64).saturating_sub(self.worked);
        let only = match voted {
            0 => String::new(),
            voted => format!("; in {} more it was a voter only", number_of(voted, "epoch")),
        };
        format!(
            "{} tokens in the sums of {}{only}",
            count(self.tokens),
            number_of(self.worked, "epoch")
        )
    }
}

/// The peers that a receipt names. Members of kept chunks of earlier rings count too, since their
/// work is in the sum.
pub(super) fn named(receipt: &Receipt) -> impl Iterator<Item = PeerId> {
    let kept = receipt.parts.iter().flat_map(|part| &part.members);
    receipt.members.iter().chain(kept).map(|member| member.peer)
}

/// A check of one file: it takes the items in order.
pub(super) struct Proof<'a> {
    /// The manifest in the file, which names the organiser and the founders.
    manifest: &'a Manifest,
    /// The rules of the protocol. It signs nothing.
    validator: Validator,
    /// The peer whose work is to be proved.
    peer: PeerId,
    /// What the receipts are compared with, if a chain was named.
    chain: Option<&'a Chain>,
    /// The ledger after the last receipt; `None` in open runs.
    ledger: Option<Arc<Ledger>>,
    /// The receipt that was taken last; it names the voters of the next epoch.
    last: Option<Receipt>,
    /// What the items so far have proved.
    deeds: Deeds,
}

impl<'a> Proof<'a> {
    /// Begins with the manifest in the file, which is verified. The chain has to be of the same
    /// run; both name their RunId.
    pub(super) fn new(
        manifest: &'a Manifest,
        peer: PeerId,
        chain: Option<&'a Chain>,
    ) -> Result<Self, Wrong> {
        if let Some(chain) = chain.filter(|chain| chain.run != manifest.id) {
            let (run, chain, of) = (manifest.id, chain.to_string(), chain.run);
            return Err(Wrong::OtherRun { run, chain, of });
        }
        // The key is of no matter: nothing is signed here.
        let validator = manifest.validator(Keypair::from_seed(&[0; 32]));
        let (ledger, deeds) = (validator.ledger(), Deeds::default());
        Ok(Self { manifest, validator, peer, chain, ledger, last: None, deeds })
    }

    /// Takes the next item of the file, if it is proven. After an error the proof must not go on.
    pub(super) fn take(&mut self, item: Item) -> Result<(), Wrong> {
        match item {
            Item::Notice(notice) => self.take_notice(&notice),
            Item::Receipt(receipt) => self.take_receipt(receipt),
            Item::Link(link) => self.take_link(*link),
        }
    }

    /// What was proven, once all items were taken. The caller checks the signature of the file
    /// before it calls this.
    pub(super) fn end(mut self) -> Result<Deeds, Wrong> {
        if self.deeds.epochs.is_empty() {
            return Err(Wrong::Empty);
        }
        if let (Some((number, attested)), Some(chain)) = (self.deeds.attested, self.chain)
            && let Some(entry) = chain.at(attested.epoch)?
        {
            let epoch = attested.epoch;
            self.deeds.is_anchored = attested.names(&entry.r, &entry.state);
            if !self.deeds.is_anchored {
                return Err(Wrong::OtherAttested { number, epoch });
            }
        }
        Ok(self.deeds)
    }

    /// Takes an attestation of the organiser. It has to come before all epochs.
    fn take_notice(&mut self, notice: &Notice) -> Result<(), Wrong> {
        notice.verify(&self.manifest.run.organiser, &self.manifest.id)?;
        match notice.attests() {
            Some(attested) if self.last.is_none() => {
                self.deeds.attested = Some((notice.number, *attested));
                Ok(())
            }
            _ => Err(Wrong::IdleNotice),
        }
    }

    /// Takes a receipt that only says who votes, and who is admitted.
    fn take_receipt(&mut self, receipt: Receipt) -> Result<(), Wrong> {
        let epoch = self.follow(&receipt)?;
        lineage::check_sums(u64::MAX, &receipt).map_err(|why| Wrong::Sums { epoch, why })?;
        if let Some(ledger) = &self.ledger {
            let members = receipt.members.iter().map(|member| member.peer).collect();
            let after = ledger.with(epoch, &members, receipt.trust.as_deref());
            let after = after.map_err(|why| Wrong::Admits { epoch, why: why.fault() })?;
            self.ledger = Some(after);
        }
        self.last = Some(receipt);
        Ok(())
    }

    /// Takes an epoch that names the peer, if it is proven. The voters come from the receipt of the
    /// epoch before, or for epoch 1 from the founders in the manifest. So the row has to have that
    /// receipt.
    fn take_link(&mut self, link: Link) -> Result<(), Wrong> {
        let epoch = self.follow(&link.receipt)?;
        let (voters, median) = match &self.last {
            None if epoch == 1 => (self.manifest.run.members.founders.clone(), None),
            Some(last) if last.series.epoch + 1 == epoch => {
                (self.voters(last), last.median_weight())
            }
            _ => return Err(Wrong::NoVoters { epoch }),
        };
        let base = Series { regroup: None, ..link.receipt.series };
        let weight_max = self.validator.capacity.weight_max(median);
        // Each of them costs the check of a signature.
        if link.certificate.dones.len() > MEMBERS_MAX {
            return Err(Wrong::Crowded { epoch });
        }
        let ledger = self.ledger.as_ref();
        let proven = self.validator.check_link(base, &voters, ledger, weight_max, &link);
        proven.map_err(|why| Wrong::Unproven { epoch, why })?;
        if !self.deeds.add(&link.receipt, &self.peer) {
            return Err(Wrong::Unnamed { epoch });
        }
        self.ledger = self.ledger.as_ref().map(|ledger| ledger.after(&link.receipt));
        self.last = Some(link.receipt);
        Ok(())
    }

    /// The voters that a receipt names, with the ledger after it.
    fn voters(&self, receipt: &Receipt) -> Vec<Voter> {
        match &self.ledger {
            Some(ledger) => ledger.voters(receipt),
            None => receipt.voters(),
        }
    }

    /// The epoch of the next receipt. It has to be later than the last one, and the one of the
    /// chain and of the attestation.
    fn follow(&self, receipt: &Receipt) -> Result<u64, Wrong> {
        let epoch = receipt.series.epoch;
        if epoch <= self.last.as_ref().map_or(0, |last| last.series.epoch) {
            return Err(Wrong::Order { epoch });
        }
        let r = wire::receipt_digest(&self.manifest.id, receipt);
        if let Some((number, attested)) = self.deeds.attested
            && attested.epoch == epoch
            && attested.r != r
        {
            return Err(Wrong::OtherAttested { number, epoch });
        }
        self.chain.map_or(Ok(()), |chain| stands(chain, receipt, &r))?;
        Ok(epoch)
    }
}

/// Whether a receipt stands in the chain, with the state before it and the tokens that it adds. All
/// three are compared, since an entry of the chain is three numbers that nobody has signed
/// together.
fn stands(chain: &Chain, receipt: &Receipt, r: &Digest) -> Result<(), Wrong> {
    let (epoch, parent) = (receipt.series.epoch, receipt.series.parent);
    let path = || chain.to_string();
    let Some(entry) = chain.at(epoch)? else {
        return Err(Wrong::Beyond { epoch, chain: path(), last: chain.epochs });
    };
    let before = chain.at(epoch.saturating_sub(1))?;
    let tokens = before.map_or(0, |before| before.tokens).checked_add(receipt.tokens());
    let follows = before.is_none_or(|before| before.state == parent);
    if entry.r == *r && follows && tokens == Some(entry.tokens) {
        return Ok(());
    }
    Err(Wrong::OtherChain { epoch, chain: path() })
}
