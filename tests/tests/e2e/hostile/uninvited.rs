//! A stranger at a run of invited peers: whatever it speaks, it gets the manifest and nothing else.

use std::time::Duration;

use libp2p::StreamProtocol;

use super::stranger::{CONTROL, RING, Stranger, VERSION};
use super::{PATIENCE, name};
use crate::{
    invited::{invite, organise},
    story,
};

#[test]
fn a_stranger_hears_nothing_of_a_run_of_invited_peers_and_is_let_go() {
    let story = story();
    let organiser = organise(&story);
    let (_bootstrap, entry) = story.start_bootstrap(&[story.path("run.toml")]).unwrap();
    let code = invite(&story, &organiser, "2");
    let mut one = story.start_node("one", &entry, &["--invite", &code]).unwrap();
    let mut two = story.start_node("two", &entry, &["--invite", &code]).unwrap();
    one.wait_for_commit(1, PATIENCE).unwrap();
    two.wait_for_commit(1, PATIENCE).unwrap();

    let mut stranger = Stranger::new(190, &mut one, VERSION);
    for _ in 0..3 {
        let host = stranger.dial(&mut one);
        stranger.live(Duration::from_secs(1));
        stranger.gossip(true, vec![7; 100]);
        for protocol in [CONTROL, RING, StreamProtocol::new("/intellect/fetch/2")] {
            drop(stranger.open_and_write(host, protocol, &[0xff; 64]));
        }
        // The node gives it five seconds.
        stranger.live(Duration::from_secs(8));
        assert!(!stranger.side.swarm.is_connected(&host), "it is still there");
    }
    assert!(stranger.side.heard.is_empty(), "{}", stranger.side.heard.len());
    let (who, honest) = (stranger.name(), [name(&one), name(&two)]);
    for node in [&one, &two] {
        for event in node.events().unwrap() {
            let kind = event["event"].as_str().unwrap();
            assert!(!["fault", "peer-lost"].contains(&kind), "{event}");
            assert!(kind != "peer-found" || event["who"] != *who, "{event}");
            let members = event["members"].as_array();
            let all = members.into_iter().flatten().all(|peer| honest.iter().any(|h| *peer == **h));
            assert!(all, "{event}");
        }
    }
}
