//! What a person sees while a simulation runs: one line per committed epoch.

use intellect_model::eval::Evaluation;

use crate::figures::count;

use super::ledger::Epoch;

/// The line above the lines.
pub(super) const HEADER: &str =
    " epoch  members  train loss  held-out  excess  tokens/s     sync  state     peers";

/// One committed epoch; `since_ms` is how long it took, `evaluation` what the simulation measured.
pub(super) fn row(
    number: u64,
    epoch: &Epoch,
    since_ms: u64,
    evaluation: Option<&Evaluation>,
) -> String {
    let rate = epoch.tokens.saturating_mul(1_000) / since_ms.max(1);
    let (state, reports) =
        epoch.state().map_or(("", 0), |(state, reports)| (state.short(), reports));
    let attempt = match epoch.attempt {
        0 | 1 => String::new(),
        attempt => format!("  attempt {attempt}"),
    };
    format!(
        "{number:>6}  {members:>7}  {loss:>10}  {held_out:>8}  {excess:>6}  {rate:>8}  \
         {sync:>5.2} s  {state:<8}  ×{reports}{attempt}",
        members = epoch.members.len(),
        loss = number_or_dash(epoch.loss()),
        held_out = number_or_dash(evaluation.map(|evaluation| evaluation.loss)),
        excess = number_or_dash(evaluation.and_then(|evaluation| evaluation.excess)),
        rate = count(rate),
        sync = epoch.sync_ms as f64 / 1_000.0,
    )
}

/// Three digits after the point, or a dash.
pub(super) fn number_or_dash(number: Option<f64>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| format!("{number:.3}"))
}
