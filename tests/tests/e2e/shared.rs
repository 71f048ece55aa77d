//! A run on a text that its organiser lets peers hand to one another: a peer
//! without the text fetches it.

use std::{fs, path::PathBuf, time::Duration};

use e2e::{Process, SMALL, Story};
use serde_json::Value;

use crate::{invited, story};

const PATIENCE: Duration = Duration::from_secs(90);

/// A text of 3.3 MB that does not repeat itself: four pieces.
pub(super) fn write_text(story: &Story) -> PathBuf {
    let path = story.path("words.txt");
    let words = ["peers ", "agree ", "and ", "train ", "on ", "one ", "text\n", "together "];
    let mut state = 1_u64;
    let word = |_| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        words[(state >> 61) as usize]
    };
    fs::write(&path, (0..620_000).map(word).collect::<String>()).unwrap();
    assert!(fs::metadata(&path).unwrap().len() > 3 << 20);
    path
}

/// The key and the manifest of a run on that text; `arguments` are added.
fn organise(story: &Story, arguments: &[&str]) -> [String; 2] {
    let text = write_text(story).to_string_lossy().into_owned();
    let [key, out] = [story.text("organiser.key"), story.text("run.toml")];
    story.node(&["keygen", "--out", &key]).unwrap().expect_success().unwrap();
    let mut line = vec!["manifest", "new", "--key", &key, "--out", &out, "--data", &text];
    line.extend(arguments);
    let settings = SMALL.iter().chain(&["model.vocab=256"]);
    line.extend(settings.flat_map(|setting| ["--set", setting]));
    story.node(&line).unwrap().expect_success().unwrap();
    [key, out]
}

/// The copy in the folder of a node, as far as it has come.
fn fetched(story: &Story, name: &str) -> Option<Vec<u8>> {
    let runs = fs::read_dir(story.path(&format!("{name}/data/runs"))).unwrap();
    let files = fs::read_dir(runs.last().unwrap().unwrap().path().join("data")).unwrap();
    let mut files =
        files.map(|file| file.unwrap().path()).filter(|path| path.extension().is_none());
    files.next().map(|path| fs::read(path).unwrap())
}

/// Bytes that had come, at each event of the transfer.
fn progress(node: &Process) -> Vec<u64> {
    let is_data = |event: &&Value| event["event"] == "data";
    let events = node.events().unwrap();
    events.iter().filter(is_data).map(|event| event["have_bytes"].as_u64().unwrap()).collect()
}

/// One node has the text, and sends a megabyte a second of it. The other one is killed in the
/// middle, goes on where it was, trains, and serves the text itself.
#[test]
fn whoever_lacks_the_text_fetches_it_from_those_who_have_it() {
    let story = story();
    organise(&story, &["--share"]);
    let (_bootstrap, entry) = story.start_bootstrap(&[story.path("run.toml")]).unwrap();
    let said = fs::read_to_string(story.path("bootstrap/out.txt")).unwrap();
    assert!(!said.contains("--data"), "nobody needs to have it: {said}");
    let text = story.text("words.txt");
    let one = story.start_node("one", &entry, &["--data", &text, "--rate", "1M"]).unwrap();

    let mut two = story.start_node("two", &entry, &[]).unwrap();
    let half =
        |event: &Value| event["event"] == "data" && event["have_bytes"].as_u64() >= Some(2 << 20);
    two.wait_for(PATIENCE, half).unwrap();
    two.kill().unwrap();
    assert_eq!(fetched(&story, "two"), None, "it is not whole yet");
    let before = progress(&two);
    let mut two = story.start_node("two", &entry, &[]).unwrap();
    two.wait_for_commit(1, PATIENCE).unwrap();
    assert!(fetched(&story, "two") == Some(fs::read(&text).unwrap()));
    let after = progress(&two)[before.len()..].to_vec();
    assert!(after[0] >= 2 << 20, "it begins anew: {before:?}, then {after:?}");

    // The node that had the text leaves; a third one gets it from the second.
    one.interrupt().unwrap();
    one.wait(PATIENCE).unwrap().expect_success().unwrap();
    let mut three = story.start_node("three", &entry, &[]).unwrap();
    three.wait_for(PATIENCE, |event| event["event"] == "committed").unwrap();
    assert!(fetched(&story, "three") == Some(fs::read(&text).unwrap()));
}

/// A fetch that the organiser or the fetching node does not allow is
/// not made, and the node says so.
#[test]
fn a_text_is_not_fetched_where_that_is_not_allowed() {
    let story = story();
    let line = ["--share", "--set", "members.min_peers=1"];
    organise(&story, &line);
    let (_bootstrap, entry) = story.start_bootstrap(&[story.path("run.toml")]).unwrap();
    let never = story.start_node("never", &entry, &["--fetch-data", "0"]).unwrap();
    never.wait(PATIENCE).unwrap().expect_failure(1, &["words.txt", "--data"]).unwrap();
    let less = story.start_node("less", &entry, &["--fetch-data", "2M"]).unwrap();
    less.wait(PATIENCE)
        .unwrap()
        .expect_failure(1, &["3.3 MB", "--fetch-data allows 2.0 MB"])
        .unwrap();
}

/// In a run of invited peers no other peer gets a byte.
#[test]
fn a_text_is_handed_to_nobody_who_is_not_in() {
    let story = story();
    let organiser = organise(&story, &["--share", "--invited"]);
    let (_bootstrap, entry) = story.start_bootstrap(&[story.path("run.toml")]).unwrap();
    let code = invited::invite(&story, &organiser, "2");
    let text = story.text("words.txt");
    let _one = story.start_node("one", &entry, &["--data", &text, "--invite", &code]).unwrap();
    let stranger = story.start_node("stranger", &entry, &[]).unwrap().wait(PATIENCE).unwrap();
    stranger.expect_failure(1, &["invited peers only"]).unwrap();
    let mut two = story.start_node("two", &entry, &["--invite", &code]).unwrap();
    two.wait_for_commit(1, PATIENCE).unwrap();
    assert!(fetched(&story, "two") == Some(fs::read(&text).unwrap()));
}

/// An organiser must not be able to make nodes send requests to machines of their own network.
#[test]
fn a_web_server_of_this_machine_is_not_asked() {
    let story = story();
    organise(&story, &["--set", "data.url=https://localhost:1/", "--set", "members.min_peers=1"]);
    let (_bootstrap, entry) = story.start_bootstrap(&[story.path("run.toml")]).unwrap();
    let node = story.start_node("node", &entry, &[]).unwrap();
    let words = ["https://localhost:1/words.txt", "no address of the internet", "--data FILE"];
    node.wait(PATIENCE).unwrap().expect_failure(1, &words).unwrap();
}
