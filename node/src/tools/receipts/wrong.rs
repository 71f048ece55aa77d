//! What can be wrong with a file of receipts, as sentences that go on behind its name.
//!
//! Nothing is done about any of them: a file proves all that it has, or nothing. The texts say
//! whether to ask for the file again, which helps where it was damaged, or that its author cannot
//! prove this.

use std::io;

use intellect_protocol::{
    access::notices::NoticeError,
    base::{
        fault::{AccessFault, Fault, ValueFault},
        id::RunId,
    },
};

use crate::{manifest::ReadError, name::PeerName};

/// Why a file of receipts proves nothing. Its author made it so, or somebody changed it on the way.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Wrong {
    /// It does not begin like a file of receipts.
    #[error("it is no file of receipts, such as `intellect-node receipts export` writes")]
    Foreign,
    /// It is of another version of the format. An older program cannot read a newer file; both have
    /// to be of one version.
    #[error("its format {version} is that of another version of this program: use the same one")]
    Version {
        /// The version that its head names.
        version: u8,
    },
    /// It ends before its last byte should come.
    #[error("it ends before the signature of the peer that made it: ask for the whole file")]
    Cut,
    /// A part cannot be decoded, or is longer than it may be.
    #[error("it makes no sense at byte {at}: it was changed or damaged, so ask for it again")]
    Senseless {
        /// How many bytes before that make sense.
        at: u64,
    },
    /// The signature does not fit the bytes before it.
    #[error(
        "the signature at its end is not that of {exporter}, which it says has made it: it was changed, so ask for \
         it again"
    )]
    Changed { exporter: PeerName },
    /// The manifest at its beginning is not valid.
    #[error("the manifest in it cannot be used: {0}")]
    Manifest(#[from] ReadError),
    /// It names no epoch of the peer.
    #[error("it has no receipt")]
    Empty,
    /// Its epochs are not in rising order. One that comes twice would count twice.
    #[error("epoch {epoch} comes behind a later one")]
    Order { epoch: u64 },
    /// The voters of an epoch are not known.
    #[error("the receipt before epoch {epoch} is missing, and only that names the voters")]
    NoVoters { epoch: u64 },
    /// An epoch with its proof does not name the peer. It would prove nothing, and only make the
    /// file longer.
    #[error("the receipt of epoch {epoch} does not name the peer")]
    Unnamed { epoch: u64 },
    /// The rules of the protocol refuse the proof of an epoch.
    #[error("epoch {epoch} is not proven: {why}")]
    Unproven { epoch: u64, why: Fault },
    /// More votes than members would cost too many checks of signatures.
    #[error("epoch {epoch} has more votes than a run has members")]
    Crowded { epoch: u64 },
    /// The numbers in a receipt contradict each other, or are beyond what can be.
    #[error("epoch {epoch} has sums that cannot be: {why}")]
    Sums { epoch: u64, why: ValueFault },
    /// A receipt changes the ledger in a way that its rules forbid.
    #[error("epoch {epoch} admits peers against the rules: {why}")]
    Admits { epoch: u64, why: AccessFault },
    /// A notice is not signed by the organiser, or is of another run.
    #[error("an attestation in it is not the organiser's: {0}")]
    Notice(#[from] NoticeError),
    /// A notice has no place in such a file.
    #[error("it has a notice of the organiser that attests nothing, or behind an epoch")]
    IdleNotice,
    /// The organiser attests another lineage. The notice in the file is of another lineage than its
    /// receipts, or than the chain.
    #[error(
        "the organiser's notice {number} attests another epoch {epoch}, so this lineage is not the run's"
    )]
    OtherAttested { number: u64, epoch: u64 },
    /// The chain that was named is of another run.
    #[error("it is of run {run}, and {chain} of run {of}: take the chain of the same run")]
    OtherRun {
        run: RunId,
        /// The path of the file with the chain.
        chain: String,
        /// The run that the chain is of.
        of: RunId,
    },
    /// The chain has another receipt or state for an epoch.
    #[error(
        "its epoch {epoch} is not the one in {chain}: either of them is of a lineage that the run has left, or is \
         made up"
    )]
    OtherChain {
        epoch: u64,
        /// The path of the file with the chain.
        chain: String,
    },
    /// The chain ends before the file does.
    #[error("it has epoch {epoch}, and {chain} ends at epoch {last}: take a newer chain")]
    Beyond {
        epoch: u64,
        /// The path of the file with the chain.
        chain: String,
        /// The last epoch of the chain.
        last: u64,
    },
    /// The system cannot read the file.
    #[error("it cannot be read: {0}")]
    Unreadable(#[from] io::Error),
}
