//! What a story does to a running program, and reads of it.
//!
//! Nothing here changes how a program works inside: it gets signals and limits of the system, and
//! is read by its files and by `/proc`. Whatever a story does a person or an operating system can
//! do.

use std::{
    fs,
    process::ExitStatus,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use serde_json::Value;

use super::{Done, POLL, Process, read_events};

/// What one thread of a process has done.
#[derive(Clone, Debug)]
pub struct Thread {
    /// Its number; that of the first thread is the process id.
    pub id: u64,
    /// Its name; threads of a pool have the name of the thread that made the pool.
    pub name: String,
    /// Its priority: 0 by default, 19 is the lowest.
    pub nice: i64,
    /// CPU seconds that it has used so far.
    pub cpu: f64,
}

impl Thread {
    /// Reads a line of `/proc/…/stat`.
    fn read(stat: &str) -> Result<Self> {
        // The name may contain blanks. After it come the state and, as 12th, 13th and 17th
        // field, utime, stime and nice.
        let (start, rest) = stat.rsplit_once(')').context("a name")?;
        let (id, name) = start.split_once(" (").context("a number and a name")?;
        let rest: Vec<&str> = rest.split_whitespace().collect();
        let field = |at: usize| rest.get(at).copied().context("a longer line");
        let ticks = field(11)?.parse::<f64>()? + field(12)?.parse::<f64>()?;
        // Linux counts hundredths of a second on every machine.
        let cpu = ticks / 100.0;
        Ok(Self { id: id.parse()?, name: name.to_owned(), nice: field(16)?.parse()?, cpu })
    }
}

impl Process {
    /// How it has ended; `None` while it runs.
    ///
    /// # Errors
    /// The system does not say.
    pub fn exit(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Waits until it ends by itself. Its output is that of all starts of this name.
    ///
    /// # Errors
    /// It does not end within `patience`, and has been killed.
    pub fn wait(mut self, patience: Duration) -> Result<Done> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.exit()? {
                let (out, err) = (fs::read_to_string(&self.out)?, fs::read_to_string(&self.err)?);
                return Ok(Done { code: status.code(), out, err });
            }
            if start.elapsed() > patience {
                bail!("it does not end within {patience:?}; it said: {}", self.said());
            }
            std::thread::sleep(POLL);
        }
    }

    /// Interrupts it, as Ctrl-C does.
    ///
    /// # Errors
    /// The process has ended.
    pub fn interrupt(&self) -> Result<()> {
        self.signal(Signal::INT)
    }

    /// Sends it a hang-up, as when its terminal is closed.
    ///
    /// # Errors
    /// The process has ended.
    pub fn hang_up(&self) -> Result<()> {
        self.signal(Signal::HUP)
    }

    /// Sends the process this signal.
    ///
    /// # Errors
    /// The process has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    /// Lets none of its files grow beyond `bytes` from now on, as on a full disk; `None` frees it.
    ///
    /// # Errors
    /// The process has ended.
    pub fn limit_files(&self, bytes: Option<u64>) -> Result<()> {
        let limit = Rlimit { current: bytes, maximum: None };
        prlimit(Some(Pid::from_child(&self.child)), Resource::Fsize, limit)?;
        Ok(())
    }

    /// CPU seconds that it has used so far, including threads that have ended, in hundredths.
    /// Children do not count.
    ///
    /// # Errors
    /// It has ended, or the system has no `/proc`.
    pub fn cpu_seconds(&self) -> Result<f64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        Ok(Thread::read(&stat)?.cpu)
    }

    /// Its threads, as `/proc` lists them.
    ///
    /// # Errors
    /// It has ended, or the system has no `/proc`.
    pub fn threads(&self) -> Result<Vec<Thread>> {
        let threads = fs::read_dir(format!("/proc/{}/task", self.child.id()))?;
        // A thread may have ended meanwhile.
        let stats =
            threads.filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("stat")).ok());
        stats.map(|stat| Thread::read(&stat)).collect()
    }

    /// Kills the process, as kill -9 does, and waits until the system has released what it had: a
    /// start that follows finds the port and the lock free.
    ///
    /// # Errors
    /// The process has ended.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// The events that it has written, of all starts of this name; none before the first. A line
    /// that is half written is left out.
    ///
    /// # Errors
    /// A line is not JSON.
    pub fn events(&self) -> Result<Vec<Value>> {
        let path = self.folder.join("events.jsonl");
        if path.exists() { read_events(&path) } else { Ok(Vec::new()) }
    }

    /// Waits for an event for which `accepts` is true, and returns the first one. One that came
    /// before the call, or in an earlier start, counts too.
    ///
    /// # Errors
    /// None comes within `patience`, or the process ends before.
    pub fn wait_for(
        &mut self,
        patience: Duration,
        accepts: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        self.until(patience, "the event does not come; it said", |this| {
            Ok(this.events()?.into_iter().find(&accepts))
        })
    }

    /// Looks every [`POLL`] until `look` finds what is awaited; `complaint` is the beginning of the
    /// error's text. It looks once more after the process has ended, because what it wrote last may
    /// be what is awaited.
    ///
    /// # Errors
    /// Nothing is found within `patience`, or the process ends before.
    pub(super) fn until<T>(
        &mut self,
        patience: Duration,
        complaint: &str,
        look: impl Fn(&Self) -> Result<Option<T>>,
    ) -> Result<T> {
        let start = Instant::now();
        loop {
            let ended = self.exit()?.is_some();
            if let Some(found) = look(self)? {
                return Ok(found);
            }
            if ended || start.elapsed() > patience {
                bail!("{complaint}: {}", self.said());
            }
            std::thread::sleep(POLL);
        }
    }

    /// The name of this peer, for which it waits while the node starts.
    ///
    /// # Errors
    /// As [`Process::wait_for`].
    pub fn peer(&mut self, patience: Duration) -> Result<String> {
        let first = self.wait_for(patience, |event| event["peer"].is_string())?;
        Ok(first["peer"].as_str().unwrap_or_default().to_owned())
    }

    /// Waits until it has printed `words`.
    ///
    /// # Errors
    /// It does not within `patience`, or ends before.
    pub fn wait_until_it_said(&mut self, words: &str, patience: Duration) -> Result<()> {
        let complaint = format!("{words:?} is missing in what it said");
        self.until(patience, &complaint, |this| Ok(this.said().contains(words).then_some(())))
    }

    /// Waits until it has committed `epoch`.
    ///
    /// # Errors
    /// The same as [`Self::wait_for`] has.
    pub fn wait_for_commit(&mut self, epoch: u64, patience: Duration) -> Result<Value> {
        self.wait_for(patience, |event| event["event"] == "committed" && event["epoch"] == epoch)
    }

    /// Everything that it has printed, including earlier starts.
    #[must_use]
    pub fn said(&self) -> String {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        read(&self.out) + &read(&self.err)
    }
}
