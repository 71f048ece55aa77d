//! The weights that a run begins with. Either every peer draws them from the run's seed, or they are published with
//! the manifest and fetched from other peers like any state.
//!
//! Without them a node can compute nothing, not even the digest of its own genesis, so it gets them before anything
//! else begins. Until then it is no member: it sends no heartbeat, serves nothing, and ignores what others send.
//!
//! Admission is the exception: in a run of invited peers others let this node in, and it lets them
//! in, so that it can fetch anything at all.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use intellect_bootstrap::discovery::IDENTIFY;
use intellect_protocol::base::id::{Digest, PeerId};
use intellect_protocol::history::checkpoint::Header;

use super::{EnterError, off_loop};
use crate::access::Admission;
use crate::config::Local;
use crate::driver::DriverError;
use crate::fetch;
use crate::manifest::Manifest;
use crate::net::{Event, Link, Net, Reachability, Verdict, Via};
use crate::store::Store;
use crate::store::genesis::{Published, PublishedError};
use crate::tell::Console;

/// Said while the weights are read from a file.
const READS: &str = "reading the published weights";
/// Said while no connected peer has the weights.
const WAITING: &str = "waiting for the published weights: no peer that is here has all of them yet; \
    one node needs the file, given with --genesis FILE";

/// What was found before the loop began.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The published weights; absent if the weights are drawn.
    pub(crate) published: Option<Published>,
    /// The latest report of the network on how this node can be reached.
    pub(crate) reachability: Option<Reachability>,
    /// Peers that have a direct connection to this node.
    pub(crate) linked: BTreeSet<PeerId>,
}

/// A node before its loop, which already looks for the peers of its run.
pub(super) struct Early<'a> {
    /// The network, whose events nobody else reads yet.
    pub(super) net: &'a mut Net,
    /// The run that this node enters.
    pub(super) manifest: &'a Manifest,
    /// Which peers are admitted, in a run of invited peers.
    pub(super) admission: &'a mut Option<Admission>,
    /// Where this node reports its progress.
    pub(super) console: &'a Console,
    /// What the network has reported meanwhile, without the weights.
    pub(super) found: Found,
}

impl Early<'_> {
    /// Does `work`, which needs peers of the run. Peers are admitted meanwhile, and all else that they send is ignored.
    ///
    /// It reads the events of the network, which would else fill their queue and stop the network's
    /// task. Ring streams are dropped, which resets them. The work ends it, or an error: no member
    /// admits this node, or the network has ended.
    ///
    /// # Cancel safety
    /// As `work`.
    pub(super) async fn among_peers<T>(
        &mut self,
        work: impl Future<Output = Result<T, EnterError>>,
    ) -> Result<T, EnterError> {
        let Self { net, manifest, admission, console, found } = self;
        let joined = net.handle.join(manifest.id, manifest.text.clone().into_bytes()).await;
        joined.map_err(|_| DriverError::Network)?;
        tokio::pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                Some(stream) = net.rings.recv() => drop(stream),
                event = net.events.recv() => match event {
                    Some(event) => note(net, event, admission, found, console)?,
                    None => return Err(DriverError::Network.into()),
                },
            }
        }
    }

    /// Finds published weights: in the file that `--genesis` names, in the run's folder, or with other peers.
    ///
    /// A run without published weights needs none. A damaged file in the folder is moved aside and
    /// fetched anew. Where nobody has the weights it waits without an end, and says each minute
    /// that it does.
    ///
    /// # Cancel safety
    /// Cancel safe; what has arrived is kept.
    pub(super) async fn find_weights(
        mut self,
        local: &Local,
        store: &Arc<Store>,
    ) -> Result<Found, EnterError> {
        let (manifest, console) = (self.manifest, self.console);
        let Some(state) = manifest.run.genesis else {
            return if local.genesis.is_some() {
                Err(EnterError::Drawn)
            } else {
                Ok(self.with(None))
            };
        };
        let parameters = manifest.work.model.parameter_count();
        let stored = match &local.genesis {
            Some(path) => {
                let adopted = adopt(store, path.clone(), state, parameters);
                Some(console.announced(READS, adopted).await?)
            }
            None => {
                let stored = stored_weights(store, state, parameters, console);
                console.announced(READS, stored).await?
            }
        };
        if stored.is_some() {
            return Ok(self.with(stored));
        }
        console.say("this run begins with published weights: looking for peers that have them");
        let handle = self.net.handle.clone();
        let fetched = async {
            let meter = &mut console.meter(0, 0);
            let unanswered = || console.say(WAITING);
            let header = Header::published(parameters);
            let found =
                fetch::checkpoint_at_last(&handle, store, header, state, meter, unanswered).await;
            let useless = |why| EnterError::Genesis(PublishedError::Useless { state, why });
            let (table, weights) = found.map_err(useless)?;
            let store = Arc::clone(store);
            let save = move || store.save_genesis(table, weights.into_theta());
            Ok::<_, EnterError>(off_loop(save).await??)
        };
        let published = self.among_peers(fetched).await?;
        Ok(self.with(Some(published)))
    }

    /// All that was found, for the driver's loop.
    fn with(self, published: Option<Published>) -> Found {
        Found { published, ..self.found }
    }
}

/// Reads the file that `--genesis` names and copies it into the run's folder.
/// Afterwards the node serves it, and does not need the named file again.
async fn adopt(
    store: &Arc<Store>,
    path: PathBuf,
    state: Digest,
    parameters: u64,
) -> Result<Published, EnterError> {
    let store = Arc::clone(store);
    let read = move || {
        let published = Published::read(&path, state, parameters).map_err(EnterError::Genesis)?;
        store.adopt_genesis(&path, &published)?;
        Ok(published)
    };
    off_loop(read).await?
}

/// The weights in the run's folder, if they are there; a damaged file is set aside.
///
/// A disk that refuses to read is an error and no damage: to fetch gigabytes again would not help.
/// Weights that match the manifest and cannot be trained end the node too, as all peers have the
/// same.
async fn stored_weights(
    store: &Arc<Store>,
    state: Digest,
    parameters: u64,
    console: &Console,
) -> Result<Option<Published>, EnterError> {
    let (path, disk) = (store.genesis_path(), Arc::clone(store));
    let read = move || {
        let path = disk.genesis_path();
        let read = path.exists().then(|| Published::read(&path, state, parameters)).transpose();
        if matches!(read, Ok(Some(_)))
            && let Err(error) = disk.drop_received(&state)
        {
            tracing::warn!(%error, "the fetched pieces stay beside the weights made of them");
        }
        read
    };
    match off_loop(read).await? {
        Ok(published) => Ok(published),
        Err(PublishedError::Read(error)) if !error.is_damage() => {
            Err(EnterError::Genesis(error.into()))
        }
        // Other peers would only send the same weights again.
        Err(error @ PublishedError::Useless { .. }) => Err(EnterError::Genesis(error)),
        Err(error) => {
            console.damaged(&path, &error.to_string());
            store.set_aside(&path)?;
            Ok(None)
        }
    }
}

/// Handles an event before the loop: reports peers that come and go, since they may have the weights, and ignores
/// what comes too early.
fn note(
    net: &Net,
    event: Event,
    admission: &mut Option<Admission>,
    found: &mut Found,
    console: &Console,
) -> Result<(), DriverError> {
    match event {
        Event::AdmitRequest { from, request, reply } => {
            if let Some(admission) = admission {
                // The peer that asked may be gone.
                let _ = reply.send(admission.receive_early(&net.handle, from, *request));
            }
        }
        Event::AdmitReply { peer, reply } => {
            if let Some(admission) = admission {
                admission.answered(Instant::now(), &peer, reply);
                if let Some(why) = admission.refused(Instant::now(), false) {
                    return Err(DriverError::Refused(why.to_owned()));
                }
            }
        }
        Event::Connected { peer, link } => {
            match link {
                Link::Direct => found.linked.insert(peer),
                Link::Relayed => found.linked.remove(&peer),
            };
            console.connected(peer, link);
        }
        Event::Disconnected { peer, cause } => {
            found.linked.remove(&peer);
            admission.iter_mut().for_each(|admission| admission.unlinked(&peer));
            console.disconnected(peer, &cause);
        }
        Event::Reachability(now) => found.reachability = Some(now),
        Event::Path(path) => console.path(&path),
        Event::Version { peer, version } => console.version(peer, version),
        Event::Listening => console.listening(&net.handle.addresses()),
        Event::Incompatible { peer, version } => console.incompatible(peer, version, IDENTIFY),
        Event::Fault { peer, why } => console.fault(peer, &why),
        Event::Impostor { address, found } => console.impostor(&address, &found),
        Event::EntryPoint { address, answers } => console.entry_point(&address, answers),
        Event::Message { via: Via::Gossip(token), .. } => {
            net.handle.verdict(token, Verdict::Ignore);
        }
        Event::Message { via: Via::Direct, .. } => {}
        Event::Fetch { .. } | Event::RoundTrip { .. } => {}
    }
    Ok(())
}
