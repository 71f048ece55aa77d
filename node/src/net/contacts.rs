//! Addresses of peers of the run, for the next start of this node.
//!
//! The addresses of directly connected peers come first: those that we dialled before those that
//! the peer announces. The addresses of earlier starts follow as far as there is room. Such an
//! address is dialled once, and its peer then again as any lost peer, but it is never forgotten.

use std::collections::BTreeMap;

use intellect_bootstrap::address;
use libp2p::Multiaddr;

use super::peers::Peers;
use crate::store::contacts::CONTACTS;

/// The new list, after the list `known`: at most [`CONTACTS`] addresses, which the next start
/// dials. Peers are in the order of their ids, so that the list changes only when an address does.
pub(super) fn list(peers: &Peers, known: &[Multiaddr]) -> Vec<Multiaddr> {
    let reached = peers.iter().filter(|(_, peer)| peer.member && peer.control().is_some());
    let reached: BTreeMap<_, _> = reached
        .map(|(id, peer)| {
            let all = peer.direct_addresses().into_iter().take(PER_PEER);
            (id.to_bytes(), all.map(|found| address::with_peer(found, *id)).collect::<Vec<_>>())
        })
        .collect();
    let of_others = |address: &&Multiaddr| {
        address::peer(address).is_some_and(|peer| !reached.contains_key(&peer.to_bytes()))
    };
    let all = reached.values().flatten().chain(known.iter().filter(of_others));
    all.take(CONTACTS).cloned().collect()
}

/// Addresses of one peer: by TCP and QUIC, on two networks.
const PER_PEER: usize = 4;
