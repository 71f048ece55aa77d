//! Everything that a simulation found out: `report.json` for programs, `epochs.csv` and `steps.csv`
//! for statistics, `report.html` for people.
//!
//! All of them are written once, at the end, also of a simulation that failed or was interrupted. The
//! page is made from `report.json`, so that nothing is in it that a program could not read too.
//! docs/FORMATS.md has the keys.

mod csv;
pub(super) mod origin;
mod rows;

use std::{collections::BTreeMap, fs::File, io, time::Duration};

use intellect_model::eval::Evaluation;
use serde_json::{Value, json};

use crate::tools;

use super::{
    judge::Outcome,
    observations::Observations,
    observer::{Measured, Measurement},
    plan::Plan,
    process::Exit,
    process_group::Closed,
    scenario::Action,
};
use origin::Origin;
use rows::{Row, rows};

/// What a simulation has found out, borrowed from those who found it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Findings<'a> {
    /// The processes' reports, the verdict, and what was done to them.
    pub(super) closed: &'a Closed,
    /// What the simulation measured, by epoch.
    pub(super) evaluations: &'a BTreeMap<u64, Measurement>,
    /// Held-out losses before and after.
    pub(super) measured: &'a Measured,
}

/// Writes `epochs.csv`, `steps.csv`, `report.json` and `report.html` into the folder of the simulation.
/// `weights` is the digest of the last ones, and `wall` how long the processes ran.
///
/// # Errors
/// A file cannot be written. Those before it are there.
pub(super) fn write(
    plan: &Plan,
    origin: &Origin,
    found: Findings<'_>,
    weights: Option<String>,
    wall: Duration,
) -> io::Result<()> {
    let Closed { observations, started_ms, done, .. } = found.closed;
    let rows = rows(observations, found.evaluations, *started_ms, plan.peers);
    csv::write(&plan.folder.join("epochs.csv"), &rows, plan.peers)?;
    csv::write_steps(&plan.folder.join("steps.csv"), done, *started_ms)?;
    let mut report = origin.told(plan);
    if let (Some(all), Value::Object(more)) = (report.as_object_mut(), told(plan, found, &rows)) {
        all.extend(more);
        all.insert("weights".to_owned(), json!(weights));
        all.insert("wall_s".to_owned(), json!(wall.as_secs_f64()));
    }
    let mut file = File::create(plan.folder.join("report.json"))?;
    serde_json::to_writer_pretty(&mut file, &report)?;
    file.sync_all()?;
    let page =
        tools::report::write(std::slice::from_ref(&plan.folder), &plan.folder.join("report.html"));
    page.map_err(io::Error::other)
}

/// The findings as keys of `report.json`. Lineage 0 is the table, the others are apart.
fn told(plan: &Plan, found: Findings<'_>, rows: &[Row<'_>]) -> Value {
    let Closed { observations, outcomes, reasons, done, started_ms, cost } = found.closed;
    let Measured { before, after, entropies } = found.measured;
    let (kept, others): (Vec<&Row<'_>>, Vec<&Row<'_>>) =
        rows.iter().partition(|row| row.lineage == 0);
    json!({
        "succeeded": reasons.is_empty(),
        "reasons": reasons,
        "run": plan.manifest.id.hex(),
        "seed": plan.seed,
        "peers": plan.peers,
        "threads": plan.threads,
        "epochs": plan.epochs,
        "links": plan.network.word(),
        "started_ms": started_ms,
        "done": done.iter().map(|(t_ms, action)| step(*t_ms, action)).collect::<Vec<_>>(),
        "chaos": cost,
        "parameters": plan.manifest.work.model.parameter_count(),
        "held_out": { "before": evaluation(before), "after": evaluation(after) },
        "entropies": {
            "uniform": entropies.uniform,
            "unigram": entropies.unigram,
            "bigram": entropies.bigram,
            "floor": entropies.floor,
        },
        "table": kept,
        "others": others,
        "nodes": outcomes.iter().enumerate().map(|(i, o)| node(observations, i, o)).collect::<Vec<_>>(),
    })
}

/// What was done at a time: a sentence, and the keys of a step.
fn step(t_ms: u64, action: &Action) -> Value {
    let mut keys = action.told();
    keys.insert("t_ms".to_owned(), json!(t_ms));
    keys.insert("what".to_owned(), json!(action.to_string()));
    Value::Object(keys)
}

/// One node, as `report.json` lists it: how its last process ended, and how far it came. A null
/// exit is of a process that was never started, or did not end by itself.
fn node(observations: &Observations, index: usize, outcome: &Outcome) -> Value {
    let head = observations.head(index);
    let (sent_bytes, received_bytes) = observations.bytes(index);
    json!({
        "peer": index,
        "exit": match outcome.exit {
            Some(Exit::Code(code)) => json!(code),
            Some(Exit::Signal) => json!("signal"),
            None => Value::Null,
        },
        "killed": outcome.killed,
        "epoch": head.map(|(epoch, _)| epoch),
        "state": head.map(|(_, state)| state),
        "sent_bytes": sent_bytes,
        "received_bytes": received_bytes,
    })
}

/// One measurement; null if there is none.
fn evaluation(evaluation: &Option<Evaluation>) -> Value {
    evaluation.map_or(Value::Null, |evaluation| {
        json!({
            "loss": evaluation.loss,
            "excess": evaluation.excess,
            "tokens": evaluation.tokens,
            "error": evaluation.error,
        })
    })
}
