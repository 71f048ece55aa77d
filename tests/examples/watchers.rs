//! Fifty watchers on four nodes: what they cost the members, and who waits for them.
//!
//!     cargo build --release && cargo run --release -p e2e --example watchers [watchers] [seconds]
//!
//! The run goes on for so many seconds without watchers, with them, and without them again. An epoch has a fixed number
//! of steps. The watchers are one process with a low priority, so that their own work does not count.

#![allow(clippy::print_stdout, reason = "a campaign prints its results")]

use std::{thread, time::Duration};

use anyhow::{Context as _, Result, ensure};
use e2e::{Process, Programs, Story};
use serde_json::Value;

const NODES: [&str; 4] = ["one", "two", "three", "four"];
/// Steps of an epoch: about a second on one core.
const STEPS: &str = "epoch.amount=400";
/// What the watchers may cost: of the time of an epoch, and of a core for each member.
const TIME_MAX: f64 = 0.03;
const CORE_MAX: f64 = 0.02;
const PATIENCE: Duration = Duration::from_secs(120);

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let watchers = arguments.next().transpose()?.unwrap_or(50).to_string();
    let length = Duration::from_secs(arguments.next().transpose()?.unwrap_or(120));
    let story = Story::begin(Programs::built()?)?;
    let manifest = story.manifest("run.toml", &["members.min_peers=4", STEPS])?;
    let (_bootstrap, entry) = story.start_bootstrap(&[manifest])?;
    let start = |name: &&str| story.start_node(name, &entry, &["--quiet"]);
    let mut nodes: Vec<Process> = NODES.iter().map(start).collect::<Result<_>>()?;
    nodes[0].wait_for_commit(3, PATIENCE)?;

    let before = measure(&nodes, length)?;
    let nice = ["nice", "-n", "19"];
    let line = ["watch", "--bootstrap", &entry, "--crowd", &watchers];
    let mut crowd = story.start_command_under("crowd", &nice, &line)?;
    crowd.wait_until_it_said("watching: epochs 1 to", PATIENCE)?;
    // All others have found the run by then too.
    thread::sleep(Duration::from_secs(10));
    let with = measure(&nodes, length)?;
    crowd.interrupt()?;
    crowd.wait(PATIENCE)?.expect_success()?;
    let after = measure(&nodes, length)?;

    let without = Cost::mean(&before, &after);
    println!("{watchers} watchers, {} s each", length.as_secs());
    for (name, cost) in [("before", &before), ("with", &with), ("after", &after)] {
        println!("{name:>7}: {:.3} s an epoch, {:.4} of a core", cost.epoch_s, cost.core);
    }
    let (time, core) = (with.epoch_s / without.epoch_s - 1.0, with.core - without.core);
    println!("an epoch takes {:+.2} %, a member {:+.2} % of a core", 100.0 * time, 100.0 * core);
    for node in &nodes {
        let named =
            |event: &Value| event["members"].as_array().is_some_and(|all| all.len() > NODES.len());
        ensure!(!node.events()?.iter().any(named), "a watcher is in a roster");
    }
    ensure!(time <= TIME_MAX, "an epoch may take {:.0} % more", 100.0 * TIME_MAX);
    ensure!(core <= CORE_MAX, "a member may use {:.0} % of a core more", 100.0 * CORE_MAX);
    Ok(())
}

/// What a part of the run took.
struct Cost {
    /// The mean time from a commit to the next.
    epoch_s: f64,
    /// Cores that a member used, in the mean, without its training threads.
    core: f64,
}

impl Cost {
    fn mean(one: &Self, other: &Self) -> Self {
        Self {
            epoch_s: f64::midpoint(one.epoch_s, other.epoch_s),
            core: f64::midpoint(one.core, other.core),
        }
    }
}

fn measure(nodes: &[Process], length: Duration) -> Result<Cost> {
    let cpu = || -> Result<f64> {
        let threads = nodes.iter().map(Process::threads).collect::<Result<Vec<_>>>()?.concat();
        Ok(threads.iter().filter(|thread| is_network(&thread.name)).map(|thread| thread.cpu).sum())
    };
    let (before, from) = (cpu()?, last(nodes)?);
    thread::sleep(length);
    let (after, to) = (cpu()?, last(nodes)?);
    let (epochs, ms) = (to.0 - from.0, to.1 - from.1);
    ensure!(epochs > 0.0, "no epoch was committed");
    let core = (after - before) / length.as_secs_f64() / nodes.len() as f64;
    Ok(Cost { epoch_s: ms / 1_000.0 / epochs, core })
}

/// Whether a thread serves the network: those that compute have names of their own.
fn is_network(name: &str) -> bool {
    name != "worker"
}

/// The last epoch that the first node committed, and when.
fn last(nodes: &[Process]) -> Result<(f64, f64)> {
    let events = nodes[0].events()?;
    let commit = events.iter().rev().find(|event| event["event"] == "committed");
    let commit = commit.context("a commit")?;
    let number = |key: &str| commit[key].as_f64().context("a number");
    Ok((number("epoch")?, number("t_ms")?))
}
