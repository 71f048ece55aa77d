//! Watches a simulation: a line for each epoch, measurements, and how it ended.
//!
//! Only the newest committed state is measured, and only when the last measurement is done. So on a
//! busy machine some epochs have no held-out loss. The nodes never wait for a measurement, and the
//! line of an epoch does so for a short time.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    time::{Duration, Instant},
};

use intellect_model::eval;

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
    let (mut asked, mut answered, mut printed) = (0, 0, 0);
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
        let running = group.running();
        while printed < committed
            && is_complete(&group.observations, printed + 1, running, &evaluations)
        {
            printed += 1;
            print_row(group, printed, &evaluations, out)?;
        }
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
        for epoch in printed + 1..=committed {
            print_row(group, epoch, &evaluations, out)?;
        }
        return Ok((evaluations, end));
    }
}

/// How long the measurement of the last epoch is waited for.
const LAST_PATIENCE: Duration = Duration::from_secs(10);

/// Whether the line of an epoch is complete: all that run have reported it, and it or a later one
/// was measured. It is not waited for any longer once the run is two epochs ahead.
fn is_complete(
    observations: &Observations,
    number: u64,
    running: usize,
    evaluations: &BTreeMap<u64, Measurement>,
) -> bool {
    let reports = observations.epochs.get(&number).map_or(0, observations::Epoch::reports);
    let measured = evaluations.range(number..).next().is_some();
    (reports >= running && measured) || observations.committed() > number + 1
}

/// Prints the line of an epoch, if any peer has committed it.
fn print_row(
    group: &ProcessGroup<'_>,
    number: u64,
    evaluations: &BTreeMap<u64, Measurement>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let epochs = &group.observations.epochs;
    let Some(epoch) = epochs.get(&number) else { return Ok(()) };
    let before = epochs.range(..number).next_back().map_or(group.started_ms, |(_, e)| e.first_ms);
    let since_ms = epoch.first_ms.saturating_sub(before);
    let evaluation = evaluations.get(&number).map(|measured| &measured.evaluation);
    writeln!(out, "{}", table::row(number, epoch, since_ms, evaluation))?;
    out.flush()
}
