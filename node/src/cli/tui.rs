//! What can be typed behind `tui`.

use std::path::PathBuf;

use clap::Args;

/// Which node is shown: that of the folder.
#[derive(Clone, Debug, Args)]
pub(crate) struct TuiArgs {
    /// Folder of the node [default: $XDG_DATA_HOME/intellect-node]
    #[arg(value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// The same, as the other commands have it
    #[arg(long, value_name = "DIR", conflicts_with = "folder")]
    pub(crate) data_dir: Option<PathBuf>,
}
