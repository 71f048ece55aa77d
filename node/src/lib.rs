//! The node: where protocol, model and network meet.
//!
//! | task | owner of | inbox | stops |
//! |---|---|---|---|
//! | driver (tokio) | protocol state, files, events | network events, worker answers, signals | head ≥ `--epochs`, Ctrl-C, a failure |
//! | net (tokio) | swarm, streams | commands of the driver, bounded | when the driver drops its handle |
//! | worker (thread) | device, model, optimiser | commands of the driver, bounded | abandoned at exit: it may be inside a long step |
//!
//! No state is shared: each task owns its own and hears of the others by bounded channels. `events`
//! is a sink that changes no behaviour. `sim` starts other processes of this very program and reads
//! their events. Printing happens here and nowhere else.

mod access;
mod checkpoint;
mod cli;
mod config;
mod driver;
mod enter;
mod fetch;
mod figures;
mod gauge;
mod identity;
mod manifest;
mod name;
mod net;
mod os;
mod preset;
mod ring;
mod sim;
mod store;
mod tell;
mod tools;
mod wake;
mod worker;

use std::{
    env,
    io::{self, IsTerminal as _, Write as _},
    path::PathBuf,
    process::ExitCode,
};

use clap::Parser as _;

use cli::{BootstrapArgs, Cli, Verb};
use config::LocalError;
use enter::EnterError;
use identity::IdentityError;
use sim::SimError;
use tools::{
    admit::{self, AdmitError},
    bench::{self, BenchError},
    bootstrap::{self, BootstrapError},
    data::{self, DataCommandError},
    export::{self, ExportError},
    manifest::OfflineError,
    stored::{self, StoredError},
};

/// Runs `intellect-node` with the arguments of this process: 0 done, 1 failed, 2 usage.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    ended(dispatch(cli, &mut io::stdout()))
}

/// Runs `intellect-bootstrap` likewise.
pub fn bootstrap_main() -> ExitCode {
    let args = BootstrapArgs::parse();
    log_to_stderr(Some(&env::var("RUST_LOG").unwrap_or_else(|_| "error".to_owned())));
    ended(bootstrap::run(&args, &mut io::stdout()).map_err(Error::from))
}

/// Tells what went wrong, if something did.
fn ended(done: Result<(), Error>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is_broken_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody is left to tell if standard error is closed too.
            let _ = writeln!(io::stderr(), "error: {}", error.explain());
            ExitCode::from(error.exit_code())
        }
    }
}

/// Hands each command to the module that does it.
fn dispatch(cli: Cli, out: &mut dyn io::Write) -> Result<(), Error> {
    match cli.command.unwrap_or_else(|| Verb::Run(Box::new(cli.run))) {
        Verb::Run(args) => run(*args)?,
        Verb::Sim(args) => sim::run(&args, out)?,
        Verb::Keygen(args) => tools::manifest::keygen(&args.out, out)?,
        Verb::Manifest(command) => tools::manifest::run(command, out)?,
        Verb::Invite(command) => admit::run(&command, out)?,
        Verb::Vouch(args) => admit::vouch::vouch(&args, out)?,
        Verb::Data(command) => data::run(&command, out)?,
        Verb::Eval(args) => stored::eval(&args, out)?,
        Verb::Sample(args) => stored::sample(&args, out)?,
        Verb::Export(args) => export::export(&args, out)?,
        Verb::Bench(cli::BenchCommand::Codec { json }) => bench::codec::run(json, out)?,
        Verb::Bench(cli::BenchCommand::Train { family, json }) => {
            bench::train::run(family, json, out)?;
        }
        Verb::Bench(cli::BenchCommand::Device(args)) => bench::device::run(&args, out)?,
        Verb::Bench(cli::BenchCommand::Tokenizer { tokenizer, data, json }) => {
            bench::tokenizer::run(tokenizer.as_deref(), data.as_deref(), json, out)?;
        }
        Verb::Bootstrap(args) => {
            os::die_with_parent();
            bootstrap::run(&args, out)?;
        }
    }
    Ok(out.flush()?)
}

/// Prepares what a node needs before it speaks to anybody, then runs it.
fn run(args: cli::RunArgs) -> Result<(), Error> {
    let local = config::Local::new(args)?;
    log_to_stderr(local.log.as_deref());
    if local.origin() == identity::Origin::Simulated {
        os::die_with_parent();
    }
    // Before anything is made, so that a wrong name leaves nothing behind.
    let events = match &local.events {
        Some(path) => Some(tell::events::append_to(path).map_err(|source| {
            let path = path.clone();
            Error::Events { path, source }
        })?),
        None => None,
    };
    let home = identity::Home::open(&local.data_dir, local.origin())?;
    Ok(enter::run(&local, &home, events)?)
}

/// Sends what is logged to standard error, so that standard output stays readable. What libraries warn of is told
/// in sentences of our own, or helps nobody who did not ask for it.
fn log_to_stderr(asked: Option<&str>) {
    // That nobody is known yet is told in a sentence; it is no warning.
    let asked = asked.map(|directives| format!("libp2p_kad=error,{directives}"));
    let filter =
        asked.unwrap_or_else(|| "error,intellect_node=warn,intellect_bootstrap=warn".into());
    let filter = tracing_subscriber::EnvFilter::new(filter);
    // A second call, in a test, changes nothing.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(io::stderr().is_terminal())
        .with_writer(io::stderr)
        // Its own complaint about a closed terminal would be a panic.
        .log_internal_errors(false)
        .try_init();
}

/// Why a command did not succeed.
#[derive(Debug, thiserror::Error)]
enum Error {
    /// Something on the command line cannot be meant. Nothing has been started.
    #[error(transparent)]
    Usage(#[from] LocalError),
    /// The key of this node.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// A command that needs no network.
    #[error(transparent)]
    Offline(#[from] OfflineError),
    /// A command on who may take part.
    #[error(transparent)]
    Admit(#[from] AdmitError),
    /// A command on a stored state.
    #[error(transparent)]
    Stored(#[from] StoredError),
    /// A model for other programs.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// A command on files of documents or tokens.
    #[error(transparent)]
    Data(#[from] DataCommandError),
    /// The public entry point of runs.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// A benchmark.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// A simulation.
    #[error(transparent)]
    Sim(#[from] SimError),
    /// This node cannot take part in the run, or no longer can.
    #[error(transparent)]
    Enter(#[from] EnterError),
    /// The events file.
    #[error("cannot write events to {}: name another file with --events", path.display())]
    Events {
        /// As typed.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Standard output is gone or full.
    #[error("cannot write to standard output")]
    Output(#[from] io::Error),
}

impl Error {
    /// 1 failed, 2 wrong usage, 130 interrupted where that is no success.
    fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_)
            | Self::Bootstrap(BootstrapError::Usage(_))
            | Self::Offline(
                OfflineError::Usage(_)
                | OfflineError::AnotherModel
                | OfflineError::NoRate
                | OfflineError::NoData
                | OfflineError::Vocabulary { .. }
                | OfflineError::WeightsName { .. }
                | OfflineError::Draft(_),
            )
            | Self::Admit(AdmitError::Usage(_) | AdmitError::Label { .. })
            | Self::Stored(StoredError::Usage(_) | StoredError::Prompt(_))
            | Self::Export(ExportError::Find(StoredError::Usage(_)))
            | Self::Bench(BenchError::Usage(_))
            | Self::Sim(
                SimError::Usage(_)
                | SimError::Draft(_)
                | SimError::Chaos(_)
                | SimError::Genesis
                | SimError::TooFew { .. }
                | SimError::Seeds { .. }
                | SimError::Faults { .. },
            ) => 2,
            Self::Sim(SimError::Interrupted { .. }) => INTERRUPTED,
            Self::Identity(_)
            | Self::Offline(_)
            | Self::Admit(_)
            | Self::Stored(_)
            | Self::Export(_)
            | Self::Data(_)
            | Self::Bootstrap(_)
            | Self::Bench(_)
            | Self::Sim(_)
            | Self::Enter(_)
            | Self::Events { .. }
            | Self::Output(_) => 1,
        }
    }

    /// Whether whoever read our output has seen enough, as in `… | head`.
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

    /// The error and what lies behind it, each on a line of its own.
    fn explain(&self) -> String {
        figures::explain(self, "\n  because: ")
    }
}

/// What a shell expects of a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

#[cfg(test)]
mod tests {
    use intellect_model::data::documents::ReadError;

    use super::*;

    #[test]
    fn a_reason_is_told_once() {
        let cause = || io::Error::other("the disk is full");
        let plain = Error::Output(cause());
        assert_eq!(plain.explain(), "cannot write to standard output\n  because: the disk is full");
        let path = PathBuf::from("a.txt");
        let inline = ReadError::Unreadable { path, cause: cause() };
        let inline = Error::Sim(SimError::Data(inline.into()));
        assert_eq!(inline.explain(), "cannot read a.txt: the disk is full");
    }
}
