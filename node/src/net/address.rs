//! Multiaddresses as people type them: parsing, and errors with an example.
//!
//! Parsing is strict, because a wrong address fails only minutes later as a peer that cannot be
//! reached. Where the text looks like a host and a port, the error shows the multiaddress that was
//! probably meant.

use std::net::{IpAddr, SocketAddr};

use intellect_bootstrap::address;
use libp2p::{Multiaddr, multiaddr::Protocol};

/// A parsed address of the network.
pub(crate) type Address = Multiaddr;

/// What is wrong with an address that somebody typed. That person is at fault, and the text says
/// what to type instead. A line of the file `peers` or `ports` that is wrong in such a way is
/// ignored.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AddressError {
    /// No address, or one without the peer id that must answer.
    #[error(transparent)]
    Entry(#[from] address::AddressError),
    /// An address to listen on or to be reached at that does not parse; `example` may have been
    /// meant.
    #[error("'{text}' is not a multiaddress ({cause}); it looks like {example}")]
    Malformed { text: String, cause: String, example: String },
    /// An address to be reached at that nobody can dial: an unspecified host, a multicast address,
    /// or port 0. Others would dial it in turn, and reach nobody or themselves.
    #[error(
        "'{text}' is no address that others can dial: name the one of your router or server, and \
         its port, as in /ip4/203.0.113.7/tcp/4001"
    )]
    Nowhere { text: String },
    /// An address to listen on that ends in a peer id.
    #[error("'{text}': leave /p2p/… at its end out, this program puts its own id there")]
    Peer { text: String },
    /// Something that this program can neither dial nor listen on.
    #[error(
        "'{text}' names no transport that this node has: use /tcp/<port> or /udp/<port>/quic-v1 \
         after /ip4/…, /ip6/… or /dns/…"
    )]
    NoTransport { text: String },
}

/// Parses the address of another peer: a transport, and last the id that must answer.
pub(crate) fn parse_entry(text: &str) -> Result<Address, AddressError> {
    with_transport(address::entry(text.trim())?, text)
}

/// Parses an address to listen on, which ends in a transport.
pub(crate) fn parse_listen(text: &str) -> Result<Address, AddressError> {
    parse_transport(text, "/ip4/0.0.0.0/tcp/4001")
}

/// Parses an address at which others reach this node: a host, a port and a transport. A private one
/// is valid, since a run may stay within one network.
pub(crate) fn parse_external(text: &str) -> Result<Address, AddressError> {
    let address = parse_transport(text, "/ip4/203.0.113.7/tcp/4001")?;
    let leads_nowhere = |part| match part {
        Protocol::Ip4(ip) => ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast(),
        Protocol::Ip6(ip) => ip.is_unspecified() || ip.is_multicast(),
        Protocol::Tcp(port) | Protocol::Udp(port) => port == 0,
        _ => false,
    };
    if address.iter().any(leads_nowhere) {
        return Err(AddressError::Nowhere { text: text.to_owned() });
    }
    Ok(address)
}

/// The host of an address, if it is a number.
pub(crate) fn host(address: &Address) -> Option<IpAddr> {
    match address.iter().next()? {
        Protocol::Ip4(ip) => Some(ip.into()),
        Protocol::Ip6(ip) => Some(ip.into()),
        _ => None,
    }
}

/// Whether two addresses differ only in the `/p2p/…` at their end.
pub(super) fn same(one: &Address, other: &Address) -> bool {
    let bare = |address: &Address| {
        let mut address = address.clone();
        if address::peer(&address).is_some() {
            address.pop();
        }
        address
    };
    bare(one) == bare(other)
}

/// Parses an address of this machine, which names no peer: the program appends its own id.
fn parse_transport(text: &str, example: &str) -> Result<Address, AddressError> {
    let address = text.trim().parse().map_err(|error: libp2p::multiaddr::Error| {
        let example = meant(text.trim()).unwrap_or_else(|| example.to_owned());
        AddressError::Malformed { text: text.to_owned(), cause: error.to_string(), example }
    })?;
    match address::peer(&address) {
        Some(_) => Err(AddressError::Peer { text: text.to_owned() }),
        None => with_transport(address, text),
    }
}

/// The multiaddress for text of the form `host` or `host:port`.
fn meant(text: &str) -> Option<String> {
    /// The port of the example where the text has none.
    const PORT: u16 = 4001;
    let (host, port) = match text.parse::<SocketAddr>() {
        Ok(socket) => (socket.ip().to_string(), socket.port()),
        Err(_) => match text.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') => (host.to_owned(), port.parse().ok()?),
            _ => (text.to_owned(), PORT),
        },
    };
    let name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    let kind = match host.parse() {
        Ok(IpAddr::V4(_)) => "ip4",
        Ok(IpAddr::V6(_)) => "ip6",
        Err(_) if host.contains(char::is_alphabetic) && host.chars().all(name) => "dns",
        Err(_) => return None,
    };
    Some(format!("/{kind}/{host}/tcp/{port}"))
}

/// The address, if it names a host and a transport that a node has. libp2p would accept others and
/// never connect.
fn with_transport(address: Address, text: &str) -> Result<Address, AddressError> {
    let has_host = address::scope(&address).is_some();
    let has_port = address
        .iter()
        .any(|part| matches!(part, Protocol::Tcp(_) | Protocol::QuicV1 | Protocol::Dnsaddr(_)));
    if has_host && has_port {
        return Ok(address);
    }
    Err(AddressError::NoTransport { text: text.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: &str = "12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN";

    #[test]
    fn an_entry_needs_transport_and_peer() {
        let good = format!("/ip4/203.0.113.7/tcp/4001/p2p/{PEER}");
        assert_eq!(parse_entry(&format!(" {good}\n")).unwrap().to_string(), good);
        parse_entry(&format!("/dns/run.example/udp/4001/quic-v1/p2p/{PEER}")).unwrap();

        let error = parse_entry("/ip4/203.0.113.7/tcp/4001").unwrap_err();
        assert!(error.to_string().contains("/p2p/"), "{error}");
        assert!(matches!(parse_entry("203.0.113.7:4001"), Err(AddressError::Entry(_))));
        for text in [format!("/p2p/{PEER}"), format!("/ip4/203.0.113.7/udp/4001/p2p/{PEER}")] {
            assert!(matches!(parse_entry(&text), Err(AddressError::NoTransport { .. })), "{text}");
        }
    }

    #[test]
    fn a_listen_address_needs_no_peer() {
        parse_listen("/ip4/0.0.0.0/tcp/0").unwrap();
        parse_listen("/ip6/::/udp/0/quic-v1").unwrap();
        assert!(parse_listen("/ip4/0.0.0.0").is_err());
        let error = parse_listen("0.0.0.0:4001").unwrap_err().to_string();
        assert!(error.contains("/ip4/0.0.0.0/tcp/4001") && !error.contains("p2p"), "{error}");
        let error = parse_listen(&format!("/ip4/127.0.0.1/tcp/1/p2p/{PEER}")).unwrap_err();
        assert!(matches!(error, AddressError::Peer { .. }), "{error}");
    }

    /// People type 0.0.0.0, at which a node can listen, but which nobody can dial.
    #[test]
    fn an_external_address_is_one_that_others_can_dial() {
        for good in ["/ip4/203.0.113.7/tcp/4001", "/dns/home.example/udp/4001/quic-v1"] {
            parse_external(good).unwrap();
        }
        for nowhere in [
            "/ip4/0.0.0.0/tcp/4001",
            "/ip6/::/udp/4001/quic-v1",
            "/ip4/203.0.113.7/tcp/0",
            "/ip4/224.0.0.1/tcp/1",
        ] {
            let error = parse_external(nowhere).unwrap_err();
            assert!(matches!(error, AddressError::Nowhere { .. }), "{nowhere}: {error}");
        }
        for (typed, example) in [
            ("1.2.3.4", "/ip4/1.2.3.4/tcp/4001"),
            ("1.2.3.4:5001", "/ip4/1.2.3.4/tcp/5001"),
            ("[2001:db8::1]:5001", "/ip6/2001:db8::1/tcp/5001"),
            ("2001:db8::1", "/ip6/2001:db8::1/tcp/4001"),
            ("home.example:5001", "/dns/home.example/tcp/5001"),
            ("4001", "/ip4/203.0.113.7/tcp/4001"),
        ] {
            let error = parse_external(typed).unwrap_err().to_string();
            assert!(error.ends_with(&format!("looks like {example}")), "{error}");
        }
    }
}
