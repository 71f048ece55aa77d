//! NVIDIA's GPUs: how many there are, whether driver and compiler match, and the free memory.
//!
//! The libraries of CUDA are loaded when they are first asked, and need not be there: a build with
//! this backend runs on machines without them. So every question may fail, and a failure is an
//! answer for people. That a driver is there says nothing about its kernels, which `train/check.rs`
//! compares with the CPU.

use cudarc::driver::{CudaContext, sys};
use cudarc::nvrtc;

use super::watch::Watch;
use super::{Device, DeviceError, DeviceFacts};

/// Calls a library of NVIDIA. cudarc panics if the library is missing, which becomes an error here,
/// with the words of the panic and without a line on the terminal.
fn ask<T>(question: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    Watch::new().over(|| Ok(()), question)?
}

/// The number of GPUs; 0 without a driver.
pub(crate) fn count() -> usize {
    let count = ask(|| CudaContext::device_count().map_err(|error| error.to_string()));
    count.map_or(0, |count| usize::try_from(count).unwrap_or(0))
}

/// Checks that the GPU of this number can be used: driver and compiler are there, and the driver is
/// not older than the compiler, whose programs it could not load.
pub(crate) fn check(number: usize) -> Result<(), DeviceError> {
    let asked = Device::Cuda(number);
    match count() {
        0 => return Err(DeviceError::NoDriver(asked)),
        1 if number > 0 => return Err(DeviceError::NoSuch { asked, found: "cuda:0".to_owned() }),
        count if number >= count => {
            let found = format!("cuda:0 to cuda:{}", count - 1);
            return Err(DeviceError::NoSuch { asked, found });
        }
        _ => {}
    }
    let refuses = |what: String| Err(DeviceError::Refuses { asked, what });
    let Ok(compiler) = ask(compiler_version) else {
        return refuses("NVRTC is missing: install the CUDA toolkit, 12.8 or newer".to_owned());
    };
    match ask(driver_version) {
        Ok(driver) if driver < compiler => refuses(format!(
            "its driver runs programs of CUDA {}, and NVRTC makes those of {}: update the driver, or install an older \
             CUDA toolkit",
            dotted(driver),
            dotted(compiler)
        )),
        Ok(_) => Ok(()),
        Err(what) => refuses(what),
    }
}

/// Unused bytes of the GPU's memory at this moment: other programs may take some of it later.
pub(crate) fn free_bytes(number: usize) -> Result<u64, DeviceError> {
    let refused = |what| DeviceError::Refuses { asked: Device::Cuda(number), what };
    memory(number).map(|(free, _)| free as u64).map_err(refused)
}

/// Free and total bytes of the GPU's memory.
fn memory(number: usize) -> Result<(usize, usize), String> {
    let info = || CudaContext::new(number).and_then(|context| context.mem_get_info());
    ask(|| info().map_err(|error| error.to_string()))
}

/// What the driver reports about this GPU, and the version of NVRTC.
pub(crate) fn facts(number: usize) -> DeviceFacts {
    let name = || CudaContext::new(number).and_then(|context| context.name());
    DeviceFacts {
        name: ask(|| name().map_err(|error| error.to_string())).ok(),
        driver: ask(driver_version).map(dotted).ok(),
        compiler: ask(compiler_version).map(dotted).ok(),
        total_bytes: memory(number).map(|(_, total)| total as u64).ok(),
    }
}

/// A major and a minor version number.
type Version = (i32, i32);

/// The CUDA version that the driver supports at most.
fn driver_version() -> Result<Version, String> {
    let mut version = 0;
    #[expect(unsafe_code, reason = "the driver writes one number to the pointer")]
    let result = unsafe { sys::cuDriverGetVersion(&raw mut version) };
    result.result().map_err(|error| error.to_string())?;
    Ok((version / 1000, version % 1000 / 10))
}

/// The version of NVRTC, the compiler of kernels.
fn compiler_version() -> Result<Version, String> {
    let (mut major, mut minor) = (0, 0);
    #[expect(unsafe_code, reason = "NVRTC writes two numbers to the pointers")]
    let result = unsafe { nvrtc::sys::nvrtcVersion(&raw mut major, &raw mut minor) };
    result.result().map_err(|error| format!("{error:?}"))?;
    Ok((major, minor))
}

/// A version as people write it, such as `12.8`.
fn dotted((major, minor): Version) -> String {
    format!("{major}.{minor}")
}
