//! Ctrl-C and the signals like it, for a simulation, which waits in small pieces and has no tasks.

use std::{io, time::Duration};

use intellect_bootstrap::interrupts::Interrupts;
use tokio::{runtime, time::timeout};

/// Whether the user has asked the simulation to end.
#[derive(Debug)]
pub(super) struct Stop {
    /// Runs while somebody waits; between two waits nothing listens to it.
    runtime: runtime::Runtime,
    /// The signals, caught since the start.
    interrupts: Interrupts,
    /// Whether one has come. It stays so.
    wanted: bool,
}

impl Stop {
    /// Starts to listen: from now on no such signal ends the process by itself.
    pub(super) fn listen() -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let interrupts = runtime.block_on(async { Interrupts::new() })?;
        Ok(Self { runtime, interrupts, wanted: false })
    }

    /// Waits for this long, or until a signal asks the simulation to end. Returns whether one has, now or before.
    pub(super) fn is_wanted_within(&mut self, length: Duration) -> bool {
        if !self.wanted {
            let next = async { timeout(length, self.interrupts.next()).await.is_ok() };
            self.wanted = self.runtime.block_on(next);
        }
        self.wanted
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::{Signal, getpid, kill_process};

    use super::*;

    #[test]
    fn a_sigterm_is_remembered() {
        let mut stop = Stop::listen().unwrap();
        assert!(!stop.is_wanted_within(Duration::from_millis(1)));
        kill_process(getpid(), Signal::TERM).unwrap();
        assert!(stop.is_wanted_within(Duration::from_secs(60)));
        assert!(stop.is_wanted_within(Duration::ZERO));
    }
}
