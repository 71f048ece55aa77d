//! What can be typed behind `status`.

use std::path::PathBuf;

use clap::Args;

/// Which node is asked, and how its answer is printed.
#[derive(Clone, Debug, Args)]
pub(crate) struct StatusArgs {
    /// Folder of the node [default: $XDG_DATA_HOME/intellect-node]
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// One JSON object, as the page has it at /status
    #[arg(long)]
    pub(crate) json: bool,
}
