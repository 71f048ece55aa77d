//! How programs end when somebody asks them to: with a last line, and with no file left behind.

use std::{fs, time::Duration};

use e2e::{SMALL, Story};
use intellect_bootstrap::interrupts::is_hangup_ignored;
use serde_json::Value;

use crate::story;

const PATIENCE: Duration = Duration::from_secs(60);

/// Whether SIGHUP has an effect: under `nohup` every program of the tests ignores it.
fn terminals_are_heard() -> bool {
    let heard = !is_hangup_ignored();
    if !heard {
        println!("skipped: SIGHUP is ignored here, as under nohup");
    }
    heard
}

/// The most usual way in which a volunteer leaves: the window is closed,
/// or the connection to it drops.
#[test]
fn a_closed_terminal_is_a_goodbye() {
    if !terminals_are_heard() {
        return;
    }
    let story = story();
    let settings = ["members.heartbeat_ms=200", "members.minority_grace_ms=3000"];
    let manifest = story.manifest("run.toml", &settings).unwrap();
    let (bootstrap, entry) = story.start_bootstrap(&[manifest]).unwrap();
    let mut stays = story.start_node("stays", &entry, &[]).unwrap();
    let mut leaves = story.start_node("leaves", &entry, &[]).unwrap();
    leaves.wait_for_commit(2, PATIENCE).unwrap();
    leaves.hang_up().unwrap();
    let done = leaves.wait(PATIENCE).unwrap().expect_success().unwrap();
    let lost = stays.wait_for(PATIENCE, |event| event["event"] == "peer-lost").unwrap();
    assert_eq!(lost["cause"], "left", "{}", done.out);
    // Its epochs are shorter than the time between two looks at what it waits for.
    let alone = "alone: no other peer of this run can be reached; what is trained now";
    stays.wait_until_it_said(alone, PATIENCE).unwrap();
    let events = stays.events().unwrap();
    let of_ring = |event: &&Value| event["event"] == "waiting" && event["reason"] == "ring";
    assert_eq!(events.iter().find(of_ring), None, "{}", stays.said());
    assert!(done.out.contains(" s with 2 peers; others may still come"), "{}", done.out);
    let last = done.out.lines().last().unwrap();
    assert!(last.contains(" left at epoch ") && last.contains("took part in "), "{last}");
    assert!(last.contains(&format!("--data-dir {}", story.text("leaves/data"))), "{last}");

    bootstrap.hang_up().unwrap();
    bootstrap.wait(PATIENCE).unwrap().expect_success().unwrap();
}

/// The next start would not know which run, so the sentence must not promise that it goes on.
#[test]
fn who_leaves_before_a_run_is_found_hears_that_nothing_has_come() {
    let story = story();
    let nobody = "/ip4/127.0.0.1/tcp/1/p2p/12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN";
    let mut early = story.start_node("early", nobody, &[]).unwrap();
    early.wait_until_it_said("looking for the run", PATIENCE).unwrap();
    early.interrupt().unwrap();
    let done = early.wait(PATIENCE).unwrap().expect_success().unwrap();
    let nothing = "nothing has come yet: start again with the same line";
    assert!(done.out.contains(nothing), "{}", done.out);
}

/// `nohup` is the usual way to let a program outlive its terminal.
#[test]
fn a_bootstrap_of_nohup_hears_no_closed_terminal() {
    let story = story();
    let manifest = story.manifest("run.toml", &[]).unwrap();
    let (bootstrap, _) = story.start_bootstrap_under(&["nohup"], &[manifest]).unwrap();
    bootstrap.hang_up().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    bootstrap.interrupt().unwrap();
    let done = bootstrap.wait(PATIENCE).unwrap();
    assert_eq!(done.code, Some(0), "{}", done.err);
}

/// It measures at the lowest priority, beside everything else that runs.
const PATIENCE_OF_SIM: Duration = Duration::from_secs(300);

fn simulate(story: &Story, name: &str, arguments: &[&str]) -> e2e::Done {
    let mut all = vec!["sim", "--peers", "2", "--epochs", "10000"];
    all.extend(SMALL.iter().flat_map(|setting| ["--set", setting]));
    all.extend(arguments);
    let mut sim = story.start_command(name, &all).unwrap();
    sim.wait_until_it_said("×2", PATIENCE_OF_SIM).unwrap();
    sim.hang_up().unwrap();
    sim.wait(PATIENCE_OF_SIM).unwrap()
}

#[test]
fn an_interrupted_simulation_says_what_it_measured_and_leaves_no_files() {
    if !terminals_are_heard() {
        return;
    }
    let story = story();
    let done = simulate(&story, "bare", &[]);
    let done = done.expect_failure(130, &["interrupted after epoch", "removed"]).unwrap();
    assert!(done.out.contains("held-out loss") && done.out.contains("this run"), "{}", done.out);
    assert_eq!(fs::read_dir(story.path("temporary")).unwrap().count(), 0);

    let out = story.text("out");
    let done = simulate(&story, "kept", &["--out", &out]);
    done.expect_failure(130, &["interrupted after epoch", &out]).unwrap();
    let report = fs::read_to_string(story.path("out/report.json")).unwrap();
    assert!(report.contains("interrupted after epoch"), "{report}");
}

#[test]
fn a_simulation_that_is_refused_leaves_no_files() {
    let story = story();
    let done = story.node(&["sim", "--data", "/absent"]).unwrap();
    done.expect_failure(1, &["/absent"]).unwrap();
    assert_eq!(fs::read_dir(story.path("temporary")).unwrap().count(), 0);
}
