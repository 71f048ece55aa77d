//! The parts of a driver, and how it is made of them.
//!
//! Everything that can fail has been done before (`enter`): the network runs, the worker has
//! genesis, the logs are open. So making a driver cannot fail.

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use intellect_model::data::Dataset;
use intellect_protocol::base::id::{Digest, PeerId};
use intellect_protocol::base::time::Time;
use intellect_protocol::holdings::{self, Name};
use intellect_protocol::peer;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::access::Access;
use super::buffers::{Buffers, PendingRequests};
use super::donors::Donors;
use super::finish::Finish;
use super::receive::budget::Budgets;
use super::shared::SharedData;
use super::twins::Twins;
use super::{Clock, Driver};
use crate::access::Admission;
use crate::manifest::Manifest;
use crate::net::{self, Reachability};
use crate::ring::pairing;
use crate::store::{Journal, Saved, Store};
use crate::tell::Console;
use crate::worker::{self, Snapshot};

/// Ring events that may wait: a few for each ring, one ring at a time.
const RING_EVENTS: usize = 64;

/// The state of the run and of this machine before the loop begins.
pub(crate) struct Config {
    /// The verified manifest, whose id names the run in every message.
    pub(crate) manifest: Arc<Manifest>,
    /// The first state of the protocol.
    pub(crate) peer: peer::Config,
    /// The handle of the network, which runs already: the run was found through it.
    pub(crate) net: net::Handle,
    /// The last reachability that the network reported before the loop.
    pub(crate) reachability: Option<Reachability>,
    /// The peers with a direct connection at that time.
    pub(crate) linked: BTreeSet<PeerId>,
    /// The commands to the worker, which computes genesis or loads a state by now.
    pub(crate) worker: worker::Orders,
    /// The folder of this run on the disk.
    pub(crate) store: Arc<Store>,
    /// The token files that are open for training, and served if the manifest shares them.
    pub(crate) source: Arc<Dataset>,
    /// The folder for the addresses of peers.
    pub(crate) data_dir: PathBuf,
    /// Both logs, open for more records, with the incarnation of this start.
    pub(crate) journal: Journal,
    /// The updates on the disk, which the state may name at once.
    pub(crate) updates: Vec<Name>,
    /// Updates of the open epoch for which an earlier start has voted.
    pub(crate) held: Vec<Digest>,
    /// The state with which training goes on: genesis, or what the disk led to.
    pub(crate) newest: Arc<Snapshot>,
    /// The checkpoint on disk, which is served.
    pub(crate) saved: Option<Saved>,
    /// The published weights with which the run begins.
    pub(crate) published: Option<Saved>,
    /// `None` in an open run, which has no admission.
    pub(crate) admission: Option<Admission>,
    /// The epoch after which this node leaves (`--epochs`).
    pub(crate) epochs: Option<NonZeroU64>,
    /// Where people and programs read what happens.
    pub(crate) tell: Console,
    /// Cancelled by the driver at its end; it stops the network.
    pub(crate) stop: CancellationToken,
}

impl Driver {
    /// A driver, and the events of its rings.
    ///
    /// The state hears first what the network has found out meanwhile, so that its first heartbeat
    /// is right about direct connections. The receiver is apart from the driver, since the loop
    /// borrows both.
    pub(crate) fn new(config: Config) -> (Self, mpsc::Receiver<pairing::Event>) {
        let (ring_outbox, ring_events) = mpsc::channel(RING_EVENTS);
        let run = &config.manifest.run;
        let stop_tokens = (run.stop_tokens > 0).then_some(run.stop_tokens);
        let twins = Twins::new(config.peer.me.peer, config.journal.start());
        let key = config.peer.validator.key.clone();
        let shared = SharedData::new(&config.manifest, config.source);
        let holdings = holdings::Config {
            peer: config.peer,
            codec: run.ring.codec,
            newest: config.newest.head(),
            saved: config.saved.as_ref().map(|saved| saved.table.head()),
            published: config.published.as_ref().map(|published| published.state),
            file: config.manifest.vocabulary().map(|vocabulary| Digest(vocabulary.digest)),
            data: shared.files(),
            updates: config.updates,
            held: config.held,
        };
        let saved = config.saved.into_iter().chain(config.published);
        let mut driver = Self {
            key,
            holdings: holdings::State::new(Time::ZERO, holdings),
            clock: Clock::new(),
            readied: None,
            rings: pairing::Rings::new(config.net.clone(), ring_outbox),
            net: config.net,
            worker: config.worker,
            store: config.store,
            tell: config.tell,
            buffers: Buffers::new(config.newest, saved, config.journal, shared),
            requests: PendingRequests::default(),
            donors: Donors::default(),
            jobs: JoinSet::new(),
            repeats: 0,
            budgets: Budgets::new(Instant::now().into()),
            access: Access { admission: config.admission, ..Access::default() },
            twins,
            finish: Finish::new(config.epochs.map(Into::into), stop_tokens),
            stop: config.stop,
            manifest: config.manifest,
        };
        driver.net.serve_notices(driver.notices());
        // Until the network reports more, no peer is known to reach this node.
        driver.peer_input(peer::Input::Reachable(false));
        if let Some(reachability) = config.reachability {
            driver.on_net(net::Event::Reachability(reachability));
        }
        for peer in config.linked {
            driver.peer_input(peer::Input::Linked(peer, true));
        }
        driver.keep_contacts(&config.data_dir);
        (driver, ring_events)
    }
}
