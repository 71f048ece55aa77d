//! Signals that ask the program to end: Ctrl-C, a plain `kill`, and the end of the terminal.
//!
//! Both programs treat all three alike, since most people leave by closing a window or losing their
//! connection. A program started with `nohup` must survive its terminal, so there SIGHUP stays
//! ignored.

use std::{fs, io};

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGINT, SIGTERM and SIGHUP as one stream. Once this exists, none of them ends the process by
/// itself.
#[derive(Debug)]
pub struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
    /// Absent where SIGHUP was ignored when the process began, and once it has come.
    hangup: Option<Signal>,
}

impl Interrupts {
    /// Installs the handlers; needs a tokio runtime.
    ///
    /// # Errors
    /// The operating system refuses a handler.
    pub fn new() -> io::Result<Self> {
        let hangup = (!is_hangup_ignored()).then(|| signal(SignalKind::hangup())).transpose()?;
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup,
        })
    }

    /// Waits for the next of the signals. SIGHUP counts once: when a terminal closes, its shell and the kernel may each send
    /// one, and the second is no request for haste.
    ///
    /// # Cancel safety
    /// No signal is lost when this future is dropped.
    pub async fn next(&mut self) {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = hangup => self.hangup = None,
        }
    }
}

/// Whether this process ignores SIGHUP, which the processes that it starts inherit. Without
/// `/proc` the answer is no.
#[must_use]
pub fn is_hangup_ignored() -> bool {
    fs::read_to_string("/proc/self/status").is_ok_and(|status| ignores_hangup(&status))
}

/// Reads the mask of ignored signals in `/proc/…/status`, in which signal n is bit n − 1.
fn ignores_hangup(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::process::{Signal as SignalNumber, getpid, kill_process};

    use super::*;

    /// A shell hangs up its jobs, and the kernel those in front of the terminal: a program gets both.
    #[tokio::test]
    async fn a_terminal_that_closes_interrupts_once() {
        if is_hangup_ignored() {
            println!("skipped: SIGHUP is ignored here, as under nohup");
            return;
        }
        let mut interrupts = Interrupts::new().unwrap();
        let send = |signal| kill_process(getpid(), signal).unwrap();
        send(SignalNumber::HUP);
        interrupts.next().await;
        send(SignalNumber::HUP);
        let moment = Duration::from_millis(200);
        assert!(tokio::time::timeout(moment, interrupts.next()).await.is_err());
        send(SignalNumber::TERM);
        interrupts.next().await;
    }

    #[test]
    fn a_process_of_nohup_is_known_by_its_mask() {
        assert!(ignores_hangup("SigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\n"));
        assert!(!ignores_hangup("SigIgn:\t0000000000001000\n"));
        assert!(!ignores_hangup("SigIgn:\tnonsense\n"));
        assert!(!ignores_hangup(""));
    }
}
