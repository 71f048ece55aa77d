//! What can be typed behind `replay`.

use std::{net::SocketAddr, path::PathBuf};

use clap::Args;

/// Which events are shown, how, and how fast.
#[derive(Clone, Debug, Args)]
pub(crate) struct ReplayArgs {
    /// What a node wrote by --events; files of the same run besides are shown with it, such as the
    /// sim.jsonl of a simulation, which has the held-out loss
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Seconds of the file in a second, pauses over 10 s cut; 0 is all at once
    #[arg(long, value_name = "N", default_value = "1", value_parser = speed, conflicts_with = "follow")]
    pub(crate) speed: f64,
    /// Read on while the file grows, as of a node that runs
    #[arg(long)]
    pub(crate) follow: bool,
    /// Show a page in the browser, at this address [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "127.0.0.1:8080")]
    pub(crate) page: Option<SocketAddr>,
    /// A name by which browsers may ask for the page, beside the address itself
    #[arg(long, value_name = "NAME", requires = "page")]
    pub(crate) page_host: Vec<String>,
    /// Show three lines, also beside a page [default: if there is no page]
    #[arg(long)]
    pub(crate) lines: bool,
}

fn speed(text: &str) -> Result<f64, String> {
    let speed = text.parse().ok().filter(|speed: &f64| speed.is_finite() && *speed >= 0.0);
    speed.ok_or_else(|| "a number from 0 up, such as 1, 60 or 0.5".to_owned())
}
