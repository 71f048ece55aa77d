//! The command line of `bench device`.

use std::num::NonZeroU64;

use clap::{Args, ValueEnum};

use super::number::from_one;

/// The arguments of `bench device`.
#[derive(Clone, Debug, Args)]
pub(crate) struct DeviceArgs {
    /// Device to test: auto, cpu, cuda:N or gpu:N
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    pub(crate) device: String,
    /// Small sizes and few repeats, as always on the CPU: for software that emulates a GPU
    #[arg(long)]
    pub(crate) small: bool,
    /// Run only this part; may be given several times
    #[arg(long = "part", value_enum, value_name = "PART")]
    pub(crate) parts: Vec<DevicePart>,
    /// Time of each part, after which nothing of it is begun or repeated [default: 20 to 200, by part]
    #[arg(long, value_name = "SECONDS", value_parser = from_one::<NonZeroU64>)]
    pub(crate) seconds: Option<NonZeroU64>,
    /// What the GPU can do, in TFLOP/s of f32: prints the share of it that training reaches
    #[arg(long, value_name = "TFLOPS")]
    pub(crate) peak_tflops: Option<f64>,
    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// A part of `bench device`; the parts run in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DevicePart {
    /// What the device is, and its driver
    Facts,
    /// One step of a small model of each family, against the CPU
    Check,
    /// Matrix products at the sizes of models
    Products,
    /// Attention and the recurrence
    Operators,
    /// Training steps of whole models
    Train,
    /// An allocation that must fail; comes last, because it makes the device unusable
    Memory,
}
