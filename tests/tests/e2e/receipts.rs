//! What a peer did counts: its receipts leave its folder, and prove themselves elsewhere.

use std::{fs, time::Duration};

use e2e::{SMALL, Story};
use serde_json::Value;

use crate::story;

const PATIENCE: Duration = Duration::from_secs(120);

/// Runs two peers for three epochs, and returns the peer ids in their events.
fn train(story: &Story, out: &str, seed: &str) -> [String; 2] {
    let folder = story.text(out);
    let mut line = vec!["sim", "--peers", "2", "--epochs", "3", "--seed", seed, "--out", &folder];
    line.extend(SMALL.iter().flat_map(|setting| ["--set", setting]));
    story.node_within(&line, PATIENCE).unwrap().expect_success().unwrap();
    [0, 1].map(|peer| {
        let events = story.path(out).join(format!("peer-{peer}/events.jsonl"));
        let events = fs::read_to_string(events).unwrap();
        let first: Value = serde_json::from_str(events.lines().next().unwrap()).unwrap();
        first["peer"].as_str().unwrap().to_owned()
    })
}

/// The tokens that `receipts verify` counts.
fn tokens(told: &str) -> u64 {
    let work = told.lines().find_map(|line| line.strip_prefix("work ")).unwrap();
    let digits: String = work.split(" tokens").next().unwrap().split_whitespace().collect();
    digits.parse().unwrap()
}

#[test]
fn receipts_of_a_run_are_proven_without_its_folders() {
    let story = story();
    let peers = train(&story, "run", "5");
    train(&story, "other", "6");
    let receipts = |verb: &str, folder: &str, peer: &str, out: &str| {
        let (data, out) = (story.text(folder), story.text(out));
        let mut line = vec!["receipts", verb, "--data-dir", &data, "--out", &out];
        line.extend(if verb == "export" { vec!["--peer", peer] } else { Vec::new() });
        story.node(&line).unwrap().expect_success().unwrap();
        out
    };
    // One folder exports both peers, and the other folder has the chain.
    let short = |peer: &String| peer[peer.len() - 6..].to_owned();
    let files =
        peers.each_ref().map(|peer| receipts("export", "run/peer-0/data", &short(peer), peer));
    let data = story.text("run/peer-0/data");
    let done = story.node(&["receipts", "export", "--data-dir", &data, "--peer", "nobody"]);
    done.unwrap().expect_failure(1, &["names a peer whose name ends in nobody"]).unwrap();
    let chain = receipts("chain", "run/peer-1/data", "", "chain");
    let foreign = receipts("chain", "other/peer-0/data", "", "foreign");
    let events = fs::read_to_string(story.path("run/peer-0/events.jsonl")).unwrap();
    let mut committed = events.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let committed = committed.rfind(|event| event["event"] == "committed").unwrap();
    fs::remove_dir_all(story.path("run")).unwrap();
    let sum: u64 = files
        .iter()
        .zip(&peers)
        .map(|(file, peer)| {
            let done = story.node(&["receipts", "verify", file, "--chain", &chain]).unwrap();
            let told = done.expect_success().unwrap().out;
            assert!(told.contains(peer) && told.contains("not proved"), "{told}");
            tokens(&told)
        })
        .sum();
    assert_eq!(Some(sum), committed["tokens"].as_u64(), "every token is somebody's");
    let done = story.node(&["receipts", "verify", &files[0], "--chain", &foreign]).unwrap();
    done.expect_failure(1, &["take the chain of the same run"]).unwrap();
    let mut bytes = fs::read(&files[0]).unwrap();
    bytes.truncate(bytes.len() - 64);
    fs::write(story.path("cut"), bytes).unwrap();
    let done = story.node(&["receipts", "verify", &story.text("cut")]).unwrap();
    done.expect_failure(1, &["proves nothing", "ends before the signature"]).unwrap();
}
