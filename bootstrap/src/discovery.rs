//! How peers find and reach one another: Kademlia, identify, ping, relay, AutoNAT v2, DCUtR, UPnP
//! and the limits, as one behaviour. The entry point and the node run the same parts. They differ
//! in their side of relay and AutoNAT ([`Role`]) and in their number of connections.
//!
//! Kademlia (Maymounkov and Mazières 2002) holds provider records only and stores no values for
//! anyone. Where all peers can reach each other, a node serves the table at once; elsewhere only
//! once it is known to be reachable itself ([`Discovery::serve_table`]), since a table of
//! unreachable servers answers nobody. A circuit through a relay does not count as reachable.
//!
//! Ping only measures. Signed heartbeats, not pings, decide whether a member is alive.
#![expect(missing_docs, reason = "the derived event has one variant per field, described there")]

use std::{fmt, num::NonZeroU32, time::Duration};

use libp2p::{
    Multiaddr, PeerId, StreamProtocol, allow_block_list, autonat, dcutr, identify,
    identity::Keypair,
    kad, ping, relay,
    swarm::{NetworkBehaviour, behaviour::toggle::Toggle},
    upnp,
};

use crate::{
    address::{self, Scope},
    candidates::Candidates,
    crowding::Crowding,
    providers::Providers,
    table::Table,
};

/// The id that identify announces; its number is the protocol's major version.
pub const IDENTIFY: &str = "/intellect/1";

/// Kademlia's protocol id, which keeps our table separate from all others.
pub const KADEMLIA: StreamProtocol = StreamProtocol::new("/intellect/kad/1");

/// Whether the program is an entry point or a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The public entry point: it serves the table, relays circuits, and tests others' addresses.
    Entry {
        /// Whether a router may be between it and others, so that UPnP is worth trying.
        routed: bool,
    },
    /// A node: it uses relays, asks whether it can be reached, and turns circuits into direct
    /// connections.
    Node {
        /// How far away its entry points are. Unless they are on this machine, a router may be
        /// between it and others, so UPnP is worth trying.
        scope: Scope,
    },
}

/// Why the router of this network forwards no port. `Display` gives a clause for a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gateway {
    /// No router answers UPnP requests.
    Silent,
    /// The router that answers has no public address itself.
    Nested,
}

impl fmt::Display for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Silent => "no router here answers when it is asked for a port (UPnP)",
            Self::Nested => {
                "the router here has no address of the internet itself: another one stands before \
                 it, of this house or of the provider"
            }
        })
    }
}

/// All behaviours of discovery. The event type is derived, with one variant per field.
#[derive(NetworkBehaviour)]
pub struct Discovery {
    /// Blocks peers that misbehaved. The first field, so that no other behaviour hears of them.
    pub blocked: allow_block_list::Behaviour<allow_block_list::BlockedPeers>,
    /// Limits connections: all of them, those of one peer, and those from one network.
    pub crowding: Crowding,
    /// Exchanges keys, protocols and addresses with each peer.
    pub identify: identify::Behaviour,
    /// Measures round trip times, and notices when an idle connection has died.
    pub ping: ping::Behaviour,
    /// The distributed table of who takes part in which run.
    pub kademlia: Table,
    /// Connects to others, and accepts connections, through relays.
    pub relay_client: relay::client::Behaviour,
    /// Relays circuits for others; only at an entry point.
    pub relay: Toggle<relay::Behaviour>,
    /// Asks others whether they can reach us; only at a node.
    pub reach: Toggle<Candidates>,
    /// Answers that question by dialling back; only at an entry point.
    pub probe: Toggle<autonat::v2::server::Behaviour>,
    /// Turns circuits into direct connections; only at a node.
    pub punch: Toggle<dcutr::Behaviour>,
    /// Asks the router to forward a port, where a router may be.
    pub upnp: Toggle<upnp::tokio::Behaviour>,
}

impl Discovery {
    /// Builds all behaviours; `relay_client` comes from [`crate::transport::build`].
    #[must_use]
    pub fn new(key: &Keypair, relay_client: relay::client::Behaviour, role: Role) -> Self {
        let me = key.public().to_peer_id();
        let entry = matches!(role, Role::Entry { .. });
        let routed = match role {
            Role::Entry { routed } => routed,
            Role::Node { scope } => scope > Scope::Loopback,
        };
        let mut this = Self {
            blocked: allow_block_list::Behaviour::default(),
            crowding: crowding(role),
            identify: identify::Behaviour::new(
                identify::Config::new(IDENTIFY.into(), key.public())
                    .with_agent_version(concat!("intellect/", env!("CARGO_PKG_VERSION")).into())
                    // Cached addresses would be dialled too, whatever the table says.
                    .with_cache_size(0),
            ),
            ping: ping::Behaviour::new(ping::Config::new().with_interval(PING)),
            kademlia: kademlia(me),
            relay_client,
            relay: Toggle::from(entry.then(|| relay::Behaviour::new(me, relay_config()))),
            reach: Toggle::from((!entry).then(Candidates::default)),
            probe: Toggle::from(entry.then(autonat::v2::server::Behaviour::default)),
            punch: Toggle::from((!entry).then(|| dcutr::Behaviour::new(me))),
            upnp: Toggle::from(routed.then(upnp::tokio::Behaviour::default)),
        };
        this.serve_table(role != Role::Node { scope: Scope::Public });
        this
    }

    /// Sets whether this peer answers queries of the table, or only sends them.
    pub fn serve_table(&mut self, serve: bool) {
        let mode = if serve { kad::Mode::Server } else { kad::Mode::Client };
        if self.kademlia.mode() != mode {
            self.kademlia.set_mode(Some(mode));
        }
    }

    /// How many peers are known that answer queries of the table.
    pub fn servers(&mut self) -> usize {
        self.kademlia.kbuckets().map(|bucket| bucket.num_entries()).sum()
    }

    /// Records a connection to a peer: a connected provider is more credible than others.
    pub fn connected(&mut self, peer: PeerId) {
        self.kademlia.store_mut().up(peer);
    }

    /// Records that a connection to a peer has closed.
    pub fn closed(&mut self, peer: &PeerId) {
        self.kademlia.store_mut().down(peer);
    }

    /// Takes over what a peer reported about itself. Returns those of its addresses that are worth
    /// dialling from where it was seen, at most [`ADDRESSES_MAX`] of at most [`ADDRESS_BYTES_MAX`].
    /// If the peer serves the table they are entered there; if some are for TCP only those, since
    /// over QUIC a killed process is noticed seconds later.
    pub fn learn(
        &mut self,
        peer: PeerId,
        info: &identify::Info,
        seen: &Multiaddr,
    ) -> Vec<Multiaddr> {
        let addresses: Vec<_> = info
            .listen_addrs
            .iter()
            .filter(|address| address.len() <= ADDRESS_BYTES_MAX)
            .filter(|address| address::plausible(address, seen))
            .take(ADDRESSES_MAX)
            .cloned()
            .collect();
        if info.protocols.contains(&KADEMLIA) {
            // A peer that keeps announcing new addresses must not fill the table with them.
            let known = self.kademlia.kbucket(peer).and_then(|bucket| {
                let entry = bucket.iter().find(|entry| *entry.node.key.preimage() == peer)?;
                Some(entry.node.value.len())
            });
            // One that waits for room in its bucket is not listed there, and is removed too.
            if !addresses.is_empty() && known.is_none_or(|known| known > ADDRESSES_MAX) {
                self.kademlia.remove_peer(&peer);
            }
            let tcp = addresses.iter().any(address::is_tcp);
            for address in addresses.iter().filter(|address| address::is_tcp(address) == tcp) {
                self.kademlia.add_address(&peer, address.clone());
            }
        }
        addresses
    }
}

/// The table's configuration. Kademlia publishes our own record again; it replicates none of other
/// peers, since these renew theirs themselves.
///
/// A dial of a dead server takes seconds, and nothing is announced before the last one of a query
/// has ended. So all servers near a key are asked at once, and a query has time for two rounds of
/// them, each of the 10 s that libp2p waits for a server.
fn kademlia(me: PeerId) -> Table {
    let mut config = kad::Config::new(KADEMLIA);
    config
        .set_query_timeout(Duration::from_secs(30))
        .set_parallelism(kad::K_VALUE)
        .set_max_packet_size(KADEMLIA_PACKET)
        .set_replication_interval(None)
        .set_publication_interval(None)
        .set_provider_record_ttl(Some(PROVIDER_TTL))
        .set_provider_publication_interval(Some(PROVIDER_RENEWAL))
        .set_periodic_bootstrap_interval(Some(Duration::from_secs(60)));
    Table(kad::Behaviour::with_config(me, Providers::new(me), config))
}

/// The relay at an entry point. Its defaults are for a few circuits of two minutes, which would cut
/// off a peer that nobody can dial. A circuit of an hour carries control messages, and a peer opens
/// another one afterwards.
///
/// A request for a circuit counts against its rate also where it leads to nobody. A node that looks
/// for others makes one for each departed peer, once a second at first, so the rates have room for
/// that. They spare the peers at the other end, for which each circuit is a handshake.
fn relay_config() -> relay::Config {
    relay::Config {
        // One for each connection that an entry point may have. `crowding` bounds those of one
        // network; with fewer reservations a few keys at one address would leave none for others.
        max_reservations: 1_000,
        max_reservations_per_peer: 4,
        reservation_duration: Duration::from_secs(60 * 60),
        // A connection has one reservation at most, however often it asks for it.
        reservation_rate_limiters: Vec::new(),
        max_circuits: 256,
        max_circuits_per_peer: 16,
        max_circuit_duration: Duration::from_secs(60 * 60),
        max_circuit_bytes: CIRCUIT_BYTES_MAX,
        circuit_src_rate_limiters: Vec::new(),
    }
    .circuit_src_per_peer(CIRCUITS_PER_PEER, Duration::from_secs(1))
    .circuit_src_per_ip(CIRCUITS_PER_ADDRESS, Duration::from_millis(125))
}

/// [`crate::handshakes`] limits inbound connections before their handshake.
fn crowding(role: Role) -> Crowding {
    match role {
        Role::Entry { .. } => Crowding::new(900, 1_000),
        Role::Node { .. } => Crowding::new(600, 800),
    }
}

/// Addresses of one peer that are remembered. The table may hold twice as many for a while.
pub const ADDRESSES_MAX: usize = 16;

/// Bytes of an address that is remembered: room for one through a relay, which names a host and two
/// peers.
pub const ADDRESS_BYTES_MAX: usize = 160;

/// Often enough to notice a growing round trip early, at next to no cost on the wire.
const PING: Duration = Duration::from_secs(5);

/// The longest answer: twenty servers and as many providers, each with all addresses that the table
/// may have of it. Every peer refuses a longer one, so this server would be of no use to anybody.
/// In a packet an address costs 3 bytes more, a peer at most 64.
const KADEMLIA_PACKET: usize =
    2 * kad::K_VALUE.get() * (64 + 2 * ADDRESSES_MAX * (ADDRESS_BYTES_MAX + 3));

/// Given by docs/FORMATS.md. A record lives as long as three renewals.
const PROVIDER_RENEWAL: Duration = Duration::from_secs(10 * 60);
const PROVIDER_TTL: Duration = Duration::from_secs(30 * 60);

/// Enough for an hour of heartbeats and votes of 256 members, but not for tensors.
const CIRCUIT_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Circuits that a key, or all keys at one IP address, may ask for at once. Each second a key gets
/// one more, and an address eight. Twenty searches for twenty peers that are gone need 400.
const CIRCUITS_PER_PEER: NonZeroU32 = NonZeroU32::new(512).expect("not zero");
const CIRCUITS_PER_ADDRESS: NonZeroU32 = NonZeroU32::new(2_048).expect("not zero");

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        task::{Context, Poll, Waker},
        time::Instant,
    };

    use libp2p::{multiaddr::Protocol, swarm::ToSwarm};

    use super::*;
    use crate::transport;

    /// A discovery, and the identify record of a peer that listens at `addresses`.
    fn identified(addresses: &[&str]) -> (Discovery, PeerId, identify::Info) {
        let key = Keypair::generate_ed25519();
        let (_, relay_client) = transport::build(&key, None).unwrap();
        let peer = Keypair::generate_ed25519();
        let info = identify::Info {
            public_key: peer.public(),
            protocol_version: IDENTIFY.into(),
            agent_version: String::new(),
            listen_addrs: addresses.iter().map(|address| address.parse().unwrap()).collect(),
            protocols: vec![KADEMLIA],
            observed_addr: Multiaddr::empty(),
            signed_peer_record: None,
        };
        let discovery = Discovery::new(&key, relay_client, Role::Entry { routed: false });
        (discovery, peer.public().to_peer_id(), info)
    }

    /// The addresses in the table of the only peer in it.
    fn table(discovery: &mut Discovery) -> Vec<String> {
        let mut buckets = discovery.kademlia.kbuckets();
        let bucket = buckets.next().unwrap();
        let entry = bucket.iter().next().unwrap();
        entry.node.value.iter().map(ToString::to_string).collect()
    }

    #[tokio::test]
    async fn the_table_gets_tcp_if_there_is_any_and_nothing_implausible() {
        let quic = "/ip4/203.0.113.7/udp/1/quic-v1";
        let tcp = "/ip4/203.0.113.7/tcp/1";
        let seen: Multiaddr = "/ip4/203.0.113.7/tcp/999".parse().unwrap();
        let (mut discovery, peer, info) = identified(&["/ip4/10.0.0.1/tcp/1", quic, tcp]);
        assert_eq!(discovery.learn(peer, &info, &seen).len(), 2);
        assert_eq!(table(&mut discovery), [format!("{tcp}/p2p/{peer}")]);
        let (mut discovery, peer, info) = identified(&["/ip4/10.0.0.1/tcp/1", quic]);
        assert_eq!(discovery.learn(peer, &info, &seen).len(), 1);
        assert_eq!(table(&mut discovery), [format!("{quic}/p2p/{peer}")]);
    }

    /// Eight peers with many long addresses made the answers of a server longer than a packet.
    #[tokio::test]
    async fn a_long_address_is_left_out() {
        let (mut discovery, peer, mut info) = identified(&["/dns4/see.example/tcp/1"]);
        let long = Multiaddr::empty().with(Protocol::Dns4("a".repeat(ADDRESS_BYTES_MAX).into()));
        let short = info.listen_addrs.clone();
        info.listen_addrs.insert(0, long);
        assert_eq!(discovery.learn(peer, &info, &Multiaddr::empty()), short);
        assert_eq!(table(&mut discovery).len(), 1);
    }

    /// Protobuf writes a tag and a length before each part.
    #[test]
    fn the_longest_answer_fits_a_packet() {
        let part = |bytes: usize| {
            let length = (1_usize..).find(|&length| bytes >> (7 * length) == 0);
            1 + length.unwrap() + bytes
        };
        let id = Keypair::generate_ed25519().public().to_peer_id().to_bytes().len();
        let addresses = 2 * ADDRESSES_MAX * part(ADDRESS_BYTES_MAX);
        let peer = part(part(id) + addresses + part(0));
        let answer = part(0) + part(0) + 2 * kad::K_VALUE.get() * peer;
        assert!(answer <= KADEMLIA_PACKET, "{answer}");
    }

    /// Three dead servers kept an announcement from everybody while three were asked at once.
    #[test]
    fn all_servers_near_a_run_are_asked_at_once() {
        let mut table = kademlia(PeerId::random());
        for _ in 0..kad::K_VALUE.get() {
            table.add_address(&PeerId::random(), "/ip4/203.0.113.7/tcp/1".parse().unwrap());
        }
        table.start_providing(kad::RecordKey::new(&[7])).unwrap();
        let mut dialled = BTreeSet::new();
        while let Poll::Ready(event) = table.poll(&mut Context::from_waker(Waker::noop())) {
            if let ToSwarm::Dial { opts } = event {
                dialled.extend(opts.get_peer_id());
            }
        }
        assert_eq!(dialled.len(), kad::K_VALUE.get());
    }

    #[test]
    fn peers_that_are_gone_leave_circuits_to_those_that_are_here() {
        let mut limiters = relay_config().circuit_src_rate_limiters;
        let from: Multiaddr = "/ip4/203.0.113.7/tcp/1".parse().unwrap();
        let (peer, start) = (PeerId::random(), Instant::now());
        let mut is_let_in = |second: u64| {
            let now = start + Duration::from_secs(second);
            limiters.iter_mut().all(|limiter| limiter.try_next(peer, &from, now))
        };
        // A node searches once a second for 20 s, and each time dials twenty peers that are gone.
        assert!((0..400).all(|circuit| is_let_in(circuit / 20)));
        assert!(!(0..400).all(|_| is_let_in(20)));
    }

    #[tokio::test]
    async fn a_peer_with_ever_new_addresses_does_not_fill_the_table() {
        let (mut discovery, peer, mut info) = identified(&[]);
        let seen: Multiaddr = "/ip4/127.0.0.1/tcp/999".parse().unwrap();
        for port in 1..1_000 {
            info.listen_addrs = vec![format!("/ip4/127.0.0.1/tcp/{port}").parse().unwrap()];
            discovery.learn(peer, &info, &seen);
            assert!(table(&mut discovery).len() <= 2 * ADDRESSES_MAX);
        }
    }
}
