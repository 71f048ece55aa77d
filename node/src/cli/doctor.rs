//! What can be typed behind `doctor`.

use std::path::PathBuf;

use clap::Args;

/// What is examined, and how the result is written.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct DoctorArgs {
    /// Entry point of the run, as for a node; may be given several times. Without one the network is not
    /// tried
    #[arg(long, value_name = "MULTIADDR")]
    pub(crate) bootstrap: Vec<String>,
    /// Folder that a node would use [default: $XDG_DATA_HOME/intellect-node]. 64 MiB are written there, and
    /// removed. A node that runs there is asked why it waits
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Addresses that the node will listen at, as for a node: with --external it is tested whether a port that a
    /// router forwards leads here
    #[arg(long, value_name = "MULTIADDR", num_args = 1..)]
    pub(crate) listen: Vec<String>,
    /// Address at which others reach this machine, if a router forwards a port
    #[arg(long, value_name = "MULTIADDR")]
    pub(crate) external: Vec<String>,
    /// Print one JSON object at the end; progress goes to standard error
    #[arg(long)]
    pub(crate) json: bool,
}
