//! Kills and restarts one random peer in every epoch of 50, and measures the cost to the model.
//!
//!     cargo build --release && cargo run --release -p e2e --example storm [seeds] [epochs]
//!
//! For each seed, a run under `--chaos "kill each epoch"` is followed by a calm one with the same
//! identities, which stops at the same number of tokens, to the nearest epoch. The simulation
//! measures both on the same held-out tokens;
//!
//! difference = loss(stormy) / loss(calm) − 1.

#![allow(clippy::print_stdout, reason = "a campaign prints its results")]

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use e2e::{Programs, Story};
use serde_json::Value;

/// Peers of each run, all of which must be there to found it.
const PEERS: &str = "6";
/// Calm epochs around the storm: two before, three after.
const CALM: u64 = 5;
/// Bytes per second, so slow for the built-in model that a peer is back before the next epoch ends.
const RATE: &str = "100000";
/// The mean cost that is allowed, as a share of the loss.
const LOSS_MAX: f64 = 0.01;
/// A run that takes longer counts as hanging.
const PATIENCE: Duration = Duration::from_secs(3_000);

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let seeds = arguments.next().transpose()?.unwrap_or(3);
    let epochs = arguments.next().transpose()?.unwrap_or(50) + CALM;
    let mut differences = Vec::new();
    for seed in 1..=seeds {
        let stormy = run(seed, epochs, &["--chaos", "kill each epoch"])?;
        let first = tokens(&stormy["table"][0])?;
        let equal = (committed(&stormy)? + first / 2) / first;
        let calm = run(seed, equal, &[])?;
        let (with, without) = (loss(&stormy)?, loss(&calm)?);
        let difference = with / without - 1.0;
        differences.push(difference);
        println!(
            "seed {seed}: loss {with:.4} after {} tokens in {epochs} epochs, {without:.4} after {} in \
             {equal}: {:+.2} %",
            committed(&stormy)?,
            committed(&calm)?,
            100.0 * difference
        );
        println!("  {}", stormy["chaos"]);
    }
    let mean = differences.iter().sum::<f64>() / differences.len().max(1) as f64;
    println!("mean paired difference {:+.2} %", 100.0 * mean);
    ensure!(mean <= LOSS_MAX, "a storm may cost {:.0} % of the loss", 100.0 * LOSS_MAX);
    Ok(())
}

/// The report of one run. The story ends here, since the runs take turns.
fn run(seed: u64, epochs: u64, more: &[&str]) -> Result<Value> {
    let story = Story::begin(Programs::built()?)?;
    let (seed, epochs) = (seed.to_string(), epochs.to_string());
    let mut all = vec!["--peers", PEERS, "--epochs", &epochs, "--seed", &seed, "--rate", RATE];
    // The budget is in steps: an epoch has as many tokens as members, however slow it is.
    all.extend(["--set", "epoch.amount=10", "--set", "members.min_peers=6"]);
    all.extend(more);
    let sim = story.sim("out", &all, PATIENCE)?;
    print!("{}", sim.done.out);
    if sim.report["succeeded"] != true {
        bail!("seed {seed}: {}", sim.report["reasons"]);
    }
    Ok(sim.report)
}

/// The tokens of all epochs in the table of a report.
fn committed(report: &Value) -> Result<u64> {
    report["table"].as_array().context("a table")?.iter().map(tokens).sum()
}

fn tokens(epoch: &Value) -> Result<u64> {
    epoch["tokens"].as_u64().context("tokens of an epoch")
}

fn loss(report: &Value) -> Result<f64> {
    report["held_out"]["after"]["loss"].as_f64().context("a held-out loss")
}
