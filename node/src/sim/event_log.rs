//! `sim.jsonl`: what the simulation measures, as events (docs/FORMATS.md), while it runs.
//!
//! The simulation is no peer, so its lines name the organiser as the writer. If a line cannot be written, a warning is
//! printed and the nodes go on.

use std::io::{self, Write as _};

use intellect_model::{data::Entropies, eval::Evaluation};

use crate::tell::events::{Event, Sink};

use super::plan::Plan;

/// The file of the simulation's own events.
#[derive(Debug)]
pub(super) struct EventLog {
    /// Writes the lines; the organiser is their author.
    sink: Sink,
    /// What the losses on the run's data are compared with.
    entropies: Entropies,
}

impl EventLog {
    /// Creates the file in the folder of the simulation.
    pub(super) fn open(plan: &Plan, entropies: Entropies) -> io::Result<Self> {
        let path = plan.folder.join("sim.jsonl");
        let mut sink = Sink::open(Some(&path), plan.manifest.run.organiser.into())?;
        sink.set_run(plan.manifest.id.into());
        Ok(Self { sink, entropies })
    }

    /// Writes the evaluation of the state of `epoch`, if there is one.
    pub(super) fn write(&mut self, epoch: u64, evaluation: Option<Evaluation>) {
        let Some(Evaluation { loss, excess, error, .. }) = evaluation else { return };
        let Entropies { unigram, bigram, floor, .. } = self.entropies;
        let (loss, unigram) = (Some(loss), Some(unigram));
        let event = Event::Evaluated { loss, error, floor, excess, unigram, bigram };
        if let Err(error) = self.sink.emit(Some(epoch), event) {
            // Standard error may be closed too; the simulation goes on.
            let _ = writeln!(io::stderr(), "warning: sim.jsonl is not written: {error}");
        }
    }
}
