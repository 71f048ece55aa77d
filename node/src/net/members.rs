//! The actor's dealings with peers: connections that come and go, who is a member of the run, the
//! control stream to each, and what misbehaviour costs.
//!
//! A member is a peer that listens to the run's heartbeats. The driver hears of it once messages
//! can be sent to it, and of its end once no connection is left.

use std::time::Duration;

use intellect_bootstrap::{discovery::IDENTIFY, transport::root_cause};
use libp2p::{
    PeerId,
    gossipsub::TopicHash,
    identify,
    swarm::{ConnectionError, ConnectionId},
};
use tokio::{sync::mpsc, time::Instant};

use super::{
    Event,
    actor::Actor,
    behaviour::CONTROL,
    line, name,
    peers::{Connection, Line, Link, Purpose},
};

impl Actor {
    pub(super) fn on_connected(&mut self, peer: PeerId, connection: Connection) {
        let (id, now) = (connection.id, connection.since);
        if name::from_libp2p(&peer).is_none() {
            // No peer of ours has such a key.
            self.swarm.close_connection(id);
            return;
        }
        self.peers.connected(peer, connection);
        if self.entries.contains(&peer) {
            self.entries.up(&peer);
            self.provide_soon(now);
        }
        self.on_dialled(id);
        self.refresh(peer, "", now);
    }

    pub(super) fn on_closed(
        &mut self,
        peer: PeerId,
        id: ConnectionId,
        cause: String,
        now: Instant,
    ) {
        self.peers.closed(&peer, id, now);
        if self.peers.get(&peer).is_none_or(|peer| peer.connections.is_empty()) {
            self.entries.down(&peer, now);
        }
        self.refresh(peer, &cause, now);
    }

    pub(super) fn on_identified(
        &mut self,
        peer: PeerId,
        connection: ConnectionId,
        info: &identify::Info,
    ) {
        let Some(entry) = self.peers.get(&peer) else { return };
        let seen = entry.connections.iter().find(|c| c.id == connection).map(|c| c.remote.clone());
        let Some(seen) = seen else { return };
        let addresses = self.swarm.behaviour_mut().discovery.learn(peer, info, &seen);
        if let Some(entry) = self.peers.get(&peer) {
            entry.addresses = addresses;
        }
        let version = &info.protocol_version;
        let other = version.starts_with("/intellect/") && version != IDENTIFY;
        let told = self
            .peers
            .get(&peer)
            .is_some_and(|entry| std::mem::replace(&mut entry.incompatible, other));
        if let (true, false, Some(peer)) = (other, told, name::from_libp2p(&peer)) {
            self.emit(Event::Incompatible { peer, version: version.chars().take(32).collect() });
        }
    }

    pub(super) fn on_subscribed(
        &mut self,
        peer: PeerId,
        topic: &TopicHash,
        subscribed: bool,
        now: Instant,
    ) {
        let ours = self.run.as_ref().is_some_and(|run| run.topics.beat.hash() == *topic);
        let Some(entry) = self.peers.get(&peer).filter(|_| ours) else { return };
        entry.member = subscribed;
        if subscribed {
            self.peers.want(peer, now);
        }
        self.refresh(peer, "left the run", now);
    }

    /// Only members matter to the driver, and only the way that messages to them take.
    pub(super) fn on_round_trip(&mut self, peer: PeerId, id: ConnectionId, length: Duration) {
        let used = self.peers.get(&peer).is_some_and(|entry| entry.member && entry.uses(id));
        if let (true, Some(peer)) = (used, name::from_libp2p(&peer)) {
            self.emit(Event::RoundTrip { peer, length });
        }
    }

    /// Peers may have told what they listen to before this node joined.
    pub(super) fn greet_members(&mut self) {
        let Some(run) = &self.run else { return };
        let beat = run.topics.beat.hash();
        let all = self.swarm.behaviour().gossip.inner.all_peers();
        let members: Vec<_> =
            all.filter(|(_, topics)| topics.contains(&&beat)).map(|(peer, _)| *peer).collect();
        let now = Instant::now();
        for peer in members {
            self.on_subscribed(peer, &beat, true, now);
        }
    }

    /// Brings a peer's control stream, and what the driver knows, up to date.
    fn refresh(&mut self, peer: PeerId, cause: &str, now: Instant) {
        let Some(entry) = self.peers.get(&peer) else { return };
        if let (true, Line::Down(from), Some(control)) = (entry.member, entry.line, entry.control())
            && from <= now
        {
            let connection = control.id;
            entry.line = Line::Opening(connection);
            let opening = self.swarm.behaviour_mut().streams.open(peer, connection, CONTROL);
            self.tasks.spawn(line::send(peer, connection, opening, self.notes.clone()));
        }
        let Some(entry) = self.peers.get(&peer) else { return };
        let link = entry.link();
        if link == entry.shown {
            return;
        }
        entry.shown = link;
        let Some(name) = name::from_libp2p(&peer) else { return };
        if link != Some(Link::Direct) {
            self.lines_mut(|lines| lines.remove(&name));
        }
        self.emit(match link {
            Some(link) => Event::Connected { peer: name, link },
            None => Event::Disconnected { peer: name, cause: cause.into() },
        });
    }

    pub(super) fn line_up(
        &mut self,
        peer: PeerId,
        connection: ConnectionId,
        outbox: mpsc::Sender<Vec<u8>>,
    ) {
        let Some(entry) = self.peers.get(&peer) else { return };
        let Some(name) = name::from_libp2p(&peer) else { return };
        if entry.line != Line::Opening(connection) {
            return;
        }
        entry.line = Line::Up(connection);
        self.lines_mut(|lines| lines.insert(name, outbox));
        self.refresh(peer, "", Instant::now());
    }

    pub(super) fn line_down(&mut self, peer: PeerId, connection: ConnectionId) {
        let Some(entry) = self.peers.get(&peer) else { return };
        if !matches!(entry.line, Line::Opening(id) | Line::Up(id) if id == connection) {
            return;
        }
        entry.line = Line::Down(Instant::now() + LINE_WAIT);
        if let Some(name) = name::from_libp2p(&peer) {
            self.lines_mut(|lines| lines.remove(&name));
        }
    }

    /// Opens the control streams that are due.
    pub(super) fn retry_lines(&mut self, now: Instant) {
        let due: Vec<_> = self
            .peers
            .iter()
            .filter(|(_, peer)| peer.member && matches!(peer.line, Line::Down(from) if from <= now))
            .map(|(peer, _)| *peer)
            .collect();
        for peer in due {
            self.refresh(peer, "", now);
        }
    }

    /// Tells peers of the run who this is that do not listen to its gossip although they have been connected
    /// for a while: they know another program with our key, which was there first, and gossip has one
    /// conversation with a key.
    pub(super) fn knock(&mut self, beat: &[u8], now: Instant) {
        if now < self.knock_at {
            return;
        }
        self.knock_at = now + KNOCK_EVERY;
        let settled = |since: Instant| now.saturating_duration_since(since) >= KNOCK_AFTER;
        let deaf = self.peers.iter().filter(|(peer, entry)| {
            let connected = entry.control().is_some_and(|control| settled(control.since));
            entry.wanted && !entry.member && connected && !self.entries.contains(peer)
        });
        let deaf: Vec<PeerId> = deaf.map(|(peer, _)| *peer).take(KNOCKS_MAX).collect();
        for peer in deaf {
            self.send_to_all(peer, beat);
        }
    }

    /// Sends a message on a stream of its own over each control connection of a peer.
    pub(super) fn send_to_all(&mut self, peer: PeerId, bytes: &[u8]) {
        let Some(entry) = self.peers.get(&peer) else { return };
        let connections: Vec<_> = entry.of(Purpose::Control).map(|c| c.id).collect();
        for connection in connections {
            let opening = self.swarm.behaviour_mut().streams.open(peer, connection, CONTROL);
            self.tasks.spawn(line::send_once(opening, bytes.to_vec()));
        }
    }

    /// Counts a fault of a peer, names it, and drops the peer if it was one too many. What was still
    /// on its way from a peer that has been dropped is not worth a word.
    pub(super) fn fault(&mut self, peer: PeerId, why: String, weight: u32) {
        if self.blocked.contains_key(&peer) {
            return;
        }
        let Some(entry) = self.peers.get(&peer) else { return };
        let dropped = entry.fault(weight);
        if let Some(name) = name::from_libp2p(&peer) {
            self.emit(Event::Fault { peer: name, why: why.clone() });
        }
        if dropped {
            self.drop_peer(peer, &why);
        }
    }

    /// Closes all connections to a peer and keeps it out for a while.
    pub(super) fn drop_peer(&mut self, peer: PeerId, why: &str) {
        let now = Instant::now();
        if self.blocked.len() >= BLOCKED_MAX && !self.blocked.contains_key(&peer) {
            let oldest =
                self.blocked.iter().min_by_key(|(_, until)| **until).map(|(peer, _)| *peer);
            if let Some(oldest) = oldest {
                self.blocked.remove(&oldest);
                self.swarm.behaviour_mut().discovery.blocked.unblock_peer(oldest);
            }
        }
        self.blocked.insert(peer, now + BLOCKED_FOR);
        let discovery = &mut self.swarm.behaviour_mut().discovery;
        discovery.blocked.block_peer(peer);
        discovery.kademlia.remove_peer(&peer);
        if let Some(entry) = self.peers.get(&peer) {
            (entry.wanted, entry.member) = (false, false);
            self.refresh(peer, &format!("dropped: {why}"), now);
        }
    }
}

/// Why a connection has closed, for people.
pub(super) fn explain(cause: Option<ConnectionError>) -> String {
    match cause {
        None => "the connection was closed on this side".into(),
        Some(ConnectionError::KeepAliveTimeout) => "the connection was not used any more".into(),
        Some(ConnectionError::IO(error)) => {
            format!("the connection ended: {}", root_cause(error))
        }
    }
}

/// What peers listen to is told when they connect.
const KNOCK_AFTER: Duration = Duration::from_secs(3);
const KNOCK_EVERY: Duration = Duration::from_secs(2);
const KNOCKS_MAX: usize = 16;
const LINE_WAIT: Duration = Duration::from_secs(1);
const BLOCKED_FOR: Duration = Duration::from_secs(10 * 60);
/// Identities are cheap: whoever is kept out can come back under another one, so the list need not
/// be long.
const BLOCKED_MAX: usize = 256;
