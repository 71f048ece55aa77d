//! `report.json`: everything that a simulation found out, for programs to read.

use std::{collections::BTreeMap, fs::File, io, time::Duration};

use intellect_model::eval::Evaluation;
use serde_json::{Value, json};

use super::{
    judge::Outcome,
    observations::{Epoch, Observations},
    observer::Measured,
    plan::Plan,
    process::Exit,
    process_group::Closed,
};

pub(super) fn write(
    plan: &Plan,
    closed: &Closed,
    evaluations: &BTreeMap<u64, Evaluation>,
    measured: &Measured,
    weights: Option<String>,
    wall: Duration,
) -> io::Result<()> {
    let Closed { observations, outcomes, reasons, done, cost } = closed;
    let done = done.iter().map(|(t_ms, what)| json!({ "t_ms": t_ms, "what": what }));
    let report = json!({
        "succeeded": reasons.is_empty(),
        "reasons": reasons,
        "run": plan.manifest.id.hex(),
        "seed": plan.seed,
        "peers": plan.peers,
        "threads": plan.threads,
        "epochs": plan.epochs,
        "links": plan.network.word(),
        "done": done.collect::<Vec<_>>(),
        "chaos": cost,
        "parameters": plan.manifest.work.model.parameter_count(),
        "wall_s": wall.as_secs_f64(),
        "weights": weights,
        "held_out": { "before": evaluation(&measured.before), "after": evaluation(&measured.after) },
        "entropies": {
            "uniform": measured.entropies.uniform,
            "unigram": measured.entropies.unigram,
            "bigram": measured.entropies.bigram,
            "floor": measured.entropies.floor,
        },
        "table": table(observations, evaluations),
        "nodes": outcomes.iter().enumerate().map(|(i, o)| node(observations, i, o)).collect::<Vec<_>>(),
    });
    let mut file = File::create(plan.folder.join("report.json"))?;
    serde_json::to_writer_pretty(&mut file, &report)?;
    file.sync_all()
}

fn table(observations: &Observations, evaluations: &BTreeMap<u64, Evaluation>) -> Vec<Value> {
    let row = |(number, epoch): (&u64, &Epoch)| {
        let evaluation = evaluations.get(number);
        json!({
            "epoch": number,
            "t_ms": epoch.first_ms,
            "attempt": epoch.attempt,
            "members": epoch.members,
            "tokens": epoch.tokens,
            "train_loss": epoch.loss(),
            "held_out_loss": evaluation.map(|evaluation| evaluation.loss),
            "excess": evaluation.and_then(|evaluation| evaluation.excess),
            "sync_ms": epoch.sync_ms,
            "state": epoch.state().map(|(state, _)| state),
            "reports": epoch.reports(),
        })
    };
    observations.epochs.iter().map(row).collect()
}

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

fn evaluation(evaluation: &Option<Evaluation>) -> Value {
    evaluation.map_or(Value::Null, |evaluation| {
        json!({
            "loss": evaluation.loss,
            "excess": evaluation.excess,
            "tokens": evaluation.tokens,
        })
    })
}
