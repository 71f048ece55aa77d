//! Devices: their names, which of them this machine has, and how failures are noticed.

#[cfg(feature = "wgpu")]
pub(crate) mod adapters;
#[cfg(feature = "cuda")]
pub(crate) mod nvidia;
pub(crate) mod watch;

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// A device as a person names it: `auto`, `cpu`, `cuda`, `cuda:0`, `gpu`, `gpu:0`. A name is only a
/// wish until [`Device::resolve`] has found it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// The first GPU where this build and this machine have one, else the CPU.
    #[default]
    Auto,
    /// All threads of the global rayon pool.
    Cpu,
    /// The NVIDIA GPU of this number, through CUDA. Numbers are the driver's, from 0.
    Cuda(usize),
    /// The GPU of this number, of any vendor, through Vulkan or Metal; without a number the first
    /// that is not emulated by software.
    Gpu(Option<usize>),
}

/// What a driver reports about a device; `None` where it reports nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceFacts {
    /// The product name of the device.
    pub name: Option<String>,
    /// The driver: for CUDA the CUDA version that it supports, else its own name and version.
    pub driver: Option<String>,
    /// The version of NVRTC, which compiles kernels for CUDA.
    pub compiler: Option<String>,
    /// All memory of the device, in bytes.
    pub total_bytes: Option<u64>,
}

/// Why a device cannot be used. The person who started the program must act.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum DeviceError {
    /// The text that was given does not name a device.
    #[error("unknown device \"{0}\": choose auto, cpu, cuda:N or gpu:N, N the number of the GPU")]
    Unknown(String),
    /// The requested GPU needs a backend that this build lacks.
    #[error(
        "this program was built without `{feature}`, so it cannot use {asked}: choose cpu, \
         or build it with `cargo build --release -p intellect-node --features {feature}`"
    )]
    NotBuilt {
        /// The device that was requested.
        asked: Device,
        /// The Cargo feature of the missing backend.
        feature: &'static str,
    },
    /// The build supports CUDA, but the machine has no NVIDIA driver for the requested device.
    #[error("this machine has no NVIDIA driver, so {0} does not exist: choose cpu")]
    NoDriver(Device),
    /// Vulkan or Metal lists no device at all.
    #[error(
        "no driver shows a GPU here, so {asked} does not exist{hint}: install the Vulkan driver of the GPU \
         (Debian: mesa-vulkan-drivers), or choose cpu"
    )]
    NoAdapter {
        /// The device that was requested.
        asked: Device,
        /// An environment variable that may be the cause, or nothing.
        hint: String,
    },
    /// The only devices are emulated by software on the CPU, these with their numbers.
    #[error(
        "this machine has no GPU, only software that emulates one ({0}): choose cpu, which is faster, \
         or that software by its number"
    )]
    Software(String),
    /// No GPU has the requested number.
    #[error("there is no {asked}: this machine has {found}")]
    NoSuch {
        /// The device that was requested.
        asked: Device,
        /// The devices that exist, with their numbers.
        found: String,
    },
    /// The device exists but cannot be initialised.
    #[error("{asked} cannot be used: {what}")]
    Refuses {
        /// The device that was requested.
        asked: Device,
        /// The error of its driver, in its words.
        what: String,
    },
    /// The device computes other results than the CPU.
    #[error(
        "{asked} computes other numbers than the CPU: {what}. It would spoil the run for all: \
         update its driver, or choose cpu"
    )]
    Wrong {
        /// The device that was requested.
        asked: Device,
        /// The quantity that differs most, and by how much.
        what: String,
    },
}

impl FromStr for Device {
    type Err = DeviceError;

    /// Reads a name; no device is asked for it.
    ///
    /// # Errors
    /// [`DeviceError::Unknown`]
    fn from_str(given: &str) -> Result<Self, DeviceError> {
        let unknown = || DeviceError::Unknown(given.to_owned());
        let number = |index: &str| index.parse().map_err(|_| unknown());
        match given {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda(0)),
            "gpu" => Ok(Self::Gpu(None)),
            _ => match given.split_once(':').ok_or_else(unknown)? {
                ("cuda", index) => number(index).map(Self::Cuda),
                ("gpu", index) => number(index).map(|index| Self::Gpu(Some(index))),
                _ => Err(unknown()),
            },
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(index) => write!(f, "cuda:{index}"),
            Self::Gpu(None) => f.write_str("gpu"),
            Self::Gpu(Some(index)) => write!(f, "gpu:{index}"),
        }
    }
}

impl Device {
    /// The device that this name denotes on this machine: never `Auto`, and a GPU with its number.
    ///
    /// # Errors
    /// Any of [`DeviceError`] but [`DeviceError::Unknown`] and [`DeviceError::Wrong`].
    pub fn resolve(self) -> Result<Self, DeviceError> {
        match self {
            Self::Auto => Ok(first()),
            Self::Cpu => Ok(Self::Cpu),
            #[cfg(feature = "cuda")]
            Self::Cuda(number) => nvidia::check(number).map(|()| self),
            #[cfg(not(feature = "cuda"))]
            Self::Cuda(_) => Err(DeviceError::NotBuilt { asked: self, feature: "cuda" }),
            #[cfg(feature = "wgpu")]
            Self::Gpu(index) => by_number(index),
            #[cfg(not(feature = "wgpu"))]
            Self::Gpu(_) => Err(DeviceError::NotBuilt { asked: self, feature: "wgpu" }),
        }
    }

    /// Unused bytes of a GPU's memory, if its driver reports them.
    ///
    /// # Errors
    /// [`DeviceError::Refuses`]
    pub fn free_bytes(self) -> Result<Option<u64>, DeviceError> {
        match self {
            #[cfg(feature = "cuda")]
            Self::Cuda(number) => nvidia::free_bytes(number).map(Some),
            _ => Ok(None),
        }
    }

    /// What its driver reports about it; nothing for the CPU.
    #[must_use]
    pub fn facts(self) -> DeviceFacts {
        match self {
            #[cfg(feature = "cuda")]
            Self::Cuda(number) => nvidia::facts(number),
            #[cfg(feature = "wgpu")]
            Self::Gpu(Some(number)) => adapters::facts(number),
            _ => DeviceFacts::default(),
        }
    }

    /// Whether it is a GPU, which has a memory of its own.
    #[must_use]
    pub fn is_gpu(self) -> bool {
        matches!(self, Self::Cuda(_) | Self::Gpu(_))
    }
}

/// The first GPU for which this build has a backend, NVIDIA's before others; else the CPU.
fn first() -> Device {
    #[cfg(feature = "cuda")]
    {
        if nvidia::count() > 0 {
            return Device::Cuda(0);
        }
    }
    #[cfg(feature = "wgpu")]
    {
        if let Some(gpu) = first_gpu() {
            return gpu;
        }
    }
    Device::Cpu
}

/// The first that is not emulated by software.
#[cfg(feature = "wgpu")]
fn first_gpu() -> Option<Device> {
    let first = adapters::all().iter().position(|adapter| !adapter.software)?;
    Some(Device::Gpu(Some(first)))
}

/// The GPU of this number, or without one the first that is not emulated.
#[cfg(feature = "wgpu")]
fn by_number(index: Option<usize>) -> Result<Device, DeviceError> {
    let (asked, all) = (Device::Gpu(index), adapters::all());
    let names = all.iter().enumerate().map(|(number, a)| format!("gpu:{number} {}", a.name));
    let found = names.collect::<Vec<_>>().join(", ");
    if all.is_empty() {
        let set = std::env::var("VK_ICD_FILENAMES").ok();
        let hint = set.map_or_else(String::new, |set| format!(" (VK_ICD_FILENAMES is {set})"));
        return Err(DeviceError::NoAdapter { asked, hint });
    }
    match index {
        None => first_gpu().ok_or(DeviceError::Software(found)),
        Some(number) if number < all.len() => Ok(asked),
        Some(_) => Err(DeviceError::NoSuch { asked, found }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_named_as_they_are_printed() {
        for name in ["auto", "cpu", "cuda:0", "cuda:11", "gpu", "gpu:3"] {
            assert_eq!(
                name.parse::<Device>().map(|device| device.to_string()),
                Ok(name.to_owned())
            );
        }
        assert_eq!("cuda".parse(), Ok(Device::Cuda(0)), "the first, as many programs name it");
        for name in ["", "cuda:", "cuda:-1", "gpu:", "gpu:x", "CPU", "tpu:0"] {
            let error = name.parse::<Device>().unwrap_err();
            assert_eq!(error, DeviceError::Unknown(name.to_owned()));
        }
    }

    #[test]
    fn a_build_without_a_backend_says_how_to_get_it() {
        if cfg!(feature = "cube") {
            return;
        }
        assert_eq!(Device::Auto.resolve(), Ok(Device::Cpu));
        for (name, feature) in [
            ("cuda:3", "--features cuda"),
            ("gpu", "--features wgpu"),
            ("gpu:1", "--features wgpu"),
        ] {
            let error = name.parse::<Device>().unwrap().resolve().unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(feature), "{error}");
        }
    }
}
