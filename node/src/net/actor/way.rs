//! Events of discovery: what this node learns from them, and which of them show a step towards a
//! connection with others, or away from it.
//!
//! Steps are for people, who see in them where connecting fails; nothing is decided by them.
//! `doctor` reads the same steps by [`path`].

use intellect_bootstrap::discovery::{DiscoveryEvent, Gateway};
use libp2p::{
    Multiaddr, autonat, dcutr, identify,
    kad::{self, QueryResult},
    ping, relay, upnp,
};
use tokio::time::Instant;

use super::super::interface::Event;
use super::super::path::Path;
use super::Actor;

impl Actor {
    /// Takes one event of discovery. Addresses that a peer reports are filtered there already.
    ///
    /// A search that finds more peers than the run wants takes only so many: a visitor needs a few.
    /// One answer may name hundreds that nobody has ever met, so it counts for a few peers only;
    /// the others are in the answers to later searches, in another order.
    /// Of AutoNAT only failures count here, since the swarm reports a success as a confirmed
    /// address.
    pub(super) fn on_discovery(&mut self, event: DiscoveryEvent, now: Instant) {
        self.trace(&event, now);
        match event {
            DiscoveryEvent::Identify(identify::Event::Received {
                peer_id: peer,
                connection_id,
                info,
            }) => {
                let entry = self.members.peers.get(&peer);
                let Some(seen) = entry.and_then(|peer| peer.remote(connection_id)) else { return };
                let addresses = self.swarm.discovery().learn(peer, &info, seen);
                let said = (&*info.protocol_version, &*info.agent_version);
                let outputs = self.members.identified(peer, addresses, said, now);
                self.carry_out(outputs);
            }
            DiscoveryEvent::Kademlia(kad::Event::OutboundQueryProgressed {
                result:
                    QueryResult::GetProviders(Ok(kad::GetProvidersOk::FoundProviders {
                        providers, ..
                    })),
                ..
            }) => {
                let most = self.run.as_ref().map_or(usize::MAX, |run| run.most);
                let room = most.saturating_sub(self.members.peers.found().count());
                for peer in providers.into_iter().take(room.min(kad::K_VALUE.get())) {
                    self.members.peers.want(peer, now);
                }
                // Kademlia knows their addresses while the query runs.
                self.redial(now);
            }
            // Nobody served the table before, so nobody has heard of us.
            DiscoveryEvent::Kademlia(kad::Event::RoutingUpdated { is_new_peer: true, .. })
                if self.swarm.discovery().servers() == 1 =>
            {
                self.announce_soon(now);
            }
            DiscoveryEvent::Ping(ping::Event { peer, connection, result: Ok(length) }) => {
                self.carry_out(self.members.round_trip(peer, connection, length));
            }
            DiscoveryEvent::Reach(autonat::v2::client::Event { result: Err(_), .. }) => {
                self.evidence.probe_failed();
            }
            _ => {}
        }
    }

    /// Reports the step that an event shows, where that is news (`Trail`).
    fn trace(&mut self, event: &DiscoveryEvent, now: Instant) {
        if let Some(path) = path(event)
            && self.trail.is_news(&path, now)
        {
            self.emit(Event::Path(path));
        }
    }

    /// This node listens at an address no longer, and so what led to it there is taken back.
    pub(super) fn stops_listening(&mut self, address: &Multiaddr, now: Instant) {
        let gone = self.evidence.leaves(address, self.swarm.listeners(), now);
        self.swarm.retract(&gone);
    }
}

/// The step that an event shows. A renewed reservation is none, as nothing has changed. An error
/// becomes text here, since only people read it.
pub(in crate::net) fn path(event: &DiscoveryEvent) -> Option<Path> {
    Some(match event {
        DiscoveryEvent::Identify(identify::Event::Received { peer_id, info, .. }) => {
            Path::Observed { address: info.observed_addr.clone(), by: *peer_id }
        }
        DiscoveryEvent::Punch(dcutr::Event { remote_peer_id, result }) => {
            Path::Punched { peer: *remote_peer_id, result: outcome(result) }
        }
        DiscoveryEvent::Reach(autonat::v2::client::Event { tested_addr, result, .. }) => {
            Path::Tested { address: tested_addr.clone(), result: outcome(result) }
        }
        DiscoveryEvent::RelayClient(relay::client::Event::ReservationReqAccepted {
            relay_peer_id,
            renewal: false,
            ..
        }) => Path::Reserved { relay: *relay_peer_id },
        DiscoveryEvent::Upnp(upnp::Event::NewExternalAddr { external_addr, .. }) => {
            Path::Mapped { address: external_addr.clone(), result: Ok(()) }
        }
        DiscoveryEvent::Upnp(upnp::Event::ExpiredExternalAddr { external_addr, .. }) => {
            let result = Err("it was not renewed".to_owned());
            Path::Mapped { address: external_addr.clone(), result }
        }
        DiscoveryEvent::Upnp(upnp::Event::GatewayNotFound) => Path::Gateway(Gateway::Silent),
        DiscoveryEvent::Upnp(upnp::Event::NonRoutableGateway) => Path::Gateway(Gateway::Nested),
        _ => return None,
    })
}

/// The result of a step, with its error as text.
fn outcome<T>(result: &Result<T, impl ToString>) -> Result<(), String> {
    result.as_ref().map(|_| ()).map_err(ToString::to_string)
}
