//! The end of a run: measures its last state as `eval` does, and reports it with what can be done with it.
//!
//! It runs after the driver has ended, so no peer waits for it.

use std::{sync::Arc, time::Duration};

use intellect_model::{Device, data};

use crate::config::{Local, Voice};
use crate::evaluation::{EvaluationError, Evaluator, REPORT_TOKENS};
use crate::identity::Origin;
use crate::manifest::Manifest;
use crate::os::Interrupts;
use crate::tell::Console;
use crate::tell::ending::HeldOut;
use crate::worker::Snapshot;

/// What the report on a complete run needs.
pub(super) struct Complete {
    /// The manifest, which names the model and the data.
    pub(super) manifest: Arc<Manifest>,
    /// The run's data, open from training.
    pub(super) source: Arc<data::Dataset>,
    /// The state after the last epoch.
    pub(super) newest: Arc<Snapshot>,
    /// Whether that state was here before this start.
    pub(super) before: bool,
    /// Whether that state is on the disk.
    pub(super) stored: bool,
}

impl Complete {
    /// Reports the end of the run. A loss that cannot be measured soon is left out; `eval` says why.
    pub(super) async fn report(self, local: &Local, console: &Console) {
        let (head, before, stored) = (self.newest.head(), self.before, self.stored);
        // Nobody reads the output of a simulated node, and `sim` measures by itself.
        let is_read = local.voice != Voice::Quiet && local.origin() == Origin::Random;
        let held_out = if is_read { self.measured(local.device, console).await } else { None };
        console.complete(head, before, held_out, stored);
    }

    /// Measures on another thread, and gives up on Ctrl-C or after [`PATIENCE`]. A long wait is
    /// announced first.
    async fn measured(self, device: Device, console: &Console) -> Option<HeldOut> {
        let mut interrupts = Interrupts::new().ok()?;
        // The thread ends with the program, if not before.
        let mut measuring = tokio::task::spawn_blocking(move || self.measure(device));
        let mut late = std::pin::pin!(tokio::time::sleep(SILENT));
        let mut reported = false;
        loop {
            tokio::select! {
                measured = &mut measuring => {
                    let measured = measured.ok()?;
                    return measured.inspect_err(|error| tracing::info!(%error, "not measured")).ok();
                }
                () = interrupts.next() => return None,
                () = &mut late => {
                    if reported {
                        return None;
                    }
                    reported = true;
                    late.as_mut().reset(tokio::time::Instant::now() + PATIENCE);
                    let patience = PATIENCE.as_secs();
                    console.say(&format!(
                        "measuring the last state on held-out data, {patience} s at most (Ctrl-C skips it)"
                    ));
                }
            }
        }
    }

    /// Builds the model anew and measures the first and the last weights. Published first
    /// weights are not measured: an untrained model is what the loss is compared with.
    fn measure(self, device: Device) -> Result<HeldOut, EvaluationError> {
        let drawn = self.manifest.run.genesis.is_none();
        let mut evaluator = Evaluator::on(Manifest::clone(&self.manifest), self.source, device)?;
        let first = if drawn { Some(evaluator.drawn(REPORT_TOKENS)?.loss) } else { None };
        evaluator.take(self.newest.state.theta())?;
        Ok(HeldOut { first, last: evaluator.evaluate(REPORT_TOKENS)?.loss })
    }
}

/// How long it measures before it says so.
const SILENT: Duration = Duration::from_secs(1);
/// How much longer it measures before it gives up.
const PATIENCE: Duration = Duration::from_secs(60);
