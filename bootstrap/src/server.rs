//! The public entry point: a Kademlia server, a relay and an AutoNAT server. It also hands out
//! signed manifests and the notices of their runs, as opaque bytes.
//!
//! It decides nothing, and peers that know one another continue without it. So it has no state but
//! its key, and a restart at the same address goes unnoticed.
//!
//! Whatever a peer can ask of it has a limit of its own: `handshakes` and [`crate::crowding`] limit
//! connections, [`measure::Gate`] limits measurements, and this module limits answers.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
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
    relay,
    swarm::{ConnectionId, DialError, NetworkBehaviour, SwarmEvent},
    upnp,
};
use tokio::{
    task::{self, JoinError, JoinSet},
    time::{Instant, sleep_until, timeout},
};

use crate::{
    address::{self, Scope},
    circuits::Circuits,
    crowding,
    discovery::{Discovery, DiscoveryEvent, Gateway, Role},
    manifest,
    measure::{self, Gate},
    streams::{self, Incoming},
    transport::{self, BuildError, ListenError},
};

/// The configuration of an entry point.
pub struct Config {
    /// The key pair, from which the peer id in every join line follows.
    pub key: Keypair,
    /// Addresses to listen on, without `/p2p/…`. Without any, nobody can connect.
    pub listen: Vec<Multiaddr>,
    /// Further addresses at which others reach it and which it cannot find out itself, as behind a
    /// router. They are announced unchecked: a wrong one costs a peer a failed dial.
    pub external: Vec<Multiaddr>,
    /// The runs that it introduces, at most [`manifest::FILES_MAX`], with manifests of at most
    /// [`manifest::FILE_BYTES_MAX`] each: a peer refuses an answer above these limits.
    pub offers: Vec<Offer>,
    /// Whether a peer must name the RunId to get a manifest. Otherwise a peer that names none gets
    /// all of them.
    pub unlisted: bool,
    /// Bytes per second of each measurement ([`measure`]), in each direction; 0 measures nothing.
    pub measure_rate: u32,
    /// The file of a simulated line ([`crate::shaper`]); `None` outside simulations.
    pub line: Option<PathBuf>,
}

/// The files of one run that are handed out.
#[derive(Debug, Clone)]
pub struct Offer {
    /// The RunId, by which peers ask for the files.
    pub run: [u8; 32],
    /// The signed manifest, as the organiser wrote it.
    pub manifest: manifest::File,
    /// The file of the run's notices, read at every request; it may be absent.
    pub notices: PathBuf,
}

/// What an entry point reports about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Nodes may enter at this address.
    Address {
        /// The address, `/p2p/…` included.
        address: Multiaddr,
        /// Why it should lead to this entry point.
        way: Way,
    },
    /// The router no longer forwards a port to this address, `/p2p/…` included.
    Unmapped(Multiaddr),
    /// The router forwards no port.
    Gateway(Gateway),
    /// A peer has connected over the internet, so others can too. At most [`REACHED_MAX`] times.
    Reached(Reached),
}

/// That a peer has come in over the internet. `Display` gives a clause for a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reached {
    /// The public address of that peer.
    pub from: IpAddr,
    /// The address of this machine that the peer says it dialled, which cannot be verified. `None`
    /// where it dialled a name.
    pub at: Option<Multiaddr>,
    /// Whether this entry point knows an address at which others reach it. Without one it relays
    /// for nobody: a peer behind a router would not learn at which address it can be met.
    pub relays: bool,
}

impl fmt::Display for Reached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, at, relays } = self;
        match at {
            Some(at) => write!(f, "a peer has come in from {from} by {at}: anybody can dial it")?,
            None => write!(f, "a peer has come in from {from}: anybody can dial this bootstrap")?,
        }
        match relays {
            true => Ok(()),
            false => f.write_str(", but it cannot relay: start it with --external ADDRESS"),
        }
    }
}

/// Why an address leads to an entry point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// An interface of this machine has the address, which reaches this far unless a firewall
    /// blocks it.
    Own(Scope),
    /// The owner configured it as an external address.
    Named,
    /// The router forwards a port to this machine (UPnP).
    Mapped,
}

/// Why an entry point could not start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The transport could not be set up.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The program cannot listen on one of the addresses.
    #[error(transparent)]
    Listen(#[from] ListenError),
}

/// Serves until `stop` is ready. Calls `tell` with every [`Event`].
///
/// # Errors
/// Only while it starts; see [`ServerError`].
///
/// # Cancel safety
/// Cancel safe: dropping the future ends the service, which has no state to lose.
pub async fn serve(
    config: Config,
    mut tell: impl FnMut(Event),
    stop: impl Future<Output = ()>,
) -> Result<(), ServerError> {
    let mut server = Server::start(config, &mut tell)?;
    let mut stop = std::pin::pin!(stop);
    loop {
        tokio::select! {
            biased;
            () = &mut stop => return Ok(()),
            Some(ended) = server.answers.join_next_with_id() => server.on_answered(ended),
            gateway = settled(server.gateway) => {
                server.gateway = None;
                tell(Event::Gateway(gateway));
            }
            event = server.swarm.select_next_some() => server.on_event(event, &mut tell),
        }
    }
}

/// The behaviours of an entry point: those that nodes run too, and the streams for its own
/// protocols.
#[derive(NetworkBehaviour)]
struct Entry {
    discovery: Discovery,
    streams: streams::Behaviour,
}

/// The loop's state. None of it outlives the process but the key, which is in the swarm.
struct Server {
    swarm: Swarm<Entry>,
    offers: Arc<[Offer]>,
    unlisted: bool,
    /// The other end of each connection. Bounded by the connection limits.
    seen: HashMap<ConnectionId, (PeerId, ConnectedPoint)>,
    /// The circuits that peers have through the relay.
    circuits: Circuits,
    /// The addresses at which peers came in over the internet.
    reached: BTreeSet<Option<Multiaddr>>,
    /// Why the router forwards no port, and when to report it.
    gateway: Option<(Gateway, Instant)>,
    /// Lets few peers measure their line.
    measured: Arc<Gate>,
    /// The answers under way. At most [`ANSWERS_MAX`].
    answers: JoinSet<()>,
    /// For whom each of these answers is.
    asking: HashMap<task::Id, Asker>,
}

/// The peer that has asked, and its network, if there is a limit for that.
type Asker = (PeerId, Option<IpAddr>);

impl Server {
    /// Listens, and tells of the addresses that were configured.
    fn start(config: Config, tell: &mut impl FnMut(Event)) -> Result<Self, ServerError> {
        let (transport, relay_client) = transport::build(&config.key, config.line.as_deref())?;
        let routed = config.listen.iter().any(is_routed);
        let behaviour = Entry {
            discovery: Discovery::new(&config.key, relay_client, Role::Entry { routed }),
            streams: streams::Behaviour::new(&[
                manifest::PROTOCOL,
                manifest::NOTICES,
                measure::PROTOCOL,
            ]),
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
        Ok(Self {
            swarm,
            offers: config.offers.into(),
            unlisted: config.unlisted,
            seen: HashMap::new(),
            circuits: Circuits::default(),
            reached: BTreeSet::new(),
            gateway: None,
            measured: Gate::new(config.measure_rate),
            answers: JoinSet::new(),
            asking: HashMap::new(),
        })
    }

    /// Takes one event of the swarm. Events that are not named here concern the behaviours alone.
    fn on_event(&mut self, event: SwarmEvent<EntryEvent>, tell: &mut impl FnMut(Event)) {
        match event {
            SwarmEvent::NewListenAddr { address, .. } => {
                // A relay that knows no public address of its own hands out useless reservations.
                let scope = address::scope(&address).unwrap_or(Scope::Loopback);
                if scope == Scope::Public {
                    self.swarm.add_external_address(address.clone());
                }
                tell(Event::Address { address: self.entry(address), way: Way::Own(scope) });
            }
            SwarmEvent::ExpiredListenAddr { address, .. }
                if address::scope(&address) == Some(Scope::Public) =>
            {
                self.swarm.remove_external_address(&address);
            }
            SwarmEvent::ListenerClosed { addresses, reason, .. } => {
                tracing::warn!(?addresses, ?reason, "stopped listening");
            }
            SwarmEvent::ConnectionEstablished { peer_id, connection_id, endpoint, .. } => {
                self.seen.insert(connection_id, (peer_id, endpoint));
                self.swarm.behaviour_mut().discovery.connected(peer_id);
            }
            SwarmEvent::ConnectionClosed { peer_id, connection_id, .. } => {
                self.seen.remove(&connection_id);
                self.swarm.behaviour_mut().discovery.closed(&peer_id);
            }
            // Each peer that heard of it here would dial it in vain for seconds. It returns with its next identify.
            SwarmEvent::OutgoingConnectionError {
                peer_id: Some(peer),
                error: DialError::Transport(_),
                ..
            } if !self.swarm.is_connected(&peer) => {
                self.swarm.behaviour_mut().discovery.kademlia.remove_peer(&peer);
            }
            SwarmEvent::Behaviour(EntryEvent::Discovery(DiscoveryEvent::Identify(
                identify::Event::Received { connection_id, peer_id, info },
            ))) => {
                let Some((_, end)) = self.seen.get(&connection_id) else { return };
                let remote = end.get_remote_address();
                self.swarm.behaviour_mut().discovery.learn(peer_id, &info, remote);
                if end.is_listener()
                    && let Some((from, at)) = outsider(remote, &info.observed_addr)
                    && self.reached.len() < REACHED_MAX
                    && self.reached.insert(at.clone())
                {
                    let relays = self.swarm.external_addresses().next().is_some();
                    tell(Event::Reached(Reached { from, at, relays }));
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
            SwarmEvent::Behaviour(EntryEvent::Discovery(DiscoveryEvent::Relay(event))) => {
                self.on_relay(&event);
            }
            SwarmEvent::Behaviour(EntryEvent::Streams(incoming)) => self.on_stream(incoming),
            _ => {}
        }
    }

    /// Ends what a peer takes of the relay beyond its share.
    fn on_relay(&mut self, event: &relay::Event) {
        match event {
            // libp2p's relay forgets the connection, and panics if it then accepts a renewal that came on it before.
            // Honest peers renew in time. One whose renewal is accepted at this very moment is not stopped by this.
            relay::Event::ReservationTimedOut { src_peer_id } => {
                _ = self.swarm.disconnect_peer_id(*src_peer_id);
            }
            relay::Event::CircuitReqAccepted { src_peer_id: from, dst_peer_id: to } => {
                let ends = self.seen.values().filter(|(other, _)| other == from);
                let networks =
                    ends.filter_map(|(_, end)| crowding::network(end.get_remote_address()));
                if let Some(peer) = self.circuits.opened(*from, *to, networks.min()) {
                    tracing::debug!(%peer, "its network has too many circuits, and it has most");
                    _ = self.swarm.disconnect_peer_id(peer);
                }
            }
            relay::Event::CircuitClosed { src_peer_id: from, dst_peer_id: to, .. } => {
                self.circuits.closed(from, to);
            }
            _ => {}
        }
    }

    /// Schedules the report that the router forwards no port. What that means depends on this
    /// machine's addresses, of which some are not known yet when UPnP fails at once.
    fn conclude(&mut self, gateway: Gateway) {
        self.gateway = Some((gateway, Instant::now() + SETTLING));
    }

    /// An address of this machine as a join line names it.
    fn entry(&self, address: Multiaddr) -> Multiaddr {
        address::with_peer(address, *self.swarm.local_peer_id())
    }

    /// Answers a request. Above a limit the stream is dropped, which resets it: the peer that asked
    /// tries again, or elsewhere.
    fn on_stream(&mut self, Incoming { peer, protocol, stream, connection }: Incoming) {
        let remote = self.seen.get(&connection).map(|(_, end)| end.get_remote_address());
        let asker = (peer, remote.and_then(crowding::network));
        if !has_room(self.asking.values(), asker) {
            return;
        }
        let answer = if protocol == measure::PROTOCOL {
            let from = remote.filter(|remote| !address::is_relayed(remote)).and_then(address::ip);
            let admitted = from.map_or(Err(measure::Refusal::Off), |from| {
                self.measured.admit(from, Instant::now())
            });
            self.answers.spawn(async move {
                if let Err(error) = measure::serve(stream, admitted).await {
                    tracing::debug!(%peer, %error, "not measured");
                }
            })
        } else {
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
            })
        };
        self.asking.insert(answer.id(), asker);
    }

    /// Frees the place of an answer that has ended, also of one that panicked.
    fn on_answered(&mut self, ended: Result<(task::Id, ()), JoinError>) {
        self.asking.remove(&ended.map_or_else(|error| error.id(), |(id, ())| id));
    }
}

/// Whether one more answer may begin beside those that are under way.
fn has_room<'a>(asking: impl Iterator<Item = &'a Asker> + Clone, (peer, network): Asker) -> bool {
    let same = asking.clone().filter(|(other, _)| *other == peer).count();
    let near = asking.clone().filter(|(_, other)| network.is_some() && *other == network).count();
    same < ANSWERS_PER_PEER && near < ANSWERS_PER_NETWORK && asking.count() < ANSWERS_MAX
}

/// The notices of a run, as they are on disk now; none if `run` is absent or unknown.
async fn notices(offers: Arc<[Offer]>, run: Option<[u8; 32]>) -> Vec<manifest::File> {
    let Some(offer) = offers.iter().find(|offer| Some(offer.run) == run) else {
        return Vec::new();
    };
    let path = offer.notices.clone();
    let read = task::spawn_blocking(move || {
        manifest::read_notices(&path).unwrap_or_else(|error| {
            tracing::warn!(%error, path = %path.display(), "notices cannot be read");
            Vec::new()
        })
    });
    // The task ends early only with the program.
    read.await.unwrap_or_default()
}

/// Waits until the router's failure is to be reported; never ready if there is none.
async fn settled(gateway: Option<(Gateway, Instant)>) -> Gateway {
    match gateway {
        Some((gateway, at)) => {
            sleep_until(at).await;
            gateway
        }
        None => future::pending().await,
    }
}

/// Whether a machine that listens at this address may be behind a router.
fn is_routed(listen: &Multiaddr) -> bool {
    let all = matches!(listen.iter().next(), Some(Protocol::Ip4(ip)) if ip.is_unspecified());
    all || address::scope(listen) == Some(Scope::Private)
}

/// If the peer came over the internet: its address, and the address of ours that it says it
/// dialled. If these two are equal, our own router turned the connection round, so it is not
/// counted.
fn outsider(remote: &Multiaddr, dialled: &Multiaddr) -> Option<(IpAddr, Option<Multiaddr>)> {
    if address::is_relayed(remote) || address::scope(remote) != Some(Scope::Public) {
        return None;
    }
    let from = address::ip(remote)?;
    // A DNS name is text chosen by an unknown peer, so it is not shown.
    let own = address::ip(dialled);
    let at = if address::scope(dialled) == Some(Scope::Public) { own } else { None };
    let transport = dialled
        .iter()
        .skip(1)
        .take_while(|part| matches!(part, Protocol::Tcp(_) | Protocol::Udp(_) | Protocol::QuicV1));
    let at = at.map(|ip| transport.fold(Multiaddr::from(ip), Multiaddr::with));
    (own != Some(from)).then_some((from, at))
}

/// Time for the system to report the addresses of this machine.
const SETTLING: Duration = Duration::from_secs(1);

/// The most addresses that are reported as reached; further ones add no information.
pub const REACHED_MAX: usize = 4;

/// Answers under way for one peer: one, and one that the peer has given up.
const ANSWERS_PER_PEER: usize = 2;

/// Answers under way for one network: enough for a computer room whose machines start together,
/// and sixteen networks are needed to take all places.
const ANSWERS_PER_NETWORK: usize = 32;

/// Answers under way at once. Each buffers at most a stream's window, together 128 MiB.
const ANSWERS_MAX: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    /// An entry point that listens nowhere.
    fn server() -> Server {
        let config = Config {
            key: Keypair::generate_ed25519(),
            listen: Vec::new(),
            external: Vec::new(),
            offers: Vec::new(),
            unlisted: false,
            measure_rate: 0,
            line: None,
        };
        Server::start(config, &mut |_: Event| {}).unwrap()
    }

    /// What is said when a peer comes in over the internet that has dialled `at`.
    fn said(server: &mut Server, at: &str) -> String {
        let (key, connection) = (Keypair::generate_ed25519(), ConnectionId::new_unchecked(1));
        let end = ConnectedPoint::Listener {
            local_addr: Multiaddr::empty(),
            send_back_addr: "/ip4/203.0.113.7/tcp/999".parse().unwrap(),
        };
        let peer = key.public().to_peer_id();
        server.seen.insert(connection, (peer, end));
        let info = identify::Info {
            public_key: key.public(),
            protocol_version: String::new(),
            agent_version: String::new(),
            listen_addrs: Vec::new(),
            protocols: Vec::new(),
            observed_addr: at.parse().unwrap(),
            signed_peer_record: None,
        };
        let received = identify::Event::Received { connection_id: connection, peer_id: peer, info };
        let event = EntryEvent::Discovery(DiscoveryEvent::Identify(received));
        let mut said = String::new();
        server.on_event(SwarmEvent::Behaviour(event), &mut |event: Event| {
            if let Event::Reached(reached) = event {
                said = reached.to_string();
            }
        });
        said
    }

    #[tokio::test]
    async fn an_entry_that_knows_no_address_of_its_own_says_that_it_cannot_relay() {
        let (mut server, at) = (server(), "/ip4/203.0.113.9/tcp/4001");
        for at in [at, "/dns4/see.example/tcp/4001"] {
            let text = said(&mut server, at);
            assert!(text.ends_with("it cannot relay: start it with --external ADDRESS"), "{text}");
        }
        server.swarm.add_external_address(at.parse().unwrap());
        let text = said(&mut server, "/ip4/203.0.113.9/udp/4001/quic-v1");
        assert!(text.ends_with("anybody can dial it"), "{text}");
    }

    /// A dial that was refused here, or ended otherwise, says nothing about the peer.
    #[tokio::test]
    async fn a_server_of_the_table_is_forgotten_when_no_dial_reaches_it() {
        let (mut server, peer) = (server(), PeerId::random());
        let at = "/ip4/203.0.113.7/tcp/1".parse().unwrap();
        server.swarm.behaviour_mut().discovery.kademlia.add_address(&peer, at);
        for (error, left) in [(DialError::Aborted, 1), (DialError::Transport(Vec::new()), 0)] {
            let connection_id = ConnectionId::new_unchecked(1);
            let peer_id = Some(peer);
            let event = SwarmEvent::OutgoingConnectionError { connection_id, peer_id, error };
            server.on_event(event, &mut |_: Event| {});
            let kademlia = &mut server.swarm.behaviour_mut().discovery.kademlia;
            assert_eq!(kademlia.kbuckets().count(), left);
        }
    }

    #[test]
    fn who_comes_over_the_internet_proves_that_anybody_can() {
        let at = |text: &str| -> Multiaddr { text.parse().unwrap() };
        let stranger = at("/ip4/203.0.113.7/tcp/999");
        let dialled = at("/ip4/203.0.113.9/udp/4001/quic-v1");
        let from = IpAddr::from([203, 0, 113, 7]);
        assert_eq!(outsider(&stranger, &dialled), Some((from, Some(dialled.clone()))));
        // The text of an unknown peer is shown to a person, so only numbers pass.
        let named = at("/dns4/see.example/tcp/1");
        assert_eq!(outsider(&stranger, &named), Some((from, None)));
        let peer = PeerId::random();
        let whole = at(&format!("/ip4/203.0.113.9/tcp/4001/p2p/{peer}/p2p-circuit"));
        let (_, shown) = outsider(&stranger, &whole).unwrap();
        assert_eq!(shown, Some(at("/ip4/203.0.113.9/tcp/4001")));
        // Turned round by our own router, from nearby, or through a relay: that proves nothing.
        let turned = at("/ip4/203.0.113.9/tcp/999");
        let near = at("/ip4/192.168.1.2/tcp/999");
        let circuit = at(&format!("/ip4/203.0.113.7/tcp/1/p2p/{peer}/p2p-circuit"));
        for end in [turned, near, circuit] {
            assert_eq!(outsider(&end, &dialled), None, "{end}");
        }
    }

    /// Keys cost nothing, so 256 of them at one address could hold every answer.
    #[test]
    fn one_network_leaves_answers_for_the_others() {
        let at = |from: &str| (PeerId::random(), crowding::network(&from.parse().unwrap()));
        let mut asking: Vec<Asker> = Vec::new();
        let mut takes = |asker: Asker| {
            let room = has_room(asking.iter(), asker);
            asking.extend(room.then_some(asker));
            room
        };
        let same = (0..ANSWERS_MAX).filter(|_| takes(at("/ip4/203.0.113.7/tcp/1")));
        assert_eq!(same.count(), ANSWERS_PER_NETWORK);
        let v6 = |host| at(&format!("/ip6/2001:db8:1:2::{host:x}/tcp/1"));
        assert_eq!((0..ANSWERS_MAX).filter(|host| takes(v6(*host))).count(), ANSWERS_PER_NETWORK);
        let other = at("/ip4/203.0.113.8/tcp/1");
        assert!(takes(other) && takes(other) && !takes(other), "two of one peer");
        // Private networks share the places that are left.
        let near = (0..ANSWERS_MAX).filter(|_| takes(at("/ip4/192.168.1.2/tcp/1")));
        assert_eq!(near.count(), ANSWERS_MAX - 2 * ANSWERS_PER_NETWORK - 2);
        assert!(!takes(at("/ip4/203.0.113.9/tcp/1")));
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
