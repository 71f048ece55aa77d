//! The GPUs that Vulkan or Metal list, in their order.
//!
//! The number of a device is its index in that order. A list is asked for anew at each call, and
//! only [`open`] makes something that stays: CubeCL allows a process to open each device once, so
//! opened devices are stored by their number until the process ends.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use burn_wgpu::graphics::{AutoGraphicsApi, GraphicsApi};
use burn_wgpu::{RuntimeOptions, WgpuDevice, WgpuSetup};
use futures::executor::block_on;

use super::{Device, DeviceError, DeviceFacts, watch};

/// A device that can run compute shaders.
#[derive(Debug)]
pub(crate) struct Adapter {
    /// The name that its driver reports.
    pub(crate) name: String,
    /// The driver's own name and version.
    driver: String,
    /// Whether it is emulated on the CPU.
    pub(crate) software: bool,
}

/// All devices; the index is their number.
pub(crate) fn all() -> Vec<Adapter> {
    let named = |adapter: &wgpu::Adapter| {
        let info = adapter.get_info();
        let software = info.device_type == wgpu::DeviceType::Cpu;
        let driver = format!("{} {}", info.driver, info.driver_info);
        Adapter { name: info.name, driver, software }
    };
    found().1.iter().map(named).collect()
}

/// What the driver of this device reports; nothing of a number that is not in the list. The size of
/// the memory is unknown, since wgpu does not say it.
pub(crate) fn facts(number: usize) -> DeviceFacts {
    let adapter = all().into_iter().nth(number);
    let facts = adapter.map(|Adapter { name, driver, .. }| DeviceFacts {
        name: Some(name),
        driver: (!driver.trim().is_empty()).then(|| driver.trim().to_owned()),
        ..DeviceFacts::default()
    });
    facts.unwrap_or_default()
}

/// All devices that the system's API lists, in its order, with the instance that they belong to.
fn found() -> (wgpu::Instance, Vec<wgpu::Adapter>) {
    let backends = AutoGraphicsApi::backend().into();
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
        backends,
        ..wgpu::InstanceDescriptor::new_without_display_handle()
    });
    let adapters = block_on(instance.enumerate_adapters(backends));
    (instance, adapters)
}

/// The devices that this process has opened, because CubeCL allows each only once.
static OPENED: Mutex<BTreeMap<usize, WgpuDevice>> = Mutex::new(BTreeMap::new());

/// Opens the device of this number, as burn names it, so that [`watch`] notes its later errors.
/// CubeCL's own function panics on errors, at opening and later.
pub(crate) fn open(number: usize) -> Result<WgpuDevice, DeviceError> {
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(device) = opened.get(&number) {
        return Ok(device.clone());
    }
    let asked = Device::Gpu(Some(number));
    let refuses = |what: String| DeviceError::Refuses { asked, what };
    let (instance, mut adapters) = found();
    if number >= adapters.len() {
        return Err(refuses("it is not there any more".to_owned()));
    }
    let adapter = adapters.swap_remove(number);
    // All features and limits of the device, which the kernels expect.
    let wanted = wgpu::DeviceDescriptor {
        required_features: adapter.features()
            - wgpu::Features::MAPPABLE_PRIMARY_BUFFERS
            - wgpu::Features::all_experimental_mask(),
        required_limits: adapter.limits(),
        memory_hints: wgpu::MemoryHints::MemoryUsage,
        ..wgpu::DeviceDescriptor::default()
    };
    let (device, queue) =
        block_on(adapter.request_device(&wanted)).map_err(|error| refuses(error.to_string()))?;
    device.on_uncaptured_error(Arc::new(|error| watch::note(&error.to_string())));
    device.set_device_lost_callback(|reason, what| watch::note(&format!("{reason:?}: {what}")));
    let backend = AutoGraphicsApi::backend();
    let setup = WgpuSetup { instance, adapter, device, queue, backend };
    let device = burn_wgpu::init_device(setup, RuntimeOptions::default());
    opened.insert(number, device.clone());
    Ok(device)
}
