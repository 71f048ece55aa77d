//! What this machine has for a run: its device, its memory and disk, and how many sequences fit at a time.
//!
//! A node that does not fit is refused before it downloads anything. What the system does not
//! report counts as enough: a refusal needs a known shortage.
//!
//! The numbers are estimates ([`Needs`], `model::train`), of what the node takes at its peak. Other
//! programs may take memory later, so a node that is let through can still be ended by the system.

use std::path::Path;

use intellect_model::{Device, train};

use super::error::{EnterError, Shortage};
use super::needs::{Needs, fetched_bytes, update_bytes};
use crate::config::Local;
use crate::manifest::Manifest;
use crate::tell::Console;
use crate::{figures, os, store};

/// The device that computes, and how many sequences it takes at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    /// The CPU or GPU that computes.
    pub(crate) device: Device,
    /// How many sequences go through the model at a time, at most the batch of a step.
    pub(crate) micro_batch: usize,
}

impl Machine {
    /// Measures what is free here, and reports what the run needs.
    ///
    /// # Errors
    /// In this order: the device cannot be used; `--micro-batch` is above the batch; the GPU, the
    /// memory, then the disk has too little. Nothing of the run was created yet.
    ///
    /// Without `--micro-batch` it takes what fits, by [`Free::micro_batch`]. What the folder has
    /// already counts as free disk.
    pub(super) fn check(
        local: &Local,
        manifest: &Manifest,
        console: &Console,
    ) -> Result<Self, EnterError> {
        let work = &manifest.work;
        let device = local.device.resolve().map_err(EnterError::Device)?;
        let free = Free {
            host: os::memory_available_bytes(),
            gpu: device.free_bytes().map_err(EnterError::Device)?,
        };
        if let Some(wanted) = local.micro_batch.map(Into::into)
            && wanted > work.train.batch
        {
            return Err(EnterError::MicroBatch { wanted, batch: work.train.batch });
        }
        let fitting = || free.micro_batch(manifest, device);
        let micro_batch = local.micro_batch.map_or_else(fitting, Into::into);
        let Needs { memory, gpu, disk } = Needs::of(&manifest.run, work, micro_batch, device);
        let disk = disk.saturating_add(folder_bytes(local, manifest));
        let on_gpu = gpu.map(|gpu| format!(", {} of {device}", figures::bytes(gpu)));
        console.say(&format!(
            "this run takes {} of memory{} and {} of disk; its state is {}",
            figures::bytes(memory),
            on_gpu.unwrap_or_default(),
            figures::bytes(disk),
            figures::bytes(work.state_bytes())
        ));
        if micro_batch < work.train.batch && local.micro_batch.is_none() {
            console.say(&format!(
                "the memory is enough for {} of the {} sequences of a step at a time (--micro-batch)",
                micro_batch, work.train.batch
            ));
        }
        if let Some(sentence) = slow_rate(local, manifest) {
            console.say(&sentence);
        }
        if let Some(short) = gpu.and_then(|gpu| Shortage::of(gpu, free.gpu)) {
            let remedy = if micro_batch > 1 { "choose a smaller --micro-batch, " } else { "" };
            return Err(EnterError::GpuMemory { device, remedy, short });
        }
        if let Some(short) = Shortage::of(memory, free.host) {
            return Err(EnterError::Memory(short));
        }
        let folder: &Path = &local.data_dir;
        let disk = disk.saturating_sub(store::kept_bytes(folder, manifest.id));
        if let Some(short) = Shortage::of(disk, os::disk_available_bytes(folder)) {
            return Err(EnterError::Disk { folder: folder.display().to_string(), short });
        }
        Ok(Self { device, micro_batch })
    }
}

/// A sentence about a `--rate` at which an update takes long.
fn slow_rate(local: &Local, manifest: &Manifest) -> Option<String> {
    let (rate, update) = (local.options.rate?, update_bytes(&manifest.run, &manifest.work));
    let seconds = update.checked_div(rate).filter(|seconds| *seconds >= SLOW_SECONDS)?;
    Some(format!(
        "--rate: at {}/s an update of this run, {}, takes {} to send, for which the others wait in each epoch",
        figures::bytes(rate),
        figures::bytes(update),
        figures::length(seconds)
    ))
}

/// An update that takes so long to send is mentioned; guess.
const SLOW_SECONDS: u64 = 60;

/// Free bytes of memory, where the system reports them.
pub(crate) struct Free {
    /// Free memory of the machine, or of the control group if that is less.
    pub(crate) host: Option<u64>,
    /// Free memory of the GPU; `None` for a CPU, or where the driver does not say.
    pub(crate) gpu: Option<u64>,
}

impl Free {
    /// How many sequences a node takes at a time unless it is told: the batch, halved until it
    /// fits; 1 if nothing does.
    pub(crate) fn micro_batch(&self, manifest: &Manifest, device: Device) -> usize {
        let Manifest { run, work, .. } = manifest;
        let fits = |micro_batch| {
            let on_gpu = |free| train::fits_gpu(work, micro_batch, free);
            self.gpu.is_none_or(on_gpu) && self.holds(&Needs::of(run, work, micro_batch, device))
        };
        match device {
            // The driver of such a GPU does not report its memory.
            Device::Gpu(_) => 1,
            Device::Auto | Device::Cpu | Device::Cuda(_) => {
                train::micro_batch(work, fits).unwrap_or(1)
            }
        }
    }

    /// Whether nothing that is needed is known to be missing.
    fn holds(&self, needs: &Needs) -> bool {
        let gpu = needs.gpu.is_none_or(|gpu| self.gpu.is_none_or(|free| gpu <= free));
        gpu && self.host.is_none_or(|free| needs.memory <= free)
    }
}

/// Bytes of data that the run's folder has to hold, where the user names no files.
fn folder_bytes(local: &Local, manifest: &Manifest) -> u64 {
    let all = fetched_bytes(&manifest.work);
    let fetches = local.options.data.is_empty() && all <= local.fetch_data;
    if fetches { all } else { 0 }
}

#[cfg(test)]
mod tests {
    use intellect_model::config::Work;
    use intellect_protocol::manifest::Run;

    use super::*;
    use crate::{identity::Identity, manifest::Draft};

    #[test]
    fn less_memory_takes_fewer_sequences_at_a_time_and_at_least_one() {
        let key = Identity::simulated(1, 0);
        let draft = Draft::new(&Run::new(key.peer(), 1), &Work::synthetic()).unwrap();
        let manifest = draft.sign(&key.keypair()).unwrap();
        let batch = manifest.work.train.batch;
        let taken = |host| Free { host, gpu: None }.micro_batch(&manifest, Device::Cpu);
        let whole = Needs::of(&manifest.run, &manifest.work, batch, Device::Cpu).memory;
        assert_eq!([taken(None), taken(Some(whole)), taken(Some(1))], [batch, batch, 1]);
        assert!(taken(Some(whole - 1)) < batch);
        assert_eq!(Free { host: None, gpu: None }.micro_batch(&manifest, Device::Gpu(None)), 1);
    }
}
