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

mod bench;
mod checkpoint;
mod cli;
mod config;
mod driver;
mod error;
mod events;
mod gauge;
mod identity;
mod manifest;
mod name;
mod net;
mod offline;
mod os;
mod preset;
mod ring;
mod rings;
mod sim;
mod store;
mod transfer;
mod worker;

use std::{
    io::{self, IsTerminal as _, Write as _},
    process::ExitCode,
};

use clap::Parser as _;

use cli::{Cli, Command};
use error::Error;

/// Runs the program with the arguments of this process: 0 done, 1 failed, 2 usage.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    match dispatch(cli, &mut io::stdout()) {
        Ok(code) => code,
        Err(error) if error.is_broken_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody is left to tell if standard error is closed too.
            let _ = writeln!(io::stderr(), "error: {}", error.explain());
            ExitCode::from(error.exit_code())
        }
    }
}

/// Hands each command to the module that does it.
fn dispatch(cli: Cli, out: &mut dyn io::Write) -> Result<ExitCode, Error> {
    match cli.command.unwrap_or_else(|| Command::Run(Box::new(cli.run))) {
        Command::Run(args) => run(*args)?,
        Command::Sim(args) => sim::run(&args, out)?,
        Command::Keygen(args) => offline::keygen(&args.out, out)?,
        Command::Manifest(command) => offline::manifest(command, out)?,
        Command::Data(command) => offline::data::run(&command, out)?,
        Command::Eval(args) => offline::stored::eval(&args, out)?,
        Command::Sample(args) => offline::stored::sample(&args, out)?,
        Command::Export(args) => offline::export::export(&args, out)?,
        Command::Bench(cli::BenchCommand::Codec { json }) => bench::codec::run(json, out)?,
        Command::Bench(cli::BenchCommand::Train { family, json }) => {
            bench::train::run(family, json, out)?;
        }
        Command::Bench(cli::BenchCommand::Tokenizer { tokenizer, data, json }) => {
            bench::tokenizer::run(tokenizer.as_deref(), &data, json, out)?;
        }
        Command::Bootstrap(args) => return Ok(bootstrap(args)),
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// The entry point of a simulation.
fn bootstrap(args: cli::BootstrapArgs) -> ExitCode {
    os::die_with_parent();
    intellect_bootstrap::cli::run(args.server)
}

/// Prepares what a node needs before it speaks to anybody, then runs it.
fn run(args: cli::RunArgs) -> Result<(), Error> {
    let local = config::Local::new(args)?;
    log_to_stderr(&local.log);
    if local.origin == identity::Origin::Simulated {
        os::die_with_parent();
    }
    // Before anything is made, so that a wrong name leaves nothing behind.
    let events = match &local.events {
        Some(path) => Some(events::append_to(path).map_err(|source| {
            let path = path.clone();
            Error::Events { path, source }
        })?),
        None => None,
    };
    let home = identity::Home::open(&local.data_dir, local.origin)?;
    driver::run(&local, &home, events)
}

/// Sends what is logged to standard error, so that standard output stays readable.
fn log_to_stderr(directives: &str) {
    let filter = tracing_subscriber::EnvFilter::new(directives);
    // A second call, in a test, changes nothing.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(io::stderr().is_terminal())
        .with_writer(io::stderr)
        .try_init();
}
