//! `receipts …`: what a peer has done for a run, with its proofs.

use std::{num::NonZeroU64, path::PathBuf};

use clap::{Args, Subcommand};

use super::number::from_one;

/// The subcommands of `receipts`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ReceiptsCommand {
    /// Writes every receipt that names a peer into one file, with the votes that prove it
    ///
    /// The receipts come from the folder of a node, which may be running. The file has the run's manifest too,
    /// so it can be checked without a network. The key of the folder signs it.
    Export(ReceiptsExportArgs),
    /// Checks a file of receipts without a network, and says what it proves and what it does not
    Verify {
        /// The file that `receipts export` wrote
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// The run's chain, from a node that you trust: each receipt has to stand in it
        #[arg(long, value_name = "FILE")]
        chain: Option<PathBuf>,
    },
    /// Writes the chain of a run, 72 bytes for each epoch, to check files of receipts against it
    Chain {
        #[command(flatten)]
        of: RunFolderArgs,
        /// The new file; an existing one is never overwritten [default: named after the run]
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
}

/// A run in the folder of a node.
#[derive(Clone, Debug, Args)]
pub(crate) struct RunFolderArgs {
    /// Folder of a node of the run, which may be running [default: $XDG_DATA_HOME/intellect-node]
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Which run of that folder: the beginning of its id
    #[arg(long, value_name = "PREFIX")]
    pub(crate) run: Option<String>,
}

/// The arguments of `receipts export`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ReceiptsExportArgs {
    #[command(flatten)]
    pub(crate) of: RunFolderArgs,
    /// The peer that the receipts name, as its node prints it, or the last letters of its name [default: the one of
    /// the folder]
    #[arg(long, value_name = "PEER")]
    pub(crate) peer: Option<String>,
    /// Leave out the epochs before this one
    #[arg(long, value_name = "N", value_parser = from_one::<NonZeroU64>)]
    pub(crate) since: Option<NonZeroU64>,
    /// The new file; an existing one is never overwritten [default: named after run and peer]
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}
