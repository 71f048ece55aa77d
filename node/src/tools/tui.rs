//! `tui`: a screen of a node that runs elsewhere on this machine, such as a service.
//!
//! It asks over the node's socket twice a second, and draws what is answered by the code that draws
//! a node's own screen. The node does not know of it: leaving the screen leaves the node alone.

use std::{io, path::Path, time::Duration};

use intellect_view::{stage::Mirror, tui};
use tokio::{sync::oneshot, time};

use super::status::{self, StatusError};
use crate::cli::tui::TuiArgs;
use crate::config::{self, LocalError};
use crate::os::Interrupts;
use crate::tui::{Frame, Screen};

/// Why there is no screen, or no longer one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TuiError {
    /// No folder was typed, and none is the default.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// Standard output cannot be drawn on.
    #[error("no screen: {0}; `intellect-node status` says in lines what the node does")]
    Unfit(&'static str),
    /// There is no node, or none that answers any more.
    #[error(transparent)]
    Node(#[from] StatusError),
    /// The terminal has gone, or refuses what a screen needs.
    #[error("the screen has ended: try `intellect-node status`")]
    Screen(#[source] io::Error),
    /// The system refused threads or signals.
    #[error("cannot start")]
    Runtime(#[source] io::Error),
}

/// Shows the node until a key or a signal ends the screen, or the node ends. The node is asked once
/// before the screen opens, so that an error is a sentence on the terminal and no screen that
/// flashes.
pub(crate) fn run(args: &TuiArgs) -> Result<(), TuiError> {
    let typed = args.folder.as_ref().or(args.data_dir.as_ref());
    let folder = typed.cloned().map_or_else(config::data_dir, Ok)?;
    let (mirror, seen) = Mirror::new();
    look(&folder, &mirror)?;
    if let Some(why) = tui::unfit() {
        return Err(TuiError::Unfit(why));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(TuiError::Runtime)?.block_on(async {
        let mut interrupts = Interrupts::new().map_err(TuiError::Runtime)?;
        let (done, mut ended) = oneshot::channel();
        let then = move |end: io::Result<_>| {
            // Without a receiver the command has ended.
            let _ = done.send(end);
        };
        let frame = Frame { note: "· the node goes on", said: None };
        let _screen = Screen::open(seen, frame, then).map_err(TuiError::Runtime)?;
        let mut silent = 0;
        loop {
            tokio::select! {
                end = &mut ended => {
                    let lost = |_| Err(io::Error::other("it stopped without a word"));
                    return end.unwrap_or_else(lost).map(drop).map_err(TuiError::Screen);
                }
                () = interrupts.next() => return Ok(()),
                // The answer comes in milliseconds, and the screen has a thread of its own. A node that is silent
                // for a moment keeps its last picture.
                () = time::sleep(LOOK_EVERY) => match look(&folder, &mirror) {
                    Err(StatusError::Silent { .. }) if silent < SILENT_MAX => silent += 1,
                    other => {
                        other?;
                        silent = 0;
                    }
                },
            }
        }
    })
}

/// Asks the node, and shows what it answers. The two answers may be of two moments, which nobody
/// sees.
fn look(folder: &Path, mirror: &Mirror) -> Result<(), StatusError> {
    let status = status::ask(folder, "/status")?;
    let history = status::ask(folder, &format!("/history?points={POINTS}"))?;
    mirror.show(&status, &history).map_err(|_| StatusError::NoAnswer(folder.to_owned()))
}

/// How often the node is asked.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Questions in a row that the node may leave without an answer, each for three seconds.
const SILENT_MAX: u32 = 4;
/// Points of a curve: more than a terminal is wide.
const POINTS: usize = 400;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_without_a_node_is_the_sentence_of_status() {
        let folder = tempfile::tempdir().unwrap();
        let args = |folder: &Path| TuiArgs { folder: Some(folder.to_owned()), data_dir: None };
        let said = |folder: &Path| run(&args(folder)).unwrap_err().to_string();
        assert!(said(folder.path()).contains("no node runs in"));
        assert!(said(&folder.path().join("none")).contains("is no folder"));
    }
}
