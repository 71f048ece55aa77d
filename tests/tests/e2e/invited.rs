//! A run of invited peers, as its organiser and the invited people type it.

use std::{fs, time::Duration};

use e2e::{SMALL, Story};
use serde_json::Value;

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

/// An invite code for `uses` peers.
pub(super) fn invite(story: &Story, [key, out]: &[String; 2], uses: &str) -> String {
    let line = ["invite", "new", "--key", key, "--manifest", out, "--uses", uses];
    let made = story.node(&line).unwrap().expect_success().unwrap().out;
    made.split_whitespace().next_back().unwrap().to_owned()
}

fn is_commit(event: &Value) -> bool {
    event["event"] == "committed"
}

/// A peer with the code joins, also from a file, and later without it; one
/// without a code learns whom to ask.
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
    let later =
        |event: &Value| event["event"] == "committed" && event["epoch"].as_u64() >= Some(epoch);
    two.wait_for(PATIENCE, later).unwrap();
}

/// A signed notice reaches the members, and the next notice follows on it.
#[test]
fn notices_are_handed_to_the_members() {
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
        assert!(node.said().contains("this node is admitted by invite bob"), "{}", node.said());
    }
    let spare = ["invite", "new", "--key", &key, "--manifest", &out, "--label", "spare"];
    story.node(&spare).unwrap().expect_success().unwrap();
    let list = ["invite", "list", "--key", &key, "--data-dir", &story.text("one/data")];
    let listed = story.node(&list).unwrap().expect_success().unwrap().out;
    assert!(listed.contains("invite spare  not used; 1 peer may join by it"), "{listed}");
    let line = ["invite", "revoke", "--key", &key, "--manifest", &out, "--bootstrap", &entry];
    let first =
        story.node(&[&line[..], &["--wait", "8s", "--invite", "bob"]].concat()).unwrap().out;
    assert!(first.contains("notice 1 is kept in") && first.contains("handed to"), "{first}");
    // Now only the run knows the first notice.
    fs::remove_file(story.path("run.notices")).unwrap();
    let peer = "12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN";
    let admit = ["invite", "admit", "--key", &key, "--manifest", &out, "--bootstrap", &entry];
    let second = story.node(&[&admit[..], &["--wait", "8s", "--peer", peer]].concat()).unwrap().out;
    assert!(second.contains("notice 2 is kept in") && second.contains("handed to"), "{second}");
    let unknown = story.node(&[&line[..], &["--invite", "eve"]].concat()).unwrap();
    unknown.expect_failure(1, &["--invite eve", "but bob"]).unwrap();

    let data = story.text("one/data");
    let line = ["vouch", "--key", &key, "--data-dir", &data];
    let first = story.node(&[&line[..], &["--epoch", "2"]].concat()).unwrap();
    let first = first.expect_success().unwrap().out;
    assert!(first.contains("notice 3 attests epoch 2") && first.contains("accepted it"), "{first}");
    let again = story.node(&[&line[..], &["--epoch", "1"]].concat()).unwrap();
    again.expect_failure(1, &["notice 3 attests epoch 2: choose a later epoch"]).unwrap();
    let later = story.node(&line).unwrap().expect_success().unwrap().out;
    assert!(later.contains("notice 4 attests epoch"), "{later}");
    let other = story.node(&["keygen", "--out", &story.text("other.key")]).unwrap();
    other.expect_success().unwrap();
    let other = ["vouch", "--key", &story.text("other.key"), "--data-dir", &data];
    story.node(&other).unwrap().expect_failure(1, &["only the organiser signs"]).unwrap();
}

/// The newcomer joins within two epochs of having the state. The receipt that admits it names the
/// invite, which is then used up.
#[test]
fn who_comes_later_by_a_code_trains_along_and_the_next_one_finds_it_used_up() {
    let story = story();
    let organiser = organise(&story);
    let (_bootstrap, entry) = story.start_bootstrap(&[story.path("run.toml")]).unwrap();
    let (founders, single) = (invite(&story, &organiser, "2"), invite(&story, &organiser, "1"));
    let mut one = story.start_node("one", &entry, &["--invite", &founders]).unwrap();
    let _two = story.start_node("two", &entry, &["--invite", &founders]).unwrap();
    one.wait_for_commit(3, PATIENCE).unwrap();
    let mut late = story.start_node("late", &entry, &["--invite", &single]).unwrap();
    let who = late.peer(PATIENCE).unwrap();
    let named = |event: &Value| {
        is_commit(event) && event["members"].as_array().unwrap().contains(&Value::from(&*who))
    };
    let first = one.wait_for(PATIENCE, named).unwrap();
    let ring = first["epoch"].as_u64().unwrap();
    // On a busy machine it fetches the state more than once.
    let here = |event: Value| (event["event"] == "caught-up").then(|| event["epoch"].as_u64());
    let states = late.events().unwrap().into_iter().filter_map(here).flatten();
    let state = states.filter(|state| *state < ring).max().unwrap();
    // The epoch that is open when the state is here, and the one after it.
    assert!(ring <= state + 3, "the state is here at {state}, the first ring at {ring}");
    let came = |event: &Value| event["event"] == "admitted" && event["who"] == *who;
    let admitted = one.wait_for(PATIENCE, came).unwrap();
    assert!(admitted["invite"].is_string() && admitted["epoch"] == first["epoch"], "{admitted}");

    let second = story.start_node("second", &entry, &["--invite", &single]).unwrap();
    let done = second.wait(2 * PATIENCE).unwrap();
    let done = done.expect_failure(1, &["this invite has been used 1 of 1 times"]).unwrap();
    let at_once = "does not admit this node: this invite has been used 1 of 1 times";
    assert!(done.out.contains(at_once), "{}", done.out);
}

/// The organiser hands the notice to the members that are there. It is in force for all of them
/// from one epoch on, also for one that was away, and the revoked peer gets a message about it.
#[test]
fn who_is_revoked_is_out_at_the_same_epoch_for_everybody() {
    let story = story();
    let organiser = organise(&story);
    let [key, out] = &organiser;
    let (_bootstrap, entry) = story.start_bootstrap(&[story.path("run.toml")]).unwrap();
    let code = invite(&story, &organiser, "3");
    let start = |name| story.start_node(name, &entry, &["--invite", &code]).unwrap();
    let (mut one, mut two, mut three) = (start("one"), start("two"), start("three"));
    let who = three.peer(PATIENCE).unwrap();
    let has_it = |event: &Value| {
        is_commit(event) && event["members"].as_array().unwrap().contains(&Value::from(&*who))
    };
    for node in [&mut one, &mut two, &mut three] {
        node.wait_for(PATIENCE, has_it).unwrap();
    }
    let data = story.text("one/data");
    let line = ["invite", "revoke", "--key", key, "--manifest", out, "--bootstrap", &entry];
    let line = [&line[..], &["--data-dir", &data, "--peer"]].concat();
    let slip = "12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN";
    let slip = story.node(&[&line[..], &[slip]].concat()).unwrap();
    slip.expect_failure(1, &["no receipt in", "nXTN", "--unseen"]).unwrap();
    let line = [&line[..], &[&*who]].concat();
    let told = story.node_within(&line, 2 * PATIENCE).unwrap().expect_success().unwrap().out;
    let is_out = |event: &Value| event["event"] == "revoked" && event["who"] == *who;
    let epochs = [&mut one, &mut two]
        .map(|node| node.wait_for(PATIENCE, is_out).unwrap()["epoch"].as_u64().unwrap());
    assert_eq!(epochs[0], epochs[1]);
    let from = format!("in force from epoch {}", epochs[0] + 1);
    assert!(told.contains(&from), "{from}: {told}");
    let sentence = format!("revoked by notice 1 in epoch {}", epochs[0]);
    three.wait(PATIENCE).unwrap().expect_failure(1, &[&sentence]).unwrap();

    // Also after a restart of a member, and whatever the revoked peer tries.
    two.interrupt().unwrap();
    two.wait(PATIENCE).unwrap().expect_success().unwrap();
    let mut two = story.resume_node("two", &[]).unwrap();
    let again = story.resume_node("three", &["--bootstrap", &entry]).unwrap();
    again.wait(2 * PATIENCE).unwrap().expect_failure(1, &[&sentence]).unwrap();
    two.wait_for(PATIENCE, is_commit).unwrap();
    let later = |event: &Value| is_commit(event) && event["epoch"].as_u64() > Some(epochs[0] + 2);
    two.wait_for(PATIENCE, later).unwrap();
    for node in [&one, &two] {
        let all = node.events().unwrap();
        let after = |event: &&Value| is_commit(event) && event["epoch"].as_u64() > Some(epochs[0]);
        assert!(all.iter().filter(after).all(|event| !has_it(event)), "{all:#?}");
    }
}

/// The revoked peer never knows the notice, so the command must not wait for it. The other
/// one refuses it with the reason.
#[test]
fn of_two_one_is_revoked_and_told_and_the_command_returns() {
    let story = story();
    let organiser = organise(&story);
    let [key, out] = &organiser;
    let (_bootstrap, entry) = story.start_bootstrap(&[story.path("run.toml")]).unwrap();
    let code = invite(&story, &organiser, "2");
    let start = |name| story.start_node(name, &entry, &["--invite", &code]).unwrap();
    let (mut one, mut two) = (start("one"), start("two"));
    let who = two.peer(PATIENCE).unwrap();
    for node in [&mut one, &mut two] {
        node.wait_for_commit(2, PATIENCE).unwrap();
    }
    let line = ["invite", "revoke", "--peer", &who, "--key", key, "--manifest", out];
    let line = [&line[..], &["--bootstrap", &entry]].concat();
    let told = story.node_within(&line, PATIENCE).unwrap().expect_success().unwrap().out;
    assert!(told.contains("as 1 of 1 member say"), "{told}");
    assert!(told.contains("warning: no receipts of run"), "no folder was named: {told}");
    let done = two.wait(PATIENCE).unwrap();
    done.expect_failure(1, &["this peer was revoked by notice 1 in epoch"]).unwrap();
    let out = |event: &Value| event["event"] == "revoked" && event["who"] == *who;
    let epoch = one.wait_for(PATIENCE, out).unwrap()["epoch"].as_u64().unwrap();
    one.wait_for_commit(epoch + 2, PATIENCE).unwrap();
}

/// With an address at which no member answers, the command shows how long it
/// still looks, and --wait ends it.
#[test]
fn where_nobody_is_a_revoke_counts_down_and_keeps_its_time() {
    let story = story();
    let [key, out] = organise(&story);
    let entry = "/ip4/127.0.0.1/tcp/1/p2p/12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN";
    let peer = "12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN";
    let line = ["invite", "revoke", "--peer", peer, "--key", &key, "--manifest", &out];
    let line = [&line[..], &["--bootstrap", entry, "--wait", "14s"]].concat();
    let done = story.node_within(&line, PATIENCE).unwrap();
    let done = done.expect_failure(1, &["no member of run", "was reached"]).unwrap();
    assert!(done.out.contains("no member of the run has answered: looking for "), "{}", done.out);
}
