//! What a story does to a running program, and reads of it.

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

    /// Waits until it ends by itself.
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
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        Ok(kill_process(pid.context("a process id")?, signal)?)
    }

    /// Lets none of its files grow beyond `bytes` from now on, as on a full disk; `None` frees it.
    ///
    /// # Errors
    /// The process has ended.
    pub fn limit_files(&self, bytes: Option<u64>) -> Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let limit = Rlimit { current: bytes, maximum: None };
        prlimit(Some(pid.context("a process id")?), Resource::Fsize, limit)?;
        Ok(())
    }

    /// CPU seconds that it has used so far, including threads that have ended.
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

    /// Kills the process, as kill -9 does.
    ///
    /// # Errors
    /// The process has ended.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// The events that it has written.
    ///
    /// # Errors
    /// A line is not JSON.
    pub fn events(&self) -> Result<Vec<Value>> {
        let path = self.folder.join("events.jsonl");
        if path.exists() { read_events(&path) } else { Ok(Vec::new()) }
    }

    /// Waits for an event for which `accepts` is true.
    ///
    /// # Errors
    /// None comes within `patience`, or the process ends before.
    pub fn wait_for(
        &mut self,
        patience: Duration,
        accepts: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let start = Instant::now();
        loop {
            let ended = self.exit()?.is_some();
            if let Some(event) = self.events()?.into_iter().find(&accepts) {
                return Ok(event);
            }
            if ended || start.elapsed() > patience {
                bail!("the event does not come; it said: {}", self.said());
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
        let start = Instant::now();
        loop {
            let ended = self.exit()?.is_some();
            let said = self.said();
            if said.contains(words) {
                return Ok(());
            }
            if ended || start.elapsed() > patience {
                bail!("{words:?} is missing in what it said: {said}");
            }
            std::thread::sleep(POLL);
        }
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
