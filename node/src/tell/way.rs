//! What is told of the way between this node and others: who is there and by which way, where this
//! node is reached, and what was tried for it.

use std::collections::BTreeMap;
use std::sync::{MutexGuard, PoisonError};
use std::time::Instant;

use intellect_protocol::base::id::PeerId;
use intellect_protocol::machine::event::Cause;
use intellect_protocol::machine::table::Roll;
use intellect_protocol::message::Receipt;
use intellect_protocol::peer;

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
        self.here.links.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// A peer has come: it is told, unless it is one of a crowd of strangers.
    pub(super) fn peer_came(&mut self, who: PeerId, peer: &peer::State) {
        if self.here.strangers.found(who, peer.is_named(&who)) {
            self.peer_found(who, peer.roll());
        }
    }

    /// A receipt names peers: that they are here is told of those of whom it was not yet.
    pub(super) fn greet(&mut self, receipt: &Receipt, roll: &Roll) {
        for member in &receipt.members {
            if self.here.strangers.named(member.peer) {
                self.peer_found(member.peer, roll);
            }
        }
    }

    /// A peer has gone, which is told if it was told to be here.
    pub(super) fn peer_went(&mut self, who: PeerId, cause: Cause) {
        if self.here.strangers.lost(&who) {
            self.peer_lost(who, cause);
        }
    }

    /// Once a minute tells how many strangers have come untold, if any have.
    pub(crate) fn count_strangers(&mut self) {
        if let Some(count) = self.here.strangers.count(Instant::now()) {
            self.say(&format!("{count} more peers that have no part in the run have been heard"));
            self.emit(None, events::Event::Strangers { count });
        }
    }

    fn peer_found(&self, who: PeerId, roll: &Roll) {
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

    fn peer_lost(&self, who: PeerId, cause: Cause) {
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
