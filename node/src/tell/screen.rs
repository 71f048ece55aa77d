//! The terminal of this process: sentences scroll, and beneath them stand lines that are drawn over one another.
//!
//! A process has one terminal, so there is one [`Printer`], and whatever writes while lines stand there goes through
//! it: it takes the lines away, writes, and draws them again. Nobody waits for it but the end of the program, and that
//! not for long. Where standard output is no terminal, or is one that cannot move its cursor, no line is ever drawn.

mod printer;

use std::env;
use std::fs::File;
use std::io::{self, IsTerminal as _, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use intellect_view::{record::is_harmful, tui::said::Said};

use crate::access::unix_seconds;
use crate::figures;
use crate::os;
use printer::{Line, Printer, Terminal};

pub(super) use printer::THREAD;

/// Width assumed of a terminal that does not report its own.
pub(super) const COLUMNS: usize = 80;

/// The printer of this process. It starts with the first sentence, and never ends before the
/// process.
static SCREEN: OnceLock<Printer> = OnceLock::new();

/// Whether lines can be drawn over one another on standard output.
pub(crate) fn can_draw() -> bool {
    let moves = env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb");
    moves && io::stdout().is_terminal()
}

/// The width of the terminal in characters.
pub(super) fn columns() -> usize {
    os::columns().unwrap_or(COLUMNS)
}

/// The printer, which is made on first use.
fn screen() -> &'static Printer {
    SCREEN.get_or_init(|| {
        // While the thread waits for a terminal it must not hold the lock of `io::stdout`, which the end of the program
        // takes.
        let own = |stream: io::Result<OwnedFd>| -> Box<dyn Write + Send> {
            match stream {
                Ok(stream) => Box::new(File::from(stream)),
                Err(_) => Box::new(io::sink()),
            }
        };
        let out = own(io::stdout().as_fd().try_clone_to_owned());
        let err = own(io::stderr().as_fd().try_clone_to_owned());
        Printer::start(Terminal::new(out, err, columns), io::stderr().is_terminal())
    })
}

/// Prints a sentence above the lines.
pub(super) fn say(sentence: &str) {
    screen().beneath(|beneath| beneath.over = None);
    screen().push(Line::Sentence(time_of_day() + &printable(sentence)));
}

/// A sentence as a terminal may get it, since parts of it can come from another peer. Its own line breaks stay.
pub(crate) fn printable(sentence: &str) -> String {
    let harmless = |c: char| c == '\n' || !is_harmful(c);
    sentence.chars().map(|c| if harmless(c) { c } else { char::REPLACEMENT_CHARACTER }).collect()
}

/// What a sentence begins with where it is kept in a file: the time of day, in UTC.
fn time_of_day() -> String {
    if io::stdout().is_terminal() { String::new() } else { figures::clock(unix_seconds()) + " " }
}

/// Shows a sentence that the next one replaces, where that can be drawn. It must fit the terminal.
pub(super) fn say_over(sentence: &str) {
    if !can_draw() {
        return;
    }
    screen().beneath(|beneath| beneath.over = Some(printable(sentence)));
}

/// Shows these lines in place of those before. They must fit the terminal.
pub(crate) fn live(lines: Vec<String>) {
    screen().beneath(|beneath| beneath.living = lines);
}

/// Writes to standard error, above the lines.
pub(crate) fn warn(text: &[u8]) {
    screen().push(Line::Warning(text.to_vec()));
}

/// From now on the terminal belongs to a screen, which lists what is said. A log that goes elsewhere still does.
pub(crate) fn hide(said: &Said) {
    screen().hide(said, END_PATIENCE);
}

/// The screen has left the terminal.
pub(crate) fn show() {
    screen().show();
}

/// Waits until all of this is on the terminal, but not for long; whether it is.
pub(crate) fn flush() -> bool {
    SCREEN.get().is_none_or(|screen| screen.flush(END_PATIENCE))
}

/// Does this in a thread of its own, since the terminal may be stopped, and waits for it so long.
pub(crate) fn within(patience: Duration, print: impl FnOnce() + Send + 'static) {
    let (done, printed) = mpsc::channel();
    let print = move || {
        print();
        // Without a receiver the program has ended.
        let _ = done.send(());
    };
    if thread::Builder::new().spawn(print).is_ok() {
        let _ = printed.recv_timeout(patience);
    }
}

/// Standard error for log lines, which come whole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StandardError;

impl Write for StandardError {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        warn(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// So long the end of the program waits for a terminal that is stopped, or a reader that is slow.
const END_PATIENCE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_stranger_move_no_cursor() {
        let said = printable("peer t8nPqR runs \x1b[2J\u{202e}0.2: update\nthis program");
        assert_eq!(said, "peer t8nPqR runs \u{fffd}[2J\u{fffd}0.2: update\nthis program");
    }
}
