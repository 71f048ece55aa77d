//! How a peer is dialled: for messages, and for a connection of its own that carries bulk.
//!
//! A connection for bulk is tried over TCP first, where a killed process is noticed at once, then
//! over QUIC; where neither can be had (two peers behind routers that only a punched path joins)
//! the direct connection that is there carries the stream too. A relay never does.
//!
//! On one machine or network a port of its own is taken: both sides reusing their listening ports
//! would meet in a TCP simultaneous open, in which both are the dialler.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use intellect_bootstrap::address::{self, Scope};
use libp2p::{
    Multiaddr, PeerId,
    swarm::dial_opts::{DialOpts, PeerCondition},
};
use tokio::time::Instant;

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

/// How a ring reaches its neighbour (R41).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// On a connection of its own.
    Own,
    /// On the connection that is there, at once; and the peer is dialled meanwhile, for rings to come.
    Tried,
    /// On the connection that is there.
    Shared,
}

/// Which connected peers a dial for a ring reaches. A router that knows nothing of a new flow drops its packets,
/// and a dial that waits for them outlasts the ring; so no ring waits for a dial that has not worked before.
#[derive(Debug, Default)]
pub(super) struct Dialled {
    /// Those that the last dial reached, and since when the others have not been tried.
    peers: HashMap<PeerId, Option<Instant>>,
}

/// Guess: longer than a dial in vain is worth, shorter than an evening.
const TRY_AGAIN: Duration = Duration::from_secs(600);

impl Dialled {
    /// How the next ring reaches a peer. Until [`Self::succeeded`] it counts as one that is not reached.
    pub(super) fn way(&mut self, peer: PeerId, now: Instant) -> Way {
        let way = match self.peers.get(&peer) {
            Some(None) => Way::Own,
            Some(Some(tried)) if now < *tried + TRY_AGAIN => return Way::Shared,
            Some(Some(_)) | None => Way::Tried,
        };
        self.peers.insert(peer, Some(now));
        way
    }

    /// A dial for a ring has reached it.
    pub(super) fn succeeded(&mut self, peer: PeerId) {
        self.peers.insert(peer, None);
    }

    /// It is connected no more; whatever it is next may be reached in another way.
    pub(super) fn forget(&mut self, peer: &PeerId) {
        self.peers.remove(peer);
    }
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

    /// A dial that no ring waits for.
    pub(super) fn trial(peer: PeerId, (tcp, rest): (Vec<Multiaddr>, Vec<Multiaddr>)) -> DialOpts {
        let options = DialOpts::peer_id(peer).condition(PeerCondition::Always);
        options.addresses([tcp, rest].concat()).allocate_new_port().build()
    }

    /// The next dial to try; none when only the connection for messages is left.
    pub(super) fn next(&mut self) -> Option<DialOpts> {
        let addresses = self.ways.pop_front()?;
        let options = DialOpts::peer_id(self.peer).condition(PeerCondition::Always);
        Some(options.addresses(addresses).allocate_new_port().build())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r41_no_ring_waits_for_a_dial_that_has_not_worked_before() {
        let (mut reached, peer, start) = (Dialled::default(), PeerId::random(), Instant::now());
        assert_eq!(reached.way(peer, start), Way::Tried);
        assert_eq!(reached.way(peer, start + TRY_AGAIN - Duration::from_secs(1)), Way::Shared);
        assert_eq!(reached.way(peer, start + TRY_AGAIN), Way::Tried);
        reached.succeeded(peer);
        assert_eq!(reached.way(peer, start + TRY_AGAIN), Way::Own);
        assert_eq!(reached.way(peer, start + TRY_AGAIN), Way::Shared, "a dial is under way");
        reached.forget(&peer);
        assert_eq!(reached.way(peer, start + TRY_AGAIN), Way::Tried);
    }
}
