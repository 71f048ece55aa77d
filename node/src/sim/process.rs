//! One real process of a simulation, and the files that it writes.
//!
//! A process is killed when its handle is dropped, so no way out of a simulation leaves one behind.
//! If the simulation itself is killed, the system kills its processes. What a node does is read
//! from its events file, never from its log. The bootstrap has no events, so its address is read
//! from what it prints.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{
    os::{self, unless_missing},
    tell::events::Record,
};

/// A process that runs, or has ended.
#[derive(Debug)]
pub(super) struct Process(Child);

/// How a process has ended, for the judgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    /// By itself, with this exit code.
    Code(i32),
    /// By a signal, or it cannot be known.
    Signal,
}

impl Process {
    /// Starts this program with `arguments`; its output is appended to `log`.
    pub(super) fn start(arguments: &[String], log: &Path) -> io::Result<Self> {
        let log = File::options().create(true).append(true).open(log)?;
        let child = Command::new(os::itself()?)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        Ok(Self(child))
    }

    /// Kills it as `kill -9` does, and waits until it is gone. A stopped process dies too.
    pub(super) fn kill(&mut self) {
        // Both calls fail only if the process is gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    /// Sends a signal, unless the process has ended.
    pub(super) fn signal(&mut self, signal: Signal) {
        if self.exit().is_none() {
            let pid = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw);
            if let Some(pid) = pid {
                // It has not been waited for, so its number cannot belong to another process.
                let _ = kill_process(pid, signal);
            }
        }
    }

    /// How it has ended; `None` while it runs or is stopped. It does not wait.
    pub(super) fn exit(&mut self) -> Option<Exit> {
        let ended = |status: ExitStatus| status.code().map_or(Exit::Signal, Exit::Code);
        self.0.try_wait().map_or(Some(Exit::Signal), |status| status.map(ended))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Waits until the file at `path` has a whole line that `find` accepts, and returns what it found
/// there.
///
/// # Errors
/// The process that writes it has ended, or `patience` is over; the error has what was printed so
/// far.
pub(super) fn wait_for_line<T>(
    path: &Path,
    process: &mut Process,
    patience: Duration,
    find: impl Fn(&str) -> Option<T>,
) -> io::Result<T> {
    let start = Instant::now();
    loop {
        let text = fs::read_to_string(path)?;
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        if let Some(found) = whole.lines().find_map(&find) {
            return Ok(found);
        }
        if process.exit().is_some() || start.elapsed() > patience {
            return Err(io::Error::other(format!("it printed only: {}", text.trim())));
        }
        std::thread::sleep(POLL);
    }
}

/// Follows an events file while a process appends to it.
#[derive(Debug)]
pub(super) struct Tail {
    /// The path of the file, which the process may not have made yet.
    path: PathBuf,
    /// The open file, read up to its end so far.
    file: Option<File>,
    /// The beginning of a line that is not whole yet.
    torn: Vec<u8>,
}

impl Tail {
    /// Follows the file at `path`, which need not exist yet.
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, file: None, torn: Vec::new() }
    }

    /// The events that were completed since the last call. A line that is not whole yet waits for
    /// its rest.
    ///
    /// # Errors
    /// The file cannot be read, or has a line that is no event.
    pub(super) fn read(&mut self) -> io::Result<Vec<Record>> {
        if self.file.is_none() {
            self.file = unless_missing(File::open(&self.path))?;
        }
        let Some(file) = &mut self.file else { return Ok(Vec::new()) };
        file.read_to_end(&mut self.torn)?;
        let Some(end) = self.torn.iter().rposition(|byte| *byte == b'\n') else {
            return Ok(Vec::new());
        };
        let rest = self.torn.split_off(end + 1);
        let whole = std::mem::replace(&mut self.torn, rest);
        let lines = whole.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_slice(line).map_err(io::Error::from)).collect()
    }
}

/// How often a simulation polls its processes.
pub(super) const POLL: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use std::{fs, io::Write as _};

    use intellect_protocol::base::id::PeerId;

    use super::*;
    use crate::tell::events::{Event, Sink};

    #[test]
    fn a_tail_sees_each_event_once_and_only_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        let mut tail = Tail::new(path.clone());
        assert!(tail.read().unwrap().is_empty());
        let mut sink = Sink::open(Some(&path), PeerId([1; 32]).into()).unwrap();
        sink.emit(None, Event::Leaving).unwrap();
        sink.emit(Some(3), Event::LeftOut { carried_tokens: 1 }).unwrap();
        assert_eq!(tail.read().unwrap().len(), 2);
        assert!(tail.read().unwrap().is_empty());

        let text = fs::read_to_string(&path).unwrap();
        let line = text.lines().next().unwrap();
        let (left, right) = line.split_at(20);
        let mut file = File::options().append(true).open(&path).unwrap();
        file.write_all(left.as_bytes()).unwrap();
        assert!(tail.read().unwrap().is_empty());
        writeln!(file, "{right}").unwrap();
        assert_eq!(tail.read().unwrap()[0].event, Event::Leaving);
        writeln!(file, "no event").unwrap();
        assert!(tail.read().is_err());
    }
}
