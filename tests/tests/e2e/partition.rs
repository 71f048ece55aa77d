//! Links fail: black holes, partitions, silence. The run goes on, and in the end it is one again.
//!
//! The links are emulated where root, `/dev/net/tun` and network namespaces are available, else
//! shaped by the nodes; one story always has them shaped.

use std::{fs, time::Duration};

use e2e::{SMALL, Sim};
use serde_json::Value;

use crate::story;

const PATIENCE: Duration = Duration::from_secs(150);

/// Short timers: silent-after is 0.4 s and some round trips, and a majority is given up after 2 s.
const QUICK: [&str; 2] = ["members.heartbeat_ms=100", "members.minority_grace_ms=2000"];

/// Runs `steps` over four peers whose epochs take about half a second.
fn simulate(steps: &str, settings: &[&str], epochs: &str) -> Sim {
    simulate_over("auto", steps, settings, epochs)
}

fn simulate_over(links: &str, steps: &str, settings: &[&str], epochs: &str) -> Sim {
    let story = story();
    fs::write(story.path("scenario.toml"), steps).unwrap();
    let scenario = story.text("scenario.toml");
    let mut all = vec!["--scenario", &scenario, "--peers", "4", "--epochs", epochs];
    all.extend(["--rate", "200000", "--links", links]);
    all.extend(SMALL.iter().chain(&QUICK).chain(settings).flat_map(|setting| ["--set", setting]));
    let sim = story.sim("out", &all, PATIENCE).unwrap();
    println!("links: {}", sim.report["links"]);
    sim.done.clone().expect_success().unwrap();
    sim
}

/// Events of one kind that a peer wrote.
fn events(sim: &Sim, peer: usize, kind: &str) -> Vec<Value> {
    let events = sim.events(peer).unwrap();
    events.into_iter().filter(|event| event["event"] == kind).collect()
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect()
}

fn name(sim: &Sim, peer: usize) -> String {
    sim.events(peer).unwrap()[0]["peer"].as_str().unwrap().to_owned()
}

/// The most members that one of the last five epochs has: a busy machine may leave somebody out of one.
fn last_members(sim: &Sim) -> usize {
    let committed = events(sim, 0, "committed");
    committed.iter().rev().take(5).map(|event| names(&event["members"]).len()).max().unwrap()
}

/// One bad link among six makes no peer count as dead: a third peer hears both.
#[test]
fn a_black_hole_between_two_costs_neither_and_forks_nothing() {
    let steps = "[[step]]\ndo = \"black-hole\"\npeer = 1\nto = 2\nepoch = 3\n\
                 [[step]]\ndo = \"heal\"\nepoch = 9\n";
    let sim = simulate(steps, &[], "12");
    assert_eq!(sim.states(&[0, 1, 2, 3]).unwrap().len(), 12);
    for peer in 0..4 {
        assert!(events(&sim, peer, "fork").is_empty());
        let regroups = events(&sim, peer, "regroup");
        assert!(regroups.iter().all(|event| event["epoch"] == 1), "{regroups:?}");
    }
    assert_eq!(last_members(&sim), 4);
}

/// The half with the smaller first voter is a majority by the tie rule and goes on at once; the
/// other one regroups after its grace. When they meet again both report the fork.
#[test]
fn two_halves_go_on_meet_again_and_end_as_one() {
    two_halves_meet_again("auto", "");
}

/// The same without any privileges, and with one link worse than the others.
#[test]
fn two_halves_end_as_one_over_streams_that_the_nodes_shape() {
    let line =
        "[[step]]\ndo = \"link\"\npeer = 3\nrate = 400000\ndelay_ms = 5\nloss = 0.002\nepoch = 1\n";
    let sim = two_halves_meet_again("shaped", line);
    assert_eq!(sim.report["links"], "shaped");
}

fn two_halves_meet_again(links: &str, more: &str) -> Sim {
    let steps = "allow = [\"fork\"]\n\
                 [[step]]\ndo = \"cut\"\npeers = [0, 1]\nepoch = 3\n\
                 [[step]]\ndo = \"heal\"\nepoch = 3\nplus_ms = 4000\n";
    let sim = simulate_over(links, &format!("{steps}{more}"), &[], "30");
    let ends: Vec<Value> = (0..4)
        .map(|peer| events(&sim, peer, "committed").pop().unwrap()["state"].clone())
        .collect();
    assert!(ends.iter().all(|end| *end == ends[0]), "{ends:?}");
    assert_eq!(last_members(&sim), 4);
    // Both halves went on by themselves: some epoch has two states.
    assert!(sim.states(&[0, 1, 2, 3]).is_err());
    let half = |peers: &[usize]| -> Vec<Value> {
        peers.iter().flat_map(|peer| events(&sim, *peer, "fork")).collect()
    };
    let (left, right) = (half(&[0, 1]), half(&[2, 3]));
    assert!(!left.is_empty() && !right.is_empty(), "{left:?} {right:?}");
    let undone = |side: &[Value]| side.iter().filter_map(|event| event["undone"].as_u64()).max();
    let sides = [undone(&left).unwrap(), undone(&right).unwrap()];
    assert!(sides.contains(&0) && sides.iter().any(|epochs| *epochs > 0), "{sides:?}");
    sim
}

#[test]
fn with_a_majority_quorum_the_smaller_side_waits() {
    let steps = "[[step]]\ndo = \"cut\"\npeers = [3]\nepoch = 3\n\
                 [[step]]\ndo = \"heal\"\nepoch = 3\nplus_ms = 4000\n";
    let sim = simulate(steps, &["members.quorum=majority"], "20");
    assert_eq!(sim.states(&[0, 1, 2, 3]).unwrap().len(), 20);
    let alone = |event: &Value| names(&event["members"]).len() == 1;
    assert!(!events(&sim, 3, "committed").iter().any(alone), "it went on alone");
    assert!(events(&sim, 3, "fork").is_empty());
    let without = |event: &Value| names(&event["members"]).len() == 3;
    assert!(events(&sim, 0, "committed").iter().any(without), "the others waited too");
    assert_eq!(last_members(&sim), 4);
}

/// A peer that is cut off is noticed as lost, without a reset or an end
/// of stream that would show it.
#[test]
fn one_that_is_cut_off_is_soon_declared_lost() {
    let steps = "[[step]]\ndo = \"cut\"\npeers = [2]\nepoch = 4\n\
                 [[step]]\ndo = \"heal\"\nepoch = 4\nplus_ms = 4000\n";
    // The heartbeat of the built-in manifest, and a grace in which the
    // lost peer does not go on alone.
    let settings = ["members.heartbeat_ms=500", "members.minority_grace_ms=60000"];
    let sim = simulate(steps, &settings, "40");
    let cut_ms = sim.report["done"][0]["t_ms"].as_u64().unwrap();
    let lost = name(&sim, 2);
    for peer in [0, 1, 3] {
        let all = events(&sim, peer, "peer-lost");
        let noticed = all.iter().find(|event| event["who"] == *lost);
        let noticed_ms = noticed.unwrap_or_else(|| panic!("{all:?}"))["t_ms"].as_u64().unwrap();
        println!("peer {peer} missed it {} ms after the cut", noticed_ms - cut_ms);
    }
    assert_eq!(last_members(&sim), 4);
    assert_eq!(sim.states(&[0, 1, 2, 3]).unwrap().len(), 40);
}
