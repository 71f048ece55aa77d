//! Peers that are not heard any more, and entry points that are somebody else.

use super::*;

/// Nothing is gossiped to it, neither our own word nor another's; what is for it alone arrives, and once it is
/// heard again so does all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_peer_is_told_that_we_live_and_nothing_else() {
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
async fn an_entry_point_that_is_somebody_else_is_told_of() {
    let other = entry(114, "/ip4/127.0.0.1/tcp/0").await;
    let address = other.address.to_string();
    let (bare, there) = address.split_once("/p2p/").unwrap();
    let wrong = format!("{bare}/p2p/{}", libp2p::PeerId::random()).parse().unwrap();
    let mut node = Node::new(1, &[wrong]);
    let told = node.until("a word about it", |event| match event {
        Event::Impostor { address, found } => Some((address.clone(), found.clone())),
        _ => None,
    });
    let (at, found) = told.await;
    assert!(at.starts_with(bare) && found == there, "{at}, {found}");
}
