//! The public entry point: a Kademlia server, a relay, an AutoNAT server, and the signed manifests
//! that it was given, handed out as opaque bytes, with the papers that lie beside each.
//!
//! It decides nothing and nobody needs it after entering: peers that know one another go on
//! without it. So it keeps no state but its key, and a restart at the same address is unnoticed.

use std::{collections::HashMap, future::Future, path::PathBuf, sync::Arc};

use futures::StreamExt as _;
use libp2p::{
    Multiaddr, PeerId, Swarm, identify,
    identity::Keypair,
    swarm::{ConnectionId, NetworkBehaviour, SwarmEvent},
};
use tokio::{task::JoinSet, time::timeout};

use crate::{
    address::{self, Scope},
    discovery::{Discovery, DiscoveryEvent, Role},
    manifest,
    streams::{self, Incoming},
    transport::{self, BuildError, ListenError},
};

/// What an entry point is given.
pub struct Config {
    /// Its identity.
    pub key: Keypair,
    /// Where it listens; at least one address.
    pub listen: Vec<Multiaddr>,
    /// Addresses under which others reach it, where it cannot see them itself (behind a router).
    pub external: Vec<Multiaddr>,
    /// At most [`manifest::FILES_MAX`] signed files of [`manifest::FILE_BYTES_MAX`] each.
    pub offers: Vec<Offer>,
    /// Whether a manifest is only for who names its run.
    pub unlisted: bool,
    /// The line of a simulation ([`crate::shaper`]).
    pub line: Option<PathBuf>,
}

/// What is handed out of one run.
#[derive(Debug, Clone)]
pub struct Offer {
    /// Its RunId.
    pub run: [u8; 32],
    /// Its signed manifest.
    pub manifest: manifest::File,
    /// The file of its papers, read whenever somebody asks for them; there need not be one.
    pub papers: PathBuf,
}

/// Why an entry point could not start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// No transport.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// An address is not to be had.
    #[error(transparent)]
    Listen(#[from] ListenError),
}

/// Serves until `stop` is ready. `announce` hears every address, `/p2p/…` included, under which a
/// node can enter.
///
/// # Errors
/// Only before it serves; see [`ServerError`].
///
/// # Cancel safety
/// Cancel safe: dropping it ends the service, and it keeps no state.
pub async fn serve(
    config: Config,
    mut announce: impl FnMut(Multiaddr),
    stop: impl Future<Output = ()>,
) -> Result<(), ServerError> {
    let (transport, relay_client) = transport::build(&config.key, config.line.as_deref())?;
    let behaviour = Entry {
        discovery: Discovery::new(&config.key, relay_client, Role::Entry),
        streams: streams::Behaviour::new(&[manifest::PROTOCOL, manifest::PAPERS]),
    };
    let me = config.key.public().to_peer_id();
    let mut swarm = Swarm::new(transport, behaviour, me, transport::swarm_config());
    for address in &config.listen {
        transport::listen(&mut swarm, address)?;
    }
    for address in config.external {
        swarm.add_external_address(address.clone());
        announce(address::with_peer(address, me));
    }
    let mut server = Server {
        swarm,
        offers: config.offers.into(),
        unlisted: config.unlisted,
        seen: HashMap::new(),
        answers: JoinSet::new(),
        asking: HashMap::new(),
    };
    let mut stop = std::pin::pin!(stop);
    loop {
        tokio::select! {
            biased;
            () = &mut stop => return Ok(()),
            Some(ended) = server.answers.join_next() => server.on_answered(ended.ok()),
            event = server.swarm.select_next_some() => server.on_event(event, &mut announce),
        }
    }
}

#[derive(NetworkBehaviour)]
struct Entry {
    discovery: Discovery,
    streams: streams::Behaviour,
}

struct Server {
    swarm: Swarm<Entry>,
    offers: Arc<[Offer]>,
    unlisted: bool,
    /// Where each connection comes from. Bounded by the connection limits.
    seen: HashMap<ConnectionId, Multiaddr>,
    answers: JoinSet<PeerId>,
    /// How many answers are under way for each peer.
    asking: HashMap<PeerId, usize>,
}

impl Server {
    fn on_event(&mut self, event: SwarmEvent<EntryEvent>, announce: &mut impl FnMut(Multiaddr)) {
        match event {
            SwarmEvent::NewListenAddr { address, .. } => {
                // A relay that knows no address of its own hands out reservations of no use.
                if address::scope(&address) == Some(Scope::Public) {
                    self.swarm.add_external_address(address.clone());
                }
                announce(address::with_peer(address, *self.swarm.local_peer_id()));
            }
            SwarmEvent::ListenerClosed { addresses, reason, .. } => {
                tracing::warn!(?addresses, ?reason, "stopped listening");
            }
            SwarmEvent::ConnectionEstablished { peer_id, connection_id, endpoint, .. } => {
                self.seen.insert(connection_id, endpoint.get_remote_address().clone());
                self.swarm.behaviour_mut().discovery.connected(peer_id);
            }
            SwarmEvent::ConnectionClosed { peer_id, connection_id, .. } => {
                self.seen.remove(&connection_id);
                self.swarm.behaviour_mut().discovery.closed(&peer_id);
            }
            SwarmEvent::Behaviour(EntryEvent::Discovery(DiscoveryEvent::Identify(
                identify::Event::Received { connection_id, peer_id, info },
            ))) => {
                if let Some(seen) = self.seen.get(&connection_id) {
                    self.swarm.behaviour_mut().discovery.learn(peer_id, &info, seen);
                }
            }
            SwarmEvent::Behaviour(EntryEvent::Streams(incoming)) => self.on_stream(incoming),
            _ => {}
        }
    }

    /// Beyond a limit the stream is dropped, which resets it: the asker tries again or elsewhere.
    fn on_stream(&mut self, Incoming { peer, protocol, stream, .. }: Incoming) {
        let asking = self.asking.get(&peer).copied().unwrap_or_default();
        if asking >= ANSWERS_PER_PEER || self.answers.len() >= ANSWERS_MAX {
            return;
        }
        self.asking.insert(peer, asking + 1);
        let (offers, unlisted) = (Arc::clone(&self.offers), self.unlisted);
        self.answers.spawn(async move {
            let answer = manifest::serve(stream, async move |run| {
                if protocol == manifest::PAPERS {
                    return papers(offers, run).await;
                }
                let named = |offer: &&Offer| run.map_or(!unlisted, |run| run == offer.run);
                offers.iter().filter(named).map(|offer| offer.manifest.clone()).collect()
            });
            if let Ok(Err(error)) = timeout(manifest::TIMEOUT, answer).await {
                tracing::debug!(%peer, %error, "nothing handed out");
            }
            peer
        });
    }

    /// An answer has ended; without a name if it panicked, and then its peer has one less for good.
    fn on_answered(&mut self, peer: Option<PeerId>) {
        let Some(peer) = peer else { return };
        let left = self.asking.remove(&peer).unwrap_or_default().saturating_sub(1);
        if left > 0 {
            self.asking.insert(peer, left);
        }
    }
}

/// The papers of a run, as they lie on the disk now. Those of no run that is named are none.
async fn papers(offers: Arc<[Offer]>, run: Option<[u8; 32]>) -> Vec<manifest::File> {
    let Some(offer) = offers.iter().find(|offer| Some(offer.run) == run) else {
        return Vec::new();
    };
    let path = offer.papers.clone();
    let read = tokio::task::spawn_blocking(move || {
        manifest::read_papers(&path).unwrap_or_else(|error| {
            tracing::warn!(%error, path = %path.display(), "papers cannot be read");
            Vec::new()
        })
    });
    // It ends early only with the program.
    read.await.unwrap_or_default()
}

/// Answers under way for one peer: one, and one that it has given up.
const ANSWERS_PER_PEER: usize = 2;

/// Answers under way at once: 512 times the window of a stream, 128 MiB, at the very most.
const ANSWERS_MAX: usize = 512;
