//! What peers compute: language models, data and optimisers on burn. The crate knows no peer, no
//! socket and no file of a node.
//!
//! | module | owns |
//! |---|---|
//! | [`config`] | the work of a run: model, data, training, as typed settings |
//! | [`genesis`] | the first weights, a pure function of the seed |
//! | [`data`] | batches, a pure function of (seed of a stream, step, row) |
//! | [`tokenizer`] | text to tokens and back |
//! | [`arch`] | architectures: parameters and tokens → logits |
//! | [`ops`] | the fused operators that they are made of |
//! | [`params`] | tensors ↔ the flat parameters that peers agree on |
//! | [`optim`], [`schedule`] | AdamW, and its learning rate |
//! | [`train`] | the inner loop behind [`train::Trainer`] |
//! | [`eval`], [`sample`] | what a model is worth, and text from it |
//! | [`outer`], [`state`] | outer step and agreed state, the same bits everywhere |
//! | [`hf`] | models as folders that other programs read |
//!
//! The crate is synchronous. Tensors are generic over burn's backend, and the generic stops at
//! [`train::Model`] and [`train::Trainer`]: [`Device`] becomes a backend's type in [`trainer`] and
//! [`model`], nowhere else.
//!
//! Shapes are noted at the end of a line, with these letters: B sequences of T tokens, N = B·T
//! positions; V vocabulary, D width, H query heads, G key-value heads, K head width, F hidden
//! width, L blocks.

pub mod arch;
pub mod config;
pub mod data;
pub mod eval;
pub mod genesis;
pub mod hf;
pub mod ops;
pub mod optim;
pub mod outer;
pub mod params;
pub mod sample;
pub mod schedule;
pub mod state;
pub mod tokenizer;
pub mod train;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use burn_autodiff::Autodiff;
use burn_flex::Flex;
use thiserror::Error;

use self::train::{Learner, Model, Session, TrainError, Trainer};

/// Where tensors live, as a person names it: `auto`, `cpu`, `cuda:0`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// The first GPU where this build and this machine have one, else the CPU.
    #[default]
    Auto,
    /// All threads of the global rayon pool.
    Cpu,
    /// The GPU of this number.
    Cuda(usize),
}

/// Why a device cannot be used; whoever started the program must act.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum DeviceError {
    /// Not a name of a device.
    #[error("unknown device \"{given}\": choose auto, cpu or cuda:N, N the number of the GPU")]
    Unknown {
        /// What stands where a device should be named.
        given: String,
    },
    /// A GPU was asked for that this program cannot drive.
    #[error(
        "this program was built without CUDA, so it cannot use cuda:{index}: choose cpu, \
         or build it with `cargo build --release --features cuda`"
    )]
    NotBuilt {
        /// The GPU asked for.
        index: usize,
    },
    /// The build could, the machine cannot.
    #[error("this machine has no NVIDIA driver, so cuda:{index} does not exist: choose cpu")]
    NoDriver {
        /// The GPU asked for.
        index: usize,
    },
}

impl FromStr for Device {
    type Err = DeviceError;

    fn from_str(given: &str) -> Result<Self, DeviceError> {
        let unknown = || DeviceError::Unknown { given: given.to_owned() };
        match given {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            _ => {
                let index = given.strip_prefix("cuda:").ok_or_else(unknown)?;
                index.parse().map(Self::Cuda).map_err(|_| unknown())
            }
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(index) => write!(f, "cuda:{index}"),
        }
    }
}

impl Device {
    /// The device that this name means on this machine: never `Auto`.
    ///
    /// # Errors
    /// [`DeviceError::NotBuilt`] and [`DeviceError::NoDriver`]
    pub fn resolve(self) -> Result<Self, DeviceError> {
        let built = cfg!(feature = "cuda");
        // The device file of NVIDIA's driver on Linux.
        let driver = || std::path::Path::new("/dev/nvidiactl").exists();
        match self {
            Self::Auto if built && driver() => Ok(Self::Cuda(0)),
            Self::Auto | Self::Cpu => Ok(Self::Cpu),
            Self::Cuda(index) if !built => Err(DeviceError::NotBuilt { index }),
            Self::Cuda(index) if !driver() => Err(DeviceError::NoDriver { index }),
            Self::Cuda(_) => Ok(self),
        }
    }
}

/// Threads that compute on the CPU: all cores, or as many as `RAYON_NUM_THREADS` says.
#[must_use]
pub fn threads() -> usize {
    rayon::current_num_threads()
}

/// Makes all computing of this process use so many threads, started by the caller's thread (and so
/// with its priority). Only the first call, before anything is computed, has an effect.
pub fn use_threads(threads: usize) {
    // An error means that the pool exists already, as in a second call.
    let _ = rayon::ThreadPoolBuilder::new().num_threads(threads).build_global();
}

/// The backend that trains on the CPU.
type Cpu = Autodiff<Flex>;
/// The backend that trains on a GPU.
#[cfg(feature = "cuda")]
type Gpu = Autodiff<burn_cuda::Cuda<f32, i32>>;

/// A model that learns from `source`. Its weights are zero until some are loaded. `micro_batch` is
/// how many sequences are in memory at once, the whole batch by default.
///
/// # Errors
/// If the device cannot be used or there is nothing in a micro-batch.
pub fn trainer(
    work: &config::Work,
    source: Arc<data::Dataset>,
    device: Device,
    micro_batch: Option<usize>,
) -> Result<Box<dyn Trainer>, TrainError> {
    match device.resolve()? {
        #[cfg(feature = "cuda")]
        Device::Cuda(index) => {
            let device = burn_cuda::CudaDevice::new(index);
            Ok(Box::new(Learner::<Gpu>::new(work, source, device, micro_batch)?))
        }
        _ => Ok(Box::new(Learner::<Cpu>::new(work, source, Default::default(), micro_batch)?)),
    }
}

/// A model to evaluate or to sample from. Its weights are zero until some are loaded.
///
/// # Errors
/// If the device cannot be used.
pub fn model(work: &config::Work, device: Device) -> Result<Box<dyn Model>, TrainError> {
    match device.resolve()? {
        #[cfg(feature = "cuda")]
        Device::Cuda(index) => {
            Ok(Box::new(Session::<Gpu>::new(work, burn_cuda::CudaDevice::new(index))?))
        }
        _ => Ok(Box::new(Session::<Cpu>::new(work, Default::default())?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_named_as_they_are_printed() {
        for name in ["auto", "cpu", "cuda:0", "cuda:11"] {
            assert_eq!(
                name.parse::<Device>().map(|device| device.to_string()),
                Ok(name.to_owned())
            );
        }
        for name in ["", "gpu", "cuda", "cuda:", "cuda:-1", "CPU"] {
            let error = name.parse::<Device>().unwrap_err();
            assert_eq!(error, DeviceError::Unknown { given: name.to_owned() });
        }
    }

    #[cfg(not(feature = "cuda"))]
    #[test]
    fn a_build_without_cuda_says_how_to_get_it() {
        let work = config::Work::synthetic();
        assert_eq!(Device::Auto.resolve(), Ok(Device::Cpu));
        let error = model(&work, Device::Cuda(3)).err().unwrap().to_string();
        assert!(error.contains("cuda:3") && error.contains("--features cuda"), "{error}");
    }
}
