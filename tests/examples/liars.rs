//! The cost of liars to honest nodes: each way to lie for a while, after an equally long calm.
//!
//!     cargo build --release && cargo run --release -p e2e --example liars [seconds] [words of a way …]
//!
//! Each way gets a new run, and a line of the table. There are three kinds:
//!
//! - A *stranger* has a real connection to each of six honest nodes of an open run. It says that it
//!   is Ready, and lies as in the simulator (`protocol/sim/src/liars.rs`), or does what takes a
//!   connection (`tests/examples/liars/attacker.rs`).
//! - *Two members* lie, of eight in a run of invited peers with `tolerate = "liars"`.
//! - *A member* is never Ready, one of six voters of an open run. It is compared with five honest
//!   voters alone, and measured three times as long (`tests/examples/liars/members.rs`).
//!
//! The words `60 member` choose the last two kinds. The table has
//!
//! - calm, attack: epochs committed in either time;
//! - pace: epochs a second under attack / epochs a second in the calm;
//! - CPU: use of the worst honest node under attack − in the calm, per second;
//! - events: bytes of events a second, of the honest node that writes most under attack;
//! - named: how many of the honest nodes reported a fault of the liar; of two liars the smaller number;
//! - harmed: faults and losses that an honest node reported of an honest one. There must be none.
//!
//! It ends with exit code 1 if a line is outside its bounds.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a campaign prints its results")]
#![allow(clippy::expect_used, clippy::panic, reason = "as in the stories, whose stranger this is")]
#![allow(dead_code, reason = "the stories play more with a stranger")]

#[path = "liars/attacker.rs"]
mod attacker;
#[path = "liars/members.rs"]
mod members;
#[path = "../tests/e2e/hostile/rogue.rs"]
mod rogue;
#[path = "liars/run.rs"]
mod run;
#[path = "../tests/e2e/hostile/stranger.rs"]
mod stranger;

use std::{fmt, time::Duration};

use anyhow::{Result, ensure};

use attacker::Attacker;
use run::{Cost, Run};

/// Honest nodes beside a stranger, all of them founders. The stranger is no voter at the founding.
const PEERS: usize = 6;

/// A kind of liar, and how it behaves.
#[derive(Clone, Copy)]
enum Way {
    Stranger(&'static str),
    Members(&'static str),
    NeverReady,
}

/// What a way may cost at most.
struct Bounds {
    /// The least pace, as a share of the calm one. It leaves room for the noise of a busy machine.
    pace: f64,
    /// CPU seconds per second of the worst node, above those of the calm.
    cpu: f64,
    /// Bytes of events that a node writes per second.
    bytes: f64,
    /// By how many honest nodes each liar is named at least.
    named: usize,
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments.next().map_or(Ok(60), |text| text.parse::<u64>())?;
    let wanted: Vec<String> = arguments.collect();
    let chosen = |way: &Way| {
        let name = way.to_string();
        wanted.is_empty() || wanted.iter().any(|words| name.contains(&**words))
    };
    println!(
        "| {:<36} | calm | attack |   pace | CPU ms/s | events kB/s | named | harmed |\n\
         |---|---|---|---|---|---|---|---|",
        "way"
    );
    let mut broken = Vec::new();
    for way in Way::all().filter(chosen) {
        let cost = way.play(Duration::from_secs(seconds))?;
        println!("| {:<36} | {cost} |", way.to_string());
        broken.extend(way.bounds().broken_by(&cost).map(|what| format!("{way}: {what}")));
    }
    ensure!(broken.is_empty(), "outside the bounds: {}", broken.join("; "));
    Ok(())
}

impl Way {
    fn all() -> impl Iterator<Item = Self> {
        let members = ["shows two rosters", "votes twice"].map(Self::Members);
        attacker::ways().map(Self::Stranger).chain(members).chain([Self::NeverReady])
    }

    fn play(self, length: Duration) -> Result<Cost> {
        match self {
            Self::Stranger(way) => intrude(way, length),
            Self::Members(way) => members::lie(way, length),
            Self::NeverReady => members::never_ready(length),
        }
    }

    fn bounds(self) -> Bounds {
        let (cpu, bytes) = (f64::INFINITY, f64::INFINITY);
        match self {
            Self::Stranger(_) => Bounds { pace: 0.8, cpu: 0.05, bytes: 16_000.0, named: 0 },
            Self::Members(_) => Bounds { pace: 0.6, cpu, bytes, named: 1 },
            Self::NeverReady => Bounds { pace: 0.9, cpu, bytes, named: 0 },
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stranger(way) => f.write_str(way),
            Self::Members(way) => write!(f, "two members: {way}"),
            Self::NeverReady => f.write_str("a member: is never Ready"),
        }
    }
}

impl Bounds {
    /// The columns that are outside.
    fn broken_by(&self, cost: &Cost) -> impl Iterator<Item = &'static str> {
        let columns = [
            (cost.pace >= self.pace, "pace"),
            (cost.cpu <= self.cpu, "CPU"),
            (cost.bytes <= self.bytes, "events"),
            (cost.named >= self.named, "named"),
            (cost.harmed == 0, "harmed"),
        ];
        columns.into_iter().filter(|(holds, _)| !holds).map(|(_, column)| column)
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { calm, attack, named, harmed, .. } = self;
        let (pace, cpu, bytes) = (100.0 * self.pace, 1_000.0 * self.cpu, self.bytes / 1_000.0);
        write!(f, "{calm:>4} | {attack:>6} | {pace:>4.0} % | {cpu:>8.1} | {bytes:>11.1}")?;
        write!(f, " | {named:>5} | {harmed:>6}")
    }
}

/// A stranger among six honest nodes, after an equally long calm.
fn intrude(way: &'static str, length: Duration) -> Result<Cost> {
    let founders = format!("members.min_peers={PEERS}");
    let mut run = Run::start(PEERS, PEERS, &[&founders])?;
    run.wait_for_founding()?;
    let calm = run.during(|| std::thread::sleep(length))?;
    let mut attacker = Attacker::enter(way, &mut run.nodes);
    let attack = run.during(|| attacker.attack(length))?;
    run.cost(&calm, &attack, &[attacker.name()])
}
