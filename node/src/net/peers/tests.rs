//! When peers are dialled, and what their connections are used for.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn connection(id: usize, remote: &str, since: Instant) -> Connection {
    let id = ConnectionId::new_unchecked(id);
    let remote = remote.parse().unwrap();
    let relayed = address::is_relayed(&remote);
    Connection { id, purpose: Purpose::Control, remote, dialled: true, relayed, since }
}

/// Two peers, the smaller id first.
fn pair() -> (PeerId, PeerId) {
    let (one, two) = (PeerId::random(), PeerId::random());
    if one.to_bytes() < two.to_bytes() { (one, two) } else { (two, one) }
}

#[test]
fn the_smaller_id_dials_first_and_failures_back_off() {
    let (small, great) = pair();
    let start = Instant::now();
    let mut peers = Peers::new(small, 1);
    assert!(peers.want(great, start) && !peers.want(great, start));
    assert!(!peers.want(small, start), "nobody dials itself");
    assert_eq!(peers.due(start), [great]);
    assert!(peers.due(start + SECOND).is_empty(), "a dial under way is not repeated");
    // A dial of discovery was under way.
    peers.put_off(&great, start);
    assert_eq!(peers.due(start + 2 * SECOND), [great]);
    let mut now = start;
    for _ in 0..FAILURES_MAX {
        peers.failed(&great, now);
        assert!(peers.due(now + SECOND).is_empty());
        now += REDIAL_MAX * 2;
    }
    assert!(peers.due(now).is_empty(), "forgotten");
    peers.sweep();
    assert!(peers.get(&great).is_none());
    let mut peers = Peers::new(great, 1);
    peers.want(small, start);
    assert!(peers.due(start).is_empty());
    assert_eq!(peers.due(start + COURTESY), [small]);
}

/// A friend may start an hour after this node, and nobody else says where.
#[test]
fn a_peer_that_an_earlier_start_reached_is_never_forgotten() {
    let (me, friend) = pair();
    let mut peers = Peers::new(me, 1);
    let mut now = Instant::now();
    peers.know(friend, "/ip4/203.0.113.7/tcp/1".parse().unwrap(), now);
    for _ in 0..2 * FAILURES_MAX {
        assert_eq!(peers.due(now), [friend]);
        peers.failed(&friend, now);
        peers.sweep();
        now += 2 * REDIAL_KNOWN;
    }
}

#[test]
fn names_that_nobody_has_leave_room_for_a_peer_that_exists() {
    let (friend, honest) = pair();
    let start = Instant::now();
    let mut peers = Peers::new(PeerId::random(), 1);
    peers.know(friend, "/ip4/203.0.113.7/tcp/1".parse().unwrap(), start);
    (0..2).for_each(|_| peers.failed(&friend, start));
    for _ in 0..600 {
        let invented = PeerId::random();
        assert!(peers.want(invented, start));
        peers.failed(&invented, start);
    }
    assert!(peers.want(honest, start));
    peers.sweep();
    assert_eq!(peers.iter().count(), WANTED_MAX);
    assert!(peers.get(&friend).is_some() && peers.get(&honest).is_some());
}

/// Hole punching is tried again, and a port that a router forwards later is used.
#[test]
fn a_peer_that_only_a_relay_reaches_is_dialled_again() {
    let (me, other) = pair();
    let start = Instant::now();
    let mut peers = Peers::new(me, 1);
    peers.want(other, start);
    assert_eq!(peers.due(start), [other]);
    let circuit = format!("/ip4/203.0.113.7/tcp/1/p2p/{me}/p2p-circuit");
    peers.connected(other, connection(1, &circuit, start));
    assert!(peers.due(start + SECOND).is_empty(), "a hole is being punched");
    peers.listens(&other, vec!["/ip4/203.0.113.9/tcp/1".parse().unwrap()], start + SECOND);
    assert_eq!(peers.due(start + SECOND), [other], "there is a new way");
    peers.listens(&other, vec!["/ip4/203.0.113.9/tcp/1".parse().unwrap()], start + SECOND);
    assert!(peers.due(start + 2 * SECOND).is_empty());
    let again = start + SECOND + REDIAL_MAX;
    assert_eq!(peers.due(again), [other]);
    peers.connected(other, connection(2, &circuit, again));
    assert!(peers.due(again + PUNCHED).is_empty(), "twice as long as after the first");
    assert_eq!(peers.due(again + 3 * PUNCHED), [other]);
    assert!(peers.duplicates(again + PUNCHED).is_empty());
    assert_eq!(peers.duplicates(again + 2 * PUNCHED), [ConnectionId::new_unchecked(2)]);
    peers.connected(other, connection(3, "/ip4/203.0.113.9/tcp/1", again));
    assert!(peers.due(again + 2 * REDIAL_MAX).is_empty(), "reached");
}

#[test]
fn the_smaller_id_closes_the_younger_of_two_control_connections() {
    let (small, great) = pair();
    let start = Instant::now();
    for (me, other, mine) in [(small, great, true), (great, small, false)] {
        let mut peers = Peers::new(me, 1);
        peers.connected(other, connection(1, "/ip4/10.0.0.1/tcp/1", start));
        peers.connected(other, connection(2, "/ip4/10.0.0.1/tcp/2", start + SECOND));
        let ring = peers.connected(other, connection(3, "/ip4/10.0.0.1/tcp/3", start));
        ring.connections[2].purpose = Purpose::Ring;
        assert!(peers.duplicates(start + SETTLED).is_empty(), "may become a ring connection");
        let closed = peers.duplicates(start + SETTLED + SECOND);
        let expected = if mine { vec![ConnectionId::new_unchecked(2)] } else { vec![] };
        assert_eq!(closed, expected);
    }
}

#[test]
fn a_replaced_control_stream_is_no_lost_peer_and_a_relay_is_no_direct_link() {
    let (me, other) = pair();
    let start = Instant::now();
    let mut peers = Peers::new(me, 1);
    let circuit = format!("/ip4/203.0.113.7/tcp/1/p2p/{me}/p2p-circuit");
    let peer = peers.connected(other, connection(1, &circuit, start));
    assert_eq!(peer.link(), None);
    peer.member = true;
    assert_eq!(peer.link(), Some(Link::Relayed));
    assert!(peer.control().is_none());
    assert_eq!(peer.used(), Some(ConnectionId::new_unchecked(1)));
    let peer = peers.connected(other, connection(2, "/ip4/10.0.0.1/tcp/2", start));
    assert_eq!(peer.link(), Some(Link::Relayed), "not before its control stream is up");
    peer.stream = ControlStream::Up(ConnectionId::new_unchecked(2));
    assert_eq!(peer.link(), Some(Link::Direct));
    assert_eq!(peer.used(), Some(ConnectionId::new_unchecked(2)));
    peer.shown = Some(Link::Direct);
    peer.stream = ControlStream::Down(start);
    assert_eq!(peer.link(), Some(Link::Direct));
    peers.closed(&other, ConnectionId::new_unchecked(2), start);
    assert_eq!(peers.get(&other).unwrap().link(), Some(Link::Relayed));
    peers.closed(&other, ConnectionId::new_unchecked(1), start);
    assert_eq!(peers.get(&other).unwrap().link(), None);
}

#[test]
fn ring_addresses_are_direct_unique_and_split_by_transport() {
    let (me, other) = pair();
    let mut peers = Peers::new(me, 1);
    let peer = peers.connected(other, connection(1, "/ip4/10.0.0.1/tcp/1", Instant::now()));
    peer.addresses = [
        format!("/ip4/10.0.0.1/tcp/1/p2p/{other}"),
        "/ip4/10.0.0.2/udp/2/quic-v1".into(),
        format!("/ip4/203.0.113.7/tcp/1/p2p/{me}/p2p-circuit"),
    ]
    .map(|text| text.parse().unwrap())
    .into();
    let direct = peer.direct_addresses();
    assert!(direct.len() == 2 && address::is_tcp(&direct[0]) && !address::is_tcp(&direct[1]));
    assert!(peer.next_addresses().iter().all(address::is_tcp));
    peers.failed(&other, Instant::now());
    assert_eq!(peers.get(&other).unwrap().next_addresses().len(), 3);
}

#[test]
fn the_eighth_fault_is_one_too_many() {
    let mut peer = Peer::new(Instant::now());
    let counted = (1..=20).find(|_| peer.fault(Severity::Minor));
    assert_eq!(counted, Some(FAULTS_MAX));
    assert!(Peer::new(Instant::now()).fault(Severity::Grave));
}

#[test]
fn a_peer_counts_for_its_network_or_for_that_of_all_relays() {
    let (start, peer) = (Instant::now(), PeerId::random());
    let mut peers = Peers::new(PeerId::random(), 1);
    let circuit = format!("/ip4/203.0.113.9/tcp/1/p2p/{}/p2p-circuit", PeerId::random());
    let mut network =
        |id, remote: &str| peers.connected(peer, connection(id, remote, start)).network();
    assert_eq!(network(1, &circuit), Some(RELAYED));
    assert_eq!(network(2, "/ip4/10.0.0.1/tcp/1"), None);
    assert_eq!(network(3, "/ip4/203.0.113.7/tcp/1"), Some(IpAddr::from([203, 0, 113, 7])));
}
