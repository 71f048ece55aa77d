//! Connections that wait to be admitted, and what they may ask for.

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

fn invited(seeds: &[u8]) -> AllowList {
    let these: HashSet<_> = seeds.iter().map(|seed| Name([*seed; 32])).collect();
    AllowList::Only(Arc::new(these))
}

fn pending(now: Instant) -> (Pending, Peers) {
    let peers = Peers::new(peer(255), 1);
    let mut pending = Pending::new(now);
    assert!(pending.set_allow_list(invited(&[1]), &peers, |_| false, now).is_empty());
    (pending, peers)
}

#[test]
fn pending_connections_take_sixteen_slots_and_two_of_one_address() {
    let now = Instant::now();
    let (mut pending, _) = pending(now);
    let mut come = |number: usize, remote: &str, dialled| {
        let seed = u8::try_from(number).unwrap();
        pending.connected(peer(seed), &connection(number, remote, dialled, now))
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
    // Peers that we dial or allow take none.
    assert!(come(21, "/ip4/203.0.113.1/tcp/1", true));
    assert!(come(1, "/ip4/203.0.113.1/tcp/1", false));
}

#[test]
fn a_connection_without_a_request_is_closed_after_five_seconds_and_not_dialled_for_a_while() {
    let now = Instant::now();
    let (mut pending, _) = pending(now);
    let (silent, talks) = (connection(2, "/ip4/10.0.0.2/tcp/1", false, now), 3);
    assert!(pending.connected(peer(2), &silent));
    assert!(pending.connected(peer(3), &connection(talks, "/ip4/10.0.0.3/tcp/1", false, now)));
    assert!(pending.connected(peer(1), &connection(1, "/ip4/10.0.0.1/tcp/1", false, now)));
    let talks = ConnectionId::new_unchecked(talks);
    let late = now + REQUEST_TIMEOUT - Duration::from_millis(1);
    assert!(pending.over(late).is_empty());
    assert!((0..8).all(|_| pending.takes_request(talks, late)));
    assert!(!pending.takes_request(talks, late), "the ninth request");
    let late = now + REQUEST_TIMEOUT;
    assert_eq!(pending.over(late), [silent.id]);
    assert!(!pending.may_dial(&peer(2)) && pending.may_dial(&peer(3)));
    assert_eq!(pending.over(late + ANSWER_TIMEOUT), [talks], "however often it talks");
    assert!(pending.over(late + IGNORED_FOR + ANSWER_TIMEOUT).is_empty());
    assert!(pending.may_dial(&peer(2)));
}

#[test]
fn all_pending_connections_share_one_rate() {
    let now = Instant::now();
    let (mut pending, _) = pending(now);
    let mut taken = 0;
    for number in 2..200_u8 {
        let remote = format!("/ip4/203.0.113.{number}/tcp/1");
        let connection = connection(number.into(), &remote, true, now);
        assert!(pending.connected(peer(number), &connection));
        taken += (0..8).filter(|_| pending.takes_request(connection.id, now)).count();
    }
    assert_eq!(taken, 64);
    // A peer on the allow list is not limited.
    assert!(pending.takes_request(ConnectionId::new_unchecked(1), now));
}

#[test]
fn all_connections_to_an_open_run_share_one_rate() {
    let now = Instant::now();
    let mut open = Pending::new(now);
    let id = ConnectionId::new_unchecked;
    assert!(!open.takes_request(id(1), now), "it has not joined a run");
    let peers = Peers::new(peer(255), 1);
    assert!(open.set_allow_list(AllowList::Everybody, &peers, |_| false, now).is_empty());
    assert_eq!((0..64).filter(|_| open.takes_request(id(1), now)).count(), 8);
    assert_eq!((0..640).filter(|n| open.takes_request(id(2 + n % 64), now)).count(), 56);
    open.closed(&peer(2), id(1), true);
    assert!(open.takes_request(id(1), now + Duration::from_secs(1)));
}

#[test]
fn a_removed_peer_is_returned_and_a_connected_one_gets_its_time() {
    let now = Instant::now();
    let mut pending = Pending::new(now);
    let mut peers = Peers::new(peer(255), 1);
    for seed in 1..=4_u8 {
        let connection = connection(seed.into(), "/ip4/10.0.0.1/tcp/1", false, now);
        assert!(pending.connected(peer(seed), &connection), "there is no list yet");
        peers.connected(peer(seed), connection);
    }
    let entry = |asked: &PeerId| *asked == peer(4);
    assert!(pending.set_allow_list(invited(&[1, 2]), &peers, entry, now).is_empty());
    assert_eq!(pending.set_allow_list(invited(&[1]), &peers, entry, now), [peer(2)]);
    assert_eq!(pending.over(now + REQUEST_TIMEOUT), [ConnectionId::new_unchecked(3)]);
    // A pending connection whose peer is allowed meanwhile stays.
    let late = connection(5, "/ip4/10.0.0.1/tcp/1", false, now);
    assert!(pending.connected(peer(5), &late));
    peers.connected(peer(5), late);
    pending.set_allow_list(invited(&[1, 5]), &peers, entry, now);
    assert!(pending.over(now + REQUEST_TIMEOUT).is_empty());
}

fn reply(outcome: Outcome) -> Result<Reception, Unanswered> {
    Ok(Reception { outcome, epoch: 7, notice: None })
}

#[test]
fn our_request_is_sent_until_it_is_answered() {
    let now = Instant::now();
    let (mut pending, mut peers) = pending(now);
    for seed in 1..=3_u8 {
        peers.connected(peer(seed), connection(seed.into(), "/ip4/10.0.0.1/tcp/1", true, now));
    }
    let due = |pending: &mut Pending, at| pending.take_due(&peers, at).len();
    assert_eq!(due(&mut pending, now), 0, "no request");
    pending.set_request(b"a ticket".to_vec());
    assert_eq!(due(&mut pending, now), 3);
    assert_eq!(due(&mut pending, now + IGNORED_FOR), 0, "not answered yet");
    let welcome = reply(Outcome::Welcome);
    assert!(pending.note(peer(1), 1, &welcome, now));
    assert!(pending.note(peer(2), 1, &Err(Unanswered::Silent), now));
    assert!(pending.note(peer(3), 1, &reply(Outcome::refused(&"no use left")), now));
    assert_eq!(due(&mut pending, now + AGAIN), 1);
    assert!(pending.note(peer(2), 1, &Err(Unanswered::Unknown), now));
    assert_eq!(due(&mut pending, now + REFUSED_AGAIN), 1);
    pending.set_request(b"another".to_vec());
    assert_eq!(due(&mut pending, now), 3);
    assert!(!pending.note(peer(1), 1, &welcome, now), "of the request before");
    // Nor does an answer count for a new connection.
    pending.closed(&peer(1), ConnectionId::new_unchecked(1), true);
    assert!(!pending.note(peer(1), 2, &welcome, now));
    assert_eq!(due(&mut pending, now), 1);
}
