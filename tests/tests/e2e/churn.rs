//! Nodes and the bootstrap die, leave, come late and come back; the others go on.

use std::{fs, time::Duration};

use e2e::{SMALL, Sim};
use serde_json::Value;

use crate::story;

const PATIENCE: Duration = Duration::from_secs(300);

/// Short timers, so that a story about silence does not take long. Beside other stories a node may
/// get no processor for some seconds, and must not be left behind for that.
const QUICK: [&str; 2] = ["members.heartbeat_ms=100", "members.minority_grace_ms=5000"];

fn simulate(steps: &str, settings: &[&str], arguments: &[&str]) -> Sim {
    let story = story();
    fs::write(story.path("scenario.toml"), steps).unwrap();
    let scenario = story.text("scenario.toml");
    let mut all = vec!["--scenario", &scenario];
    all.extend(settings.iter().chain(&QUICK).flat_map(|setting| ["--set", setting]));
    all.extend(arguments);
    let sim = story.sim("out", &all, PATIENCE).unwrap();
    sim.done.clone().expect_success().unwrap();
    sim
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect()
}

/// The first event of this kind in this epoch that a peer wrote.
fn event(sim: &Sim, peer: usize, kind: &str, epoch: u64) -> Option<Value> {
    let events = sim.events(peer).unwrap();
    events.into_iter().find(|event| event["event"] == kind && event["epoch"] == epoch)
}

fn name(sim: &Sim, peer: usize) -> String {
    sim.events(peer).unwrap()[0]["peer"].as_str().unwrap().to_owned()
}

/// The last epoch of all `peers`, after a check that they agree on every one.
fn last_epoch(sim: &Sim, peers: &[usize]) -> u64 {
    sim.states(peers).unwrap().last().unwrap().0
}

/// The update is so large, and each node sends so slowly, that a ring lasts over a second. So half
/// a second after a peer has accepted the roster, the ring is running.
#[test]
fn a_death_in_the_middle_of_a_ring_does_not_lose_the_epoch() {
    let steps = "[[step]]\ndo = \"kill\"\npeer = 3\nroster = 3\nplus_ms = 600\n";
    let sim = simulate(steps, &[], &["--peers", "4", "--epochs", "4", "--rate", "60000"]);
    assert_eq!(last_epoch(&sim, &[0, 1, 2]), 4);
    // It died inside the epoch: it had accepted a roster and did not see the commit.
    assert!(event(&sim, 3, "roster", 3).is_some());
    assert!(event(&sim, 3, "committed", 3).is_none());
    let dead = name(&sim, 3);
    for peer in 0..3 {
        let commit = event(&sim, peer, "committed", 3).unwrap();
        // Chunks that the dead peer had finished with the others stay, and count.
        let alive = names(&commit["members"]).into_iter().filter(|name| *name != dead);
        assert_eq!(alive.count(), 3, "{commit}");
        assert!(commit["attempt"].as_u64().unwrap() > 1, "{commit}");
    }
}

#[test]
fn without_its_bootstrap_a_run_goes_on() {
    let steps = "[[step]]\ndo = \"kill-bootstrap\"\nepoch = 1\n";
    let sim = simulate(steps, &SMALL, &["--peers", "3", "--epochs", "6"]);
    assert_eq!(last_epoch(&sim, &[0, 1, 2]), 6);
    for epoch in 1..=6 {
        let commit = event(&sim, 0, "committed", epoch).unwrap();
        assert_eq!(names(&commit["members"]).len(), 3, "{commit}");
    }
}

#[test]
fn half_of_the_peers_can_die_at_once() {
    let steps = "[[step]]\ndo = \"kill\"\npeer = 1\nepoch = 2\n\
                 [[step]]\ndo = \"kill\"\npeer = 2\nepoch = 2\n";
    let sim = simulate(steps, &SMALL, &["--peers", "4", "--epochs", "30"]);
    assert_eq!(last_epoch(&sim, &[0, 3]), 30);
    let commit = event(&sim, 0, "committed", 30).unwrap();
    assert_eq!(names(&commit["members"]).len(), 2, "{commit}");
}

/// The last of six goes on alone after its grace, and reports that; in the end all are on one
/// lineage. The five that come back are a majority of the old voters. They may decide an epoch
/// before they hear it, which is a fork.
#[test]
fn the_last_of_six_goes_on_alone_and_is_found_again() {
    let step = |verb: &str, peer: usize, epoch: u64| {
        format!("[[step]]\ndo = \"{verb}\"\npeer = {peer}\nepoch = {epoch}\n")
    };
    let kills: String = (1..6).map(|peer| step("kill", peer, 3)).collect();
    let starts: String = (1..6).map(|peer| step("start", peer, 6)).collect();
    let steps = "allow = [\"fork\"]\n".to_owned() + &kills + &starts;
    let sim = simulate(&steps, &SMALL, &["--peers", "6", "--epochs", "40"]);
    let ends: Vec<Value> =
        (0..6).map(|peer| event(&sim, peer, "committed", 40).unwrap()["state"].clone()).collect();
    assert!(ends.iter().all(|end| *end == ends[0]), "{ends:?}");
    let alone = |event: &Value| names(&event["members"]).len() == 1;
    let events = sim.events(0).unwrap();
    let said = events.iter().find(|event| event["event"] == "regroup" && alone(event));
    assert!(said.is_some(), "it did not say that it goes on alone");
    assert!(alone(&event(&sim, 0, "committed", 6).unwrap()));
    let commit = event(&sim, 0, "committed", 40).unwrap();
    assert_eq!(names(&commit["members"]).len(), 6, "{commit}");
}

/// No peer waits for one that has said goodbye: no attempt fails and nobody regroups.
#[test]
fn one_that_leaves_is_not_waited_for() {
    let steps = "[[step]]\ndo = \"interrupt\"\npeer = 1\nepoch = 3\n";
    let sim = simulate(steps, &SMALL, &["--peers", "4", "--epochs", "30"]);
    assert_eq!(last_epoch(&sim, &[0, 2, 3]), 30);
    assert_eq!(sim.report["nodes"][1]["exit"], 0);
    let events = sim.events(1).unwrap();
    assert!(events.iter().any(|event| event["event"] == "leaving"), "{events:?}");
    for peer in [0, 2, 3] {
        let events = sim.events(peer).unwrap();
        let left = events.iter().filter(|e| e["event"] == "regroup" && e["epoch"] != 1);
        assert_eq!(left.count(), 0, "peer {peer} regrouped");
        let commit = event(&sim, peer, "committed", 30).unwrap();
        assert_eq!(names(&commit["members"]).len(), 3, "{commit}");
    }
}

/// R29: the ring that is open when the peer is asked to leave ends first, well within its 5 s.
#[test]
fn one_that_leaves_in_the_middle_of_a_ring_costs_no_attempt() {
    let steps = "[[step]]\ndo = \"interrupt\"\npeer = 3\nroster = 3\nplus_ms = 600\n";
    let sim = simulate(steps, &[], &["--peers", "4", "--epochs", "5", "--rate", "60000"]);
    assert_eq!(last_epoch(&sim, &[0, 1, 2]), 5);
    assert_eq!(sim.report["nodes"][3]["exit"], 0);
    let leaver = name(&sim, 3);
    let events = sim.events(3).unwrap();
    let at = |kind: &str| {
        events.iter().find(|e| e["event"] == kind).map(|e| e["t_ms"].as_u64().unwrap()).unwrap()
    };
    assert!(at("stopped") - at("leaving") < 5_000, "{events:?}");
    // It was asked to leave while that ring ran.
    let committed = event(&sim, 3, "committed", 3).unwrap();
    assert!(committed["t_ms"].as_u64().unwrap() > at("leaving"), "{committed}");
    for peer in 0..3 {
        let commit = event(&sim, peer, "committed", 3).unwrap();
        assert_eq!(commit["attempt"], 1, "{commit}");
        assert!(names(&commit["members"]).contains(&&*leaver), "{commit}");
        let next = event(&sim, peer, "committed", 4).unwrap();
        assert_eq!((&next["attempt"], names(&next["members"]).len()), (&1.into(), 3), "{next}");
    }
}

/// It starts too late for updates to be replayed (R28).
#[test]
fn a_late_peer_fetches_the_state_and_takes_part() {
    let steps = "[[step]]\ndo = \"start\"\npeer = 2\nepoch = 12\n";
    let sim = simulate(steps, &SMALL, &["--peers", "3", "--epochs", "40"]);
    assert_eq!(last_epoch(&sim, &[0, 1, 2]), 40);
    let events = sim.events(2).unwrap();
    assert!(events.iter().any(|event| event["event"] == "caught-up"), "{events:?}");
    let commit = event(&sim, 0, "committed", 40).unwrap();
    assert_eq!(names(&commit["members"]).len(), 3, "{commit}");
}

/// A suspended laptop: the process and its connections stand still, and later it goes on.
#[test]
fn a_stopped_peer_catches_up_when_it_goes_on() {
    let steps = "[[step]]\ndo = \"stop\"\npeer = 2\nepoch = 3\n\
                 [[step]]\ndo = \"continue\"\npeer = 2\nepoch = 3\nplus_ms = 3000\n";
    let arguments = ["--peers", "4", "--epochs", "24"];
    let sim = simulate(steps, &SMALL, &arguments);
    assert_eq!(last_epoch(&sim, &[0, 1, 2, 3]), 24);
    // The others did not wait for it, and in the end it is a member again.
    let table = sim.report["table"].as_array().unwrap();
    let members = |epoch: &Value| names(&epoch["members"]).len();
    let missed = sim.events(2).unwrap().into_iter().any(|event| event["event"] == "caught-up");
    assert!(missed, "{table:?}");
    assert_eq!(members(table.last().unwrap()), 4, "{table:?}");
}

/// SIGTERM is a goodbye like Ctrl-C.
#[test]
fn one_that_is_told_to_end_says_good_bye() {
    let steps = "[[step]]\ndo = \"terminate\"\npeer = 1\nepoch = 3\n";
    let sim = simulate(steps, &SMALL, &["--peers", "3", "--epochs", "20"]);
    assert_eq!(last_epoch(&sim, &[0, 2]), 20);
    assert_eq!(sim.report["nodes"][1]["exit"], 0);
    let events = sim.events(1).unwrap();
    assert!(events.iter().any(|event| event["event"] == "leaving"), "{events:?}");
}

/// Kills and restarts at random: no node fails, nothing forks, and the costs are in the report.
#[test]
fn a_storm_of_kills_is_survived_and_counted() {
    let story = story();
    let mut all = vec!["--chaos", "kill each epoch", "--peers", "4", "--epochs", "10"];
    // The usual grace: a peer that is back among slow ones must not go on alone. The rate is so low
    // that a restarted peer is back before the end.
    all.extend(["--rate", "4000"]);
    all.extend(SMALL.iter().chain(&QUICK[..1]).flat_map(|setting| ["--set", setting]));
    let sim = story.sim("out", &all, PATIENCE).unwrap();
    sim.done.clone().expect_success().unwrap();
    let toll = &sim.report["chaos"];
    assert!(toll["kills"].as_u64().unwrap() >= 3, "{toll}");
    assert_eq!(toll["forks"], 0, "{toll}");
    assert!(toll["goodput"].as_f64().unwrap() > 0.0, "{toll}");
    assert!(sim.done.out.contains("goodput"), "{}", sim.done.out);
}

#[test]
fn a_killed_peer_comes_back_with_its_log() {
    let steps = "[[step]]\ndo = \"kill\"\npeer = 2\nepoch = 2\n\
                 [[step]]\ndo = \"start\"\npeer = 2\nepoch = 4\n";
    let sim = simulate(steps, &SMALL, &["--peers", "3", "--epochs", "40"]);
    assert_eq!(last_epoch(&sim, &[0, 1, 2]), 40);
    let events = sim.events(2).unwrap();
    let incarnations: Vec<u64> = events
        .iter()
        .filter(|event| event["event"] == "started")
        .map(|event| event["incarnation"].as_u64().unwrap())
        .collect();
    assert_eq!(incarnations.len(), 2);
    assert!(incarnations[0] < incarnations[1], "{incarnations:?}");
    let mut logs = events.iter().filter(|e| e["event"] == "started").map(|e| &e["log"]);
    assert_eq!(logs.next(), logs.next());
    let commit = event(&sim, 0, "committed", 40).unwrap();
    assert_eq!(names(&commit["members"]).len(), 3, "{commit}");
}
