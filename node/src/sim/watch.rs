//! Watches a simulation: a line for each state of an epoch, measurements, and how it ended.
//!
//! Only the newest committed state is measured, and only when the last measurement is done. So on a
//! busy machine some epochs have no held-out loss. The nodes never wait for a measurement, and the
//! line of an epoch does so for a short time.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    io::{self, Write},
    time::{Duration, Instant},
};

use intellect_model::eval;

use crate::name::Hex;

use super::error::SimError;
use super::event_log::EventLog;
use super::observations::{self, Observations};
use super::observer::{Answer, Measurement, Observer, Request};
use super::process::POLL;
use super::process_group::{Ending, ProcessGroup};
use super::stop::Stop;
use super::table;

/// Polls until nothing runs or the simulation cannot succeed any more, and prints each epoch once it is complete. Returns
/// what was measured, and how it ended.
pub(super) fn watch(
    group: &mut ProcessGroup<'_>,
    observer: &Observer,
    event_log: &mut EventLog,
    stop: &mut Stop,
    out: &mut dyn Write,
) -> Result<(BTreeMap<u64, Measurement>, Ending), SimError> {
    let mut evaluations = BTreeMap::new();
    let (mut asked, mut answered, mut rows) = (0, 0, Rows::default());
    let mut last_until = None;
    writeln!(out, "{}", table::HEADER)?;
    loop {
        let mut done = Vec::new();
        let ending = group.step(&mut |action| done.push(action))?;
        let news = group.observations.news();
        for line in done.iter().map(ToString::to_string).chain(news) {
            writeln!(out, "{:>6}  {line}", "")?;
        }
        while let Some(Answer { epoch, result, .. }) = observer.answer() {
            answered = epoch;
            match result {
                Ok(measured) => {
                    event_log.write(epoch, Some(measured.evaluation));
                    evaluations.insert(epoch, measured);
                }
                // The checkpoint was removed meanwhile; the next epoch will do.
                Err(error) => tracing::debug!(epoch, %error, "not measured"),
            }
        }
        let committed = group.observations.committed();
        if asked < committed
            && let Some(path) = group.checkpoint(committed)
        {
            let (path, tokens) = (Some(path), eval::GLANCE_TOKENS);
            if observer.ask(Request { epoch: committed, path, tokens }) {
                asked = committed;
            }
        }
        rows.print(group, &evaluations, false, out)?;
        // The last epoch is measured at the lowest priority, and so perhaps after the nodes have ended.
        let lacks = answered < committed && group.checkpoint(committed).is_some();
        let mut waits = || {
            let until = *last_until.get_or_insert_with(|| Instant::now() + LAST_PATIENCE);
            Instant::now() < until
        };
        let end = match ending {
            Some(Ending::Ended) if lacks && waits() => {
                if !stop.is_wanted_within(POLL) {
                    continue;
                }
                Ending::Interrupted
            }
            Some(Ending::Failed(why)) => Ending::Failed(why),
            None if !stop.is_wanted_within(POLL) => continue,
            Some(_) if !stop.is_wanted_within(Duration::from_millis(1)) => Ending::Ended,
            // A terminal sends the signal to the nodes as well, and they leave.
            None | Some(_) => Ending::Interrupted,
        };
        rows.print(group, &evaluations, true, out)?;
        return Ok((evaluations, end));
    }
}

/// How long the measurement of the last epoch is waited for.
const LAST_PATIENCE: Duration = Duration::from_secs(10);

/// Which rows of the table are printed, and which have come too late for their place.
#[derive(Debug, Default)]
struct Rows {
    /// The newest epoch that is in the table.
    printed: u64,
    /// States of epochs that are in the table already. Each gets its row once one of its peers is past it.
    late: Vec<(u64, Hex)>,
}

impl Rows {
    /// Prints the rows that are due. When the simulation `ends`, these are all.
    fn print(
        &mut self,
        group: &mut ProcessGroup<'_>,
        evaluations: &BTreeMap<u64, Measurement>,
        ends: bool,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let (running, started_ms) = (group.running(), group.started_ms);
        let measured = evaluations.last_key_value().map_or(0, |(epoch, _)| *epoch);
        for (epoch, state) in self.due(&mut group.observations, running, measured, ends) {
            let Some(entry) = group.observations.epochs.get(&epoch) else { continue };
            let Some(branch) = entry.branches.get(&state) else { continue };
            let took_ms = group.observations.took_ms(epoch, branch, started_ms);
            let of_state = evaluations.get(&epoch).filter(|m| m.state.as_ref() == Some(&state));
            let evaluation = of_state.map(|measured| &measured.evaluation);
            let lineages = entry.lineages();
            let row = table::row(epoch, &state, branch, lineages, took_ms, evaluation);
            writeln!(out, "{row}")?;
            out.flush()?;
        }
        Ok(())
    }

    /// The states whose rows are due. `measured` is the newest epoch that was measured.
    fn due(
        &mut self,
        observations: &mut Observations,
        running: usize,
        measured: u64,
        ends: bool,
    ) -> Vec<(u64, Hex)> {
        let fresh = observations.fresh().into_iter();
        self.late.extend(fresh.filter(|(epoch, _)| *epoch <= self.printed));
        let is_past = |(epoch, state): &mut (u64, Hex)| ends || observations.is_past(*epoch, state);
        let mut due: Vec<_> = self.late.extract_if(.., is_past).collect();
        while self.printed < observations.committed()
            && (ends || is_complete(observations, self.printed + 1, running, measured))
        {
            self.printed += 1;
            let Some(entry) = observations.epochs.get(&self.printed) else { continue };
            let mut states: Vec<_> = entry.branches.iter().collect();
            states.sort_by_key(|(_, branch)| Reverse(branch.by.len()));
            due.extend(states.into_iter().map(|(state, _)| (self.printed, state.clone())));
        }
        due
    }
}

/// Whether the rows of an epoch are complete: all that run have reported it, and it or a later one
/// was measured. It is not waited for any longer once the run is two epochs ahead.
fn is_complete(observations: &Observations, number: u64, running: usize, measured: u64) -> bool {
    let reports = observations.epochs.get(&number).map_or(0, observations::Epoch::reports);
    (reports >= running && measured >= number) || observations.committed() > number + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::observations::tests::committed;

    /// Two peers part after epoch 1, and the second one reports its states after the rows of the first.
    #[test]
    fn a_state_that_is_reported_late_has_a_row_of_its_own() {
        let (mut seen, mut rows) = (Observations::new(2), Rows::default());
        let mut after = |reports: &[(usize, u64, u8)], ends| {
            for (peer, epoch, byte) in reports {
                seen.record(*peer, committed(*peer, *epoch, *byte));
            }
            let due = rows.due(&mut seen, 2, 9, ends).into_iter();
            due.map(|(epoch, state)| format!("{epoch} {}", state.short())).collect::<Vec<_>>()
        };
        assert_eq!(after(&[(0, 1, 1), (1, 1, 1)], false), ["1 01010101"]);
        assert_eq!(after(&[(0, 2, 2), (0, 3, 3), (0, 4, 4)], false), ["2 02020202"]);
        assert!(after(&[(1, 2, 12)], false).is_empty(), "others may still report it");
        let both = ["2 0c0c0c0c", "3 03030303", "3 0d0d0d0d"];
        assert_eq!(after(&[(1, 3, 13)], false), both);
        assert_eq!(after(&[], true), ["4 04040404"]);
        assert!(after(&[(1, 4, 14)], false).is_empty());
        assert_eq!(after(&[], true), ["4 0e0e0e0e"]);
        assert!(after(&[], true).is_empty());
    }
}
