//! What peers compute: language models, data and optimisers on burn. The crate knows no peer, no
//! socket and no file of a node.
//!
//! | module | owns |
//! |---|---|
//! | [`config`] | the work of a run as typed settings: model, data, training |
//! | [`genesis`] | the first weights, a pure function of the seed |
//! | [`data`] | batches, a pure function of (seed of a stream, step, row) |
//! | [`tokenizer`] | text to tokens and back |
//! | [`arch`] | architectures: parameters and tokens → logits |
//! | [`ops`] | the fused operators that they are made of |
//! | `device` | the devices that compute: names, presence, failures |
//! | [`bench`](mod@bench) | whether a device computes correctly, and how fast |
//! | [`params`] | tensors ↔ the flat parameters that peers agree on |
//! | [`optim`], [`schedule`] | AdamW, and its learning rate |
//! | [`train`] | the inner loop behind [`train::Trainer`] |
//! | [`eval`], [`sample`] | the quality of a model, and text from it |
//! | [`outer`], [`state`] | outer step and agreed state, the same bits everywhere |
//! | [`hf`] | models as folders that other programs read |
//! | [`merge`] | one model of several, without training |
//! | [`spectrum`](mod@spectrum) | which matrices of a model are worth training |
//!
//! The crate is synchronous. Tensors are generic over burn's backend, and the generic stops at
//! [`train::Model`] and [`train::Trainer`]: [`Device`] becomes a backend's type in [`trainer`] and
//! [`model`], nowhere else.
//!
//! Shapes are noted at the end of a line, with these letters: B sequences of T tokens, N = B·T
//! positions; V vocabulary, D width, H query heads, G key-value heads, K head width, F hidden
//! width, L blocks.

pub mod arch;
pub mod bench;
pub mod config;
pub mod data;
mod device;
pub mod eval;
pub mod genesis;
pub mod hf;
pub mod merge;
#[cfg(test)]
mod mutants;
pub mod ops;
pub mod optim;
pub mod outer;
pub mod params;
pub mod sample;
pub mod schedule;
pub mod spectrum;
pub mod state;
pub mod tokenizer;
pub mod train;

use std::sync::Arc;

use burn_autodiff::Autodiff;
use burn_flex::Flex;

pub use self::device::{Device, DeviceError, DeviceFacts};
use self::train::{Learner, Model, Place, Session, TrainError, Trainer, check};

/// Threads that compute on the CPU: all cores, or as many as `RAYON_NUM_THREADS` says. The first
/// call starts them.
#[must_use]
pub fn threads() -> usize {
    rayon::current_num_threads()
}

/// Sets the number of threads that compute in this process; 0 leaves the choice to rayon. They are
/// started by the caller's thread, and so have its priority. Only the first call, before anything
/// is computed, has an effect.
pub fn use_threads(threads: usize) {
    // An error means that the pool exists already, as in a second call.
    let _ = rayon::ThreadPoolBuilder::new().num_threads(threads).build_global();
}

/// The backend that trains on the CPU.
type Cpu = Autodiff<Flex>;
/// The backend that trains on a GPU of NVIDIA.
#[cfg(feature = "cuda")]
type Cuda = Autodiff<burn_cuda::Cuda<f32, i32>>;
/// The backend that trains on any GPU.
#[cfg(feature = "wgpu")]
type Gpu = Autodiff<burn_wgpu::Wgpu<f32, i32>>;

/// Runs `$work` on the device of this name, whatever its backend.
macro_rules! on {
    ($device:expr, $place:ident => $work:expr) => {
        match $crate::place($device)? {
            $crate::Placed::Cpu($place) => $work,
            #[cfg(feature = "cuda")]
            $crate::Placed::Cuda($place) => $work,
            #[cfg(feature = "wgpu")]
            $crate::Placed::Gpu($place) => $work,
        }
    };
}

pub(crate) use on;

/// A model that learns from `source`. Its weights are zero until some are loaded. `micro_batch` is
/// the number of sequences in memory at once, the whole batch by default. A GPU is checked first,
/// which takes a second or two.
///
/// A smaller micro-batch needs less memory for activations and gives the same step up to rounding:
/// gradients of the parts are added.
///
/// # Errors
/// If the device cannot be used, or computes something else than the CPU, or `micro_batch` is 0.
pub fn trainer(
    work: &config::Work,
    source: Arc<data::Dataset>,
    device: Device,
    micro_batch: Option<usize>,
) -> Result<Box<dyn Trainer>, TrainError> {
    on!(device, place => {
        check::device(&place, work.model.family)?;
        Ok(Box::new(Learner::new(work, source, place, micro_batch)?))
    })
}

/// A model to evaluate or to sample from. Its weights are zero until some are loaded. It keeps no
/// gradients and no moments, so it needs a part of a trainer's memory.
///
/// # Errors
/// If the device cannot be used, or computes something else than the CPU.
pub fn model(work: &config::Work, device: Device) -> Result<Box<dyn Model>, TrainError> {
    on!(device, place => {
        check::device(&place, work.model.family)?;
        Ok(Box::new(Session::new(work, place)?))
    })
}

/// A device of one of the backends in this build. It exists only between [`place`] and the choice
/// of a backend's type.
enum Placed {
    /// The CPU, which every build has.
    Cpu(Place<Cpu>),
    #[cfg(feature = "cuda")]
    Cuda(Place<Cuda>),
    #[cfg(feature = "wgpu")]
    Gpu(Place<Gpu>),
}

/// Resolves a name to a device that is there. Names of backends that this build lacks are refused
/// by [`Device::resolve`], so the last arm is the CPU.
fn place(device: Device) -> Result<Placed, DeviceError> {
    let name = device.resolve()?;
    Ok(match name {
        #[cfg(feature = "cuda")]
        Device::Cuda(index) => Placed::Cuda(Place::new(burn_cuda::CudaDevice::new(index), name)),
        #[cfg(feature = "wgpu")]
        Device::Gpu(Some(number)) => Placed::Gpu(Place::new(device::adapters::open(number)?, name)),
        _ => Placed::Cpu(Place::new(Default::default(), name)),
    })
}
