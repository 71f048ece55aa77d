//! The plan of a simulation: all that was typed, checked before a process starts.
//!
//! Keys, initial weights and data of the built-in manifest follow from the seed, so that two
//! simulations with equal arguments have the same run, down to its id. Which peers are in which
//! ring still depends on the machine's load.

use std::{
    fs,
    num::{NonZeroU64, NonZeroUsize},
    path::{Path, PathBuf},
    time::Duration,
};

use intellect_model::{Device, config::Hints};
use intellect_protocol::manifest::Run;

use crate::{
    cli::SimArgs,
    config,
    identity::Identity,
    manifest::{Draft, DraftError, Manifest},
    os::{self, cannot},
    tools,
};

use super::{chaos::ChaosRules, error::SimError, network::Network, scenario::Scenario};

/// Everything that was typed, in values that cannot be wrong.
#[derive(Debug)]
pub(super) struct Plan {
    /// How many nodes take part; at least 1.
    pub(super) peers: usize,
    /// The epoch after which every node leaves.
    pub(super) epochs: u64,
    /// The manifest that all nodes get from the bootstrap.
    pub(super) manifest: Manifest,
    /// The files of the run's data.
    pub(super) data: Vec<PathBuf>,
    /// The published weights that it begins with, given to the first node.
    pub(super) genesis: Option<PathBuf>,
    /// The seed of keys, links and chaos.
    pub(super) seed: u64,
    /// Limit on what each node sends, in bytes per second; 0 for none.
    pub(super) rate: u64,
    /// Threads that compute in each node.
    pub(super) threads: usize,
    /// Devices that the nodes train on, in turn; at least one.
    pub(super) devices: Vec<Device>,
    /// The rules of random harm, if any.
    pub(super) chaos: Option<ChaosRules>,
    /// The network that joins the processes: index i is peer i, the last one the bootstrap.
    pub(super) network: Network,
    /// The folder in which everything is written.
    pub(super) folder: PathBuf,
}

impl Plan {
    /// Checks everything that can be checked before a process starts. Paths become absolute, since
    /// a process may have another working folder. The cores are divided among the peers, each of
    /// which has at least one thread.
    ///
    /// # Errors
    /// The first thing that is wrong, with the option to change. Only emulated or shaped links
    /// leave anything to clean up, and they do so when they are dropped, or with the folder.
    pub(super) fn check(args: &SimArgs, folder: &Path) -> Result<(Self, Scenario), SimError> {
        let peers = args.peers.map_or(PEERS_DEFAULT, NonZeroUsize::get);
        let scenario = match &args.scenario {
            Some(path) => Scenario::load(path, peers)?,
            None => Scenario::default(),
        };
        let chaos = args.chaos.as_deref().map(str::parse::<ChaosRules>).transpose()?;
        let manifest = match &args.manifest {
            Some(path) => Manifest::load(path)?,
            None => built_in_manifest(args, peers)?,
        };
        let needed = manifest.run.members.min_peers;
        if u64::try_from(peers).is_ok_and(|peers| peers < needed) {
            return Err(SimError::TooFew { needed });
        }
        if manifest.run.genesis.is_some() != args.genesis.is_some() {
            return Err(SimError::Genesis);
        }
        let absolute = |path: &Path| fs::canonicalize(path).map_err(cannot("use", path));
        let data = args.data.iter().map(|path| absolute(path)).collect::<Result<_, _>>()?;
        let genesis = args.genesis.as_deref().map(absolute).transpose()?;
        let devices = args.devices.iter().map(|name| config::parse_device(name));
        let devices = devices.collect::<Result<_, _>>()?;
        // Links leave files behind, so they come last.
        let wanted = scenario.has_links() || chaos.as_ref().is_some_and(ChaosRules::has_links);
        let network = if wanted {
            Network::with_links(args.links, peers + 1, args.seed, folder)
                .map_err(SimError::Links)?
        } else {
            Network::Loopback
        };
        let plan = Self {
            peers,
            epochs: args.epochs.map_or(EPOCHS_DEFAULT, NonZeroU64::get),
            manifest,
            data,
            genesis,
            seed: args.seed,
            rate: args.rate,
            threads: (os::cores() / peers).max(1),
            devices,
            chaos,
            network,
            folder: folder.to_owned(),
        };
        Ok((plan, scenario))
    }

    /// The device that this node trains on: the devices take turns by the numbers of the nodes.
    pub(super) fn device(&self, index: usize) -> Device {
        self.devices[index % self.devices.len()]
    }

    /// How long no peer may commit before the simulation has failed. Under chaos the protocol may wait on purpose: until a
    /// disturbed peer counts as silent, until it is ready, and until it is given up.
    pub(super) fn watchdog(&self) -> Duration {
        let members = &self.manifest.run.members;
        let graces = 4 * members.heartbeat + members.ready_grace + members.minority_grace;
        if self.chaos.is_some() { WATCHDOG + graces } else { WATCHDOG }
    }
}

/// The manifest that `manifest new` would write, with the seed of the simulation.
///
/// Later settings win: first the defaults, with as many peers to begin as there are at most, then
/// the preset, then each `--set` in the order in which it was typed. The organiser's key follows
/// from the seed too, and is no node's.
fn built_in_manifest(args: &SimArgs, peers: usize) -> Result<Manifest, SimError> {
    let organiser = Identity::simulated(args.seed, u64::MAX).keypair();
    // Below 2^63, as TOML's integers are, and a different one for each small seed.
    let mut run = Run::new(organiser.peer(), args.seed & (u64::MAX >> 1));
    run.name = "sim".to_owned();
    run.members.min_peers = run.members.min_peers.min(peers as u64);
    let mut work = tools::manifest::work(&args.data)?;
    // The names of files would change the run's id, and with it all random numbers.
    work.data.hints = Hints::default();
    let mut draft = Draft::new(&run, &work).map_err(DraftError::from)?;
    if let Some(name) = &args.preset {
        let preset = config::parse_preset(name)?;
        draft.begin_with(preset, work.data.tokens()).map_err(DraftError::from)?;
    }
    if args.set.iter().any(|assignment| assignment.trim_end().ends_with("quorum=majority")) {
        // Nobody could list the simulated peers by hand. An explicit list comes later and wins.
        let peers = 0..peers as u64;
        let founders = peers.map(|peer| Identity::simulated(args.seed, peer).founder());
        draft.set(&format!("members.founders={:?}", founders.collect::<Vec<_>>()))?;
    }
    for assignment in &args.set {
        draft.set(assignment)?;
    }
    Ok(draft.sign(&organiser)?)
}

/// Nodes, unless `--peers` says otherwise.
const PEERS_DEFAULT: usize = 4;

/// Epochs, unless `--epochs` says otherwise; chosen for the built-in manifest.
const EPOCHS_DEFAULT: u64 = 20;

/// How long no peer may commit if nothing waits on purpose (docs/STUDY.md).
const WATCHDOG: Duration = Duration::from_secs(60);
