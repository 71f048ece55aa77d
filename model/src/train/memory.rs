//! Estimates the memory of training, and from it how many sequences fit at a time.
//!
//! The estimates count numbers of 4 bytes; an architecture says how many it keeps for each token.

use crate::arch::Arch;
use crate::config::Work;

/// Estimates the bytes that training occupies with `micro_batch` sequences at a time. They are the
/// weights, the gradients, two Adam moments and the activations of each token. The embedding counts
/// once more, for its gradient while that is summed; a batch that is cut adds the sum of all
/// gradients. For seven shapes of a Llama with 0.1 to 38 M parameters the estimate is 0.93 to 1.02
/// of the measured memory (CPU, 2026-11).
#[must_use]
pub fn held_bytes(work: &Work, micro_batch: usize) -> u64 {
    of_parameters(work, micro_batch).saturating_add(of_tokens(work, micro_batch)).saturating_mul(4)
}

/// The same for a GPU, where the loss runs in its plain form, which keeps four more copies of the
/// scores, and where memory pools add a quarter to the activations. In the second step of three
/// presets (`tests/emucuda/budgets.toml`) 0.89 to 1.00 of the estimate was used.
#[must_use]
pub fn held_on_gpu(work: &Work, micro_batch: usize) -> u64 {
    let scores = tokens(work, micro_batch).saturating_mul(work.model.vocab as u64);
    let more = (of_tokens(work, micro_batch) / 4).saturating_add(scores.saturating_mul(4));
    held_bytes(work, micro_batch).saturating_add(more.saturating_mul(4))
}

/// Whether a GPU with `free` bytes can take `micro_batch` sequences at a time. Each tensor may take
/// at most a quarter of that memory and have fewer than 2³² numbers; the scores of the vocabulary
/// are the largest tensor. CubeCL takes memory in pages of a 16th, a 64th, a 256th of the GPU and so
/// on, and one page of each size may be almost empty: a twelfth in all stays free. On an H200,
/// llama-150m with 8 × 1,024 tokens took 23.1 GB, where 18.0 GB are estimated (2026-11).
#[must_use]
pub fn fits_gpu(work: &Work, micro_batch: usize, free: u64) -> bool {
    let scores = tokens(work, micro_batch).saturating_mul(work.model.vocab as u64);
    held_on_gpu(work, micro_batch) <= free - free / 12 && scores <= free / 16 && scores < 1 << 32
}

/// Numbers in memory independent of the sequences of a step: weights, gradients and two moments are
/// 4 copies, and sums of gradients a fifth.
fn of_parameters(work: &Work, micro_batch: usize) -> u64 {
    let model = &work.model;
    let copies = if micro_batch < work.train.batch { 5 } else { 4 };
    let embedding = (model.vocab * model.width) as u64;
    model.parameter_count().saturating_mul(copies).saturating_add(embedding)
}

/// Numbers in memory for the tokens of a step, as the architecture counts them.
fn of_tokens(work: &Work, micro_batch: usize) -> u64 {
    tokens(work, micro_batch).saturating_mul(Arch::new(&work.model).held_per_token())
}

/// Tokens that a step processes at a time.
fn tokens(work: &Work, micro_batch: usize) -> u64 {
    (micro_batch.min(work.train.batch) as u64).saturating_mul(work.model.context as u64)
}

/// The batch, halved (rounded up) until `fits` accepts it; `None` if not even one sequence fits.
/// Halves keep the parts of a batch equal where it is a power of two.
pub fn micro_batch(work: &Work, fits: impl Fn(usize) -> bool) -> Option<usize> {
    let halves = std::iter::successors(Some(work.train.batch), |size| match size {
        1 => None,
        _ => Some(size.div_ceil(2)),
    });
    halves.into_iter().find(|size| fits(*size))
}
