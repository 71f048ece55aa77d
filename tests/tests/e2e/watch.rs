//! A run is looked at from outside: by a program that trains nothing and is in no roster.

use std::{fs, time::Duration};

use e2e::{Process, Story};
use intellect_protocol::consensus::sync::LINKS_KEPT;
use serde_json::Value;

use crate::{
    see::{PATIENCE, get, page, until},
    story,
};

/// An address at which nobody listens.
const NOBODY: &str =
    "/ip4/127.0.0.1/tcp/1/p2p/12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN";

/// Two nodes that train, and their bootstrap with its address.
fn run(story: &Story, settings: &[&str]) -> ([Process; 3], String) {
    let settings = [&["members.min_peers=2"], settings].concat();
    let manifest = story.manifest("run.toml", &settings).unwrap();
    let (bootstrap, entry) = story.start_bootstrap(&[manifest]).unwrap();
    let start = |name| story.start_node(name, &entry, &["--quiet"]).unwrap();
    ([start("one"), start("two"), bootstrap], entry)
}

fn seen(at: &str) -> Value {
    serde_json::from_str(&get(at, "/status").1).unwrap()
}

/// The epochs of a past that have a loss, with it.
fn losses(past: &Value) -> Vec<(u64, f64)> {
    let losses = past["columns"]["loss"].as_array().into_iter().flatten();
    let rows = past["epoch"].as_array().unwrap().iter().zip(losses);
    rows.filter_map(|(epoch, loss)| Some((epoch.as_u64()?, loss.as_f64()?))).collect()
}

/// Each loss lies between those that these nodes had in the same epoch.
fn expect_own_losses(shown: &[(u64, f64)], nodes: [&Process; 2]) {
    let events: Vec<Value> = nodes.iter().flat_map(|node| node.events().unwrap()).collect();
    for (epoch, loss) in shown {
        let own = events.iter().filter(|e| e["event"] == "ready" && e["epoch"] == *epoch);
        let own: Vec<f64> = own.filter_map(|ready| ready["loss"].as_f64()).collect();
        let (least, most) =
            (own.iter().copied().reduce(f64::min), own.into_iter().reduce(f64::max));
        let (least, most) = (least.unwrap() - 1e-4, most.unwrap() + 1e-4);
        assert!((least..=most).contains(loss), "epoch {epoch}: {least} to {most}, not {loss}");
    }
}

#[test]
fn a_run_is_watched_by_a_program_that_nobody_counts() {
    let story = story();
    let ([mut one, two, _bootstrap], entry) = run(&story, &[]);
    one.wait_for_commit(2, PATIENCE).unwrap();
    let folder = story.text("public");
    let line = ["watch", "--bootstrap", &entry, "--page", "127.0.0.1:0", "--to", &folder];
    let mut watch = story.start_command("watch", &line).unwrap();
    let at = page(&mut watch);
    let status = until(|| seen(&at), |seen| seen["head"]["epoch"].as_u64() >= Some(4));

    // What is shown is what the nodes say themselves.
    let epoch = status["head"]["epoch"].as_u64().unwrap();
    let commit = one.wait_for_commit(epoch, PATIENCE).unwrap();
    for key in ["state", "tokens", "attempt"] {
        assert_eq!(status["head"][key], commit[key], "{key}");
    }
    assert_eq!(status["ring"].as_array().unwrap().len(), 2);
    assert_eq!(
        (&status["node"]["watches"], &status["node"]["version"].is_string()),
        (&true.into(), &true)
    );
    assert_eq!((&status["run"]["id"], &status["run"]["name"]), (&commit["run"], &"demo".into()));
    let peer = commit["peer"].as_str().unwrap();
    let row = until(|| seen(&at)["peers"][peer].clone(), |row| row["loss"].is_number());
    assert_eq!(row["here"], true);
    let said = one.wait_for(PATIENCE, |event| event["event"] == "ready").unwrap();
    assert!((row["loss"].as_f64().unwrap() - said["loss"].as_f64().unwrap()).abs() < 2.0);
    let past = || -> Value { serde_json::from_str(&get(&at, "/history").1).unwrap() };
    let past = until(past, |past| !losses(past).is_empty());
    expect_own_losses(&losses(&past), [&one, &two]);

    // No node has ever heard of the watcher.
    let watcher = status["node"]["peer"].as_str().unwrap();
    one.wait_for_commit(epoch + 2, PATIENCE).unwrap();
    for event in one.events().unwrap().iter().chain(&two.events().unwrap()) {
        assert!(!event.to_string().contains(watcher), "{event}");
        if event["event"] == "committed" {
            assert_eq!(event["members"].as_array().unwrap().len(), 2, "{event}");
        }
    }

    watch.interrupt().unwrap();
    watch.wait(PATIENCE).unwrap().expect_success().unwrap();
    expect_folder(&story, &line, epoch);
}

/// A watch with this `line` has written the folder, at least up to this epoch. The folder is the page, and its events are
/// those of the run. Later starts do not set it back.
fn expect_folder(story: &Story, line: &[&str], epoch: u64) {
    let read = |name: &str| fs::read_to_string(story.path("public").join(name)).unwrap();
    let last: Value = serde_json::from_str(&read("status.json")).unwrap();
    assert_eq!((&last["format"], &last["source"]["ended"]), (&1.into(), &true.into()));
    assert!(last["head"]["epoch"].as_u64() >= Some(epoch));
    let past: Value = serde_json::from_str(&read("history.json")).unwrap();
    assert_eq!(past["epoch"][0], 1);
    // A watcher that starts again in the folder knows what members said before.
    let known = losses(&past);
    let mut watch = story.start_command("again", line).unwrap();
    let at = page(&mut watch);
    until(|| seen(&at), |seen| seen["head"]["epoch"].as_u64() > last["head"]["epoch"].as_u64());
    watch.interrupt().unwrap();
    watch.wait(PATIENCE).unwrap().expect_success().unwrap();
    let again = losses(&serde_json::from_str(&read("history.json")).unwrap());
    assert!(!known.is_empty() && known.iter().all(|row| again.contains(row)), "{again:?}");
    let lines = read("events.jsonl");
    let events = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let epochs: Vec<_> = events
        .filter(|event| event["event"] == "committed")
        .map(|event| event["epoch"].as_u64())
        .collect();
    assert!(epochs.is_sorted_by(|one, next| one < next), "{epochs:?}");
    // One that does not come to the run leaves what is there.
    let before = read("status.json");
    let to = story.text("public");
    let lost = ["watch", "--bootstrap", NOBODY, "--to", &to];
    let lost = story.node_within(&lost, 2 * PATIENCE).unwrap();
    lost.expect_failure(1, &["no bootstrap could be reached"]).unwrap();
    assert_eq!(read("status.json"), before);
    for name in ["index.html", "page.js", "chart.js", "page.css"] {
        assert!(!read(name).is_empty(), "{name}");
    }
    assert!(!read("events.jsonl").contains("127.0.0.1"));
    let events = story.text("public/events.jsonl");
    let replay = story.node(&["replay", &events, "--speed", "0"]).unwrap();
    let replay = replay.expect_success().unwrap();
    assert!(replay.out.contains("2 in the last ring"), "{}", replay.out);
}

/// A member has the newest links in memory, and older ones on its disk. A watcher proves all of them
/// while the run stands still, and so asks twice for the links around the oldest one in memory.
#[test]
fn a_long_run_that_stands_still_is_watched_from_its_first_epoch() {
    let story = story();
    let settings = ["epoch.amount=4", "members.min_peers=3"];
    let ([mut one, mut two, _bootstrap], entry) = run(&story, &settings);
    let mut three = story.start_node("three", &entry, &["--quiet"]).unwrap();
    let epochs = LINKS_KEPT as u64 + 6;
    one.wait_for_commit(epochs, PATIENCE).unwrap();
    two.kill().unwrap();
    three.kill().unwrap();
    one.wait_for(PATIENCE, |event| event["reason"] == "alone").unwrap();
    let line = ["watch", "--bootstrap", &entry, "--page", "127.0.0.1:0"];
    let mut watch = story.start_command("watch", &line).unwrap();
    let at = page(&mut watch);
    let status = until(|| seen(&at), |seen| seen["head"]["epoch"].as_u64() >= Some(epochs));
    let last = one.events().unwrap().into_iter().rfind(|event| event["event"] == "committed");
    assert_eq!(status["head"]["state"], last.unwrap()["state"]);
}

/// A run of invited peers shows itself to the holder of an invite, and admits nobody by that.
#[test]
fn an_invite_opens_a_run_to_a_watcher_and_stays_unused() {
    let story = story();
    let organiser = crate::invited::organise(&story);
    let (_bootstrap, entry) = story.start_bootstrap(&[story.path("run.toml")]).unwrap();
    let code = crate::invited::invite(&story, &organiser, "3");
    let start = |name| story.start_node(name, &entry, &["--invite", &code]).unwrap();
    let (mut one, _two) = (start("one"), start("two"));
    one.wait_for_commit(2, PATIENCE).unwrap();

    let closed = story.node(&["watch", "--bootstrap", &entry]).unwrap();
    closed.expect_failure(1, &["takes invited peers only", "--invite"]).unwrap();
    let line = ["watch", "--bootstrap", &entry, "--invite", &code, "--page", "127.0.0.1:0"];
    let mut watch = story.start_command("watch", &line).unwrap();
    let at = page(&mut watch);
    until(|| seen(&at), |seen| seen["head"]["epoch"].as_u64() >= Some(3));
    let epoch = seen(&at)["head"]["epoch"].as_u64().unwrap();
    let commit = one.wait_for_commit(epoch + 1, PATIENCE).unwrap();
    assert_eq!(commit["members"].as_array().unwrap().len(), 2, "{commit}");
    let admitted = one.events().unwrap().into_iter().filter(|event| event["event"] == "admitted");
    assert_eq!(admitted.count(), 2);
}

#[test]
fn a_run_that_cannot_be_watched_is_a_sentence() {
    let story = story();
    let watch = |more: &[&str]| {
        let line = [&["watch"], more].concat();
        story.node_within(&line, 2 * PATIENCE).unwrap()
    };
    watch(&[]).expect_failure(2, &["--bootstrap"]).unwrap();
    watch(&["--bootstrap", "here"]).expect_failure(2, &["--bootstrap"]).unwrap();
    watch(&["--bootstrap", NOBODY]).expect_failure(1, &["no bootstrap could be reached"]).unwrap();
    fs::write(story.path("file"), "").unwrap();
    let file = story.text("file");
    let in_a_file = watch(&["--bootstrap", NOBODY, "--to", &file]);
    in_a_file.expect_failure(1, &["cannot write to", "is a file: name a folder"]).unwrap();
    fs::create_dir(story.path("site")).unwrap();
    fs::write(story.path("site/index.html"), "mine").unwrap();
    let in_a_site = watch(&["--bootstrap", NOBODY, "--to", &story.text("site")]);
    in_a_site.expect_failure(1, &["it is not empty", "name another folder"]).unwrap();
    assert_eq!(fs::read_to_string(story.path("site/index.html")).unwrap(), "mine");
    let manifest = story.manifest("run.toml", &[]).unwrap();
    let (_bootstrap, entry) = story.start_bootstrap(&[manifest]).unwrap();
    let to = story.text("public");
    let early = watch(&["--bootstrap", NOBODY, "--to", &to]);
    early.expect_failure(1, &["no bootstrap could be reached"]).unwrap();
    let status = story.path("public/status.json");
    let mut shown: Value = serde_json::from_str(&fs::read_to_string(&status).unwrap()).unwrap();
    shown["run"]["id"] = "ab".repeat(32).into();
    fs::write(&status, shown.to_string()).unwrap();
    let mixed = watch(&["--bootstrap", &entry, "--to", &to]);
    mixed.expect_failure(1, &["the folder shows run abababab", "name another folder"]).unwrap();
    assert_eq!(fs::read_to_string(&status).unwrap(), shown.to_string());
    let other = watch(&["--bootstrap", &entry, "--run", "0123456789abcdef"]);
    other.expect_failure(1, &["no run that is offered begins with"]).unwrap();
    let empty = watch(&["--bootstrap", &entry]);
    assert!(empty.out.contains("looking for a member of the run"), "{}", empty.out);
    empty.expect_failure(1, &["no member of run", "has answered"]).unwrap();
}

/// A run whose members have gone is waited for.
#[test]
fn a_run_that_stops_is_said_to_have_stopped() {
    let story = story();
    let ([mut one, mut two, _bootstrap], entry) = run(&story, &[]);
    one.wait_for_commit(2, PATIENCE).unwrap();
    let mut watch = story.start_command("watch", &["watch", "--bootstrap", &entry]).unwrap();
    watch.wait_until_it_said("watching: epochs 1 to", PATIENCE).unwrap();
    one.kill().unwrap();
    two.kill().unwrap();
    watch
        .wait_until_it_said(
            "waiting: no member of the run answers",
            PATIENCE + Duration::from_secs(30),
        )
        .unwrap();
    watch.interrupt().unwrap();
    watch.wait(PATIENCE).unwrap().expect_success().unwrap();
}
