//! What the run needs of this machine and its line, where an entry point hands out the run's
//! manifest.
//!
//! The needs of a run come from its manifest, and the rates of the line from a measurement against
//! one entry point. The two are compared here, so that a verdict speaks of the run and not of the
//! machine alone.

use std::path::Path;

use intellect_bootstrap::measure::{MeasureError, Rates};
use intellect_model::Device;

use super::check::{Check, Grade, at_least};
use crate::{
    enter::{
        machine::Free,
        needs::{self, Needs},
    },
    figures,
    manifest::Manifest,
    net::exam::RatesError,
    os,
};

/// The manifests among what entry points hand out that verify.
pub(super) fn runs(files: &[Vec<u8>]) -> Vec<Manifest> {
    files.iter().filter_map(|file| parse(file)).collect()
}

/// A signed manifest, if these bytes are one.
pub(super) fn parse(file: &[u8]) -> Option<Manifest> {
    Manifest::parse(str::from_utf8(file).ok()?).ok()
}

/// Whether this machine has the memory and the disk of each run. What is needed is computed for the
/// device of `--device auto` and the micro-batch that a node would take here, so bad means that no
/// smaller one helps. What the system does not say is taken for enough.
pub(super) fn needs(runs: &[Manifest], folder: &Path) -> Vec<Check> {
    if runs.is_empty() {
        let found = "no entry point hands out a manifest without being told which";
        return vec![Check::not_tried("run", found)];
    }
    let device = Device::Auto.resolve().unwrap_or(Device::Cpu);
    let free = Free { host: os::memory_available_bytes(), gpu: device.free_bytes().ok().flatten() };
    let check = |manifest: &Manifest| {
        let micro_batch = free.micro_batch(manifest, device);
        let needs = Needs::of(&manifest.run, &manifest.work, micro_batch, device);
        let short = |need: u64, free: Option<u64>| free.is_some_and(|free| free < need);
        let memory = short(needs.memory, free.host);
        let disk = short(needs.disk, os::disk_available_bytes(folder));
        let verdict = if memory || disk { Grade::Bad } else { Grade::Ok };
        let found = format!(
            "{} \"{}\" takes {} of memory and {} of disk",
            manifest.id,
            manifest.run.name,
            figures::bytes(needs.memory),
            figures::bytes(needs.disk)
        );
        Check::new("run", verdict, found)
            .about(manifest.id)
            .measured(needs.memory as f64, "bytes")
            .remedy_if_wrong(match (memory, disk) {
                (true, _) => "it does not fit into the memory here: join from a larger machine",
                (false, _) => "free some space, or name a folder on another disk with --data-dir",
            })
    };
    runs.iter().map(check).collect()
}

/// The rates of the line, against what the largest of the runs sends in an epoch.
///
/// The time of an epoch is what counts, for a ring waits for its slowest line: up to
/// [`SECONDS_GOOD`] it is ok, and beyond a warning. Without a run to compare with, a rate from
/// [`RATE_LEAST`] on is ok. No rate is bad: a slow peer slows the ring, and still takes part.
///
/// That an entry point has refused to measure says nothing of the line, so it is not tried then. A
/// measurement that broke off is a warning.
pub(super) fn rates(measured: Result<Rates, RatesError>, runs: &[Manifest]) -> Vec<Check> {
    let update = runs.iter().map(|m| needs::update_bytes(&m.run, &m.work)).max();
    let rates = match measured {
        Ok(rates) => rates,
        Err(error) => {
            let refused = matches!(error, RatesError::Measure(MeasureError::Refused(_)));
            let broken = matches!(error, RatesError::Measure(_)) && !refused;
            let verdict = if broken { Grade::Warning } else { Grade::NotTried };
            return ["down", "up"].map(|name| Check::new(name, verdict, error.to_string())).into();
        }
    };
    let of = |name: &'static str, rate: f64| {
        let least = if rate > f64::from(rates.limit) * NEAR { "at least " } else { "" };
        let speed = format!("{least}{}/s", figures::bytes(rate as u64));
        let Some(update) = update else {
            let verdict = at_least(rate, RATE_LEAST, 0.0);
            return Check::new(name, verdict, speed).measured(rate, "bytes/s");
        };
        // A ring of n moves 2 (n − 1) / n of an update through each line: at most two.
        let seconds = 2.0 * update as f64 / rate.max(1.0);
        let found = format!(
            "{speed}: an epoch moves at most {}, in {seconds:.1} s",
            figures::bytes(2 * update)
        );
        let verdict = if seconds <= SECONDS_GOOD { Grade::Ok } else { Grade::Warning };
        Check::new(name, verdict, found).measured(rate, "bytes/s").remedy_if_wrong(
            "use a cable and a faster line: the ring is as slow as its slowest line",
        )
    };
    vec![of("down", rates.down), of("up", rates.up)]
}

/// From this share of a server's limit on, the line may be faster than what was measured.
const NEAR: f64 = 0.85;
/// A guess: what a run of the smallest models needs. It is in bytes per second.
const RATE_LEAST: f64 = 100e3;
/// A guess: as long as an epoch of a run over home lines should train at least.
const SECONDS_GOOD: f64 = 60.0;
