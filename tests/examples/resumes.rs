//! Kills a node 200 times while it writes checkpoints: each time it must come back where it was.
//!
//!     cargo build --release && cargo run --release -p e2e --example resumes [kills] [seed]
//!
//! One node trains alone, on a model whose checkpoint takes a good part of an epoch to write. It is
//! killed again and again, as by kill -9, at a time drawn from the seed. While it is dead, `eval`
//! must read the newest checkpoint of its data folder. When it is back, it must go on from that
//! epoch or a later one, with one state per epoch, and its incarnation must rise.

#![allow(clippy::print_stdout, reason = "a campaign prints its results")]

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use e2e::{Process, Programs, SMALL, Story, number};
use intellect_protocol::base::rng::Rng;
use serde_json::Value;

/// About two million parameters, 16 MB of state an epoch, which a step hardly trains.
const MODEL: [&str; 5] = [
    "model.width=256",
    "model.ffn=1024",
    "model.layers=2",
    "epoch.amount=1",
    "members.min_peers=1",
];
/// Short timers: it is alone and waits for no peer.
const QUICK: [&str; 2] = ["members.heartbeat_ms=100", "members.minority_grace_ms=1200"];
/// How long anything is awaited.
const PATIENCE: Duration = Duration::from_secs(60);
/// The kill comes at most this long after the first new commit.
const SPREAD: Duration = Duration::from_millis(800);

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let kills = arguments.next().transpose()?.unwrap_or(200);
    let mut rng = Rng::new(arguments.next().transpose()?.unwrap_or(1));
    let story = Story::begin(Programs::built()?)?;
    let settings: Vec<&str> = MODEL.iter().chain(&SMALL[5..8]).chain(&QUICK).copied().collect();
    let manifest = story.manifest("run.toml", &settings)?;
    let (_bootstrap, entry) = story.start_bootstrap(&[manifest])?;
    let (mut head, mut kept, mut seen) = (0_u64, 0, 0);
    let mut undone = 0;
    let start = Instant::now();
    for kill in 1..=kills {
        let mut node = story.start_node("node", &entry, &["--device", "cpu"])?;
        let is_new = |seen: usize, kind: &'static str| {
            move |(index, event): (usize, &Value)| index >= seen && event["event"] == kind
        };
        let back = wait(&mut node, is_new(seen, "committed"))?;
        std::thread::sleep(SPREAD.mul_f64(rng.unit()));
        node.kill()?;
        let events = node.events()?;
        let first = number(&back, "epoch")?;
        ensure!(first > kept, "it began at epoch {first}, not above its checkpoint of {kept}");
        undone = undone.max((head + 1).saturating_sub(first));
        check(&events)?;
        let measured = story.node(&["eval", "--data-dir", &story.text("node/data")])?;
        let measured = measured.expect_success().with_context(|| format!("after kill {kill}"))?;
        kept = newest_checkpoint(&story.path("node/data/runs"))?;
        let commits = events.iter().filter(|event| event["event"] == "committed");
        head = commits.filter_map(|event| event["epoch"].as_u64()).max().unwrap_or(head);
        seen = events.len();
        if kill % 10 == 0 {
            let line = measured.out.lines().next().unwrap_or_default().to_owned();
            println!(
                "{kill:>4} kills, epoch {head}, {:.0} s; {line}",
                start.elapsed().as_secs_f64()
            );
        }
    }
    println!("{kills} clean resumes; at most {undone} epochs were done again");
    Ok(())
}

/// Waits for a new event, which its index in the file tells from old ones.
fn wait(node: &mut Process, accepts: impl Fn((usize, &Value)) -> bool) -> Result<Value> {
    let start = Instant::now();
    loop {
        let events = node.events()?;
        if let Some(found) =
            events.iter().enumerate().find(|(index, event)| accepts((*index, event)))
        {
            return Ok(found.1.clone());
        }
        if start.elapsed() > PATIENCE || node.exit()?.is_some() {
            bail!("it does not come back; its last events: {:?}", events.iter().rev().take(5));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The greatest epoch of a complete checkpoint in the one run of this folder.
fn newest_checkpoint(runs: &Path) -> Result<u64> {
    let run = fs::read_dir(runs)?.next().context("no run")??.path();
    let files = fs::read_dir(run.join("checkpoints"))?.collect::<Result<Vec<_>, _>>()?;
    let names = files.iter().map(fs::DirEntry::file_name);
    let epochs = names.filter_map(|name| name.to_str()?.strip_suffix(".ckpt")?.parse().ok());
    Ok(epochs.max().unwrap_or(0))
}

/// One state per epoch over all starts, and rising incarnations.
fn check(events: &[Value]) -> Result<()> {
    let mut states: BTreeMap<u64, &Value> = BTreeMap::new();
    let mut incarnation = 0;
    for event in events {
        match event["event"].as_str() {
            Some("started") => {
                let next = number(event, "incarnation")?;
                ensure!(next > incarnation, "incarnation {next} after {incarnation}");
                incarnation = next;
            }
            Some("committed" | "caught-up") => {
                let epoch = number(event, "epoch")?;
                let known = *states.entry(epoch).or_insert_with(|| &event["state"]);
                ensure!(*known == event["state"], "epoch {epoch} has two states");
            }
            Some("disk" | "fault" | "fork" | "diverged") => bail!("{event}"),
            _ => {}
        }
    }
    Ok(())
}
