//! The weights that a run begins with: drawn from its seed, which every peer does alone, or published
//! with its manifest, and then fetched from other peers like any state.
//!
//! Without them a node can compute nothing, not even the digest of its own genesis, so they are had
//! before anything else begins. Until then it is nobody's member: it sends no heartbeat, serves nothing,
//! and what others say is not heard.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use intellect_protocol::checkpoint::{Header, Table};
use intellect_protocol::id::{Digest, PeerId};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::EnterError;
use crate::config::Local;
use crate::driver::DriverError;
use crate::manifest::Manifest;
use crate::net::{Event, Net, Reachability, Verdict, Via};
use crate::store::Store;
use crate::store::genesis::{Published, PublishedError};
use crate::tell::{AGAIN, Teller};
use crate::transfer::{self, Lack, Notice};

/// Between two tries, while nobody who is there has the weights: they are fetching them too. What has
/// come is read again each time, so it becomes longer, up to a minute.
const RETRY: Duration = Duration::from_secs(2);
const RETRY_MAX: Duration = Duration::from_secs(60);

/// Said while nobody who is there has them.
const WAITING: &str = "waiting for the published weights: nobody who is here has all of them yet; one \
    node, the first, needs the file: --genesis FILE";

/// What had to be looked for.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Absent: the weights are drawn.
    pub(crate) published: Option<Published>,
    /// The last that the network said of this node meanwhile.
    pub(crate) reachability: Option<Reachability>,
}

/// Finds published weights: in the file that `--genesis` names, in the folder of the run, or with other
/// peers.
///
/// # Cancel safety
/// Cancel safe; what has come is kept.
pub(crate) async fn find(
    net: &mut Net,
    local: &Local,
    manifest: &Manifest,
    store: &Arc<Store>,
    tell: &Teller,
) -> Result<Found, EnterError> {
    let Some(state) = manifest.run.genesis else {
        return match local.genesis {
            Some(_) => Err(EnterError::Drawn),
            None => Ok(Found::default()),
        };
    };
    let parameters = manifest.work.model.parameter_count();
    let stored = match &local.genesis {
        Some(path) => Some(adopt(store, path.clone(), state, parameters).await?),
        None => kept(store, state, parameters, tell).await?,
    };
    if stored.is_some() {
        return Ok(Found { published: stored, reachability: None });
    }
    net.handle
        .join(manifest.id, manifest.text.clone().into_bytes())
        .await
        .map_err(|_| DriverError::Network)?;
    tell.say("this run begins with published weights: looking for peers that have them");
    let (known, donors) = watch::channel(Vec::new());
    let mut reachability = None;
    let handle = net.handle.clone();
    let fetched = async {
        let header = Header::published(parameters);
        let (table, theta) = fetch(&handle, store, header, state, donors, tell).await?;
        let store = Arc::clone(store);
        let published = spawn_blocking(move || store.save_genesis(table, theta)).await;
        Ok::<_, EnterError>(published.map_err(|error| DriverError::Worker(error.to_string()))??)
    };
    tokio::pin!(fetched);
    let published = loop {
        tokio::select! {
            biased;
            published = &mut fetched => break published?,
            Some(stream) = net.rings.recv() => drop(stream),
            event = net.events.recv() => match event {
                Some(Event::Reachability(now)) => reachability = Some(now),
                Some(event) => note(net, event, &known, tell),
                None => return Err(DriverError::Network.into()),
            },
        }
    };
    Ok(Found { published: Some(published), reachability })
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
    spawn_blocking(read).await.map_err(|error| DriverError::Worker(error.to_string()))?
}

/// What the folder of the run has; what is damaged is set aside.
async fn kept(
    store: &Arc<Store>,
    state: Digest,
    parameters: u64,
    tell: &Teller,
) -> Result<Option<Published>, EnterError> {
    let (path, kept) = (store.genesis_path(), Arc::clone(store));
    let read = spawn_blocking(move || {
        let path = kept.genesis_path();
        let read = path.exists().then(|| Published::read(&path, state, parameters)).transpose();
        if matches!(read, Ok(Some(_)))
            && let Err(error) = kept.drop_received(&state)
        {
            tracing::warn!(%error, "what was fetched stays beside what was made of it");
        }
        read
    });
    match read.await.map_err(|error| DriverError::Worker(error.to_string()))? {
        Ok(published) => Ok(published),
        Err(PublishedError::Read(error)) if !error.is_damage() => {
            Err(EnterError::Genesis(error.into()))
        }
        // Others have the same.
        Err(error @ PublishedError::Useless { .. }) => Err(EnterError::Genesis(error)),
        Err(error) => {
            tell.damaged(&path, &error.to_string());
            store.set_aside(&path)?;
            Ok(None)
        }
    }
}

/// Fetches the weights from whoever is there, until somebody has them.
async fn fetch(
    net: &crate::net::Handle,
    store: &Arc<Store>,
    header: Header,
    state: Digest,
    mut donors: watch::Receiver<Vec<PeerId>>,
    tell: &Teller,
) -> Result<(Table, Vec<f32>), EnterError> {
    let mut meter = tell.meter(0, 0);
    let mut pause = RETRY;
    loop {
        somebody(&mut donors, tell).await?;
        let notice = |notice| match notice {
            Notice::Progress(progress) => meter.show(progress),
            Notice::Fault(peer, why) => net.fault(peer, why),
            Notice::Disk(error) => tell.disk(&error),
        };
        let fetched = transfer::checkpoint(net, store, header, state, donors.clone(), notice);
        match fetched.await {
            Ok((table, fetched)) => return Ok((table, fetched.into_theta())),
            Err(Lack::Useless(why)) => {
                return Err(EnterError::Genesis(PublishedError::Useless { state, why }));
            }
            Err(Lack::Nobody) => {}
        }
        if pause == RETRY || pause == RETRY_MAX {
            tell.say(WAITING);
        }
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(RETRY_MAX);
    }
}

/// Waits until somebody is there, and says so now and again.
async fn somebody(
    donors: &mut watch::Receiver<Vec<PeerId>>,
    tell: &Teller,
) -> Result<(), DriverError> {
    loop {
        match timeout(AGAIN, donors.wait_for(|donors| !donors.is_empty())).await {
            Ok(there) => return there.map(drop).map_err(|_| DriverError::Network),
            Err(_) => tell.say(WAITING),
        }
    }
}

/// Whoever is there may have the weights; for all else it is too early.
fn note(net: &Net, event: Event, donors: &watch::Sender<Vec<PeerId>>, tell: &Teller) {
    match event {
        Event::Connected { peer, link } => {
            tell.connected(peer, &link);
            donors.send_if_modified(|donors| {
                let news = !donors.contains(&peer);
                donors.extend(news.then_some(peer));
                news
            });
        }
        Event::Disconnected { peer, cause } => {
            tell.disconnected(peer, &cause);
            donors.send_modify(|donors| donors.retain(|donor| *donor != peer));
        }
        Event::Listening => tell.listening(&net.handle.addresses()),
        Event::Incompatible { peer, version } => tell.incompatible(peer, version),
        Event::Fault { peer, why } => tell.fault(peer, &why),
        Event::Message { via: Via::Gossip(token), .. } => {
            net.handle.verdict(token, Verdict::Ignore);
        }
        Event::Message { via: Via::Direct, .. }
        | Event::Fetch { .. }
        | Event::RoundTrip { .. }
        | Event::Reachability(_) => {}
    }
}
