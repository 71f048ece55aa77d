//! What can be typed behind `report`.

use std::path::PathBuf;

use clap::Args;

/// Which simulations are shown, and where the page goes.
#[derive(Clone, Debug, Args)]
pub(crate) struct ReportArgs {
    /// Folders that `sim --out` has written, of equal settings but for the seed
    #[arg(value_name = "DIR", required = true)]
    pub(crate) folders: Vec<PathBuf>,
    /// The page to write: one file, with the plots and data of all folders and their mean. A file of this name is
    /// written anew
    #[arg(long, value_name = "FILE")]
    pub(crate) html: PathBuf,
}
