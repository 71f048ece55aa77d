//! The ports at which a node listens: it takes those of its last start, since other peers know
//! them.
//!
//! A router's forwarding and the address lists of other peers name these ports, so a new port would
//! make both useless. If another program has taken one of them, the caller decides.

use std::{
    io::{self, ErrorKind},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket},
};

use intellect_bootstrap::{
    address,
    transport::{self, ListenError},
};
use libp2p::{Multiaddr, Swarm, multiaddr::Protocol, swarm::NetworkBehaviour};

use super::address::{Address, host};

/// A listen address as far as ports go. An address that begins with a name has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Port {
    /// The address to bind, often the unspecified one.
    host: IpAddr,
    /// Whether it is TCP; otherwise UDP, which QUIC uses.
    tcp: bool,
    /// The number of the port, 0 for any.
    number: u16,
}

impl Port {
    /// The port of a listen address that begins with an IP address and a transport.
    fn of(address: &Address) -> Option<Self> {
        let host = host(address)?;
        match address.iter().nth(1)? {
            Protocol::Tcp(number) => Some(Self { host, tcp: true, number }),
            Protocol::Udp(number) => Some(Self { host, tcp: false, number }),
            _ => None,
        }
    }

    /// Whether both use the same transport and version of IP. The hosts may differ: those of the
    /// last start are stored as unspecified ones.
    fn is_like(&self, other: &Self) -> bool {
        self.host.is_ipv4() == other.host.is_ipv4() && self.tcp == other.tcp
    }

    /// Whether a socket can be bound there now. Another program may still take the port before this
    /// node listens.
    fn is_free(&self) -> bool {
        let at = (self.host, self.number);
        let tried: io::Result<()> =
            if self.tcp { TcpListener::bind(at).map(drop) } else { UdpSocket::bind(at).map(drop) };
        // Other errors are reported when the node listens there.
        tried.map_or_else(|error| error.kind() != ErrorKind::AddrInUse, |()| true)
    }
}

/// Listens on all addresses. On a machine without IPv6 the unspecified IPv6 address, which is among
/// the defaults, may fail as long as there is another address.
pub(super) fn listen<B: NetworkBehaviour>(
    swarm: &mut Swarm<B>,
    addresses: &[Multiaddr],
) -> Result<(), ListenError> {
    let any_v6 =
        |address: &Multiaddr| address.iter().next() == Some(Protocol::Ip6(Ipv6Addr::UNSPECIFIED));
    let spare = !addresses.iter().all(any_v6);
    for address in addresses {
        match transport::listen(swarm, address) {
            Err(error @ ListenError::Refused { .. }) if spare && any_v6(address) => {
                tracing::info!(%error, "no IPv6");
            }
            Ok(_) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The port of a socket, as an address with an unspecified host; `None` for a relay.
pub(super) fn port(listening: &Address) -> Option<Address> {
    if address::is_relayed(listening) {
        return None;
    }
    let Port { host, tcp, number } = Port::of(listening)?;
    let any = match host {
        IpAddr::V4(_) => Multiaddr::from(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => Multiaddr::from(Ipv6Addr::UNSPECIFIED),
    };
    Some(if tcp {
        any.with(Protocol::Tcp(number))
    } else {
        any.with(Protocol::Udp(number)).with(Protocol::QuicV1)
    })
}

/// The addresses of `asked`, where port 0 is replaced by the like port of `last`. A port that was
/// typed stays, and so does port 0 where the last start had no such socket.
///
/// # Errors
/// The number of a port that another program uses by now.
pub(crate) fn at_ports(asked: &[Address], last: &[Address]) -> Result<Vec<Address>, u16> {
    let last: Vec<Port> = last.iter().filter_map(Port::of).collect();
    let again = |address: &Address| {
        let Some(asked) = Port::of(address).filter(|port| port.number == 0) else {
            return Ok(address.clone());
        };
        let Some(like) = last.iter().find(|port| port.is_like(&asked)) else {
            return Ok(address.clone());
        };
        if !(Port { number: like.number, ..asked }).is_free() {
            return Err(like.number);
        }
        let numbered = |part| match part {
            Protocol::Tcp(0) => Protocol::Tcp(like.number),
            Protocol::Udp(0) => Protocol::Udp(like.number),
            part => part,
        };
        Ok(address.iter().map(numbered).collect())
    };
    asked.iter().map(again).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: &str = "12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN";

    fn all(texts: &[&str]) -> Vec<Address> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn ports_of_the_last_start_are_taken_where_any_would_do() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let sockets = [
            &format!("/ip4/127.0.0.1/tcp/{free}"),
            "/ip4/10.0.0.5/udp/4003/quic-v1",
            &format!("/ip4/10.0.0.9/tcp/4001/p2p/{PEER}/p2p-circuit"),
            "/dns/example.org/tcp/1",
        ];
        let last: Vec<Address> = all(&sockets).iter().filter_map(port).collect();
        let udp = "/ip4/0.0.0.0/udp/4003/quic-v1";
        assert_eq!(last, all(&[&format!("/ip4/0.0.0.0/tcp/{free}"), udp]));
        let asked = all(&["/ip4/127.0.0.1/tcp/0", "/ip6/::1/tcp/0", "/ip4/127.0.0.1/tcp/9"]);
        let again =
            [&format!("/ip4/127.0.0.1/tcp/{free}"), "/ip6/::1/tcp/0", "/ip4/127.0.0.1/tcp/9"];
        assert_eq!(at_ports(&asked, &last), Ok(all(&again)));
        let _taken = TcpListener::bind(("127.0.0.1", free)).unwrap();
        assert_eq!(at_ports(&asked, &last), Err(free));
        assert_eq!(at_ports(&asked, &[]), Ok(asked.clone()));
    }
}
