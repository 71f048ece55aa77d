//! The end of a run: its last state is measured as `eval` does, and told with what can be done with it.

use std::{sync::Arc, time::Duration};

use intellect_model::{Device, data};

use crate::config::{Local, Voice};
use crate::gauge::{Gauge, GaugeError, REPORT_TOKENS};
use crate::identity::Origin;
use crate::manifest::Manifest;
use crate::os::Interrupts;
use crate::tell::Teller;
use crate::tell::ending::HeldOut;
use crate::worker::Snapshot;

/// What a complete run is measured with.
pub(super) struct Complete {
    pub(super) manifest: Arc<Manifest>,
    pub(super) source: Arc<data::Dataset>,
    /// The last state, and whether it was here before this start.
    pub(super) newest: Arc<Snapshot>,
    pub(super) before: bool,
}

impl Complete {
    /// Tells the end of it. What cannot be measured, or not soon, is left out: `eval` says why.
    pub(super) async fn tell(self, local: &Local, tell: &Teller) {
        let (head, before) = (self.newest.head(), self.before);
        // Nobody reads what a simulated node says, and `sim` measures itself.
        let is_read = local.voice == Voice::Sentences && local.origin() == Origin::Random;
        let held_out = if is_read { self.measured(local.device, tell).await } else { None };
        tell.complete(head, before, held_out);
    }

    async fn measured(self, device: Device, tell: &Teller) -> Option<HeldOut> {
        let mut interrupts = Interrupts::new().ok()?;
        // It ends with the program, if not before.
        let mut measuring = tokio::task::spawn_blocking(move || self.measure(device));
        let mut late = std::pin::pin!(tokio::time::sleep(SILENT));
        let mut told = false;
        loop {
            tokio::select! {
                measured = &mut measuring => {
                    let measured = measured.ok()?;
                    return measured.inspect_err(|error| tracing::info!(%error, "not measured")).ok();
                }
                () = interrupts.next() => return None,
                () = &mut late => {
                    if told {
                        return None;
                    }
                    told = true;
                    late.as_mut().reset(tokio::time::Instant::now() + PATIENCE);
                    let patience = PATIENCE.as_secs();
                    tell.say(&format!(
                        "measuring the last state on held-out data, {patience} s at most (Ctrl-C: without)"
                    ));
                }
            }
        }
    }

    fn measure(self, device: Device) -> Result<HeldOut, GaugeError> {
        let drawn = self.manifest.run.genesis.is_none();
        let mut gauge = Gauge::on(Manifest::clone(&self.manifest), self.source, device)?;
        let first = if drawn { Some(gauge.drawn(REPORT_TOKENS)?.loss) } else { None };
        gauge.take(self.newest.state.theta())?;
        Ok(HeldOut { first, last: gauge.evaluate(REPORT_TOKENS)?.loss })
    }
}

/// After so long it is told that it is measured, and after so much more it is given up.
const SILENT: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(60);
