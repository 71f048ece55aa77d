//! The organiser attests a lineage that a member has left: its node starts itself again.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use e2e::{Process, Story};
use serde_json::Value;

use crate::story;

const PATIENCE: Duration = Duration::from_secs(60);

/// How far the lineage of the one that stays alone is ahead of the other's.
const MORE: u64 = 6;

/// The last epoch that a node has committed.
fn head(node: &Process) -> u64 {
    let events = node.events().unwrap();
    let committed = events.iter().filter(|event| event["event"] == "committed");
    committed.filter_map(|event| event["epoch"].as_u64()).max().unwrap_or_default()
}

/// Lets a node go on alone from its folder, for so many epochs; then it is killed.
fn alone(story: &Story, name: &str, entry: &str, more: u64) {
    let mut node = story.start_node(name, entry, &[]).unwrap();
    let last = head(&node) + more;
    node.wait_for_commit(last, PATIENCE).unwrap();
    node.kill().unwrap();
}

fn count(node: &Process, kind: &str) -> usize {
    node.events().unwrap().iter().filter(|event| event["event"] == kind).count()
}

/// The only file of that name in a run's folder of a data folder.
fn of_run(story: &Story, name: &str, file: &str) -> PathBuf {
    let runs = fs::read_dir(story.path(name).join("data/runs")).unwrap();
    let mut runs: Vec<_> = runs.map(|run| run.unwrap().path().join(file)).collect();
    runs.pop().unwrap()
}

/// Two friends have gone on without each other, and the second has followed the first. Then the organiser attests what
/// the second had done alone, of which a third has a copy. The second is led back, and is bound there by its log.
#[test]
fn a_node_that_is_led_back_starts_itself_again() {
    let story = story();
    let settings = ["members.heartbeat_ms=100", "members.minority_grace_ms=2000"];
    let manifest = story.manifest("run.toml", &settings).unwrap();
    let (_bootstrap, entry) = story.start_bootstrap(&[manifest]).unwrap();
    let mut both = ["one", "two"].map(|name| story.start_node(name, &entry, &[]).unwrap());
    for node in &mut both {
        node.wait_for_commit(2, PATIENCE).unwrap();
    }
    for node in &mut both {
        node.kill().unwrap();
    }
    alone(&story, "two", &entry, 2);
    alone(&story, "one", &entry, 2 + MORE);
    let copy = |from: &Path, to: &Path| {
        assert!(Command::new("cp").arg("-r").args([from, to]).status().unwrap().success());
    };
    fs::create_dir_all(story.path("three")).unwrap();
    copy(&story.path("two/data"), &story.path("three/data"));
    fs::remove_file(story.path("three/data/identity.key")).unwrap();

    let mut one = story.start_node("one", &entry, &[]).unwrap();
    let mut two = story.start_node("two", &entry, &[]).unwrap();
    two.wait_for(PATIENCE, |event| event["event"] == "fork" && event["undone"] != 0).unwrap();
    let starts = count(&two, "started");
    let [key, data] = [story.text("run.toml.key"), story.text("three/data")];
    let line = ["vouch", "--key", &key, "--data-dir", &data, "--bootstrap", &entry];
    let done = story.node(&line).unwrap().expect_success().unwrap();
    assert!(done.out.contains("accepted it"), "{}", done.out);
    one.wait_until_it_said("the organiser attests", PATIENCE).unwrap();
    let kept = of_run(&story, "one", "notices");
    while !kept.exists() {
        thread::sleep(Duration::from_millis(50));
    }
    fs::copy(kept, of_run(&story, "three", "notices")).unwrap();

    let mut three = story.start_node("three", &entry, &[]).unwrap();
    two.wait_until_it_said("bound by what it signed there", PATIENCE).unwrap();
    let together = |event: &Value| {
        event["event"] == "committed" && event["members"].as_array().map(Vec::len) == Some(3)
    };
    let first = one.wait_for(PATIENCE, together).unwrap();
    let same = |event: &Value| together(event) && event["state"] == first["state"];
    for node in [&mut two, &mut three] {
        node.wait_for(PATIENCE, same).unwrap();
    }
    assert_eq!(count(&two, "started"), starts + 1);
}
