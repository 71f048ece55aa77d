//! What can be typed behind `watch`.

use std::{num::NonZeroUsize, path::PathBuf};

use clap::Args;

use super::{help::OUTPUT, number::from_one, page::PageArgs};

/// Which run is looked at, and how it is shown.
#[derive(Clone, Debug, Args)]
pub(crate) struct WatchArgs {
    /// Entry point of the run, as for a node; may be given several times
    #[arg(long, value_name = "MULTIADDR", required = true)]
    pub(crate) bootstrap: Vec<String>,
    /// Which run, if several are offered: the beginning of its id
    #[arg(long, value_name = "PREFIX")]
    pub(crate) run: Option<String>,
    /// An invite to a run of invited peers, as for a node: it lets this command look, and is not used up by that
    #[arg(long, value_name = "CODE")]
    pub(crate) invite: Option<String>,
    #[command(flatten)]
    pub(crate) page: PageArgs,
    /// Write the page into this folder, for any web host: now, and again every 10 s
    #[arg(long, value_name = "DIR", help_heading = OUTPUT)]
    pub(crate) to: Option<PathBuf>,
    /// Look with so many keys at once, to measure what that costs the members
    #[arg(long, value_name = "N", hide = true, default_value = "1", value_parser = from_one::<NonZeroUsize>)]
    pub(crate) crowd: NonZeroUsize,
}
