//! Whether others can reach this node, as a state and as a sentence for its owner.
//!
//! Where all entry points are on this machine or network, all peers can reach one another.
//! Otherwise the proof is a confirmed external address: from the router by UPnP, or from AutoNAT,
//! where an entry point dialled us back. An address that the owner names is tested like any other.
//! Without a proof after [`PATIENCE`], or after [`PROBES_FAILED_MAX`] failed probes, the node
//! counts as closed and asks a relay.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::{IpAddr, Ipv4Addr, UdpSocket},
    time::Duration,
};

use intellect_bootstrap::address;
use libp2p::Multiaddr;
use tokio::time::Instant;

use super::address::host;

/// Whether others can reach this node. `Display` is a sentence with the remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reachability {
    /// All peers of this run are on this machine or network.
    Local,
    /// No proof yet in either direction; lasts at most [`PATIENCE`].
    Unknown,
    /// From anywhere, at these addresses.
    Open(Vec<String>),
    /// Only through relays, which carry messages but no bulk.
    Relayed,
    /// Not at all: this node can dial others, but they cannot dial it.
    Closed,
}

impl Reachability {
    /// Whether others can open a direct connection to this node, as far as it knows.
    #[must_use]
    pub(crate) fn is_direct(&self) -> bool {
        matches!(self, Self::Local | Self::Open(_))
    }

    /// Its name in the events file.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Unknown => "unknown",
            Self::Open(_) => "open",
            Self::Relayed => "relayed",
            Self::Closed => "closed",
        }
    }

    /// Where others can dial this node, if anybody can.
    pub(crate) fn addresses(&self) -> &[String] {
        match self {
            Self::Open(addresses) => addresses,
            Self::Local | Self::Unknown | Self::Relayed | Self::Closed => &[],
        }
    }
}

impl fmt::Display for Reachability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const REMEDY: &str = "forward the port of --listen on your router to this machine and name \
            it with --external, or switch on UPnP there";
        match self {
            Self::Local => write!(f, "peers on this machine or network can reach this node"),
            Self::Unknown => write!(f, "whether others can reach this node is not known yet"),
            Self::Open(addresses) => {
                write!(f, "others can reach this node at {}", addresses.join(" and "))
            }
            Self::Relayed => write!(
                f,
                "nobody can dial this node: peers come through a relay, and take part with it where \
                 a hole is punched; better: {REMEDY}"
            ),
            Self::Closed => write!(
                f,
                "nobody can dial this node: it takes part with peers that it can dial; better: \
                 {REMEDY}"
            ),
        }
    }
}

/// What shows whether others can dial this node. Time and counts are enough; no packet is sent
/// here.
#[derive(Debug)]
pub(super) struct Evidence {
    /// Whether an entry point is on the internet. Otherwise nothing has to be proved.
    far: bool,
    /// Since when a proof is looked for.
    since: Instant,
    /// Confirmed addresses that need no relay.
    open: BTreeSet<Multiaddr>,
    /// Where packets to the internet left this machine when one of these was confirmed last: a
    /// router forwards them to this address, and not to that of a bridge for containers.
    uplink: Option<IpAddr>,
    /// Confirmed addresses at relays.
    circuits: BTreeSet<Multiaddr>,
    /// What was confirmed on networks that this machine has left, by the address at which it
    /// listened there. AutoNAT does not test such an address again.
    left: BTreeMap<Multiaddr, BTreeSet<Multiaddr>>,
    /// Probes that failed since the last proof.
    probes_failed: u32,
}

impl Evidence {
    /// `far`: an entry point is on the internet.
    pub(super) fn new(far: bool, now: Instant) -> Self {
        let (open, uplink, circuits, left) = Default::default();
        Self { far, since: now, open, uplink, circuits, left, probes_failed: 0 }
    }

    /// An address was confirmed by the router, by AutoNAT, or by a relay's reservation, while
    /// packets to the internet leave from `uplink`. Bounded: libp2p confirms only addresses that we
    /// listen on, map or announce.
    pub(super) fn confirmed(&mut self, address: &Multiaddr, uplink: Option<IpAddr>) {
        if address::is_relayed(address) {
            self.circuits.insert(address.clone());
            return;
        }
        self.open.insert(address.clone());
        self.uplink = uplink.or(self.uplink);
    }

    /// The confirmation of an address has expired. After the last direct one the search for a proof
    /// begins anew, with all of its time.
    pub(super) fn expired(&mut self, address: &Multiaddr, now: Instant) {
        self.circuits.remove(address);
        if self.open.remove(address) && self.open.is_empty() {
            (self.since, self.probes_failed) = (now, 0);
        }
    }

    /// This machine listens at `address` no longer, but at `others`: it may have left that network,
    /// as a laptop does. Returns the confirmed addresses that led to it there: that address itself,
    /// and if packets to the internet left from it, those that a router forwards.
    pub(super) fn leaves<'a>(
        &mut self,
        address: &Multiaddr,
        others: impl Iterator<Item = &'a Multiaddr>,
        now: Instant,
    ) -> BTreeSet<Multiaddr> {
        let others: BTreeSet<_> = others.collect();
        let was_uplink = self.uplink.is_some() && host(address) == self.uplink;
        let is_forwarded =
            |open: &&Multiaddr| host(open).is_some_and(|ip| ip.is_ipv4()) && !others.contains(open);
        let led = |open: &&Multiaddr| *open == address || (was_uplink && is_forwarded(open));
        let gone: BTreeSet<_> = self.open.iter().filter(led).cloned().collect();
        for gone in &gone {
            self.expired(gone, now);
        }
        if !gone.is_empty() {
            if self.left.len() >= NETWORKS_MAX {
                // Of IPv6, whose temporary addresses do not come back.
                self.left.pop_last();
            }
            self.left.insert(address.clone(), gone.clone());
        }
        gone
    }

    /// This machine listens at `address`. Returns what was confirmed there before it left that
    /// network.
    pub(super) fn returns(&mut self, address: &Multiaddr) -> BTreeSet<Multiaddr> {
        let back = self.left.remove(address).unwrap_or_default();
        self.open.extend(back.iter().cloned());
        back
    }

    /// An entry point tried to dial us back and could not.
    pub(super) fn probe_failed(&mut self) {
        self.probes_failed = self.probes_failed.saturating_add(1);
    }

    /// What the evidence shows now. A direct address outweighs everything else. The actor asks at
    /// each tick, since the passing of time alone ends [`Reachability::Unknown`].
    pub(super) fn conclude(&self, now: Instant) -> Reachability {
        if !self.far {
            return Reachability::Local;
        }
        if !self.open.is_empty() {
            return Reachability::Open(self.open.iter().map(ToString::to_string).collect());
        }
        if !self.circuits.is_empty() {
            return Reachability::Relayed;
        }
        let waited = now.saturating_duration_since(self.since) >= PATIENCE;
        if waited || self.probes_failed >= PROBES_FAILED_MAX {
            return Reachability::Closed;
        }
        Reachability::Unknown
    }
}

/// The address of this machine from which packets to the internet leave, if it has a way there. No
/// packet is sent: the system only looks up its route to an address that belongs to nobody (RFC
/// 5737).
pub(super) fn uplink() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Networks that a laptop comes back to. At the limit one is forgotten, and with it what was
/// confirmed there.
const NETWORKS_MAX: usize = 16;
/// AutoNAT probes every 5 s, and UPnP gives up after 10 s.
const PATIENCE: Duration = Duration::from_secs(30);
/// Failed probes, of any of our addresses, after which no further one is waited for.
const PROBES_FAILED_MAX: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circuit_is_no_direct_address_and_proof_can_expire() {
        let start = Instant::now();
        let mut evidence = Evidence::new(true, start);
        assert_eq!(evidence.conclude(start), Reachability::Unknown);
        assert_eq!(evidence.conclude(start + PATIENCE), Reachability::Closed);
        let relay = libp2p::PeerId::random();
        let circuit = format!("/ip4/203.0.113.7/tcp/1/p2p/{relay}/p2p-circuit").parse().unwrap();
        evidence.confirmed(&circuit, None);
        assert_eq!(evidence.conclude(start), Reachability::Relayed);
        assert!(!Reachability::Relayed.is_direct());
        let open: Multiaddr = "/ip4/203.0.113.8/tcp/1".parse().unwrap();
        evidence.confirmed(&open, None);
        assert_eq!(evidence.conclude(start), Reachability::Open(vec![open.to_string()]));
        evidence.expired(&circuit, start);
        evidence.expired(&open, start + PATIENCE);
        assert_eq!(evidence.conclude(start + PATIENCE), Reachability::Unknown);
        (0..PROBES_FAILED_MAX).for_each(|_| evidence.probe_failed());
        assert_eq!(evidence.conclude(start + PATIENCE), Reachability::Closed);
    }

    /// A laptop is opened at home, then in a café, then at home again.
    #[test]
    fn what_was_confirmed_at_home_counts_at_home_only() {
        let start = Instant::now();
        let at = |text: &str| -> Multiaddr { text.parse().unwrap() };
        let (home, mapped) = (at("/ip4/192.168.1.2/tcp/1"), at("/ip4/203.0.113.8/tcp/9"));
        let own = at("/ip6/2001:db8::1/tcp/1");
        let mut evidence = Evidence::new(true, start);
        evidence.confirmed(&mapped, Some(Ipv4Addr::new(192, 168, 1, 2).into()));
        evidence.confirmed(&own, None);
        let (bridge, loopback) = (at("/ip4/172.18.0.1/tcp/1"), at("/ip4/127.0.0.1/tcp/1"));
        let at_home = [&loopback, &home, &own];
        assert!(
            evidence.leaves(&at("/ip6/2001:db8::2/tcp/1"), at_home.into_iter(), start).is_empty()
        );
        assert!(evidence.leaves(&bridge, at_home.into_iter(), start).is_empty(), "it is at home");
        let gone = evidence.leaves(&home, [&loopback, &bridge, &own].into_iter(), start);
        assert_eq!(gone, BTreeSet::from([mapped.clone()]));
        assert_eq!(evidence.conclude(start), Reachability::Open(vec![own.to_string()]));
        let gone = evidence.leaves(&own, [&loopback].into_iter(), start);
        assert_eq!(gone, BTreeSet::from([own.clone()]));
        assert_eq!(evidence.conclude(start), Reachability::Unknown);
        assert!(evidence.returns(&at("/ip4/10.0.0.7/tcp/1")).is_empty());
        assert_eq!(evidence.returns(&home), BTreeSet::from([mapped.clone()]));
        assert_eq!(evidence.conclude(start), Reachability::Open(vec![mapped.to_string()]));
    }

    #[test]
    fn on_one_network_nothing_needs_to_be_proved() {
        let start = Instant::now();
        assert_eq!(Evidence::new(false, start).conclude(start), Reachability::Local);
    }

    #[test]
    fn each_bad_state_names_a_remedy() {
        for state in [Reachability::Relayed, Reachability::Closed] {
            assert!(state.to_string().contains("--external"));
        }
    }
}
