//! A run of real nodes, and what honest ones of it do while something else goes on.

use std::{
    collections::BTreeSet,
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use e2e::{Process, Programs, Story};
use intellect_protocol::base::sign::Keypair;

/// How long a founding and two epochs may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// Uses of the invite: more than all peers of a run need.
const USES: &str = "32";

/// The nodes of a run, with all that they need. The first `honest` ones are judged.
pub(super) struct Run {
    pub(super) nodes: Vec<Process>,
    /// The invite by which they came, in a run of invited peers.
    pub(super) code: Option<String>,
    honest: usize,
    _bootstrap: Process,
    /// Declared last: its folder goes once no process uses it.
    story: Story,
}

/// What the honest nodes have done from their start on.
struct Sample {
    at: Instant,
    epoch: u64,
    /// CPU seconds of each node from its start on.
    cpu: Vec<f64>,
    /// Length of each node's file of events.
    bytes: Vec<u64>,
}

/// What they have done in some time.
pub(super) struct Pace {
    seconds: f64,
    epochs: u64,
    /// CPU seconds of each node, in a second.
    cpu: Vec<f64>,
    /// Bytes of events of each node, in a second.
    bytes: Vec<f64>,
}

/// What liars cost the honest nodes.
pub(super) struct Cost {
    /// Epochs that the first node committed in the calm, and in an equally long time under attack.
    pub(super) calm: u64,
    pub(super) attack: u64,
    /// The pace under attack, as a share of the calm one.
    pub(super) pace: f64,
    /// CPU seconds that a node used more per second than in the calm: those of the worst node.
    pub(super) cpu: f64,
    /// Bytes of events per second: those of the node with most.
    pub(super) bytes: f64,
    /// How many honest nodes reported a fault of a liar: of several liars the one with fewest.
    pub(super) named: usize,
    /// How often an honest node reported a fault or a loss of an honest one.
    pub(super) harmed: usize,
}

impl Run {
    /// Starts so many nodes of a run with these settings.
    pub(super) fn start(count: usize, honest: usize, settings: &[&str]) -> Result<Self> {
        let story = Story::begin(Programs::built()?)?;
        let settings = [&["members.heartbeat_ms=200"][..], settings].concat();
        let manifest = story.manifest("run.toml", &settings)?;
        let code = match settings.contains(&"trust.level=invited") {
            true => Some(invite(&story)?),
            false => None,
        };
        let (bootstrap, entry) = story.start_bootstrap(&[manifest])?;
        let options: Vec<&str> = code.iter().flat_map(|code| ["--invite", code.as_str()]).collect();
        let start = |node| story.start_node(&name(node), &entry, &options);
        let nodes = (0..count).map(start).collect::<Result<_>>()?;
        Ok(Self { nodes, code, honest, _bootstrap: bootstrap, story })
    }

    /// Waits until each node has committed two epochs.
    pub(super) fn wait_for_founding(&mut self) -> Result<()> {
        for node in &mut self.nodes {
            node.wait_for_commit(2, PATIENCE)?;
        }
        Ok(())
    }

    /// The newest epoch that the first node has committed.
    pub(super) fn newest(&self) -> Result<u64> {
        let events = self.nodes[0].events()?;
        let committed = events.iter().filter(|event| event["event"] == "committed");
        Ok(committed.filter_map(|event| event["epoch"].as_u64()).max().unwrap_or_default())
    }

    /// The key with which a node signs.
    pub(super) fn key(&self, node: usize) -> Result<Keypair> {
        let file = self.story.path(&format!("{}/data/identity.key", name(node)));
        let text = fs::read_to_string(file)?;
        let seed = text.lines().find_map(|line| line.strip_prefix("seed = ")).context("a seed")?;
        Ok(Keypair::from_seed(blake3::Hash::from_hex(seed.trim_matches('"'))?.as_bytes()))
    }

    /// What the honest nodes do while `work` is done.
    pub(super) fn during(&self, work: impl FnOnce()) -> Result<Pace> {
        let before = self.sample()?;
        work();
        let after = self.sample()?;
        let seconds = (after.at - before.at).as_secs_f64();
        let cpu = after.cpu.iter().zip(&before.cpu);
        let bytes = after.bytes.iter().zip(&before.bytes);
        Ok(Pace {
            seconds,
            epochs: after.epoch - before.epoch,
            cpu: cpu.map(|(after, before)| (after - before) / seconds).collect(),
            bytes: bytes.map(|(after, before)| (after - before) as f64 / seconds).collect(),
        })
    }

    fn sample(&self) -> Result<Sample> {
        let honest = &self.nodes[..self.honest];
        let cpu = honest.iter().map(Process::cpu_seconds).collect::<Result<_>>()?;
        let length = |node| -> Result<u64> {
            Ok(fs::metadata(self.story.path(&format!("{}/events.jsonl", name(node))))?.len())
        };
        let bytes = (0..self.honest).map(length).collect::<Result<_>>()?;
        Ok(Sample { at: Instant::now(), epoch: self.newest()?, cpu, bytes })
    }

    /// What these liars have cost, whose names are those of the events.
    pub(super) fn cost(&self, calm: &Pace, attack: &Pace, liars: &[String]) -> Result<Cost> {
        let honest = &self.nodes[..self.honest];
        let names: BTreeSet<String> = honest.iter().map(name_of).collect::<Result<_>>()?;
        let mut accused = vec![0; liars.len()];
        let mut harmed = 0;
        for node in honest {
            let events = node.events()?;
            let of = |kind: &str| -> Vec<&str> {
                let events = events.iter().filter(|event| event["event"] == *kind);
                events.filter_map(|event| event["who"].as_str()).collect()
            };
            let (faults, lost) = (of("fault"), of("peer-lost"));
            harmed += faults.iter().chain(&lost).filter(|who| names.contains(**who)).count();
            for (count, liar) in accused.iter_mut().zip(liars) {
                *count += usize::from(faults.contains(&liar.as_str()));
            }
        }
        let more = attack.cpu.iter().zip(&calm.cpu).map(|(attack, calm)| attack - calm);
        Ok(Cost {
            calm: calm.epochs,
            attack: attack.epochs,
            pace: attack.epochs as f64
                / attack.seconds
                / (calm.epochs.max(1) as f64 / calm.seconds),
            cpu: more.fold(f64::NEG_INFINITY, f64::max),
            bytes: attack.bytes.iter().copied().fold(0.0, f64::max),
            named: accused.into_iter().min().unwrap_or_default(),
            harmed,
        })
    }
}

/// An invite code for all peers of the run, whose manifest is there.
fn invite(story: &Story) -> Result<String> {
    let (key, manifest) = (story.text("run.toml.key"), story.text("run.toml"));
    let line = ["invite", "new", "--key", &key, "--manifest", &manifest, "--uses", USES];
    let made = story.node(&line)?.expect_success()?.out;
    Ok(made.split_whitespace().next_back().context("an invite code")?.to_owned())
}

/// The folder of a node in that of the story.
fn name(node: usize) -> String {
    format!("peer-{node}")
}

/// The name of a node, as events write it.
pub(super) fn name_of(node: &Process) -> Result<String> {
    let events = node.events()?;
    Ok(events.first().and_then(|event| event["peer"].as_str()).unwrap_or_default().to_owned())
}
