//! What a panic says: one sentence, by the way of all sentences, so that it tears no lines and reaches every screen.
//!
//! The thread that panics may hold any lock. So another thread prints, and this one waits for it, but not for long. If
//! it is a lock of the printer that is held, the sentence comes once the unwinding has released it.

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    io::{self, Write as _},
    panic::{self, PanicHookInfo},
    thread,
    time::Duration,
};

use super::screen;

/// From now on each panic of this process is reported so. The backtrace follows if the user asked
/// for one by `RUST_BACKTRACE`. What happens after the report is up to the thread and its owner.
pub(crate) fn report_panics() {
    panic::set_hook(Box::new(|panicked| {
        let current = thread::current();
        let name = current.name().unwrap_or("without a name");
        let mut text = sentence(&what(panicked), name);
        let backtrace = Backtrace::capture();
        if backtrace.status() == BacktraceStatus::Captured {
            text += &format!("{backtrace}\n");
        }
        if name == screen::THREAD {
            // Nobody would print what waits for this thread. Standard error may be closed too.
            let _ = io::stderr().write_all(text.as_bytes());
        } else {
            screen::within(PATIENCE, move || {
                screen::warn(text.as_bytes());
                screen::flush();
            });
        }
    }));
}

/// The words of the panic, and where in the sources it happened.
fn what(panicked: &PanicHookInfo<'_>) -> String {
    let words = panicked.payload_as_str().unwrap_or("without words");
    panicked.location().map_or_else(|| words.to_owned(), |place| format!("{words}, at {place}"))
}

/// The sentence, on one line, whatever the panic says: a panic may quote what a peer sent.
fn sentence(what: &str, thread: &str) -> String {
    let what: String = what.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    format!(
        "fault: a part of this program has failed ({what}; thread {thread}): report this line, and start the program \
         again if it does not go on\n"
    )
}

/// So long the thread that panics waits for the terminal.
const PATIENCE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_one_line_that_says_what_to_do() {
        let said = sentence("no \x1b[2J\nroom, at node/src/a.rs:3:7", "worker");
        let (line, rest) = said.split_once('\n').unwrap();
        assert!(rest.is_empty() && !line.contains('\x1b'), "{said:?}");
        for part in ["fault: ", "room, at node/src/a.rs:3:7; thread worker", "report this line"] {
            assert!(line.contains(part), "{line}");
        }
    }
}
