//! What a run needs of a machine, estimated for its organiser, and for a node before it begins.
//!
//! It estimates the most that a process holds at once. With P parameters the node holds the agreed state, the next one
//! and one that is being written (8·P bytes each). It holds local weights, those at Ready, the frozen delta or what
//! takes its place, and weights on their way to a device that still has the old ones (4·P each); then the encoded
//! updates. `model` estimates the trainer's part.

use intellect_model::config::Work;
use intellect_model::{Device, train};
use intellect_protocol::holdings::{IN_MEMORY, OPEN, PINNED_MAX};
use intellect_protocol::manifest::Run;
use intellect_protocol::peer::UPDATES_KEPT;

/// Bytes of memory, of a GPU's memory if one trains, and of disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Bytes of the machine's memory, the trainer's part included if a CPU trains.
    pub(crate) memory: u64,
    /// Bytes of a GPU's memory; `None` where a CPU trains.
    pub(crate) gpu: Option<u64>,
    /// Bytes of disk for checkpoints, updates and published weights, without the run's data.
    pub(crate) disk: u64,
}

impl Needs {
    /// What a node needs that trains with `micro_batch` sequences at a time on `device`.
    /// A GPU takes the trainer's part; the rest is in the machine's memory in both cases.
    pub(crate) fn of(run: &Run, work: &Work, micro_batch: usize, device: Device) -> Self {
        let gpu = device.is_gpu().then(|| train::held_on_gpu(work, micro_batch));
        let trainer = if gpu.is_some() { 0 } else { train::held_bytes(work, micro_batch) };
        let (state, update) = (work.state_bytes(), update_bytes(run, work));
        let copies = 3 * state + 4 * 4 * work.model.parameter_count();
        // Encoded updates: those that are served, and those of two attempts.
        let memory = PROGRAM_BYTES
            .saturating_add(copies)
            .saturating_add((IN_MEMORY as u64 + 2) * update)
            .saturating_add(trainer);
        let updates = (UPDATES_KEPT + OPEN) as u64;
        // Published weights are kept, without their momentum.
        let published = if run.genesis.is_some() { state / 2 } else { 0 };
        Self { memory, gpu, disk: CHECKPOINTS_ROOM * state + updates * update + published }
    }
}

/// Bytes of one encoded update of the run.
pub(crate) fn update_bytes(run: &Run, work: &Work) -> u64 {
    let elements = usize::try_from(work.model.parameter_count()).unwrap_or(usize::MAX);
    run.ring.codec.encoded_bytes(elements) as u64
}

/// Bytes of data that a node without any file of the run fetches; 0 where nobody hands the files out.
pub(crate) fn fetched_bytes(work: &Work) -> u64 {
    let files = work.data.source.files();
    if work.data.is_fetched() { files.iter().map(|file| file.bytes).sum() } else { 0 }
}

/// What the program needs for any model: a node with 0.1 M parameters had a peak of 37 MB (2026-11).
const PROGRAM_BYTES: u64 = 30_000_000;

/// Checkpoints that need room on disk: three that are kept, those that others fetch, one that is being written and
/// one that arrives.
const CHECKPOINTS_ROOM: u64 = 5 + PINNED_MAX as u64;

#[cfg(test)]
mod tests {
    use intellect_protocol::base::sign::Keypair;
    use intellect_protocol::ring::codec::Codec;

    use super::*;

    #[test]
    fn a_smaller_micro_batch_and_shorter_updates_need_less() {
        let (mut run, work) = (Run::new(Keypair::from_seed(&[1; 32]).peer(), 1), Work::synthetic());
        let whole = Needs::of(&run, &work, work.train.batch, Device::Cpu);
        let least = Needs::of(&run, &work, 1, Device::Cpu);
        let on_gpu = Needs::of(&run, &work, 1, Device::Gpu(Some(0)));
        let gpu = on_gpu.gpu.unwrap();
        assert!(
            gpu >= train::held_bytes(&work, 1)
                && least.memory == on_gpu.memory + train::held_bytes(&work, 1)
        );
        assert!(least.memory < whole.memory && least.disk == whole.disk);
        run.ring.codec = Codec::F32;
        let long = Needs::of(&run, &work, 1, Device::Cpu);
        let more = update_bytes(&run, &work) - work.model.parameter_count() * 260 / 256;
        assert!(long.memory > least.memory + 5 * more && long.disk > least.disk + 40 * more);
    }
}
