//! A newcomer joins a run that goes on: where its state comes from, and that it arrives.

use std::collections::BTreeSet;
use std::time::Duration;

use e2e::Process;
use e2e::process::Thread;
use serde_json::Value;

use crate::story;

const PATIENCE: Duration = Duration::from_secs(60);

/// Two million parameters, so that a state has sixteen pieces. With f32 an update is half a state,
/// so three epochs of updates cost more than the state.
const LARGE: [&str; 6] = [
    "model.layers=2",
    "model.width=256",
    "model.ffn=1024",
    "ring.codec=f32",
    "members.min_peers=3",
    "members.heartbeat_ms=200",
];

/// Bytes per second that each node may send: a state takes a few epochs, enough time to be killed.
const RATE: &str = "6000000";

fn is(event: &Value, name: &str) -> bool {
    event["event"] == name
}

/// What some nodes have spent together: epochs, CPU seconds, and those
/// of threads that do not train.
#[derive(Clone, Copy)]
struct Spent {
    epochs: f64,
    all: f64,
    beside: f64,
}

impl Spent {
    fn by(nodes: &[Process]) -> Self {
        let epoch = |node: &Process| {
            let events = node.events().unwrap();
            let last = events.iter().rfind(|event| is(event, "committed"));
            last.map_or(0.0, |event| event["epoch"].as_f64().unwrap())
        };
        let trains = |thread: &Thread| thread.name == "worker";
        let training = |node: &Process| -> f64 {
            node.threads().unwrap().iter().filter(|t| trains(t)).map(|t| t.cpu).sum()
        };
        let all: f64 = nodes.iter().map(|node| node.cpu_seconds().unwrap()).sum();
        let beside = all - nodes.iter().map(training).sum::<f64>();
        Self { epochs: nodes.iter().map(epoch).sum(), all, beside }
    }

    /// The difference to an earlier moment, per epoch of one node.
    fn since(self, before: Self) -> Self {
        let epochs = self.epochs - before.epochs;
        let (all, beside) = (self.all - before.all, self.beside - before.beside);
        Self { epochs, all: all / epochs, beside: beside / epochs }
    }
}

/// The newcomer is killed when it has a part of the state, and started again. It goes on where it
/// was, with pieces from several donors, reports its arrival once, and contributes.
#[test]
fn a_newcomer_gets_pieces_from_many_donors_and_goes_on_after_kill_9() {
    let story = story();
    let manifest = story.manifest("run.toml", &LARGE).unwrap();
    let (_bootstrap, entry) = story.start_bootstrap(&[manifest]).unwrap();
    let start = |name: &str| story.start_node(name, &entry, &["--rate", RATE]).unwrap();
    let mut donors = ["one", "two", "three"].map(start);
    donors[0].wait_for_commit(1, PATIENCE).unwrap();
    let before = Spent::by(&donors);
    donors[0].wait_for_commit(4, PATIENCE).unwrap();
    let alone = Spent::by(&donors);

    let start_newcomer = || story.start_node("newcomer", &entry, &[]).unwrap();
    let mut newcomer = start_newcomer();
    let some = |event: &Value| {
        let (have, want) = (event["have_bytes"].as_u64(), event["want_bytes"].as_u64());
        is(event, "sync") && have > Some(2 << 20) && have < want
    };
    let seen = newcomer.wait_for(PATIENCE, some).unwrap();
    newcomer.kill().unwrap();
    let first_life = newcomer.events().unwrap().len();
    let mut newcomer = start_newcomer();
    let arrived = newcomer.wait_for(PATIENCE, |event| is(event, "caught-up")).unwrap();
    let with_newcomer = Spent::by(&donors);

    let events = newcomer.events().unwrap();
    let (old, new) = events.split_at(first_life);
    let resumed = new.iter().find(|event| is(event, "sync")).unwrap();
    assert_eq!(resumed["to_epoch"], seen["to_epoch"], "{resumed}");
    assert!(resumed["have_bytes"].as_u64() >= seen["have_bytes"].as_u64(), "{seen} {resumed}");
    let names = |event: &Value| event["donors"].as_array().unwrap().clone();
    let asked: BTreeSet<String> = old
        .iter()
        .chain(new)
        .filter(|event| is(event, "sync"))
        .flat_map(names)
        .map(|name| name.to_string())
        .collect();
    // The third donor may be an epoch behind, as far as the newcomer has heard.
    assert!(asked.len() >= 2, "{asked:?}");

    let there = arrived["epoch"].as_u64().unwrap();
    let loss = |event: &Value| is(event, "committed") && event["loss"].is_number();
    let first = newcomer.wait_for(PATIENCE, loss).unwrap();
    // Two epochs, if the machine keeps up; the scenes of `protocol` check the exact number.
    assert!(first["epoch"].as_u64().unwrap() <= there + 6, "at {there}, then {first}");
    println!("at epoch {there}, and in the ring of {}", first["epoch"]);
    let events = newcomer.events().unwrap();
    let arrivals: Vec<u64> = events
        .iter()
        .filter(|event| is(event, "caught-up"))
        .map(|event| event["epoch"].as_u64().unwrap())
        .collect();
    // A second arrival only if a loaded machine has left it behind again.
    assert!(arrivals.is_sorted_by(|before, after| before < after), "{arrivals:?}");
    // The same training takes more CPU seconds when more processes share the caches, so the cost of
    // serving is measured in the other threads.
    let (quiet, busy) = (alone.since(before), with_newcomer.since(alone));
    println!(
        "a donor, in an epoch: {:.3} CPU s, {:.3} of them beside training; while it serves {:.3}, {:.3}: \
         {:+.1} %",
        quiet.all,
        quiet.beside,
        busy.all,
        busy.beside,
        100.0 * (busy.beside - quiet.beside) / quiet.all
    );
}

/// On this link the state takes as long as four epochs. The updates of that time come after it,
/// each in less than an epoch, and in the end the newcomer contributes.
#[test]
fn a_newcomer_on_a_slow_line_arrives() {
    let story = story();
    let steps = "[[step]]\ndo = \"link\"\npeer = 3\nrate = 700000\nepoch = 2\n\
                 [[step]]\ndo = \"start\"\npeer = 3\nepoch = 9\n";
    std::fs::write(story.path("scenario.toml"), steps).unwrap();
    let scenario = story.text("scenario.toml");
    let mut all = vec!["--scenario", &scenario, "--peers", "4", "--epochs", "40"];
    let settings = [
        "model.layers=3",
        "model.width=128",
        "model.ffn=512",
        "model.context=32",
        // The budget is in time, not in steps: on a faster machine epochs
        // would be shorter than an update.
        "epoch.budget=seconds",
        "epoch.amount=2",
    ];
    all.extend(settings.iter().flat_map(|setting| ["--set", setting]));
    let sim = story.sim("out", &all, Duration::from_secs(300)).unwrap();
    sim.done.clone().expect_success().unwrap();
    let events = sim.events(3).unwrap();
    let syncs: Vec<&Value> = events.iter().filter(|event| is(event, "sync")).collect();
    let whole = syncs.iter().find(|event| event["have_bytes"] == event["want_bytes"]).unwrap();
    let (began, ended) = (syncs[0]["t_ms"].as_u64().unwrap(), whole["t_ms"].as_u64().unwrap());
    let commits = sim.events(0).unwrap();
    let meanwhile = commits.iter().filter(|event| {
        is(event, "committed") && (began..ended).contains(&event["t_ms"].as_u64().unwrap())
    });
    println!("{} epochs passed while the state came", meanwhile.count());
    let first = events.iter().find(|event| is(event, "committed") && event["loss"].is_number());
    println!("in the ring of {}", first.expect("it never arrived")["epoch"]);
}
