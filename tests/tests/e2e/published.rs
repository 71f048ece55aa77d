//! A run that begins with published weights, of a Hugging Face model or of another run: the
//! organiser's node serves them to all other peers.

use std::{fs, path::PathBuf, time::Duration};

use e2e::{Done, SMALL, Story};
use intellect_protocol::base::id::Digest;
use intellect_protocol::history::checkpoint::{HEADER_BYTES, PIECE_BYTES};
use serde_json::Value;

use crate::story;

const PATIENCE: Duration = Duration::from_secs(300);

/// A model that one peer has trained.
struct Model {
    folder: String,
    /// What `eval` says about it, in whatever run it is.
    measured: Vec<String>,
    /// Training loss of its first epoch and of its last.
    losses: [f64; 2],
}

impl Model {
    fn train(story: &Story) -> Self {
        let (out, folder) = (story.text("model-run"), story.text("model"));
        let mut line = vec!["sim", "--peers", "1", "--epochs", "6", "--seed", "5", "--out", &out];
        line.extend(SMALL.iter().flat_map(|setting| ["--set", setting]));
        story.node(&line).unwrap().expect_success().unwrap();
        let data = story.text("model-run/peer-0/data");
        let export = story.node(&["export", "--data-dir", &data, "--to", &folder]);
        export.unwrap().expect_success().unwrap();
        let eval = story.node(&["eval", "--data-dir", &data]).unwrap().expect_success().unwrap();
        let events = fs::read_to_string(story.path("model-run/peer-0/events.jsonl")).unwrap();
        let events = events.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let losses = events.filter(|event| event["event"] == "committed").map(|e| loss(&e));
        let losses: Vec<f64> = losses.collect();
        let losses = [losses[0], losses[losses.len() - 1]];
        Self { folder, measured: measured(&eval.out), losses }
    }
}

fn loss(committed: &Value) -> f64 {
    committed["loss"].as_f64().unwrap()
}

/// Its number of parameters, and its losses.
fn measured(eval: &str) -> Vec<String> {
    let of_model = |line: &&str| line.starts_with("weights") || line.starts_with("held-out loss");
    eval.lines().filter(of_model).map(str::to_owned).collect()
}

/// `manifest new --from-hf` for two peers and the data source that the model has learnt.
fn second(story: &Story, folder: &str, settings: &[&str]) -> Done {
    let (key, out) = (story.text("organiser.key"), story.text("second.toml"));
    if !story.path("organiser.key").exists() {
        story.node(&["keygen", "--out", &key]).unwrap().expect_success().unwrap();
    }
    let mut line = vec!["manifest", "new", "--from-hf", folder, "--out", &out, "--key", &key];
    let lr = "train.lr=0.003";
    for setting in ["train.batch=4", "train.warmup_tokens=0", "epoch.amount=10", "seed=5", lr] {
        line.extend(["--set", setting]);
    }
    for setting in settings {
        line.extend(["--set", setting]);
    }
    story.node(&line).unwrap()
}

/// Where the node `name` stores the weights of its one run.
fn kept(story: &Story, name: &str) -> PathBuf {
    let runs = story.path(&format!("{name}/data/runs"));
    fs::read_dir(runs).unwrap().next().unwrap().unwrap().path().join("genesis.ckpt")
}

#[test]
fn weights_of_elsewhere_reach_everybody() {
    let story = story();
    let Model { folder, measured: learnt, losses } = Model::train(&story);
    second(&story, &folder, &["model.width=32"])
        .expect_failure(2, &["only context may be --set"])
        .unwrap();
    assert!(!story.path("second.ckpt").exists() && !story.path("second.toml").exists());
    // A model with a long context is trained on short sequences, unless longer ones are asked for.
    let config = story.path("model/config.json");
    let short = fs::read_to_string(&config).unwrap();
    let mut long: Value = serde_json::from_str(&short).unwrap();
    long["max_position_embeddings"] = 131_072.into();
    fs::write(&config, long.to_string()).unwrap();
    let made = second(&story, &folder, &[]).expect_success().unwrap();
    assert!(
        made.out.contains("reads 2048 tokens at once here, and can read 131072"),
        "{}",
        made.out
    );
    for file in ["second.ckpt", "second.toml"] {
        fs::remove_file(story.path(file)).unwrap();
    }
    fs::write(&config, short).unwrap();
    second(&story, &folder, &[]).expect_success().unwrap();
    let weights = story.text("second.ckpt");
    let eval =
        story.node(&["eval", "--checkpoint", &weights, "--manifest", &story.text("second.toml")]);
    assert_eq!(measured(&eval.unwrap().expect_success().unwrap().out), learnt);
    let named = learnt[0].split_whitespace().last().unwrap();
    let manifest = fs::read_to_string(story.path("second.toml")).unwrap();
    assert!(manifest.contains(&format!("genesis = \"{named}\"")), "{named}: {manifest}");

    let (_bootstrap, entry) = story.start_bootstrap(&[story.path("second.toml")]).unwrap();
    let line = ["--epochs", "12"];
    // The first peer has to wait for the one that has the weights.
    let mut other = story.start_node("other", &entry, &line).unwrap();
    other.wait_for(PATIENCE, |event| event["event"] == "manifest").unwrap();
    assert!(other.events().unwrap().iter().all(|event| event["event"] != "started"));
    // Hours may pass here, and its machine may be switched off.
    other.wait_until_it_said("looking for peers that have them", PATIENCE).unwrap();
    let stored = fs::read_to_string(kept(&story, "other").with_file_name("node.toml")).unwrap();
    assert!(stored.contains(&entry), "{stored}");
    let mut first =
        story.start_node("first", &entry, &[&line[..], &["--genesis", &weights]].concat()).unwrap();
    // Training goes on where the model was, instead of at the beginning.
    let begun = loss(&first.wait_for_commit(1, PATIENCE).unwrap());
    assert!(begun < (losses[0] + losses[1]) / 2.0, "{begun} after {losses:?}");
    first.wait_for_commit(2, PATIENCE).unwrap();
    let mut late = story.start_node("late", &entry, &line).unwrap();
    let nodes = [&mut first, &mut other, &mut late];
    let states = nodes.map(|node| node.wait_for_commit(12, PATIENCE).unwrap()["state"].clone());
    assert!(states.iter().all(|state| *state == states[0]), "{states:?}");
    for name in ["first", "other", "late"] {
        assert_eq!(fs::read(kept(&story, name)).unwrap(), fs::read(&weights).unwrap(), "{name}");
    }
}

/// A damaged file is set aside and fetched again; another run's file is refused by name.
#[test]
fn damaged_and_foreign_weights_are_not_used() {
    let story = story();
    let Model { folder, .. } = Model::train(&story);
    second(&story, &folder, &["members.min_peers=1"]).expect_success().unwrap();
    let weights = story.text("second.ckpt");
    let (_bootstrap, entry) = story.start_bootstrap(&[story.path("second.toml")]).unwrap();
    let mut one = story.start_node("one", &entry, &["--genesis", &weights]).unwrap();
    one.wait_for_commit(1, PATIENCE).unwrap();
    let two = story.start_node("two", &entry, &["--epochs", "3"]).unwrap();
    two.wait(PATIENCE).unwrap().expect_success().unwrap();

    let mut bytes = fs::read(kept(&story, "two")).unwrap();
    let middle = bytes.len() / 4;
    bytes[middle] ^= 1;
    fs::write(kept(&story, "two"), &bytes).unwrap();
    let two = story.start_node("two", &entry, &["--epochs", "6"]).unwrap();
    let said = two.wait(PATIENCE).unwrap().expect_success().unwrap().out;
    assert!(said.contains("genesis.ckpt") && said.contains("set aside"), "{said}");
    assert_eq!(fs::read(kept(&story, "two")).unwrap(), fs::read(&weights).unwrap());

    fs::write(story.path("foreign.ckpt"), &bytes).unwrap();
    let foreign = story.start_node("three", &entry, &["--genesis", &story.text("foreign.ckpt")]);
    foreign.unwrap().wait(PATIENCE).unwrap().expect_failure(1, &["foreign.ckpt"]).unwrap();
    one.interrupt().unwrap();
    one.wait(PATIENCE).unwrap().expect_success().unwrap();
}

/// No disk and no peer is to blame, and another try would fail too, so the node ends.
#[test]
fn weights_that_are_no_numbers_end_the_node() {
    let story = story();
    let Model { folder, .. } = Model::train(&story);
    second(&story, &folder, &[]).expect_success().unwrap();
    let mut bytes = fs::read(story.path("second.ckpt")).unwrap();
    // One piece of weights and one of zeros; the first weight becomes NaN.
    let (front, pieces) = bytes.split_at_mut(HEADER_BYTES + 2 * 32);
    let (weights, _) = pieces.split_at_mut(pieces.len() / 2);
    assert!(weights.len() <= PIECE_BYTES);
    weights[..4].copy_from_slice(&f32::NAN.to_le_bytes());
    front[HEADER_BYTES..][..32].copy_from_slice(blake3::hash(weights).as_bytes());
    let genesis = Digest::derive("intellect-node 1 state", front).hex();
    fs::write(story.path("bad.ckpt"), bytes).unwrap();
    for made in ["second.toml", "second.ckpt"] {
        fs::remove_file(story.path(made)).unwrap();
    }
    second(&story, &folder, &[&format!("genesis=\"{genesis}\"")]).expect_success().unwrap();

    let (_bootstrap, entry) = story.start_bootstrap(&[story.path("second.toml")]).unwrap();
    let node = story.start_node("one", &entry, &["--genesis", &story.text("bad.ckpt")]).unwrap();
    let told = ["its organiser", "a number is not finite", &genesis[..8]];
    node.wait(PATIENCE).unwrap().expect_failure(1, &told).unwrap();
}

/// The organiser uses the state of a running node; the members of the old run go on in the new one.
#[test]
fn a_run_goes_on_as_another_one() {
    let story = story();
    let one = story.manifest("one.toml", &["members.min_peers=1"]).unwrap();
    let (bootstrap, entry) = story.start_bootstrap(&[one]).unwrap();
    let mut node = story.start_node("node", &entry, &[]).unwrap();
    let committed = [1, 8].map(|epoch| node.wait_for_commit(epoch, PATIENCE).unwrap());
    let (losses, first) = (committed.each_ref().map(loss), committed[0]["run"].clone());

    let (key, out) = (story.text("one.toml.key"), story.text("two.toml"));
    let data = story.text("node/data");
    let line = ["manifest", "new", "--from-run", &data, "--key", &key, "--out", &out];
    let line = [&line[..], &["--set", "members.min_peers=2"]].concat();
    let made = story.node(&line).unwrap().expect_success().unwrap().out;
    assert!(made.contains("goes on after epoch "), "{made}");
    node.interrupt().unwrap();
    node.wait(PATIENCE).unwrap().expect_success().unwrap();
    drop(bootstrap);
    // Another bootstrap, at another address.
    fs::remove_file(story.path("bootstrap/out.txt")).unwrap();

    let (_bootstrap, entry) = story.start_bootstrap(&[story.path("two.toml")]).unwrap();
    let weights = story.text("two.ckpt");
    // One node in the folder of the old run, and one new peer.
    let mut old = story.start_node("node", &entry, &["--genesis", &weights]).unwrap();
    let mut new = story.start_node("new", &entry, &[]).unwrap();
    let is_second = |event: &Value| {
        event["event"] == "committed" && event["epoch"] == 2 && event["run"] != first
    };
    let committed = [&mut old, &mut new].map(|node| node.wait_for(PATIENCE, is_second).unwrap());
    assert_eq!(committed[0]["state"], committed[1]["state"]);
    let begun = loss(&committed[1]);
    assert!(begun < (losses[0] + losses[1]) / 2.0, "{begun} after {losses:?}");
}
