//! How a peer is dialled: for messages, and for a connection of its own that carries bulk.
//!
//! A connection for bulk is tried over TCP first, where a killed process is noticed at once, then over
//! QUIC. Where both fail (two peers behind routers that only a punched hole joins) the existing direct
//! connection carries the stream too. A relay never does.
//!
//! The first handshake decides a dial, also one with another peer. So a dial leaves out the addresses at which this node
//! listens: containers have the same ones on many machines.
//!
//! On one machine or network a dial uses a port of its own: if both sides reused their listening ports,
//! they would meet in a TCP simultaneous open, in which both are the dialler.

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
    address::same,
    inbox::Responder,
    interface::{ByteStream, StreamError},
};

/// A dial of ours that is under way. Kademlia dials too, and how its dials end says nothing about
/// ours, which try other addresses at other times.
pub(super) enum Dial {
    /// For messages. If it fails, the next one waits longer.
    Messages,
    /// For the stream that a ring waits for.
    Ring(RingDial),
    /// It only tests whether rings can have a connection of their own.
    Trial,
}

/// Whether a peer is known at addresses of this machine or network only.
pub(super) fn is_near(known: &[Multiaddr]) -> bool {
    let is_near = |a: &Multiaddr| address::scope(a).is_none_or(|s| s < Scope::Public);
    !known.is_empty() && known.iter().all(is_near)
}

/// A dial for messages to these addresses.
pub(super) fn for_messages(
    peer: PeerId,
    addresses: Vec<Multiaddr>,
    is_near: bool,
    condition: PeerCondition,
) -> DialOpts {
    let options = DialOpts::peer_id(peer).condition(condition).addresses(addresses);
    if is_near { options.allocate_new_port().build() } else { options.build() }
}

/// The addresses of a peer that are not in `not`. If there is no other, all of them are dialled, and
/// the failure says what is wrong.
pub(super) fn elsewhere<'a>(
    addresses: Vec<Multiaddr>,
    not: impl Iterator<Item = &'a Multiaddr>,
) -> Vec<Multiaddr> {
    // The addresses of two peers at one relay differ only in the peer at their end.
    let not: Vec<_> = not.filter(|not| !address::is_relayed(not)).collect();
    let is_out = |address: &Multiaddr| not.iter().any(|not| same(not, address));
    let (out, others): (Vec<_>, Vec<_>) = addresses.into_iter().partition(is_out);
    if others.is_empty() { out } else { others }
}

/// How a ring reaches its neighbour (R41).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// On a connection of its own, because the last dial for a ring succeeded.
    Own,
    /// At once on the existing connection; meanwhile the peer is dialled for later rings.
    Tried,
    /// On the existing connection for messages.
    Shared,
}

/// Which connected peers a dial for a ring reaches. A router may drop the packets of a new flow, and a dial
/// that waits for them takes longer than the ring; so no ring waits for a dial that has not worked before.
#[derive(Debug, Default)]
pub(super) struct Dialled {
    /// `None` where the last dial succeeded, else when the peer was last tried.
    peers: HashMap<PeerId, Option<Instant>>,
}

/// Guess: far longer than a failing dial takes, shorter than an evening.
const TRY_AGAIN: Duration = Duration::from_secs(600);

impl Dialled {
    /// How the next ring reaches a peer. Until [`Self::succeeded`] the peer counts as not reached.
    pub(super) fn way(&mut self, peer: PeerId, now: Instant) -> Way {
        let way = match self.peers.get(&peer) {
            Some(None) => Way::Own,
            Some(Some(tried)) if now < *tried + TRY_AGAIN => return Way::Shared,
            Some(Some(_)) | None => Way::Tried,
        };
        self.peers.insert(peer, Some(now));
        way
    }

    /// A dial for a ring has reached the peer.
    pub(super) fn succeeded(&mut self, peer: PeerId) {
        self.peers.insert(peer, None);
    }

    /// The peer has disconnected; its next addresses may be reachable in another way.
    pub(super) fn forget(&mut self, peer: &PeerId) {
        self.peers.remove(peer);
    }
}

/// A ring stream that a ring waits for, with the addresses that are still to be tried.
pub(super) struct RingDial {
    /// The peer, which must have a direct connection already.
    pub(super) peer: PeerId,
    /// Addresses that are still to be tried, one entry for each dial: TCP first.
    ways: VecDeque<Vec<Multiaddr>>,
    /// Where the stream goes, or the error of the last way.
    pub(super) reply: Responder<ByteStream, StreamError>,
}

impl RingDial {
    /// Nothing is tried yet; each of `ways` are addresses for one dial.
    pub(super) fn new(
        peer: PeerId,
        ways: [Vec<Multiaddr>; 2],
        reply: Responder<ByteStream, StreamError>,
    ) -> Self {
        let ways = ways.into_iter().filter(|addresses| !addresses.is_empty()).collect();
        Self { peer, ways, reply }
    }

    /// A dial for which no ring waits.
    pub(super) fn trial(peer: PeerId, addresses: Vec<Multiaddr>) -> DialOpts {
        let options = DialOpts::peer_id(peer).condition(PeerCondition::Always);
        options.addresses(addresses).allocate_new_port().build()
    }

    /// The next dial to try; `None` when only the connection for messages is left.
    pub(super) fn next(&mut self) -> Option<DialOpts> {
        let addresses = self.ways.pop_front()?;
        Some(Self::trial(self.peer, addresses))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two machines with containers both have 172.17.0.1.
    #[test]
    fn a_dial_leaves_out_the_addresses_at_which_this_node_listens() {
        let (me, other, relay) = (PeerId::random(), PeerId::random(), PeerId::random());
        let at = |text: String| -> Multiaddr { text.parse().unwrap() };
        let circuit =
            |peer: PeerId| at(format!("/ip4/203.0.113.7/tcp/1/p2p/{relay}/p2p-circuit/p2p/{peer}"));
        let bridge = at("/ip4/172.17.0.1/tcp/4001".into());
        let own = [bridge.clone(), circuit(me)];
        let there = at(format!("/ip4/172.17.0.1/tcp/4001/p2p/{other}"));
        let right = [at(format!("/ip4/192.168.1.5/tcp/4001/p2p/{other}")), circuit(other)];
        let all = [&[bridge, there.clone()][..], &right].concat();
        assert_eq!(elsewhere(all, own.iter()), right);
        assert_eq!(elsewhere(vec![there.clone()], own.iter()), [there], "it fails with its reason");
    }

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
