//! The weights that a run begins with: drawn from its seed, which every peer does alone, or
//! published with its manifest, and then fetched from other peers like any state.
//!
//! Without them a node can compute nothing, not even the digest of its own genesis, so they are had
//! before anything else begins. Until then it is nobody's member: it sends no heartbeat, serves
//! nothing, and what others say is not heard.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

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
use crate::tell::Teller;

/// What is said while no peer that is there has the weights.
const WAITING: &str = "waiting for the published weights: nobody who is here has all of them yet; \
    one node, the first, needs the file: --genesis FILE";

/// What was found before the loop began.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Absent: the weights are drawn.
    pub(crate) published: Option<Published>,
    /// The last that the network said of this node meanwhile.
    pub(crate) reachability: Option<Reachability>,
    /// The peers with whom there is a direct connection.
    pub(crate) linked: BTreeSet<PeerId>,
}

/// A node before its loop, which already looks for the peers of its run.
pub(super) struct Early<'a> {
    pub(super) net: &'a mut Net,
    pub(super) manifest: &'a Manifest,
    pub(super) admission: &'a mut Option<Admission>,
    pub(super) tell: &'a Teller,
    /// The last that the network said of this node meanwhile.
    pub(super) reachability: Option<Reachability>,
    /// The peers with whom there is a direct connection.
    pub(super) linked: BTreeSet<PeerId>,
}

impl Early<'_> {
    /// Does `work`, which needs peers of the run; they are let in, and else nothing is heard of them.
    ///
    /// # Cancel safety
    /// As `work`.
    pub(super) async fn among_peers<T>(
        &mut self,
        work: impl Future<Output = Result<T, EnterError>>,
    ) -> Result<T, EnterError> {
        let Self { net, manifest, admission, tell, reachability, linked } = self;
        let joined = net.handle.join(manifest.id, manifest.text.clone().into_bytes()).await;
        joined.map_err(|_| DriverError::Network)?;
        tokio::pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                Some(stream) = net.rings.recv() => drop(stream),
                event = net.events.recv() => match event {
                    Some(Event::Reachability(now)) => *reachability = Some(now),
                    Some(event) => {
                        note_link(&event, linked);
                        note(net, event, admission, tell)?;
                    }
                    None => return Err(DriverError::Network.into()),
                },
            }
        }
    }

    /// Finds published weights in the file that `--genesis` names, in the folder of the run, or with
    /// other peers.
    ///
    /// # Cancel safety
    /// Cancel safe; what has come is kept.
    pub(super) async fn find_weights(
        mut self,
        local: &Local,
        store: &Arc<Store>,
    ) -> Result<Found, EnterError> {
        let (manifest, tell) = (self.manifest, self.tell);
        let Some(state) = manifest.run.genesis else {
            return match local.genesis {
                Some(_) => Err(EnterError::Drawn),
                None => Ok(Found {
                    published: None,
                    reachability: self.reachability,
                    linked: self.linked,
                }),
            };
        };
        let parameters = manifest.work.model.parameter_count();
        let stored = match &local.genesis {
            Some(path) => Some(adopt(store, path.clone(), state, parameters).await?),
            None => kept(store, state, parameters, tell).await?,
        };
        if stored.is_some() {
            return Ok(Found {
                published: stored,
                reachability: self.reachability,
                linked: self.linked,
            });
        }
        tell.say("this run begins with published weights: looking for peers that have them");
        let handle = self.net.handle.clone();
        let fetched = async {
            let meter = &mut tell.meter(0, 0);
            let in_vain = || tell.say(WAITING);
            let header = Header::published(parameters);
            let found =
                fetch::checkpoint_at_last(&handle, store, header, state, meter, in_vain).await;
            let useless = |why| EnterError::Genesis(PublishedError::Useless { state, why });
            let (table, weights) = found.map_err(useless)?;
            let store = Arc::clone(store);
            let save = move || store.save_genesis(table, weights.into_theta());
            Ok::<_, EnterError>(off_loop(save).await??)
        };
        let published = Some(self.among_peers(fetched).await?);
        Ok(Found { published, reachability: self.reachability, linked: self.linked })
    }
}

/// Takes over the file that was named.
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

/// What the folder of the run has; what is damaged is set aside.
async fn kept(
    store: &Arc<Store>,
    state: Digest,
    parameters: u64,
    tell: &Teller,
) -> Result<Option<Published>, EnterError> {
    let (path, kept) = (store.genesis_path(), Arc::clone(store));
    let read = move || {
        let path = kept.genesis_path();
        let read = path.exists().then(|| Published::read(&path, state, parameters)).transpose();
        if matches!(read, Ok(Some(_)))
            && let Err(error) = kept.drop_received(&state)
        {
            tracing::warn!(%error, "what was fetched stays beside what was made of it");
        }
        read
    };
    match off_loop(read).await? {
        Ok(published) => Ok(published),
        Err(PublishedError::Read(error)) if !error.is_damage() => {
            Err(EnterError::Genesis(error.into()))
        }
        // Other peers have the same weights.
        Err(error @ PublishedError::Useless { .. }) => Err(EnterError::Genesis(error)),
        Err(error) => {
            tell.damaged(&path, &error.to_string());
            store.set_aside(&path)?;
            Ok(None)
        }
    }
}

/// Keeps who has a direct connection with this node.
fn note_link(event: &Event, linked: &mut BTreeSet<PeerId>) {
    match event {
        Event::Connected { peer, link: Link::Direct } => _ = linked.insert(*peer),
        Event::Connected { peer, .. } | Event::Disconnected { peer, .. } => _ = linked.remove(peer),
        _ => {}
    }
}

/// Tells of peers that come and go, since they may have the weights; for all else it is too early.
fn note(
    net: &Net,
    event: Event,
    admission: &mut Option<Admission>,
    tell: &Teller,
) -> Result<(), DriverError> {
    match event {
        Event::AdmitRequest { from, request, reply } => {
            if let Some(admission) = admission {
                // Whoever came may be gone.
                let _ = reply.send(admission.receive_early(&net.handle, from, *request));
            }
        }
        Event::AdmitReply { peer, reply } => {
            if let Some(admission) = admission {
                admission.answered(Instant::now(), &peer, reply);
                if let Some(why) = admission.refused(Instant::now()) {
                    return Err(DriverError::Refused(why.to_owned()));
                }
            }
        }
        Event::Connected { peer, link } => tell.connected(peer, link),
        Event::Disconnected { peer, cause } => tell.disconnected(peer, &cause),
        Event::Path(path) => tell.path(&path),
        Event::Listening => tell.listening(&net.handle.addresses()),
        Event::Incompatible { peer, version } => tell.incompatible(peer, version),
        Event::Fault { peer, why } => tell.fault(peer, &why),
        Event::Impostor { address, found } => tell.impostor(&address, &found),
        Event::Message { via: Via::Gossip(token), .. } => {
            net.handle.verdict(token, Verdict::Ignore);
        }
        Event::Message { via: Via::Direct, .. }
        | Event::Fetch { .. }
        | Event::RoundTrip { .. }
        | Event::Reachability(_) => {}
    }
    Ok(())
}
