//! The node: where protocol, model and network meet.
//!
//! | task | owner of | inbox | stops |
//! |---|---|---|---|
//! | driver (tokio) | protocol state, files, events | network events, worker answers, signals | head ≥ `--epochs`, Ctrl-C, a failure |
//! | net (tokio) | swarm, streams | commands of the driver, bounded | when the driver drops its handle |
//! | worker (thread) | device, model, optimiser | commands of the driver, bounded | abandoned at exit: it may be inside a long step |
//!
//! No state is shared: each task owns its own and learns of the others' through bounded channels.
//! `events` is a sink that changes no behaviour. `sim` starts other processes of this program and
//! reads their events. Printing happens here and nowhere else.
//!
//! A command goes one way: [`main`] parses the line, `dispatch` hands it to its module, and the
//! module writes to the `out` that it is given and returns an error of its own. Only `carry_out`
//! turns an error into text and an exit code. No module ends the process but `cli::typed`, where
//! `clap` does for `--help` and for a line that it cannot read.

mod access;
mod checkpoint;
mod cli;
mod config;
mod doctor;
mod driver;
mod enter;
mod evaluation;
mod fetch;
mod figures;
mod identity;
mod manifest;
mod name;
mod net;
mod os;
mod page;
mod preset;
mod readers;
mod ring;
mod sim;
mod socket;
mod store;
mod tell;
mod tools;
mod tui;
mod wake;
mod worker;

use std::{
    env,
    ffi::OsStr,
    io::{self, IsTerminal as _, Write as _},
    panic::{self, AssertUnwindSafe},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::Parser as _;

use cli::{BootstrapArgs, Cli, Verb, typed};
use config::LocalError;
use doctor::DoctorError;
use enter::EnterError;
use identity::IdentityError;
use os::PathError;
use page::{Page, PageError};
use sim::SimError;
use tools::{
    access::AccessError,
    bench::{self, BenchError},
    bootstrap::{self, BootstrapError},
    data::{self, DataCommandError},
    evaluate::{self, EvaluateError, TasksError},
    export::{self, ExportError},
    manifest::OfflineError,
    merge::MergeCommandError,
    receipts::ReceiptsError,
    replay::ReplayError,
    report::ReportError,
    serve::ServeError,
    spectrum::SpectrumCommandError,
    status::StatusError,
    stored::{self, StoredError},
    tui::TuiError,
    watch::WatchError,
};

/// Runs `intellect-node` with the arguments of this process: 0 done, 1 failed, 2 usage, 3 a node
/// that was asked waits, 4 its key runs elsewhere. A process that was started by the name `intellect-bootstrap`, through a link, is
/// that program.
pub fn main() -> ExitCode {
    if is_bootstrap(env::args_os().next().as_deref()) {
        return bootstrap_main();
    }
    carry_out(|| dispatch(typed::parse(), &mut io::stdout()))
}

/// Runs `intellect-bootstrap` with the arguments of this process; the exit codes are the same.
pub fn bootstrap_main() -> ExitCode {
    carry_out(|| {
        let args = BootstrapArgs::parse();
        log_to_stderr(Some(&env::var("RUST_LOG").unwrap_or_else(|_| BOOTSTRAP_LOG.to_owned())));
        bootstrap::run(&args, &mut io::stdout())?;
        Ok(0)
    })
}

/// What an entry point warns of concerns its owner, such as a file of notices that it may not read.
/// It is the filter where `RUST_LOG` is not set; a node has `--log` instead.
const BOOTSTRAP_LOG: &str = "error,intellect_bootstrap=warn";

/// The output of a command whose effect is worth more than a reader of its lines: it goes on where
/// nobody reads. Only a broken pipe is ignored. A full disk, or any other error of the output, ends
/// the command as elsewhere.
///
/// `manifest`, `invite` and `vouch` have it: `manifest new … | head -1` must not stop between the
/// weights and the manifest that names them. Other commands end with their reader, for their output
/// is all that they are for.
struct Unread<'a>(&'a mut dyn io::Write);

impl io::Write for Unread<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.write(bytes) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(bytes.len()),
            written => written,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.0.flush() {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            flushed => flushed,
        }
    }
}

/// Whether this is the name of the entry point, whatever folder comes before it. A system without a
/// name for the process starts a node.
fn is_bootstrap(started_as: Option<&OsStr>) -> bool {
    started_as.is_some_and(|name| Path::new(name).file_name() == Some(OsStr::new(cli::BOOTSTRAP)))
}

/// Runs a command, and prints its error if there is one. Returns the exit code. What a panic says
/// has been printed when it comes here.
///
/// The order matters at the end: lines that were drawn over one another are taken away after a
/// panic, then everything that was said is written, and the error comes last. A terminal that was
/// stopped (Ctrl-S) takes none of it, and must not keep the process. So each wait for it is
/// bounded, the last one by [`LAST_PATIENCE`].
fn carry_out(command: impl FnOnce() -> Result<u8, Error>) -> ExitCode {
    tell::fault::report_panics();
    os::raise_open_files_limit();
    let done = panic::catch_unwind(AssertUnwindSafe(command));
    if done.is_err() {
        tell::screen::live(Vec::new());
    }
    let is_read = tell::screen::flush();
    match done {
        Err(_) => ExitCode::FAILURE,
        Ok(Ok(code)) => ExitCode::from(code),
        Ok(Err(error)) if error.is_broken_pipe() => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            let text = format!("error: {}\n", error.explain());
            // Standard error may be closed too; then nobody can read it.
            let print = move || drop(io::stderr().write_all(text.as_bytes()));
            if is_read {
                print();
            } else {
                tell::screen::within(LAST_PATIENCE, print);
            }
            ExitCode::from(error.exit_code())
        }
    }
}

/// Passes each command to the module that carries it out. Returns the exit code. That is 0 unless
/// `status` or `doctor` says otherwise; every other code belongs to an error ([`Error::exit_code`]).
fn dispatch(cli: Cli, out: &mut dyn io::Write) -> Result<u8, Error> {
    let mut code = 0;
    match cli.command.unwrap_or_else(|| Verb::Run(Box::new(cli.run))) {
        Verb::Run(args) => run(*args)?,
        Verb::Sim(args) => sim::run(&args, out)?,
        Verb::Keygen(args) => tools::manifest::keygen(&args.out, out)?,
        Verb::Manifest(command) => tools::manifest::run(command, &mut Unread(out))?,
        Verb::Invite(command) => tools::access::run(&command, &mut Unread(out))?,
        Verb::Vouch(args) => tools::access::vouch::vouch(&args, &mut Unread(out))?,
        Verb::Data(command) => data::run(&command, out)?,
        Verb::Eval(args) => evaluate::run(&args, out)?,
        Verb::Sample(args) => stored::sample(&args, out)?,
        Verb::Serve(args) => tools::serve::run(&args, out)?,
        Verb::Export(args) => export::export(&args, out)?,
        Verb::Merge(args) => tools::merge::run(&args, out)?,
        Verb::Spectrum(command) => tools::spectrum::run(&command, out)?,
        Verb::Receipts(command) => tools::receipts::run(&command, out)?,
        Verb::Replay(args) => tools::replay::run(&args, out)?,
        Verb::Watch(args) => tools::watch::run(&args)?,
        Verb::Status(args) => code = tools::status::run(&args, out)?,
        Verb::Tui(args) => tools::tui::run(&args)?,
        Verb::Report(args) => tools::report::run(&args, out)?,
        Verb::Doctor(args) => code = doctor::run(&args, out)?,
        Verb::Bench(cli::BenchCommand::Codec { json }) => bench::codec::run(json, out)?,
        Verb::Bench(cli::BenchCommand::Train { family, json }) => {
            bench::train::run(family, json, out)?;
        }
        Verb::Bench(cli::BenchCommand::Device(args)) => bench::device::run(&args, out)?,
        Verb::Bench(cli::BenchCommand::Tokenizer { tokenizer, data, json }) => {
            bench::tokenizer::run(tokenizer.as_deref(), data.as_deref(), json, out)?;
        }
        Verb::Bench(cli::BenchCommand::View { members, json }) => {
            bench::view::run(members.into(), json, out)?;
        }
        Verb::Bootstrap(args) => {
            os::die_with_parent();
            bootstrap::run(&args, out)?;
        }
        Verb::Generate { folder } => tools::generate::run(&folder, out).map_err(Error::Generate)?,
    }
    out.flush()?;
    Ok(code)
}

/// Opens what a node needs before it uses the network, then runs it. What can be refused without a
/// change comes first: options, the file of events, the address of the page. Only then the data
/// folder is made and locked, and the identity is read or made in it. The folder stays locked until
/// this returns.
///
/// A node that was led back to an epoch that it had left starts again: its tasks have ended by
/// then, and this process runs the same program with the same arguments but its invite (`os::start_again`). That
/// returns only if it fails.
fn run(args: cli::RunArgs) -> Result<(), Error> {
    let local = config::Local::new(args)?;
    log_to_stderr(local.log.as_deref());
    if local.origin() == identity::Origin::Simulated {
        os::die_with_parent();
    }
    // The file of events comes first: a wrong name must leave nothing behind.
    let events = local.events.as_ref().map(|path| {
        let refused = |source| Error::Events { path: path.clone(), source };
        tell::events::append_to(path).map_err(refused)
    });
    let events = events.transpose()?;
    let page = Page::open(&local.page)?;
    let home = identity::Home::open(&local.data_dir, local.origin())?;
    match enter::run(&local, &home, events, page)? {
        enter::Next::Nothing => Ok(()),
        enter::Next::StartAgain => {
            tell::screen::flush();
            Err(Error::StartAgain(os::start_again(local.run.as_ref().map(|run| &*run.0))))
        }
    }
}

/// Sends log lines to standard error, so that standard output stays readable. Warnings of libraries
/// are left out unless the user asks for them: what matters of them is reported in sentences of our
/// own.
fn log_to_stderr(asked: Option<&str>) {
    // Kademlia warns while no peer is known yet, which a sentence reports already.
    let asked = asked.map(|directives| format!("libp2p_kad=error,{directives}"));
    // A stranger could have gossipsub log an error as often as it likes.
    let usual = "error,libp2p_gossipsub=off,intellect_node=warn,intellect_bootstrap=warn";
    let filter = asked.unwrap_or_else(|| usual.into());
    let filter = tracing_subscriber::EnvFilter::new(filter);
    // A second call, as in a test, changes nothing.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(io::stderr().is_terminal() && !has_no_color())
        .with_writer(|| tell::screen::StandardError)
        // Otherwise a closed terminal would make it panic.
        .log_internal_errors(false)
        .try_init();
}

/// Whether the user wants no colours (`NO_COLOR`). By its convention any value counts, except an
/// empty one.
fn has_no_color() -> bool {
    env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

/// Why a command did not succeed. There is one variant for each module. Most are transparent: the
/// text is the module's own sentence, which names cause and remedy. What lies beneath is printed by
/// [`Error::explain`].
#[derive(Debug, thiserror::Error)]
enum Error {
    /// The command line makes no sense; nothing has been started.
    #[error(transparent)]
    Usage(#[from] LocalError),
    /// The key of this node cannot be made or read.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// `keygen` or `manifest` failed.
    #[error(transparent)]
    Offline(#[from] OfflineError),
    /// `invite` or `vouch` failed: no notice took effect.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// `eval` failed: the weights are unchanged.
    #[error(transparent)]
    Evaluate(#[from] EvaluateError),
    /// `sample` failed: the state is unchanged.
    #[error(transparent)]
    Stored(#[from] StoredError),
    /// `serve` could not start, or its model failed.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// `export` failed: the state is unchanged, and the folder may hold a part of the model.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// `merge` failed: there is no new model.
    #[error(transparent)]
    Merge(#[from] MergeCommandError),
    /// `spectrum` failed: there is no list.
    #[error(transparent)]
    Spectrum(#[from] SpectrumCommandError),
    /// `data` failed: there is no new token file, or the one that was named cannot be shown.
    #[error(transparent)]
    Data(#[from] DataCommandError),
    /// `receipts` proved nothing, or wrote no file.
    #[error(transparent)]
    Receipts(#[from] ReceiptsError),
    /// `replay` has nothing to show, or no place for its page.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// `watch` found no run, may not see it, or has no place to show it.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// There is no node, or none that answers.
    #[error(transparent)]
    Status(#[from] StatusError),
    /// There is no node to show, or no terminal to show it on.
    #[error(transparent)]
    Tui(#[from] TuiError),
    /// The node's page has no place.
    #[error(transparent)]
    Page(#[from] PageError),
    /// A file of completions or a page of the manual cannot be written.
    #[error(transparent)]
    Generate(PathError),
    /// `report` has nothing to show, or different runs.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// The bootstrap cannot start, or cannot go on.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// `doctor` found something that keeps a node out of a run, or could not examine anything.
    #[error(transparent)]
    Doctor(#[from] DoctorError),
    /// `bench` measured nothing, or found that a device computes wrongly.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// The simulation failed, or could not start.
    #[error(transparent)]
    Sim(#[from] SimError),
    /// This node cannot take part in the run, or no longer can.
    #[error(transparent)]
    Enter(#[from] EnterError),
    /// The node has to start again, and cannot by itself.
    #[error("the node cannot start itself again: start it by hand")]
    StartAgain(#[source] io::Error),
    /// The events file cannot be opened.
    #[error("cannot write events to {}: name another file with --events", path.display())]
    Events { path: PathBuf, source: io::Error },
    /// Standard output is closed, or its disk is full.
    #[error("cannot write to standard output")]
    Output(#[from] io::Error),
}

impl Error {
    /// 1 for a failure, 2 for wrong usage, 4 for a node whose key runs elsewhere, 130 for a
    /// simulation that Ctrl-C ended.
    ///
    /// Wrong usage is what a person corrects on the same line: nothing of the command has taken
    /// effect. A path that cannot be read is a failure, since the line may be right.
    fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_)
            | Self::Bootstrap(BootstrapError::Usage(_))
            | Self::Offline(
                OfflineError::Usage(_)
                | OfflineError::AnotherModel
                | OfflineError::NoRate
                | OfflineError::NoData
                | OfflineError::NoModel { .. }
                | OfflineError::NoFounders
                | OfflineError::Vocabulary { .. }
                | OfflineError::WeightsName { .. }
                | OfflineError::Draft(_),
            )
            | Self::Access(AccessError::Usage(_) | AccessError::Label { .. })
            | Self::Stored(StoredError::Usage(_) | StoredError::Prompt(_))
            | Self::Evaluate(
                EvaluateError::Usage(_)
                | EvaluateError::Stored(StoredError::Usage(_))
                | EvaluateError::NothingToMeasure
                | EvaluateError::Context { .. }
                | EvaluateError::Tasks(TasksError::Exists(_)),
            )
            | Self::Export(ExportError::Find(StoredError::Usage(_)))
            | Self::Receipts(
                ReceiptsError::Usage(_) | ReceiptsError::Stored(StoredError::Usage(_)),
            )
            | Self::Watch(WatchError::Usage(_))
            | Self::Doctor(DoctorError::Usage(_))
            | Self::Bench(BenchError::Usage(_))
            | Self::Sim(
                SimError::Usage(_)
                | SimError::Draft(_)
                | SimError::Chaos(_)
                | SimError::Genesis
                | SimError::TooFew { .. }
                | SimError::Seeds { .. }
                | SimError::Unseen { .. }
                | SimError::Faults { .. },
            ) => 2,
            Self::Sim(SimError::Interrupted { .. }) => INTERRUPTED,
            Self::Serve(error) => error.exit_code(),
            Self::Enter(error) => error.exit_code(),
            _ => 1,
        }
    }

    /// Whether the reader of our output has closed it, as in `… | head`. The first error of the
    /// system in the chain of causes decides. It is no failure of the command then, and nothing is
    /// printed.
    fn is_broken_pipe(&self) -> bool {
        let mut cause: Option<&dyn std::error::Error> = Some(self);
        while let Some(error) = cause {
            if let Some(error) = error.downcast_ref::<io::Error>() {
                return error.kind() == io::ErrorKind::BrokenPipe;
            }
            cause = error.source();
        }
        false
    }

    /// The error and its causes, each on a line of its own. A cause that a line above quotes
    /// already is left out.
    fn explain(&self) -> String {
        figures::explain(self, "\n  because: ")
    }
}

/// So long the last error waits for a terminal that has not taken what came before.
const LAST_PATIENCE: Duration = Duration::from_secs(1);

/// What a shell expects of a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

#[cfg(test)]
mod tests {
    use intellect_model::data::documents::ReadError;

    use super::*;

    #[test]
    fn the_name_of_the_process_says_which_program_it_is() {
        let is = |name: &str| is_bootstrap(Some(OsStr::new(name)));
        assert!(is("intellect-bootstrap") && is("/usr/bin/intellect-bootstrap"));
        assert!(!is("intellect-node") && !is("/intellect-bootstrap/intellect-node") && !is(""));
        assert!(!is_bootstrap(None));
    }

    /// `manifest new … | true` has made the manifest.
    #[test]
    fn a_reader_that_goes_away_stops_no_effect() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let (key, out) = (path("key"), path("run.toml"));
        let type_in = |words: &[&str], to: &mut dyn io::Write| {
            dispatch(Cli::try_parse_from([&["x"], words].concat()).unwrap(), to)
        };
        type_in(&["keygen", "--out", &key], &mut Vec::new()).unwrap();
        let ended = type_in(&["manifest", "new", "--out", &out, "--key", &key], &mut Closed);
        // Its very last line fails, as that of each command.
        assert!(ended.is_err_and(|error| matches!(error, Error::Output(_))));
        assert!(Path::new(&out).is_file());
    }

    /// A pipe whose reader has gone.
    struct Closed;

    impl io::Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    }

    #[test]
    fn a_cause_is_named_once() {
        let cause = || io::Error::other("the disk is full");
        let plain = Error::Output(cause());
        assert_eq!(plain.explain(), "cannot write to standard output\n  because: the disk is full");
        let path = PathBuf::from("a.txt");
        let inline = ReadError::Unreadable { path, cause: cause() };
        let inline = Error::Sim(SimError::Data(inline.into()));
        assert_eq!(inline.explain(), "cannot read a.txt: the disk is full");
    }
}
