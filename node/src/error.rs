//! What ends the program: one variant per stage, each with its source, and the exit code.

use std::{io, path::PathBuf};

use crate::{
    bench::BenchError,
    config::LocalError,
    driver::EnterError,
    identity::IdentityError,
    net::{self, NetError},
    offline::{OfflineError, data::DataCommandError, export::ExportError, stored::StoredError},
    sim::SimError,
    store::StoreError,
};

/// Why a command did not succeed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Something on the command line cannot be meant. Nothing has been started.
    #[error(transparent)]
    Usage(#[from] LocalError),
    /// The key of this node.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// A command that needs no network.
    #[error(transparent)]
    Offline(#[from] OfflineError),
    /// A command on a stored state.
    #[error(transparent)]
    Stored(#[from] StoredError),
    /// A model for other programs.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// A command on files of documents or tokens.
    #[error(transparent)]
    Data(#[from] DataCommandError),
    /// A benchmark.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// A simulation.
    #[error(transparent)]
    Sim(#[from] SimError),
    /// The network cannot be started.
    #[error(transparent)]
    Net(#[from] NetError),
    /// No manifest is to be had.
    #[error(transparent)]
    Offers(#[from] net::EnterError),
    /// This node cannot take part in the run.
    #[error(transparent)]
    Enter(#[from] EnterError),
    /// A file of the run.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The network ended by itself.
    #[error("the network has stopped: start the node again, it will catch up")]
    Network,
    /// Nothing more can be computed.
    #[error("training cannot go on: {0}")]
    Worker(String),
    /// A decided update was not kept, and nobody else has it any more.
    #[error(
        "the update of epoch {epoch} was lost, and nobody serves it: start the node again, it \
         fetches the state"
    )]
    UpdateLost {
        /// The epoch.
        epoch: u64,
    },
    /// The events file.
    #[error("cannot write events to {}: name another file with --events", path.display())]
    Events {
        /// As typed.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The system refused threads or signals.
    #[error("cannot start")]
    Runtime(#[source] io::Error),
    /// Standard output is gone or full.
    #[error("cannot write to standard output")]
    Output(#[from] io::Error),
}

impl Error {
    /// 1 failed, 2 wrong usage.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_)
            | Self::Offline(
                OfflineError::Usage(_)
                | OfflineError::Preset { .. }
                | OfflineError::AnotherModel
                | OfflineError::WeightsName { .. }
                | OfflineError::Draft(_),
            )
            | Self::Stored(StoredError::Usage(_) | StoredError::Prompt(_))
            | Self::Export(ExportError::Find(StoredError::Usage(_)))
            | Self::Sim(
                SimError::Usage(_)
                | SimError::Draft(_)
                | SimError::Chaos(_)
                | SimError::Genesis
                | SimError::TooFew { .. }
                | SimError::Seeds { .. }
                | SimError::Faults { .. },
            ) => 2,
            Self::Identity(_)
            | Self::Offline(_)
            | Self::Stored(_)
            | Self::Export(_)
            | Self::Data(_)
            | Self::Bench(_)
            | Self::Sim(_)
            | Self::Net(_)
            | Self::Offers(_)
            | Self::Enter(_)
            | Self::Store(_)
            | Self::Network
            | Self::Worker(_)
            | Self::UpdateLost { .. }
            | Self::Events { .. }
            | Self::Runtime(_)
            | Self::Output(_) => 1,
        }
    }

    /// Whether whoever read our output has seen enough, as in `… | head`.
    pub(crate) fn is_broken_pipe(&self) -> bool {
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
    pub(crate) fn explain(&self) -> String {
        let mut text = self.to_string();
        let mut source = std::error::Error::source(self);
        while let Some(cause) = source {
            text.push_str("\n  because: ");
            text.push_str(&cause.to_string());
            source = cause.source();
        }
        text
    }
}
