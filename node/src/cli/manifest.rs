//! The command line of `manifest`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::help::preset_help;
use super::path;
use crate::preset::Preset;

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ManifestCommand {
    /// Writes the settings of a new run, every one of them, and signs them
    New(Box<ManifestNewArgs>),
    /// Checks a manifest and says what it means
    Show {
        /// The signed manifest to explain
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

/// The arguments of `manifest new`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ManifestNewArgs {
    /// The new file; an existing one is never overwritten
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Key that signs it, from `keygen` [default: the key of this node's data folder]
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// Name of the run: 1 to 64 letters, digits, dots, underscores, hyphens
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    #[arg(long, value_name = "PRESET", default_value = Preset::ALL[0].name, help = preset_help())]
    pub(crate) preset: String,
    /// Begin with the model in this folder, in Hugging Face's layout, or in this .pth file of an RWKV-5 or
    /// RWKV-6: its sizes are the run's, and its weights are written beside --out, as .ckpt, for the first
    /// node's --genesis
    #[arg(long, value_name = "PATH")]
    pub(crate) from_hf: Option<PathBuf>,
    /// Go on with the run in this data folder of a node: its settings, and the weights of its newest
    /// checkpoint, which are written beside --out, as .ckpt, for the first node's --genesis
    #[arg(long, value_name = "DATA_DIR", conflicts_with_all = ["from_hf", "preset", "data"])]
    pub(crate) from_run: Option<PathBuf>,
    /// Which run of that folder: the beginning of its id
    #[arg(long, value_name = "PREFIX", requires = "from_run")]
    pub(crate) run: Option<String>,
    /// Train on this text or token file, or mix several token files, or folders of them; every peer
    /// needs the same
    #[arg(long, value_name = "PATH", num_args = 1.., value_parser = path::data())]
    pub(crate) data: Vec<PathBuf>,
    /// Let peers hand these files to peers that lack them: only if they may be passed on
    #[arg(long, requires = "data")]
    pub(crate) share: bool,
    /// Admit only peers with an invite, as `intellect-node invite new` makes them with the key that signs the
    /// manifest; without this, any peer may join
    #[arg(long)]
    pub(crate) invited: bool,
    /// Change one setting, as in `--set model.layers=6`; may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
}
