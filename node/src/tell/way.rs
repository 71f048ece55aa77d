//! What is told of the way between this node and others: who is there and by which way, where this
//! node is reached, and what was tried for it.

use std::collections::BTreeMap;
use std::sync::{MutexGuard, PoisonError};

use intellect_protocol::event::Cause;
use intellect_protocol::id::PeerId;
use intellect_protocol::roll::Roll;

use super::{Teller, events};
use crate::name::PeerName;
use crate::net::{self, Link};

impl Teller {
    pub(crate) fn connected(&self, peer: PeerId, link: Link) {
        tracing::info!(peer = %PeerName::from(peer), ?link, "connected");
        self.links().insert(peer, link);
    }

    pub(crate) fn disconnected(&self, peer: PeerId, cause: &str) {
        tracing::info!(peer = %PeerName::from(peer), cause, "disconnected");
        self.links().remove(&peer);
    }

    fn links(&self) -> MutexGuard<'_, BTreeMap<PeerId, Link>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn listening(&self, addresses: &[net::address::Address]) {
        let addresses = addresses.iter().map(ToString::to_string).collect();
        self.emit(None, events::Event::Listening { addresses });
    }

    pub(crate) fn reachability(&self, state: &net::Reachability) {
        self.say(&format!("network: {state}"));
    }

    /// A step on the way, and what came of it.
    pub(crate) fn path(&self, path: &net::Path) {
        self.say(&format!("network: {path}"));
        let event = events::Event::Path {
            step: path.step().to_owned(),
            who: path.who(),
            address: path.address(),
            error: path.error(),
        };
        self.emit(None, event);
    }

    pub(super) fn peer_found(&self, who: PeerId, roll: &Roll) {
        let way = match self.links().get(&who) {
            Some(Link::Direct) => ", directly",
            Some(Link::Relayed) => ", through a relay",
            // Others have passed its word on.
            None => "",
        };
        let direct = roll.peers.get(&who).is_some_and(|seen| seen.beat.direct);
        let who = PeerName::from(who);
        self.say(&format!("found peer {}{way}", who.short()));
        self.emit(None, events::Event::PeerFound { who, direct });
    }

    pub(super) fn peer_lost(&self, who: PeerId, cause: Cause) {
        let (cause, meanwhile) = match cause {
            Cause::Silent => ("silent", "; it gets nothing but our heartbeats until it is heard"),
            Cause::Closed => ("closed", ""),
            Cause::Left => ("left", ""),
        };
        let who = PeerName::from(who);
        self.say(&format!("lost peer {}: {cause}{meanwhile}", who.short()));
        self.emit(None, events::Event::PeerLost { who, cause: cause.to_owned() });
    }
}
