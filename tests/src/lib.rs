//! Harness of the stories over several processes: it starts real programs, reads
//! what they write, and ends them.
//!
//! Every wait has a deadline, and every process is killed when its handle is dropped. Stories run
//! beside each other, since they mostly wait; only one simulation runs at a time. What a node does
//! is read from its `--events` file as plain JSON, so that a renamed key is noticed; log text is
//! shown only when a story fails.
//!
//! A story owns a temporary folder, and each of its processes a folder in that by name: its output,
//! its events, and for a node its data. A process that is started again under a name goes on in the
//! same files, as a program in its owner's folder does. The folder goes with the story, so a
//! failure carries in its text what it needs.
//!
//! The campaigns in `tests/examples` use the same harness with programs that were built before.
//! What takes minutes is there; what a test may wait for is in `tests/tests/e2e`.

pub mod process;

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

/// The folder in a story's folder that its programs use as the system's temporary one. So what they
/// leave behind goes with the story.
const TEMPORARY: &str = "temporary";

/// How often a file or process is polled. It bounds how much later than an event a story goes on.
const POLL: Duration = Duration::from_millis(20);

/// How long a command without a network may take. Far more than any needs on a calm machine, since
/// other stories may have all the cores.
const COMMAND_PATIENCE: Duration = Duration::from_secs(300);

/// Held while a simulation runs: its nodes compute all the time, and what strikes them is planned
/// by time. Beside a second one a node may get no processor for seconds.
static SIMULATION: Mutex<()> = Mutex::new(());

/// One story, in a folder of its own.
#[derive(Debug)]
pub struct Story {
    /// What it starts, by their paths.
    programs: Programs,
    /// Deleted with everything in it when the story is dropped.
    folder: tempfile::TempDir,
}

/// The paths of the programs, as `env!("CARGO_BIN_EXE_…")` gives them in a test.
#[derive(Clone, Copy, Debug)]
pub struct Programs {
    /// The path of `intellect-node`.
    pub node: &'static str,
    /// Path of `intellect-bootstrap`.
    pub bootstrap: &'static str,
}

impl Programs {
    /// The programs that `cargo build --release` left in the folder above the running example's.
    ///
    /// # Errors
    /// They are not built.
    pub fn built() -> Result<Self> {
        let example = std::env::current_exe()?;
        let folder = example.ancestors().nth(2).context("an example lies two folders deep")?;
        let find = |name: &str| -> Result<&'static str> {
            let path = folder.join(name);
            if !path.exists() {
                bail!("no {}: run cargo build --release first", path.display());
            }
            // An example makes one of these and ends, so the leak is bounded.
            Ok(Box::leak(path.to_string_lossy().into_owned().into_boxed_str()))
        };
        Ok(Self { node: find("intellect-node")?, bootstrap: find("intellect-bootstrap")? })
    }
}

/// The result of a command that ended by itself.
#[derive(Clone, Debug)]
pub struct Done {
    /// Its exit code; `None` after a signal.
    pub code: Option<i32>,
    /// Everything that it wrote to standard output.
    pub out: String,
    /// Everything that it wrote to standard error.
    pub err: String,
}

impl Story {
    /// Begins a story in a new temporary folder.
    ///
    /// # Errors
    /// The system gives no folder.
    pub fn begin(programs: Programs) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        fs::create_dir(folder.path().join(TEMPORARY))?;
        Ok(Self { programs, folder })
    }

    /// A path in the story's folder.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The same path as text, for a command line.
    #[must_use]
    pub fn text(&self, name: &str) -> String {
        self.path(name).to_string_lossy().into_owned()
    }

    /// Runs `intellect-node` to its end. Its exit code is for the caller to judge
    /// ([`Done::expect_success`]).
    ///
    /// # Errors
    /// It does not end within five minutes.
    pub fn node(&self, arguments: &[&str]) -> Result<Done> {
        self.node_within(arguments, COMMAND_PATIENCE)
    }

    /// Runs `intellect-node` to its end.
    ///
    /// # Errors
    /// It does not end within `patience`.
    pub fn node_within(&self, arguments: &[&str], patience: Duration) -> Result<Done> {
        self.start("command", self.programs.node, arguments)?.wait(patience)
    }

    /// Starts `intellect-node` with a command that lasts; `name` is the folder for its output.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start_command(&self, name: &str, arguments: &[&str]) -> Result<Process> {
        self.start(name, self.programs.node, arguments)
    }

    /// The same under another command, such as `ip netns exec …`.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start_command_under(
        &self,
        name: &str,
        command: &[&str],
        arguments: &[&str],
    ) -> Result<Process> {
        let line = [command, &[self.programs.node], arguments].concat();
        self.start(name, line[0], &line[1..])
    }

    /// Starts `intellect-node run` as the node `name`, with a data folder and an events file in the
    /// story's folder, on a port of this machine that the system chooses.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start_node(&self, name: &str, entry: &str, arguments: &[&str]) -> Result<Process> {
        self.resume_node(name, &[&["--bootstrap", entry][..], arguments].concat())
    }

    /// The same without an entry point: it has to find the others by what its data folder knows.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn resume_node(&self, name: &str, arguments: &[&str]) -> Result<Process> {
        self.start_run(name, &[], &["--listen", "/ip4/127.0.0.1/tcp/0"], arguments)
    }

    /// Starts the node `name` with the line that it printed last, and nothing else.
    ///
    /// # Errors
    /// There is no such line, or it cannot be started.
    pub fn go_on(&self, name: &str, left: &Done) -> Result<Process> {
        let last = left.out.lines().last().unwrap_or_default();
        let line =
            last.split('`').nth(1).with_context(|| format!("no line to type in {last:?}"))?;
        let mut words: Vec<&str> = line.split(' ').skip(1).collect();
        let events = self.text(&format!("{name}/events.jsonl"));
        words.extend(["--events", &events]);
        self.start(name, self.programs.node, &words)
    }

    /// Starts `intellect-node run` as the node `name` under another command, such as `ip netns exec
    /// …`. It listens at its default addresses.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start_node_under(
        &self,
        name: &str,
        command: &[&str],
        arguments: &[&str],
    ) -> Result<Process> {
        self.start_run(name, command, &[], arguments)
    }

    /// Starts `intellect-node run` with the data folder and the events file of `name`, and one
    /// thread to compute, so that the nodes of a story share the machine. `command` precedes the
    /// program, and `listen` is empty for its default addresses.
    fn start_run(
        &self,
        name: &str,
        command: &[&str],
        listen: &[&str],
        arguments: &[&str],
    ) -> Result<Process> {
        let (data, events) =
            (self.text(&format!("{name}/data")), self.text(&format!("{name}/events.jsonl")));
        let fixed = ["--data-dir", &data, "--events", &events, "--threads", "1"];
        let line = [command, &[self.programs.node], listen, &fixed, arguments].concat();
        self.start(name, line[0], &line[1..])
    }

    /// Makes a key and a manifest: a small model on synthetic data, changed by `settings`.
    ///
    /// # Errors
    /// A setting is wrong.
    pub fn manifest(&self, name: &str, settings: &[&str]) -> Result<PathBuf> {
        let (key, out) = (self.text(&format!("{name}.key")), self.text(name));
        self.node(&["keygen", "--out", &key])?.expect_success()?;
        let mut arguments = vec!["manifest", "new", "--out", &out, "--key", &key];
        for setting in SMALL.iter().chain(settings) {
            arguments.extend(["--set", setting]);
        }
        self.node(&arguments)?.expect_success()?;
        Ok(self.path(name))
    }

    /// Runs `intellect-bootstrap` to its end, for what it refuses: by itself it never ends.
    ///
    /// # Errors
    /// It does not end within five minutes.
    pub fn bootstrap(&self, arguments: &[&str]) -> Result<Done> {
        self.start("command", self.programs.bootstrap, arguments)?.wait(COMMAND_PATIENCE)
    }

    /// Starts `intellect-bootstrap`, and waits until it prints its entry address.
    ///
    /// # Errors
    /// It prints no address within half a minute.
    pub fn start_bootstrap(&self, manifests: &[PathBuf]) -> Result<(Process, String)> {
        self.start_bootstrap_under(&[], manifests)
    }

    /// The same under another command, such as `nohup intellect-bootstrap …`.
    ///
    /// # Errors
    /// It prints no address within half a minute.
    pub fn start_bootstrap_under(
        &self,
        command: &[&str],
        manifests: &[PathBuf],
    ) -> Result<(Process, String)> {
        self.start_bootstrap_at("bootstrap", command, &["/ip4/127.0.0.1/tcp/0"], manifests)
    }

    /// The same as `name`, at other addresses, say in a network namespace with
    /// the command `ip netns exec …`.
    ///
    /// # Errors
    /// It prints no address within half a minute.
    pub fn start_bootstrap_at(
        &self,
        name: &str,
        command: &[&str],
        listen: &[&str],
        manifests: &[PathBuf],
    ) -> Result<(Process, String)> {
        let data = self.text(&format!("{name}/data"));
        let manifests: Vec<_> = manifests.iter().map(|path| path.to_string_lossy()).collect();
        let mut line = [command, &[self.programs.bootstrap, "--data-dir", &data]].concat();
        for address in listen {
            line.extend(["--listen", address]);
        }
        for manifest in &manifests {
            line.extend(["--manifest", manifest]);
        }
        let mut process = self.start(name, line[0], &line[1..])?;
        let complaint = "the bootstrap does not start";
        let entry = process.until(Duration::from_secs(30), complaint, |process| {
            let out = fs::read_to_string(&process.out)?;
            let whole = out.rfind('\n').map_or("", |end| &out[..end]);
            let behind = whole.split_once(" --bootstrap ").map(|(_, behind)| behind);
            let entry = behind.and_then(|behind| behind.split([' ', '\n']).next());
            Ok(entry.map(str::to_owned))
        })?;
        Ok((process, entry))
    }

    /// Runs `intellect-node sim --out` once no other story simulates, and reads its report. `out`
    /// names its folder.
    ///
    /// # Errors
    /// It does not end within `patience`, or leaves no report.
    pub fn sim(self, out: &str, arguments: &[&str], patience: Duration) -> Result<Sim> {
        let _alone = SIMULATION.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = self.path(out);
        let text = self.text(out);
        let mut all = vec!["sim", "--out", &text];
        all.extend(arguments);
        let done = self.node_within(&all, patience)?;
        let report = fs::read_to_string(folder.join("report.json"))
            .with_context(|| format!("no report; it said: {}{}", done.out, done.err))?;
        Ok(Sim { report: serde_json::from_str(&report)?, done, folder, _story: self })
    }

    /// Starts a program in the story's folder, with its output in the folder `name`. Its data of
    /// the user, its temporary files and its working folder all lie within the story, and it reads
    /// no input. Output is appended, so that a second start hides nothing of the first; only
    /// `command` begins anew, because its output is read after each one.
    fn start(&self, name: &str, program: &str, arguments: &[&str]) -> Result<Process> {
        let folder = self.path(name);
        fs::create_dir_all(&folder)?;
        let (out, err) = (folder.join("out.txt"), folder.join("err.txt"));
        let append = |path: &Path| File::options().create(true).append(true).open(path);
        // Each command has an output of its own.
        if name == "command" {
            fs::write(&out, "")?;
            fs::write(&err, "")?;
        }
        let child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(append(&out)?)
            .stderr(append(&err)?)
            .current_dir(self.folder.path())
            .env("XDG_DATA_HOME", self.path("home"))
            .env("TMPDIR", self.path(TEMPORARY))
            .spawn()
            .with_context(|| format!("cannot start {program}"))?;
        Ok(Process { child, folder, out, err })
    }
}

/// A model so small that an epoch takes a moment, and that still learns from the first epoch on.
/// Each is a key of the manifest and its value, for `manifest new --set` and `sim --set`; a later
/// setting of the same key wins.
pub const SMALL: [&str; 9] = [
    "model.layers=1",
    "model.width=16",
    "model.heads=2",
    "model.kv_heads=1",
    "model.ffn=32",
    "model.context=16",
    "train.batch=4",
    "train.warmup_tokens=0",
    "epoch.amount=10",
];

impl Done {
    /// Returns itself if it ended with exit code 0.
    ///
    /// # Errors
    /// It did not; the error has all its output.
    pub fn expect_success(self) -> Result<Self> {
        if self.code != Some(0) {
            bail!("exit {:?}: {}{}", self.code, self.out, self.err);
        }
        Ok(self)
    }

    /// Returns itself if it ended with `code` and an error text that contains all `words`. 1 is a
    /// failure and 2 a wrong command line.
    ///
    /// # Errors
    /// It did not; the error has all its output.
    pub fn expect_failure(self, code: i32, words: &[&str]) -> Result<Self> {
        let missing: Vec<_> = words.iter().filter(|word| !self.err.contains(**word)).collect();
        if self.code != Some(code) || !missing.is_empty() {
            bail!("exit {:?}, {missing:?} is missing in: {}{}", self.code, self.out, self.err);
        }
        Ok(self)
    }
}

/// A finished simulation and its files.
#[derive(Debug)]
pub struct Sim {
    /// The exit code and output of the program.
    pub done: Done,
    /// The content of `report.json`.
    pub report: Value,
    folder: PathBuf,
    /// The files can be read while this lives.
    _story: Story,
}

impl Sim {
    /// All events of one peer, in order.
    ///
    /// # Errors
    /// There is no such file, or it has a line that is not JSON.
    pub fn events(&self, peer: usize) -> Result<Vec<Value>> {
        read_events(&self.folder.join(format!("peer-{peer}/events.jsonl")))
    }

    /// The measurements of the simulation itself, `sim.jsonl`.
    ///
    /// # Errors
    /// There is no such file, or it has a line that is not JSON.
    pub fn journal(&self) -> Result<Vec<Value>> {
        read_events(&self.folder.join("sim.jsonl"))
    }

    /// The state of each committed epoch, by epoch, if `peers` agree on every epoch that any of
    /// them has. An epoch that no one of them has committed is left out, and only the events of
    /// commits count: a peer that loaded a later state has none for those before.
    ///
    /// # Errors
    /// Two of them committed one epoch with different states.
    pub fn states(&self, peers: &[usize]) -> Result<Vec<(u64, String)>> {
        let mut states: Vec<(u64, String)> = Vec::new();
        for peer in peers {
            for event in self.events(*peer)?.iter().filter(|event| event["event"] == "committed") {
                let epoch = event["epoch"].as_u64().context("an epoch")?;
                let state = event["state"].as_str().context("a state")?.to_owned();
                match states.iter().find(|(known, _)| *known == epoch) {
                    Some((_, known)) if *known != state => {
                        bail!("epoch {epoch}: peer {peer} has {state}, another one {known}")
                    }
                    Some(_) => {}
                    None => states.push((epoch, state)),
                }
            }
        }
        states.sort();
        Ok(states)
    }
}

/// A running program; it is killed when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// Where its output and its events are, in the folder of the story.
    folder: PathBuf,
    /// The file of its standard output, with that of earlier starts of this name.
    out: PathBuf,
    /// The file of its standard error, likewise.
    err: PathBuf,
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails only for a process that has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The number under this key of an event.
///
/// # Errors
/// The event has no such key, or another type of value there.
pub fn number(event: &Value, key: &str) -> Result<u64> {
    event[key].as_u64().with_context(|| format!("no {key} in {event}"))
}

/// The complete lines of an events file; one that is being written is left for the next call.
fn read_events(path: &Path) -> Result<Vec<Value>> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let lines = whole.lines().filter(|line| !line.is_empty());
    lines.map(|line| Ok(serde_json::from_str(line)?)).collect()
}
