//! The judgement: whether the processes of a simulation did what they should have done.
//!
//! It is a function of what was observed and of how the processes ended, so the same files always
//! give the same judgement. A peer that was killed on purpose is judged neither by its exit nor by
//! its last epoch.
//!
//! It knows what the processes reported, and not what the simulation measured: whether the loss
//! fell is judged by `observer`. A simulation fails by any single reason; all of them are reported,
//! since the first often explains the rest.

use std::collections::BTreeSet;

use super::observations::{Allowed, Observations};
use super::process::Exit;
use super::scenario::Scenario;

/// One peer at the end, for judgement and report.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    /// How its last process ended; absent: it was never started, or did not end.
    pub(super) exit: Option<Exit>,
    /// Whether the scenario or the chaos killed that process.
    pub(super) killed: bool,
}

/// The first epoch that two processes committed differently, unless the scenario provokes forks. It is worth stopping
/// for at once.
pub(super) fn disagreement(observations: &Observations, scenario: &Scenario) -> Option<String> {
    let excused = scenario.allows(Allowed::Fork) || scenario.allows(Allowed::Diverged);
    if excused { None } else { observations.disagreement() }
}

/// Every reason why the simulation failed, the gravest first; none if it succeeded.
///
/// `outcomes` has one entry for each peer, by its number, and `epochs` is the epoch at which each
/// peer has to end. Replicas that differ come before complaints, these before exits, and steps that
/// were not taken come last, because the others mostly explain them.
pub(super) fn reasons(
    observations: &Observations,
    outcomes: &[Outcome],
    scenario: &Scenario,
    epochs: u64,
) -> Vec<String> {
    let mut reasons: Vec<String> = disagreement(observations, scenario).into_iter().collect();
    let complaints = observations.complaints.iter().filter(|(kind, _)| !scenario.allows(*kind));
    reasons.extend(complaints.map(|(_, text)| text.clone()));
    for (index, outcome) in outcomes.iter().enumerate() {
        match outcome.exit {
            _ if outcome.killed => {}
            Some(Exit::Code(0)) => {}
            Some(Exit::Code(code)) => reasons.push(format!("peer {index} exited with {code}")),
            Some(Exit::Signal) => reasons.push(format!("peer {index} was killed by a signal")),
            None => reasons.push(format!("peer {index} did not end by itself")),
        }
    }
    let survives = |peer: &usize| scenario.survives(*peer) && !outcomes[*peer].killed;
    let survivors = || (0..outcomes.len()).filter(survives);
    for peer in survivors() {
        match observations.head(peer) {
            Some((epoch, _)) if *epoch == epochs => {}
            Some((epoch, _)) => {
                reasons.push(format!("peer {peer} ended at epoch {epoch}, not {epochs}"));
            }
            None => reasons.push(format!("peer {peer} committed nothing")),
        }
    }
    let ends: BTreeSet<_> = survivors().filter_map(|peer| observations.head(peer)).collect();
    if ends.len() > 1 {
        let ends: Vec<_> =
            ends.iter().map(|(epoch, state)| format!("{} at {epoch}", state.short())).collect();
        let unmet = if scenario.allows(Allowed::Fork) {
            format!(
                "; {} lineages had not met when the last epoch was reached: heal earlier, or give \
                 more --epochs",
                ends.len()
            )
        } else {
            String::new()
        };
        let ends = ends.join(", ");
        reasons.push(format!("the survivors ended on different states: {ends}{unmet}"));
    }
    let pending = scenario.pending();
    if !pending.is_empty() {
        reasons.push(format!("steps {pending:?} of the scenario were never taken"));
    }
    reasons
}
