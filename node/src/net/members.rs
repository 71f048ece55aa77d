//! What happens with peers: connections that come and go, membership of the run, the control stream
//! to each peer, and the consequences of misbehaviour.
//!
//! A member is a peer that subscribes to the run's heartbeats. It is reported as connected once
//! messages can be sent to it, and as disconnected once no connection is left. No socket is touched
//! here: the actor carries out each [`Output`] in order.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use intellect_bootstrap::{discovery::IDENTIFY, frame::Reservation, transport::root_cause};
use intellect_protocol::{base::id::PeerId as Name, message::wire};
use libp2p::{
    Multiaddr, PeerId,
    gossipsub::TopicHash,
    swarm::{ConnectionError, ConnectionId},
};
use tokio::{sync::mpsc, time::Instant};

use super::{
    inbox::Severity,
    interface::{Event, GOSSIP_BYTES_MAX, GossipToken, Link, Verdict, Via},
    limits::{
        source::{Claim, Ruling},
        strangers::{Strangers, is_stranger},
    },
    name,
    peers::{Connection, ControlStream, Peers, Purpose},
};

/// What the actor is to do. The order within one list matters. An output for a connection that has
/// gone does no harm.
#[derive(Debug)]
pub(super) enum Output {
    /// Report an event to the driver.
    Emit(Event),
    /// Close one connection of a peer.
    Close(ConnectionId),
    /// Open our control stream to a peer.
    OpenControlStream { peer: PeerId, connection: ConnectionId },
    /// Write one message on a stream of its own.
    Send { peer: PeerId, connection: ConnectionId, bytes: Vec<u8> },
    /// Sets the queue for messages to a peer; without one they cannot be sent.
    Queue { peer: Name, queue: Option<mpsc::Sender<Vec<u8>>> },
    /// Pass the verdict on a message to gossip.
    Judge(GossipToken, Verdict),
    /// Close all connections to a peer, and refuse new ones.
    Block(PeerId),
    /// Accept connections of a peer again.
    Unblock(PeerId),
}

/// All peers, with the topic that makes a peer a member.
pub(super) struct Members {
    /// The table of all peers, connected or worth dialling.
    pub(super) peers: Peers,
    /// The topic of heartbeats, once this node has joined a run.
    beat: Option<TopicHash>,
    /// Peers that are kept out, and until when.
    blocked: HashMap<PeerId, Instant>,
    /// The earliest time of the next knock.
    knock_at: Instant,
    /// How many connections pass on messages of non-members, and when that was counted.
    relaying: (usize, Instant),
    /// Until then minor faults do not count: messages may have piled up while this process slept.
    lenient: Instant,
}

impl Members {
    /// Nobody is a member before this node has joined a run.
    pub(super) fn new(peers: Peers, now: Instant) -> Self {
        let (blocked, relaying) = (HashMap::new(), (0, now));
        Self { peers, beat: None, blocked, knock_at: now, relaying, lenient: now }
    }

    /// This node has joined a run; `listeners` subscribed to its heartbeats before.
    pub(super) fn joined(
        &mut self,
        beat: TopicHash,
        listeners: &[PeerId],
        now: Instant,
    ) -> Vec<Output> {
        self.beat = Some(beat.clone());
        listeners.iter().flat_map(|peer| self.subscribed(*peer, &beat, true, now)).collect()
    }

    /// This process has slept: for a while it reads what piled up in its sockets. The usual limits
    /// hold, but what exceeds them is dropped without blaming anybody.
    pub(super) fn woke(&mut self, now: Instant) {
        self.lenient = now + LENIENT_FOR;
    }

    /// A connection was established.
    pub(super) fn connected(&mut self, peer: PeerId, connection: Connection) -> Vec<Output> {
        let now = connection.since;
        self.peers.connected(peer, connection);
        self.refresh(peer, "", now)
    }

    /// A connection has closed; `cause` becomes the clause of [`Event::Disconnected`], if it was
    /// the last one.
    pub(super) fn closed(
        &mut self,
        peer: PeerId,
        id: ConnectionId,
        cause: Option<ConnectionError>,
        now: Instant,
    ) -> Vec<Output> {
        self.peers.closed(&peer, id, now);
        self.refresh(peer, &explain(cause), now)
    }

    /// A peer has sent its listen addresses, the protocol that it speaks, and what program it runs. Only the first
    /// version that it names on its connections counts: it may send as many as it likes.
    pub(super) fn identified(
        &mut self,
        peer: PeerId,
        addresses: Vec<Multiaddr>,
        (protocol, agent): (&str, &str),
        now: Instant,
    ) -> Vec<Output> {
        self.peers.listens(&peer, addresses, now);
        let mut out = Vec::new();
        let (Some(entry), Some(peer)) = (self.peers.get_mut(&peer), name::from_libp2p(&peer))
        else {
            return out;
        };
        let other = protocol.starts_with("/intellect/") && protocol != IDENTIFY;
        if !std::mem::replace(&mut entry.incompatible, other) && other {
            let version = protocol.chars().take(32).collect();
            out.push(Output::Emit(Event::Incompatible { peer, version }));
        }
        if entry.version.is_none() {
            entry.version = version_in(agent);
            let shown = if entry.shown.is_some() { entry.version.clone() } else { None };
            out.extend(shown.map(|version| Output::Emit(Event::Version { peer, version })));
        }
        out
    }

    /// A peer has subscribed to a topic, or unsubscribed.
    pub(super) fn subscribed(
        &mut self,
        peer: PeerId,
        topic: &TopicHash,
        subscribed: bool,
        now: Instant,
    ) -> Vec<Output> {
        if self.beat.as_ref() != Some(topic) {
            return Vec::new();
        }
        let Some(entry) = self.peers.get_mut(&peer) else { return Vec::new() };
        entry.member = subscribed;
        if subscribed {
            self.peers.want(peer, now);
        }
        self.refresh(peer, "left the run", now)
    }

    /// Hands a gossiped message to the driver, unless it is too long or exceeds the limits of the
    /// peer that brought it, or of `strangers`. `named` are the members of the run, as the driver
    /// has reported them.
    pub(super) fn gossiped(
        &mut self,
        token: GossipToken,
        bytes: Vec<u8>,
        named: &BTreeSet<Name>,
        strangers: &Strangers,
        now: Instant,
    ) -> Vec<Output> {
        let source = token.source;
        let relaying = self.relaying(now);
        let (Some(peer), Some(from)) = (self.peers.get_mut(&source), name::from_libp2p(&source))
        else {
            return Vec::new();
        };
        // The number of the repeat comes before the envelope.
        let author = wire::claimed_author(bytes.get(4..).unwrap_or_default());
        let claim = match author {
            Some(author) if author == from => Claim::Own,
            // Before a run has members, every author counts as one.
            Some(author) if named.contains(&author) || named.is_empty() => Claim::Member,
            _ => Claim::Other,
        };
        let length = bytes.len();
        if length > GOSSIP_BYTES_MAX {
            let why = format!("gossip of {length} bytes, at most {GOSSIP_BYTES_MAX} are allowed");
            return self.bad_gossip(token, Verdict::Reject, why, now);
        }
        let mut ruling = peer.gossip.take(claim, length, named.len(), relaying, now);
        let is_limited = claim == Claim::Own && is_stranger(&from, named);
        if is_limited && ruling == Ruling::Read && !strangers.take(peer.network(), length, now) {
            ruling = Ruling::Drop;
        }
        match ruling {
            Ruling::Drop => vec![Output::Judge(token, Verdict::Ignore)],
            Ruling::Fault => {
                let why = "more messages than anybody needs to send".to_owned();
                self.bad_gossip(token, Verdict::Ignore, why, now)
            }
            Ruling::Read => {
                // Gossip has bounded its length, so it takes nothing of the memory for frames.
                let (via, reserved) = (Via::Gossip(token), Reservation::default());
                vec![Output::Emit(Event::Message { from, via, bytes, reserved })]
            }
        }
    }

    /// How many connections pass on messages of non-members; counted once a second.
    fn relaying(&mut self, now: Instant) -> usize {
        let (count, counted) = self.relaying;
        if now < counted + COUNT_INTERVAL {
            return count;
        }
        let count = self.peers.iter().filter(|(_, peer)| peer.gossip.is_relaying(now)).count();
        self.relaying = (count, now);
        count
    }

    /// A fault in gossip: the message gets its verdict, and its source is blamed.
    fn bad_gossip(
        &mut self,
        token: GossipToken,
        verdict: Verdict,
        why: String,
        now: Instant,
    ) -> Vec<Output> {
        let source = token.source;
        let mut out = vec![Output::Judge(token, verdict)];
        out.extend(self.fault(source, why, Severity::Minor, now));
        out
    }

    /// Reports a measured round trip to a member, if it was measured on the connection that carries
    /// messages: a ping on another one may queue behind bulk.
    pub(super) fn round_trip(
        &self,
        peer: PeerId,
        id: ConnectionId,
        length: Duration,
    ) -> Option<Output> {
        self.peers.get(&peer).filter(|entry| entry.member && entry.used() == Some(id))?;
        Some(Output::Emit(Event::RoundTrip { peer: name::from_libp2p(&peer)?, length }))
    }

    /// Opens a peer's control stream where it is missing, and reports a changed link. Called after
    /// changes of a peer, and at a tick for a stream that had to wait. `cause` is the clause of
    /// [`Event::Disconnected`], if that is what has happened.
    fn refresh(&mut self, peer: PeerId, cause: &str, now: Instant) -> Vec<Output> {
        let mut out = Vec::new();
        let Some(entry) = self.peers.get_mut(&peer) else { return out };
        if let (true, ControlStream::Down(from), Some(control)) =
            (entry.member, entry.stream, entry.control())
            && from <= now
        {
            let connection = control.id;
            entry.stream = ControlStream::Opening(connection);
            out.push(Output::OpenControlStream { peer, connection });
        }
        let link = entry.link();
        if link == entry.shown {
            return out;
        }
        entry.shown = link;
        let version = if link.is_some() { entry.version.clone() } else { None };
        let Some(peer) = name::from_libp2p(&peer) else { return out };
        if link != Some(Link::Direct) {
            out.push(Output::Queue { peer, queue: None });
        }
        out.push(Output::Emit(match link {
            Some(link) => Event::Connected { peer, link },
            None => Event::Disconnected { peer, cause: cause.into() },
        }));
        out.extend(version.map(|version| Output::Emit(Event::Version { peer, version })));
        out
    }

    /// Our control stream to a peer is open. A stream of an older attempt is ignored, and ends with
    /// its queue.
    pub(super) fn stream_up(
        &mut self,
        peer: PeerId,
        connection: ConnectionId,
        queue: mpsc::Sender<Vec<u8>>,
        now: Instant,
    ) -> Vec<Output> {
        let opening = ControlStream::Opening(connection);
        let entry = self.peers.get_mut(&peer).filter(|entry| entry.stream == opening);
        let (Some(entry), Some(name)) = (entry, name::from_libp2p(&peer)) else {
            return Vec::new();
        };
        entry.stream = ControlStream::Up(connection);
        let mut out = vec![Output::Queue { peer: name, queue: Some(queue) }];
        out.extend(self.refresh(peer, "", now));
        out
    }

    /// Our control stream could not be opened, or has ended; another is opened a little later.
    pub(super) fn stream_down(
        &mut self,
        peer: PeerId,
        connection: ConnectionId,
        now: Instant,
    ) -> Option<Output> {
        let entry = self.peers.get_mut(&peer).filter(|entry| entry.stream.is_on(connection))?;
        entry.stream = ControlStream::Down(now + REOPEN_WAIT);
        Some(Output::Queue { peer: name::from_libp2p(&peer)?, queue: None })
    }

    /// What is due: spare connections to close, peers to unblock, control streams to open. At last
    /// the table forgets the peers that nobody needs.
    pub(super) fn tick(&mut self, now: Instant) -> Vec<Output> {
        let mut out: Vec<_> = self.peers.duplicates(now).into_iter().map(Output::Close).collect();
        let over = self.blocked.extract_if(|_, until| *until <= now);
        out.extend(over.map(|(peer, _)| Output::Unblock(peer)));
        let waits = |stream| matches!(stream, ControlStream::Down(from) if from <= now);
        let due = self.peers.iter().filter(|(_, peer)| peer.member && waits(peer.stream));
        let due: Vec<_> = due.map(|(peer, _)| *peer).collect();
        out.extend(due.into_iter().flat_map(|peer| self.refresh(peer, "", now)));
        self.peers.sweep();
        out
    }

    /// Members to dial now, with their addresses. A peer that was dropped is not dialled.
    pub(super) fn due(&mut self, now: Instant) -> Vec<(PeerId, Vec<Multiaddr>)> {
        let due = self.peers.due(now).into_iter().filter(|peer| !self.blocked.contains_key(peer));
        due.filter_map(|peer| Some((peer, self.peers.get(&peer)?.next_addresses()))).collect()
    }

    /// Sends our heartbeat to some peers of the run outside gossip, because another program may run
    /// with our key: gossip keeps one conversation with a key, so a member may listen to the other
    /// program only. Peers that waited longest come first, and among equals those that are no
    /// members. Entry points and peers that are not admitted are left out.
    pub(super) fn knock(
        &mut self,
        beat: &[u8],
        is_spared: impl Fn(&PeerId) -> bool,
        now: Instant,
    ) -> Vec<Output> {
        if now < self.knock_at {
            return Vec::new();
        }
        self.knock_at = now + KNOCK_EVERY;
        let settled = |since: Instant| now.saturating_duration_since(since) >= KNOCK_AFTER;
        let near = self.peers.iter().filter(|(peer, entry)| {
            let connected = entry.control().is_some_and(|control| settled(control.since));
            entry.wanted && connected && !is_spared(peer)
        });
        let mut near: Vec<_> =
            near.map(|(peer, entry)| (entry.knocked, entry.member, *peer)).collect();
        near.sort_by_key(|(knocked, member, _)| (*knocked, *member));
        near.truncate(KNOCKS_MAX);
        let mut out = Vec::new();
        for (.., peer) in near {
            if let Some(entry) = self.peers.get_mut(&peer) {
                entry.knocked = Some(now);
            }
            out.extend(self.send_to_all(peer, beat));
        }
        out
    }

    /// A peer of the run has sent us its heartbeat beside gossip. If it is no member long after it
    /// has connected, its gossip goes to another program with our key, or went to one that has
    /// ended: a conversation begins with the first connection to a key, and ends with the last. Its
    /// connections are closed, so that another begins.
    pub(super) fn spoke(&mut self, peer: PeerId, now: Instant) -> Vec<Output> {
        let strangers = self.peers.get(&peer).filter(|entry| !entry.member);
        let connections = strangers.map(|entry| &entry.connections[..]).unwrap_or_default();
        let young = |c: &Connection| now.saturating_duration_since(c.since) < STRANGE_AFTER;
        if connections.iter().any(young) {
            return Vec::new();
        }
        connections.iter().map(|connection| Output::Close(connection.id)).collect()
    }

    /// Sends a message over each control connection of a peer, on a stream of its own. Two programs
    /// with one key have connections of their own, and the control stream reaches only one of them.
    pub(super) fn send_to_all(&self, peer: PeerId, bytes: &[u8]) -> Vec<Output> {
        let connections = self.peers.get(&peer).into_iter().flat_map(|p| p.of(Purpose::Control));
        let send = |connection| Output::Send { peer, connection, bytes: bytes.to_vec() };
        connections.map(|connection| send(connection.id)).collect()
    }

    /// Counts and reports a fault of a peer, and drops the peer if it has too many. Faults of a
    /// peer that was dropped before are ignored: its last messages may still arrive.
    pub(super) fn fault(
        &mut self,
        peer: PeerId,
        why: String,
        severity: Severity,
        now: Instant,
    ) -> Vec<Output> {
        let is_excused = severity == Severity::Minor && now < self.lenient;
        if is_excused || self.blocked.contains_key(&peer) {
            return Vec::new();
        }
        let Some(entry) = self.peers.get_mut(&peer) else { return Vec::new() };
        let is_dropped = entry.fault(severity);
        let mut out = Vec::new();
        if let Some(peer) = name::from_libp2p(&peer) {
            out.push(Output::Emit(Event::Fault { peer, why: why.clone() }));
        }
        if is_dropped {
            out.extend(self.drop_peer(peer, &why, now));
        }
        out
    }

    /// The peers that are kept out, and until when.
    pub(super) fn blocked(&self) -> BTreeMap<Name, Instant> {
        let named = |(peer, until): (&PeerId, &Instant)| Some((name::from_libp2p(peer)?, *until));
        self.blocked.iter().filter_map(named).collect()
    }

    /// Closes all connections to a peer and keeps it out for a while.
    pub(super) fn drop_peer(&mut self, peer: PeerId, why: &str, now: Instant) -> Vec<Output> {
        let mut out = Vec::new();
        if self.blocked.len() >= BLOCKED_MAX && !self.blocked.contains_key(&peer) {
            let oldest = self.blocked.iter().min_by_key(|(_, until)| **until);
            let oldest = oldest.map(|(peer, _)| *peer);
            if let Some(oldest) = oldest {
                self.blocked.remove(&oldest);
                out.push(Output::Unblock(oldest));
            }
        }
        self.blocked.insert(peer, now + BLOCKED_FOR);
        out.push(Output::Block(peer));
        if let Some(entry) = self.peers.get_mut(&peer) {
            (entry.wanted, entry.member) = (false, false);
            out.extend(self.refresh(peer, &format!("dropped: {why}"), now));
        }
        out
    }
}

/// The version in what a program says of itself (`intellect/0.1.0`): short and of plain characters, since strangers
/// say it. `None` of other programs.
fn version_in(agent: &str) -> Option<String> {
    let version = agent.strip_prefix("intellect/")?;
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'+');
    let fits = (1..=VERSION_BYTES).contains(&version.len()) && version.bytes().all(plain);
    fits.then(|| version.to_owned())
}

/// Why a connection has closed, as a clause for people.
fn explain(cause: Option<ConnectionError>) -> String {
    match cause {
        None => "the connection was closed on this side".into(),
        Some(ConnectionError::KeepAliveTimeout) => "the connection was not used any more".into(),
        Some(ConnectionError::IO(error)) => {
            format!("the connection ended: {}", root_cause(error))
        }
    }
}

/// A peer says what it listens to right after it has connected, and is knocked at only then.
const KNOCK_AFTER: Duration = Duration::from_secs(3);
/// At most so many peers are knocked at in each of these intervals: with 256 peers each hears one
/// knock in 32 s, and all of them cost eight messages a second.
const KNOCK_EVERY: Duration = Duration::from_secs(2);
const KNOCKS_MAX: usize = 16;
/// How long a connected peer may be no member: several knocks.
const STRANGE_AFTER: Duration = Duration::from_secs(8);
/// Guess: by then everything is read that came into the sockets during a sleep.
const LENIENT_FOR: Duration = Duration::from_secs(10);
/// A peer that resets each control stream costs one try in this time.
const REOPEN_WAIT: Duration = Duration::from_secs(1);
/// How long a dropped peer is kept out (docs/FORMATS.md). The owner of a node that was repaired
/// waits as long.
const BLOCKED_FOR: Duration = Duration::from_secs(10 * 60);
/// Identities are cheap, so a blocked peer can come back under another one, and a longer list would
/// not help.
const BLOCKED_MAX: usize = 256;

/// The longest version that is passed on; that of a release has 5 characters or a few more.
const VERSION_BYTES: usize = 32;

/// How often the connections that pass on messages of non-members are counted.
const COUNT_INTERVAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn member(seed: u8, members: &mut Members, now: Instant) -> (PeerId, Vec<Output>) {
        let peer = name::to_libp2p(Name([seed; 32]));
        let remote: Multiaddr = "/ip4/10.0.0.1/tcp/1".parse().unwrap();
        let id = ConnectionId::new_unchecked(seed.into());
        let purpose = Purpose::Control;
        let connection =
            Connection { id, purpose, remote, dialled: true, relayed: false, since: now };
        let mut out = members.connected(peer, connection);
        let beat = TopicHash::from_raw("beat");
        out.extend(members.subscribed(peer, &beat, true, now));
        out.extend(members.stream_up(peer, id, mpsc::channel(1).0, now));
        (peer, out)
    }

    fn joined(now: Instant) -> Members {
        let me = name::to_libp2p(Name([0; 32]));
        let mut members = Members::new(Peers::new(me, 1), now);
        assert!(members.joined(TopicHash::from_raw("beat"), &[], now).is_empty());
        members
    }

    #[test]
    fn a_member_is_reported_once_messages_can_be_sent_and_once_it_is_gone() {
        let now = Instant::now();
        let mut members = joined(now);
        let (peer, out) = member(1, &mut members, now);
        let link = Link::Direct;
        assert!(matches!(out[..], [
            Output::OpenControlStream { .. },
            Output::Queue { queue: Some(_), .. },
            Output::Emit(Event::Connected { link: reported, .. }),
        ] if reported == link));
        let out = members.stream_down(peer, ConnectionId::new_unchecked(1), now);
        assert!(
            matches!(out, Some(Output::Queue { queue: None, .. })),
            "no loss: it is opened again"
        );
        assert!(members.tick(now).is_empty());
        let out = members.tick(now + REOPEN_WAIT);
        assert!(matches!(out[..], [Output::OpenControlStream { .. }]));
        let out = members.closed(peer, ConnectionId::new_unchecked(1), None, now);
        let [Output::Queue { queue: None, .. }, Output::Emit(Event::Disconnected { .. })] = out[..]
        else {
            panic!("{out:?}")
        };
    }

    #[test]
    fn a_version_is_the_first_that_a_peer_names_and_only_if_it_is_one() {
        let now = Instant::now();
        let mut members = joined(now);
        let (peer, _) = member(1, &mut members, now);
        let mut say = |agent: &str| {
            let out = members.identified(peer, Vec::new(), (IDENTIFY, agent), now);
            out.into_iter().find_map(|output| match output {
                Output::Emit(Event::Version { version, .. }) => Some(version),
                _ => None,
            })
        };
        let long = format!("intellect/{}", "1".repeat(VERSION_BYTES + 1));
        for agent in ["", "intellect/", "other/1.0", "intellect/<b>", "intellect/1 0", &long] {
            assert_eq!(say(agent), None, "{agent}");
        }
        assert_eq!(say("intellect/1.2.3-rc.1").as_deref(), Some("1.2.3-rc.1"));
        assert_eq!(say("intellect/9.9.9"), None, "it has named one");
    }

    #[test]
    fn a_peer_with_too_many_faults_is_kept_out_for_a_while() {
        let now = Instant::now();
        let mut members = joined(now);
        let (peer, _) = member(1, &mut members, now);
        let out = members.fault(peer, "once".into(), Severity::Minor, now);
        assert!(matches!(out[..], [Output::Emit(Event::Fault { .. })]));
        let out = members.fault(peer, "a length".into(), Severity::Grave, now);
        let causes = out.iter().filter_map(|output| match output {
            Output::Emit(Event::Disconnected { cause, .. }) => Some(&cause[..]),
            _ => None,
        });
        assert_eq!(causes.collect::<Vec<_>>(), ["dropped: a length"]);
        assert!(matches!(out[1], Output::Block(blocked) if blocked == peer), "{out:?}");
        assert_eq!(members.blocked(), BTreeMap::from([(Name([1; 32]), now + BLOCKED_FOR)]));
        let out = members.fault(peer, "still on its way".into(), Severity::Minor, now);
        assert!(out.is_empty() && members.due(now + BLOCKED_FOR).is_empty());
        let out = members.tick(now + BLOCKED_FOR);
        assert!(matches!(out[..], [Output::Unblock(unblocked)] if unblocked == peer), "{out:?}");
        assert!(members.blocked().is_empty());
    }

    /// A process that has slept reads at once what was sent to it meanwhile.
    #[test]
    fn a_process_that_has_slept_blames_nobody_for_what_has_piled_up() {
        let now = Instant::now();
        let mut members = joined(now);
        let (peer, _) = member(1, &mut members, now);
        members.woke(now);
        for _ in 0..100 {
            assert!(members.fault(peer, "too much".into(), Severity::Minor, now).is_empty());
        }
        let later = now + LENIENT_FOR;
        assert_eq!(members.fault(peer, "too much".into(), Severity::Minor, later).len(), 1);
        members.woke(later);
        assert!(members.fault(peer, "a length".into(), Severity::Grave, later).len() > 1);
    }

    #[test]
    fn every_member_of_a_large_run_is_knocked_at_in_turn() {
        let now = Instant::now();
        let mut members = joined(now);
        let all: BTreeSet<_> =
            (1..=3 * KNOCKS_MAX).map(|n| member(n as u8, &mut members, now).0).collect();
        let mut reached = BTreeSet::new();
        for turn in 0..3 {
            let now = now + KNOCK_AFTER + turn * KNOCK_EVERY;
            for output in members.knock(b"beat", |_| false, now) {
                let Output::Send { peer, .. } = output else { panic!("{output:?}") };
                assert!(reached.insert(peer), "one twice before another once");
            }
            assert!(members.knock(b"beat", |_| false, now).is_empty(), "too soon");
        }
        assert_eq!(reached, all);
    }

    #[test]
    fn the_list_of_the_blocked_is_bounded() {
        let now = Instant::now();
        let mut members = joined(now);
        let all: Vec<_> = (0..=BLOCKED_MAX).map(|_| PeerId::random()).collect();
        let mut out = Vec::new();
        for (second, peer) in (0..).zip(&all) {
            out = members.drop_peer(*peer, "", now + Duration::from_secs(second));
        }
        assert!(matches!(out[..], [Output::Unblock(first), Output::Block(_)] if first == all[0]));
        assert_eq!(members.blocked.len(), BLOCKED_MAX);
    }
}
