//! What can be typed behind `bench device`.

use std::num::NonZeroU64;

use clap::{Args, ValueEnum};

use super::number::from_one;

/// What can be typed behind `bench device`.
#[derive(Clone, Debug, Args)]
pub(crate) struct DeviceArgs {
    /// What computes: auto, cpu, cuda:N or gpu:N
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    pub(crate) device: String,
    /// Small sizes and few repeats, as always on the CPU: for software that plays a GPU
    #[arg(long)]
    pub(crate) small: bool,
    /// Only this part; may be given several times
    #[arg(long = "part", value_enum, value_name = "PART")]
    pub(crate) parts: Vec<DevicePart>,
    /// Time of each part, after which nothing of it is begun or repeated [default: 20 to 200, by part]
    #[arg(long, value_name = "SECONDS", value_parser = from_one::<NonZeroU64>)]
    pub(crate) seconds: Option<NonZeroU64>,
    /// What the GPU can do, in TFLOP/s of f32: says what share of it training is
    #[arg(long, value_name = "TFLOPS")]
    pub(crate) peak_tflops: Option<f64>,
    /// A JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// A part of `bench device`, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DevicePart {
    /// The device and its driver
    Facts,
    /// One step of a small model of each family, against the CPU
    Check,
    /// Matrix products
    Products,
    /// Attention and the recurrence
    Operators,
    /// Steps of whole models
    Train,
    /// An allocation that must fail; the last, for it ends the device
    Memory,
}
