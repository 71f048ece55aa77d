//! The tasks of `bench device`: what is measured, at which sizes, and within which bounds a result is right.
//!
//! The measuring itself is in the model's crate, which knows the kernels; this file chooses sizes,
//! judges, and words the results. A task that needs more memory than the device has free is left
//! out and not judged. Speed is never wrong: only numbers are, and a result that is not the same
//! when it is computed again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use intellect_model::bench::{self, Subject};
use intellect_model::config::{Data, Family, Hints, Source, Work};
use intellect_model::data::{Dataset, Stream};
use intellect_model::genesis::{Init, Spec};
use intellect_model::ops::Heads;
use intellect_model::train::{self, TrainError};
use intellect_model::{Device, arch};
use serde_json::{Value, json};

use super::super::BenchError;
use crate::cli::device::DevicePart;
use crate::figures::bytes;
use crate::preset::Preset;

/// One line of the command: a name, and work that has a result.
pub(super) struct Task {
    /// The part that it belongs to, which decides when it runs and for how long.
    pub(super) part: DevicePart,
    /// The name of the task within its part.
    pub(super) of: String,
    /// The work. It gets the time after which it must not repeat anything.
    pub(super) work: Box<dyn FnOnce(Duration) -> Result<Finding, BenchError> + Send>,
}

/// The result of a task, for people and for programs.
pub(super) struct Finding {
    /// The figures as a sentence for a person.
    pub(super) words: String,
    /// The figures as a JSON object for a program.
    pub(super) figures: Value,
    /// Whether the figures are as they should be.
    pub(super) judgement: Judgement,
}

/// What a result says about the device.
pub(super) enum Judgement {
    /// Nothing is wrong, as far as this task can see.
    Right,
    /// What is wrong with the result.
    Wrong(String),
    /// Nothing was measured, for this reason.
    LeftOut(String),
}

impl Finding {
    /// A finding with its figures, against which nothing was said yet.
    pub(super) fn right(words: String, figures: Value) -> Self {
        Self { words, figures, judgement: Judgement::Right }
    }

    /// A finding without figures: something is wrong.
    pub(super) fn wrong(what: String) -> Self {
        Self { words: String::new(), figures: json!({}), judgement: Judgement::Wrong(what) }
    }

    /// A finding without figures: the task was not done.
    pub(super) fn left_out(why: String) -> Self {
        Self { words: String::new(), figures: json!({}), judgement: Judgement::LeftOut(why) }
    }

    /// Makes the finding wrong by the first complaint that applies. The figures stay, since they
    /// say by how much.
    fn unless<const N: usize>(mut self, complaints: [(bool, &str); N]) -> Self {
        if let Some((_, what)) = complaints.into_iter().find(|(wrong, _)| *wrong) {
            self.judgement = Judgement::Wrong(what.to_owned());
        }
        self
    }
}

/// All tasks, in the order of the parts. The last one is only for a GPU.
///
/// With `small` the sizes are those that a CPU computes in seconds. Some of them are no multiples
/// of the tiles of kernels, whose edges are tested by that. `peak` is what the device can do by its
/// data sheet, in TFLOP/s.
///
/// # Errors
/// [`BenchError::Preset`]: a built-in preset cannot be used.
pub(super) fn all(device: Device, small: bool, peak: Option<f64>) -> Result<Vec<Task>, BenchError> {
    use DevicePart::{Check, Facts, Memory, Operators, Products, Train};
    let mut tasks = vec![task(Facts, device.to_string(), move |_| facts(device))];
    for family in Family::ALL {
        tasks.push(task(Check, family.name().to_owned(), move |_| check(device, family)));
    }
    let repeats = if small { 3 } else { 20 };
    for subject in products(small) {
        let work = move |limit| operator(device, subject, repeats, limit);
        tasks.push(task(Products, named(subject), work));
    }
    for subject in operators(small) {
        let work = move |limit| operator(device, subject, repeats, limit);
        tasks.push(task(Operators, named(subject), work));
    }
    let steps = if small { 3 } else { 10 };
    for (name, work) in models(small)? {
        let work = move |limit| learn(device, work, peak, steps, limit);
        tasks.push(task(Train, name.to_owned(), work));
    }
    if device.is_gpu() {
        tasks.push(task(Memory, "more than there is".to_owned(), move |_| exhaust(device)));
    }
    Ok(tasks)
}

fn task(
    part: DevicePart,
    of: String,
    work: impl FnOnce(Duration) -> Result<Finding, BenchError> + Send + 'static,
) -> Task {
    Task { part, of, work: Box::new(work) }
}

/// What the device is, and with which backends this program was built.
fn facts(device: Device) -> Result<Finding, BenchError> {
    let facts = device.facts();
    let free = device.free_bytes().map_err(TrainError::from)?;
    let backends = [("cuda", cfg!(feature = "cuda")), ("wgpu", cfg!(feature = "wgpu"))];
    let built: Vec<_> =
        backends.iter().filter(|(_, built)| *built).map(|(name, _)| *name).collect();
    let threads = intellect_model::threads();
    let mut words: Vec<_> = facts.name.iter().cloned().collect();
    words.extend(facts.driver.iter().map(|driver| format!("driver {driver}")));
    words.extend(facts.compiler.iter().map(|version| format!("NVRTC {version}")));
    words.extend(free.map(|free| format!("{} free", bytes(free))));
    words.extend(facts.total_bytes.map(|total| format!("{} in all", bytes(total))));
    let with = if built.is_empty() { "neither cuda nor wgpu".to_owned() } else { built.join(", ") };
    words.push(format!("built with {with}; {threads} threads"));
    let figures = json!({
        "name": facts.name, "driver": facts.driver, "nvrtc": facts.compiler, "free_bytes": free,
        "total_bytes": facts.total_bytes, "built_with": built, "threads": threads,
    });
    Ok(Finding::right(words.join(", "), figures))
}

/// One step of a small model of this family on the device and on the CPU, whose results have to
/// agree within the bounds of each tensor. The step is taken again, and again in memory that is
/// full of NaN: other bits the second time come from a race, and other bits the third time from
/// memory that a kernel reads and nobody wrote.
fn check(device: Device, family: Family) -> Result<Finding, BenchError> {
    let found = bench::check(device, family)?;
    let [first, second] = [found.first, found.second].map(|time| time.as_secs_f64());
    let what = if found.of_bound == 0.0 { "all is equal" } else { &found.what };
    let words = format!(
        "at most {:.3} of its bound ({what}), {first:.2} s, again {second:.2} s",
        found.of_bound
    );
    let figures = json!({
        "of_bound": found.of_bound, "what": found.what, "first_s": first, "second_s": second,
        "same_again": found.same_again, "same_in_used_memory": found.same_in_used_memory,
    });
    Ok(Finding::right(words, figures).unless([
        (exceeds(found.of_bound, 1.0), &found.what),
        (!found.same_again, "the same step once more gives other bits"),
        (!found.same_in_used_memory, "in memory that was full of NaN it gives other bits"),
    ]))
}

/// Whether an error exceeds its bound; NaN exceeds every bound.
fn exceeds(error: f32, bound: f32) -> bool {
    error > bound || error.is_nan()
}

/// (rows, ins, outs) of the projections of llama-1b and finch-1b6; the large ones, which take long to read, come last.
fn products(small: bool) -> Vec<Subject> {
    let widths: &[(usize, usize)] = if small {
        &[(33, 65), (256, 512)]
    } else {
        &[
            (2048, 64),
            (2048, 160),
            (2048, 2048),
            (2048, 4096),
            (2048, 7168),
            (7168, 2048),
            (2048, 14_336),
            (2048, 65_536),
            (2048, 128_256),
        ]
    };
    let rows = if small { 130 } else { 2048 };
    widths.iter().map(|&(ins, outs)| Subject::Product { rows, ins, outs }).collect()
}

/// Attention and the recurrence at the sizes of llama-1b and finch-1b6.
fn operators(small: bool) -> [Subject; 2] {
    if small {
        let heads = Heads { sequences: 1, tokens: 200, query: 4, kv: 2, size: 64 };
        let wkv = Subject::Wkv { sequences: 1, tokens: 200, heads: 2, size: 64 };
        return [Subject::Attention(heads), wkv];
    }
    let heads = Heads { sequences: 1, tokens: 2048, query: 16, kv: 8, size: 128 };
    let wkv = Subject::Wkv { sequences: 1, tokens: 4096, heads: 32, size: 64 };
    [Subject::Attention(heads), wkv]
}

/// The name of a task of the operators: its sizes.
fn named(subject: Subject) -> String {
    match subject {
        Subject::Product { rows, ins, outs } => format!("{rows}×{ins} by {ins}×{outs}"),
        Subject::Attention(Heads { sequences, tokens, query, kv, size }) => {
            format!("attention {sequences}×{tokens}, {query} heads on {kv} of {size}")
        }
        Subject::Wkv { sequences, tokens, heads, size } => {
            format!("wkv {sequences}×{tokens}, {heads} heads of {size}")
        }
    }
}

/// Measures one operator, unless the device lacks the memory for it. It repeats the work up to
/// `repeats` times within `limit`. Only products have a speed in TFLOP/s: what the other operators
/// compute is no simple count.
fn operator(
    device: Device,
    subject: Subject,
    repeats: usize,
    limit: Duration,
) -> Result<Finding, BenchError> {
    let (needs, free) = (subject.bytes(), device.free_bytes().map_err(TrainError::from)?);
    if let Some(free) = free.filter(|free| *free < needs) {
        return Ok(Finding::left_out(format!("needs {}, {} are free", bytes(needs), bytes(free))));
    }
    let found = bench::measure(device, subject, repeats, limit)?;
    let [first, median] = [found.first, found.median].map(|time| time.as_secs_f64());
    let tflops = match subject {
        // One product forward, two backward.
        Subject::Product { rows, ins, outs } => {
            Some(6e-12 * (rows * ins * outs) as f64 / median.max(1e-9))
        }
        Subject::Attention(_) | Subject::Wkv { .. } => None,
    };
    let speed = tflops.map_or_else(String::new, |tflops| format!("{tflops:.3} TFLOP/s, "));
    let words = format!(
        "{:.3} ms, {speed}first {first:.2} s, error {:.1e}, {} repeats",
        1e3 * median,
        found.error,
        found.repeats
    );
    let figures = json!({
        "ms": 1e3 * median, "first_s": first, "tflop_per_s": tflops, "error": found.error,
        "repeats": found.repeats, "same": found.same,
    });
    let bound = if tflops.is_some() { PRODUCT_ERROR } else { OPERATOR_ERROR };
    let off = format!("off by {:.1e}, more than {bound:.0e}", found.error);
    Ok(Finding::right(words, figures).unless([
        (exceeds(found.error, bound), &off),
        (!found.same, "the same once more gives other bits"),
    ]))
}

/// Names and work of the models that are trained, on synthetic data, so that no file is needed. The
/// small ones have one sequence a step, the presets as many as make a step of [`TOKENS`].
fn models(small: bool) -> Result<Vec<(&'static str, Work)>, BenchError> {
    let source = Source::Synthetic { symbols: 256, order: 1 };
    let data = Data { source, held_out: 0.0, hints: Hints::default(), share: false };
    if small {
        let of = |family: Family| {
            let model = family.bench_model();
            let mut work = Work { model, data: data.clone(), ..Work::synthetic() };
            work.train.batch = 1;
            (family.name(), work)
        };
        return Ok(Family::ALL.map(of).into_iter().collect());
    }
    let of = |name: &'static str| {
        let mut table = Work::synthetic().to_toml();
        let preset = Preset::find(name).and_then(|preset| preset.table().ok());
        table.extend(preset.ok_or(BenchError::Preset { name })?);
        let work = Work::parse(&table).map_err(|_| BenchError::Preset { name })?;
        let mut work = Work { data: data.clone(), ..work };
        work.train.batch = (TOKENS / work.model.context).max(1);
        Ok((name, work))
    };
    ["llama-150m", "llama-1b", "eagle-1b5", "finch-1b6"].into_iter().map(of).collect()
}

/// Trains a model for some steps, with as many sequences as the device has free memory for.
///
/// The first step compiles kernels, and is reported apart. At least one more is taken, whatever
/// `limit` says, because a speed needs one. What the device lacks after the steps is compared with
/// the estimate by which a node chooses its micro batch; a reader has to judge that, as the
/// allocators of backends round differently.
fn learn(
    device: Device,
    mut work: Work,
    peak: Option<f64>,
    steps: usize,
    limit: Duration,
) -> Result<Finding, BenchError> {
    let start = Instant::now();
    let free = device.free_bytes().map_err(TrainError::from)?;
    work.train.batch = match free {
        Some(free) => match train::micro_batch(&work, |size| train::fits_gpu(&work, size, free)) {
            Some(size) => size,
            None => {
                let needs = bytes(train::held_on_gpu(&work, 1));
                return Ok(Finding::left_out(format!("needs {needs}, {} are free", bytes(free))));
            }
        },
        None => 1,
    };
    let source = Arc::new(Dataset::open(&work, SEED, &[])?);
    let mut trainer = intellect_model::trainer(&work, source, device, None)?;
    trainer.model().load(&weights(&arch::specs(&work.model)))?;
    let stream = Stream { seed: [SEED as u8; 32], committed: 0 };
    let (mut times, mut losses) = (Vec::new(), Vec::new());
    while times.len() < 2 || (times.len() <= steps && start.elapsed() < limit) {
        let (begin, number) = (Instant::now(), times.len() as u64);
        losses.push(trainer.step(&stream, number, number * work.tokens_per_step())?.loss);
        times.push(begin.elapsed().as_secs_f64());
    }
    let taken = match (free, device.free_bytes().map_err(TrainError::from)?) {
        (Some(before), Some(after)) => Some(before.saturating_sub(after)),
        _ => None,
    };
    let first = times.remove(0);
    times.sort_unstable_by(f64::total_cmp);
    let tokens_per_s = work.tokens_per_step() as f64 / times[times.len() / 2];
    let tflops = 1e-12 * tokens_per_s * arch::Arch::new(&work.model).flops_per_token() as f64;
    let (estimated, loss) = (train::held_on_gpu(&work, work.train.batch), losses[losses.len() - 1]);
    let share = peak.map(|peak| tflops / peak);
    let of_peak =
        share.map_or_else(String::new, |share| format!(" ({:.1} % of the peak)", 100.0 * share));
    let held = taken.map_or_else(String::new, |taken| format!("{} taken, ", bytes(taken)));
    let words = format!(
        "{tokens_per_s:.0} tokens/s, {tflops:.3} TFLOP/s{of_peak}, {} × {} tokens a step, first {first:.2} s, {held}{} \
         estimated, loss {loss:.3} after {} steps",
        work.train.batch,
        work.model.context,
        bytes(estimated),
        losses.len()
    );
    let figures = json!({
        "tokens_per_s": tokens_per_s, "tflop_per_s": tflops, "share_of_peak": share, "first_s": first,
        "sequences": work.train.batch, "context": work.model.context, "said_bytes": estimated,
        "taken_bytes": taken, "losses": losses, "parameters": work.model.parameter_count(),
    });
    let finite = losses.iter().all(|loss| loss.is_finite());
    Ok(Finding::right(words, figures).unless([(!finite, "a loss is no number")]))
}

/// Weights that are quick to draw: genesis' constants where it has them, else noise of ±0.02. Those
/// of genesis take much longer to draw. The noise is a linear congruential generator's, whose upper
/// bits are good enough.
fn weights(specs: &[Spec]) -> Vec<f32> {
    let mut state = SEED;
    let mut noise = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        0.02 * ((state >> 40) as f32 / (1_u64 << 23) as f32 - 1.0)
    };
    let mut weights = Vec::new();
    for spec in specs {
        match spec.init {
            Init::Constant(value) => weights.extend((0..spec.len()).map(|_| value as f32)),
            _ => weights.extend((0..spec.len()).map(|_| noise())),
        }
    }
    weights
}

/// Takes half of the device's free memory, and takes a step that needs more than the rest: its
/// scores are several tensors of the greatest size.
/// CubeCL alone would go on with what was in memory before.
///
/// It is right that the step fails as [`TrainError::Lost`], and that everything after it is
/// refused: nobody may take what was in memory before for numbers that were computed. The device
/// cannot be used by this process after that.
fn exhaust(device: Device) -> Result<Finding, BenchError> {
    let mut work = Work::synthetic();
    (work.model.vocab, work.model.context, work.model.width) = (1 << 20, 64, 16);
    let sequence = 4 * (work.model.vocab * work.model.context) as u64;
    let free = device.free_bytes().map_err(TrainError::from)?;
    // A larger tensor fails for another reason: its indices have more than 32 bits.
    let most = free.unwrap_or(u64::MAX).min((1 << 34) - sequence);
    work.train.batch = (most / sequence) as usize;
    let source = Arc::new(Dataset::open(&work, SEED, &[])?);
    let mut trainer = intellect_model::trainer(&work, source, device, None)?;
    trainer.model().load(&weights(&arch::specs(&work.model)))?;
    let _taken = free.map(|free| bench::occupy(device, free / 2)).transpose()?;
    let stream = Stream { seed: [SEED as u8; 32], committed: 0 };
    let asked = bytes(sequence * work.train.batch as u64);
    let failed = match trainer.step(&stream, 0, 0) {
        Err(TrainError::Lost { what, .. }) => what,
        Err(error) => return Err(error.into()),
        Ok(_) => return Ok(Finding::wrong(format!("{asked} at once are no error"))),
    };
    let refused = matches!(trainer.model().logits(&[1], 1), Err(TrainError::Lost { .. }));
    let words = format!("{asked} at once are an error ({failed}), and what comes after is refused");
    let found = Finding::right(words, json!({"asked": asked, "error": failed}));
    Ok(found.unless([(!refused, "after an allocation that failed it goes on")]))
}

/// Sums of 10⁵ products in f32 are off by a few 1e-6; factors that were rounded to TF32 by 2e-4.
const PRODUCT_ERROR: f32 = 3e-5;

/// Both sides are in f32, and the gradient of a decay is a difference of sums over a row; a fault is in the first digits.
const OPERATOR_ERROR: f32 = 1e-4;

/// Most tokens of a step: a guess of what is enough to keep a GPU busy. The free memory may allow
/// fewer.
const TOKENS: usize = 8192;

/// The seed of weights and data; any other would do.
const SEED: u64 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_has_its_tasks_on_a_gpu_and_presets_are_read() {
        let tasks = all(Device::Cuda(0), false, None).unwrap();
        let count = |part| tasks.iter().filter(|task| task.part == part).count();
        use DevicePart::{Check, Facts, Memory, Operators, Products, Train};
        let counts = [Facts, Check, Products, Operators, Train, Memory].map(count);
        assert_eq!(counts, [1, 4, 9, 2, 4, 1]);
        for (name, work) in models(false).unwrap() {
            assert_eq!(work.tokens_per_step(), TOKENS as u64, "{name}");
        }
        assert_eq!(models(false).unwrap()[1].1.model.vocab, 128_256);
    }
}
