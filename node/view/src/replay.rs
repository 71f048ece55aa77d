//! Events files played back: their records in the order of time, at a speed, into a [`Stage`].
//!
//! A file is read line by line, so its size does not matter. A line that is cut, foreign or longer
//! than [`LINE_BYTES`] is skipped and counted. A file that still grows is followed: a line without
//! an end is read again once it has one.
//!
//! [`Player::open`] checks that files are events files, and [`Player::play`] runs on a thread of
//! its own, for it sleeps. Several files, as of a simulation, are merged by their times; within one
//! file the order of lines stays, even where its clock went back.

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::{Duration, Instant},
};

use crate::{
    picture::Source,
    record::{Event, Record, Text},
    stage::Stage,
};

/// How fast files are played, and to which end.
#[derive(Clone, Copy, Debug)]
pub struct Speed {
    /// Seconds of the file in a second; 0 is all at once. It is not used with `follow`: what is in
    /// a growing file is taken at once.
    pub times: f64,
    /// Whether to wait for more at the end of the files.
    pub follow: bool,
}

/// What was in the files so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Lines that are events, known to this program or not.
    pub events: u64,
    /// Lines that are no events, or too long.
    pub skipped: u64,
    /// Files that end inside a line.
    pub cut: u64,
}

/// Why nothing, or no more, can be played.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// A file cannot be opened or read.
    #[error("cannot read {}: name the file that a node writes with --events", path.display())]
    Read {
        /// The file, by the name that was given.
        path: PathBuf,
        /// What the system said about it.
        #[source]
        cause: io::Error,
    },
    /// No line of a file is an event, or none in its first thousand lines or 64 MiB: another kind
    /// of file was named.
    #[error("{} is no events file: no line that it begins with is an event; a node writes one with --events", .0.display())]
    Foreign(PathBuf),
    /// There is nothing in a file that does not grow. With `follow` it may still come.
    #[error("{} has no events yet: with --follow its first ones are waited for", .0.display())]
    Empty(PathBuf),
}

/// Files that are read together, by time.
#[derive(Debug)]
pub struct Player {
    tapes: Vec<Tape>,
}

/// One file, and the record that comes next.
#[derive(Debug)]
struct Tape {
    /// For errors: the name that was given.
    path: PathBuf,
    /// The open file, read in blocks.
    reader: BufReader<File>,
    /// The bytes of a line whose end has not come yet, at most [`LINE_BYTES`].
    line: Vec<u8>,
    /// Whether the rest of a line that is too long is being passed over.
    passing: bool,
    /// How many bytes of the file were read so far.
    read_bytes: u64,
    /// The next record with its line; `None` at the end of what is in the file now.
    next: Option<(Record, String)>,
    /// What was in this file. `cut` is not counted here, but from what is left in `line`.
    tally: Tally,
}

impl Player {
    /// Opens files; with `follow` they may be empty still.
    ///
    /// # Errors
    /// If one cannot be opened, or what it begins with is no line of events.
    pub fn open(paths: &[PathBuf], follow: bool) -> Result<Self, ReplayError> {
        let mut tapes = Vec::new();
        for path in paths {
            let mut tape = Tape::open(path).map_err(|cause| read(path, cause))?;
            tape.fill()?;
            if tape.next.is_none() && (tape.tally.skipped > 0 || !tape.line.is_empty()) && !follow {
                return Err(ReplayError::Foreign(path.clone()));
            }
            if tape.next.is_none() && !follow {
                return Err(ReplayError::Empty(path.clone()));
            }
            tapes.push(tape);
        }
        Ok(Self { tapes })
    }

    /// The writer of the file that was named first: the run is shown as this one sees it. A file that a simulation
    /// wrote has none; it begins with what it measured.
    pub fn first_writer(&self) -> Option<&Text> {
        let firsts = self.tapes.iter().filter_map(|tape| tape.next.as_ref());
        let mut of_nodes =
            firsts.filter(|(record, _)| !matches!(record.event, Event::Evaluated { .. }));
        of_nodes.next().map(|(record, _)| &record.peer)
    }

    /// Plays until the files end, or `stop` is dropped, and says what was read.
    ///
    /// The waits of the file are kept, divided by the speed and at most `GAP_MS` long each. Due
    /// times are added up from the first record, so the time that folding takes does not slow a
    /// replay down. Readers see a picture every `PUBLISH_EVERY`, and before each wait.
    ///
    /// # Errors
    /// If a file cannot be read any more.
    pub fn play(
        mut self,
        stage: &mut Stage,
        speed: Speed,
        stop: &Receiver<()>,
    ) -> Result<Tally, ReplayError> {
        let (mut before, mut due) = (None, Instant::now());
        let mut published = Instant::now();
        let ended = |wait: Duration| stop.recv_timeout(wait) != Err(RecvTimeoutError::Timeout);
        loop {
            match self.next()? {
                Some((record, line)) => {
                    let gap = record.t_ms.saturating_sub(before.unwrap_or(record.t_ms)).min(GAP_MS);
                    before = Some(record.t_ms);
                    if speed.times > 0.0 && !speed.follow {
                        due += Duration::from_secs_f64(gap as f64 / 1_000.0 / speed.times);
                    }
                    let wait = due.saturating_duration_since(Instant::now());
                    if wait > Duration::ZERO {
                        stage.publish();
                        published = Instant::now();
                        if ended(wait) {
                            return Ok(self.tally());
                        }
                    }
                    stage.take(&record, &line);
                }
                None if speed.follow => {
                    stage.publish();
                    if ended(FOLLOW_EVERY) {
                        return Ok(self.tally());
                    }
                }
                None => {
                    stage.note(Source { live: false, speed: speed.times, ended: true });
                    stage.publish();
                    return Ok(self.tally());
                }
            }
            if published.elapsed() >= PUBLISH_EVERY {
                stage.publish();
                published = Instant::now();
                if ended(Duration::ZERO) {
                    return Ok(self.tally());
                }
            }
        }
    }

    /// The line of the next event, in the order of time; `None` at the end of all files.
    ///
    /// # Errors
    /// If a file cannot be read any more.
    pub fn line(&mut self) -> Result<Option<String>, ReplayError> {
        Ok(self.next()?.map(|(_, line)| line))
    }

    /// The earliest record of all files that comes next. Of equal times the file that was named
    /// first comes first.
    fn next(&mut self) -> Result<Option<(Record, String)>, ReplayError> {
        for tape in &mut self.tapes {
            tape.fill()?;
        }
        let time = |tape: &Tape| tape.next.as_ref().map_or(u64::MAX, |(record, _)| record.t_ms);
        Ok(self.tapes.iter_mut().min_by_key(|tape| time(tape)).and_then(|tape| tape.next.take()))
    }

    /// What was in the files so far.
    pub fn tally(&self) -> Tally {
        let mut all = Tally::default();
        for tape in &self.tapes {
            all.events += tape.tally.events;
            all.skipped += tape.tally.skipped;
            all.cut += u64::from(!tape.line.is_empty());
        }
        all
    }
}

impl Tape {
    fn open(path: &Path) -> io::Result<Self> {
        let reader = BufReader::with_capacity(READ_BYTES, File::open(path)?);
        let (path, tally) = (path.to_owned(), Tally::default());
        let line = Vec::new();
        Ok(Self { path, reader, line, passing: false, read_bytes: 0, next: None, tally })
    }

    /// Reads on until there is a record, or the file has no more.
    fn fill(&mut self) -> Result<(), ReplayError> {
        while self.next.is_none() {
            if !self.read_line()? {
                return Ok(());
            }
            let line = std::mem::take(&mut self.line);
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            match Record::parse(&line) {
                Some(record) => {
                    self.tally.events += 1;
                    self.next =
                        Some((record, String::from_utf8_lossy(&line).trim_end().to_owned()));
                }
                None => self.tally.skipped += 1,
            }
        }
        Ok(())
    }

    /// Whether a whole line is there, in `self.line`. A part of one stays for the next call. The
    /// rest of a line that is too long is passed over without being kept.
    ///
    /// A file that begins with [`FOREIGN_LINES`] lines or [`FOREIGN_BYTES`] without an event is given up, so that a large
    /// file of another kind is not read through. It may have no line break at all.
    fn read_line(&mut self) -> Result<bool, ReplayError> {
        loop {
            let enough = self.tally.skipped >= FOREIGN_LINES || self.read_bytes >= FOREIGN_BYTES;
            if self.tally.events == 0 && enough {
                return Err(ReplayError::Foreign(self.path.clone()));
            }
            let block = self.reader.fill_buf().map_err(|cause| read(&self.path, cause))?;
            if block.is_empty() {
                return Ok(false);
            }
            let end = block.iter().position(|byte| *byte == b'\n');
            let part = &block[..end.map_or(block.len(), |at| at + 1)];
            let used = part.len();
            self.passing |= self.line.len() + used > LINE_BYTES;
            if !self.passing {
                self.line.extend_from_slice(part);
            }
            self.reader.consume(used);
            self.read_bytes += used as u64;
            if end.is_some() {
                if std::mem::take(&mut self.passing) {
                    self.line.clear();
                    self.tally.skipped += 1;
                    continue;
                }
                return Ok(true);
            }
        }
    }
}

/// The error of a file that cannot be read.
fn read(path: &Path, cause: io::Error) -> ReplayError {
    ReplayError::Read { path: path.to_owned(), cause }
}

/// The longest line: a commit of 256 members has about 20 kB.
pub const LINE_BYTES: usize = 256 << 10;
/// Lines without an event at the beginning of a file after which it is no events file.
const FOREIGN_LINES: u64 = 1_000;
/// Bytes without an event at the beginning of a file after which it is none either.
const FOREIGN_BYTES: u64 = 64 << 20;
/// How much of a file is read at a time; a longer line takes several reads.
const READ_BYTES: usize = 128 << 10;
/// The longest pause in a file that is played as it was: a night of silence is not replayed.
const GAP_MS: u64 = 10_000;
/// The time between two pictures that readers get while records follow without a wait.
const PUBLISH_EVERY: Duration = Duration::from_millis(250);
/// How often a growing file is looked at. Polling works on every file system, unlike notifications.
const FOLLOW_EVERY: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use std::{
        io::{Seek as _, SeekFrom, Write as _},
        sync::mpsc,
    };

    use super::*;

    const EVENT: &str = r#"{"event":"started","version":"1","device":"cpu","micro_batch":8,"parameters":9,"t_ms":1,"peer":"me","run":"r"}"#;
    const AT_ONCE: Speed = Speed { times: 0.0, follow: false };

    fn play(text: &str) -> Result<(Tally, crate::stage::Seen), ReplayError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().write_all(text.as_bytes()).unwrap();
        let (mut stage, seen) = Stage::new(Source::default());
        let (_keep, stop) = mpsc::channel();
        let player = Player::open(&[file.path().to_owned()], false)?;
        Ok((player.play(&mut stage, AT_ONCE, &stop)?, seen))
    }

    #[test]
    fn cut_foreign_and_long_lines_are_skipped_and_counted() {
        let long = format!(r#"{{"event":"disk","error":"{}"}}"#, "x".repeat(LINE_BYTES));
        let (tally, seen) =
            play(&format!("{EVENT}\n\nnoise\n{long}\n{EVENT}\n{}", &EVENT[..40])).unwrap();
        assert_eq!(tally, Tally { events: 2, skipped: 2, cut: 1 });
        assert!(seen.picture.borrow().source.ended);
        assert_eq!(seen.picture.borrow().now_ms, 1);
    }

    #[test]
    fn an_empty_or_foreign_file_is_said_to_be_one() {
        assert!(matches!(play(""), Err(ReplayError::Empty(_))));
        assert!(matches!(play("\n\n"), Err(ReplayError::Empty(_))));
        assert!(matches!(play("a b"), Err(ReplayError::Foreign(_))));
        assert!(matches!(play(&"a b\n".repeat(5_000)), Err(ReplayError::Foreign(_))));
        let missing = Player::open(&[PathBuf::from("/nowhere/at/all")], false);
        assert!(matches!(missing, Err(ReplayError::Read { .. })));
    }

    #[test]
    fn a_huge_file_without_line_breaks_is_given_up() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(10 << 30).unwrap();
        let mut tape = Tape::open(file.path()).unwrap();
        assert!(matches!(tape.fill(), Err(ReplayError::Foreign(_))));
        assert!(tape.read_bytes < FOREIGN_BYTES + LINE_BYTES as u64, "{}", tape.read_bytes);
        assert!(tape.line.capacity() <= 2 * LINE_BYTES, "{}", tape.line.capacity());
    }

    /// As a file system leaves a file behind when the power fails.
    #[test]
    fn a_huge_line_between_events_is_passed_over() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "{EVENT}").unwrap();
        file.as_file().set_len(2 * FOREIGN_BYTES).unwrap();
        file.as_file().seek(SeekFrom::End(0)).unwrap();
        writeln!(file, "\n{EVENT}").unwrap();
        let mut tape = Tape::open(file.path()).unwrap();
        for _ in 0..2 {
            tape.fill().unwrap();
            assert_eq!(tape.next.take().unwrap().1, EVENT);
        }
        assert_eq!(tape.tally, Tally { events: 2, skipped: 1, cut: 0 });
    }

    #[test]
    fn a_growing_file_is_followed_to_the_end_of_its_lines() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut player = Player::open(&[file.path().to_owned()], true).unwrap();
        assert!(player.next().unwrap().is_none());
        write!(file, "{}", &EVENT[..30]).unwrap();
        assert!(player.next().unwrap().is_none());
        writeln!(file, "{}", &EVENT[30..]).unwrap();
        assert_eq!(player.next().unwrap().unwrap().1, EVENT);
        assert!(player.next().unwrap().is_none());
        assert_eq!(player.tally(), Tally { events: 1, skipped: 0, cut: 0 });
    }

    #[test]
    fn files_are_played_in_the_order_of_time() {
        let file = |times: &[u64]| {
            let file = tempfile::NamedTempFile::new().unwrap();
            for t in times {
                writeln!(
                    file.as_file(),
                    "{}",
                    EVENT.replace("\"t_ms\":1", &format!("\"t_ms\":{t}"))
                )
                .unwrap();
            }
            file
        };
        let files = [file(&[1, 5, 6]), file(&[2, 3, 9])];
        let paths = files.each_ref().map(|file| file.path().to_owned());
        let mut player = Player::open(&paths, false).unwrap();
        let mut times = Vec::new();
        while let Some((record, _)) = player.next().unwrap() {
            times.push(record.t_ms);
        }
        assert_eq!(times, [1, 2, 3, 5, 6, 9]);
    }
}
