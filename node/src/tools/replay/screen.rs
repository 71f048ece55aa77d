//! `replay --tui`: whether there can be a screen, and its end.

use std::io::{self, Write};

use intellect_view::{stage::Seen, tui};
use tokio::sync::oneshot;

use crate::tui::{Frame, Screen};

use super::{ReplayError, print};

/// Whether this terminal can have a screen; else says why not, and that there are lines.
pub(super) fn is_fit(out: &mut dyn Write) -> Result<bool, ReplayError> {
    let Some(why) = tui::unfit() else { return Ok(true) };
    print(out, format_args!("no screen: {why}; here are the lines\n"))?;
    Ok(false)
}

/// Shows a screen until a key ends it. A panic has been printed by then. The screen has a thread of
/// its own, which a oneshot channel waits for here; the files go on playing meanwhile.
pub(super) async fn show(seen: Seen) -> Result<(), ReplayError> {
    let (done, drawn) = oneshot::channel();
    let then = move |ended| {
        // Without a receiver the command has ended.
        let _ = done.send(ended);
    };
    let _screen = Screen::open(seen, Frame::default(), then).map_err(ReplayError::Runtime)?;
    let lost = |_| Err(io::Error::other("it stopped without a word"));
    drawn.await.unwrap_or_else(lost).map(drop).map_err(ReplayError::Screen)
}
