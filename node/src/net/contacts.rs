//! Where peers of the run are reached, for the next start of this node.
//!
//! The addresses of whoever is connected directly come first, those that we dialled ourselves
//! before those that the peer announces; behind them stand the ones of earlier, as long as there is
//! room. Whom an address of an earlier start leads to is dialled once, and again as any lost peer
//! is.

use std::collections::BTreeMap;

use intellect_bootstrap::address;
use libp2p::Multiaddr;

use super::peers::Peers;
use crate::store::contacts::CONTACTS;

/// The list that follows on `known`.
pub(super) fn list(peers: &Peers, known: &[Multiaddr]) -> Vec<Multiaddr> {
    let reached = peers.iter().filter(|(_, peer)| peer.member && peer.control().is_some());
    let reached: BTreeMap<_, _> = reached
        .map(|(id, peer)| {
            let (tcp, rest) = peer.direct_addresses();
            let all = tcp.into_iter().chain(rest).take(PER_PEER);
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
