//! Addresses: parsing what a person types, and choosing which addresses of a peer to dial.
//!
//! A peer announces every interface that it listens on. From the internet its private and loopback
//! addresses lead nowhere, or to another machine; from the same machine all of them may work.
//! [`Scope`] orders addresses by how far they reach, and the rule is one comparison: keep an
//! address that reaches at least as far as the address at which the peer was seen.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use libp2p::{Multiaddr, PeerId, multiaddr::Protocol};

/// How far an address reaches, nearest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Reachable from this machine only.
    Loopback,
    /// A private network (RFC 1918, link-local, unique local).
    Private,
    /// The internet; a name counts as public, since only the resolver knows better.
    Public,
}

/// Why an address of an entry point cannot be used. The person who typed it is at fault.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    /// The text does not parse as a multiaddress.
    #[error(
        "'{text}' is not a multiaddress ({cause}); it looks like \
         /ip4/203.0.113.7/tcp/4001/p2p/12D3Koo…"
    )]
    Malformed {
        /// The text that the person typed.
        text: String,
        /// The error of the multiaddress parser.
        cause: String,
    },
    /// The peer id at the end of the address is too short.
    #[error(
        "'{text}' is cut off: the name at its end has {PEER_CHARACTERS} characters, this one {found}; copy the \
         whole address"
    )]
    Cut {
        /// The text that the person typed.
        text: String,
        /// How many characters are left of the name.
        found: usize,
    },
    /// The address does not name the peer that is expected there.
    #[error(
        "'{text}' does not end in /p2p/<peer id>, so nobody could check who answers; copy the \
         whole address that the bootstrap printed at its start"
    )]
    NoPeer {
        /// The text that the person typed.
        text: String,
    },
}

/// Parses the address of an entry point: it must end in `/p2p/<peer id>`.
///
/// # Errors
/// See [`AddressError`]; each says what to type instead.
pub fn entry(text: &str) -> Result<Multiaddr, AddressError> {
    let address: Multiaddr =
        text.parse().map_err(|error: libp2p::multiaddr::Error| match characters_left(text) {
            Some(found) => AddressError::Cut { text: text.into(), found },
            None => AddressError::Malformed { text: text.into(), cause: error.to_string() },
        })?;
    match peer(&address) {
        Some(_) => Ok(address),
        None => Err(AddressError::NoPeer { text: text.into() }),
    }
}

/// How many characters of the peer id at the end of the text are left, if others are missing.
fn characters_left(text: &str) -> Option<usize> {
    let (_, name) = text.rsplit_once("/p2p/")?;
    let is_beginning = PEER_BEGINS.starts_with(name) || name.starts_with(PEER_BEGINS);
    (is_beginning && name.len() < PEER_CHARACTERS).then_some(name.len())
}

/// The id of an ed25519 key is written with so many characters, and begins with these.
const PEER_CHARACTERS: usize = 52;
const PEER_BEGINS: &str = "12D3KooW";

/// The peer that the last component of an address names.
#[must_use]
pub fn peer(address: &Multiaddr) -> Option<PeerId> {
    match address.iter().last()? {
        Protocol::P2p(peer) => Some(peer),
        _ => None,
    }
}

/// The address with `/p2p/<peer>` at its end, unless it names a peer there already.
#[must_use]
pub fn with_peer(address: Multiaddr, peer_id: PeerId) -> Multiaddr {
    address.with_p2p(peer_id).unwrap_or_else(|address| address)
}

/// Whether bytes to this address pass through a relay.
#[must_use]
pub fn is_relayed(address: &Multiaddr) -> bool {
    address.iter().any(|part| part == Protocol::P2pCircuit)
}

/// Whether this is a TCP address, at which the end of a killed process is noticed at once.
#[must_use]
pub fn is_tcp(address: &Multiaddr) -> bool {
    address.iter().any(|part| matches!(part, Protocol::Tcp(_)))
}

/// The name that has to be looked up to dial this address, if it begins with one.
#[must_use]
pub fn name(address: &Multiaddr) -> Option<String> {
    match address.iter().next()? {
        Protocol::Dns(name)
        | Protocol::Dns4(name)
        | Protocol::Dns6(name)
        | Protocol::Dnsaddr(name) => Some(name.into_owned()),
        _ => None,
    }
}

/// The IP address with which an address begins. A name gives none, because nothing here may wait
/// for a resolver.
pub(crate) fn ip(address: &Multiaddr) -> Option<IpAddr> {
    match address.iter().next()? {
        Protocol::Ip4(ip) => Some(ip.into()),
        Protocol::Ip6(ip) => Some(ip.into()),
        _ => None,
    }
}

/// How far an address reaches; `None` where it does not begin with a host.
#[must_use]
pub fn scope(address: &Multiaddr) -> Option<Scope> {
    ip(address).map(scope_of).or_else(|| name(address).map(|_| Scope::Public))
}

/// How far an IP address reaches; an IPv4 address mapped to IPv6 counts as IPv4.
#[must_use]
pub fn scope_of(ip: IpAddr) -> Scope {
    match ip.to_canonical() {
        IpAddr::V4(ip) => scope_v4(ip),
        IpAddr::V6(ip) => scope_v6(ip),
    }
}

/// Whether a program that saw a peer at `seen` can hope to reach it at `address`.
#[must_use]
pub fn plausible(address: &Multiaddr, seen: &Multiaddr) -> bool {
    match (scope(address), scope(seen)) {
        (Some(reach), Some(vantage)) => reach >= vantage,
        (Some(_), None) => true,
        (None, _) => false,
    }
}

/// How far an IPv4 address reaches. `0.0.0.0` stands for every interface, and counts as loopback:
/// nobody else can dial it.
fn scope_v4(ip: Ipv4Addr) -> Scope {
    if ip.is_loopback() || ip.is_unspecified() {
        return Scope::Loopback;
    }
    // 100.64/10 is the carrier's side of a carrier-grade NAT (RFC 6598).
    let carrier = ip.octets()[0] == 100 && (64..128).contains(&ip.octets()[1]);
    if ip.is_private() || ip.is_link_local() || carrier { Scope::Private } else { Scope::Public }
}

/// The same for IPv6, after [`scope_of`] has turned mapped addresses into IPv4.
fn scope_v6(ip: Ipv6Addr) -> Scope {
    if ip.is_loopback() || ip.is_unspecified() {
        return Scope::Loopback;
    }
    let private = ip.is_unique_local() || ip.is_unicast_link_local();
    if private { Scope::Private } else { Scope::Public }
}

#[cfg(test)]
mod tests {
    use libp2p::identity::Keypair;

    use super::*;

    fn at(text: &str) -> Multiaddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_entry_without_a_peer_is_refused_with_the_remedy() {
        let error = entry("/ip4/127.0.0.1/tcp/4001").unwrap_err().to_string();
        assert!(error.contains("/p2p/<peer id>") && error.contains("copy"), "{error}");
        let error = entry("example.org:4001").unwrap_err().to_string();
        assert!(error.contains("not a multiaddress") && error.contains("/ip4/"), "{error}");
        let whole = format!(
            "/ip4/127.0.0.1/tcp/4001/p2p/{}",
            Keypair::generate_ed25519().public().to_peer_id()
        );
        for (cut, left) in [(28, "this one 24"), (51, "this one 1;"), (52, "this one 0;")] {
            let error = entry(&whole[..whole.len() - cut]).unwrap_err().to_string();
            assert!(error.contains("52 characters") && error.contains(left), "{error}");
        }
        let error = entry("/ip4/127.0.0.1/tcp/1/p2p/nobody").unwrap_err();
        assert!(matches!(error, AddressError::Malformed { .. }), "{error}");
        assert_eq!(entry(&whole).unwrap().to_string(), whole);
    }

    #[test]
    fn an_address_is_plausible_when_it_reaches_as_far_as_the_vantage_point() {
        let loopback = at("/ip4/127.0.0.1/tcp/1");
        let private = at("/ip4/192.168.1.2/tcp/1");
        let carrier = at("/ip4/100.64.0.1/tcp/1");
        let public = at("/ip4/203.0.113.7/udp/1/quic-v1");
        let name = at("/dns/example.org/tcp/1");
        for address in [&loopback, &private, &carrier, &public, &name] {
            assert!(plausible(address, &loopback), "{address}");
        }
        assert!(!plausible(&loopback, &private) && plausible(&carrier, &private));
        assert!(!plausible(&private, &public) && !plausible(&carrier, &public));
        assert!(plausible(&name, &public));
        assert!(!plausible(&at("/tcp/1"), &loopback));
        assert_eq!(scope(&at("/ip6/::ffff:10.0.0.1/tcp/1")), Some(Scope::Private));
        assert_eq!(scope(&at("/ip6/fe80::1/tcp/1")), Some(Scope::Private));
        assert_eq!(scope(&at("/ip6/2001:db8::1/tcp/1")), Some(Scope::Public));
    }

    #[test]
    fn a_circuit_is_seen_as_relayed_and_a_peer_is_appended_once() {
        let relay = PeerId::random();
        let circuit = at(&format!("/ip4/203.0.113.7/tcp/1/p2p/{relay}/p2p-circuit"));
        assert!(is_relayed(&circuit) && is_tcp(&circuit));
        assert!(!is_tcp(&at("/ip4/1.2.3.4/udp/1/quic-v1")));
        let whole = with_peer(with_peer(at("/ip4/1.2.3.4/tcp/1"), relay), relay);
        assert_eq!(whole, at(&format!("/ip4/1.2.3.4/tcp/1/p2p/{relay}")));
    }
}
