//! Peers that are not heard any more, and entry points where another peer answers.

use super::*;

/// Gossip skips it, for our own messages and for those of others. Direct messages arrive, and once it is heard
/// again all do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_peer_gets_direct_messages_and_nothing_else() {
    let entry = entry(113, "/ip4/127.0.0.1/tcp/0").await;
    let mut nodes = run_of(3, &entry).await;
    let silent = nodes[2].id;
    for node in &nodes[..2] {
        node.net.handle.note_silent([silent].into());
    }
    // Until both have heard of it.
    tokio::time::sleep(Duration::from_secs(1)).await;
    nodes[0].net.handle.gossip(Topic::Ctl, b"for the living".to_vec()).unwrap();
    assert!(nodes[1].hears(b"for the living").await.1 != Via::Direct);
    nodes[0].net.handle.send(silent, b"we live".to_vec()).unwrap();
    let first = nodes[2].until("a word", |event| match event {
        Event::Message { bytes, via, .. } => Some((bytes.clone(), via.clone())),
        _ => None,
    });
    assert_eq!(first.await, (b"we live".to_vec(), Via::Direct));
    let more = timeout(Duration::from_secs(2), nodes[2].hears(b"for the living")).await;
    assert!(more.is_err(), "it was passed on");

    for node in &nodes[..2] {
        node.net.handle.note_silent(BTreeSet::new());
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    nodes[0].net.handle.gossip(Topic::Ctl, b"welcome".to_vec()).unwrap();
    nodes[2].hears(b"welcome").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_point_where_another_peer_answers_is_reported() {
    let other = entry(114, "/ip4/127.0.0.1/tcp/0").await;
    let address = other.address.to_string();
    let (bare, there) = address.split_once("/p2p/").unwrap();
    let wrong = format!("{bare}/p2p/{}", libp2p::PeerId::random()).parse().unwrap();
    let mut node = Node::new(1, &[wrong]);
    let reported = node.until("a word about it", |event| match event {
        Event::Impostor { address, found } => Some((address.clone(), found.clone())),
        _ => None,
    });
    let (at, found) = reported.await;
    assert!(at.starts_with(bare) && found == there, "{at}, {found}");
}
