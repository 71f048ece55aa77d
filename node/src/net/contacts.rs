//! Where peers of the run are reached, for the next start of this node.
//!
//! The addresses of whoever is connected directly come first, those that we dialled ourselves
//! before those that the peer announces; behind them stand the ones of earlier, as long as there is
//! room. Whom an address of an earlier start leads to is dialled once, and again as any lost peer
//! is.

use std::collections::BTreeMap;

use intellect_bootstrap::address;
use libp2p::Multiaddr;
use tokio::time::Instant;

use super::actor::Actor;
use crate::store::contacts::CONTACTS;

/// Addresses of one peer: by TCP and QUIC, on two networks.
const PER_PEER: usize = 4;

impl Actor {
    /// Notes whom an earlier start has reached, to dial them. The first address of the list is the
    /// best.
    pub(super) fn know(&mut self, contacts: &[Multiaddr], now: Instant) {
        for contact in contacts {
            if let Some(peer) = address::peer(contact) {
                self.peers.know(peer, contact.clone(), now);
            }
        }
        self.shared.contacts.send_replace(contacts.to_vec());
    }

    /// Publishes the list if it has changed.
    pub(super) fn note_contacts(&self) {
        let reached: BTreeMap<_, _> = self
            .peers
            .iter()
            .filter(|(_, peer)| peer.member && peer.control().is_some())
            .map(|(id, peer)| {
                let (tcp, rest) = peer.direct_addresses();
                let all = tcp.into_iter().chain(rest).take(PER_PEER);
                let all: Vec<_> = all.map(|found| address::with_peer(found, *id)).collect();
                (id.to_bytes(), all)
            })
            .collect();
        self.shared.contacts.send_if_modified(|known| {
            let of_others = |address: &&Multiaddr| {
                address::peer(address).is_some_and(|peer| !reached.contains_key(&peer.to_bytes()))
            };
            let all = reached.values().flatten().chain(known.iter().filter(of_others));
            let new: Vec<_> = all.take(CONTACTS).cloned().collect();
            let changed = *known != new;
            *known = new;
            changed
        });
    }
}
