//! Dealings with peers: connections that come and go, who is a member of the run, the control
//! stream to each, and what misbehaviour costs.
//!
//! A member is a peer that listens to the run's heartbeats. The driver hears of it once messages
//! can be sent to it, and of its end once no connection is left. No socket is touched here: what is
//! to be done is an [`Output`], for the actor to carry out in order.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use intellect_bootstrap::{discovery::IDENTIFY, frame::Place, transport::root_cause};
use intellect_protocol::{base::id::PeerId as Name, message::wire};
use libp2p::{
    Multiaddr, PeerId,
    gossipsub::TopicHash,
    swarm::{ConnectionError, ConnectionId},
};
use tokio::{sync::mpsc, time::Instant};

use super::{
    inbox::Gravity,
    interface::{Event, GOSSIP_BYTES_MAX, GossipToken, Link, Verdict, Via},
    name,
    peers::{Connection, ControlStream, Peers, Purpose},
    source::{Claim, Ruling},
};

/// What the actor is to do.
#[derive(Debug)]
pub(super) enum Output {
    /// Tell the driver.
    Tell(Event),
    /// Close a connection.
    Close(ConnectionId),
    /// Open our control stream to a peer.
    OpenLine { peer: PeerId, connection: ConnectionId },
    /// Write one message on a stream of its own.
    Send { peer: PeerId, connection: ConnectionId, bytes: Vec<u8> },
    /// Messages to a peer go into this queue from now on, or nowhere.
    Line { peer: Name, queue: Option<mpsc::Sender<Vec<u8>>> },
    /// Say what becomes of a gossiped message.
    Judge(GossipToken, Verdict),
    /// Close all connections to a peer, and refuse others.
    Block(PeerId),
    /// Let it in again.
    Unblock(PeerId),
}

/// All peers, and who of them is a member.
pub(super) struct Members {
    pub(super) peers: Peers,
    /// The topic that members listen to, once this node is in a run.
    beat: Option<TopicHash>,
    /// Who is kept out, and until when.
    blocked: HashMap<PeerId, Instant>,
    knock_at: Instant,
    /// How many connections pass on what strangers say, and when they were counted.
    strangers: (usize, Instant),
    /// Until then nobody is at fault for what a machine may have piled up while it slept.
    lenient: Instant,
}

impl Members {
    /// Of no run yet.
    pub(super) fn new(peers: Peers, now: Instant) -> Self {
        let (blocked, strangers) = (HashMap::new(), (0, now));
        Self { peers, beat: None, blocked, knock_at: now, strangers, lenient: now }
    }

    /// This node has joined a run; `listeners` have told before that they listen to its heartbeats.
    pub(super) fn joined(
        &mut self,
        beat: TopicHash,
        listeners: &[PeerId],
        now: Instant,
    ) -> Vec<Output> {
        self.beat = Some(beat.clone());
        listeners.iter().flat_map(|peer| self.subscribed(*peer, &beat, true, now)).collect()
    }

    /// This process has slept: what comes for a while is what lay in its sockets. As much as at any time is read,
    /// the rest is dropped.
    pub(super) fn woke(&mut self, now: Instant) {
        self.lenient = now + LENIENT_FOR;
    }

    /// A connection is there.
    pub(super) fn connected(&mut self, peer: PeerId, connection: Connection) -> Vec<Output> {
        let now = connection.since;
        self.peers.connected(peer, connection);
        self.refresh(peer, "", now)
    }

    /// A connection has closed.
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

    /// A peer has said where it listens and what it speaks.
    pub(super) fn identified(
        &mut self,
        peer: PeerId,
        addresses: Vec<Multiaddr>,
        version: &str,
        now: Instant,
    ) -> Option<Output> {
        self.peers.listens(&peer, addresses, now);
        let entry = self.peers.get_mut(&peer)?;
        let other = version.starts_with("/intellect/") && version != IDENTIFY;
        let told = std::mem::replace(&mut entry.incompatible, other);
        let peer = name::from_libp2p(&peer).filter(|_| other && !told)?;
        Some(Output::Tell(Event::Incompatible {
            peer,
            version: version.chars().take(32).collect(),
        }))
    }

    /// A peer has begun, or ceased, to listen to a topic.
    pub(super) fn subscribed(
        &mut self,
        peer: PeerId,
        topic: &TopicHash,
        subscribed: bool,
        now: Instant,
    ) -> Vec<Output> {
        let ours = self.beat.as_ref() == Some(topic);
        let Some(entry) = self.peers.get_mut(&peer).filter(|_| ours) else { return Vec::new() };
        entry.member = subscribed;
        if subscribed {
            self.peers.want(peer, now);
        }
        self.refresh(peer, "left the run", now)
    }

    /// A gossiped message has come: for the driver, unless it is too long or one of too many.
    /// `named` are the members of the run, as far as the driver has said.
    pub(super) fn gossiped(
        &mut self,
        token: GossipToken,
        bytes: Vec<u8>,
        named: &BTreeSet<Name>,
        now: Instant,
    ) -> Vec<Output> {
        let source = token.source;
        let strangers = self.strangers(now);
        let (Some(peer), Some(from)) = (self.peers.get_mut(&source), name::from_libp2p(&source))
        else {
            return Vec::new();
        };
        let author = wire::claimed_author(bytes.get(4..).unwrap_or_default());
        let claim = match author {
            Some(author) if author == from => Claim::Own,
            // Before a run has members, all its peers are strangers.
            Some(author) if named.contains(&author) || named.is_empty() => Claim::Member,
            _ => Claim::Stranger,
        };
        let length = bytes.len();
        if length > GOSSIP_BYTES_MAX {
            let why = format!("gossip of {length} bytes, at most {GOSSIP_BYTES_MAX} are allowed");
            return self.bad_gossip(token, Verdict::Reject, why, now);
        }
        match peer.gossip.take(claim, length, (named.len(), strangers), now) {
            Ruling::Drop => vec![Output::Judge(token, Verdict::Ignore)],
            Ruling::Fault => {
                let why = "more messages than anybody needs to send".to_owned();
                self.bad_gossip(token, Verdict::Ignore, why, now)
            }
            Ruling::Read => {
                // It came in one piece, and is no longer than a few of these.
                let (via, place) = (Via::Gossip(token), Place::default());
                vec![Output::Tell(Event::Message { from, via, bytes, place })]
            }
        }
    }

    /// How many connections pass on what strangers say; counted once a second.
    fn strangers(&mut self, now: Instant) -> usize {
        let (count, counted) = self.strangers;
        if now < counted + COUNT_INTERVAL {
            return count;
        }
        let count = self.peers.iter().filter(|(_, peer)| peer.gossip.has_strangers(now)).count();
        self.strangers = (count, now);
        count
    }

    fn bad_gossip(
        &mut self,
        token: GossipToken,
        verdict: Verdict,
        why: String,
        now: Instant,
    ) -> Vec<Output> {
        let source = token.source;
        let mut out = vec![Output::Judge(token, verdict)];
        out.extend(self.fault(source, why, Gravity::Minor, now));
        out
    }

    /// A round trip was measured. Only members matter to the driver, and only the way that messages
    /// to them take.
    pub(super) fn round_trip(
        &self,
        peer: PeerId,
        id: ConnectionId,
        length: Duration,
    ) -> Option<Output> {
        self.peers.get(&peer).filter(|entry| entry.member && entry.uses(id))?;
        Some(Output::Tell(Event::RoundTrip { peer: name::from_libp2p(&peer)?, length }))
    }

    /// Brings a peer's control stream, and what the driver knows, up to date.
    fn refresh(&mut self, peer: PeerId, cause: &str, now: Instant) -> Vec<Output> {
        let mut out = Vec::new();
        let Some(entry) = self.peers.get_mut(&peer) else { return out };
        if let (true, ControlStream::Down(from), Some(control)) =
            (entry.member, entry.line, entry.control())
            && from <= now
        {
            let connection = control.id;
            entry.line = ControlStream::Opening(connection);
            out.push(Output::OpenLine { peer, connection });
        }
        let link = entry.link();
        if link == entry.shown {
            return out;
        }
        entry.shown = link;
        let Some(peer) = name::from_libp2p(&peer) else { return out };
        if link != Some(Link::Direct) {
            out.push(Output::Line { peer, queue: None });
        }
        out.push(Output::Tell(match link {
            Some(link) => Event::Connected { peer, link },
            None => Event::Disconnected { peer, cause: cause.into() },
        }));
        out
    }

    /// Our control stream to a peer is open.
    pub(super) fn line_up(
        &mut self,
        peer: PeerId,
        connection: ConnectionId,
        queue: mpsc::Sender<Vec<u8>>,
        now: Instant,
    ) -> Vec<Output> {
        let opening = ControlStream::Opening(connection);
        let entry = self.peers.get_mut(&peer).filter(|entry| entry.line == opening);
        let (Some(entry), Some(name)) = (entry, name::from_libp2p(&peer)) else {
            return Vec::new();
        };
        entry.line = ControlStream::Up(connection);
        let mut out = vec![Output::Line { peer: name, queue: Some(queue) }];
        out.extend(self.refresh(peer, "", now));
        out
    }

    /// Our control stream could not be opened, or has ended; another is tried a little later.
    pub(super) fn line_down(
        &mut self,
        peer: PeerId,
        connection: ConnectionId,
        now: Instant,
    ) -> Option<Output> {
        let entry = self.peers.get_mut(&peer).filter(|entry| entry.line.is_on(connection))?;
        entry.line = ControlStream::Down(now + LINE_WAIT);
        Some(Output::Line { peer: name::from_libp2p(&peer)?, queue: None })
    }

    /// What is due: spare connections to close, peers to let in again, control streams to open.
    pub(super) fn tick(&mut self, now: Instant) -> Vec<Output> {
        let mut out: Vec<_> = self.peers.duplicates(now).into_iter().map(Output::Close).collect();
        let over = self.blocked.extract_if(|_, until| *until <= now);
        out.extend(over.map(|(peer, _)| Output::Unblock(peer)));
        let waits = |line| matches!(line, ControlStream::Down(from) if from <= now);
        let due = self.peers.iter().filter(|(_, peer)| peer.member && waits(peer.line));
        let due: Vec<_> = due.map(|(peer, _)| *peer).collect();
        out.extend(due.into_iter().flat_map(|peer| self.refresh(peer, "", now)));
        self.peers.sweep();
        out
    }

    /// Lost members to dial now, and where.
    pub(super) fn due(&mut self, now: Instant) -> Vec<(PeerId, Vec<Multiaddr>)> {
        let due = self.peers.due(now).into_iter().filter(|peer| !self.blocked.contains_key(peer));
        due.filter_map(|peer| Some((peer, self.peers.get(&peer)?.next_addresses()))).collect()
    }

    /// Sends our heartbeat to some peers of the run, beside gossip. They may know another program
    /// with our key, and gossip has one conversation with a key, so that a peer that listens may
    /// listen to the other one. Whoever waited longest comes first, and of those that waited equally
    /// long the peers that do not listen. Entry points, and whoever is not let in, are left alone.
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
            self.peers.get_mut(&peer).into_iter().for_each(|entry| entry.knocked = Some(now));
            out.extend(self.send_to_all(peer, beat));
        }
        out
    }

    /// A peer of the run has sent us its heartbeat beside gossip. If it is no member long after it has connected,
    /// its gossip goes to another program with our key, or went to one that has ended: a conversation begins with
    /// the first connection to a key, and ends with the last. Its connections are closed, so that another begins.
    pub(super) fn spoke(&mut self, peer: PeerId, now: Instant) -> Vec<Output> {
        let strangers = self.peers.get(&peer).filter(|entry| !entry.member);
        let connections = strangers.map(|entry| &entry.connections[..]).unwrap_or_default();
        let young = |c: &Connection| now.saturating_duration_since(c.since) < STRANGE_AFTER;
        if connections.iter().any(young) {
            return Vec::new();
        }
        connections.iter().map(|connection| Output::Close(connection.id)).collect()
    }

    /// Sends a message over each control connection of a peer.
    pub(super) fn send_to_all(&self, peer: PeerId, bytes: &[u8]) -> Vec<Output> {
        let connections = self.peers.get(&peer).into_iter().flat_map(|p| p.of(Purpose::Control));
        let send = |connection| Output::Send { peer, connection, bytes: bytes.to_vec() };
        connections.map(|connection| send(connection.id)).collect()
    }

    /// Counts a fault of a peer, names it, and drops the peer if it was one too many. What was
    /// still on its way from a peer that has been dropped is not worth a word.
    pub(super) fn fault(
        &mut self,
        peer: PeerId,
        why: String,
        gravity: Gravity,
        now: Instant,
    ) -> Vec<Output> {
        let blocked = self.blocked.contains_key(&peer);
        if gravity == Gravity::Minor && now < self.lenient {
            return Vec::new();
        }
        let Some(entry) = self.peers.get_mut(&peer).filter(|_| !blocked) else {
            return Vec::new();
        };
        let dropped = if entry.fault(gravity) { Some(why.clone()) } else { None };
        let told = name::from_libp2p(&peer).map(|peer| Event::Fault { peer, why });
        let mut out: Vec<_> = told.map(Output::Tell).into_iter().collect();
        out.extend(dropped.into_iter().flat_map(|why| self.drop_peer(peer, &why, now)));
        out
    }

    /// Closes all connections to a peer and keeps it out for a while.
    pub(super) fn drop_peer(&mut self, peer: PeerId, why: &str, now: Instant) -> Vec<Output> {
        let mut out = Vec::new();
        if self.blocked.len() >= BLOCKED_MAX && !self.blocked.contains_key(&peer) {
            let oldest = self.blocked.iter().min_by_key(|(_, until)| **until);
            let oldest = oldest.map(|(peer, _)| *peer);
            oldest.inspect(|oldest| _ = self.blocked.remove(oldest));
            out.extend(oldest.map(Output::Unblock));
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

/// Why a connection has closed, for people.
fn explain(cause: Option<ConnectionError>) -> String {
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
/// Several knocks.
const STRANGE_AFTER: Duration = Duration::from_secs(8);
const LENIENT_FOR: Duration = Duration::from_secs(10);
const LINE_WAIT: Duration = Duration::from_secs(1);
const BLOCKED_FOR: Duration = Duration::from_secs(10 * 60);
/// Identities are cheap: whoever is kept out can come back under another one, so the list need not
/// be long.
const BLOCKED_MAX: usize = 256;

/// How often it is counted how many connections pass on what strangers say.
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
        out.extend(members.line_up(peer, id, mpsc::channel(1).0, now));
        (peer, out)
    }

    fn joined(now: Instant) -> Members {
        let me = name::to_libp2p(Name([0; 32]));
        let mut members = Members::new(Peers::new(me, 1), now);
        assert!(members.joined(TopicHash::from_raw("beat"), &[], now).is_empty());
        members
    }

    #[test]
    fn the_driver_hears_of_a_member_once_it_can_be_sent_to_and_once_it_is_gone() {
        let now = Instant::now();
        let mut members = joined(now);
        let (peer, out) = member(1, &mut members, now);
        let link = Link::Direct;
        assert!(matches!(out[..], [
            Output::OpenLine { .. },
            Output::Line { queue: Some(_), .. },
            Output::Tell(Event::Connected { link: told, .. }),
        ] if told == link));
        let out = members.line_down(peer, ConnectionId::new_unchecked(1), now);
        assert!(
            matches!(out, Some(Output::Line { queue: None, .. })),
            "no loss: it is opened again"
        );
        assert!(members.tick(now).is_empty());
        let out = members.tick(now + LINE_WAIT);
        assert!(matches!(out[..], [Output::OpenLine { .. }]));
        let out = members.closed(peer, ConnectionId::new_unchecked(1), None, now);
        let [Output::Line { queue: None, .. }, Output::Tell(Event::Disconnected { .. })] = out[..]
        else {
            panic!("{out:?}")
        };
    }

    #[test]
    fn whoever_has_done_too_much_is_kept_out_for_a_while() {
        let now = Instant::now();
        let mut members = joined(now);
        let (peer, _) = member(1, &mut members, now);
        let out = members.fault(peer, "once".into(), Gravity::Minor, now);
        assert!(matches!(out[..], [Output::Tell(Event::Fault { .. })]));
        let out = members.fault(peer, "a length".into(), Gravity::Grave, now);
        let told = out.iter().filter_map(|output| match output {
            Output::Tell(Event::Disconnected { cause, .. }) => Some(&cause[..]),
            _ => None,
        });
        assert_eq!(told.collect::<Vec<_>>(), ["dropped: a length"]);
        assert!(matches!(out[1], Output::Block(blocked) if blocked == peer), "{out:?}");
        let out = members.fault(peer, "still on its way".into(), Gravity::Minor, now);
        assert!(out.is_empty() && members.due(now + BLOCKED_FOR).is_empty());
        let out = members.tick(now + BLOCKED_FOR);
        assert!(matches!(out[..], [Output::Unblock(let_in)] if let_in == peer), "{out:?}");
    }

    /// A machine that has slept reads at once what was sent to it all the while.
    #[test]
    fn who_has_just_woken_blames_nobody_for_what_has_piled_up() {
        let now = Instant::now();
        let mut members = joined(now);
        let (peer, _) = member(1, &mut members, now);
        members.woke(now);
        for _ in 0..100 {
            assert!(members.fault(peer, "too much".into(), Gravity::Minor, now).is_empty());
        }
        let later = now + LENIENT_FOR;
        assert_eq!(members.fault(peer, "too much".into(), Gravity::Minor, later).len(), 1);
        members.woke(later);
        assert!(members.fault(peer, "a length".into(), Gravity::Grave, later).len() > 1);
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
