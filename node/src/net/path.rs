//! Steps towards connections with other peers, and their results. Each is reported when it happens, and
//! again only when its result changes.
//!
//! Nothing is decided by them: they show their reader at which step connecting fails.

use std::{collections::BTreeMap, fmt};

use intellect_bootstrap::{
    address::{self, Scope},
    discovery::Gateway,
};
use libp2p::{Multiaddr, PeerId};
use tokio::time::Instant;

use super::{address::host, limits::bucket::Bucket};

/// One step. `Display` is a sentence for the owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Path {
    /// Hole punching was tried between the routers of both, while a relay carried the messages. An error says
    /// why there is no direct connection.
    Punched { peer: PeerId, result: Result<(), String> },
    /// The router forwards a port to this node, at this address of its own. An error says why it no longer
    /// does.
    Mapped { address: Multiaddr, result: Result<(), String> },
    /// The router forwards no port.
    Gateway(Gateway),
    /// A relay accepts messages for this node.
    Reserved { relay: PeerId },
    /// An entry point dialled this node back at an address. An error says why the dial failed.
    Tested { address: Multiaddr, result: Result<(), String> },
    /// A peer reported the address from which this node's connections come, which proves nothing.
    Observed { address: Multiaddr, by: PeerId },
}

impl Path {
    /// The parts of the step in the events file.
    pub(crate) fn parts(&self) -> Parts {
        let of = |step, who: Option<&PeerId>, address: Option<&Multiaddr>, error| Parts {
            step,
            who: who.map(PeerId::to_string),
            address: address.map(Multiaddr::to_string),
            error,
        };
        match self {
            Self::Punched { peer, result } => of("punched", Some(peer), None, result.clone().err()),
            Self::Mapped { address, result } => {
                of("mapped", None, Some(address), result.clone().err())
            }
            Self::Gateway(gateway) => of("gateway", None, None, Some(gateway.to_string())),
            Self::Reserved { relay } => of("reserved", Some(relay), None, None),
            Self::Tested { address, result } => {
                of("tested", None, Some(address), result.clone().err())
            }
            Self::Observed { address, by } => of("observed", Some(by), Some(address), None),
        }
    }
}

/// A step as the events file has it.
#[derive(Debug)]
pub(crate) struct Parts {
    /// The name of the step in the events file.
    pub(crate) step: &'static str,
    /// The peer at the other end, as libp2p prints it.
    pub(crate) who: Option<String>,
    /// The address that the step is about.
    pub(crate) address: Option<String>,
    /// The reason where the step has failed.
    pub(crate) error: Option<String>,
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Punched { peer, result: Ok(()) } => {
                write!(f, "peer {} is reached directly, by a punched hole", short(peer))
            }
            Self::Punched { peer, result: Err(why) } => {
                let peer = short(peer);
                write!(f, "peer {peer} is reached through a relay only, no hole was punched: {why}")
            }
            Self::Mapped { address, result: Ok(()) } => {
                write!(f, "the router forwards a port to this node: {address}")
            }
            Self::Mapped { address, result: Err(why) } => {
                write!(f, "the router forwards {address} to this node no longer: {why}")
            }
            Self::Gateway(gateway) => gateway.fmt(f),
            Self::Reserved { relay } => {
                write!(f, "others reach this node through the relay {}", short(relay))
            }
            Self::Tested { address, result: Ok(()) } => {
                write!(f, "an entry point has dialled this node at {address}: others can too")
            }
            Self::Tested { address, result: Err(_) } => {
                write!(f, "an entry point cannot dial this node at {address}")
            }
            Self::Observed { address, by } => {
                write!(f, "{} sees this node at {address}", short(by))
            }
        }
    }
}

/// The end of a peer id, as sentences show it.
fn short(peer: &PeerId) -> String {
    let name = peer.to_string();
    name[name.len().saturating_sub(6)..].to_owned()
}

/// The steps that were reported, so that none is reported twice.
#[derive(Debug)]
pub(super) struct Trail {
    /// Whether an entry point is on the internet; otherwise only a forwarded port is news.
    far: bool,
    /// For each step and its subject the error that was reported, or `None` for a success.
    reported: BTreeMap<(&'static str, String), Option<String>>,
    /// Bounds the sentences, however many peers are punched or seen.
    rate: Bucket,
}

impl Trail {
    /// `far`: an entry point is on the internet. Where none is, only a forwarded port is news.
    pub(super) fn new(far: bool, now: Instant) -> Self {
        let rate = Bucket::new(PER_SECOND, BURST, now);
        Self { far, reported: BTreeMap::new(), rate }
    }

    /// Whether this is news. A step about the same peer or address is news only if its result differs.
    pub(super) fn is_news(&mut self, path: &Path, now: Instant) -> bool {
        let near = match path {
            Path::Mapped { .. } => false,
            _ if !self.far => true,
            Path::Tested { address, .. } | Path::Observed { address, .. } => {
                !is_public(address) || address::is_relayed(address)
            }
            Path::Punched { .. } | Path::Gateway(_) | Path::Reserved { .. } => false,
        };
        let Parts { step, who, address, error } = path.parts();
        let about = match path {
            // Behind some routers each peer sees another port, and none of them can be dialled.
            Path::Observed { address, .. } | Path::Tested { address, result: Err(_) } => {
                host(address).map_or_else(String::new, |ip| ip.to_string())
            }
            _ => who.or(address).unwrap_or_default(),
        };
        let key = (step, about);
        let known = self.reported.get(&key).is_some_and(|known| known.is_some() == error.is_some());
        if near || known || !self.rate.take(now) {
            return false;
        }
        if self.reported.len() >= REPORTED_MAX {
            self.reported.clear();
        }
        self.reported.insert(key, error);
        true
    }
}

/// Whether an address is on the internet.
fn is_public(address: &Multiaddr) -> bool {
    address::scope(address) == Some(Scope::Public)
}

/// In a run of hundreds of peers each is punched once, most of them just after the start.
const PER_SECOND: u32 = 1;
const BURST: u32 = 64;

/// Steps that are remembered, some hundred bytes each; at the limit all are forgotten.
const REPORTED_MAX: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    fn observed(address: &str) -> Path {
        Path::Observed { address: address.parse().unwrap(), by: PeerId::random() }
    }

    #[test]
    fn a_step_is_news_again_only_with_another_result() {
        let now = Instant::now();
        let (mut trail, peer) = (Trail::new(true, now), PeerId::random());
        let punched = |result: Result<(), &str>| Path::Punched {
            peer,
            result: result.map_err(str::to_owned),
        };
        assert!(trail.is_news(&punched(Err("no answer")), now));
        assert!(!trail.is_news(&punched(Err("another reason")), now));
        assert!(trail.is_news(&punched(Ok(())), now));
        assert!(!trail.is_news(&punched(Ok(())), now));
        assert!(trail.is_news(&punched(Err("no answer")), now));
        let other = Path::Punched { peer: PeerId::random(), result: Ok(()) };
        assert!(trail.is_news(&other, now));
    }

    #[test]
    fn private_addresses_and_changed_ports_are_no_news() {
        let now = Instant::now();
        let mut trail = Trail::new(true, now);
        assert!(!trail.is_news(&observed("/ip4/192.168.1.2/tcp/4001"), now));
        assert!(trail.is_news(&observed("/ip4/203.0.113.7/tcp/4001"), now));
        assert!(!trail.is_news(&observed("/ip4/203.0.113.7/tcp/50123"), now), "a port alone");
        assert!(trail.is_news(&observed("/ip4/203.0.113.8/tcp/4001"), now));
        let mut near = Trail::new(false, now);
        assert!(!near.is_news(&observed("/ip4/203.0.113.7/tcp/4001"), now));
        let tested = |address: &str| Path::Tested {
            address: address.parse().unwrap(),
            result: Err("no answer".to_owned()),
        };
        assert!(trail.is_news(&tested("/ip4/203.0.113.7/tcp/4001"), now));
        assert!(!trail.is_news(&tested("/ip4/203.0.113.7/tcp/4002"), now), "a port alone");
        let circuit = format!("/ip4/203.0.113.9/tcp/1/p2p/{}/p2p-circuit", PeerId::random());
        assert!(!trail.is_news(&tested(&circuit), now), "a relay is dialled by itself");
    }

    /// Made-up keys and addresses fill neither the screen nor the memory.
    #[test]
    fn a_flood_of_steps_is_bounded() {
        let now = Instant::now();
        let mut trail = Trail::new(true, now);
        let news = (0..10_000_u32).filter(|number| {
            let ip = std::net::Ipv4Addr::from(0x0900_0000 + number);
            trail.is_news(&observed(&format!("/ip4/{ip}/tcp/1")), now)
        });
        assert_eq!(news.count(), BURST as usize);
        assert!(trail.reported.len() <= REPORTED_MAX);
    }

    #[test]
    fn each_step_is_a_sentence() {
        let (peer, address) = (PeerId::random(), "/ip4/203.0.113.7/tcp/4001".parse().unwrap());
        let name = short(&peer);
        let failed = Path::Tested { address, result: Err("no answer".to_owned()) };
        for (path, words) in [
            (Path::Punched { peer, result: Ok(()) }, format!("peer {name} is reached directly")),
            (Path::Reserved { relay: peer }, format!("through the relay {name}")),
            (Path::Gateway(Gateway::Nested), "another one stands before it".to_owned()),
            (failed, "cannot dial this node at /ip4/203.0.113.7/tcp/4001".to_owned()),
        ] {
            assert!(path.to_string().contains(&words), "{path}");
        }
    }
}
