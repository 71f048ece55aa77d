//! What training holds in memory, and how many sequences at a time are not too many.

use crate::arch::Arch;
use crate::config::Work;

/// Estimates the bytes that training holds with `micro_batch` sequences at a time: weights,
/// gradients, two Adam moments, the sum of gradients where a batch is cut, the embedding's gradient
/// once more while it is summed up, and what a step holds of each token. Of seven shapes of a Llama
/// with 0.1 to 38 M parameters it says 0.93 to 1.02 of what was held (CPU, 2026-11).
#[must_use]
pub fn held_bytes(work: &Work, micro_batch: usize) -> u64 {
    of_parameters(work, micro_batch).saturating_add(of_tokens(work, micro_batch)).saturating_mul(4)
}

/// The same of a GPU, where the loss runs in its plain form, which keeps the scores four times more, and pools of memory
/// hold a quarter more of what a step holds of each token. Counted in the second step of three presets
/// (`tests/emucuda/budgets.toml`): 0.89 to 1.00 of it were held.
#[must_use]
pub fn held_on_gpu(work: &Work, micro_batch: usize) -> u64 {
    let scores = tokens(work, micro_batch).saturating_mul(work.model.vocab as u64);
    let more = (of_tokens(work, micro_batch) / 4).saturating_add(scores.saturating_mul(4));
    held_bytes(work, micro_batch).saturating_add(more.saturating_mul(4))
}

/// Whether a GPU with so many free bytes takes so many sequences at a time. A tensor of it is at most a quarter of its
/// memory, and has fewer numbers than 32 bits count; the scores of the vocabulary are the largest.
#[must_use]
pub fn fits_gpu(work: &Work, micro_batch: usize, free: u64) -> bool {
    let scores = tokens(work, micro_batch).saturating_mul(work.model.vocab as u64);
    held_on_gpu(work, micro_batch) <= free && scores <= free / 16 && scores < 1 << 32
}

/// Numbers that are held whatever a step takes.
fn of_parameters(work: &Work, micro_batch: usize) -> u64 {
    let model = &work.model;
    let copies = if micro_batch < work.train.batch { 5 } else { 4 };
    model
        .parameter_count()
        .saturating_mul(copies)
        .saturating_add((model.vocab * model.width) as u64)
}

/// Numbers that are held of the tokens of a step.
fn of_tokens(work: &Work, micro_batch: usize) -> u64 {
    tokens(work, micro_batch).saturating_mul(Arch::new(&work.model).held_per_token())
}

/// Tokens that a step takes at a time.
fn tokens(work: &Work, micro_batch: usize) -> u64 {
    (micro_batch.min(work.train.batch) as u64).saturating_mul(work.model.context as u64)
}

/// The batch, or the half of it as often as it takes until `fits` agrees; nothing if one sequence does not fit.
pub fn micro_batch(work: &Work, fits: impl Fn(usize) -> bool) -> Option<usize> {
    let halves = std::iter::successors(Some(work.train.batch), |size| match size {
        1 => None,
        _ => Some(size.div_ceil(2)),
    });
    halves.into_iter().find(|size| fits(*size))
}
