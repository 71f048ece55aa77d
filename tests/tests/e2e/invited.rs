//! A run of invited peers, as its organiser and those whom it invites type it.

use std::{fs, time::Duration};

use e2e::{SMALL, Story};

use crate::story;

const PATIENCE: Duration = Duration::from_secs(60);

/// The key and the manifest of a run of invited peers.
pub(super) fn organise(story: &Story) -> [String; 2] {
    let [key, out] = [story.text("organiser.key"), story.text("run.toml")];
    story.node(&["keygen", "--out", &key]).unwrap().expect_success().unwrap();
    let mut line = vec!["manifest", "new", "--invited", "--key", &key, "--out", &out];
    line.extend(SMALL.iter().flat_map(|setting| ["--set", setting]));
    story.node(&line).unwrap().expect_success().unwrap();
    [key, out]
}

/// A code for so many peers.
pub(super) fn invite(story: &Story, [key, out]: &[String; 2], uses: &str) -> String {
    let line = ["invite", "new", "--key", key, "--manifest", out, "--uses", uses];
    let made = story.node(&line).unwrap().expect_success().unwrap().out;
    made.split_whitespace().next_back().unwrap().to_owned()
}

/// Whoever has the line comes in, by a file too, and again without it; whoever has none is told whom to ask.
#[test]
fn who_is_invited_comes_in_and_who_is_not_is_told_whom_to_ask() {
    let story = story();
    let [key, out] = organise(&story);
    let (_bootstrap, entry) = story.start_bootstrap(&[story.path("run.toml")]).unwrap();
    let line =
        ["invite", "new", "--key", &key, "--manifest", &out, "--uses", "2", "--bootstrap", &entry];
    let made = story.node(&line).unwrap().expect_success().unwrap().out;
    let line = made.lines().last().unwrap();
    fs::write(story.path("line"), line).unwrap();
    let (file, code) = (story.text("line"), line.split(' ').next_back().unwrap());

    let mut one = story.start_node("one", &entry, &["--invite", code]).unwrap();
    let mut two = story.start_node("two", &entry, &["--invite", &file]).unwrap();
    for node in [&mut one, &mut two] {
        node.wait_for_commit(2, PATIENCE).unwrap();
    }
    let stranger = story.start_node("stranger", &entry, &[]).unwrap().wait(PATIENCE).unwrap();
    stranger
        .expect_failure(1, &["invited peers only", "ask its organiser", "--invite CODE"])
        .unwrap();
    let slip = story.start_node("slip", &entry, &["--invite", &code[..code.len() - 1]]);
    slip.unwrap()
        .wait(PATIENCE)
        .unwrap()
        .expect_failure(2, &["--invite", "paste it again"])
        .unwrap();

    two.interrupt().unwrap();
    two.wait(PATIENCE).unwrap().expect_success().unwrap();
    let before = one.events().unwrap().iter().filter_map(|event| event["epoch"].as_u64()).max();
    let mut two = story.resume_node("two", &[]).unwrap();
    let epoch = before.unwrap() + 2;
    let later = |event: &serde_json::Value| {
        event["event"] == "committed" && event["epoch"].as_u64() >= Some(epoch)
    };
    two.wait_for(PATIENCE, later).unwrap();
}

/// What an authority signs reaches the members, and the next one follows on it.
#[test]
fn decrees_are_handed_to_the_members() {
    let story = story();
    let [key, out] = organise(&story);
    let (_bootstrap, entry) = story.start_bootstrap(&[story.path("run.toml")]).unwrap();
    let line =
        ["invite", "new", "--key", &key, "--manifest", &out, "--uses", "2", "--label", "bob"];
    let made = story.node(&line).unwrap().expect_success().unwrap().out;
    let code = made.split_whitespace().last().unwrap();
    let [mut one, mut two] =
        ["one", "two"].map(|name| story.start_node(name, &entry, &["--invite", code]).unwrap());
    for node in [&mut one, &mut two] {
        node.wait_for_commit(2, PATIENCE).unwrap();
    }
    let line = ["invite", "revoke", "--key", &key, "--manifest", &out, "--bootstrap", &entry];
    let revoke =
        |extra: &[&str]| story.node(&[&line[..], &["--wait", "8s"], extra].concat()).unwrap().out;
    let first = revoke(&["--invite", "bob"]);
    assert!(first.contains("decree 1 is kept in") && first.contains("know it"), "{first}");
    // Nothing but the run knows of the first.
    fs::remove_file(story.path("run.papers")).unwrap();
    let second = revoke(&["--invite", "bob", "--lift"]);
    assert!(second.contains("decree 2 is kept in") && second.contains("know it"), "{second}");
    let unknown = story.node(&[&line[..], &["--invite", "eve"]].concat()).unwrap();
    unknown.expect_failure(1, &["--invite eve", "but bob"]).unwrap();
}
