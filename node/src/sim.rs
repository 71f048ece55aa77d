//! `sim`: a whole run on this machine, with real processes and a judgement.
//!
//! One bootstrap and N nodes, all of them this program, train until the last epoch. A scenario file may kill, stop and
//! start them on the way, and disturb the links between them. What they did is read from their events files, and
//! how good the model became is measured here, from checkpoint files. The simulation succeeds only if every process
//! ended as it should, all committed the same states, and the held-out loss fell.
//!
//! It shares no code path with what it judges except the formats of events and checkpoints.

mod error;
mod folder;
mod judge;
mod ledger;
mod links;
mod logbook;
mod network;
mod observer;
mod plan;
mod process;
mod report;
mod scenario;
mod seat;
mod shaping;
mod stage;
mod stop;
mod storm;
mod swarm;
mod table;
mod toll;
mod watch;

use std::{io::Write, path::Path, time::Duration};

use crate::{
    checkpoint::Front,
    cli::SimArgs,
    gauge::{Gauge, REPORT_TOKENS},
    manifest::Manifest,
    os::cannot,
    tools,
};

use folder::Folder;
use logbook::Logbook;
use observer::{Measured, Observer, Request};
use plan::Plan;
use stage::{Ending, Stage};
use stop::Stop;
use watch::watch;

pub(crate) use error::SimError;

/// Runs a simulation, with processes or in virtual time.
pub(crate) fn run(args: &SimArgs, out: &mut dyn Write) -> Result<(), SimError> {
    if args.in_virtual_time { swarm::run(args, out) } else { run_processes(args, out) }
}

fn run_processes(args: &SimArgs, out: &mut dyn Write) -> Result<(), SimError> {
    let mut folder = Folder::make(args)?;
    let mut stop = Stop::listen().map_err(SimError::Signals)?;
    let (plan, scenario) = Plan::check(args, &folder.path)?;
    let gauge = Gauge::open(plan.manifest.clone(), &plan.data, plan.device(0))?;
    let entropies = gauge.entropies();
    table::introduce(&plan, &entropies, out)?;
    let unusable = cannot("use", &plan.folder);
    let observer = Observer::start(gauge).map_err(&unusable)?;
    let begin = Request { epoch: 0, path: plan.genesis.clone(), tokens: REPORT_TOKENS };
    let before = observer.measure(begin, MEASURE_PATIENCE, &mut stop);
    let mut logbook = Logbook::open(&plan, entropies.floor).map_err(&unusable)?;
    logbook.write(0, before);
    if stop.is_wanted_within(Duration::from_millis(1)) {
        return Err(SimError::Interrupted { epoch: 0, folder: folder.kept() });
    }

    let mut stage = Stage::open(&plan, scenario)?;
    let (evaluations, end) = watch(&mut stage, &observer, &mut logbook, &mut stop, out)?;
    let wall = stage.wall();
    let last = stage.ledger.committed();
    let after = match &end {
        // The newest checkpoint that was measured.
        Ending::Interrupted => evaluations.last_key_value().map(|(_, evaluation)| *evaluation),
        Ending::Ended | Ending::Failed(_) => stage.checkpoint(last).and_then(|path| {
            let request = Request { epoch: last, path: Some(path), tokens: REPORT_TOKENS };
            observer.measure(request, MEASURE_PATIENCE, &mut stop)
        }),
    };
    let weights = stage.checkpoint(last).and_then(|path| weights(&plan.manifest, &path));
    let mut closed = stage.close();

    let measured = Measured { before, after, entropies };
    let interrupted = matches!(end, Ending::Interrupted);
    if interrupted {
        closed.reasons = vec![format!("interrupted after epoch {last}")];
    } else {
        logbook.write(last, after);
        if let Ending::Failed(why) = end {
            closed.reasons.insert(0, why);
        }
        closed.reasons.extend(measured.complaint());
    }
    report::write(&plan, &closed, &evaluations, &measured, weights, wall).map_err(&unusable)?;
    let concluded = table::conclude(&plan, &closed, &measured, wall, out);
    if interrupted {
        // If the terminal was closed, nobody reads these lines, and a failed write does not matter.
        return Err(SimError::Interrupted { epoch: last, folder: folder.kept() });
    }
    concluded?;
    if let Some(folder) = folder.kept() {
        writeln!(out, "report, events, logs and checkpoints are in {}", folder.display())?;
    }
    if !closed.reasons.is_empty() {
        return Err(SimError::Failed { reasons: closed.reasons, folder: folder.keep() });
    }
    Ok(())
}

/// The digest of the weights in a checkpoint, if it can be read.
fn weights(manifest: &Manifest, path: &Path) -> Option<String> {
    let theta = Front::of(path, manifest).ok()?.theta().ok()?;
    tools::stored::weights(&theta).ok()
}

/// A measurement takes about a second; on a busy machine it may take much longer.
const MEASURE_PATIENCE: Duration = Duration::from_secs(120);
