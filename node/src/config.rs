//! [`Local`]: every setting of `intellect-node run` that belongs to this node and not to the run.
//!
//! It is parsed once, before anything starts, into values that cannot be wrong. Nothing here changes what the run
//! computes; what peers must share is in the manifest, and no setting is in both.
//!
//! The way of a setting: `clap` reads the words ([`RunArgs`]), [`Local::new`] checks them and stops
//! at the first mistake, and [`Local::with`] adds the options that an earlier start stored, once it
//! is known which run is meant. The checks that need the manifest (memory, data, micro-batch) are
//! in `enter`.

pub(crate) mod code;
pub(crate) mod options;

use std::{
    env,
    num::{NonZeroU64, NonZeroUsize},
    path::{Path, PathBuf},
    str::FromStr,
};

use intellect_model::{Device, DeviceError};
use intellect_protocol::{
    access::admit::code::Code,
    base::{
        base58,
        id::{Digest, PeerId, RunId},
    },
};

use crate::{
    cli::{
        PartArgs, RunArgs,
        page::{PageArgs, ShowArgs},
    },
    identity::Origin,
    net::address::{self, Address, AddressError},
    os,
    preset::Preset,
    store::{self, Keep},
};
use code::GivenError;
use options::Options;

/// What the user wants of this node. Every field is checked: an address parses, the device exists,
/// a number is in its range.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Local {
    /// The typed options that are stored for the next start; [`Local::with`] adds those that an earlier start stored.
    pub(crate) options: Options,
    /// Which run to join, if several are offered.
    pub(crate) run: Option<RunPrefix>,
    /// The invite to a run of invited peers, needed until the node has its ticket.
    /// Everybody who has the code can take part with it. What is stored is the ticket that is made
    /// of it, which is good for this peer alone.
    pub(crate) invite: Option<Code>,
    /// Folder of everything that this node stores.
    pub(crate) data_dir: PathBuf,
    /// Addresses at which others reach this node, if the user knows them.
    /// They are said to other peers in addition to what the network finds out, as behind a router
    /// that forwards a port.
    pub(crate) external: Vec<Address>,
    /// Where the model is computed. It is resolved, so the device exists and this build can use it.
    pub(crate) device: Device,
    /// Sequences that the model takes at a time. Absent: as many as fit, up to the manifest's batch.
    /// It changes memory and speed of this node only. A number above the batch is refused by
    /// `enter`.
    pub(crate) micro_batch: Option<NonZeroUsize>,
    /// Most bytes of the run's files to fetch in all, if they may be fetched; 0 for never.
    /// Default [`FETCH_DATA_BYTES`]. Where more is missing, the node ends with an error that names
    /// the size.
    pub(crate) fetch_data: u64,
    /// The file with the weights that the run begins with, if its manifest names published ones.
    pub(crate) genesis: Option<PathBuf>,
    /// The file of the run's tokenizer, for this node and the others.
    /// It is compared with the digest in the manifest, and a wrong one is an error.
    pub(crate) tokenizer: Option<PathBuf>,
    /// The file that events are appended to.
    pub(crate) events: Option<PathBuf>,
    /// Which states are kept for good, if any.
    /// Without it only the newest checkpoints stay on the disk.
    pub(crate) keep: Option<Keep>,
    /// The epoch at which the node stops, or at a later one if the run is past it.
    pub(crate) epochs: Option<NonZeroU64>,
    /// The state whose lineage is followed, whatever that undoes.
    /// A person gives it to decide about a fork that the node leaves open.
    pub(crate) follow: Option<Digest>,
    /// What is logged, as a filter of `tracing`. Absent: warnings of this program, and none of libraries.
    pub(crate) log: Option<String>,
    /// Whether sentences about progress are printed.
    pub(crate) voice: Voice,
    /// Where the node shows a page, if anywhere.
    pub(crate) page: PageArgs,
    /// Settings of a simulated process; its link is shaped by `intellect_bootstrap::shaper`.
    pub(crate) part: PartArgs,
}

/// How much the node prints on standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Voice {
    /// Sentences about what it does.
    Sentences,
    /// The same on a screen, where the terminal can have one.
    Screen,
    /// Nothing; errors go to standard error.
    Quiet,
}

/// The beginning of a RunId: 4 to 64 hex digits, in lower case.
///
/// Fewer digits would name a run by chance. Where runs of several organisers are offered, even more
/// are needed (`enter::choose`), since a run whose id begins with given digits can be found by
/// trying keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunPrefix(pub(crate) String);

impl RunPrefix {
    /// Whether `run` begins with it.
    pub(crate) fn matches(&self, run: &RunId) -> bool {
        run.hex().starts_with(&self.0)
    }

    /// The run, if its whole id was typed.
    pub(crate) fn whole(&self) -> Option<RunId> {
        RunId::from_hex(&self.0)
    }
}

/// Why a command line makes no sense. Nothing has been started.
/// Every message names the flag and what to type in its stead. The exit code is 2, as for an
/// unknown flag.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LocalError {
    /// No entry point was typed, and the data folder holds no run.
    #[error(
        "which run? {} remembers none. Paste the whole line that its organiser gave you \
         (intellect-node --bootstrap /ip4/…/p2p/…), name the folder of an earlier start with --data-dir, \
         or try `intellect-node sim` on this machine", .0.display()
    )]
    NoBootstrap(PathBuf),
    /// A typed address cannot be used.
    #[error("--{flag}: {why}")]
    Address {
        /// The flag, without its dashes.
        flag: &'static str,
        /// What is wrong with the address.
        why: AddressError,
    },
    /// The argument of `--run` is not hex, too short or too long.
    #[error("--run {text}: give 4 to 64 hex digits, the beginning of the run's id")]
    Run { text: String },
    /// The argument of `--follow` is no digest.
    #[error("--follow {text}: give all 64 hex digits of the state, as the event `fork` has them")]
    Follow { text: String },
    /// The argument is neither the name of a peer nor a key.
    #[error(
        "--{flag} {text}: give a peer as its node names itself (12D3KooW…, 52 characters), or the 64 hex \
         digits of a key"
    )]
    Peer {
        /// The flag, without its dashes.
        flag: &'static str,
        text: String,
    },
    /// `--invite`, its file or its variable holds no invite that can be used.
    #[error(transparent)]
    Invite(#[from] GivenError),
    /// The invite is for another run than the one that `--run` names.
    #[error(
        "--run {prefix}: the invite is for run {run}: leave --run out, or ask for another invite"
    )]
    InviteRun {
        prefix: String,
        /// The run that the invite is for.
        run: RunId,
    },
    /// This machine has no such device, or this build cannot use it.
    #[error("--device: {0}")]
    Device(DeviceError),
    /// There is no preset of this name.
    #[error("--preset {text}: choose one of {}", Preset::names())]
    Preset { text: String },
    /// More threads than four for each core.
    #[error(
        "--threads {threads}: this machine has {cores} cores: choose 1 to {most}, or leave it out"
    )]
    Threads {
        threads: NonZeroUsize,
        cores: NonZeroUsize,
        /// The greatest number that is accepted.
        most: NonZeroUsize,
    },
    /// The argument of `--log` is no filter that `tracing` understands.
    #[error(
        "--log {text}: choose error, warn, info, debug or trace, or a list like info,libp2p=debug"
    )]
    Log { text: String },
    /// Neither `XDG_DATA_HOME` nor `HOME` is set.
    #[error("no home folder is known: name a folder for this node's files with --data-dir")]
    NoHome,
}

impl Local {
    /// Validates what was typed; reads the environment for the default data folder.
    ///
    /// # Errors
    /// The first mistake that is found. Nothing was created, not even the data folder.
    pub(crate) fn new(args: RunArgs) -> Result<Self, LocalError> {
        let data_dir = args.data_dir.map_or_else(data_dir, Ok)?;
        let no_bootstrap = args.bootstrap.is_empty();
        if let Some(text) = args.log.clone().filter(|text| !is_filter(text)) {
            return Err(LocalError::Log { text });
        }
        let invite = given_invite(args.invite, args.part.simulated)?;
        let local = Self {
            options: Options {
                bootstrap: addresses("bootstrap", &args.bootstrap, address::parse_entry)?,
                data: args.data,
                rate: args.rate,
                threads: args.threads.map(threads).transpose()?,
                listen: addresses("listen", &args.listen, address::parse_listen)?,
            },
            run: run_of(args.run.as_deref(), invite.as_ref())?,
            invite,
            data_dir,
            external: addresses("external", &args.external, address::parse_external)?,
            device: parse_device(&args.device)?,
            micro_batch: args.micro_batch,
            fetch_data: args.fetch_data.unwrap_or(FETCH_DATA_BYTES),
            genesis: args.genesis,
            tokenizer: args.tokenizer,
            events: args.record.events,
            keep: args.record.keep_every.map(|every| Keep { every, most: args.record.keep }),
            epochs: args.epochs,
            follow: args.follow.as_deref().map(parse_digest).transpose()?,
            log: args.log,
            voice: voice(&args.show),
            page: args.show.page,
            part: args.part,
        };
        // This check comes last, so that it hides no other mistake. Where the folder is used, an error reports that it
        // cannot be read.
        if no_bootstrap && store::runs(&local.data_dir).is_ok_and(|runs| runs.is_empty()) {
            // A wrong working folder shows in the whole path only.
            let folder = std::path::absolute(&local.data_dir);
            return Err(LocalError::NoBootstrap(folder.unwrap_or(local.data_dir)));
        }
        Ok(local)
    }

    /// Which kind of key this node accepts as its own.
    pub(crate) fn origin(&self) -> Origin {
        if self.part.simulated { Origin::Simulated } else { Origin::Random }
    }

    /// These settings, with what an earlier start stored where nothing was typed.
    #[must_use]
    pub(crate) fn with(&self, kept: &Options) -> Self {
        Self { options: self.options.or(kept), ..self.clone() }
    }
}

impl From<RunId> for RunPrefix {
    fn from(run: RunId) -> Self {
        Self(run.hex())
    }
}

impl FromStr for RunPrefix {
    type Err = LocalError;

    fn from_str(text: &str) -> Result<Self, LocalError> {
        let hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !hex || !(4..=64).contains(&text.len()) {
            return Err(LocalError::Run { text: text.to_owned() });
        }
        Ok(Self(text.to_ascii_lowercase()))
    }
}

/// How loud the node is. `--quiet` wins over `--tui`.
fn voice(show: &ShowArgs) -> Voice {
    match show {
        ShowArgs { quiet: true, .. } => Voice::Quiet,
        ShowArgs { tui: true, .. } => Voice::Screen,
        ShowArgs { .. } => Voice::Sentences,
    }
}

/// A digest of 64 hex digits in upper or lower case.
fn parse_digest(text: &str) -> Result<Digest, LocalError> {
    Digest::from_hex(text).ok_or_else(|| LocalError::Follow { text: text.to_owned() })
}

/// A peer, or any other public key, that was typed behind a flag.
/// Both forms are accepted, since nodes print `12D3KooW…` and manifests have the key in hex.
pub(crate) fn parse_peer(flag: &'static str, text: &str) -> Result<PeerId, LocalError> {
    let peer = PeerId::from_hex(text).or_else(|| base58::decode(text));
    peer.ok_or_else(|| LocalError::Peer { flag, text: text.to_owned() })
}

/// The invite that was typed, or else the one in the variable, which simulated nodes ignore. The variable of a service
/// may name a file that its owner has removed once the node was in.
pub(crate) fn given_invite(
    typed: Option<String>,
    simulated: bool,
) -> Result<Option<Code>, LocalError> {
    if let Some(text) = typed {
        return Ok(Some(code::read("--invite", &text)?));
    }
    let set = env::var(INVITE_VARIABLE).ok().filter(|text| !simulated && !text.is_empty());
    match set.map(|text| code::read(INVITE_VARIABLE, &text)).transpose() {
        Err(GivenError::Neither { .. }) => Ok(None),
        read => Ok(read?),
    }
}

/// Which run is meant: the typed one, or that of the invite.
/// An invite names its run by the whole id, so it wins over a prefix that fits it.
pub(crate) fn run_of(
    typed: Option<&str>,
    invite: Option<&Code>,
) -> Result<Option<RunPrefix>, LocalError> {
    let typed: Option<RunPrefix> = typed.map(str::parse).transpose()?;
    let invited = invite.map(Code::run);
    match (typed, invited) {
        (Some(typed), Some(run)) if !typed.matches(&run) => {
            Err(LocalError::InviteRun { prefix: typed.0, run })
        }
        (_, Some(run)) => Ok(Some(run.into())),
        (typed, None) => Ok(typed),
    }
}

/// Checks a number of threads: a few more than cores are harmless, thousands are not.
fn threads(threads: NonZeroUsize) -> Result<NonZeroUsize, LocalError> {
    let most = cores().saturating_mul(THREADS_PER_CORE_MAX);
    if threads > most {
        return Err(LocalError::Threads { threads, cores: cores(), most });
    }
    Ok(threads)
}

/// The cores of this machine, at least 1.
fn cores() -> NonZeroUsize {
    NonZeroUsize::new(os::cores()).unwrap_or(NonZeroUsize::MIN)
}

/// Whether the text is a filter of levels, and of modules with a level. `tracing` itself takes any other word for a
/// module, and then nothing is ever logged.
fn is_filter(text: &str) -> bool {
    let is_level = |part: &str| part.parse::<tracing_subscriber::filter::LevelFilter>().is_ok();
    text.parse::<tracing_subscriber::EnvFilter>().is_ok()
        && text.split(',').all(|part| part.contains(['=', '[']) || is_level(part.trim()))
}

/// Parses a device that this build and this machine have.
pub(crate) fn parse_device(text: &str) -> Result<Device, LocalError> {
    text.parse::<Device>().and_then(Device::resolve).map_err(LocalError::Device)
}

/// The built-in preset of this name.
pub(crate) fn parse_preset(text: &str) -> Result<Preset, LocalError> {
    Preset::find(text).ok_or_else(|| LocalError::Preset { text: text.to_owned() })
}

/// Parses the addresses that were typed behind a flag.
/// The first wrong one ends it: to go on with half of a list would hide a mistake.
pub(crate) fn addresses(
    flag: &'static str,
    texts: &[String],
    parse: fn(&str) -> Result<Address, AddressError>,
) -> Result<Vec<Address>, LocalError> {
    let parse = |text: &String| parse(text).map_err(|why| LocalError::Address { flag, why });
    texts.iter().map(parse).collect()
}

/// The folder of a node's files, unless `--data-dir` names another one.
pub(crate) fn data_dir() -> Result<PathBuf, LocalError> {
    default_folder("intellect-node")
}

/// The folder of `program` for this user, from the environment.
pub(crate) fn default_folder(program: &str) -> Result<PathBuf, LocalError> {
    xdg_folder(program, env::var_os("XDG_DATA_HOME"), env::var_os("HOME"))
}

/// The folder of `program` in `$XDG_DATA_HOME`, or in `~/.local/share` if that is not an absolute path, as its
/// specification says.
fn xdg_folder(
    program: &str,
    xdg: Option<std::ffi::OsString>,
    home: Option<std::ffi::OsString>,
) -> Result<PathBuf, LocalError> {
    let absolute = |path: Option<_>| path.map(PathBuf::from).filter(|path| path.is_absolute());
    absolute(xdg)
        .or_else(|| absolute(home).map(|home| home.join(".local/share")))
        .map(|folder| folder.join(program))
        .ok_or(LocalError::NoHome)
}

/// The command that starts the node of this folder again.
pub(crate) fn command_for(folder: &Path) -> String {
    format!("intellect-node{}", folder_flag(folder))
}

/// Another command about this folder.
pub(crate) fn command_of(verb: &str, folder: &Path) -> String {
    format!("intellect-node {verb}{}", folder_flag(folder))
}

/// The flag that names a data folder, with a space before it; nothing for the default folder.
fn folder_flag(folder: &Path) -> String {
    if data_dir().is_ok_and(|default| default == folder) {
        return String::new();
    }
    format!(" --data-dir {}", shell_word(&folder.display().to_string()))
}

/// A text as one word for a POSIX shell, in quotation marks unless it has only letters that none treats specially.
/// It is for commands in sentences that a person copies. Paths may have spaces and quotation marks.
pub(crate) fn shell_word(text: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "/._-+:%".contains(letter);
    if text.is_empty() || !text.chars().all(is_plain) {
        return format!("'{}'", text.replace('\'', r"'\''"));
    }
    text.to_owned()
}

/// Default of `--fetch-data`: a home connection brings it in a quarter of an hour.
pub(crate) const FETCH_DATA_BYTES: u64 = 1_000_000_000;

/// The variable that may hold an invite, since `ps` shows a command line.
const INVITE_VARIABLE: &str = "INTELLECT_INVITE";

/// Some threads wait while others compute; beyond this number they only take turns.
const THREADS_PER_CORE_MAX: NonZeroUsize = NonZeroUsize::new(4).unwrap();

/// Any free port of every interface, TCP and QUIC.
pub(crate) const LISTEN_DEFAULT: [&str; 4] =
    ["/ip4/0.0.0.0/tcp/0", "/ip4/0.0.0.0/udp/0/quic-v1", "/ip6/::/tcp/0", "/ip6/::/udp/0/quic-v1"];

#[cfg(test)]
mod tests;
