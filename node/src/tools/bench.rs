//! `bench`: what this machine can do, measured with the code that a node runs.
//!
//! Nothing here is a test: a machine that others use at the same time gives other numbers. So each
//! figure is the median of several runs, and stands beside what the hardware itself does.

pub(crate) mod codec;
pub(crate) mod device;
pub(crate) mod tokenizer;
pub(crate) mod train;

use std::{
    io,
    time::{Duration, Instant},
};

use crate::{config::LocalError, os::PathError};

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    /// Our own data could not be encoded or decoded.
    #[error("the codec refuses the benchmark's own data")]
    Codec(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The benchmark's data could not be made.
    #[error("cannot make the benchmark's data")]
    Data(#[from] intellect_model::data::DataError),
    /// The benchmark's model could not be trained.
    #[error("cannot train the benchmark's model")]
    Train(#[from] intellect_model::train::TrainError),
    /// Something on the command line cannot be meant.
    #[error(transparent)]
    Usage(#[from] LocalError),
    /// A preset of our own is none.
    #[error("the preset {name} cannot be used")]
    Preset {
        /// Its name.
        name: &'static str,
    },
    /// A device computes something else than it should, or fails.
    #[error("the device is not right: {what}")]
    Wrong {
        /// All that was found.
        what: String,
    },
    /// The tokenizer cannot be read.
    #[error(transparent)]
    Tokenizer(#[from] intellect_model::tokenizer::OpenError),
    /// What was read is no tokenizer.
    #[error("the tokenizer cannot be used")]
    NoTokenizer(#[from] intellect_model::tokenizer::FileError),
    /// The tokenizer refuses the text.
    #[error(transparent)]
    Encode(#[from] intellect_model::tokenizer::EncodeError),
    /// The text cannot be read.
    #[error(transparent)]
    Text(#[from] PathError),
    /// Standard output is gone or full.
    #[error("cannot write to standard output")]
    Output(#[from] io::Error),
}

/// The median time of `runs` runs, after one that only warms up.
fn median<E>(runs: usize, mut work: impl FnMut() -> Result<(), E>) -> Result<Duration, E> {
    work()?;
    let mut times = Vec::with_capacity(runs);
    for _ in 0..runs {
        let start = Instant::now();
        work()?;
        times.push(start.elapsed());
    }
    times.sort_unstable();
    Ok(times.get(runs / 2).copied().unwrap_or_default())
}
