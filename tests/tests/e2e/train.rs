//! Several processes train one model, and have the same bits after every epoch.

use std::{collections::BTreeMap, thread, time::Duration};

use e2e::{SMALL, Sim};
use serde_json::Value;

use crate::story;

const PATIENCE: Duration = Duration::from_secs(120);

fn simulate(out: &str, arguments: &[&str]) -> Sim {
    let mut all: Vec<&str> = SMALL.iter().flat_map(|setting| ["--set", setting]).collect();
    all.extend(arguments);
    let sim = story().sim(out, &all, PATIENCE).unwrap();
    sim.done.clone().expect_success().unwrap();
    sim
}

/// Checks that every peer committed every epoch while it ran, with one state per epoch.
fn assert_equal_states(sim: &Sim, peers: &[usize], epochs: u64) {
    let states = sim.states(peers).unwrap();
    let numbers: Vec<u64> = states.iter().map(|(epoch, _)| *epoch).collect();
    assert_eq!(numbers, (1..=epochs).collect::<Vec<_>>());
    let distinct: std::collections::BTreeSet<_> = states.iter().map(|(_, state)| state).collect();
    assert_eq!(distinct.len(), states.len(), "an epoch changed nothing");
    for peer in peers {
        let events = sim.events(*peer).unwrap();
        let commits = events.iter().filter(|event| event["event"] == "committed").count();
        assert_eq!(commits as u64, epochs, "peer {peer}");
        assert_times_add_up(&events);
        assert_eq!(events.last().unwrap()["event"], "stopped");
        assert_eq!(events.last().unwrap()["code"], 0);
    }
}

/// From one Ready to the next, the parts that the commits name are all of the time. Epochs here take less than a
/// second, so a busy machine may put some of it between the mark and its line in the file.
fn assert_times_add_up(events: &[Value]) {
    let at = |event: &str, epoch: u64| {
        events.iter().find(|one| one["event"] == event && one["epoch"] == epoch)
    };
    let part = |commit: &Value, name: &str| commit[name].as_f64().unwrap();
    let mut compared = 0;
    for epoch in 1.. {
        let (Some(ready), Some(commit)) = (at("ready", epoch), at("committed", epoch)) else {
            break;
        };
        let (Some(next), Some(after)) = (at("ready", epoch + 1), at("committed", epoch + 1)) else {
            break;
        };
        if commit["train_ms"].is_null() || after["train_ms"].is_null() {
            continue;
        }
        let after_ready = ["wait_ready_ms", "ring_ms", "vote_ms", "apply_ms"];
        let sum: f64 = after_ready.iter().map(|name| part(commit, name)).sum();
        let sum = sum + part(after, "train_ms");
        let length = (next["t_ms"].as_u64().unwrap() - ready["t_ms"].as_u64().unwrap()) as f64;
        assert!(
            (sum - length).abs() <= 0.05 * length + 50.0,
            "{sum} of {length} ms: {commit} {after}"
        );
        let sync = part(commit, "sync_ms");
        assert!((sum - part(after, "train_ms") - sync).abs() <= 5.0, "{commit}");
        compared += 1;
    }
    assert!(compared > 0, "no epoch was compared");
}

#[test]
fn three_peers_are_bit_identical_in_int8() {
    let sim = simulate("int8", &["--peers", "3", "--epochs", "4", "--set", "ring.codec=int8"]);
    assert_equal_states(&sim, &[0, 1, 2], 4);
}

#[test]
fn three_peers_are_bit_identical_in_f32() {
    let sim = simulate("f32", &["--peers", "3", "--epochs", "4", "--set", "ring.codec=f32"]);
    assert_equal_states(&sim, &[0, 1, 2], 4);
}

/// Without disturbances the seed alone decides the result: neither a clock nor the order in
/// which peers are heard matters.
#[test]
fn a_seed_gives_the_same_states_again() {
    for (all, peers, together) in
        [(&[0, 1][..], "2", "members.min_peers=2"), (&[0, 1, 2, 3], "4", "members.min_peers=4")]
    {
        let states = |seed| {
            // On a busy machine some peers would begin without the others.
            let arguments = ["--peers", peers, "--epochs", "4", "--seed", seed, "--set", together];
            let sim = simulate("again", &arguments);
            assert_equal_states(&sim, all, 4);
            sim.states(all).unwrap()
        };
        // A busy machine may disturb a run, and a disturbed run has other states. States that
        // depend on a clock never come again, so two of a few runs that agree are proof.
        let mut seen = vec![states("5")];
        let again = loop {
            assert!(seen.len() < 5, "{peers} peers: {seen:?}");
            let next = states("5");
            if seen.contains(&next) {
                break next;
            }
            seen.push(next);
        };
        assert_ne!(again, states("6"), "{peers} peers");
    }
}

/// The measuring process gives way to the nodes that it measures.
#[test]
fn a_simulation_measures_at_the_lowest_priority() {
    let story = story();
    let out = story.text("watched");
    let arguments = ["sim", "--peers", "1", "--epochs", "4", "--out", &out];
    let mut sim = story.start_command("watched-sim", &arguments).unwrap();
    let mut threads = BTreeMap::new();
    while sim.exit().unwrap().is_none() {
        // Towards the end it may be gone between two looks.
        let now = sim.threads().unwrap_or_default();
        threads.extend(now.into_iter().map(|thread| (thread.id, thread)));
        thread::sleep(Duration::from_millis(5));
    }
    sim.wait(PATIENCE).unwrap().expect_success().unwrap();
    let cpu = |lowest: bool| -> f64 {
        threads.values().filter(|thread| (thread.nice == 19) == lowest).map(|t| t.cpu).sum()
    };
    assert!(cpu(true) > 2.0 * cpu(false), "{threads:#?}");
}

#[test]
fn one_peer_alone_needs_no_ring() {
    let sim = simulate("alone", &["--peers", "1", "--epochs", "3"]);
    assert_equal_states(&sim, &[0], 3);
    let commits = sim.events(0).unwrap();
    let commit = commits.iter().find(|event| event["event"] == "committed").unwrap();
    assert_eq!(commit["members"].as_array().unwrap().len(), 1);
    assert_eq!(commit["sent_bytes"], 0);
}

/// JSON lines become token files, and the run learns from both.
#[test]
fn two_peers_train_on_token_files() {
    let story = story();
    let tokens = story.text("tokens");
    std::fs::create_dir(story.path("tokens")).unwrap();
    for name in ["first", "second"] {
        let (lines, out) = (story.text("a.jsonl"), story.text(&format!("tokens/{name}")));
        let documents = (0..400).map(|i| format!("{{\"text\": \"{name} {i} of many\"}}\n"));
        std::fs::write(story.path("a.jsonl"), documents.collect::<String>()).unwrap();
        let made = story.node(&["data", "tokenize", &lines, "--out", &out]).unwrap();
        made.expect_success().unwrap();
    }
    let mut arguments: Vec<&str> = SMALL.iter().flat_map(|setting| ["--set", setting]).collect();
    arguments.extend(["--peers", "2", "--epochs", "3", "--data", &tokens]);
    arguments.extend(["--set", "data.anneal_weights=[0, 1]", "--set", "data.anneal_from=2000"]);
    let sim = story.sim("mix", &arguments, PATIENCE).unwrap();
    sim.done.clone().expect_success().unwrap();
    assert_equal_states(&sim, &[0, 1], 3);
    let loss = |when: &str| sim.report["held_out"][when]["loss"].as_f64().unwrap();
    assert!(loss("after") < loss("before") - 0.1, "{} {}", loss("before"), loss("after"));
}

/// The report repeats what the events say, for a reader that reads no events.
#[test]
fn the_report_and_the_events_agree() {
    let sim = simulate("report", &["--peers", "2", "--epochs", "2"]);
    assert_eq!(sim.report["succeeded"], true);
    let table = sim.report["table"].as_array().unwrap();
    let states = sim.states(&[0, 1]).unwrap();
    assert_eq!(table.len(), states.len());
    for (row, (epoch, state)) in table.iter().zip(&states) {
        assert_eq!((row["epoch"].as_u64(), row["state"].as_str()), (Some(*epoch), Some(&**state)));
        assert_eq!(row["reports"], 2);
    }
    // What a replay of its steps needs.
    let events = sim.events(0).unwrap();
    for name in ["started", "ready"] {
        let event = events.iter().find(|event| event["event"] == name).unwrap();
        assert_eq!((&event["device"], &event["micro_batch"]), (&"cpu".into(), &4.into()));
    }
    let (before, after) = (&sim.report["held_out"]["before"], &sim.report["held_out"]["after"]);
    assert!(after["loss"].as_f64().unwrap() < before["loss"].as_f64().unwrap());
    let journal = sim.journal().unwrap();
    for (event, epoch, measured) in [(&journal[0], 0, before), (journal.last().unwrap(), 2, after)]
    {
        assert_eq!((&event["event"], &event["epoch"]), (&"evaluated".into(), &epoch.into()));
        assert_eq!((&event["loss"], &event["excess"]), (&measured["loss"], &measured["excess"]));
        assert_eq!(event["error"], measured["error"]);
        for name in ["unigram", "bigram", "floor"] {
            assert_eq!(event[name], sim.report["entropies"][name], "{name}");
        }
        assert_eq!(event["run"], sim.report["run"]);
    }
    for row in table.iter().filter(|row| row["held_out_loss"].is_number()) {
        let same = |event: &&Value| {
            event["epoch"] == row["epoch"] && event["loss"] == row["held_out_loss"]
        };
        assert!(journal.iter().any(|event| same(&event)), "{row}");
    }
}
