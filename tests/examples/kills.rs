//! Kills one of six peers in the middle of an epoch, many times, and
//! measures the cost to the others.
//!
//!     cargo build --release && cargo run --release -p e2e --example kills [runs] [first seed]
//!
//! In each run the rings of two epochs are measured. Then one peer, drawn from the seed, is killed
//! as by kill -9, at a time drawn uniformly between its roster and the usual commit. Every survivor
//! must commit that epoch, with one state, and lose no work:
//!
//! Σ weights of a survivor in the receipts + its carried work at the end =
//! the new work of its Readies.
//!
//! The phase at that time follows from the time that the ring sends, which is the bytes it sent
//! divided by its rate; cost = (last commit − kill) − (bytes sent after the kill) / rate.

#![allow(clippy::print_stdout, reason = "a campaign prints its results")]

use std::{collections::BTreeMap, fs, time::Duration};

use anyhow::{Context as _, Result, bail};
use e2e::{Programs, SMALL, Sim, Story, number};
use intellect_protocol::base::rng::Rng;
use serde_json::Value;

/// Peers of each run, one of which dies.
const PEERS: usize = 6;
/// The epoch of the death; the epochs before it are the measure.
const EPOCH: u64 = 4;
const EPOCHS: u64 = 6;
/// Bytes per second that each peer may send: a ring of the model below takes some 2 s.
const RATE: u64 = 36_000;
/// A model of about 30,000 parameters, which trains in almost no time.
const MODEL: [&str; 4] =
    ["model.width=64", "model.ffn=160", "epoch.amount=4", "members.min_peers=6"];
/// A run that takes longer counts as hanging.
const PATIENCE: Duration = Duration::from_secs(300);

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let runs = arguments.next().transpose()?.unwrap_or(50);
    let first = arguments.next().transpose()?.unwrap_or(1);
    let mut results = Vec::new();
    println!("seed  peer  at s  phase           attempt  kept  commit s  cost s  survivors");
    for seed in first..first + runs {
        match run(seed) {
            Ok(result) => {
                println!("{seed:>4}  {result}");
                results.push(result);
            }
            Err(error) => println!("{seed:>4}  FAILED: {error:#}"),
        }
    }
    conclude(&results, runs)
}

/// The cost of one death to the others.
struct Death {
    /// The peer that was killed, by its index.
    peer: usize,
    /// When it was killed, in seconds after its roster came.
    at_s: f64,
    /// The phase of the ring at that time.
    phase: &'static str,
    /// The highest attempt at which a survivor committed the epoch.
    attempt: u64,
    /// The most chunks that a roster of the epoch kept of the broken ring.
    kept_chunks: u64,
    /// Seconds from the kill to the last commit of a survivor.
    commit_s: f64,
    /// Seconds that it cost the survivor that it cost most, beside what it still had to send.
    cost_s: f64,
    /// `None` if the survivors behaved as they must.
    complaint: Option<String>,
}

impl std::fmt::Display for Death {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:>4}  {:>4.2}  {:<14}  {:>7}  {:>4}  {:>8.2}  {:>6.2}  {}",
            self.peer,
            self.at_s,
            self.phase,
            self.attempt,
            self.kept_chunks,
            self.commit_s,
            self.cost_s,
            self.complaint.as_deref().unwrap_or("committed, one state, nothing lost")
        )
    }
}

/// One run, in which a scenario of `sim` kills the peer that the seed draws.
///
/// # Errors
/// The simulation failed, or its files lack what is measured.
fn run(seed: u64) -> Result<Death> {
    let mut rng = Rng::new(seed);
    let peer = usize::try_from(rng.below(PEERS as u64))?;
    let share = rng.unit();
    let story = Story::begin(Programs::built()?)?;
    let step = format!(
        "[[step]]\ndo = \"kill\"\npeer = {peer}\nroster = {EPOCH}\nplus_share = {share:.4}\n"
    );
    fs::write(story.path("kill.toml"), step)?;
    let scenario = story.text("kill.toml");
    let numbers = [PEERS as u64, EPOCHS, RATE, seed].map(|number| number.to_string());
    let [peers, epochs, rate, seed] = &numbers;
    let mut all = vec!["--scenario", &scenario, "--peers", peers, "--epochs", epochs];
    all.extend(["--rate", rate, "--seed", seed]);
    all.extend(SMALL.iter().chain(&MODEL).flat_map(|setting| ["--set", setting]));
    let sim = story.sim("out", &all, PATIENCE)?;
    if sim.report["succeeded"] != true {
        bail!("{}", sim.report["reasons"]);
    }
    judge(&sim, peer)
}

/// Measures what the death of `peer` cost, by the events of all peers.
fn judge(sim: &Sim, peer: usize) -> Result<Death> {
    let killed_ms = number(&sim.report["done"][0], "t_ms")?;
    let mut ring = Ring::of(&sim.events(peer)?)?;
    let dead = Ring::began(&sim.events(peer)?, EPOCH);
    let at_ms = killed_ms.saturating_sub(dead.context("it was in no roster")?);
    let survivors: Vec<usize> = (0..PEERS).filter(|one| *one != peer).collect();
    let states = sim.states(&survivors)?;
    let (mut commit_ms, mut cost_s, mut attempt, mut kept_chunks) = (0, f64::MIN, 0, 0);
    let mut complaint = None;
    for one in &survivors {
        let events = sim.events(*one)?;
        ring = Ring::of(&events)?;
        let Some(commit) = of(&events, "committed", EPOCH).next() else {
            complaint = Some(format!("peer {one} did not commit it"));
            continue;
        };
        let after_s = seconds(number(commit, "t_ms")?.saturating_sub(killed_ms));
        let roster = of(&events, "roster", EPOCH).next().context("a roster")?;
        let started_ms = number(roster, "t_ms")? + ring.before_ms;
        let before = seconds(killed_ms.saturating_sub(started_ms)) * RATE as f64;
        let rest = (number(commit, "sent_bytes")? as f64 - before).max(0.0) / RATE as f64;
        cost_s = cost_s.max(after_s - rest);
        commit_ms = commit_ms.max(number(commit, "t_ms")?);
        attempt = attempt.max(number(commit, "attempt")?);
        let kept = of(&events, "roster", EPOCH).map(|event| number(event, "kept_chunks"));
        kept_chunks =
            kept_chunks.max(kept.collect::<Result<Vec<_>>>()?.into_iter().max().unwrap_or(0));
        complaint = complaint.or(conserved(&events)?.map(|what| format!("peer {one}: {what}")));
    }
    if states.last().map(|(epoch, _)| *epoch) != Some(EPOCHS) {
        complaint = Some("the survivors did not reach the end".to_owned());
    }
    let commit_s = seconds(commit_ms.saturating_sub(killed_ms));
    let phase = ring.phase(at_ms);
    Ok(Death {
        peer,
        at_s: seconds(at_ms),
        phase,
        attempt,
        kept_chunks,
        commit_s,
        cost_s,
        complaint,
    })
}

/// The duration of the rings before the death, at one peer.
struct Ring {
    /// From the roster to the first frame.
    before_ms: u64,
    /// The bytes of the ring divided by the rate.
    sending_ms: u64,
}

impl Ring {
    fn of(events: &[Value]) -> Result<Self> {
        let mut whole = Vec::new();
        let mut sending = Vec::new();
        for epoch in 2..EPOCH {
            let commit = of(events, "committed", epoch).next().context("a calm epoch")?;
            let roster = of(events, "roster", epoch).next().context("its roster")?;
            whole.push(number(commit, "t_ms")?.saturating_sub(number(roster, "t_ms")?));
            sending.push(1_000 * number(commit, "sent_bytes")? / RATE);
        }
        let (whole, sending_ms) = (median(&mut whole), median(&mut sending));
        Ok(Self { before_ms: whole.saturating_sub(sending_ms) / 2, sending_ms })
    }

    /// When the first roster of `epoch` came.
    fn began(events: &[Value], epoch: u64) -> Option<u64> {
        of(events, "roster", epoch).next()?["t_ms"].as_u64()
    }

    /// The phase at this time after the roster; both halves send the same number of bytes.
    fn phase(&self, at_ms: u64) -> &'static str {
        match at_ms.checked_sub(self.before_ms) {
            None => "before",
            Some(in_ring) if in_ring < self.sending_ms / 2 => "reduce-scatter",
            Some(in_ring) if in_ring < self.sending_ms => "all-gather",
            Some(_) => "after",
        }
    }
}

/// Whether each token that a survivor was Ready with is in a receipt or still its own.
fn conserved(events: &[Value]) -> Result<Option<String>> {
    let me = events.first().context("no events")?["peer"].clone();
    let mut ready: BTreeMap<u64, u64> = BTreeMap::new();
    for event in events.iter().filter(|event| event["event"] == "ready") {
        ready.insert(number(event, "epoch")?, number(event, "tokens")?);
    }
    let fresh = ready.values().min().copied().context("never ready")?;
    let (mut trained, mut spent, mut carried) = (0, 0, 0);
    for epoch in 1..=EPOCHS {
        let tokens = ready.get(&epoch).copied().unwrap_or(carried);
        trained += tokens - carried.min(tokens);
        let commit = of(events, "committed", epoch).next().context("a commit")?;
        let members = commit["members"].as_array().context("members")?;
        let place = members.iter().position(|member| *member == me);
        let weight = place.and_then(|place| commit["weights"][place].as_u64()).unwrap_or(0);
        spent += weight;
        carried = tokens.saturating_sub(weight);
        let left = of(events, "left-out", epoch).next();
        let told = left.map_or(Ok(0), |event| number(event, "carried_tokens"))?;
        if carried != told {
            return Ok(Some(format!("epoch {epoch}: {carried} tokens unspent, {told} carried")));
        }
    }
    let whole = fresh * EPOCHS;
    let sound = spent + carried == trained && trained % fresh == 0 && trained >= whole;
    Ok((!sound).then(|| format!("{trained} tokens trained, {spent} spent, {carried} carried")))
}

/// The events of one kind and epoch, in order.
fn of<'a>(events: &'a [Value], kind: &'a str, epoch: u64) -> impl Iterator<Item = &'a Value> {
    events.iter().filter(move |event| event["event"] == kind && event["epoch"] == epoch)
}

fn seconds(millis: u64) -> f64 {
    millis as f64 / 1_000.0
}

fn median<T: Copy + PartialOrd + Default>(values: &mut [T]) -> T {
    values.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// Prints the deaths by phase, and whether the campaign holds.
///
/// # Errors
/// A run is not sound, too few deaths fell into a ring, or their median cost is above 3 s.
fn conclude(results: &[Death], runs: u64) -> Result<()> {
    println!("\nphase           deaths  median commit s  median cost s  kept chunks");
    for phase in ["before", "reduce-scatter", "all-gather", "after"] {
        let hit: Vec<&Death> = results.iter().filter(|death| death.phase == phase).collect();
        let mut commits: Vec<f64> = hit.iter().map(|death| death.commit_s).collect();
        let mut costs: Vec<f64> = hit.iter().map(|death| death.cost_s).collect();
        let kept: u64 = hit.iter().map(|death| death.kept_chunks).sum();
        println!(
            "{phase:<14}  {:>6}  {:>15.2}  {:>13.2}  {kept:>11}",
            hit.len(),
            median(&mut commits),
            median(&mut costs)
        );
    }
    let mut costs: Vec<f64> = results
        .iter()
        .filter(|death| ["reduce-scatter", "all-gather"].contains(&death.phase))
        .map(|death| death.cost_s)
        .collect();
    let sound = results.iter().filter(|death| death.complaint.is_none()).count();
    let cost = median(&mut costs);
    println!(
        "{sound} of {runs} runs are sound; {} deaths in the ring, median cost {cost:.2} s",
        costs.len()
    );
    let enough = costs.len() as u64 * 50 >= runs * 35;
    if sound as u64 != runs || !enough || cost > 3.0 {
        bail!(
            "every run must be sound, 35 of 50 deaths in the ring, their median cost 3 s at most"
        );
    }
    Ok(())
}
