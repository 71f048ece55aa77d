//! The thread that draws a screen in the terminal, for each command that has one.
//!
//! The drawing is `intellect_view::tui`; this file owns its thread. It is a thread and not a task,
//! because it reads keys and writes to a terminal, and both can block for any time: over a slow
//! line, or when a person has stopped the output.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::mpsc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use intellect_view::{
    stage::Seen,
    tui::{self, Ended, said::Said},
};

/// What a screen shows beside the run.
#[derive(Debug, Default)]
pub(crate) struct Frame {
    /// Words at its foot, behind those about the keys.
    pub(crate) note: &'static str,
    /// The sentences of the program, where they are listed in place of the events.
    pub(crate) said: Option<Said>,
}

/// A screen. When this is dropped, the thread is told to end, and the terminal is as it was before.
#[derive(Debug)]
pub(crate) struct Screen {
    /// Dropping it tells the thread to end.
    /// Nothing is ever sent: that the sender is gone is the signal.
    stop: Option<mpsc::Sender<()>>,
    /// The thread; `None` once it was waited for.
    thread: Option<JoinHandle<()>>,
}

impl Screen {
    /// Opens it. Once it has ended, and the terminal is whole again, the thread does `then`.
    ///
    /// `then` hears why it has ended, also after a panic of the thread, and runs on that thread. So
    /// a key that ends the screen can end the program.
    pub(crate) fn open(
        seen: Seen,
        frame: Frame,
        then: impl FnOnce(io::Result<Ended>) + Send + 'static,
    ) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let draw = move || {
            let run = || tui::run(seen, &stopped, frame.note, frame.said.as_ref());
            // What a panic says has been said by then, and the terminal is whole.
            let ended = catch_unwind(AssertUnwindSafe(run));
            then(ended.unwrap_or(Ok(Ended::Panicked)));
        };
        let thread = thread::Builder::new().name("screen".into()).spawn(draw)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        drop(self.stop.take());
        let Some(thread) = self.thread.take() else { return };
        let patience = Instant::now() + END_PATIENCE;
        while !thread.is_finished() && Instant::now() < patience {
            thread::sleep(TICK);
        }
        if thread.is_finished() {
            let _ = thread.join();
        } else {
            // A terminal that takes nothing must not hold up the end of a program.
            tui::give_up();
        }
    }
}

/// A screen that is told to end does so within a quarter of a second.
const END_PATIENCE: Duration = Duration::from_secs(2);
/// How often the end of the thread is looked for.
const TICK: Duration = Duration::from_millis(5);
