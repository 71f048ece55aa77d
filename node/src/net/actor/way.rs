//! Which events show a step towards a connection with others, or away from it, and what they report.

use intellect_bootstrap::discovery::{DiscoveryEvent, Gateway};
use libp2p::{Multiaddr, autonat, dcutr, identify, relay, upnp};
use tokio::time::Instant;

use super::super::interface::Event;
use super::super::path::Path;
use super::Actor;

impl Actor {
    /// Reports the step that an event shows, where that is news.
    pub(super) fn trace(&mut self, event: &DiscoveryEvent, now: Instant) {
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

/// The step that an event shows. A renewed reservation is none, as nothing has changed.
fn path(event: &DiscoveryEvent) -> Option<Path> {
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
