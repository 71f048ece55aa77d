//! What this node was told: [`Local`], every setting of `intellect-node run` that is mine and not
//! the run's.
//!
//! Parsed once, before anything starts, into values that cannot be wrong. Nothing here changes
//! what the run computes; what peers must share is in the manifest, and no setting is in both.

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
    cli::{PartArgs, RunArgs},
    identity::Origin,
    net::address::{self, Address, AddressError},
    os,
    preset::Preset,
    store,
};
use code::GivenError;
use options::Options;

/// The settings of one node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Local {
    /// What was typed of that which is kept for the next start; [`Local::with`] adds what an earlier one kept.
    pub(crate) options: Options,
    /// Which run, when several are offered.
    pub(crate) run: Option<RunPrefix>,
    /// What lets this node into a run of invited peers, if it has not come in before.
    pub(crate) invite: Option<Code>,
    /// Folder of everything that this node keeps.
    pub(crate) data_dir: PathBuf,
    /// Where others reach this node, if the user knows.
    pub(crate) external: Vec<Address>,
    /// What trains.
    pub(crate) device: Device,
    /// Sequences that one pass of the model takes; absent: as many as the manifest's batch.
    pub(crate) micro_batch: Option<NonZeroUsize>,
    /// Most bytes of the run's files that are fetched in all, where they may be; 0 is never.
    pub(crate) fetch_data: u64,
    /// The weights that the run begins with, where its manifest names published ones.
    pub(crate) genesis: Option<PathBuf>,
    /// The file of the run's tokenizer, from whoever has it.
    pub(crate) tokenizer: Option<PathBuf>,
    /// Where events are appended.
    pub(crate) events: Option<PathBuf>,
    /// Stop at this head or a later one.
    pub(crate) epochs: Option<NonZeroU64>,
    /// The head that is followed whatever it undoes.
    pub(crate) follow: Option<Digest>,
    /// How much is logged, as `tracing` filters it; unless it is said, what libraries log is nobody's business.
    pub(crate) log: Option<String>,
    /// Whether sentences about progress are left out.
    pub(crate) voice: Voice,
    /// What a simulation says to its processes; their line is `intellect_bootstrap::shaper`'s.
    pub(crate) part: PartArgs,
}

/// Whether the node tells a person what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Voice {
    /// In sentences on standard output.
    Sentences,
    /// Only what goes wrong.
    Quiet,
}

/// The beginning of a RunId: 4 to 64 hex digits, kept in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunPrefix(String);

impl RunPrefix {
    /// Whether `run` begins with it.
    pub(crate) fn matches(&self, run: &RunId) -> bool {
        run.hex().starts_with(&self.0)
    }

    /// The run, where all of its id was typed.
    pub(crate) fn whole(&self) -> Option<RunId> {
        RunId::from_hex(&self.0)
    }

    /// As typed, in lower case.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// What is wrong with what the user typed. Nothing has been started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LocalError {
    /// No address to enter at is named, and the data folder holds no run.
    #[error(
        "which run? Paste the whole line that its organiser gave you \
         (intellect-node --bootstrap /ip4/…/p2p/…), or try `intellect-node sim` on this machine"
    )]
    NoBootstrap,
    /// An address that cannot be used.
    #[error("--{flag}: {why}")]
    Address {
        /// The flag, without its dashes.
        flag: &'static str,
        /// What is wrong.
        why: AddressError,
    },
    /// No hex, or too short to be sure.
    #[error("--run {text}: give 4 to 64 hex digits, the beginning of the run's id")]
    Run {
        /// What was typed.
        text: String,
    },
    /// No digest of a state.
    #[error("--follow {text}: give all 64 hex digits of the state, as the event `fork` has them")]
    Follow {
        /// What was typed.
        text: String,
    },
    /// No name of a peer, and no key.
    #[error(
        "--{flag} {text}: give a peer as its node names itself (12D3KooW…, 52 characters), or the 64 hex \
         digits of a key"
    )]
    Peer {
        /// The flag, without its dashes.
        flag: &'static str,
        /// What was typed.
        text: String,
    },
    /// There is no invite in what was given for one.
    #[error(transparent)]
    Invite(#[from] GivenError),
    /// An invite for another run than the one that is named.
    #[error(
        "--run {prefix}: the invite is for run {run}: leave --run out, or ask for another invite"
    )]
    InviteRun {
        /// What was typed.
        prefix: String,
        /// The run of the invite.
        run: RunId,
    },
    /// No such device, or none that this build can use.
    #[error("--device: {0}")]
    Device(DeviceError),
    /// No such preset.
    #[error("--preset {text}: choose one of {}", Preset::names())]
    Preset {
        /// What was typed.
        text: String,
    },
    /// Far more threads than cores.
    #[error(
        "--threads {threads}: this machine has {cores} cores: choose 1 to {most}, or leave it out"
    )]
    Threads {
        /// What was typed.
        threads: NonZeroUsize,
        /// The cores of this machine.
        cores: NonZeroUsize,
        /// The greatest number that is accepted.
        most: NonZeroUsize,
    },
    /// A logging directive that `tracing` does not understand.
    #[error(
        "--log {text}: choose error, warn, info, debug or trace, or a list like info,libp2p=debug"
    )]
    Log {
        /// What was typed.
        text: String,
    },
    /// Neither `XDG_DATA_HOME` nor `HOME` is set.
    #[error("no home folder is known: say with --data-dir where this node may keep its files")]
    NoHome,
}

impl Local {
    /// Validates what was typed; reads the environment for the default data folder.
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
            events: args.events,
            epochs: args.epochs,
            follow: args.follow.as_deref().map(parse_digest).transpose()?,
            log: args.log,
            voice: if args.quiet { Voice::Quiet } else { Voice::Sentences },
            part: args.part,
        };
        // This comes last, so that it hides no other mistake. A folder that cannot be read is named
        // where it is used.
        if no_bootstrap && store::runs(&local.data_dir).is_ok_and(|runs| runs.is_empty()) {
            return Err(LocalError::NoBootstrap);
        }
        Ok(local)
    }

    /// Which kind of key is acceptable.
    pub(crate) fn origin(&self) -> Origin {
        if self.part.simulated { Origin::Simulated } else { Origin::Random }
    }

    /// The same, with what an earlier start kept where nothing was typed.
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

fn parse_digest(text: &str) -> Result<Digest, LocalError> {
    Digest::from_hex(&text.to_ascii_lowercase())
        .ok_or_else(|| LocalError::Follow { text: text.to_owned() })
}

/// A peer, or any other public key, that was typed behind a flag.
pub(crate) fn parse_peer(flag: &'static str, text: &str) -> Result<PeerId, LocalError> {
    let peer = PeerId::from_hex(text).or_else(|| base58::decode(text));
    peer.ok_or_else(|| LocalError::Peer { flag, text: text.to_owned() })
}

/// What is typed, or else what the variable holds; simulated nodes are not who set that.
fn given_invite(typed: Option<String>, simulated: bool) -> Result<Option<Code>, LocalError> {
    if let Some(text) = typed {
        return Ok(Some(code::read("--invite", &text)?));
    }
    let set = env::var(INVITE_VARIABLE).ok().filter(|text| !simulated && !text.is_empty());
    Ok(set.map(|text| code::read(INVITE_VARIABLE, &text)).transpose()?)
}

/// Which run is meant: that of the invite, where nothing else is said.
fn run_of(typed: Option<&str>, invite: Option<&Code>) -> Result<Option<RunPrefix>, LocalError> {
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

/// Threads that were asked for: some more than there are cores are harmless, thousands are not.
fn threads(threads: NonZeroUsize) -> Result<NonZeroUsize, LocalError> {
    let most = cores().saturating_mul(THREADS_PER_CORE_MAX);
    if threads > most {
        return Err(LocalError::Threads { threads, cores: cores(), most });
    }
    Ok(threads)
}

fn cores() -> NonZeroUsize {
    NonZeroUsize::new(os::cores()).unwrap_or(NonZeroUsize::MIN)
}

/// Whether `tracing` understands it: levels, and modules with a level. To `tracing` a word that is
/// no level is a module of any name, and then nothing is ever logged.
fn is_filter(text: &str) -> bool {
    let is_level = |part: &str| part.parse::<tracing_subscriber::filter::LevelFilter>().is_ok();
    text.parse::<tracing_subscriber::EnvFilter>().is_ok()
        && text.split(',').all(|part| part.contains(['=', '[']) || is_level(part.trim()))
}

/// A device that this build and this machine have.
pub(crate) fn parse_device(text: &str) -> Result<Device, LocalError> {
    text.parse::<Device>().and_then(Device::resolve).map_err(LocalError::Device)
}

/// A preset that this program has.
pub(crate) fn parse_preset(text: &str) -> Result<Preset, LocalError> {
    Preset::find(text).ok_or_else(|| LocalError::Preset { text: text.to_owned() })
}

/// Addresses that were typed behind a flag.
pub(crate) fn addresses(
    flag: &'static str,
    texts: &[String],
    parse: fn(&str) -> Result<Address, AddressError>,
) -> Result<Vec<Address>, LocalError> {
    let parse = |text: &String| parse(text).map_err(|why| LocalError::Address { flag, why });
    texts.iter().map(parse).collect()
}

/// Where a node keeps its files unless it is told.
pub(crate) fn data_dir() -> Result<PathBuf, LocalError> {
    default_folder("intellect-node")
}

/// Where a program keeps its files unless it is told.
pub(crate) fn default_folder(program: &str) -> Result<PathBuf, LocalError> {
    xdg_folder(program, env::var_os("XDG_DATA_HOME"), env::var_os("HOME"))
}

/// The folder of `program` in `$XDG_DATA_HOME`, by its specification `~/.local/share` where it is
/// not set to an absolute path.
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

/// What to type so that the node of this folder goes on.
pub(crate) fn command_for(folder: &Path) -> String {
    format!("intellect-node{}", folder_flag(folder))
}

/// What to type so that another command is about this folder.
pub(crate) fn command_of(verb: &str, folder: &Path) -> String {
    format!("intellect-node {verb}{}", folder_flag(folder))
}

/// What a line says of a data folder, with a space before it.
fn folder_flag(folder: &Path) -> String {
    if data_dir().is_ok_and(|default| default == folder) {
        return String::new();
    }
    let folder = folder.display().to_string();
    let bare = !folder.contains(|c: char| c.is_whitespace() || "'\"$&;()*".contains(c));
    let quote = if bare { "" } else { "'" };
    format!(" --data-dir {quote}{folder}{quote}")
}

/// What is fetched of a run's data unless told: a text that a home line brings in a quarter of an hour.
pub(crate) const FETCH_DATA_BYTES: u64 = 1_000_000_000;

/// Holds an invite, where a command line would show it.
const INVITE_VARIABLE: &str = "INTELLECT_INVITE";

/// Some threads wait while others compute; more only take turns.
const THREADS_PER_CORE_MAX: NonZeroUsize = NonZeroUsize::new(4).unwrap();

/// Any free port of every interface, TCP and QUIC.
const LISTEN_DEFAULT: [&str; 4] =
    ["/ip4/0.0.0.0/tcp/0", "/ip4/0.0.0.0/udp/0/quic-v1", "/ip6/::/tcp/0", "/ip6/::/udp/0/quic-v1"];

#[cfg(test)]
mod tests;
