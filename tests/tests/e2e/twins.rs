//! A copy of a data folder is started next to the original: a virtual machine's image, a volume.

use std::{fs, path::Path, time::Duration};

use crate::story;

/// The two are heard in turn, so that on a loaded machine it takes up to a minute until the first learns of the second.
const PATIENCE: Duration = Duration::from_secs(180);

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        // The socket of `status` is no file that can be copied.
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            copy(&from, &to);
        } else if kind.is_file() {
            fs::copy(from, to).unwrap();
        }
    }
}

/// The two never meet; a third peer, which hears both, forwards their heartbeats. So the first one
/// learns that a later start of its own log has spoken, and ends before it votes again.
#[test]
fn a_copy_of_a_running_node_ends_the_original_with_an_error() {
    let story = story();
    let settings = ["members.heartbeat_ms=200", "members.min_peers=2"];
    let manifest = story.manifest("run.toml", &settings).unwrap();
    let (_bootstrap, entry) = story.start_bootstrap(&[manifest]).unwrap();
    let mut third = story.start_node("third", &entry, &[]).unwrap();
    let mut original = story.start_node("original", &entry, &[]).unwrap();
    original.wait_for_commit(2, PATIENCE).unwrap();
    copy(&story.path("original/data"), &story.path("copy/data"));
    let mut copied = story.start_node("copy", &entry, &[]).unwrap();
    copied.wait_for(PATIENCE, |event| event["event"] == "started").unwrap();

    let event =
        original.wait_for(PATIENCE, |event| event["event"] == "duplicate-identity").unwrap();
    assert_eq!(event["who"], event["peer"]);
    let last = original.wait_for(PATIENCE, |event| event["event"] == "stopped").unwrap();
    assert_eq!(last["code"], 4);
    let done = original.wait(PATIENCE).unwrap();
    done.expect_failure(4, &["another program runs with this node's key since", "UTC"]).unwrap();
    third.wait_for(PATIENCE, |event| event["event"] == "duplicate-identity").unwrap();
    assert!(copied.exit().unwrap().is_none() && third.exit().unwrap().is_none());
}

/// An honest mistake: only the key was copied, so the other folder has a log of votes of its own.
#[test]
fn one_key_on_two_machines_is_two_voters_and_ends_the_first_with_an_error() {
    let story = story();
    let settings = ["members.heartbeat_ms=200", "members.min_peers=2"];
    let manifest = story.manifest("run.toml", &settings).unwrap();
    let (_bootstrap, entry) = story.start_bootstrap(&[manifest]).unwrap();
    let mut third = story.start_node("third", &entry, &[]).unwrap();
    let mut first = story.start_node("first", &entry, &[]).unwrap();
    first.wait_for_commit(2, PATIENCE).unwrap();
    fs::create_dir_all(story.path("second/data")).unwrap();
    let key = "data/identity.key";
    let [from, to] = ["first", "second"].map(|name| story.path(name).join(key));
    fs::copy(from, to).unwrap();
    let mut second = story.start_node("second", &entry, &[]).unwrap();

    let [one, two] = [&mut first, &mut second]
        .map(|node| node.wait_for(PATIENCE, |event| event["event"] == "started").unwrap());
    assert_eq!(one["peer"], two["peer"]);
    assert_ne!(one["log"], two["log"]);
    first.wait_for(PATIENCE, |event| event["event"] == "duplicate-identity").unwrap();
    let done = first.wait(PATIENCE).unwrap();
    done.expect_failure(4, &["another program runs with this node's key", "identity.key"]).unwrap();
    // It replays what was committed before it came, and goes on from there.
    second.wait_for(PATIENCE, |event| event["event"] == "committed").unwrap();
    assert!(second.exit().unwrap().is_none() && third.exit().unwrap().is_none());
}
