//! Sentences and events about connections: which peers are here and how they are connected, where this node can be
//! reached, and what was tried to reach it.
//!
//! The network says who is connected, the protocol who is heard, and the two differ: messages of a
//! peer may come through others before there is a connection to it, or after it has closed. A peer
//! is found when it is heard; the connection only adds how it is reached.

use std::sync::{MutexGuard, PoisonError};
use std::time::Instant;

use intellect_protocol::base::id::PeerId;
use intellect_protocol::machine::event::Cause;
use intellect_protocol::machine::table::PeerTable;
use intellect_protocol::message::{Phase, Receipt, Row};
use intellect_protocol::peer;

use super::arrivals::Linked;
use super::{Console, events};
use crate::name::PeerName;
use crate::net::{self, Link};
use crate::store::OPTIONS;

impl Console {
    /// Notes how a peer is connected. Nothing is said yet: a peer is found only once it is heard.
    pub(crate) fn connected(&self, peer: PeerId, link: Link) {
        tracing::info!(peer = %PeerName::from(peer), ?link, "connected");
        self.links().insert(peer, (link, None));
    }

    /// Notes which version of the program a connected peer runs, as it says itself.
    pub(crate) fn version(&self, peer: PeerId, version: String) {
        if let Some((_, known)) = self.links().get_mut(&peer) {
            *known = Some(version);
        }
    }

    /// Notes that a peer is not connected any more. It may still be heard through others.
    pub(crate) fn disconnected(&self, peer: PeerId, cause: &str) {
        tracing::info!(peer = %PeerName::from(peer), cause, "disconnected");
        self.links().remove(&peer);
    }

    /// The connections of all peers. The lock is held for one look-up.
    fn links(&self) -> MutexGuard<'_, Linked> {
        self.here.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports the addresses of this node to programs. There is no sentence: `reachability` says
    /// which of them others can dial.
    pub(crate) fn listening(&self, addresses: &[net::address::Address]) {
        let addresses = addresses.iter().map(ToString::to_string).collect();
        self.emit(None, events::Event::Listening { addresses });
    }

    /// Reports whether others can reach this node, with what its owner can do about it.
    pub(crate) fn reachability(&self, state: &net::Reachability) {
        self.say(&format!("network: {state}"));
        let (state, addresses) = (state.name().to_owned(), state.addresses().to_vec());
        self.emit(None, events::Event::Reachability { state, addresses });
    }

    /// Another key than the one that was typed answers at the address of an entry point. Only the
    /// user can say which of the two is right.
    pub(crate) fn impostor(&self, address: &str, found: &str) {
        self.say(&format!(
            "at {address} another peer answers, {found}: the entry point's address or key has changed; give the new \
             one with --bootstrap, or remove the old one from {}",
            OPTIONS
        ));
    }

    /// An entry point has not answered for minutes, or answers again. The run needs it only for
    /// newcomers and as a relay.
    pub(crate) fn entry_point(&self, address: &str, answers: bool) {
        self.say(&if answers {
            format!("entry point {address} answers again")
        } else {
            format!(
                "entry point {address} has not answered for minutes: the peers that are here go on without it; \
                 newcomers need another one, and peers behind routers lose its relay"
            )
        });
    }

    /// Reports where one of the peers that were found is, if it is the turn of one.
    pub(crate) fn member(&mut self, now: Instant, table: &PeerTable) {
        let Some(peer) = self.here.arrivals.turn(now) else { return };
        let Some(seen) = table.peers.get(&peer) else { return };
        let (link, version) = self.links().get(&peer).cloned().unzip();
        let link = link.map(|link| match link {
            Link::Direct => "direct".to_owned(),
            Link::Relayed => "relayed".to_owned(),
        });
        self.emit(None, said(&seen.row(peer), link, version.flatten()));
    }

    /// A step towards a connection, and its outcome.
    pub(crate) fn path(&self, path: &net::Path) {
        self.say(&format!("network: {path}"));
        let parts = path.parts();
        let event = events::Event::Path {
            step: parts.step.to_owned(),
            who: parts.who,
            address: parts.address,
            error: parts.error,
        };
        self.emit(None, event);
    }

    /// A peer has come. It is reported unless it is one of a flood of newcomers.
    pub(super) fn peer_came(&mut self, who: PeerId, peer: &peer::State) {
        if self.here.arrivals.found(who, peer.is_named(&who)) {
            self.peer_found(who, peer.table());
        }
    }

    /// A receipt names peers. Those among them that were not reported to be here are reported now.
    pub(super) fn greet(&mut self, receipt: &Receipt, table: &PeerTable) {
        for member in &receipt.members {
            if self.here.arrivals.named(member.peer) {
                self.peer_found(member.peer, table);
            }
        }
    }

    /// A peer has gone, which is reported if its arrival was.
    pub(super) fn peer_went(&mut self, who: PeerId, cause: Cause) {
        if self.here.arrivals.lost(&who) {
            self.peer_lost(who, cause);
        }
    }

    /// Once a minute reports how many newcomers came without a report, if any did.
    pub(crate) fn count_strangers(&mut self) {
        if let Some(count) = self.here.arrivals.count(Instant::now()) {
            self.say(&format!("{count} more peers were heard that have no part in the run"));
            self.emit(None, events::Event::Strangers { count });
        }
    }

    /// Reports a peer that was heard, and how it is connected.
    fn peer_found(&self, who: PeerId, table: &PeerTable) {
        let way = match self.links().get(&who) {
            Some((Link::Direct, _)) => ", directly",
            Some((Link::Relayed, _)) => ", through a relay",
            // Its messages have come through other peers.
            None => "",
        };
        let direct = table.peers.get(&who).is_some_and(|seen| seen.beat.direct);
        let who = PeerName::from(who);
        self.say(&format!("found peer {}{way}", who.short()));
        self.emit(None, events::Event::PeerFound { who, direct });
    }

    /// Reports that a peer is gone, and why. A silent one is still sent heartbeats, so that it can
    /// come back.
    fn peer_lost(&self, who: PeerId, cause: Cause) {
        let (cause, meanwhile) = match cause {
            Cause::Silent => ("silent", "; it is sent heartbeats only, until it is heard again"),
            Cause::Closed => ("closed", ""),
            Cause::Left => ("left", ""),
        };
        let who = PeerName::from(who);
        self.say(&format!("lost peer {}: {cause}{meanwhile}", who.short()));
        self.emit(None, events::Event::PeerLost { who, cause: cause.to_owned() });
    }
}

/// What is said of a peer, and the way to it and its version if they are known. A round trip or a rate of 0 was
/// not measured, and is absent in the event.
pub(crate) fn said(row: &Row, link: Option<String>, version: Option<String>) -> events::Event {
    events::Event::Member {
        who: row.peer.into(),
        head: row.epoch,
        phase: phase(row.phase).to_owned(),
        ready: row.ready,
        rtt_ms: (row.rtt_ms > 0).then_some(row.rtt_ms),
        send_rate: (row.send_rate > 0).then_some(row.send_rate),
        link,
        loss: row.loss.plausible().map(f64::from),
        version,
    }
}

/// The name of a phase in events. It never changes, whatever the phase is called in the protocol.
fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Behind => "behind",
        Phase::Train => "train",
        Phase::Ready => "ready",
        Phase::Accepted => "accepted",
        Phase::Reduce => "reduce",
        Phase::Finished => "finished",
        Phase::Recover => "recover",
        Phase::Regrouping => "regrouping",
    }
}
