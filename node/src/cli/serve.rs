//! What can be typed behind `serve`.

use std::{net::SocketAddr, num::NonZeroUsize, path::PathBuf};

use clap::Args;

use super::{CheckpointArgs, number::from_one};

/// Which model answers, and where.
#[derive(Clone, Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) checkpoint: CheckpointArgs,
    /// Serve the model in this folder instead of a checkpoint: one that `export` wrote, or any other of these
    /// families in Hugging Face's layout
    #[arg(long, value_name = "DIR", conflicts_with_all = ["checkpoint", "manifest", "data_dir", "run"])]
    pub(crate) hf: Option<PathBuf>,
    /// Change to newer states of the node's folder as they are written, between requests
    #[arg(long, conflicts_with_all = ["checkpoint", "hf"])]
    pub(crate) live: bool,
    /// Address to listen at; port 0 lets the system choose
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8000", value_parser = address)]
    pub(crate) listen: SocketAddr,
    /// Tokens that are read at once [default: what the run trains on; of --hf at most 2048]
    #[arg(long, value_name = "N", value_parser = from_one::<NonZeroUsize>)]
    pub(crate) context: Option<NonZeroUsize>,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "type an address and a port, as in 127.0.0.1:8000".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use crate::cli::{Cli, Verb};

    #[test]
    fn a_server_is_on_this_machine_unless_an_address_is_typed() {
        let parsed = |line: &str| {
            let line = ["intellect-node", "serve"].into_iter().chain(line.split_whitespace());
            match Cli::try_parse_from(line).map_err(|error| error.to_string())?.command {
                Some(Verb::Serve(args)) => Ok(*args),
                other => Err(format!("{other:?}")),
            }
        };
        let args = parsed("").unwrap();
        assert!(args.listen.ip().is_loopback() && args.listen.port() == 8000 && !args.live);
        assert!(!parsed("--listen 0.0.0.0:80").unwrap().listen.ip().is_loopback());
        assert!(parsed("--listen 8000").unwrap_err().contains("127.0.0.1:8000"));
        for line in ["--hf a --live", "--hf a --checkpoint b", "--checkpoint b --live"] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }
}
