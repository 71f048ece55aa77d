//! What a driver is made of.

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
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::budget::Budgets;
use super::bulk::Bulk;
use super::finish::Finish;
use super::gate::Gate;
use super::questions::Questions;
use super::shared::SharedData;
use super::twins::Twins;
use super::{Clock, Driver};
use crate::admission::Admission;
use crate::manifest::Manifest;
use crate::net::{self, Reachability};
use crate::rings;
use crate::store::{Journal, Saved, Store};
use crate::tell::Teller;
use crate::worker::{self, Snapshot};

/// Ring events that may wait: a few per ring, one ring at a time.
const RING_EVENTS: usize = 64;

/// Everything that is known of a run and of this machine before the loop begins.
pub(crate) struct Parts {
    /// The run.
    pub(crate) manifest: Arc<Manifest>,
    /// What the protocol's state begins with.
    pub(crate) peer: peer::Config,
    /// The network.
    pub(crate) net: net::Handle,
    /// The last that the network said of this node before the loop.
    pub(crate) reachability: Option<Reachability>,
    /// The peers with whom it had a direct connection then.
    pub(crate) linked: BTreeSet<PeerId>,
    /// The thread that computes.
    pub(crate) worker: worker::Orders,
    /// The files of the run.
    pub(crate) store: Arc<Store>,
    /// Its data.
    pub(crate) source: Arc<Dataset>,
    /// Where the addresses of peers are kept.
    pub(crate) data_dir: PathBuf,
    /// The log of votes.
    pub(crate) journal: Journal,
    /// The updates on the disk.
    pub(crate) updates: Vec<Name>,
    /// Updates of the open epoch that an earlier start has voted for.
    pub(crate) held: Vec<Digest>,
    /// The newest state.
    pub(crate) newest: Arc<Snapshot>,
    /// The checkpoint on the disk that is served.
    pub(crate) saved: Option<Saved>,
    /// The published weights that the run begins with.
    pub(crate) published: Option<Saved>,
    /// Who is let in; absent in an open run.
    pub(crate) admission: Option<Admission>,
    /// The epoch after which this node leaves, as typed.
    pub(crate) epochs: Option<NonZeroU64>,
    /// Whom to tell.
    pub(crate) tell: Teller,
    /// Cancelled when the node ends.
    pub(crate) stop: CancellationToken,
}

impl Driver {
    /// A driver, and what its rings will report.
    pub(crate) fn new(parts: Parts) -> (Self, mpsc::Receiver<rings::Event>) {
        let (ring_outbox, ring_events) = mpsc::channel(RING_EVENTS);
        let run = &parts.manifest.run;
        let stop_tokens = (run.stop_tokens > 0).then_some(run.stop_tokens);
        let twins = Twins::new(parts.peer.me.peer, parts.journal.start());
        let key = parts.peer.law.key.clone();
        let shared = SharedData::new(&parts.manifest, parts.source);
        let holdings = holdings::Config {
            peer: parts.peer,
            codec: run.ring.codec,
            newest: parts.newest.head(),
            saved: parts.saved.as_ref().map(|saved| saved.table.head()),
            published: parts.published.as_ref().map(|published| published.state),
            file: parts.manifest.vocabulary().map(|vocabulary| Digest(vocabulary.digest)),
            data: shared.files(),
            updates: parts.updates,
            held: parts.held,
        };
        let saved = parts.saved.into_iter().chain(parts.published);
        let mut driver = Self {
            key,
            holdings: holdings::State::new(Time::ZERO, holdings),
            clock: Clock::new(),
            readied: None,
            rings: rings::Rings::new(parts.net.clone(), ring_outbox),
            net: parts.net,
            worker: parts.worker,
            store: parts.store,
            tell: parts.tell,
            bulk: Bulk::new(parts.newest, saved, parts.journal, shared),
            questions: Questions::default(),
            donors: watch::Sender::default(),
            jobs: JoinSet::new(),
            repeats: 0,
            budgets: Budgets::new(Instant::now().into()),
            gate: Gate::new(parts.admission),
            twins,
            finish: Finish::new(parts.epochs.map(Into::into), stop_tokens),
            stop: parts.stop,
            manifest: parts.manifest,
        };
        driver.net.serve_notices(driver.notices());
        // Until the network says more, nobody is known to reach this node.
        driver.hear(peer::Input::Reachable(false));
        if let Some(reachability) = parts.reachability {
            driver.on_net(net::Event::Reachability(reachability));
        }
        for peer in parts.linked {
            driver.hear(peer::Input::Linked(peer, true));
        }
        driver.keep_contacts(&parts.data_dir);
        (driver, ring_events)
    }
}
