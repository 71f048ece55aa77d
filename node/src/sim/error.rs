//! Why a simulation did not succeed.

use std::{io, path::PathBuf};

use intellect_model::data::DataError;

use crate::{
    config::LocalError,
    evaluation::EvaluationError,
    identity::IdentityError,
    manifest::{DraftError, LoadError},
    os::PathError,
    page::PageError,
};

use super::{chaos::ChaosError, scenario::ScenarioError};

/// Why a simulation did not succeed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SimError {
    /// The command line makes no sense.
    #[error(transparent)]
    Usage(#[from] LocalError),
    /// The manifest needs more peers than the simulation has.
    #[error(
        "the manifest needs {needed} peers to begin (members.min_peers): \
         start as many with --peers {needed}"
    )]
    TooFew { needed: u64 },
    /// The manifest names published weights and no file was given, or the other way round.
    #[error(
        "a manifest of `manifest new --from-hf` and the weights beside it belong together: name them \
         with --manifest and --genesis"
    )]
    Genesis,
    /// The folder of `--out` has files already; old results are not mixed with new ones.
    #[error("--out {} is not empty: choose another folder, or empty this one", folder.display())]
    NotEmpty {
        /// The folder, as it was typed.
        folder: PathBuf,
    },
    /// The scenario file makes no sense.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// The argument of `--chaos` makes no sense.
    #[error(transparent)]
    Chaos(#[from] ChaosError),
    /// This machine cannot make the bad links that the scenario needs.
    #[error(
        "cannot make links bad: to emulate them needs Linux, root and /dev/net/tun; \
         try --links shaped"
    )]
    Links(#[source] io::Error),
    /// The simulation's page has no place.
    #[error(transparent)]
    Page(#[from] PageError),
    /// Page or screen cannot be shown.
    #[error("cannot show the simulation: try it without --page and --tui")]
    Show(#[source] io::Error),
    #[error(transparent)]
    Manifest(#[from] LoadError),
    /// The built-in manifest does not take these settings.
    #[error(transparent)]
    Draft(#[from] DraftError),
    /// The run's data cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The states of the run cannot be measured.
    #[error(transparent)]
    Evaluation(#[from] EvaluationError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The bootstrap ended or printed no address in time.
    #[error("the bootstrap did not start; its log is {}", log.display())]
    Bootstrap {
        /// Path of its log, which says why.
        log: PathBuf,
        source: io::Error,
    },
    /// A file or folder of the simulation cannot be used.
    #[error(transparent)]
    Folder(#[from] PathError),
    /// The argument of `--seeds` is no range.
    #[error("--seeds {text}: write A..B, as in --seeds 0..64; B is not among them")]
    Seeds { text: String },
    /// The argument of `--faults` is no class of faults.
    #[error(
        "--faults {text}: choose clean, lossy, churn, blackhole, partition, mixed, nat, evening, liars, half or invited"
    )]
    Faults { text: String },
    /// A page or a screen was asked for where no node trains.
    #[error(
        "{option} shows real nodes while they train, and --virtual has none: leave out one of the two; with --virtual \
         --details prints all that is counted"
    )]
    Unseen { option: &'static str },
    /// Some virtual runs broke an invariant, or a class of faults did not show all that it should.
    #[error("{failed} of the classes failed; the lines above name the seeds")]
    Swarm { failed: usize },
    /// The simulation ran to its end and was judged a failure.
    #[error(
        "the simulation failed: {}\n  its files are in {}",
        reasons.join("; "), folder.display()
    )]
    Failed {
        /// Why it failed, the gravest reason first.
        reasons: Vec<String>,
        /// The folder with events, logs and checkpoints.
        folder: PathBuf,
    },
    /// Ctrl-C, SIGTERM, or a terminal that was closed.
    #[error(
        "interrupted after epoch {epoch}; {}",
        folder.as_ref().map_or_else(
            || "its files are removed".to_owned(),
            |folder| format!("its files are in {}", folder.display())
        )
    )]
    Interrupted {
        /// The last epoch that was committed.
        epoch: u64,
        /// The folder of its files, if they are kept.
        folder: Option<PathBuf>,
    },
    /// The system refused to handle signals.
    #[error("cannot start")]
    Signals(#[source] io::Error),
    /// Standard output is closed, or its disk is full.
    #[error("cannot write to standard output")]
    Output(#[from] io::Error),
}
