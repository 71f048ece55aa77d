//! What can be typed behind `eval`.

use std::{num::NonZeroUsize, path::PathBuf};

use clap::Args;

use super::{
    CheckpointArgs,
    number::{from_one, from_zero},
    path,
};
use crate::evaluation::REPORT_TOKENS;

/// Which weights are measured, and on what.
#[derive(Clone, Debug, Args)]
pub(crate) struct EvalArgs {
    #[command(flatten)]
    pub(crate) checkpoint: CheckpointArgs,
    /// Measure the model in this folder instead of a checkpoint: one that `export` wrote, or any other of
    /// these families in Hugging Face's layout, or a .pth file of an RWKV-5 or RWKV-6
    #[arg(long, value_name = "PATH", conflicts_with_all = ["checkpoint", "manifest", "data_dir", "run", "data"])]
    pub(crate) hf: Option<PathBuf>,
    /// The run's files, if it trains on some, or folders that hold them [default: those that a node of the
    /// checkpoint's folder was given or has fetched]
    #[arg(long, value_name = "PATH", num_args = 1.., value_parser = path::data())]
    pub(crate) data: Vec<PathBuf>,
    /// Measure on these files instead of the run's held-out data: texts, or token files of the model's own
    /// tokenizer
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with = "data")]
    pub(crate) on: Vec<PathBuf>,
    /// How many tokens of each file, or of the held-out data, are judged at least; a smaller file is judged
    /// as a whole
    #[arg(long, value_name = "N", default_value_t = JUDGED, value_parser = from_one::<NonZeroUsize>)]
    pub(crate) tokens: NonZeroUsize,
    /// Tokens that are read at once [default: what the run trains on; of --hf at most 2048]
    #[arg(long, value_name = "N", value_parser = from_one::<NonZeroUsize>)]
    pub(crate) context: Option<NonZeroUsize>,
    /// Measure on these tasks: files of TOML that say how documents become questions, or questions as JSON
    /// lines
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with = "data")]
    pub(crate) tasks: Vec<PathBuf>,
    /// How many solved questions stand in front of each [default: what the task says, else none]
    #[arg(long, value_name = "K", value_parser = shots, requires = "tasks")]
    pub(crate) shots: Option<usize>,
    /// Seed that draws the solved questions
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = from_zero)]
    pub(crate) seed: u64,
    /// Only the first N questions of each task
    #[arg(long, value_name = "N", value_parser = from_one::<NonZeroUsize>, requires = "tasks")]
    pub(crate) limit: Option<NonZeroUsize>,
    /// A new file that gets the log-likelihoods of every question, as JSON lines
    #[arg(long, value_name = "FILE", requires = "tasks")]
    pub(crate) details: Option<PathBuf>,
}

fn shots(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number <= SHOTS_MAX);
    number.ok_or_else(|| format!("type a whole number from 0 to {SHOTS_MAX}"))
}

/// More than any task puts before a question.
const SHOTS_MAX: usize = 1_000;

const JUDGED: NonZeroUsize = NonZeroUsize::new(REPORT_TOKENS).unwrap();
