//! A laptop sleeps: one of three stands still, its connections stay, and later it goes on. The
//! others are hardly disturbed; the sleeper blames no peer and is a member again.

use std::{
    env, fs, thread,
    time::{Duration, Instant},
};

use e2e::{Process, SMALL};
use rustix::process::Signal;
use serde_json::Value;

use crate::story;

const PATIENCE: Duration = Duration::from_secs(90);

/// Lines of a screen that do not report epochs.
fn remarks(said: &str) -> Vec<&str> {
    let is_epoch = |line: &str| line.contains(" epoch ") && line.contains(": ring of ");
    said.lines().filter(|line| !is_epoch(line)).collect()
}

/// Whether an event is an epoch with the work of `size` peers.
fn is_ring_of(event: &Value, size: usize) -> bool {
    let working = |all: &Vec<Value>| all.iter().filter(|weight| **weight != 0).count() == size;
    event["event"] == "committed" && event["weights"].as_array().is_some_and(working)
}

fn events_since(node: &Process, count: usize) -> Vec<Value> {
    node.events().unwrap().split_off(count)
}

fn one_of_three_sleeps_for(asleep: Duration) {
    let story = story();
    let manifest = story.manifest("run.toml", &["members.min_peers=3"]).unwrap();
    let (_bootstrap, entry) = story.start_bootstrap(&[manifest]).unwrap();
    let mut nodes = ["one", "two", "sleeper"].map(|n| story.start_node(n, &entry, &[]).unwrap());
    nodes[2].wait_for(PATIENCE, |event| is_ring_of(event, 3)).unwrap();
    nodes[2].wait_for_commit(4, PATIENCE).unwrap();
    let before = [0, 1, 2].map(|node| nodes[node].events().unwrap().len());
    let said = [0, 1].map(|node| nodes[node].said().len());

    let head = |node: &Process| {
        let epochs = node.events().unwrap().into_iter().rev();
        epochs.into_iter().find_map(|event| event["epoch"].as_u64()).unwrap_or(0)
    };
    let from = head(&nodes[0]);
    nodes[2].signal(Signal::STOP).unwrap();
    thread::sleep(asleep);
    // The others go on without it, epoch by epoch.
    let two = |event: &Value| is_ring_of(event, 2) && event["epoch"].as_u64() > Some(from + 2);
    let alone = nodes[0].wait_for(PATIENCE, two).unwrap();
    let at = head(&nodes[0]);
    nodes[2].signal(Signal::CONT).unwrap();
    let woken = Instant::now();
    let back = |event: &Value| is_ring_of(event, 3) && event["epoch"].as_u64() > Some(at);
    nodes[2].wait_for(PATIENCE, back).unwrap();
    println!(
        "slept {} s: in a ring again after {:.1} s",
        asleep.as_secs(),
        woken.elapsed().as_secs_f64()
    );
    nodes[0].wait_for(PATIENCE, back).unwrap();

    let slept = events_since(&nodes[2], before[2]);
    let woke = slept.iter().find(|event| event["event"] == "woke").unwrap();
    let told = Duration::from_millis(woke["slept_ms"].as_u64().unwrap());
    assert!(told + Duration::from_secs(1) > asleep, "{woke}");
    let caught_up = " · caught up at epoch ";
    nodes[2].wait_until_it_said(caught_up, PATIENCE).unwrap();
    let said_by_it = nodes[2].said();
    let epoch = said_by_it.rsplit(caught_up).next().and_then(|rest| rest.lines().next()).unwrap();
    assert!(epoch.parse::<u64>().ok() >= alone["epoch"].as_u64(), "{alone}: {said_by_it}");
    for (node, count) in nodes.iter().zip(before) {
        let strange = ["fault", "fork", "diverged", "regroup"];
        let events = events_since(node, count);
        let strange = events.iter().find(|e| strange.iter().any(|kind| e["event"] == *kind));
        assert_eq!(strange, None, "{}", node.said());
    }
    for node in [0, 1] {
        let all = nodes[node].said();
        let remarks = remarks(&all[said[node]..]);
        assert!(remarks.len() <= 3, "{remarks:#?}");
    }
}

/// `INTELLECT_SLEEP=120` makes it sleep for longer.
#[test]
fn one_of_three_sleeps_for_a_moment_and_blames_nobody() {
    let seconds = env::var("INTELLECT_SLEEP").map_or(10, |seconds| seconds.parse().unwrap());
    one_of_three_sleeps_for(Duration::from_secs(seconds));
}

#[test]
fn one_of_three_sleeps_for_a_while_and_blames_nobody() {
    one_of_three_sleeps_for(Duration::from_secs(40));
}

/// For 40 s each hears nothing of the other, and sends it only heartbeats:
/// one of them has to start again.
#[test]
fn two_who_are_silent_to_each_other_meet_again() {
    let story = story();
    let steps = "[[step]]\ndo = \"cut\"\npeers = [1]\nepoch = 3\n\
                 [[step]]\ndo = \"heal\"\nepoch = 3\nplus_ms = 40000\n";
    fs::write(story.path("scenario.toml"), steps).unwrap();
    let scenario = story.text("scenario.toml");
    let mut all = vec!["--scenario", &scenario, "--peers", "2", "--epochs", "120"];
    // A peer that is no majority alone waits longer than the partition lasts.
    all.extend(["--set", "members.minority_grace_ms=60000"]);
    all.extend(SMALL.iter().flat_map(|setting| ["--set", setting]));
    let sim = story.sim("out", &all, Duration::from_secs(180)).unwrap();
    sim.done.clone().expect_success().unwrap();
    println!("links: {}", sim.report["links"]);
    for peer in 0..2 {
        let events = sim.events(peer).unwrap();
        assert!(events.iter().any(|event| event["event"] == "peer-lost"), "{events:?}");
        // Once they have met, each hears all that the other gossips.
        let met = events.iter().rposition(|event| event["event"] == "peer-found").unwrap();
        let since = events[met..].iter().filter(|event| event["event"] == "committed");
        let (whole, rest): (Vec<_>, Vec<_>) =
            since.partition(|event| is_ring_of(event, 2) && event["attempt"] == 1);
        assert!(whole.len() > 2 * rest.len(), "{} whole rings, {rest:?}", whole.len());
        assert!(!events.iter().any(|event| event["event"] == "fork"), "{events:?}");
    }
}

/// What was under way has timed out by then, and is started again.
#[test]
fn one_sleeps_in_the_middle_of_a_fetch_and_of_a_ring_and_blames_nobody() {
    let story = story();
    // With f32 an update is half a state, so three epochs of updates cost more than the state.
    let sizes = ["model.layers=2", "model.width=256", "model.ffn=1024", "ring.codec=f32"];
    let large: Vec<&str> = sizes.into_iter().chain(["members.min_peers=2"]).collect();
    let manifest = story.manifest("run.toml", &large).unwrap();
    let (_bootstrap, entry) = story.start_bootstrap(&[manifest]).unwrap();
    let start = |name| story.start_node(name, &entry, &["--rate", "6M"]).unwrap();
    let mut donors = ["one", "two"].map(start);
    donors[0].wait_for_commit(4, PATIENCE).unwrap();
    let mut sleeper = start("sleeper");
    let half = |event: &Value| {
        let have = event["have_bytes"].as_u64();
        event["event"] == "sync" && have > Some(0) && have < event["want_bytes"].as_u64()
    };
    sleeper.wait_for(PATIENCE, half).unwrap();
    sleeper.signal(Signal::STOP).unwrap();
    thread::sleep(Duration::from_secs(12));
    sleeper.signal(Signal::CONT).unwrap();
    let ring = sleeper.wait_for(PATIENCE, |event| is_ring_of(event, 3)).unwrap();

    let epoch = ring["epoch"].as_u64().unwrap();
    let opened =
        |event: &Value| event["event"] == "roster" && event["epoch"].as_u64() > Some(epoch);
    let ring = sleeper.wait_for(PATIENCE, opened).unwrap();
    sleeper.signal(Signal::STOP).unwrap();
    thread::sleep(Duration::from_secs(4));
    sleeper.signal(Signal::CONT).unwrap();
    let epoch = ring["epoch"].as_u64().unwrap() + 1;
    let again = |event: &Value| is_ring_of(event, 3) && event["epoch"].as_u64() > Some(epoch);
    sleeper.wait_for(PATIENCE, again).unwrap();
    for node in donors.iter().chain([&sleeper]) {
        let events = node.events().unwrap();
        let faults: Vec<_> = events.iter().filter(|event| event["event"] == "fault").collect();
        assert!(faults.is_empty(), "{faults:?}");
    }
    let woke = sleeper.events().unwrap().into_iter().filter(|event| event["event"] == "woke");
    assert!(woke.count() >= 2);
}
