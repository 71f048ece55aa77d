//! The thread that writes to the terminal, and what waits for it.
//!
//! A terminal that is stopped (Ctrl-S) or a pipe that nobody reads keeps this thread alone, and no other. What comes
//! meanwhile waits in at most [`QUEUE_BYTES_MAX`]: older lines make room for newer ones and are counted, and the count is
//! told when the terminal goes on. The lines beneath are replaced and never queued.

use std::collections::VecDeque;
use std::io::Write;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use intellect_view::tui::said::{Kind, Said};

use crate::figures::number_of;

/// Printed once, on standard error.
const UNREAD: &str = "warning: standard output is closed; the node goes on without it (Ctrl-C, or \
    `kill`, makes it leave)\n";

/// One thing that is printed above the lines beneath.
#[derive(Debug)]
pub(super) enum Line {
    /// For standard output, without its end of line.
    Sentence(String),
    /// Bytes for standard error, as they are.
    Warning(Vec<u8>),
}

impl Line {
    /// Its length in bytes, by which the queue is bounded.
    fn len(&self) -> usize {
        match self {
            Self::Sentence(text) => text.len(),
            Self::Warning(bytes) => bytes.len(),
        }
    }
}

/// What stands beneath the sentences.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Beneath {
    /// A sentence that the next one replaces.
    pub(super) over: Option<String>,
    /// The lines that are drawn a few times a second.
    pub(super) living: Vec<String>,
}

/// What waits, and who has the terminal.
#[derive(Debug, Default)]
struct Pending {
    /// Lines that scroll, the oldest first.
    lines: VecDeque<Line>,
    /// The bytes of all these lines, at most [`QUEUE_BYTES_MAX`] unless there is only one.
    bytes: usize,
    /// How many lines made room for newer ones.
    missing: u64,
    /// What stands beneath them now.
    beneath: Beneath,
    /// The screen that has the terminal, if one has.
    screen: Option<Said>,
    /// Whether anything is to be written or drawn anew.
    stale: bool,
    /// Whether something is being written.
    busy: bool,
}

/// The handle of the thread. It can be cloned.
#[derive(Clone)]
pub(super) struct Printer {
    /// What callers and the thread share.
    shared: Arc<Shared>,
    /// Without a thread each caller writes, and may wait.
    has_thread: bool,
}

/// The queue, the terminal, and how the one waits for the other. A writer locks the terminal first
/// and then the queue; a caller locks only the queue.
struct Shared {
    /// What waits to be written. The lock is never held while the terminal is written to.
    pending: Mutex<Pending>,
    /// Something waits to be written, or all of it has been.
    changed: Condvar,
    /// The terminal, locked by the one that writes: the thread, or a caller if there is none.
    terminal: Mutex<Terminal>,
    /// Whether standard error is on the terminal too.
    errors_shown: bool,
}

impl Printer {
    /// Starts the thread. Where the system refuses one, each caller writes for itself.
    pub(super) fn start(terminal: Terminal, errors_shown: bool) -> Self {
        let (pending, changed, terminal) = (Mutex::default(), Condvar::new(), Mutex::new(terminal));
        let shared = Arc::new(Shared { pending, changed, terminal, errors_shown });
        let of_thread = Arc::clone(&shared);
        let write = move || {
            loop {
                let pending = of_thread.lock();
                let waited = of_thread.changed.wait_while(pending, |pending| !pending.stale);
                drop(waited.unwrap_or_else(PoisonError::into_inner));
                of_thread.write();
            }
        };
        let has_thread = thread::Builder::new().name(THREAD.into()).spawn(write).is_ok();
        Self { shared, has_thread }
    }

    /// Adds something that scrolls.
    pub(super) fn push(&self, line: Line) {
        let errors_shown = self.shared.errors_shown;
        self.change(|pending| {
            match (&pending.screen, &line) {
                (Some(screen), Line::Sentence(text)) => {
                    screen.push(Kind::News, text);
                    return false;
                }
                (Some(screen), Line::Warning(bytes)) if errors_shown => {
                    screen.push(Kind::Warning, &String::from_utf8_lossy(bytes));
                    return false;
                }
                (Some(_) | None, Line::Sentence(_) | Line::Warning(_)) => {}
            }
            pending.bytes += line.len();
            pending.lines.push_back(line);
            while pending.bytes > QUEUE_BYTES_MAX && pending.lines.len() > 1 {
                pending.bytes -= pending.lines.pop_front().map_or(0, |line| line.len());
                pending.missing += 1;
            }
            true
        });
    }

    /// Changes the lines beneath, which are drawn anew if they differ then.
    pub(super) fn beneath(&self, change: impl FnOnce(&mut Beneath)) {
        self.change(|pending| {
            if pending.screen.is_some() {
                return false;
            }
            let before = pending.beneath.clone();
            change(&mut pending.beneath);
            pending.beneath != before
        });
    }

    /// Takes the lines away, and from now on passes to a screen what would stand on the terminal.
    pub(super) fn hide(&self, screen: &Said, patience: Duration) {
        self.beneath(|beneath| *beneath = Beneath::default());
        self.flush(patience);
        self.shared.lock().screen = Some(screen.clone());
    }

    /// The screen has gone: its last sentences stand on the terminal again.
    pub(super) fn show(&self) {
        let screen = self.shared.lock().screen.take();
        for sentence in screen.iter().flat_map(|screen| screen.last(AGAIN)) {
            self.push(Line::Sentence(sentence));
        }
    }

    /// Waits until everything is written, for this long at most; whether it is.
    pub(super) fn flush(&self, patience: Duration) -> bool {
        let is_open = |pending: &mut Pending| pending.stale || pending.busy;
        let waited = self.shared.changed.wait_timeout_while(self.shared.lock(), patience, is_open);
        let (pending, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !pending.stale && !pending.busy
    }

    /// Changes what waits, and wakes the thread if there is something to write.
    fn change(&self, change: impl FnOnce(&mut Pending) -> bool) {
        let mut pending = self.shared.lock();
        let is_changed = change(&mut pending);
        pending.stale |= is_changed;
        drop(pending);
        if !is_changed {
            return;
        }
        self.shared.changed.notify_all();
        if !self.has_thread {
            self.shared.write();
        }
    }
}

impl Shared {
    /// The queue. A panic elsewhere leaves it usable, since each change is made as a whole.
    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes all that waits to the terminal.
    fn write(&self) {
        let mut terminal = self.terminal.lock().unwrap_or_else(PoisonError::into_inner);
        let mut pending = self.lock();
        pending.busy = true;
        (pending.bytes, pending.stale) = (0, false);
        let (lines, missing) = (mem::take(&mut pending.lines), mem::take(&mut pending.missing));
        let beneath = pending.beneath.clone();
        drop(pending);
        terminal.write(lines, missing, beneath);
        self.lock().busy = false;
        self.changed.notify_all();
    }
}

/// Both outputs, and what stands on the terminal now.
pub(super) struct Terminal {
    /// Standard output, or nothing if it is closed.
    out: Box<dyn Write + Send>,
    /// Standard error, or nothing if it is closed.
    err: Box<dyn Write + Send>,
    /// The width in characters, asked before each drawing.
    columns: fn() -> usize,
    /// The lines beneath, a line of text in each.
    drawn: Vec<String>,
    /// Whether it was reported that standard output is closed.
    unread: bool,
}

impl Terminal {
    /// A terminal on which nothing is drawn yet.
    pub(super) fn new(
        out: Box<dyn Write + Send>,
        err: Box<dyn Write + Send>,
        columns: fn() -> usize,
    ) -> Self {
        Self { out, err, columns, drawn: Vec::new(), unread: false }
    }

    /// Takes the drawn lines away, writes what waits, and draws the lines beneath again.
    fn write(&mut self, lines: VecDeque<Line>, missing: u64, beneath: Beneath) {
        let mut text = self.clear((self.columns)());
        let mut is_said = missing > 0;
        if missing > 0 {
            let missing = number_of(missing, "line");
            text += &format!("{missing} not shown: the terminal was stopped, or nobody read\n");
        }
        for line in lines {
            match line {
                Line::Sentence(sentence) => {
                    text = text + &sentence + "\n";
                    is_said = true;
                }
                Line::Warning(bytes) => {
                    self.print(&mem::take(&mut text), mem::take(&mut is_said));
                    // Standard error may be closed too; the run goes on.
                    let _ = self.err.write_all(&bytes).and_then(|()| self.err.flush());
                }
            }
        }
        text += &self.draw(beneath);
        self.print(&text, is_said);
    }

    /// Writes to standard output. A terminal that is gone shows nothing; of a sentence, that is reported once.
    fn print(&mut self, text: &str, is_said: bool) {
        if text.is_empty() {
            return;
        }
        let printed = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
        if is_said && printed.is_err() && !mem::replace(&mut self.unread, true) {
            let _ = self.err.write_all(UNREAD.as_bytes());
        }
    }

    /// What to write so that the lines vanish from a terminal of so many columns. If it has become narrower, each
    /// takes several rows.
    fn clear(&mut self, columns: usize) -> String {
        let row = |line: &String| line.chars().count().max(1).div_ceil(columns.max(1));
        let rows: usize = self.drawn.drain(..).map(|line| row(&line)).sum();
        if rows == 0 { String::new() } else { format!("\r\x1b[{rows}A\x1b[J") }
    }

    /// What to write so that the lines are there again.
    fn draw(&mut self, beneath: Beneath) -> String {
        self.drawn = beneath.over.into_iter().chain(beneath.living).collect();
        self.drawn.iter().map(|line| format!("{line}\n")).collect()
    }
}

/// The name of the thread that writes.
pub(crate) const THREAD: &str = "terminal";

/// So many sentences are printed again after a screen.
const AGAIN: usize = 10;

/// What may wait for a terminal that is stopped: some ten thousand sentences.
const QUEUE_BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use std::io::{self, BufRead as _, BufReader};

    use super::*;

    const WIDE: fn() -> usize = || 80;

    #[test]
    fn a_reader_that_never_reads_delays_nobody_and_is_told_what_it_missed() {
        let (reader, out) = io::pipe().unwrap();
        let printer =
            Printer::start(Terminal::new(Box::new(out), Box::new(io::sink()), WIDE), true);
        let all = 100_000_u64;
        for n in 0..all {
            printer.push(Line::Sentence(format!("sentence {n:>30}")));
            printer.beneath(|beneath| beneath.living = vec![format!("living {n}")]);
        }
        assert!(!printer.flush(Duration::from_millis(50)), "nobody has read, and nobody waited");
        let (mut shown, mut missing) = (0, 0);
        let last = format!("sentence {:>30}", all - 1);
        for line in BufReader::new(reader).lines().map(Result::unwrap) {
            if let Some((count, _)) = line.split_once(" lines not shown") {
                let digits =
                    count.rsplit('J').next().unwrap().replace(|c: char| !c.is_ascii_digit(), "");
                missing += digits.parse::<u64>().unwrap();
            }
            shown += u64::from(line.contains("sentence "));
            if line.ends_with(&last) {
                break;
            }
        }
        assert!(missing > 0);
        assert_eq!(shown + missing, all, "{missing} are missing");
        assert!(printer.flush(Duration::from_secs(60)));
    }

    #[test]
    fn while_a_screen_has_the_terminal_it_gets_what_is_said_and_the_last_of_it_comes_back() {
        for errors_shown in [true, false] {
            let (reader, out) = io::pipe().unwrap();
            let (errors, err) = io::pipe().unwrap();
            let printer =
                Printer::start(Terminal::new(Box::new(out), Box::new(err), WIDE), errors_shown);
            printer.beneath(|beneath| beneath.living = vec!["living".to_owned()]);
            assert!(printer.flush(Duration::from_secs(60)));
            let said = Said::default();
            printer.hide(&said, Duration::from_secs(60));
            for n in 0..20 {
                printer.push(Line::Sentence(format!("sentence {n}")));
            }
            printer.push(Line::Warning(b"warning\n".to_vec()));
            printer.beneath(|beneath| beneath.living = vec!["more".to_owned()]);
            printer.show();
            printer.push(Line::Sentence("after".to_owned()));
            printer.push(Line::Warning(b"the end\n".to_vec()));
            let mut lines = BufReader::new(reader).lines().map(Result::unwrap);
            let seen: Vec<_> = lines.by_ref().take_while(|line| line != "after").collect();
            let (living, seen) = seen.split_first().unwrap();
            assert_eq!((living.as_str(), seen.len()), ("living", AGAIN));
            assert!(seen[0].starts_with("\r\x1b[1A\x1b[J"), "the lines are taken away: {seen:?}");
            assert_eq!(seen.last().unwrap() == "warning", errors_shown, "{seen:?}");
            let first = BufReader::new(errors).lines().next().unwrap().unwrap();
            assert_eq!(first == "warning", !errors_shown);
        }
    }

    #[test]
    fn a_closed_output_is_reported_once_and_only_of_sentences() {
        let (reader, out) = io::pipe().unwrap();
        let (errors, err) = io::pipe().unwrap();
        drop(reader);
        let mut terminal = Terminal::new(Box::new(out), Box::new(err), WIDE);
        let living = || Beneath { over: None, living: vec!["living".to_owned()] };
        terminal.write(VecDeque::new(), 0, living());
        terminal.write([Line::Warning(b"one\n".to_vec())].into(), 0, living());
        terminal.write([Line::Sentence("two".to_owned())].into(), 0, living());
        terminal.write([Line::Sentence("three".to_owned())].into(), 0, living());
        drop(terminal);
        assert_eq!(io::read_to_string(errors).unwrap(), format!("one\n{UNREAD}"));
    }

    #[test]
    fn lines_are_taken_away_before_they_are_drawn_again() {
        let living = vec!["one".to_owned(), "two".to_owned()];
        let mut beneath = Beneath { over: None, living };
        let mut screen = Terminal::new(Box::new(io::sink()), Box::new(io::sink()), WIDE);
        assert_eq!(screen.clear(80), "");
        assert_eq!(screen.draw(beneath.clone()), "one\ntwo\n");
        beneath.over = Some("fetching".to_owned());
        assert_eq!(screen.clear(80), "\r\x1b[2A\x1b[J");
        assert_eq!(screen.draw(beneath.clone()), "fetching\none\ntwo\n");
        assert_eq!(screen.clear(4), "\r\x1b[4A\x1b[J", "the first one has two rows now");
        assert_eq!(screen.clear(80), "");
        screen.draw(Beneath { over: None, living: vec!["x".repeat(9), String::new()] });
        assert_eq!(screen.clear(0), "\r\x1b[10A\x1b[J");
    }
}
