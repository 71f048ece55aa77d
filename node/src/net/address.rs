//! Addresses as people type them.

use intellect_bootstrap::address;
use libp2p::{Multiaddr, multiaddr::Protocol};

/// An address of the network, parsed.
pub(crate) type Address = Multiaddr;

/// What is wrong with an address that somebody typed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AddressError {
    /// No address, or one that anybody could answer.
    #[error(transparent)]
    Entry(#[from] address::AddressError),
    /// Where a node listens, and no address.
    #[error("'{text}' is not a multiaddress ({cause}); it looks like /ip4/0.0.0.0/tcp/4001")]
    Malformed {
        /// The address as it was typed.
        text: String,
        /// What the parser says.
        cause: String,
    },
    /// Where a node listens, with the peer that is there.
    #[error("'{text}': leave /p2p/… at its end out, this program puts its own id there")]
    Peer {
        /// The address as it was typed.
        text: String,
    },
    /// Something that this program can neither dial nor listen on.
    #[error(
        "'{text}' names no transport that this node has: use /tcp/<port> or /udp/<port>/quic-v1 \
         after /ip4/…, /ip6/… or /dns/…"
    )]
    NoTransport {
        /// The address as it was typed.
        text: String,
    },
}

/// Parses where somebody else is reached: its transport, and last the peer that must answer.
pub(crate) fn parse_entry(text: &str) -> Result<Address, AddressError> {
    with_transport(address::entry(text.trim())?, text)
}

/// Parses where this node listens, or where others reach it: a transport.
pub(crate) fn parse_transport(text: &str) -> Result<Address, AddressError> {
    let address = text.trim().parse().map_err(|error: libp2p::multiaddr::Error| {
        AddressError::Malformed { text: text.to_owned(), cause: error.to_string() }
    })?;
    match address::peer(&address) {
        Some(_) => Err(AddressError::Peer { text: text.to_owned() }),
        None => with_transport(address, text),
    }
}

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
        parse_transport("/ip4/0.0.0.0/tcp/0").unwrap();
        parse_transport("/ip6/::/udp/0/quic-v1").unwrap();
        assert!(parse_transport("/ip4/0.0.0.0").is_err());
        let error = parse_transport("0.0.0.0:4001").unwrap_err().to_string();
        assert!(error.contains("/ip4/0.0.0.0/tcp/4001") && !error.contains("p2p"), "{error}");
        let error = parse_transport(&format!("/ip4/127.0.0.1/tcp/1/p2p/{PEER}")).unwrap_err();
        assert!(matches!(error, AddressError::Peer { .. }), "{error}");
    }
}
