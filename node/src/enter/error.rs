//! Why a node cannot take part in its run. Each error names the number that is missing, or what to do.
//!
//! None of them is a fault of a peer: what a peer does wrong is reported and passed over. They end
//! the process with exit code 1, but for one ([`EnterError::exit_code`]). What has arrived by then
//! stays on the disk, and the next start goes on with it.

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
    /// A manifest that was handed out cannot be used by this program.
    #[error("the manifest from {from} cannot be used: {why}; tell the organiser of the run")]
    Manifest {
        /// The peer or address that handed it out.
        from: String,
        why: Box<ReadError>,
    },
    /// The manifest in this folder was changed or damaged.
    #[error(transparent)]
    Stored(#[from] LoadError),
    /// No run that is offered begins with the digits of `--run`.
    #[error("no run that is offered begins with {prefix}; offered: {offered}")]
    NoSuchRun { prefix: String, offered: String },
    /// More than one run fits: the user must choose.
    #[error("several runs are offered; choose one with --run:\n{offered}")]
    Several {
        /// The id and the name of each run, a line each.
        offered: String,
    },
    /// Another organiser may have made a run that begins with the same digits.
    #[error(
        "--run {prefix} is too short where more than one organiser's runs are offered: give at least \
         {digits} digits of the id that your organiser gave you:\n{offered}"
    )]
    Unsure {
        prefix: String,
        /// How many digits are enough to be sure of the run.
        digits: usize,
        /// The id and the name of each run, a line each.
        offered: String,
    },
    /// This machine has too little free memory for the run.
    #[error(
        "this run needs {} of memory on this machine and {} are free: {} are missing; close other \
         programs, or choose a smaller --micro-batch",
        .0.needed, .0.available, .0.missing
    )]
    Memory(Shortage),
    /// `--micro-batch` is more than a whole step.
    #[error(
        "--micro-batch {wanted}: a step of this run has {batch} sequences: choose 1 to {batch}, or leave it out"
    )]
    MicroBatch {
        wanted: usize,
        /// How many sequences a step has in this run.
        batch: usize,
    },
    /// The GPU that `--device` names cannot be used.
    #[error(transparent)]
    Device(DeviceError),
    /// The GPU has too little free memory for the run.
    #[error(
        "this run needs {} of the memory of {device} and {} are free: {} are missing; close other programs, {remedy}or \
         train with --device cpu",
        short.needed, short.available, short.missing
    )]
    GpuMemory {
        device: Device,
        /// A further remedy, or nothing.
        remedy: &'static str,
        short: Shortage,
    },
    /// The disk of the data folder has too little free space.
    #[error(
        "{folder} needs {} for checkpoints and data and has {}: {} are missing; free some space, or name \
         another folder with --data-dir",
        short.needed, short.available, short.missing
    )]
    Disk {
        /// The data folder, as it was typed.
        folder: String,
        short: Shortage,
    },
    /// The file that `--genesis` names, or the fetched weights, cannot be used.
    #[error("the weights that this run begins with cannot be used")]
    Genesis(#[source] PublishedError),
    /// `--genesis` was typed, but the manifest names no published weights.
    #[error("this run draws its first weights from its seed: leave out --genesis")]
    Drawn,
    /// The run's data is missing, damaged, or not the run's.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The missing data is more than `--fetch-data` allows.
    #[error(
        "this run's data is not here: it has {bytes}, and --fetch-data allows {most}; allow more, as in \
         --fetch-data 20G, or get it elsewhere and name it with --data FILE"
    )]
    MuchData {
        /// Size of the missing data, in words.
        bytes: String,
        /// What `--fetch-data` allows, in words.
        most: String,
    },
    /// A file of the run's data could not be written while it arrived.
    #[error("{0}: free some space and start again; the data that has arrived is kept")]
    FetchedData(#[source] StoreError),
    /// The web server that the manifest names does not give the data.
    #[error(transparent)]
    Web(#[from] WebError),
    /// The run's tokenizer is damaged, another one, or not needed.
    #[error(transparent)]
    Tokenizer(#[from] OpenError),
    /// The clock cannot number this start: incarnations are milliseconds since 1970.
    #[error("the clock of this machine is before 1970: set it")]
    Clock,
    /// The system refused to create threads or to handle signals.
    #[error("cannot start")]
    Runtime(#[source] io::Error),
    /// The network cannot be started.
    #[error(transparent)]
    Net(#[from] NetError),
    /// No manifest could be fetched from any entry point.
    #[error(transparent)]
    Offers(#[from] net::OfferError),
    /// A file of the run could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// This node has nothing that admits it to the run.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// The node did take part but cannot continue.
    #[error(transparent)]
    Driver(#[from] DriverError),
}

impl EnterError {
    /// The exit code of the program. A service that has ended because of a twin is not to be started again.
    pub(crate) fn exit_code(&self) -> u8 {
        if matches!(self, Self::Driver(DriverError::Twin { .. })) { 4 } else { 1 }
    }
}

/// A shortage of memory or disk, in units that people read.
#[derive(Debug)]
pub(crate) struct Shortage {
    /// What the run takes, in a unit that people read.
    needed: String,
    /// The bytes that are free at the moment.
    available: String,
    /// The difference, which a person must free.
    missing: String,
}

impl Shortage {
    /// The shortage, if less than `needed` is known to be available.
    /// Both are bytes. `None` where there is enough, and where the system does not say.
    pub(super) fn of(needed: u64, available: Option<u64>) -> Option<Self> {
        let available = available.filter(|available| *available < needed)?;
        let [needed, available, missing] =
            [needed, available, needed - available].map(figures::bytes);
        Some(Self { needed, available, missing })
    }
}
