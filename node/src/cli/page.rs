//! What can be typed about a page.

use std::net::SocketAddr;

use clap::Args;

use super::help::OUTPUT;

/// Where a page for browsers is shown, if anywhere.
#[derive(Clone, Debug, Default, PartialEq, Args)]
pub(crate) struct PageArgs {
    /// Show a page for browsers, at this address [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS", help_heading = OUTPUT, num_args = 0..=1, default_missing_value = "127.0.0.1:8080", value_parser = address)]
    pub(crate) page: Option<SocketAddr>,
    /// A name by which browsers may ask for the page, in addition to its address
    #[arg(long, value_name = "NAME", help_heading = OUTPUT, requires = "page")]
    pub(crate) page_host: Vec<String>,
}

/// What a running node shows of itself.
#[derive(Clone, Debug, Default, PartialEq, Args)]
pub(crate) struct ShowArgs {
    /// Print only what goes wrong, and no progress
    #[arg(long, help_heading = OUTPUT)]
    pub(crate) quiet: bool,
    /// Show a screen in the terminal: loss, peers and sentences, until q or Ctrl-C, which make the node leave
    #[arg(long, help_heading = OUTPUT, conflicts_with = "quiet")]
    pub(crate) tui: bool,
    #[command(flatten)]
    pub(crate) page: PageArgs,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "an address such as 127.0.0.1:8080 may follow --page; write files before it".to_owned()
    })
}
