//! When a command that takes long says how far it is.
//!
//! Work that counts what it has done asks a [`ProgressPace`] at each step, and writes its own line.
//! Work that is one call is put into [`announced`], which only says that it goes on. A person sees
//! nothing of work that is done in two seconds.

use std::{
    io::{self, Write},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

/// Allows a line of progress after two seconds, and then every ten seconds.
pub(crate) struct ProgressPace {
    /// When the work began, for its speed.
    begun: Instant,
    /// When the next line of progress is due.
    next: Instant,
}

impl ProgressPace {
    /// The work begins now, for its speed and for the first line.
    pub(crate) fn new() -> Self {
        let begun = Instant::now();
        Self { begun, next: begun + FIRST }
    }

    /// Whether a line is due, which the caller then writes. It costs one look at the clock, so it
    /// may be asked for each item.
    pub(crate) fn is_due(&mut self) -> bool {
        let now = Instant::now();
        let due = now >= self.next;
        if due {
            self.next = now + EVERY;
        }
        due
    }

    /// How many of these were done in a second so far. It is the mean since the beginning, in whole
    /// seconds.
    pub(crate) fn per_second(&self, done: u64) -> u64 {
        done / self.begun.elapsed().as_secs().max(1)
    }
}

/// Does work that does not know how far it is. Standard error gets a line with its name after two
/// seconds, and then every ten. The lines go to standard error, for standard output may be the
/// result. A panic of the work passes through.
pub(crate) fn announced<T>(name: &str, work: impl FnOnce() -> T) -> T {
    announced_on(&mut io::stderr(), FIRST, name, work)
}

/// Like [`announced`], with lines on `err` from the time `first` on.
fn announced_on<T>(
    err: &mut (impl Write + Send),
    first: Duration,
    name: &str,
    work: impl FnOnce() -> T,
) -> T {
    let (working, ended) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            let (begun, mut wait) = (Instant::now(), first);
            while ended.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                let line = format!("{name}: {} s so far\n", begun.elapsed().as_secs());
                let _ = err.write_all(line.as_bytes());
                wait = EVERY;
            }
        });
        let done = work();
        drop(working);
        done
    })
}

/// Time before the first line of progress.
const FIRST: Duration = Duration::from_secs(2);
/// Time between two lines of progress.
const EVERY: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_takes_long_is_announced() {
        let mut err = Vec::new();
        let quick = announced_on(&mut err, Duration::from_secs(60), "reading", || 7);
        assert_eq!((quick, err.len()), (7, 0));
        let (seen, signal) = mpsc::channel();
        announced_on(&mut Signalling(seen), Duration::ZERO, "reading", || {
            let line = signal.recv_timeout(Duration::from_secs(60)).unwrap();
            assert_eq!(line, "reading: 0 s so far\n");
        });
    }

    /// Sends each line that it gets.
    struct Signalling(mpsc::Sender<String>);

    impl Write for Signalling {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.send(String::from_utf8_lossy(bytes).into_owned());
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
}
