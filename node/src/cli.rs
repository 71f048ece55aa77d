//! The command line of `intellect-node`, as `clap` reads it.
//!
//! `run` is the default: the line that an organiser hands out needs no word, only `--bootstrap`. Everything here is
//! still text or a plain number; [`crate::config`] and the commands turn it into values that cannot be wrong. Only
//! this file and `lib.rs` use the terminal.

pub(crate) mod access;
pub(crate) mod data;
pub(crate) mod device;
pub(crate) mod manifest;
pub(crate) mod merge;
pub(crate) mod page;
pub(crate) mod receipts;
pub(crate) mod doctor;
pub(crate) mod eval;
mod help;
pub(crate) mod replay;
pub(crate) mod serve;
pub(crate) mod status;
pub(crate) mod tui;
pub(crate) mod watch;
pub(crate) mod report;
pub(crate) mod number;
mod path;
pub(crate) mod typed;

use std::{
    num::{NonZeroU64, NonZeroUsize},
    path::PathBuf,
};

use clap::{Args, Parser, Subcommand, ValueEnum};
use intellect_model::{arch::EXPANDED_BYTES, config::Family, hf::export::SHARD_BYTES};

use access::{InviteCommand, VouchArgs};
use data::DataCommand;
use device::DeviceArgs;
use doctor::DoctorArgs;
use eval::EvalArgs;
use help::{EXPERTS, FILES, JOINING, OUTPUT, THIS_MACHINE, preset_help};
use manifest::ManifestCommand;
use merge::{MergeArgs, SpectrumCommand};
use number::{bytes, file_bytes, from_one, from_zero, peers};
use page::{PageArgs, ShowArgs};
use receipts::ReceiptsCommand;
use replay::ReplayArgs;
use report::ReportArgs;
use serve::ServeArgs;
use status::StatusArgs;
use tui::TuiArgs;
use watch::WatchArgs;

/// Trains one language model together with everyone else who joins the run.
///
/// Paste the line that the organiser of a run gave you:
///
///   intellect-node --bootstrap /ip4/…/tcp/…/p2p/12D3KooW…
///
/// This machine then finds the other peers, fetches the current weights, trains, and averages what
/// it learnt with all the others. Ctrl-C leaves; `intellect-node` with the same --data-dir comes back.
#[derive(Debug, Parser)]
#[command(
    name = NODE,
    version,
    args_conflicts_with_subcommands = true,
    verbatim_doc_comment,
    after_help = "Without a network: `intellect-node sim` trains with several real nodes on this \
                  machine.\nExit codes: 0 done, 1 failed, 2 wrong usage, 3 the node waits (`status`, `doctor`), \
                  4 another program runs with the key of this node, 130 Ctrl-C ended `sim`."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Verb>,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// The subcommands of `intellect-node`.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Takes part in a run (the default)
    Run(Box<RunArgs>),
    /// Trains with several real nodes on this machine, and judges the result
    Sim(Box<SimArgs>),
    /// Makes a key, for a node or for an organiser
    Keygen(KeygenArgs),
    /// Writes or explains the signed settings of a run
    #[command(subcommand)]
    Manifest(ManifestCommand),
    /// Decides who may take part in a run of invited peers
    #[command(subcommand)]
    Invite(InviteCommand),
    /// Attests, with the organiser's key, which lineage is the run's: nodes on another one give it up
    ///
    /// A node that was cut off, or deceived, follows the lineage that contains the attested state, however
    /// many tokens another lineage has. Each attestation is of a later state of the same lineage than the
    /// one before.
    Vouch(VouchArgs),
    /// Makes token files of documents, and explains them
    #[command(subcommand)]
    Data(DataCommand),
    /// Measures a checkpoint, or a model in a folder, on held-out data or on any file
    Eval(Box<EvalArgs>),
    /// Writes text with a checkpoint
    Sample(SampleArgs),
    /// Answers other programs with a model, by the HTTP interface of OpenAI
    Serve(Box<ServeArgs>),
    /// Writes a checkpoint as a folder that other programs load, in Hugging Face's layout
    Export(ExportArgs),
    /// Makes one model of several, by a recipe in mergekit's YAML
    Merge(MergeArgs),
    /// Finds the matrices of a model that are worth training
    #[command(subcommand)]
    Spectrum(SpectrumCommand),
    /// Proves what a peer has done for a run, without a network
    #[command(subcommand)]
    Receipts(ReceiptsCommand),
    /// Shows a run from the events that a node wrote: on a page, or in lines
    Replay(ReplayArgs),
    /// Shows a run from outside, without training: on a page, in lines, and as files for any web host
    Watch(WatchArgs),
    /// Says what the node of a folder does: 0 it is in the run, 1 no node runs, 3 it waits or is behind
    Status(StatusArgs),
    /// Shows the node of a folder on a screen in the terminal, such as one that runs as a service
    Tui(TuiArgs),
    /// Puts simulations of equal settings on one page, over one another, with mean and standard error
    Report(ReportArgs),
    /// Examines whether this machine and its network suit a run, and says what to do
    Doctor(DoctorArgs),
    /// Measures the speed of this machine
    #[command(subcommand)]
    Bench(BenchCommand),
    /// The public entry point, where there is no program of its name
    #[command(hide = true)]
    Bootstrap(BootstrapArgs),
    /// Writes completions for shells and pages for man, for packages
    #[command(hide = true)]
    Generate {
        /// The folder that gets `completions/` and `man/`
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
}

/// Settings of one node; none of them changes what the run computes. What is typed for --bootstrap, --data,
/// --listen, --rate and --threads is kept in the run's folder, and used by the next start unless it is
/// typed again.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct RunArgs {
    /// Entry point of the run: the address of a peer, ending in /p2p/ and its id; may be given several
    /// times
    #[arg(long, value_name = "MULTIADDR", help_heading = JOINING)]
    pub(crate) bootstrap: Vec<String>,
    /// Which run, if several are offered: the beginning of its id
    #[arg(long, value_name = "PREFIX", help_heading = JOINING)]
    pub(crate) run: Option<String>,
    /// Join a run of invited peers by this invite: its code, or better a file that holds it, or - for
    /// standard input. `ps` shows command lines to everybody on this machine, so the variable
    /// INTELLECT_INVITE is better too. Needed once: this node then keeps a ticket of its own
    #[arg(long, value_name = "CODE", help_heading = JOINING)]
    pub(crate) invite: Option<String>,
    /// Folder of this node's key, votes and checkpoints [default: $XDG_DATA_HOME/intellect-node]
    #[arg(long, value_name = "DIR", help_heading = FILES)]
    pub(crate) data_dir: Option<PathBuf>,
    /// Addresses to listen at [default: any free port, TCP and QUIC, IPv4 and IPv6]
    #[arg(long, value_name = "MULTIADDR", num_args = 1.., help_heading = THIS_MACHINE)]
    pub(crate) listen: Vec<String>,
    /// Address at which others reach this node, if a router forwards a port
    #[arg(long, value_name = "MULTIADDR", help_heading = THIS_MACHINE)]
    pub(crate) external: Vec<String>,
    /// Device that trains: auto, cpu, cuda:N or gpu:N
    #[arg(long, value_name = "DEVICE", default_value = "auto", help_heading = THIS_MACHINE)]
    pub(crate) device: String,
    /// Threads that compute [default: all cores]
    #[arg(long, value_name = "N", value_parser = from_one::<NonZeroUsize>, help_heading = THIS_MACHINE)]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Sequences that the model takes at a time; fewer need less memory [default: as many as fit, one on a GPU that
    /// does not say its memory]
    #[arg(long, value_name = "N", value_parser = from_one::<NonZeroUsize>, help_heading = THIS_MACHINE)]
    pub(crate) micro_batch: Option<NonZeroUsize>,
    /// Most bulk bytes to send in a second, as in 500k or 10M [default: 0, no limit]
    #[arg(long, value_name = "BYTES", value_parser = bytes, help_heading = THIS_MACHINE)]
    pub(crate) rate: Option<u64>,
    /// The run's files, if it trains on some, or folders that hold them
    #[arg(long, value_name = "PATH", num_args = 1.., value_parser = path::data(), help_heading = FILES)]
    pub(crate) data: Vec<PathBuf>,
    /// Most bytes of the run's data to fetch in all, if it is not here: from other peers that may hand it out, or
    /// from the server that its organiser names; 0 for never [default: 1G]
    #[arg(long, value_name = "BYTES", value_parser = bytes, help_heading = FILES)]
    pub(crate) fetch_data: Option<u64>,
    /// The weights that the run begins with, from `manifest new --from-hf` or --from-run; without the file
    /// they come from other peers
    #[arg(long, value_name = "FILE", help_heading = FILES)]
    pub(crate) genesis: Option<PathBuf>,
    /// The file of the run's tokenizer, to hand it to the other peers: one of them needs to have it
    #[arg(long, value_name = "FILE", help_heading = FILES)]
    pub(crate) tokenizer: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) record: RecordArgs,
    /// Stop when the run has this many epochs
    #[arg(long, value_name = "N", value_parser = from_one::<NonZeroU64>, help_heading = JOINING)]
    pub(crate) epochs: Option<NonZeroU64>,
    /// Follow the run's head with this state, whatever it undoes here; an event `fork` that is held names it: all
    /// 64 digits
    #[arg(long, value_name = "DIGEST", help_heading = EXPERTS)]
    pub(crate) follow: Option<String>,
    /// How much to log on standard error, also of the libraries: error, warn, info, debug, trace, or a list by
    /// module [default: this program's own warnings]
    #[arg(long, value_name = "LEVEL", help_heading = EXPERTS)]
    pub(crate) log: Option<String>,
    #[command(flatten)]
    pub(crate) show: ShowArgs,
    #[command(flatten)]
    pub(crate) part: PartArgs,
}

/// What a node writes for later.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct RecordArgs {
    /// Append events to this file, one JSON object a line
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub(crate) events: Option<PathBuf>,
    /// Keep the state of every K-th epoch for good, in the run's folder milestones/; typed at each start
    #[arg(long, value_name = "K", value_parser = from_one::<NonZeroU64>, help_heading = FILES)]
    pub(crate) keep_every: Option<NonZeroU64>,
    /// Keep only so many of them, the newest [default: all]
    #[arg(long, value_name = "N", value_parser = from_one::<NonZeroUsize>, requires = "keep_every", help_heading = FILES)]
    pub(crate) keep: Option<NonZeroUsize>,
}

/// What `sim` tells its processes.
#[derive(Clone, Debug, Default, PartialEq, Args)]
pub(crate) struct PartArgs {
    /// A process of `sim`: takes its simulated key, and ends with its parent
    #[arg(long, hide = true)]
    pub(crate) simulated: bool,
    /// The file with the state of such a process's link
    #[arg(long, hide = true, requires = "simulated")]
    pub(crate) line: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct SimArgs {
    /// Nodes to start [default: 4; with --virtual 16]
    #[arg(long, value_name = "N", value_parser = peers)]
    pub(crate) peers: Option<NonZeroUsize>,
    /// Epochs to commit [default: 20 with the built-in manifest]
    #[arg(long, value_name = "N", value_parser = from_one::<NonZeroU64>)]
    pub(crate) epochs: Option<NonZeroU64>,
    /// Train on this text, or on token files or folders of them, instead of the synthetic source
    #[arg(long, value_name = "PATH", num_args = 1.., value_parser = path::data())]
    pub(crate) data: Vec<PathBuf>,
    /// Use the settings of this manifest
    #[arg(long, value_name = "FILE")]
    pub(crate) manifest: Option<PathBuf>,
    #[arg(long, value_name = "PRESET", conflicts_with = "manifest", help = preset_help())]
    pub(crate) preset: Option<String>,
    /// The published weights of that manifest, for the first node; the others fetch them
    #[arg(long, value_name = "FILE", requires = "manifest")]
    pub(crate) genesis: Option<PathBuf>,
    /// Change one setting of the built-in manifest; may be given several times
    #[arg(long, value_name = "KEY=VALUE", conflicts_with = "manifest")]
    pub(crate) set: Vec<String>,
    /// A file that says what happens to which peer and when (TOML; docs/STUDY.md shows one)
    #[arg(long, value_name = "FILE")]
    pub(crate) scenario: Option<PathBuf>,
    /// Disturb peers at random: "kill every 5s for 5m", "kill each epoch"; also stop and cut
    #[arg(long, value_name = "RULES")]
    pub(crate) chaos: Option<String>,
    /// How links are made bad if a scenario or chaos asks for it
    #[arg(long, value_enum, value_name = "KIND", default_value = "auto")]
    pub(crate) links: LinkKind,
    /// Seed of keys, weights, data and chance
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = from_zero)]
    pub(crate) seed: u64,
    /// Keep report, events, logs and checkpoints here; with --virtual the counts [default: nothing is kept, unless it
    /// fails]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Devices that the nodes train on, in turn: cpu, cuda:N or gpu:N, such as cpu,gpu:0
    #[arg(long, value_name = "DEVICES", value_delimiter = ',', default_value = "cpu")]
    pub(crate) devices: Vec<String>,
    /// Most bulk bytes that each node sends in a second, as in 500k or 10M; 0 is no limit
    #[arg(long, value_name = "BYTES", default_value_t = 0, value_parser = bytes)]
    pub(crate) rate: u64,
    #[command(flatten)]
    pub(crate) page: PageArgs,
    /// Show a screen in the terminal: loss, peers and what is printed, until the end, q or Ctrl-C
    #[arg(long, help_heading = OUTPUT)]
    pub(crate) tui: bool,
    /// Start no processes: run the same protocol in virtual time, over many seeds
    #[arg(long = "virtual", conflicts_with_all = [
        "epochs", "data", "manifest", "genesis", "preset", "set", "scenario", "chaos", "links", "seed", "devices",
        "rate",
    ])]
    pub(crate) in_virtual_time: bool,
    /// Seeds to try, half-open: the second number is not tried
    #[arg(long, value_name = "A..B", requires = "in_virtual_time", default_value = "0..64")]
    pub(crate) seeds: String,
    /// Kind of faults: clean, lossy, churn, blackhole, partition, mixed, nat, evening, liars, half or invited [default: one
    /// after the other]
    #[arg(long, value_name = "CLASS", requires = "in_virtual_time")]
    pub(crate) faults: Option<String>,
    /// Print everything that was counted, instead of a table
    #[arg(long, requires = "in_virtual_time")]
    pub(crate) details: bool,
}

/// What makes the links of a simulation bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LinkKind {
    /// Emulated if that is possible, else shaped
    Auto,
    /// Every packet is delayed, dropped or paced, between network namespaces: Linux, root and /dev/net/tun
    Emulated,
    /// Each node delays and paces its own TCP streams
    Shaped,
}

/// `intellect-bootstrap`: the public entry point of training runs.
///
/// It lets nodes find one another, and hands out the signed manifests of the runs that they can
/// join. It prints the lines for contributors.
#[derive(Clone, Debug, Parser)]
#[command(name = BOOTSTRAP, version)]
pub(crate) struct BootstrapArgs {
    /// Signed manifests to hand out, as `intellect-node manifest new` writes them
    #[arg(long = "manifest", value_name = "FILE", required = true, num_args = 1..)]
    pub(crate) manifests: Vec<PathBuf>,
    /// Hand a manifest only to peers that name its run, by the whole id or by an invite
    #[arg(long)]
    pub(crate) unlisted: bool,
    /// Addresses to listen at, such as /ip4/0.0.0.0/tcp/4001; port 0 lets the system choose
    #[arg(long, value_name = "MULTIADDR", required = true, num_args = 1..)]
    pub(crate) listen: Vec<String>,
    /// Addresses at which others reach this machine, if it cannot see them itself
    #[arg(long, value_name = "MULTIADDR", num_args = 1..)]
    pub(crate) external: Vec<String>,
    /// Folder of the bootstrap's key [default: $XDG_DATA_HOME/intellect-bootstrap]
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Bytes per second at which peers may measure their line here (`doctor`), one of each network in ten
    /// minutes; 0 for never
    #[arg(long, value_name = "BYTES", default_value = "2M", value_parser = bytes)]
    pub(crate) measure_rate: u64,
    /// The file with the state of the link of a process of `sim`
    #[arg(long, hide = true)]
    pub(crate) line: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct KeygenArgs {
    /// The new file; an existing one is never overwritten
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
}

/// A checkpoint, and the run that it belongs to.
#[derive(Clone, Debug, Args)]
pub(crate) struct StateArgs {
    /// The checkpoint [default: the newest one of the data folder]
    #[arg(long, value_name = "FILE")]
    pub(crate) checkpoint: Option<PathBuf>,
    /// Its manifest [default: the one of its own name, else run.toml of the folder that holds it]
    #[arg(long, value_name = "FILE", requires = "checkpoint")]
    pub(crate) manifest: Option<PathBuf>,
    /// Folder of a node [default: $XDG_DATA_HOME/intellect-node]
    #[arg(long, value_name = "DIR", conflicts_with = "checkpoint")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Which run of that folder: the beginning of its id
    #[arg(long, value_name = "PREFIX", conflicts_with = "checkpoint")]
    pub(crate) run: Option<String>,
}

/// A checkpoint, and the device that computes with it.
#[derive(Clone, Debug, Args)]
pub(crate) struct CheckpointArgs {
    #[command(flatten)]
    pub(crate) state: StateArgs,
    /// The run's tokenizer, if it has a file [default: the one in the checkpoint's folder]
    #[arg(long, value_name = "FILE")]
    pub(crate) tokenizer: Option<PathBuf>,
    /// Device that computes: auto, cpu, cuda:N or gpu:N
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    pub(crate) device: String,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    pub(crate) state: StateArgs,
    /// The new folder; an existing one must be empty
    #[arg(long, value_name = "DIR")]
    pub(crate) to: PathBuf,
    /// The run's tokenizer, if it has a file [default: the one in the checkpoint's folder]
    #[arg(long, value_name = "FILE")]
    pub(crate) tokenizer: Option<PathBuf>,
    /// How the numbers of the model are written
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "f32")]
    pub(crate) format: NumberFormat,
    /// Most bytes of tensors in one file, as in 2G
    #[arg(long, value_name = "BYTES", default_value_t = SHARD_BYTES, value_parser = file_bytes)]
    pub(crate) shard_bytes: u64,
}

/// How the numbers of a model are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum NumberFormat {
    /// 32 bits for each number, exact
    F32,
    /// 16 bits for each number, rounded
    Bf16,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct SampleArgs {
    #[command(flatten)]
    pub(crate) checkpoint: CheckpointArgs,
    /// Beginning of the text [default: a new line]
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) prompt: String,
    /// How many tokens to write after the prompt, unless its document ends before
    #[arg(long, value_name = "N", default_value = "200", value_parser = from_one::<NonZeroUsize>)]
    pub(crate) tokens: NonZeroUsize,
    /// 0 always takes the likeliest token, 1 draws by the model's probabilities
    #[arg(long, value_name = "T", default_value_t = 0.8, allow_negative_numbers = true)]
    pub(crate) temperature: f64,
    /// Draw from the fewest tokens that have this share of the probability together; 1: from all
    #[arg(long, value_name = "P", default_value_t = 0.95, allow_negative_numbers = true)]
    pub(crate) top_p: f64,
    /// Seed of the random numbers that draw tokens
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = from_zero)]
    pub(crate) seed: u64,
    /// Write on with other documents when the first one ends
    #[arg(long)]
    pub(crate) past_end: bool,
    /// Memory for what a GoldFinch would else compute again for each token, as in 2G; 0: none
    #[arg(long, value_name = "BYTES", default_value_t = EXPANDED_BYTES, value_parser = bytes)]
    pub(crate) gold_cache: u64,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Speed and error of the codecs, compared with copying memory
    Codec {
        /// One JSON object instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Tokens per second, memory and time by part of training a small model
    Train {
        /// Architecture, as a manifest names it
        #[arg(long, value_name = "NAME", default_value = "llama",
            help = format!("Architecture: {}", Family::ALL.map(Family::name).join(", ")))]
        family: Family,
        /// One JSON object instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Checks whether a device computes correctly, and how fast: a GPU in under eight minutes
    Device(DeviceArgs),
    /// Megabytes of text that one core turns into tokens in a second
    Tokenizer {
        /// A vocabulary of RWKV World, or a tokenizer.json [default: the bytes themselves]
        #[arg(long, value_name = "FILE")]
        tokenizer: Option<PathBuf>,
        /// The text to measure with [default: a built-in one]
        #[arg(long, value_name = "FILE")]
        data: Option<PathBuf>,
        /// One JSON object instead of a table
        #[arg(long)]
        json: bool,
    },
    /// What it costs a node to show its run: one event, and one copy of the picture for readers
    View {
        /// Members of the run, all of them in each ring
        #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..=256))]
        members: u16,
        /// One JSON object instead of a table
        #[arg(long)]
        json: bool,
    },
}

/// The name of the program, by which it is a node and all the commands.
pub(crate) const NODE: &str = "intellect-node";
/// The second name of the same program, by which it is an entry point.
pub(crate) const BOOTSTRAP: &str = "intellect-bootstrap";

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
        BootstrapArgs::command().debug_assert();
    }

    #[test]
    fn run_is_the_default_command() {
        let bare = Cli::try_parse_from(["intellect-node", "--bootstrap", "/x", "--epochs", "3"]);
        let bare = bare.unwrap();
        assert!(bare.command.is_none());
        assert_eq!(bare.run.bootstrap, ["/x"]);
        let named = Cli::try_parse_from(["intellect-node", "run", "--bootstrap", "/x"]).unwrap();
        assert!(matches!(named.command, Some(Verb::Run(args)) if args.bootstrap == ["/x"]));
    }

    #[test]
    fn flags_of_run_and_a_subcommand_do_not_mix() {
        assert!(Cli::try_parse_from(["intellect-node", "--bootstrap", "/x", "keygen"]).is_err());
        assert!(Cli::try_parse_from(["intellect-node", "sim", "--faults", "lossy"]).is_err());
        assert!(
            Cli::try_parse_from(["intellect-node", "sim", "--virtual", "--seed", "1"]).is_err()
        );
        assert!(Cli::try_parse_from(["intellect-node", "--epochs", "0"]).is_err());
    }

    #[test]
    fn a_bootstrap_takes_several_manifests_and_addresses() {
        let line = "x --manifest a b --listen /ip4/0.0.0.0/tcp/0 /ip4/0.0.0.0/udp/0/quic-v1";
        let args = BootstrapArgs::try_parse_from(line.split(' ')).unwrap();
        assert_eq!((args.manifests.len(), args.listen.len()), (2, 2));
        assert!(BootstrapArgs::try_parse_from(["x", "--manifest", "a"]).is_err());
    }
}
