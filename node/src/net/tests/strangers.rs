//! What peers that are no members can take of this node, with many keys.

use std::collections::BTreeSet;

use futures::io::Cursor;
use libp2p::gossipsub::{MessageId, TopicHash};

use super::*;
use crate::net::limits::strangers::Strangers;
use crate::net::members::{Members, Output};
use crate::net::peers::{Connection, Peers, Purpose};

/// Each key stays within its own limits, and all of them together exceed those of strangers.
#[test]
fn gossip_of_strangers_is_bounded_together_and_that_of_a_member_is_not() {
    let (now, strangers) = (Instant::now(), Strangers::default());
    let mut members = Members::new(Peers::new(libp2p::PeerId::random(), 1), now);
    let mut read = |seed: u8, named: &BTreeSet<PeerId>| {
        let author = PeerId([seed; 32]);
        let peer = name::to_libp2p(author);
        let remote = format!("/ip4/203.0.113.{}/tcp/1", seed % 4).parse().unwrap();
        let id = libp2p::swarm::ConnectionId::new_unchecked(seed.into());
        let (purpose, dialled, relayed) = (Purpose::Control, false, false);
        members.connected(peer, Connection { id, purpose, remote, dialled, relayed, since: now });
        let bytes = [&[0_u8; 5][..], &author.0].concat();
        let brings = |_: &u8| {
            let (id, topic) = (MessageId::from(vec![seed]), TopicHash::from_raw("beat"));
            let token = GossipToken { id, source: peer, topic, bytes: bytes.len() };
            let out = members.gossiped(token, bytes.clone(), named, &strangers, now);
            assert!(!out.iter().any(|out| matches!(out, Output::Emit(Event::Fault { .. }))));
            matches!(out[..], [Output::Emit(Event::Message { .. })])
        };
        (0..200).filter(brings).count()
    };
    let named = BTreeSet::from([PeerId([1; 32])]);
    assert_eq!(read(2, &BTreeSet::new()), 200, "a run without members has no strangers");
    let near = [3, 7, 11, 15].map(|seed| read(seed, &named));
    assert_eq!(near, [200, 200, 112, 0], "the keys of one address");
    let elsewhere = [4, 5, 6].map(|seed| read(seed, &named));
    assert_eq!(elsewhere, [200, 200, 112], "all together");
    assert_eq!(read(1, &named), 200);
}

/// The frames of strangers end up in memory, and nobody takes them out.
#[tokio::test]
async fn long_frames_of_strangers_leave_their_room_to_members() {
    let (shared, member) = (Shared::new(0), PeerId([1; 32]));
    shared.members.send_replace(BTreeSet::from([member]));
    let frame = [&MESSAGE_BYTES_MAX.to_le_bytes()[..], &vec![0; 1 << 20]].concat();
    let read = async |peer: PeerId| {
        let mut stream = Cursor::new(&frame[..]);
        let read = shared.room(&peer).read(&mut stream, MESSAGE_BYTES_MAX);
        timeout(Duration::from_millis(500), read).await
    };
    let mut kept = Vec::new();
    while let Ok(whole) = read(PeerId([2; 32])).await {
        kept.push(whole.unwrap());
    }
    assert_eq!(kept.len(), 32);
    assert!(read(member).await.is_ok());
}

/// Strangers come and go as they like, and each time they are asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_is_asked_for_its_notices_once_at_a_time() {
    let entry = entry(114, "/ip4/127.0.0.1/tcp/0").await;
    let nodes = run_of(2, &entry).await;
    let (handle, peer) = (&nodes[0].net.handle, nodes[1].id);
    let both = futures::join!(handle.notices(peer, RUN), handle.notices(peer, RUN));
    assert!(matches!(both, (Ok(_), Err(Failure::Refused))), "{both:?}");
    // The permit comes back a moment after the answer.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(handle.notices(peer, RUN).await.is_ok());
}
