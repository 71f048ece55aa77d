//! The public entry point: a Kademlia server, a relay, an AutoNAT server, and the signed manifests
//! that it was given, handed out as opaque bytes, with the notices that lie beside each.
//!
//! It decides nothing and nobody needs it after entering: peers that know one another go on
//! without it. So it keeps no state but its key, and a restart at the same address is unnoticed.

use std::{
    collections::{BTreeSet, HashMap},
    future::{self, Future},
    net::IpAddr,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use futures::StreamExt as _;
use libp2p::{
    Multiaddr, PeerId, Swarm,
    core::ConnectedPoint,
    identify,
    identity::Keypair,
    multiaddr::Protocol,
    swarm::{ConnectionId, NetworkBehaviour, SwarmEvent},
    upnp,
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until, timeout},
};

use crate::{
    address::{self, Scope},
    discovery::{Discovery, DiscoveryEvent, Gateway, Role},
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
    /// The file of its notices, read whenever somebody asks for them; there need not be one.
    pub notices: PathBuf,
}

/// What an entry point tells of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// It can be entered here.
    Address {
        /// `/p2p/…` included.
        address: Multiaddr,
        /// Why.
        way: Way,
    },
    /// The router no longer forwards a port to this address, `/p2p/…` included.
    Unmapped(Multiaddr),
    /// The router forwards no port.
    Gateway(Gateway),
    /// A peer has come in over the internet, so that anybody can. At most [`REACHED_MAX`] times.
    Reached {
        /// Where that peer is.
        from: IpAddr,
        /// The address of this machine that it dialled, as it says, which nobody can check. Nothing where it dialled a name.
        at: Option<Multiaddr>,
    },
}

/// Why an address leads to an entry point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// This machine has it, and it reaches so far where no firewall is in the way.
    Own(Scope),
    /// The owner says so.
    Named,
    /// The router forwards a port.
    Mapped,
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

/// Serves until `stop` is ready. `tell` hears where a node can enter, and what is known of the way.
///
/// # Errors
/// Only before it serves; see [`ServerError`].
///
/// # Cancel safety
/// Cancel safe: dropping it ends the service, and it keeps no state.
pub async fn serve(
    config: Config,
    mut tell: impl FnMut(Event),
    stop: impl Future<Output = ()>,
) -> Result<(), ServerError> {
    let (transport, relay_client) = transport::build(&config.key, config.line.as_deref())?;
    let routed = config.listen.iter().any(is_routed);
    let behaviour = Entry {
        discovery: Discovery::new(&config.key, relay_client, Role::Entry { routed }),
        streams: streams::Behaviour::new(&[manifest::PROTOCOL, manifest::NOTICES]),
    };
    let me = config.key.public().to_peer_id();
    let mut swarm = Swarm::new(transport, behaviour, me, transport::swarm_config());
    for address in &config.listen {
        transport::listen(&mut swarm, address)?;
    }
    for address in config.external {
        swarm.add_external_address(address.clone());
        tell(Event::Address { address: address::with_peer(address, me), way: Way::Named });
    }
    let mut server = Server {
        swarm,
        offers: config.offers.into(),
        unlisted: config.unlisted,
        seen: HashMap::new(),
        reached: BTreeSet::new(),
        gateway: None,
        answers: JoinSet::new(),
        asking: HashMap::new(),
    };
    let mut stop = std::pin::pin!(stop);
    loop {
        tokio::select! {
            biased;
            () = &mut stop => return Ok(()),
            Some(ended) = server.answers.join_next() => server.on_answered(ended.ok()),
            gateway = settled(server.gateway) => {
                server.gateway = None;
                tell(Event::Gateway(gateway));
            }
            event = server.swarm.select_next_some() => server.on_event(event, &mut tell),
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
    /// The other end of each connection. Bounded by the connection limits.
    seen: HashMap<ConnectionId, ConnectedPoint>,
    /// The addresses at which peers came in over the internet.
    reached: BTreeSet<Option<Multiaddr>>,
    /// Why the router forwards no port, and when that is to be told.
    gateway: Option<(Gateway, Instant)>,
    answers: JoinSet<PeerId>,
    /// How many answers are under way for each peer.
    asking: HashMap<PeerId, usize>,
}

impl Server {
    fn on_event(&mut self, event: SwarmEvent<EntryEvent>, tell: &mut impl FnMut(Event)) {
        match event {
            SwarmEvent::NewListenAddr { address, .. } => {
                // A relay that knows no address of its own hands out reservations of no use.
                let scope = address::scope(&address).unwrap_or(Scope::Loopback);
                if scope == Scope::Public {
                    self.swarm.add_external_address(address.clone());
                }
                tell(Event::Address { address: self.entry(address), way: Way::Own(scope) });
            }
            SwarmEvent::ListenerClosed { addresses, reason, .. } => {
                tracing::warn!(?addresses, ?reason, "stopped listening");
            }
            SwarmEvent::ConnectionEstablished { peer_id, connection_id, endpoint, .. } => {
                self.seen.insert(connection_id, endpoint);
                self.swarm.behaviour_mut().discovery.connected(peer_id);
            }
            SwarmEvent::ConnectionClosed { peer_id, connection_id, .. } => {
                self.seen.remove(&connection_id);
                self.swarm.behaviour_mut().discovery.closed(&peer_id);
            }
            SwarmEvent::Behaviour(EntryEvent::Discovery(DiscoveryEvent::Identify(
                identify::Event::Received { connection_id, peer_id, info },
            ))) => {
                let Some(end) = self.seen.get(&connection_id) else { return };
                let remote = end.get_remote_address();
                self.swarm.behaviour_mut().discovery.learn(peer_id, &info, remote);
                if end.is_listener()
                    && let Some((from, at)) = outsider(remote, &info.observed_addr)
                    && self.reached.len() < REACHED_MAX
                    && self.reached.insert(at.clone())
                {
                    tell(Event::Reached { from, at });
                }
            }
            SwarmEvent::Behaviour(EntryEvent::Discovery(DiscoveryEvent::Upnp(event))) => {
                tell(match event {
                    upnp::Event::GatewayNotFound => return self.conclude(Gateway::Silent),
                    upnp::Event::NonRoutableGateway => return self.conclude(Gateway::Nested),
                    upnp::Event::NewExternalAddr { external_addr, .. } => {
                        Event::Address { address: self.entry(external_addr), way: Way::Mapped }
                    }
                    upnp::Event::ExpiredExternalAddr { external_addr, .. } => {
                        Event::Unmapped(self.entry(external_addr))
                    }
                });
            }
            SwarmEvent::Behaviour(EntryEvent::Streams(incoming)) => self.on_stream(incoming),
            _ => {}
        }
    }

    /// The router forwards no port. What that means depends on the addresses of this machine, which are
    /// still being told where the system refuses to ask at once.
    fn conclude(&mut self, gateway: Gateway) {
        self.gateway = Some((gateway, Instant::now() + SETTLING));
    }

    /// How this machine is entered at an address of it.
    fn entry(&self, address: Multiaddr) -> Multiaddr {
        address::with_peer(address, *self.swarm.local_peer_id())
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
                if protocol == manifest::NOTICES {
                    return notices(offers, run).await;
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

/// The notices of a run, as they lie on the disk now. Those of no run that is named are none.
async fn notices(offers: Arc<[Offer]>, run: Option<[u8; 32]>) -> Vec<manifest::File> {
    let Some(offer) = offers.iter().find(|offer| Some(offer.run) == run) else {
        return Vec::new();
    };
    let path = offer.notices.clone();
    let read = tokio::task::spawn_blocking(move || {
        manifest::read_notices(&path).unwrap_or_else(|error| {
            tracing::warn!(%error, path = %path.display(), "notices cannot be read");
            Vec::new()
        })
    });
    // It ends early only with the program.
    read.await.unwrap_or_default()
}

/// Waits until it is time to tell of the router, if there is anything to tell.
async fn settled(gateway: Option<(Gateway, Instant)>) -> Gateway {
    match gateway {
        Some((gateway, at)) => {
            sleep_until(at).await;
            gateway
        }
        None => future::pending().await,
    }
}

/// Whether a router may stand before a machine that listens here.
fn is_routed(listen: &Multiaddr) -> bool {
    let all = matches!(listen.iter().next(), Some(Protocol::Ip4(ip)) if ip.is_unspecified());
    all || address::scope(listen) == Some(Scope::Private)
}

/// Who has come in over the internet, if the other end of the connection has, and at which of our
/// addresses, as that peer says. From the address that it dialled itself comes who was turned round
/// by our own router.
fn outsider(remote: &Multiaddr, dialled: &Multiaddr) -> Option<(IpAddr, Option<Multiaddr>)> {
    let far = !address::is_relayed(remote) && address::scope(remote) == Some(Scope::Public);
    let from = host(remote).filter(|_| far)?;
    // A name is a stranger's text, and is not shown.
    let at = host(dialled).filter(|_| address::scope(dialled) == Some(Scope::Public));
    let transport = dialled
        .iter()
        .skip(1)
        .take_while(|part| matches!(part, Protocol::Tcp(_) | Protocol::Udp(_) | Protocol::QuicV1));
    let at = at.map(|ip| transport.fold(Multiaddr::from(ip), Multiaddr::with));
    (host(dialled) != Some(from)).then_some((from, at))
}

fn host(address: &Multiaddr) -> Option<IpAddr> {
    match address.iter().next()? {
        Protocol::Ip4(ip) => Some(ip.into()),
        Protocol::Ip6(ip) => Some(ip.into()),
        _ => None,
    }
}

/// For the addresses of this machine to be told.
const SETTLING: Duration = Duration::from_secs(1);

/// Addresses at which peers came in that are told: more tell nobody more.
pub const REACHED_MAX: usize = 4;

/// Answers under way for one peer: one, and one that it has given up.
const ANSWERS_PER_PEER: usize = 2;

/// Answers under way at once: 512 times the window of a stream, 128 MiB, at the very most.
const ANSWERS_MAX: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_over_the_internet_proves_that_anybody_can() {
        let at = |text: &str| -> Multiaddr { text.parse().unwrap() };
        let stranger = at("/ip4/203.0.113.7/tcp/999");
        let dialled = at("/ip4/203.0.113.9/udp/4001/quic-v1");
        let from = IpAddr::from([203, 0, 113, 7]);
        assert_eq!(outsider(&stranger, &dialled), Some((from, Some(dialled.clone()))));
        // What a stranger says is shown to a person: numbers only.
        let named = at("/dns4/see.example/tcp/1");
        assert_eq!(outsider(&stranger, &named), Some((from, None)));
        let peer = PeerId::random();
        let whole = at(&format!("/ip4/203.0.113.9/tcp/4001/p2p/{peer}/p2p-circuit"));
        let (_, shown) = outsider(&stranger, &whole).unwrap();
        assert_eq!(shown, Some(at("/ip4/203.0.113.9/tcp/4001")));
        // Turned round by the own router, near, or through a relay: that proves nothing.
        let turned = at("/ip4/203.0.113.9/tcp/999");
        let near = at("/ip4/192.168.1.2/tcp/999");
        let circuit = at(&format!("/ip4/203.0.113.7/tcp/1/p2p/{peer}/p2p-circuit"));
        for end in [turned, near, circuit] {
            assert_eq!(outsider(&end, &dialled), None, "{end}");
        }
    }

    #[test]
    fn a_router_is_asked_only_where_one_may_be() {
        for (listen, routed) in [
            ("/ip4/0.0.0.0/tcp/4001", true),
            ("/ip4/192.168.1.2/udp/1/quic-v1", true),
            ("/ip4/127.0.0.1/tcp/0", false),
            ("/ip4/203.0.113.7/tcp/4001", false),
            ("/ip6/::/tcp/4001", false),
        ] {
            assert_eq!(is_routed(&listen.parse().unwrap()), routed, "{listen}");
        }
    }
}
