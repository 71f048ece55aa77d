//! The terminal of this process: sentences scroll, and beneath them stand lines that are drawn over one another.
//!
//! A process has one terminal, so there is one [`Screen`]. Whatever writes to it while lines stand there goes through
//! it: it takes the lines away, writes, and draws them again. It asks the terminal nothing and needs no thread. Where
//! standard output is no terminal, or is one that cannot move its cursor, no line is ever drawn.

use std::env;
use std::io::{self, IsTerminal as _, Write as _};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::access::unix_seconds;
use crate::figures;
use crate::os;

/// Width assumed of a terminal that does not report its own.
pub(super) const COLUMNS: usize = 80;

static SCREEN: Mutex<Screen> =
    Mutex::new(Screen { over: None, living: Vec::new(), drawn: Vec::new() });

/// What stands beneath the sentences.
#[derive(Debug)]
struct Screen {
    /// A sentence that the next one replaces.
    over: Option<String>,
    /// The lines that are drawn a few times a second.
    living: Vec<String>,
    /// What is on the terminal now, a line of text in each.
    drawn: Vec<String>,
}

impl Screen {
    /// What to write so that the lines vanish from a terminal of so many columns. If it has become narrower, each
    /// takes several rows.
    fn clear(&mut self, columns: usize) -> String {
        let row = |line: &String| line.chars().count().max(1).div_ceil(columns.max(1));
        let rows: usize = self.drawn.drain(..).map(|line| row(&line)).sum();
        if rows == 0 { String::new() } else { format!("\r\x1b[{rows}A\x1b[J") }
    }

    /// What to write so that the lines are there again.
    fn draw(&mut self) -> String {
        self.drawn = self.over.iter().chain(&self.living).cloned().collect();
        self.drawn.iter().map(|line| format!("{line}\n")).collect()
    }
}

/// Whether lines can be drawn over one another on standard output.
pub(crate) fn can_draw() -> bool {
    io::stdout().is_terminal() && env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// The width of the terminal in characters.
pub(super) fn columns() -> usize {
    os::columns().unwrap_or(COLUMNS)
}

fn screen() -> MutexGuard<'static, Screen> {
    SCREEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Prints a sentence above the lines.
pub(super) fn say(sentence: &str) -> io::Result<()> {
    let mut screen = screen();
    screen.over = None;
    let text = format!("{}{}{sentence}\n{}", screen.clear(columns()), time_of_day(), screen.draw());
    write(&text)
}

/// What a sentence begins with where it is kept in a file: the time of day, in UTC.
fn time_of_day() -> String {
    if io::stdout().is_terminal() { String::new() } else { figures::clock(unix_seconds()) + " " }
}

/// Shows a sentence that the next one replaces. It must fit the terminal.
pub(super) fn say_over(sentence: &str) {
    let mut screen = screen();
    screen.over = Some(sentence.to_owned());
    let text = screen.clear(columns()) + &screen.draw();
    // A terminal that is gone shows nothing; `say` reports it.
    let _ = write(&text);
}

/// Shows these lines in place of those before. They must fit the terminal.
pub(super) fn live(lines: Vec<String>) {
    let mut screen = screen();
    if screen.living == lines {
        return;
    }
    screen.living = lines;
    let text = screen.clear(columns()) + &screen.draw();
    let _ = write(&text);
}

/// Writes to standard error, above the lines.
pub(crate) fn warn(text: &[u8]) -> io::Result<()> {
    let mut screen = screen();
    let clear = screen.clear(columns());
    // The lines are on standard output; where that fails, nothing stands in the way.
    let _ = write(&clear);
    let written = io::stderr().write_all(text);
    let again = screen.draw();
    let _ = write(&again);
    written
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())
}

/// Standard error for log lines, which come whole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StandardError;

impl io::Write for StandardError {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        warn(text).map(|()| text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_taken_away_before_they_are_drawn_again() {
        let living = vec!["one".to_owned(), "two".to_owned()];
        let mut screen = Screen { over: None, living, drawn: Vec::new() };
        assert_eq!(screen.clear(80), "");
        assert_eq!(screen.draw(), "one\ntwo\n");
        screen.over = Some("fetching".to_owned());
        assert_eq!(screen.clear(80), "\r\x1b[2A\x1b[J");
        assert_eq!(screen.draw(), "fetching\none\ntwo\n");
        assert_eq!(screen.clear(4), "\r\x1b[4A\x1b[J", "the first one has two rows now");
        assert_eq!(screen.clear(80), "");
        screen.living = vec!["x".repeat(9), String::new()];
        screen.over = None;
        screen.draw();
        assert_eq!(screen.clear(0), "\r\x1b[10A\x1b[J");
    }
}
