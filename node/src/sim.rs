//! `sim`: a whole run on this machine, with real processes and a judgement.
//!
//! One bootstrap and N nodes, all of them this program, train until the last epoch. A scenario file may kill, stop and
//! start them on the way, and disturb the links between them. What they did is read from their events files, and
//! how good the model became is measured here, from checkpoint files. The simulation succeeds only if every process
//! ended as it should, all committed the same states, and the held-out loss fell.
//!
//! It shares no code path with what it judges except the formats of events and checkpoints.
//!
//! | subject | files |
//! |---|---|
//! | what was typed | `plan`, `scenario`, `chaos`, `folder` |
//! | the processes, and what joins them | `process`, `peer_slot`, `process_group`, `network`, `links`, `shaping` |
//! | what they did | `observations`, `observer`, `event_log`, `watch` |
//! | the result | `judge`, `table`, `report`, `show` |
//! | no process at all | `swarm` |
//!
//! A process that runs is owned by the [`ProcessGroup`], which kills it when it is dropped. So a
//! simulation may be left by `?` anywhere, and leaves nothing behind but the folder of its files,
//! where that stays.

mod chaos;
mod error;
mod event_log;
mod folder;
mod judge;
mod links;
mod network;
mod observations;
mod observer;
mod peer_slot;
mod plan;
mod process;
mod process_group;
mod report;
mod scenario;
mod shaping;
mod show;
mod stop;
mod swarm;
mod table;
mod watch;

use std::{io::Write, panic::resume_unwind, path::Path, thread, time::Duration};

use crate::{
    checkpoint::Front,
    cli::SimArgs,
    evaluation::{Evaluator, REPORT_TOKENS},
    manifest::Manifest,
    os::cannot,
    tools::{self, pace::announced},
};

use event_log::EventLog;
use folder::Folder;
use observer::{Measured, Observer, Request};
use plan::Plan;
use process_group::{Ending, ProcessGroup};
use report::{Findings, origin::Origin};
use scenario::Scenario;
use show::Outlook;
use stop::Stop;
use watch::watch;

pub(crate) use error::SimError;

/// Runs a simulation, with processes or in virtual time.
///
/// # Errors
/// Anything that went wrong, and also a run that ended and was judged a failure: a script need only
/// look at the exit code.
pub(crate) fn run(args: &SimArgs, out: &mut dyn Write) -> Result<(), SimError> {
    if !args.in_virtual_time {
        return run_processes(args, out);
    }
    let option = if args.tui { Some("--tui") } else { args.page.page.map(|_| "--page") };
    option.map_or_else(|| swarm::run(args, out), |option| Err(SimError::Unseen { option }))
}

/// Runs a simulation with processes. The first part checks and prepares, the second runs, the third
/// judges and writes; from [`ProcessGroup::open`] on there are processes to end.
fn run_processes(args: &SimArgs, out: &mut dyn Write) -> Result<(), SimError> {
    let mut folder = Folder::make(args)?;
    let mut stop = Stop::listen().map_err(SimError::Signals)?;
    let wanted = Outlook::check(args, out)?;
    let Some((plan, scenario, evaluator)) = prepare(args, &folder.path, &mut stop)? else {
        return Err(SimError::Interrupted { epoch: 0, folder: folder.kept() });
    };
    let entropies = evaluator.entropies();
    table::introduce(&plan, &entropies, out)?;
    let unusable = cannot("use", &plan.folder);
    let observer = Observer::start(evaluator).map_err(&unusable)?;
    let begin = Request { epoch: 0, path: plan.genesis.clone(), tokens: REPORT_TOKENS };
    let before = observer.measure(begin, MEASURE_PATIENCE, &mut stop);
    let mut event_log = EventLog::open(&plan, entropies).map_err(&unusable)?;
    event_log.write(0, before);
    if stop.is_wanted_within(Duration::from_millis(1)) {
        return Err(SimError::Interrupted { epoch: 0, folder: folder.kept() });
    }

    let (origin, seer) = (Origin::now(&scenario), show::seer(&scenario, plan.peers));
    let mut group = ProcessGroup::open(&plan, scenario)?;
    let out = &mut wanted.start(&plan, seer, out)?;
    let (evaluations, end) = watch(&mut group, &observer, &mut event_log, &mut stop, out)?;
    let wall = group.started.elapsed();
    let last = group.observations.committed();
    let after = match &end {
        // The newest checkpoint that was measured.
        Ending::Interrupted => {
            evaluations.last_key_value().map(|(_, measured)| measured.evaluation)
        }
        Ending::Ended | Ending::Failed(_) => group.checkpoint(last).and_then(|path| {
            let request = Request { epoch: last, path: Some(path), tokens: REPORT_TOKENS };
            observer.measure(request, MEASURE_PATIENCE, &mut stop)
        }),
    };
    out.leave_screen()?;
    let weights = group.checkpoint(last).and_then(|path| weights(&plan.manifest, &path));
    let mut closed = group.close();

    let measured = Measured { before, after, entropies };
    let interrupted = matches!(end, Ending::Interrupted);
    if interrupted {
        closed.reasons = vec![format!("interrupted after epoch {last}")];
    } else {
        event_log.write(last, after);
        if let Ending::Failed(why) = end {
            closed.reasons.insert(0, why);
        }
        closed.reasons.extend(measured.complaint());
    }
    let found = Findings { closed: &closed, evaluations: &evaluations, measured: &measured };
    report::write(&plan, &origin, found, weights, wall).map_err(&unusable)?;
    let concluded = table::conclude(&plan, &closed, &measured, wall, out);
    if interrupted {
        // If the terminal was closed, nobody reads these lines, and a failed write does not matter.
        return Err(SimError::Interrupted { epoch: last, folder: folder.kept() });
    }
    concluded?;
    if let Some(folder) = folder.kept() {
        writeln!(out, "report, events, logs and checkpoints are in {}", folder.display())?;
    }
    if out.has_page() {
        writeln!(out, "the page stays until Ctrl-C")?;
        out.flush()?;
        while !stop.is_wanted_within(LOOK_EVERY) {}
    }
    if !closed.reasons.is_empty() {
        return Err(SimError::Failed { reasons: closed.reasons, folder: folder.keep() });
    }
    Ok(())
}

/// What has to be right before any process starts; `None` if a signal came first, since reading the data may take long.
fn prepare(
    args: &SimArgs,
    folder: &Path,
    stop: &mut Stop,
) -> Result<Option<(Plan, Scenario, Evaluator)>, SimError> {
    let (args, folder) = (args.clone(), folder.to_owned());
    let prepared = thread::spawn(move || {
        let (plan, scenario) = Plan::check(&args, &folder)?;
        let opened = || Evaluator::open(plan.manifest.clone(), &plan.data, plan.device(0));
        let evaluator = announced("reading the data", opened)?;
        Ok((plan, scenario, evaluator))
    });
    while !prepared.is_finished() {
        if stop.is_wanted_within(Duration::from_millis(20)) {
            return Ok(None);
        }
    }
    prepared.join().unwrap_or_else(|panic| resume_unwind(panic)).map(Some)
}

/// The digest of the weights in a checkpoint, if it can be read. It depends on neither run, epoch
/// nor momentum, so that the results of several simulations can be compared.
fn weights(manifest: &Manifest, path: &Path) -> Option<String> {
    let theta = Front::of(path, manifest).ok()?.theta().ok()?;
    tools::stored::weights(&theta).ok()
}

/// How often it is looked whether the page is still wanted.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// A measurement takes about a second; on a busy machine it may take much longer.
const MEASURE_PATIENCE: Duration = Duration::from_secs(120);
