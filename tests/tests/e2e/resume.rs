//! Nodes are killed at any moment, and go on from what their disks have.

use std::{fs, path::PathBuf, time::Duration};

use e2e::{Process, Story};
use serde_json::Value;

use crate::story;

const PATIENCE: Duration = Duration::from_secs(60);

/// Short timers; and nobody goes on without the others before they are back.
const SETTINGS: [&str; 3] =
    ["members.heartbeat_ms=200", "members.min_peers=3", "members.minority_grace_ms=20000"];

/// Three nodes of one run, and where to enter it.
struct Run {
    story: Story,
    bootstrap: Process,
    entry: String,
    nodes: Vec<Process>,
}

const NAMES: [&str; 3] = ["one", "two", "three"];

impl Run {
    fn begin() -> Self {
        let story = story();
        let manifest = story.manifest("run.toml", &SETTINGS).unwrap();
        let (bootstrap, entry) = story.start_bootstrap(&[manifest]).unwrap();
        let nodes = NAMES.map(|name| story.start_node(name, &entry, &[]).unwrap()).into();
        Self { story, bootstrap, entry, nodes }
    }

    fn start(&mut self, node: usize) {
        self.nodes[node] = self.story.start_node(NAMES[node], &self.entry, &[]).unwrap();
    }

    /// A file or folder of the run in a node's data folder.
    fn file(&self, node: usize, name: &str) -> PathBuf {
        let runs = self.story.path(NAMES[node]).join("data/runs");
        let run = fs::read_dir(runs).unwrap().next().unwrap().unwrap();
        run.path().join(name)
    }

    fn started(&self, node: usize) -> Vec<Value> {
        let events = self.nodes[node].events().unwrap();
        events.into_iter().filter(|event| event["event"] == "started").collect()
    }

    /// The epoch that a node has committed last.
    fn head(&self, node: usize) -> u64 {
        let events = self.nodes[node].events().unwrap();
        let committed = events.iter().filter(|event| event["event"] == "committed");
        committed.filter_map(|event| event["epoch"].as_u64()).max().unwrap_or(0)
    }

    /// Waits for a node's next start to say what it goes on from.
    fn wait_for_start(&mut self, node: usize, starts: usize) -> Value {
        let incarnation = self.started(node)[starts - 2]["incarnation"].as_u64().unwrap();
        self.nodes[node]
            .wait_for(PATIENCE, |event| {
                event["event"] == "started" && event["incarnation"].as_u64() > Some(incarnation)
            })
            .unwrap()
    }

    /// Waits until all have committed one more epoch with the work of all, and checks that they
    /// agree on every one, before and after.
    fn expect_agreement_after(&mut self, epoch: u64) {
        for node in &mut self.nodes {
            node.wait_for(PATIENCE, |event| {
                event["event"] == "committed"
                    && event["epoch"].as_u64() > Some(epoch)
                    && event["weights"].as_array().is_some_and(|weights| {
                        weights.len() == 3 && weights.iter().all(|weight| weight != 0)
                    })
            })
            .unwrap();
        }
        let mut states: Vec<(u64, String)> = Vec::new();
        for event in self.nodes.iter().flat_map(|node| node.events().unwrap()) {
            assert!(event["event"] != "fork" && event["event"] != "diverged", "{event}");
            if event["event"] == "committed" {
                let epoch = event["epoch"].as_u64().unwrap();
                let state = event["state"].as_str().unwrap().to_owned();
                states.push((epoch, state));
            }
        }
        states.sort();
        states.dedup();
        assert!(states.windows(2).all(|pair| pair[0].0 != pair[1].0), "{states:?}");
    }
}

#[test]
fn a_killed_peer_comes_back_as_the_same_voter_without_a_bootstrap() {
    let mut run = Run::begin();
    run.nodes[2].wait_for_commit(3, PATIENCE).unwrap();
    run.nodes[2].kill().unwrap();
    run.bootstrap.kill().unwrap();
    let head = run.head(2);
    run.nodes[2] = run.story.resume_node(NAMES[2], &[]).unwrap();
    let again = run.wait_for_start(2, 2);
    let first = &run.started(2)[0];
    // Votes and state are those of before: nothing that it had is fetched.
    assert_eq!(again["log"], first["log"]);
    assert!(again["epoch"].as_u64() >= Some(head), "{again}, killed at {head}");
    run.expect_agreement_after(head + 1);
}

#[test]
fn a_run_of_which_all_were_killed_goes_on_where_it_was() {
    let mut run = Run::begin();
    run.nodes[0].wait_for_commit(4, PATIENCE).unwrap();
    for node in &mut run.nodes {
        node.kill().unwrap();
    }
    let heads: Vec<u64> = (0..3).map(|node| run.head(node)).collect();
    for node in 0..3 {
        run.start(node);
    }
    for node in 0..3 {
        let again = run.wait_for_start(node, 2);
        assert_eq!(again["log"], run.started(node)[0]["log"], "node {node}");
        assert!(again["epoch"].as_u64() >= Some(heads[node]), "{again} {heads:?}");
    }
    run.expect_agreement_after(heads.into_iter().max().unwrap());
    // Nothing was missing on any of them, and nobody was given up.
    for node in &run.nodes {
        let events = node.events().unwrap();
        let after = events.iter().rev().take_while(|event| event["event"] != "started");
        let strange = after.filter(|e| e["event"] == "sync" || e["event"] == "regroup").count();
        assert_eq!(strange, 0, "{events:?}");
    }
}
