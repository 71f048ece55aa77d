//! Watches a simulation: a line for each epoch, measurements, and how it ended.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    time::Duration,
};

use intellect_model::eval::{self, Evaluation};

use super::error::SimError;
use super::ledger::{self, Ledger};
use super::logbook::Logbook;
use super::observer::{Answer, Observer, Request};
use super::process::POLL;
use super::stage::{Ending, Stage};
use super::stop::Stop;
use super::table;

/// Polls until nothing runs or the simulation cannot succeed any more, and prints each epoch once it is complete. Returns
/// what was measured, and how it ended.
pub(super) fn watch(
    stage: &mut Stage<'_>,
    observer: &Observer,
    logbook: &mut Logbook,
    stop: &mut Stop,
    out: &mut dyn Write,
) -> Result<(BTreeMap<u64, Evaluation>, Ending), SimError> {
    let mut evaluations = BTreeMap::new();
    let (mut asked, mut printed) = (0, 0);
    writeln!(out, "{}", table::HEADER)?;
    loop {
        let mut done = Vec::new();
        let ending = stage.step(&mut |action| done.push(action))?;
        let news = stage.ledger.news();
        for line in done.iter().map(ToString::to_string).chain(news) {
            writeln!(out, "{:>6}  {line}", "")?;
        }
        while let Some(Answer { epoch, result, .. }) = observer.answer() {
            match result {
                Ok(evaluation) => {
                    logbook.write(epoch, Some(evaluation));
                    evaluations.insert(epoch, evaluation);
                }
                // The checkpoint was removed meanwhile; the next epoch will do.
                Err(error) => tracing::debug!(epoch, %error, "not measured"),
            }
        }
        let committed = stage.ledger.committed();
        if asked < committed
            && let Some(path) = stage.checkpoint(committed)
        {
            let (path, tokens) = (Some(path), eval::GLANCE_TOKENS);
            if observer.ask(Request { epoch: committed, path, tokens }) {
                asked = committed;
            }
        }
        let running = stage.running();
        while printed < committed && is_complete(&stage.ledger, printed + 1, running, &evaluations)
        {
            printed += 1;
            print_row(stage, printed, &evaluations, out)?;
        }
        let end = match ending {
            Some(Ending::Failed(why)) => Ending::Failed(why),
            None if !stop.is_wanted_within(POLL) => continue,
            Some(_) if !stop.is_wanted_within(Duration::from_millis(1)) => Ending::Ended,
            // A terminal sends the signal to the nodes as well, and they leave.
            None | Some(_) => Ending::Interrupted,
        };
        for epoch in printed + 1..=committed {
            print_row(stage, epoch, &evaluations, out)?;
        }
        return Ok((evaluations, end));
    }
}

/// Whether the line of an epoch is complete: nothing more can be added to it.
fn is_complete(
    ledger: &Ledger,
    number: u64,
    running: usize,
    evaluations: &BTreeMap<u64, Evaluation>,
) -> bool {
    let reports = ledger.epochs.get(&number).map_or(0, ledger::Epoch::reports);
    let measured = evaluations.range(number..).next().is_some();
    (reports >= running && measured) || ledger.committed() > number + 1
}

fn print_row(
    stage: &Stage<'_>,
    number: u64,
    evaluations: &BTreeMap<u64, Evaluation>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let epochs = &stage.ledger.epochs;
    let Some(epoch) = epochs.get(&number) else { return Ok(()) };
    let before = epochs.range(..number).next_back().map_or(stage.started_ms, |(_, e)| e.first_ms);
    let since_ms = epoch.first_ms.saturating_sub(before);
    writeln!(out, "{}", table::row(number, epoch, since_ms, evaluations.get(&number)))?;
    out.flush()
}
