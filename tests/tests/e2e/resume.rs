//! Nodes are killed at any moment, and go on from what their disks have.

use std::{
    env,
    ffi::OsStr,
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use e2e::{Process, Story};
use serde_json::Value;

use crate::story;

const PATIENCE: Duration = Duration::from_secs(60);

/// Short timers; and no node goes on without the others before they are back.
const SETTINGS: [&str; 3] =
    ["members.heartbeat_ms=200", "members.min_peers=3", "members.minority_grace_ms=20000"];

/// Three nodes of one run, and its entry address.
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

    /// Kills a node, changes something on its disk, and starts it again. Returns the epoch that it
    /// had committed, and the event of its start.
    fn resume_after(&mut self, node: usize, change: impl FnOnce(&Self)) -> (u64, Value) {
        let starts = self.started(node).len();
        let head = self.head(node);
        self.nodes[node].wait_for_commit(head + 2, PATIENCE).unwrap();
        self.nodes[node].kill().unwrap();
        let head = self.head(node);
        change(self);
        self.start(node);
        (head, self.wait_for_start(node, starts + 1))
    }

    fn newest_checkpoint(&self, node: usize) -> PathBuf {
        let files = fs::read_dir(self.file(node, "checkpoints")).unwrap();
        let paths = files.map(|file| file.unwrap().path());
        let states = paths.filter(|path| path.extension() == Some(OsStr::new("ckpt")));
        states.max_by_key(|path| fs::metadata(path).unwrap().modified().unwrap()).unwrap()
    }

    /// The files of a node that were set aside, by name.
    fn damaged(&self, node: usize) -> Vec<String> {
        let files = fs::read_dir(self.file(node, "damaged")).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    /// Waits for the event of a node's next start.
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
    // No file was missing on any of them, and no peer was given up.
    for node in &run.nodes {
        let events = node.events().unwrap();
        let after = events.iter().rev().take_while(|event| event["event"] != "started");
        let strange = after.filter(|e| e["event"] == "sync" || e["event"] == "regroup").count();
        assert_eq!(strange, 0, "{events:?}");
    }
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

/// Each damage is found by a digest, reported, and costs as little as possible.
#[test]
fn what_a_disk_has_damaged_is_set_aside_and_the_node_goes_on() {
    let mut run = Run::begin();
    run.nodes[2].wait_for_commit(2, PATIENCE).unwrap();
    // The newest state is damaged: the one before is used, with the outer steps after it.
    let (head, again) = run.resume_after(2, |run| {
        let path = run.newest_checkpoint(2);
        let last = fs::metadata(&path).unwrap().len() - 1;
        flip(&path, usize::try_from(last).unwrap());
    });
    assert!(again["epoch"].as_u64() >= Some(head), "{again}, killed at {head}");
    let log = again["log"].clone();
    assert_eq!(log, run.started(2)[0]["log"]);
    // The tail of the votes, as a power cut leaves it.
    let (_, again) = run.resume_after(2, |run| {
        let mut votes = File::options().append(true).open(run.file(2, "votes.log")).unwrap();
        votes.write_all(&[200, 0, 0, 0, 1, 2, 3]).unwrap();
    });
    assert_eq!(again["log"], log);
    // R19: votes that cannot be read may have been given, so the old voter never votes again.
    let (head, again) = run.resume_after(2, |run| flip(&run.file(2, "votes.log"), 90));
    assert_ne!(again["log"], log);
    assert!(again["epoch"].as_u64() >= Some(head), "{again}, killed at {head}");
    run.expect_agreement_after(head + 1);
    let damaged = run.damaged(2);
    assert!(damaged.len() == 2 && damaged[1] == "votes.log.2", "{damaged:?}");
    let events = run.nodes[2].events().unwrap();
    let told: Vec<_> = events.iter().filter(|event| event["event"] == "disk").collect();
    assert_eq!(told.len(), 2, "{told:?}");
    // Without its log it would not be bound by what it says, so it ends.
    fs::remove_dir_all(run.story.path(NAMES[2]).join("data/runs")).unwrap();
    let done = run.nodes.remove(2).wait(PATIENCE).unwrap();
    let words = ["is gone: if its disk was unplugged", "whole line (--bootstrap …)"];
    done.expect_failure(1, &words).unwrap();
    run.nodes.push(run.story.start_node(NAMES[2], &run.entry, &[]).unwrap());
    let head = run.head(0);
    run.expect_agreement_after(head + 1);
}

/// Makes `votes.log` the longest file of a node, with records of starts, which bind nobody.
fn pad(votes: &Path, bytes: u64) {
    let mut file = File::options().append(true).open(votes).unwrap();
    let record: Vec<u8> = [1].into_iter().chain(7_u64.to_le_bytes()).collect();
    let body = [&9_u32.to_le_bytes(), record.as_slice()].concat();
    let hash = blake3::hash(&body);
    let batch =
        [&u32::try_from(body.len()).unwrap().to_le_bytes(), &hash.as_bytes()[..16], &body].concat();
    let count = usize::try_from(bytes).unwrap() / batch.len();
    file.write_all(&batch.repeat(count)).unwrap();
}

/// A full disk: no vote leaves before it is on disk, training and following go on,
/// and the user gets a message.
#[test]
fn a_node_whose_votes_cannot_be_written_is_silent_until_they_can() {
    let mut run = Run::begin();
    run.nodes[2].wait_for_commit(1, PATIENCE).unwrap();
    run.resume_after(2, |run| pad(&run.file(2, "votes.log"), 700_000));
    let head = run.head(2);
    run.expect_agreement_after(head);
    let length = fs::metadata(run.file(2, "votes.log")).unwrap().len();
    run.nodes[2].limit_files(Some(length)).unwrap();
    let told = run.nodes[2].wait_for(PATIENCE, |event| event["event"] == "disk").unwrap();
    assert!(told["error"].as_str().unwrap().contains("votes.log"), "{told}");
    let waits = |event: &Value| event["event"] == "waiting" && event["reason"] == "disk";
    run.nodes[2].wait_for(PATIENCE, waits).unwrap();
    // The others go on without its vote, and it follows them by their updates.
    let after = run.head(0) + 3;
    run.nodes[0].wait_for_commit(after, PATIENCE).unwrap();
    let follows = |event: &Value| {
        let kinds = ["committed", "caught-up"];
        kinds.iter().any(|kind| event["event"] == *kind) && event["epoch"].as_u64() >= Some(after)
    };
    run.nodes[2].wait_for(PATIENCE, follows).unwrap();
    assert_eq!(fs::metadata(run.file(2, "votes.log")).unwrap().len(), length);
    run.nodes[2].limit_files(None).unwrap();
    let head = run.head(0);
    run.expect_agreement_after(head + 1);
    assert!(fs::metadata(run.file(2, "votes.log")).unwrap().len() > length);
}

/// The pause before a kill: spread over the writing of a state and what follows.
fn pause(kill: u32) -> Duration {
    let hash = blake3::hash(&kill.to_le_bytes());
    Duration::from_micros(u64::from(u16::from_le_bytes([hash.as_bytes()[0], hash.as_bytes()[1]])))
}

/// kill -9 while checkpoints are written; `INTELLECT_KILLS=200` runs the full test.
#[test]
fn a_node_that_is_killed_while_it_writes_a_state_has_a_whole_one() {
    let kills = env::var("INTELLECT_KILLS").map_or(6, |kills| kills.parse().unwrap());
    let story = story();
    let settings = ["members.min_peers=1", "model.width=256", "model.ffn=1024", "epoch.amount=1"];
    let manifest = story.manifest("run.toml", &settings).unwrap();
    let (_bootstrap, entry) = story.start_bootstrap(&[manifest]).unwrap();
    let mut node = story.start_node("one", &entry, &[]).unwrap();
    node.wait_for_commit(1, PATIENCE).unwrap();
    let run = fs::read_dir(story.path("one").join("data/runs")).unwrap().next().unwrap().unwrap();
    let checkpoints = run.path().join("checkpoints");
    let half = || {
        let mut files = fs::read_dir(&checkpoints).unwrap();
        files.any(|file| file.unwrap().path().extension() == Some(OsStr::new("tmp")))
    };
    let (mut log, mut halves) = (None, 0);
    for kill in 0..kills {
        let deadline = Instant::now() + PATIENCE;
        while !half() {
            assert!(Instant::now() < deadline, "nothing is written");
            thread::sleep(Duration::from_micros(200));
        }
        thread::sleep(pause(kill));
        node.kill().unwrap();
        halves += u32::from(half());
        let events = node.events().unwrap();
        let heads = events.iter().filter(|event| event["event"] == "committed");
        let head = heads.filter_map(|event| event["epoch"].as_u64()).max();
        let starts = events.iter().filter(|event| event["event"] == "started").count();
        node = story.resume_node("one", &[]).unwrap();
        let started = |events: Vec<Value>| {
            events.into_iter().filter(|event| event["event"] == "started").nth(starts)
        };
        let deadline = Instant::now() + PATIENCE;
        let again = loop {
            if let Some(again) = started(node.events().unwrap()) {
                break again;
            }
            assert!(Instant::now() < deadline, "kill {kill}: it does not start again");
            thread::sleep(Duration::from_millis(5));
        };
        assert!(again["epoch"].as_u64() >= head, "kill {kill}: {again}, at {head:?} before");
        assert_eq!(*log.get_or_insert_with(|| again["log"].clone()), again["log"]);
        assert!(node.exit().unwrap().is_none());
    }
    println!("{kills} kills, {halves} of them with half a state on the disk: {kills} resumes");
    let events = node.events().unwrap();
    let strange = |event: &&Value| event["event"] == "disk" || event["event"] == "sync";
    assert_eq!(events.iter().find(strange), None);
}
