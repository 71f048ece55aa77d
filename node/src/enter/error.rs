//! Why a node cannot take part in its run: each with the number that is missing, or what to do.

use std::io;

use intellect_model::data::DataError;
use intellect_model::tokenizer::OpenError;
use intellect_model::{Device, DeviceError};
use intellect_protocol::access::admit::Denied;

use crate::driver::DriverError;
use crate::fetch::WebError;
use crate::figures;
use crate::manifest::{LoadError, ReadError};
use crate::net::{self, NetError};
use crate::store::StoreError;
use crate::store::genesis::PublishedError;

/// Why this node cannot take part in the run, or no longer can.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EnterError {
    /// What was handed out is no manifest that this program can use.
    #[error("the manifest from {from} cannot be used: {why}; tell the organiser of the run")]
    Manifest {
        /// Who handed it out.
        from: String,
        /// What is wrong.
        why: Box<ReadError>,
    },
    /// The manifest of this folder was changed or damaged.
    #[error(transparent)]
    Stored(#[from] LoadError),
    /// Nothing that was handed out is the run asked for.
    #[error("nobody offers a run that begins with {prefix}; offered: {offered}")]
    NoSuchRun {
        /// The beginning that was typed.
        prefix: String,
        /// The runs that are.
        offered: String,
    },
    /// The user must choose.
    #[error("several runs are offered; choose one with --run:\n{offered}")]
    Several {
        /// Id and name of each, a line each.
        offered: String,
    },
    /// Another organiser can have made one that begins alike.
    #[error(
        "--run {prefix} is too short where more than one organiser's runs are offered: give at least \
         {digits} digits of the id that your organiser told you:\n{offered}"
    )]
    Unsure {
        /// The beginning that was typed.
        prefix: String,
        /// How many digits it takes.
        digits: usize,
        /// Id and name of each, a line each.
        offered: String,
    },
    /// Too little memory.
    #[error(
        "this run needs {} of memory on this machine and {} are free: {} are missing; close other \
         programs, or choose a smaller --micro-batch",
        .0.needed, .0.available, .0.missing
    )]
    Memory(Shortage),
    /// A GPU that cannot be used.
    #[error(transparent)]
    Device(DeviceError),
    /// Too little memory of a GPU.
    #[error(
        "this run needs {} of the memory of {device} and {} are free: {} are missing; close other programs, {remedy}or \
         train with --device cpu",
        short.needed, short.available, short.missing
    )]
    GpuMemory {
        /// The GPU.
        device: Device,
        /// What else may help.
        remedy: &'static str,
        /// How much too little.
        short: Shortage,
    },
    /// Too little disk.
    #[error(
        "{folder} needs {} for checkpoints and data and has {}: {} are missing; free some space, or name \
         another folder with --data-dir",
        short.needed, short.available, short.missing
    )]
    Disk {
        /// The data folder.
        folder: String,
        /// How much too little.
        short: Shortage,
    },
    /// The file that `--genesis` names.
    #[error("the weights that this run begins with cannot be used")]
    Genesis(#[source] PublishedError),
    /// There is no such file in this run.
    #[error("this run draws its first weights from its seed: leave out --genesis")]
    Drawn,
    /// The run's data.
    #[error(transparent)]
    Data(#[from] DataError),
    /// It is more than this node may fetch.
    #[error(
        "this run's data is not here: it has {bytes}, and --fetch-data allows {most}; allow more, as in \
         --fetch-data 20G, or get it elsewhere and name it with --data FILE"
    )]
    MuchData {
        /// How much that is, in words.
        bytes: String,
        /// How much may be fetched, in words.
        most: String,
    },
    /// It could not be kept as it came.
    #[error("{0}: free some space and start again; what has come of the run's data is kept")]
    FetchedData(#[source] StoreError),
    /// It is not to be had where its organiser says.
    #[error(transparent)]
    Web(#[from] WebError),
    /// The run's tokenizer.
    #[error(transparent)]
    Tokenizer(#[from] OpenError),
    /// Incarnations are counted from then.
    #[error("the clock of this machine is before 1970: set it")]
    Clock,
    /// The system refused threads or signals.
    #[error("cannot start")]
    Runtime(#[source] io::Error),
    /// The network cannot be started.
    #[error(transparent)]
    Net(#[from] NetError),
    /// No manifest is to be had.
    #[error(transparent)]
    Offers(#[from] net::OfferError),
    /// A file of the run.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// This node has nothing that lets it into the run.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// The node did take part, and cannot go on.
    #[error(transparent)]
    Driver(#[from] DriverError),
}

/// Too little of something, in units that people read.
#[derive(Debug)]
pub(crate) struct Shortage {
    needed: String,
    available: String,
    missing: String,
}

impl Shortage {
    /// What is missing, if it is known that something is.
    pub(super) fn of(needed: u64, available: Option<u64>) -> Option<Self> {
        let available = available.filter(|available| *available < needed)?;
        let [needed, available, missing] =
            [needed, available, needed - available].map(figures::bytes);
        Some(Self { needed, available, missing })
    }
}
