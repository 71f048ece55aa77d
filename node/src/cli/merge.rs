//! What can be typed behind `merge` and `spectrum`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use intellect_model::hf::export::SHARD_BYTES;

use super::number::{file_bytes, from_zero};

#[derive(Clone, Debug, Args)]
pub(crate) struct MergeArgs {
    /// The recipe, in mergekit's YAML. Its models are folders in Hugging Face's layout, checkpoints, or folders of
    /// nodes
    #[arg(value_name = "CONFIG.yaml")]
    pub(crate) recipe: PathBuf,
    /// The new folder; an existing one must be empty
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Seed of the methods that draw by chance
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = from_zero)]
    pub(crate) seed: u64,
    /// Most bytes of tensors in one file, as in 2G
    #[arg(long, value_name = "BYTES", default_value_t = SHARD_BYTES, value_parser = file_bytes)]
    pub(crate) shard_bytes: u64,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum SpectrumCommand {
    /// Finds the ratio of signal to noise of every matrix, and lists those to train
    Scan(ScanArgs),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ScanArgs {
    /// A folder in Hugging Face's layout, a checkpoint, or the folder of a node
    #[arg(value_name = "MODEL")]
    pub(crate) model: PathBuf,
    /// How many of the matrices of each type are trained, in per cent
    #[arg(long, value_name = "P", default_value_t = 25, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub(crate) percent: u8,
    /// Only these types, such as self_attn.q_proj or mlp.down_proj [default: all]
    #[arg(long, value_name = "TYPES", value_delimiter = ',')]
    pub(crate) types: Vec<String>,
    /// Write the list to this new file, in the YAML of other programs [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Write the list and the ratio of every matrix to this new file, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
}
