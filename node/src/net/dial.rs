//! How a peer is dialled: for messages, and for a connection of its own that carries bulk.
//!
//! A connection for bulk is tried over TCP first, where a killed process is noticed at once, then
//! over QUIC; where neither can be had (two peers behind routers that only a punched path joins)
//! the direct connection that is there carries the stream too. A relay never does.
//!
//! On one machine or network a port of its own is taken: both sides reusing their listening ports
//! would meet in a TCP simultaneous open, in which both are the dialler.

use std::collections::VecDeque;

use intellect_bootstrap::address::{self, Scope};
use libp2p::{
    Multiaddr, PeerId,
    swarm::dial_opts::{DialOpts, PeerCondition},
};

use super::{
    inbox::Responder,
    interface::{ByteStream, StreamError},
};

/// A connection for messages, to the addresses that are known here and those that libp2p knows.
pub(super) fn for_messages(
    peer: PeerId,
    addresses: Vec<Multiaddr>,
    condition: PeerCondition,
) -> DialOpts {
    let options = DialOpts::peer_id(peer).condition(condition);
    if addresses.is_empty() {
        return options.build();
    }
    let near = addresses.iter().all(|a| address::scope(a).is_none_or(|s| s < Scope::Public));
    let options = options.addresses(addresses).extend_addresses_through_behaviour();
    if near { options.allocate_new_port().build() } else { options.build() }
}

/// A ring stream that somebody waits for, and where a connection for it is still to be tried.
pub(super) struct RingDial {
    pub(super) peer: PeerId,
    ways: VecDeque<Vec<Multiaddr>>,
    pub(super) reply: Responder<ByteStream, StreamError>,
}

impl RingDial {
    /// Nothing has been tried yet; by TCP a peer is at the addresses `tcp`, else at `rest`.
    pub(super) fn new(
        peer: PeerId,
        (tcp, rest): (Vec<Multiaddr>, Vec<Multiaddr>),
        reply: Responder<ByteStream, StreamError>,
    ) -> Self {
        let ways = [tcp, rest].into_iter().filter(|addresses| !addresses.is_empty()).collect();
        Self { peer, ways, reply }
    }

    /// The next dial to try; none when only the connection for messages is left.
    pub(super) fn next(&mut self) -> Option<DialOpts> {
        let addresses = self.ways.pop_front()?;
        let options = DialOpts::peer_id(self.peer).condition(PeerCondition::Always);
        Some(options.addresses(addresses).allocate_new_port().build())
    }
}
