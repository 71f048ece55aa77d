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
    let exits = outcomes.iter().enumerate().filter_map(|(peer, outcome)| {
        let how = match outcome.exit {
            _ if outcome.killed => return None,
            Some(Exit::Code(0)) => return None,
            Some(Exit::Code(code)) => format!("exited with {code}"),
            Some(Exit::Signal) => "ended by a signal".to_owned(),
            None => "did not end without help".to_owned(),
        };
        Some((how, peer))
    });
    reasons.extend(by_peers(exits));
    let survives = |peer: &usize| scenario.survives(*peer) && !outcomes[*peer].killed;
    let survivors = || (0..outcomes.len()).filter(survives);
    let lasts = survivors().filter_map(|peer| match observations.head(peer) {
        Some((epoch, _)) if *epoch == epochs => None,
        Some((epoch, _)) => Some((format!("ended at epoch {epoch}, not {epochs}"), peer)),
        None => Some(("committed nothing".to_owned(), peer)),
    });
    reasons.extend(by_peers(lasts));
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

/// One sentence for all peers that ended in the same way, in the order of the first of each.
fn by_peers(found: impl Iterator<Item = (String, usize)>) -> Vec<String> {
    let mut groups: Vec<(String, Vec<usize>)> = Vec::new();
    for (what, peer) in found {
        match groups.iter_mut().find(|(other, _)| *other == what) {
            Some((_, peers)) => peers.push(peer),
            None => groups.push((what, vec![peer])),
        }
    }
    groups.into_iter().map(|(what, peers)| format!("{} {what}", named(&peers))).collect()
}

/// `peer 3`, or `peers 0-2, 5`. The numbers are sorted.
fn named(peers: &[usize]) -> String {
    let runs = peers.chunk_by(|one, next| one + 1 == *next).map(|run| match run {
        [first, .., last] => format!("{first}-{last}"),
        [one] => one.to_string(),
        [] => String::new(),
    });
    let numbers = runs.collect::<Vec<_>>().join(", ");
    if peers.len() == 1 { format!("peer {numbers}") } else { format!("peers {numbers}") }
}
