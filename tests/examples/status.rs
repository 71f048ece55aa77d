//! How long `status` takes while a ring runs: each answer is a process, from its start to its end.
//!
//!     cargo build --release && cargo run --release -p e2e --example status [answers]
//!
//! Two nodes send so slowly that a ring takes about a second. One of them is asked again and again,
//! and the answers count in which it is in a ring.

#![allow(clippy::print_stdout, reason = "a campaign prints its results")]

use std::{
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use e2e::{Programs, Story};
use serde_json::Value;

/// A model of about 30,000 parameters, which trains in almost no time.
const MODEL: [&str; 4] =
    ["model.width=64", "model.ffn=160", "epoch.amount=4", "members.min_peers=2"];
/// Bytes that each node may send in a second.
const RATE: &str = "30000";
/// The longest time that an answer may take.
const ANSWER_MAX: Duration = Duration::from_millis(50);
/// How long the run may take to begin.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long all answers may take.
const ALL_PATIENCE: Duration = Duration::from_secs(600);

fn main() -> Result<()> {
    let wanted: usize = std::env::args().nth(1).map_or(Ok(200), |text| text.parse())?;
    ensure!(wanted > 0, "ask for one answer at least");
    let programs = Programs::built()?;
    let story = Story::begin(programs)?;
    let manifest = story.manifest("run.toml", &MODEL)?;
    let (_bootstrap, entry) = story.start_bootstrap(&[manifest])?;
    let mut one = story.start_node("one", &entry, &["--rate", RATE])?;
    let _two = story.start_node("two", &entry, &["--rate", RATE])?;
    one.wait_for_commit(2, PATIENCE)?;
    let folder = story.text("one/data");
    let (begin, mut times) = (Instant::now(), Vec::new());
    while times.len() < wanted {
        ensure!(begin.elapsed() < ALL_PATIENCE, "{} answers in a ring, not {wanted}", times.len());
        let asked = Instant::now();
        let line = ["status", "--json", "--data-dir", &folder];
        let answer = Command::new(programs.node).args(line).output()?;
        let took = asked.elapsed();
        let seen: Value = serde_json::from_slice(&answer.stdout)?;
        if seen["open"]["phase"] == "ring" {
            times.push(took);
        }
    }
    times.sort_unstable();
    let (middle, longest) = (times[wanted / 2], times[wanted - 1]);
    println!("{wanted} answers while a ring ran: median {middle:.1?}, longest {longest:.1?}");
    ensure!(longest <= ANSWER_MAX, "an answer may take {ANSWER_MAX:?}");
    Ok(())
}
