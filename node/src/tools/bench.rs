//! `bench`: measures this machine with the code that a node runs.
//!
//! Nothing here is a test, since other programs on the machine change the numbers. So each figure is the median of several
//! runs, and is printed beside what the hardware itself can do.

pub(crate) mod codec;
pub(crate) mod device;
pub(crate) mod tokenizer;
pub(crate) mod train;
pub(crate) mod view;

use std::{
    io,
    time::{Duration, Instant},
};

use crate::{config::LocalError, os::PathError};

/// Why a benchmark gave no figures, or found something wrong. Nothing is left behind in any case: a
/// benchmark writes no file, and what it has printed before stays valid.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    /// The benchmark's own data could not be encoded or decoded.
    #[error("the codec refuses the benchmark's own data")]
    Codec(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The benchmark's data could not be made.
    #[error("cannot make the benchmark's data")]
    Data(#[from] intellect_model::data::DataError),
    /// The benchmark's model could not be trained.
    #[error("cannot train the benchmark's model")]
    Train(#[from] intellect_model::train::TrainError),
    /// The command line makes no sense.
    #[error(transparent)]
    Usage(#[from] LocalError),
    /// A built-in preset is missing or makes no sense.
    #[error("the preset {name} cannot be used")]
    Preset { name: &'static str },
    /// The device computes wrong results, or fails: a finding of `bench device`, which the command
    /// has printed too. Also that the view cannot read an event that `bench view` made, which is a
    /// mistake of this program.
    #[error("the device is not right: {what}")]
    Wrong { what: String },
    /// The file of the tokenizer cannot be read.
    #[error(transparent)]
    Tokenizer(#[from] intellect_model::tokenizer::OpenError),
    /// The file that was read is no tokenizer.
    #[error("the tokenizer cannot be used")]
    NoTokenizer(#[from] intellect_model::tokenizer::FileError),
    /// The tokenizer refuses the text.
    #[error(transparent)]
    Encode(#[from] intellect_model::tokenizer::EncodeError),
    /// The text that was named cannot be read.
    #[error(transparent)]
    Text(#[from] PathError),
    /// Standard output is closed, or its disk is full.
    #[error("cannot write to standard output")]
    Output(#[from] io::Error),
}

/// The median time of `runs` runs, after one more to warm up. The first error ends it.
fn median<E>(runs: usize, mut work: impl FnMut() -> Result<(), E>) -> Result<Duration, E> {
    work()?;
    let mut times = Vec::with_capacity(runs);
    for _ in 0..runs {
        let start = Instant::now();
        work()?;
        times.push(start.elapsed());
    }
    Ok(middle(times))
}

/// The median of some times; of an even number the later one of the two in the middle.
fn middle(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
