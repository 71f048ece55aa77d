//! `replay --tui`: the thread that draws a screen, and whether there can be one.

use std::{
    io::{self, Write},
    sync::mpsc,
    thread::JoinHandle,
};

use intellect_view::{stage::Seen, tui};
use tokio::sync::oneshot;

use super::ReplayError;

/// Whether this terminal can have a screen; else says why not, and that there are lines.
pub(super) fn is_fit(out: &mut dyn Write) -> Result<bool, ReplayError> {
    let Some(why) = tui::unfit() else { return Ok(true) };
    writeln!(out, "no screen: {why}; here are the lines")
        .and_then(|()| out.flush())
        .map_err(ReplayError::Output)?;
    Ok(false)
}

/// The thread that draws the screen. When this is dropped, the thread is told to end, and the terminal is whole again.
pub(super) struct Screen {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    drawn: Option<oneshot::Receiver<io::Result<()>>>,
}

impl Screen {
    pub(super) fn open(seen: Seen) -> Result<Self, ReplayError> {
        let (stop, stopped) = mpsc::channel();
        let (done, drawn) = oneshot::channel();
        let draw = move || {
            // Without a receiver the command has ended.
            let _ = done.send(tui::run(seen, &stopped, ""));
        };
        let thread = std::thread::Builder::new().name("screen".into()).spawn(draw);
        let thread = thread.map_err(ReplayError::Runtime)?;
        Ok(Self { stop: Some(stop), thread: Some(thread), drawn: Some(drawn) })
    }

    /// Waits until a key ends it. A panic has been printed by then.
    pub(super) async fn ended(mut self) -> io::Result<()> {
        let Some(drawn) = self.drawn.take() else { return Ok(()) };
        drawn.await.unwrap_or_else(|_| Err(io::Error::other("it stopped without a word")))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
