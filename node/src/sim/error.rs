//! Why a simulation did not succeed.

use std::{io, path::PathBuf};

use intellect_model::data::DataError;

use crate::{
    config::LocalError,
    gauge::GaugeError,
    identity::IdentityError,
    manifest::{DraftError, LoadError},
    os::PathError,
};

use super::{scenario::ScenarioError, storm::ForecastError};

/// Why a simulation did not succeed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SimError {
    /// Something on the command line cannot be meant.
    #[error(transparent)]
    Usage(#[from] LocalError),
    /// The manifest waits for more peers than there will be.
    #[error(
        "the manifest wants {needed} peers before it begins (members.min_peers): \
         start as many with --peers {needed}"
    )]
    TooFew {
        /// `members.min_peers`.
        needed: u64,
    },
    /// The one without the other.
    #[error(
        "a manifest of `manifest new --from-hf` and the weights beside it go together: name them \
         with --manifest and --genesis"
    )]
    Genesis,
    /// Old results are not mixed with new ones.
    #[error("--out {} is not empty: choose another folder, or empty this one", folder.display())]
    NotEmpty {
        /// The folder.
        folder: PathBuf,
    },
    /// The scenario file.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// The rules of the storm.
    #[error(transparent)]
    Chaos(#[from] ForecastError),
    /// The links cannot be what the scenario wants.
    #[error(
        "cannot make links bad: to emulate them needs Linux, root and /dev/net/tun; \
         try --links shaped"
    )]
    Links(#[source] io::Error),
    /// The manifest cannot be read.
    #[error(transparent)]
    Manifest(#[from] LoadError),
    /// The manifest cannot be made.
    #[error(transparent)]
    Draft(#[from] DraftError),
    /// The text cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// Nothing can be measured.
    #[error(transparent)]
    Gauge(#[from] GaugeError),
    /// A simulated key cannot be written.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The bootstrap does not start.
    #[error("the bootstrap did not start; its log is {}", log.display())]
    Bootstrap {
        /// Where it says why.
        log: PathBuf,
        /// What it printed.
        source: io::Error,
    },
    /// A file or folder of the simulation cannot be used.
    #[error(transparent)]
    Folder(#[from] PathError),
    /// No range of seeds.
    #[error("--seeds {text}: write A..B, as in --seeds 0..64; B is not among them")]
    Seeds {
        /// The range as it was typed.
        text: String,
    },
    /// No class of faults.
    #[error(
        "--faults {text}: choose clean, lossy, churn, blackhole, partition, mixed, nat, evening, liars or half"
    )]
    Faults {
        /// The class as it was typed.
        text: String,
    },
    /// Some virtual runs broke an invariant, or a class did not show what it should.
    #[error("{failed} of the classes failed; the lines above name the seeds")]
    Swarm {
        /// Classes.
        failed: usize,
    },
    /// The simulation ran, and was not as it should be.
    #[error(
        "the simulation failed: {}\n  everything that was written is in {}",
        reasons.join("; "), folder.display()
    )]
    Failed {
        /// Why, the gravest first.
        reasons: Vec<String>,
        /// Where to look.
        folder: PathBuf,
    },
    /// Ctrl-C, a polite `kill`, or a terminal that was closed.
    #[error(
        "interrupted after epoch {epoch}; {}",
        folder.as_ref().map_or_else(
            || "its files are removed".to_owned(),
            |folder| format!("what was written until then is in {}", folder.display())
        )
    )]
    Interrupted {
        /// The last epoch that was committed.
        epoch: u64,
        /// Where its files are, if they are kept.
        folder: Option<PathBuf>,
    },
    /// The system takes no handler of signals.
    #[error("cannot start")]
    Signals(#[source] io::Error),
    /// Standard output is gone or full.
    #[error("cannot write to standard output")]
    Output(#[from] io::Error),
}
