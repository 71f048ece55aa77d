//! `bench view`: what it costs a node to show its run.
//!
//! A node folds each event into the picture of its run in the same call that writes it to the events file, and readers
//! of the page get a copy of that picture a few times a second. Both happen in the thread that serves the network. The
//! events are those of a run whose members are all in each ring.
//!
//! The lines are made before the clock runs, so that parsing and folding are measured, and not the
//! writing of JSON. The picture is full then: costs that grow with the epochs that are behind would
//! be seen.

use std::{io::Write, time::Duration};

use intellect_view::{picture::Source, record::Record, stage::Stage};
use serde_json::{Value, json};

use super::{BenchError, median};

/// Measures the fold of each kind of record, and the copy for readers, and prints a table or one
/// JSON object. All figures are microseconds of one record, or of one copy.
pub(crate) fn run(members: usize, as_json: bool, out: &mut dyn Write) -> Result<(), BenchError> {
    let run = Run::new(members);
    let (mut stage, _seen) = Stage::new(Source { live: true, ..Source::default() });
    for epoch in 1..=PAST {
        for event in [run.ready(), run.roster(), run.committed(epoch), run.member(epoch)] {
            take(&mut stage, &run.line(event, epoch))?;
        }
    }
    let mut figures = Vec::new();
    let kinds: [(&str, &dyn Fn(u64) -> Value); 4] = [
        ("ready", &|_| run.ready()),
        ("roster", &|_| run.roster()),
        ("committed", &|epoch| run.committed(epoch)),
        ("member", &|epoch| run.member(epoch)),
    ];
    for (kind, event) in kinds {
        let lines: Vec<String> = (PAST..PAST + BATCH).map(|e| run.line(event(e), e)).collect();
        let time = median(RUNS, || lines.iter().try_for_each(|line| take(&mut stage, line)))?;
        figures.push((kind, micros(time)));
    }
    let copies = || {
        (0..BATCH).for_each(|_| stage.publish());
        Ok::<(), BenchError>(())
    };
    figures.push(("copy for readers", micros(median(RUNS, copies)?)));
    if as_json {
        let named = figures.iter().map(|(name, us)| (name.replace(' ', "_"), json!(us)));
        let figures: serde_json::Map<_, _> = named.collect();
        writeln!(out, "{}", json!({ "members": members, "microseconds": figures }))?;
        return Ok(());
    }
    writeln!(out, "{members} members, {PAST} epochs before, median of {RUNS} runs of {BATCH}")?;
    for (name, us) in figures {
        writeln!(out, "{name:<16}  {us:>8.1} µs")?;
    }
    Ok(())
}

/// Reads a line and folds it, as a node does with each event.
///
/// # Errors
/// The view does not understand a line that this file made.
fn take(stage: &mut Stage, line: &str) -> Result<(), BenchError> {
    let what = || BenchError::Wrong { what: format!("no event: {line}") };
    let record = Record::parse(line.as_bytes()).ok_or_else(what)?;
    stage.take(&record, line);
    Ok(())
}

/// Microseconds of one in a batch.
fn micros(batch: Duration) -> f64 {
    batch.as_secs_f64() * 1e6 / BATCH as f64
}

/// The events of one node of a run. Their values are plausible; only their number and length decide
/// the cost.
struct Run {
    /// The names of the members, as long as real ones. The first one is the node itself.
    members: Vec<String>,
}

impl Run {
    /// A run of so many members, at least 1.
    fn new(members: usize) -> Self {
        Self { members: (0..members).map(|at| format!("12D3KooW{at:0>44}")).collect() }
    }

    /// An event as a line of the events file, with the fields that every event has.
    fn line(&self, mut event: Value, epoch: u64) -> String {
        event["t_ms"] = json!(1_700_000_000_000 + 10_000 * epoch);
        event["peer"] = json!(self.members.first());
        event["run"] = json!("07".repeat(32));
        event["epoch"] = json!(epoch);
        event.to_string()
    }

    /// The work of an epoch is frozen.
    fn ready(&self) -> Value {
        json!({ "event": "ready", "tokens": 512, "loss": 2.5, "norm": 1.0 })
    }

    /// A ring of all members begins.
    fn roster(&self) -> Value {
        json!({ "event": "roster", "attempt": 1, "members": self.members, "adopt": null, "kept_chunks": 0 })
    }

    /// An epoch is committed, with the work of all members.
    fn committed(&self, epoch: u64) -> Value {
        json!({
            "event": "committed", "attempt": 1, "members": self.members, "weights": vec![512; self.members.len()],
            "state": format!("{epoch:0>64x}"), "update": "01".repeat(32), "tokens": 512 * epoch, "loss": 2.5,
            "sync_ms": 3_000, "sent_bytes": 1_000, "received_bytes": 900, "forkable_since": null, "train_ms": 6_000,
            "wait_ready_ms": 500, "ring_ms": 2_000, "vote_ms": 200, "apply_ms": 300,
        })
    }

    /// What one member says of itself; it is another one each epoch.
    fn member(&self, epoch: u64) -> Value {
        json!({
            "event": "member", "who": self.members[epoch as usize % self.members.len()], "head": epoch, "phase": "training",
            "ready": 512, "rtt_ms": 30, "send_rate": 1_000_000, "link": "dialled", "loss": 2.5,
        })
    }
}

/// Epochs that were folded before the clock runs: more rows than the past keeps whole.
const PAST: u64 = 20_000;
/// Records of a kind in one run.
const BATCH: u64 = 200;
/// Number of runs behind a median.
const RUNS: usize = 5;
