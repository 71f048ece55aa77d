//! What can be typed behind `replay`.

use std::{ops::RangeInclusive, path::PathBuf};

use clap::Args;

use super::page::PageArgs;

/// Which events are shown, how, and how fast.
#[derive(Clone, Debug, Args)]
pub(crate) struct ReplayArgs {
    /// The file that a node wrote with --events. Further files of the same run are shown with it, such as
    /// the sim.jsonl of a simulation, which has the held-out loss
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Seconds of the file that are played in one second; pauses are cut to 10 s; 0 plays all at once
    #[arg(long, value_name = "N", default_value = "1", value_parser = speed, conflicts_with = "follow")]
    pub(crate) speed: f64,
    /// Wait for more at the end of the file, which a running node still writes
    #[arg(long)]
    pub(crate) follow: bool,
    #[command(flatten)]
    pub(crate) page: PageArgs,
    /// Show three lines in the terminal; without --page they are always shown
    #[arg(long)]
    pub(crate) lines: bool,
    /// Show a screen in the terminal: loss, peers and events, until q or Ctrl-C
    #[arg(long, conflicts_with = "lines")]
    pub(crate) tui: bool,
    /// Write the events as a table with a column for each key, and show nothing
    #[arg(long, conflicts_with_all = ["lines", "tui", "page", "follow", "speed"])]
    pub(crate) csv: bool,
}

fn speed(text: &str) -> Result<f64, String> {
    let speed = text.parse().ok().filter(|speed| *speed == 0.0 || SPEEDS.contains(speed));
    speed.ok_or_else(|| "0, or a number from 0.001 to 1000000, such as 1, 60 or 0.5".to_owned())
}

/// Slower than the first one nobody looks, and with the last one ten years take five minutes.
const SPEEDS: RangeInclusive<f64> = 0.001..=1e6;
