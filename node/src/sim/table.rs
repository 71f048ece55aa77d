//! What a person sees of a simulation: its settings, a line for each state of an epoch, and the result.
//!
//! Losses and entropies are nats per token. `excess` is what the held-out loss is above the entropy
//! rate of the data's source: no model gets below 0, and it is known only of synthetic data.

use std::{
    io::{self, Write},
    time::Duration,
};

use intellect_model::{data::Entropies, eval::Evaluation};
use intellect_protocol::base::id::RunId;

use crate::{
    figures::{self, count, number_of},
    manifest::codec_name,
    name::Hex,
};

use super::{observations::branch::Branch, observer::Measured, plan::Plan, process_group::Closed};

/// The columns of the table, as wide as [`row`] fills them.
pub(super) const HEADER: &str =
    " epoch  members  train loss  held-out  excess  tokens/s     sync  state     peers";

/// The line of one state of epoch `number`, which has so many `lineages`. `took_ms` is how long it took, `evaluation`
/// what the simulation measured.
pub(super) fn row(
    number: u64,
    state: &Hex,
    branch: &Branch,
    lineages: usize,
    took_ms: u64,
    evaluation: Option<&Evaluation>,
) -> String {
    let rate = branch.tokens().saturating_mul(1_000) / took_ms.max(1);
    let attempt = match branch.attempt {
        0 | 1 => String::new(),
        attempt => format!("  attempt {attempt}"),
    };
    let lineages = match lineages {
        0 | 1 => String::new(),
        lineages => format!("  one of {lineages} lineages"),
    };
    format!(
        "{number:>6}  {members:>7}  {loss:>10}  {held_out:>8}  {excess:>6}  {rate:>8}  \
         {sync:>5.2} s  {state:<8}  ×{reports}{attempt}{lineages}",
        members = branch.members.len(),
        loss = number_or_dash(branch.loss()),
        held_out = number_or_dash(evaluation.map(|evaluation| evaluation.loss)),
        excess = number_or_dash(evaluation.and_then(|evaluation| evaluation.excess)),
        rate = count(rate),
        sync = branch.sync_ms() as f64 / 1_000.0,
        state = state.short(),
        reports = branch.by.len(),
    )
}

/// The number with three digits after the point, or a dash.
fn number_or_dash(number: Option<f64>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| format!("{number:.3}"))
}

/// The first line, which fits into 80 columns.
fn opening(run: RunId, peers: usize, threads: usize, epochs: u64) -> String {
    let (peers, threads) = (number_of(peers, "peer"), number_of(threads, "compute thread"));
    format!("run {run} · {peers} with {threads} each · {}", number_of(epochs, "epoch"))
}

/// Prints the settings of the simulation, and an entropy of its data by which the losses can be
/// judged.
pub(super) fn introduce(plan: &Plan, entropies: &Entropies, out: &mut dyn Write) -> io::Result<()> {
    let Plan { peers, epochs, manifest, threads, seed, network, chaos, .. } = plan;
    writeln!(out, "{}", opening(manifest.id, *peers, *threads, *epochs))?;
    writeln!(
        out,
        "model: {} parameters · codec {} · seed {seed}",
        count(manifest.work.model.parameter_count()),
        codec_name(manifest.run.ring.codec),
    )?;
    writeln!(out, "links: {}", network.word())?;
    if let Some(chaos) = chaos {
        let bound = plan.watchdog().as_secs();
        writeln!(out, "chaos: {chaos}; the simulation fails if no peer commits for {bound} s")?;
    }
    match entropies.floor {
        Some(floor) => {
            writeln!(out, "data: synthetic, entropy rate H* = {floor:.4} nats per token")
        }
        None => writeln!(
            out,
            "data: a file, entropy {:.4} nats per token by unigrams{}",
            entropies.unigram,
            entropies.bigram.map_or_else(String::new, |nats| format!(", {nats:.4} by bigrams"))
        ),
    }
}

/// Prints the result of the simulation: the loss, the work, and what chaos cost. Why it failed is
/// the error's to say.
pub(super) fn conclude(
    plan: &Plan,
    closed: &Closed,
    measured: &Measured,
    wall: Duration,
    out: &mut dyn Write,
) -> io::Result<()> {
    let observations = &closed.observations;
    let number = number_or_dash;
    let loss = |evaluation: &Option<Evaluation>| number(evaluation.map(|e| e.loss));
    writeln!(out, "held-out loss {} → {}", loss(&measured.before), loss(&measured.after))?;
    if let Some(yardsticks) = measured.entropies.yardsticks() {
        writeln!(
            out,
            "excess        uniform {:.3} · unigram {:.3} · bigram {:.3} · this run {}",
            yardsticks.uniform,
            yardsticks.unigram,
            yardsticks.bigram,
            number(measured.after.and_then(|evaluation| evaluation.excess))
        )?;
    }
    let tokens = observations.epochs.values().map(|epoch| epoch.tokens).sum();
    let sent = (0..plan.peers).map(|peer| observations.bytes(peer).0).sum::<u64>();
    writeln!(
        out,
        "{} in {:.1} s · {} tokens · {} sent by each peer",
        number_of(observations.committed(), "epoch"),
        wall.as_secs_f64(),
        count(tokens),
        figures::bytes(sent / plan.peers as u64)
    )?;
    if let Some(cost) = &closed.cost {
        writeln!(out, "{cost}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_counts_right_and_fits_into_80_columns() {
        let run = RunId([0x8b; 32]);
        let usual = "run 8b8b8b8b · 4 peers with 1 compute thread each · 20 epochs";
        assert_eq!(opening(run, 4, 1, 20), usual);
        assert!(opening(run, 256, 256, 1_000_000).chars().count() <= 80);
    }
}
