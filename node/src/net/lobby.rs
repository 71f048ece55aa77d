//! The lobby of a run of invited peers: where a connection waits whose peer is not let in, what it
//! may take until then, and to whom this node has shown what lets it in elsewhere.
//!
//! Transport is best effort: what a stranger cannot do to the run is for the rosters to say. Here is
//! what it cannot take from this node: places, time and bytes. Whom we have dialled ourselves takes
//! no place of those who come, or strangers could take all.

use std::{
    collections::{HashMap, VecDeque},
    net::IpAddr,
    time::Duration,
};

use intellect_bootstrap::crowding;
use libp2p::{PeerId, swarm::ConnectionId};
use tokio::time::Instant;

use super::{
    door::Door,
    interface::Response,
    pace::Bucket,
    peers::{Connection, Peers},
};

/// A connection whose peer is not let in.
#[derive(Debug)]
struct Guest {
    peer: PeerId,
    /// What its address counts with; nothing where it takes no place.
    network: Option<Option<IpAddr>>,
    /// When it is closed.
    until: Instant,
    /// What it has asked for so far.
    visits: u32,
}

/// A visit that is to be paid.
#[derive(Debug)]
pub(super) struct Due {
    pub(super) peer: PeerId,
    pub(super) connection: ConnectionId,
    /// Which one it is of those that were ever to be shown.
    pub(super) number: u64,
    pub(super) visit: Vec<u8>,
}

/// What is known of what we have shown to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    /// It may be shown (again) from then on.
    From(Instant),
    /// It is on its way.
    Under,
    /// The peer lets us in, or does not know what a lobby is.
    Settled,
}

/// The lobby.
#[derive(Debug)]
pub(super) struct Lobby {
    door: Door,
    guests: HashMap<ConnectionId, Guest>,
    /// What we show, and how often it has changed.
    visit: Option<Vec<u8>>,
    number: u64,
    shown: HashMap<PeerId, Shown>,
    /// Whom it is too early to dial again: it had nothing to show.
    in_vain: VecDeque<(PeerId, Instant)>,
    /// What all guests together may ask for.
    visits: Bucket,
}

impl Lobby {
    /// Of no run yet.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            door: Door::default(),
            guests: HashMap::new(),
            visit: None,
            number: 0,
            shown: HashMap::new(),
            in_vain: VecDeque::new(),
            visits: Bucket::new(VISITS_PER_S, VISITS_BURST, now),
        }
    }

    /// Whether a peer is let in.
    pub(super) fn lets_in(&self, peer: &PeerId) -> bool {
        self.door.lets_in(peer)
    }

    /// From now on `door` says who is let in. Returns the peers that no longer are. Others that are
    /// connected and not let in, but for `is_entry`, have what time the lobby gives.
    pub(super) fn set_door(
        &mut self,
        door: Door,
        peers: &Peers,
        is_entry: impl Fn(&PeerId) -> bool,
        now: Instant,
    ) -> Vec<PeerId> {
        let before = std::mem::replace(&mut self.door, door);
        let mut out = Vec::new();
        for (peer, entry) in peers.iter() {
            if self.door.lets_in(peer) {
                self.guests.retain(|_, guest| guest.peer != *peer);
            } else if before.lets_in(peer) {
                out.push(*peer);
            } else if self.door.is_watched() && !before.is_watched() && !is_entry(peer) {
                for connection in &entry.connections {
                    self.guests.insert(connection.id, Guest::new(*peer, None, now));
                }
            }
        }
        out
    }

    /// A connection is there; false where it finds no place.
    pub(super) fn connected(&mut self, peer: PeerId, connection: &Connection) -> bool {
        if !self.door.is_watched() || self.door.lets_in(&peer) {
            return true;
        }
        let network = (!connection.dialled).then(|| crowding::network(&connection.remote));
        if let Some(network) = network {
            let places: Vec<_> = self.guests.values().filter_map(|guest| guest.network).collect();
            let near = places.iter().filter(|other| network.is_some() && **other == network);
            if places.len() >= PLACES || near.count() >= PLACES_PER_NETWORK {
                return false;
            }
        }
        self.guests.insert(connection.id, Guest::new(peer, network, connection.since));
        true
    }

    /// A connection has closed; `last`: it was the last one of its peer.
    pub(super) fn closed(&mut self, peer: &PeerId, id: ConnectionId, last: bool) {
        self.guests.remove(&id);
        if last {
            self.shown.remove(peer);
        }
    }

    /// Whether a visit over this connection is listened to. The first one earns its connection the
    /// time that an answer takes.
    pub(super) fn takes_visit(&mut self, id: ConnectionId, now: Instant) -> bool {
        let Some(guest) = self.guests.get_mut(&id) else { return self.door.is_watched() };
        guest.visits += 1;
        if guest.visits == 1 {
            guest.until = now + ANSWER_PATIENCE;
        }
        guest.visits <= VISITS_PER_CONNECTION && self.visits.take(now)
    }

    /// Connections whose time is over.
    pub(super) fn over(&mut self, now: Instant) -> Vec<ConnectionId> {
        let over: Vec<_> = self.guests.extract_if(|_, guest| guest.until <= now).collect();
        for (_, guest) in &over {
            self.in_vain.push_back((guest.peer, now + IN_VAIN));
        }
        while self.in_vain.len() > IN_VAIN_MAX
            || self.in_vain.front().is_some_and(|(_, until)| *until <= now)
        {
            self.in_vain.pop_front();
        }
        over.into_iter().map(|(id, _)| id).collect()
    }

    /// Whether a peer is worth dialling now.
    pub(super) fn may_dial(&self, peer: &PeerId) -> bool {
        self.lets_in(peer) || self.in_vain.iter().all(|(known, _)| known != peer)
    }

    /// From now on this is shown, to everybody.
    pub(super) fn show(&mut self, visit: Vec<u8>) {
        self.visit = Some(visit);
        self.number += 1;
        self.shown.clear();
    }

    /// The connected peers to whom it is to be shown now; then it is on its way.
    pub(super) fn take_due(&mut self, peers: &Peers, now: Instant) -> Vec<Due> {
        let (Some(visit), number) = (&self.visit, self.number) else { return Vec::new() };
        let mut due = Vec::new();
        for (peer, connection) in peers.connected_ones() {
            let shown = self.shown.entry(peer).or_insert(Shown::From(now));
            if matches!(*shown, Shown::From(at) if at <= now) && due.len() < SHOWN_AT_ONCE {
                *shown = Shown::Under;
                due.push(Due { peer, connection, number, visit: visit.clone() });
            }
        }
        due
    }

    /// What came of a visit; false where that is of no use any more: the peer has gone since, or there
    /// is something else to show.
    pub(super) fn note(
        &mut self,
        peer: PeerId,
        number: u64,
        response: Response,
        now: Instant,
    ) -> bool {
        let shown = self.shown.get_mut(&peer).filter(|shown| **shown == Shown::Under);
        let Some(shown) = shown.filter(|_| number == self.number) else { return false };
        *shown = match response {
            Response::Welcome | Response::Unknown => Shown::Settled,
            Response::Silent => Shown::From(now + AGAIN),
            Response::Refused => Shown::From(now + REFUSED_AGAIN),
        };
        true
    }
}

impl Guest {
    fn new(peer: PeerId, network: Option<Option<IpAddr>>, now: Instant) -> Self {
        Self { peer, network, until: now + SHOW_PATIENCE, visits: 0 }
    }
}

/// Connections that wait at once, and of one address; those that we dialled not counted.
const PLACES: usize = 16;
const PLACES_PER_NETWORK: usize = 2;
/// What a connection has to show something.
const SHOW_PATIENCE: Duration = Duration::from_secs(5);
/// And from then on until the answer has come: a driver that is busy, and a slow line.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);
/// Visits of one connection, and a second of all that are not let in: each takes a few signatures.
const VISITS_PER_CONNECTION: u32 = 8;
const VISITS_PER_S: u32 = 64;
const VISITS_BURST: u32 = 64;
/// Who did not answer was busy with its start; who refused may hear of a notice.
const AGAIN: Duration = Duration::from_secs(1);
const REFUSED_AGAIN: Duration = Duration::from_secs(10);
const SHOWN_AT_ONCE: usize = 16;
/// Whom we dialled and who had nothing to show. It finds us itself when it has.
const IN_VAIN: Duration = Duration::from_secs(15);
const IN_VAIN_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, sync::Arc};

    use intellect_protocol::base::id::PeerId as Name;
    use libp2p::Multiaddr;

    use super::*;
    use crate::net::{name, peers::Purpose};

    fn peer(seed: u8) -> PeerId {
        name::to_libp2p(Name([seed; 32]))
    }

    fn connection(number: usize, remote: &str, dialled: bool, since: Instant) -> Connection {
        let (id, purpose) = (ConnectionId::new_unchecked(number), Purpose::Control);
        let remote: Multiaddr = remote.parse().unwrap();
        Connection { id, purpose, remote, dialled, relayed: false, since }
    }

    fn invited(seeds: &[u8]) -> Door {
        let these: HashSet<_> = seeds.iter().map(|seed| Name([*seed; 32])).collect();
        Door::Invited(Arc::new(these))
    }

    fn lobby(now: Instant) -> (Lobby, Peers) {
        let peers = Peers::new(peer(255), 1);
        let mut lobby = Lobby::new(now);
        assert!(lobby.set_door(invited(&[1]), &peers, |_| false, now).is_empty());
        (lobby, peers)
    }

    #[test]
    fn strangers_take_sixteen_places_and_two_of_one_address() {
        let now = Instant::now();
        let (mut lobby, _) = lobby(now);
        let mut come = |number: usize, remote: &str, dialled| {
            let seed = u8::try_from(number).unwrap();
            lobby.connected(peer(seed), &connection(number, remote, dialled, now))
        };
        assert!(come(2, "/ip4/203.0.113.1/tcp/1", false));
        assert!(come(3, "/ip4/203.0.113.1/tcp/2", false));
        assert!(!come(4, "/ip4/203.0.113.1/tcp/3", false));
        assert!(come(5, "/ip6/2001:4860:0:1::1/tcp/1", false));
        assert!(come(6, "/ip6/2001:4860:0:1:2::1/tcp/1", false));
        assert!(!come(7, "/ip6/2001:4860:0:1:3::1/tcp/1", false), "the same /64");
        for number in 8..20 {
            assert!(come(number, &format!("/ip4/203.0.113.{number}/tcp/1"), false), "{number}");
        }
        assert!(!come(20, "/ip4/203.0.113.20/tcp/1", false), "the seventeenth");
        // Whom we dial, and who is let in, takes none.
        assert!(come(21, "/ip4/203.0.113.1/tcp/1", true));
        assert!(come(1, "/ip4/203.0.113.1/tcp/1", false));
    }

    #[test]
    fn who_shows_nothing_for_five_seconds_is_closed_and_not_dialled_for_a_while() {
        let now = Instant::now();
        let (mut lobby, _) = lobby(now);
        let (silent, talks) = (connection(2, "/ip4/10.0.0.2/tcp/1", false, now), 3);
        assert!(lobby.connected(peer(2), &silent));
        assert!(lobby.connected(peer(3), &connection(talks, "/ip4/10.0.0.3/tcp/1", false, now)));
        assert!(lobby.connected(peer(1), &connection(1, "/ip4/10.0.0.1/tcp/1", false, now)));
        let talks = ConnectionId::new_unchecked(talks);
        let late = now + SHOW_PATIENCE - Duration::from_millis(1);
        assert!(lobby.over(late).is_empty());
        assert!((0..8).all(|_| lobby.takes_visit(talks, late)));
        assert!(!lobby.takes_visit(talks, late), "the ninth visit");
        let late = now + SHOW_PATIENCE;
        assert_eq!(lobby.over(late), [silent.id]);
        assert!(!lobby.may_dial(&peer(2)) && lobby.may_dial(&peer(3)));
        assert_eq!(lobby.over(late + ANSWER_PATIENCE), [talks], "however often it talks");
        assert!(lobby.over(late + IN_VAIN + ANSWER_PATIENCE).is_empty());
        assert!(lobby.may_dial(&peer(2)));
    }

    #[test]
    fn all_strangers_together_ask_so_much_a_second() {
        let now = Instant::now();
        let (mut lobby, _) = lobby(now);
        let mut taken = 0;
        for number in 2..200_u8 {
            let remote = format!("/ip4/203.0.113.{number}/tcp/1");
            let connection = connection(number.into(), &remote, true, now);
            assert!(lobby.connected(peer(number), &connection));
            taken += (0..8).filter(|_| lobby.takes_visit(connection.id, now)).count();
        }
        assert_eq!(taken, 64);
        // Who is let in is no stranger.
        assert!(lobby.takes_visit(ConnectionId::new_unchecked(1), now));
    }

    #[test]
    fn who_is_let_in_no_longer_is_told_and_who_is_connected_gets_its_time() {
        let now = Instant::now();
        let mut lobby = Lobby::new(now);
        let mut peers = Peers::new(peer(255), 1);
        for seed in 1..=4_u8 {
            let connection = connection(seed.into(), "/ip4/10.0.0.1/tcp/1", false, now);
            assert!(lobby.connected(peer(seed), &connection), "there is no door yet");
            peers.connected(peer(seed), connection);
        }
        let entry = |asked: &PeerId| *asked == peer(4);
        assert!(lobby.set_door(invited(&[1, 2]), &peers, entry, now).is_empty());
        assert_eq!(lobby.set_door(invited(&[1]), &peers, entry, now), [peer(2)]);
        assert_eq!(lobby.over(now + SHOW_PATIENCE), [ConnectionId::new_unchecked(3)]);
        // A guest that is let in meanwhile stays.
        let late = connection(5, "/ip4/10.0.0.1/tcp/1", false, now);
        assert!(lobby.connected(peer(5), &late));
        peers.connected(peer(5), late);
        lobby.set_door(invited(&[1, 5]), &peers, entry, now);
        assert!(lobby.over(now + SHOW_PATIENCE).is_empty());
    }

    #[test]
    fn what_we_have_is_shown_until_it_is_answered() {
        let now = Instant::now();
        let (mut lobby, mut peers) = lobby(now);
        for seed in 1..=3_u8 {
            peers.connected(peer(seed), connection(seed.into(), "/ip4/10.0.0.1/tcp/1", true, now));
        }
        let due = |lobby: &mut Lobby, at| lobby.take_due(&peers, at).len();
        assert_eq!(due(&mut lobby, now), 0, "nothing to show");
        lobby.show(b"a ticket".to_vec());
        assert_eq!(due(&mut lobby, now), 3);
        assert_eq!(due(&mut lobby, now + IN_VAIN), 0, "on its way");
        assert!(lobby.note(peer(1), 1, Response::Welcome, now));
        assert!(lobby.note(peer(2), 1, Response::Silent, now));
        assert!(lobby.note(peer(3), 1, Response::Refused, now));
        assert_eq!(due(&mut lobby, now + AGAIN), 1);
        assert!(lobby.note(peer(2), 1, Response::Unknown, now));
        assert_eq!(due(&mut lobby, now + REFUSED_AGAIN), 1);
        lobby.show(b"another".to_vec());
        assert_eq!(due(&mut lobby, now), 3);
        assert!(!lobby.note(peer(1), 1, Response::Welcome, now), "of what was shown before");
        // Nor does an answer say anything of a new connection.
        lobby.closed(&peer(1), ConnectionId::new_unchecked(1), true);
        assert!(!lobby.note(peer(1), 2, Response::Welcome, now));
        assert_eq!(due(&mut lobby, now), 1);
    }
}
